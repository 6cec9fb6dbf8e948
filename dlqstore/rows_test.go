package dlqstore_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// rowsBegin is when the first of copyRows died; they die a second apart.
var rowsBegin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// copyRows fills the table by COPY, as after a long outage: few causes have most of
// the rows, and many have a few.
func copyRows(t testing.TB, store *dlqstore.Store, total int) {
	t.Helper()
	reasons := job.Reasons()
	columns := []string{
		"namespace", "workflow_id", "run_id", "first_run_id", "job_type", "task_queue", "reason", "attempts", "max_attempts",
		"error_type", "error_message", "error_stack", "tags", "options", "payload_json", "enqueued_at", "dead_at",
		"resurrection_count", "generation", "fingerprint", "superseded_at", "payloads",
	}
	row := func(i int) []any {
		skewed := i % 100 * (i % 7) / 6 // of 0 to 99, the small ones more often
		dead := rowsBegin.Add(time.Duration(i) * time.Second)
		namespace := "default"
		if i%50 == 49 {
			namespace = "other"
		}
		var attempts *int
		if i%20 != 0 {
			attempts = ptr(1 + skewed%10)
		}
		var superseded *time.Time
		if i%100 == 0 {
			superseded = &dead
		}
		cause := skewed*3 + i%3
		id := fmt.Sprintf("order-%08d", i)
		return []any{
			namespace, id, id + "-run", id + "-run", fmt.Sprint("type-", cause%40), fmt.Sprint("queue-", cause%8), string(reasons[skewed%10]), attempts, 10,
			fmt.Sprintf("Error%d", cause%25), fmt.Sprintf("dial tcp 10.0.%d.%d:5432: cause %d refused order %d", i%256, i/256%256, cause, i), "handler.go:12",
			json.RawMessage(fmt.Sprintf(`{"tenant": "tenant-%d", "region": "region-%d"}`, i%1000, skewed%4)), json.RawMessage(`{"type": "x"}`),
			json.RawMessage(fmt.Sprintf(`[{"customer": {"id": %d, "name": "customer %d"}, "kind": "kind-%d"}]`, i/2, i/2, skewed%5)),
			dead.Add(-time.Duration(skewed) * time.Minute), dead, b2i(i%20 == 0), b2i(i%30 == 0), fmt.Sprintf("%016x", cause), superseded, []byte("payload"),
		}
	}
	const batch = 100_000
	for from := 0; from < total; from += batch {
		rows := pgx.CopyFromSlice(min(batch, total-from), func(i int) ([]any, error) { return row(from + i), nil })
		_, err := store.Pool().CopyFrom(t.Context(), pgx.Identifier{"deadletter", "dead_letters"}, columns, rows)
		require.NoError(t, err)
	}
	run(t, store, `vacuum analyze deadletter.dead_letters`)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// rowFilters are each field of a filter alone, once rare and once common where that
// differs, and the commonest pairs, on the rows of copyRows.
func rowFilters(total int) map[string]dlqstore.Filter {
	early, late := rowsBegin.Add(time.Duration(total/10)*time.Second), rowsBegin.Add(time.Duration(total*9/10)*time.Second)
	yes, no := true, false
	return map[string]dlqstore.Filter{
		"nothing":                   {},
		"type":                      {JobType: "type-1"},
		"type rare":                 {JobType: "type-37"},
		"reason":                    {Reason: job.ReasonMaxRetriesExceeded},
		"reason rare":               {Reason: job.ReasonTerminated},
		"queue":                     {TaskQueue: "queue-3"},
		"fingerprint":               {Fingerprint: fmt.Sprintf("%016x", 1)},
		"fingerprint rare":          {Fingerprint: fmt.Sprintf("%016x", 290)},
		"tag":                       {Tags: map[string]string{"tenant": "tenant-7"}},
		"tag common":                {Tags: map[string]string{"region": "region-0"}},
		"error text":                {ErrorText: "cause 7 REFUSED"},
		"error text rare":           {ErrorText: "order 4711"},
		"error type":                {ErrorText: "error13"},
		"dead after":                {DeadAfter: &late},
		"dead before":               {DeadBefore: &early},
		"dead between":              {DeadAfter: &early, DeadBefore: &late},
		"enqueued after":            {EnqueuedAfter: &late},
		"enqueued before":           {EnqueuedBefore: &early},
		"enqueued between":          {EnqueuedAfter: &early, EnqueuedBefore: &late},
		"min attempts":              {MinAttempts: ptr(10)},
		"max attempts":              {MaxAttempts: ptr(2)},
		"attempts":                  {MinAttempts: ptr(4), MaxAttempts: ptr(4)},
		"generation":                {Generation: ptr(1)},
		"replayed":                  {Replayed: &yes},
		"not replayed":              {Replayed: &no},
		"superseded":                {Superseded: &yes},
		"not superseded":            {Superseded: &no},
		"argument":                  {Where: where("args[0].customer.id=4711")},
		"argument common":           {Where: where("args[0].kind=kind-0")},
		"workflow id":               {WorkflowID: "order-00004711"},
		"type, reason":              {JobType: "type-1", Reason: job.ReasonMaxRetriesExceeded},
		"queue, reason":             {TaskQueue: "queue-3", Reason: job.ReasonTimeout},
		"type, dead between":        {JobType: "type-1", DeadAfter: &early, DeadBefore: &late},
		"tag, reason":               {Tags: map[string]string{"tenant": "tenant-7"}, Reason: job.ReasonFatalError},
		"fingerprint, replayed":     {Fingerprint: fmt.Sprintf("%016x", 1), Replayed: &yes},
		"fingerprint, not replayed": {Fingerprint: fmt.Sprintf("%016x", 1), Replayed: &no},
		"reason, not replayed":      {Reason: job.ReasonTimeout, Replayed: &no},
		"type, error text":          {JobType: "type-1", ErrorText: "refused order 12"},
		"type, argument":            {JobType: "type-1", Where: where("args[0].kind=kind-0")},
	}
}

// explain returns the plan of a page of a list.
func explain(t testing.TB, store *dlqstore.Store, filter dlqstore.Filter, page dlqstore.Page) (plan string) {
	t.Helper()
	text, args, err := store.ListQuery(filter, page)
	require.NoError(t, err)
	rows, err := store.Pool().Query(t.Context(), "explain (costs off) "+text, pgx.QueryExecModeExec, pgx.NamedArgs(args))
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	for _, line := range lines {
		plan += line + "\n"
	}
	return plan
}
