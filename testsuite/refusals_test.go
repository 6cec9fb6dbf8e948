package testsuite_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
	"github.com/deadletter-dev/deadletter/operator"
)

// TestRefusalsAudited proves that each verb of the operator which changes something
// leaves one event when it is refused, with who asked and of which plan, and that
// none does when nobody says who asks.
func TestRefusalsAudited(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.load(2)
	op, ctx := w.operator, t.Context()
	ended := w.plan(dlqstore.PlanRequest{Verb: job.BulkPurge, All: true}).ID
	require.NoError(t, op.CancelPlan(ctx, ended, "ann"))
	idle := w.plan(dlqstore.PlanRequest{Verb: job.BulkPurge, All: true}).ID

	policy := dlqstore.RetentionPolicy{Name: "p", KeepLast: 1}
	for _, test := range []struct {
		verb, plan string
		do         func(actor string) error
	}{
		{"plan", "", func(actor string) error {
			_, err := op.CreatePlan(ctx, dlqstore.PlanRequest{Verb: job.BulkPurge, Actor: actor})
			return err
		}},
		{"apply", "plan-nosuch", func(actor string) error {
			_, err := op.Apply(ctx, operator.ApplyRequest{PlanID: "plan-nosuch", Actor: actor})
			return err
		}},
		{"apply", ended, func(actor string) error {
			_, err := op.Apply(ctx, operator.ApplyRequest{PlanID: ended, Actor: actor})
			return err
		}},
		{"pause", ended, func(actor string) error { return op.PausePlan(ctx, ended, actor) }},
		{"pause", idle, func(actor string) error { return op.PausePlan(ctx, idle, actor) }},
		{"resume", ended, func(actor string) error { return op.ResumePlan(ctx, ended, actor) }},
		{"cancel", ended, func(actor string) error { return op.CancelPlan(ctx, ended, actor) }},
		{"cancel", "plan-nosuch", func(actor string) error { return op.CancelPlan(ctx, "plan-nosuch", actor) }},
		{"pin", "", func(actor string) error { _, err := op.Pin(ctx, "nobody", "", actor); return err }},
		{"unpin", "", func(actor string) error { _, err := op.Unpin(ctx, "nobody", "", actor); return err }},
		{"retention_set", "", func(actor string) error {
			_, err := op.SetRetention(ctx, operator.RetentionRequest{Policy: policy, Actor: actor})
			return err
		}},
		{"retention_remove", "", func(actor string) error { return op.RemoveRetention(ctx, "nobody", actor) }},
		{"job_retry_now", "", func(actor string) error {
			_, err := op.RetryNow(ctx, operator.JobRequest{WorkflowID: "nobody", Actor: actor})
			return err
		}},
		{"job_cancel", "", func(actor string) error {
			_, err := op.CancelJob(ctx, operator.JobRequest{WorkflowID: "nobody", Actor: actor})
			return err
		}},
		{"replay", "", func(actor string) error {
			_, err := op.Replay(ctx, operator.ReplayRequest{WorkflowID: "nobody", Actor: actor})
			return err
		}},
		{"purge", "", func(actor string) error { _, err := op.Purge(ctx, "nobody", "", actor); return err }},
		{"purge", "", func(actor string) error {
			_, err := op.PurgeMatching(ctx, dlqstore.PurgeRequest{Actor: actor})
			return err
		}},
		{"edit", "", func(actor string) error {
			_, err := op.Edit(ctx, operator.EditRequest{WorkflowID: "nobody", Revision: 1, Edit: job.Edit{TaskQueue: "q"}, Actor: actor})
			return err
		}},
		{"note", "", func(actor string) error {
			_, err := op.Note(ctx, operator.NoteRequest{WorkflowID: "nobody", Text: "x", Actor: actor})
			return err
		}},
	} {
		before := w.newestEvents(1)[0].ID
		require.ErrorIs(t, test.do(""), operator.ErrNoActor, test.verb)
		require.Error(t, test.do("carl"), test.verb)
		found := w.newestEvents(2)
		require.Equal(t, test.verb+"_refused", found[0].Verb)
		require.Equal(t, "carl", found[0].Actor, test.verb)
		require.Equal(t, before, found[1].ID, "%s left more than one event", test.verb)
		if test.plan != "" {
			require.NotNil(t, found[0].PlanID, test.verb)
			require.Equal(t, test.plan, *found[0].PlanID)
		}
	}
	require.EqualValues(t, 2, w.count())
}

func (w *world) newestEvents(n int) []dlqstore.Event {
	w.t.Helper()
	events, _, err := w.operator.Events(w.t.Context(), dlqstore.EventFilter{}, dlqstore.EventPage{Limit: n})
	require.NoError(w.t, err)
	require.Len(w.t, events, n)
	return events
}
