package testsuite_test

import (
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/devstack/devtest"
)

// TestVerbsThroughPooler proves that the workers and the verbs of the command line that
// talk to Postgres work through a pooler in transaction mode: every verb in the mode that
// is taken by default and in the one that differs most from it, some in the others.
func TestVerbsThroughPooler(t *testing.T) {
	t.Parallel()
	devtest.Pooler(t, devtest.Postgres(t)) // says once that the program is missing
	program := filepath.Join(t.TempDir(), "temporal-deadletter")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../cmd/temporal-deadletter").CombinedOutput()
	require.NoError(t, err, "%s", out)
	for mode, verbs := range map[string]func(w *world, call caller){
		"": everyVerb, "simple_protocol": everyVerb,
		"cache_statement": someVerbs, "cache_describe": someVerbs, "describe_exec": someVerbs, "exec": someVerbs,
	} {
		t.Run("mode "+mode, func(t *testing.T) {
			t.Parallel()
			database := devtest.Pooler(t, devtest.Postgres(t))
			if mode != "" {
				database += "&default_query_exec_mode=" + mode
			}
			w := newWorldOn(t, database)
			verbs(w, func(args ...string) []byte { return w.call(program, args) })
		})
	}
}

// caller calls the command line, which must succeed, and returns its output.
type caller func(args ...string) []byte

func (w *world) call(program string, args []string) []byte {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, append(args, "--address", w.address, "--namespace", w.namespace, "--database-url", w.database)...)
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); err != nil {
		require.ErrorAs(w.t, err, &exit, args)
		require.Fail(w.t, "a verb failed", "%v: %v: %s", args, err, exit.Stderr)
	}
	return out
}

// mended returns a dead letter whose replays succeed.
func (w *world) mended() client.WorkflowRun {
	w.t.Helper()
	stop := w.startJobs(handlers{"Fail": fail})
	w.startDLQ(nil)
	dead := w.deadJob()
	stop()
	w.startJobs(handlers{"Fail": func(context.Context, string) error { return nil }})
	return dead
}

func someVerbs(w *world, call caller) {
	id := w.mended().GetID()
	call("migrate")
	call("list", "--error-text", "refused")
	call("note", "-w", id, "a note")
	call("edit", "-w", id, "--args", `["edited"]`)
	call("replay", "-w", id, "--yes")
	w.succeeded(1)
	call("show", "-w", id)
	call("purge", "-w", id, "--yes")
	require.Equal(w.t, map[string]int{
		dlqstore.VerbMove: 1, dlqstore.VerbNote: 1, dlqstore.VerbEdit: 1, dlqstore.VerbReplay: 1, dlqstore.VerbSettle: 1, dlqstore.VerbPurge: 1,
	}, w.eventsByVerb())
}

func everyVerb(w *world, call caller) {
	dead := w.mended()
	const clones = 30
	w.cloneDead(dead, "bulk-", clones)

	call("migrate")
	id := dead.GetID()
	var stats struct {
		DeadLetter int64 `json:"dead_letter"`
	}
	require.NoError(w.t, json.Unmarshal(call("stats", "--hourly", "-o", "json"), &stats))
	require.EqualValues(w.t, 1+clones, stats.DeadLetter)
	for _, args := range [][]string{
		{"list", "--error-text", "refused", "--tag", "tenant=acme", "--min-attempts", "1", "-o", "json"},
		{"list", "--limit", "10", "--dead-after", "2h"},
		{"groups", "--type", "Fail"},
		{"export", "--format", "csv", "--type", "Fail"},
		{"note", "-w", id, "a note"},
		{"pin", "-w", id},
		{"unpin", "-w", id},
		{"edit", "-w", id, "--args", `["edited"]`},
		{"edit", "-w", id, "--args", `["again"]`, "--replay"},
		{"replay", "-w", id, "--yes"},
		{"jobs"},
		{"show", "-w", id},
		{"purge", "-w", "bulk-1", "--yes"},
		{"purge", "--type", "Fail", "--generation", "0", "--dead-before", "2020-01-01T00:00:00Z", "--yes"},
		{"retention", "set", "month", "--all", "--keep", "30d", "--yes"},
		{"retention", "list"},
		{"retention", "run", "--yes"},
		{"retention", "remove", "month"},
		{"stats", "--by", "reason"},
		{"events", "--since", "2h"},
	} {
		call(args...)
	}

	for _, plan := range [][]string{
		{"plan", "edit", "--json-patch", `[{"op": "replace", "path": "/0", "value": "by plan"}]`},
		{"plan", "retag", "--set-tag", "team=mail"},
		{"plan", "replay"},
		{"plan", "purge"},
	} {
		var made struct {
			ID string `json:"id"`
		}
		require.NoError(w.t, json.Unmarshal(call(append(plan, "--type", "Fail", "-o", "json")...), &made))
		call("plan", "show", made.ID)
		call("apply", made.ID, "--yes", "--rate", "-1")
		call("plan", "items", made.ID, "--state", "done")
		if plan[1] == "replay" {
			w.succeeded(clones + 1)
		}
	}
	call("plan", "list")
	require.Zero(w.t, w.count())
	const planned = clones // of all, one is purged before
	require.Equal(w.t, map[string]int{
		dlqstore.VerbMove: 1, dlqstore.VerbNote: 1, dlqstore.VerbPin: 1, dlqstore.VerbUnpin: 1,
		dlqstore.VerbEdit:   2 + 2*planned,
		dlqstore.VerbReplay: 2 + planned - 1, // a plan leaves out what a replay has put right
		dlqstore.VerbSettle: 2 + planned - 1,
		dlqstore.VerbPurge:  1 + planned,
		dlqstore.VerbPlan:   4, dlqstore.VerbApply: 4, dlqstore.VerbFinish: 4,
		dlqstore.VerbRetentionSet: 1, dlqstore.VerbRetentionRemove: 1,
	}, w.eventsByVerb())
}

// eventsByVerb counts the events.
func (w *world) eventsByVerb() map[string]int {
	w.t.Helper()
	verbs := map[string]int{}
	rows, err := w.store.Pool().Query(w.t.Context(), `select verb, count(*) from deadletter.events group by verb`)
	require.NoError(w.t, err)
	for rows.Next() {
		var verb string
		var n int
		require.NoError(w.t, rows.Scan(&verb, &n))
		verbs[verb] = n
	}
	require.NoError(w.t, rows.Err())
	return verbs
}

// succeeded waits until as many replays are known to have succeeded.
func (w *world) succeeded(n int) {
	w.t.Helper()
	w.grows(n, func() (succeeded int) {
		err := w.store.Pool().QueryRow(w.t.Context(), `select count(*) from deadletter.replays where outcome = 'succeeded'`).Scan(&succeeded)
		require.NoError(w.t, err)
		return succeeded
	})
}
