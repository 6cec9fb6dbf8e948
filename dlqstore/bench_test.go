package dlqstore_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
)

// BenchmarkMove measures one move with two attempts.
func BenchmarkMove(b *testing.B) {
	store, n := openStore(b), 0
	for b.Loop() {
		n++
		move(b, store, letter(keyOf(strconv.Itoa(n))))
	}
}

// BenchmarkReplay measures the database's part of one replay.
func BenchmarkReplay(b *testing.B) {
	store, n := openStore(b), 0
	move(b, store, letter(keyOf("w")))
	for b.Loop() {
		n++
		requestID := strconv.Itoa(n)
		_, err := store.BeginReplay(b.Context(), dlqstore.ReplayRequest{Key: keyOf("w"), RequestID: requestID})
		require.NoError(b, err)
		require.NoError(b, store.ConfirmReplay(b.Context(), requestID, "run"))
	}
}

// BenchmarkList measures one page of fifty.
func BenchmarkList(b *testing.B) {
	store := openStore(b)
	for i := range 200 {
		move(b, store, letter(keyOf(strconv.Itoa(i))))
	}
	for b.Loop() {
		rows, _, err := store.List(b.Context(), dlqstore.Filter{Namespace: "default"}, dlqstore.Page{})
		require.NoError(b, err)
		require.Len(b, rows, 50)
	}
}

// BenchmarkPrune measures two batches, of a policy that keeps by age and number.
func BenchmarkPrune(b *testing.B) {
	store := openStore(b)
	setPolicy(b, store, policy("both", func(p *dlqstore.RetentionPolicy) { p.KeepLast = 1000 }))
	for b.Loop() {
		b.StopTimer()
		run(b, store, `insert into deadletter.dead_letters (namespace, workflow_id, run_id, reason, payloads, dead_at)
			select 'default', 'w' || i, gen_random_uuid()::text, 'fatal_error', '', now() - interval '2 days' from generate_series(1, 1000) i`)
		b.StartTimer()
		require.EqualValues(b, 1000, prune(b, store)["both"])
	}
}
