package dlqstore_test

import (
	"context"
	"flag"
	"maps"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
)

var benchRows = flag.Int("rows", 2_000_000, "dead letters that BenchmarkFind loads")

// BenchmarkFind measures reads of a large table; it loads the rows first, once:
//
//	go test ./dlqstore -run '^$' -bench Find -benchtime 100x -timeout 60m
func BenchmarkFind(b *testing.B) {
	store := openStore(b, dlqstore.WithTimeout(10*time.Minute))
	began := time.Now()
	loadRows(b, store, *benchRows)
	b.Logf("loaded %d rows in %s", *benchRows, time.Since(began).Round(time.Second))
	filters := rowFilters(*benchRows)
	for _, name := range slices.Sorted(maps.Keys(filters)) {
		filter := filters[name]
		filter.Namespace = "default"
		b.Run("first page/"+name, func(b *testing.B) { benchmarkFirstPage(b, store, filter) })
	}
	for name, filter := range map[string]dlqstore.Filter{"nothing": {Namespace: "default"}, "type": {Namespace: "default", JobType: "type-1"}} {
		b.Run("deep page/"+name, func(b *testing.B) { benchmarkDeepPage(b, store, filter) })
	}
	for name, read := range map[string]func(ctx context.Context) error{
		"count": func(ctx context.Context) error { _, err := store.CountDeadLetters(ctx, "default"); return err },
		"by type": func(ctx context.Context) error {
			_, _, err := store.CountBy(ctx, "default", dlqstore.ByJobType, 0)
			return err
		},
		"trend": func(ctx context.Context) error { _, err := store.Trend(ctx, "default"); return err },
		"groups": func(ctx context.Context) error {
			_, _, err := store.Groups(ctx, dlqstore.Filter{Namespace: "default"}, 0)
			return err
		},
		"groups of a type": func(ctx context.Context) error {
			_, _, err := store.Groups(ctx, dlqstore.Filter{Namespace: "default", JobType: "type-1"}, 0)
			return err
		},
		"groups of the last 40000": func(ctx context.Context) error {
			since := rowsBegin.Add(time.Duration(*benchRows-40_000) * time.Second)
			_, _, err := store.Groups(ctx, dlqstore.Filter{Namespace: "default", DeadAfter: &since}, 0)
			return err
		},
	} {
		b.Run("stats/"+name, func(b *testing.B) {
			for b.Loop() {
				require.NoError(b, read(b.Context()))
			}
		})
	}
	b.Run("export", func(b *testing.B) { benchmarkExport(b, store) })
}

// loadRows builds the indexes after the rows, which is many times faster.
func loadRows(b *testing.B, store *dlqstore.Store, total int) {
	b.Helper()
	const own = `from pg_index x join pg_class c on c.oid = x.indexrelid
		where x.indrelid = 'deadletter.dead_letters'::regclass and not x.indisprimary`
	definitions := scalar[[]string](b, store, `select array_agg(pg_get_indexdef(c.oid)) `+own)
	for _, index := range scalar[[]string](b, store, `select array_agg(format('%I', c.relname)) `+own) {
		run(b, store, `drop index deadletter.`+index)
	}
	copyRows(b, store, total)
	conn, err := store.Pool().Acquire(b.Context())
	require.NoError(b, err)
	defer conn.Release()
	for _, sql := range append(append([]string{`set maintenance_work_mem = '1GB'`}, definitions...), `vacuum analyze deadletter.dead_letters`, `checkpoint`, `reset maintenance_work_mem`) {
		_, err := conn.Exec(b.Context(), sql)
		require.NoError(b, err)
	}
	require.NoError(b, store.Compact(b.Context()))
}

// benchmarkFirstPage compares a page of List with the bare SELECT of its rows and
// columns, turn by turn.
func benchmarkFirstPage(b *testing.B, store *dlqstore.Store, filter dlqstore.Filter) {
	require.NotContains(b, explain(b, store, filter, dlqstore.Page{}), "Seq Scan")
	text, args, err := store.BareList(filter)
	require.NoError(b, err)
	var bare, list time.Duration
	for b.Loop() {
		began := time.Now()
		rows, err := store.Pool().Query(b.Context(), text, pgx.NamedArgs(args))
		require.NoError(b, err)
		selected := 0
		for rows.Next() {
			selected++
		}
		require.NoError(b, rows.Err())
		bare += time.Since(began)

		began = time.Now()
		page, next, err := store.List(b.Context(), filter, dlqstore.Page{})
		list += time.Since(began)
		require.NoError(b, err)
		require.Equal(b, selected > 50, next != "")
		require.Len(b, page, min(selected, 50))
	}
	b.ReportMetric(list.Seconds()*1000/float64(b.N), "list-ms")
	b.ReportMetric(bare.Seconds()*1000/float64(b.N), "bare-ms")
	b.ReportMetric(list.Seconds()/bare.Seconds(), "ratio")
}

// benchmarkDeepPage compares page 10,000, or the middle of a shorter list, with page
// 1, turn by turn.
func benchmarkDeepPage(b *testing.B, store *dlqstore.Store, filter dlqstore.Filter) {
	count, err := store.Count(b.Context(), filter)
	require.NoError(b, err)
	skipped := min(9_999*50, count/2)
	var from dlqstore.DeadLetter
	require.NoError(b, store.Pool().QueryRow(b.Context(), `select namespace, workflow_id, run_id, dead_at from deadletter.dead_letters
		where namespace = $1 and ($2 = '' or job_type = $2) order by dead_at desc offset $3 limit 1`,
		filter.Namespace, filter.JobType, skipped-1).Scan(&from.Namespace, &from.WorkflowID, &from.RunID, &from.DeadAt))
	cursor, err := dlqstore.CursorAfter(&from, false)
	require.NoError(b, err)
	var first, deep time.Duration
	for b.Loop() {
		for page, into := range map[dlqstore.Page]*time.Duration{{}: &first, {Cursor: cursor}: &deep} {
			began := time.Now()
			rows, _, err := store.List(b.Context(), filter, page)
			*into += time.Since(began)
			require.NoError(b, err)
			require.Len(b, rows, 50)
		}
	}
	b.ReportMetric(float64(skipped/50+1), "page")
	b.ReportMetric(deep.Seconds()*1000/float64(b.N), "deep-ms")
	b.ReportMetric(first.Seconds()*1000/float64(b.N), "first-ms")
	b.ReportMetric(deep.Seconds()/first.Seconds(), "ratio")
}

// benchmarkExport exports up to a million rows and reports by how much the heap grew
// meanwhile, over what it was after the first thousand.
func benchmarkExport(b *testing.B, store *dlqstore.Store) {
	limit := min(1_000_000, *benchRows*49/50)
	var grown float64
	var taken time.Duration
	for b.Loop() {
		began, rows, base := time.Now(), 0, uint64(0)
		for _, err := range store.Export(b.Context(), dlqstore.ExportRequest{Filter: dlqstore.Filter{Namespace: "default"}}) {
			require.NoError(b, err)
			rows++
			if rows == 1000 {
				base = heap()
			} else if rows%(limit/10) == 0 {
				grown = max(grown, float64(heap())-float64(base))
			}
			if rows == limit {
				break
			}
		}
		require.Equal(b, limit, rows)
		taken += time.Since(began)
	}
	b.ReportMetric(float64(limit*b.N)/taken.Seconds(), "rows/s")
	b.ReportMetric(grown/(1<<20), "grown-MiB")
}

// heap is what the program holds.
func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
