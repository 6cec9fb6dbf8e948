package dlqstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// letters moves n dead letters, w1 the oldest.
func letters(t testing.TB, store *dlqstore.Store, n int) {
	t.Helper()
	for i := range n {
		dl := letter(keyOf(fmt.Sprintf("w%d", i+1)))
		dl.DeadAt = instant.Add(time.Duration(i) * time.Second)
		move(t, store, dl)
	}
}

func plan(t testing.TB, store *dlqstore.Store, request dlqstore.PlanRequest) *dlqstore.Plan {
	t.Helper()
	request.Filter.Namespace, request.Actor = "default", "ann"
	made, err := store.CreatePlan(t.Context(), request)
	require.NoError(t, err)
	return made
}

func begun(t testing.TB, store *dlqstore.Store, made *dlqstore.Plan) *dlqstore.Plan {
	t.Helper()
	_, err := store.BeginPlan(t.Context(), "default", made.ID, "bob", nil)
	require.NoError(t, err)
	made, err = store.Plan(t.Context(), "default", made.ID)
	require.NoError(t, err)
	return made
}

// TestPlanFreezes proves that a plan holds exactly what its filter selected when it
// was made, the oldest first and no more than its limit, and reports on those.
func TestPlanFreezes(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	letters(t, store, 5)
	other := letter(keyOf("other"))
	other.Reason = job.ReasonZombie
	move(t, store, other)
	run(t, store, `update deadletter.dead_letters set superseded_at = now() where workflow_id = 'w2'`)
	run(t, store, `update deadletter.dead_letters set resurrection_count = 1 where workflow_id = 'w3'`)

	request := dlqstore.PlanRequest{Verb: job.BulkReplay, Filter: dlqstore.Filter{Reason: job.ReasonMaxRetriesExceeded}}
	made := plan(t, store, request)
	letters := letter(keyOf("later"))
	move(t, store, letters)
	require.EqualValues(t, 5, made.Matched)
	require.EqualValues(t, 5, made.Members)
	require.False(t, made.Truncated())
	require.EqualValues(t, 1, made.Skipped, "a superseded dead letter is left out")
	require.EqualValues(t, 4, made.Pending())
	require.Equal(t, job.PlanPlanned, made.State)
	require.Equal(t, "ann", made.Actor)
	require.Equal(t, map[string]int64{"max_retries_exceeded": 5}, made.Report.ByReason)
	require.Equal(t, map[string]int64{"SendEmail": 5}, made.Report.ByType)
	require.Equal(t, instant, *made.Report.OldestDeadAt)
	require.Equal(t, instant.Add(4*time.Second), *made.Report.NewestDeadAt)
	require.EqualValues(t, 1, made.Report.Superseded)
	require.EqualValues(t, 1, made.Report.Replayed)
	require.EqualValues(t, 0, made.Report.Held)
	require.Len(t, made.Report.Sample, 5)
	require.Equal(t, "w1", made.Report.Sample[0].WorkflowID)

	items, err := store.PlanItems(t.Context(), made.ID, "", 0, 0)
	require.NoError(t, err)
	require.Len(t, items, 5)
	require.Equal(t, dlqstore.ItemSkipped, items[1].State)
	require.Contains(t, items[1].Error, "superseded")

	request.Limit = 2
	short := plan(t, store, request)
	require.True(t, short.Truncated())
	require.EqualValues(t, 6, short.Matched)
	require.EqualValues(t, 2, short.Members)
	require.EqualValues(t, 1, short.Report.Held, "w1 is in the first plan too, which left w2 out")

	request.Parameters.IncludeSuperseded = true
	require.EqualValues(t, 2, plan(t, store, request).Pending())
}

// TestPlanRefused proves what is no plan, and that nothing is written for it.
func TestPlanRefused(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	share := 0.5
	for name, test := range map[string]struct {
		request dlqstore.PlanRequest
		want    string
	}{
		"empty filter": {dlqstore.PlanRequest{Verb: job.BulkPurge, Filter: dlqstore.Filter{Namespace: "default"}}, "selects everything"},
		"no namespace": {dlqstore.PlanRequest{Verb: job.BulkPurge, Filter: dlqstore.Filter{JobType: "x"}}, "names no namespace"},
		"verb":         {dlqstore.PlanRequest{Verb: "bury", Filter: dlqstore.Filter{Namespace: "default", JobType: "x"}}, `unknown bulk verb "bury"`},
		"limit":        {dlqstore.PlanRequest{Verb: job.BulkPurge, All: true, Filter: dlqstore.Filter{Namespace: "default"}, Limit: 2_000_000}, "at most 1000000"},
		"settings": {dlqstore.PlanRequest{
			Verb: job.BulkPurge, All: true, Filter: dlqstore.Filter{Namespace: "default"},
			Parameters: dlqstore.PlanParameters{BulkSettings: job.BulkSettings{Concurrency: 101, Canary: 3, MaxRefail: &share}},
		}, "concurrency 101: it must be from 1 to 100, or 0 for 8\ncanary: only a replay has one, and this is purge"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := store.CreatePlan(t.Context(), test.request)
			require.ErrorContains(t, err, test.want)
		})
	}
	require.Zero(t, scalar[int](t, store, `select count(*) from deadletter.plans`))
	_, err := store.CreatePlan(t.Context(), dlqstore.PlanRequest{Verb: job.BulkPurge, Filter: dlqstore.Filter{Namespace: "default"}})
	require.ErrorIs(t, err, dlqstore.ErrUnbounded)
}

// TestMemberReplays proves that the members of a plan are replayed once each
// however often and however concurrently they are begun, and that those which are
// gone, edited or superseded since are skipped with the reason.
func TestMemberReplays(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	letters(t, store, 6)
	made := begun(t, store, plan(t, store, dlqstore.PlanRequest{Verb: job.BulkReplay, All: true}))
	require.NoError(t, store.Purge(t.Context(), keyOf("w1"), "eve"))
	run(t, store, `update deadletter.dead_letters set revision = 2 where workflow_id = 'w2'`)
	run(t, store, `update deadletter.dead_letters set superseded_at = now() where workflow_id = 'w3'`)
	members, err := store.Members(t.Context(), made.ID, 0, 100)
	require.NoError(t, err)
	require.Len(t, members, 6)
	require.Equal(t, 4, members[5].Bytes)

	ids := make([][]string, 8)
	for _, err := range concurrently(8, func(i int) error {
		starts, err := store.BeginMemberReplays(t.Context(), made, members)
		for _, start := range starts {
			ids[i] = append(ids[i], start.Replay.NewWorkflowID)
		}
		return err
	}) {
		require.NoError(t, err)
	}
	for i := range ids {
		require.Len(t, ids[i], 3)
		require.ElementsMatch(t, ids[0], ids[i], "a member got two jobs")
	}
	require.Equal(t, 3, scalar[int](t, store, `select count(*) from deadletter.replays`))
	require.Equal(t, 3, scalar[int](t, store, `select sum(resurrection_count) from deadletter.dead_letters`))
	require.Equal(t, 3, scalar[int](t, store, `select count(*) from deadletter.events where verb = 'replay' and plan_id = $1 and actor = 'bob'`, made.ID))
	require.Equal(t, 3, scalar[int](t, store, `select count(*) from deadletter.events where verb = 'replay_skipped' and plan_id = $1`, made.ID))

	interrupted, err := store.BegunMembers(t.Context(), made, 10)
	require.NoError(t, err)
	require.Len(t, interrupted, 3)
	require.Equal(t, []byte("memo"), interrupted[0].DeadLetter.Memo)
	require.NoError(t, store.RefuseReplay(t.Context(), dlqstore.RequestOf(made.ID, 6), "no such queue"))
	again, err := store.BeginMemberReplays(t.Context(), made, members[5:])
	require.NoError(t, err)
	require.Empty(t, again, "a refused start is no start")

	for range 2 { // the second changes nothing
		require.NoError(t, store.EndMemberReplays(t.Context(), made, []dlqstore.MemberStarted{{Position: 4, NewRunID: "r4"}, {Position: 5, NewRunID: "r5"}}, nil))
	}
	made, err = store.Plan(t.Context(), "default", made.ID)
	require.NoError(t, err)
	require.Equal(t, job.BulkProgress{PlanID: made.ID, State: job.PlanApplying, Members: 6, Done: 2, Skipped: 3, Failed: 1}, made.Progress())
	items, err := store.PlanItems(t.Context(), made.ID, "", 0, 0)
	require.NoError(t, err)
	for i, want := range []string{"is gone", "revision 1 was planned and it has 2", "superseded", "", "", "no such queue"} {
		require.Contains(t, items[i].Error, want)
	}
	require.Equal(t, "r5", *items[4].NewRunID)
	failed, err := store.PlanItems(t.Context(), made.ID, dlqstore.ItemFailed, 0, 0)
	require.NoError(t, err)
	require.Len(t, failed, 1)
}

// TestMemberPurge proves that a purge by plan removes its members once, skips what
// was edited since, and that two at once do no harm.
func TestMemberPurge(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	letters(t, store, 20)
	made := begun(t, store, plan(t, store, dlqstore.PlanRequest{Verb: job.BulkPurge, Filter: dlqstore.Filter{JobType: "SendEmail"}}))
	run(t, store, `update deadletter.dead_letters set revision = 2 where workflow_id = 'w7'`)
	members, err := store.Members(t.Context(), made.ID, 0, 100)
	require.NoError(t, err)
	for _, err := range concurrently(4, func(int) error { return store.PurgeMembers(t.Context(), made, members) }) {
		require.NoError(t, err)
	}
	made, err = store.Plan(t.Context(), "default", made.ID)
	require.NoError(t, err)
	require.EqualValues(t, 19, made.Done)
	require.EqualValues(t, 1, made.Skipped)
	require.Equal(t, 1, scalar[int](t, store, `select count(*) from deadletter.dead_letters`))
	require.Equal(t, 0, scalar[int](t, store, `select count(*) from deadletter.attempts where workflow_id <> 'w7'`))
	require.Equal(t, 19, scalar[int](t, store, `select count(*) from deadletter.events where verb = 'purge' and plan_id = $1`, made.ID))
}

// TestPlanStates proves that a plan begins once, goes on after a pause, ends once,
// frees what it did not get to, and that each step is an event, a refused one too.
func TestPlanStates(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	letters(t, store, 2)
	ctx := t.Context()
	made := plan(t, store, dlqstore.PlanRequest{Verb: job.BulkReplay, All: true})
	_, err := store.MarkPlan(ctx, "default", made.ID, job.PlanPaused, "bob", "")
	require.ErrorContains(t, err, "it has not been applied")
	_, err = store.BeginPlan(ctx, "default", made.ID, "bob", &job.BulkSettings{Rate: 3})
	require.NoError(t, err)
	second, err := store.BeginPlan(ctx, "default", made.ID, "carl", &job.BulkSettings{Rate: 9})
	require.NoError(t, err)
	require.Equal(t, "bob", second.AppliedBy, "the second apply joins the first")
	require.InDelta(t, 3, second.Parameters.Rate, 0)
	for _, state := range []job.PlanState{job.PlanPaused, job.PlanPaused, job.PlanApplying, job.PlanCancelled, job.PlanCancelled} {
		made, err = store.MarkPlan(ctx, "default", made.ID, state, "dora", "enough")
		require.NoError(t, err)
		require.Equal(t, state, made.State)
	}
	require.NotNil(t, made.FinishedAt)
	_, err = store.BeginPlan(ctx, "default", made.ID, "bob", nil)
	require.ErrorIs(t, err, dlqstore.ErrRefused)
	_, err = store.MarkPlan(ctx, "default", made.ID, job.PlanApplying, "bob", "")
	require.ErrorIs(t, err, dlqstore.ErrRefused)
	items, err := store.PlanItems(ctx, made.ID, dlqstore.ItemLeft, 0, 0)
	require.NoError(t, err)
	require.Len(t, items, 2)
	require.Equal(t, []string{"plan", "pause_refused", "apply", "pause", "resume", "cancel", "apply_refused", "resume_refused"},
		scalar[[]string](t, store, `select array_agg(verb order by id) from deadletter.events where plan_id = $1`, made.ID))

	expired := plan(t, store, dlqstore.PlanRequest{Verb: job.BulkReplay, All: true})
	run(t, store, `update deadletter.plans set expires_at = now() where id = $1`, expired.ID)
	_, err = store.BeginPlan(ctx, "default", expired.ID, "bob", nil)
	require.ErrorContains(t, err, "it expired")
	_, err = store.Plan(ctx, "elsewhere", made.ID)
	require.ErrorIs(t, err, dlqstore.ErrNotFound)
}

// TestPlanLeavesReplayed proves that a plan of replays leaves out what a replay has
// brought back or is about to, unless that is asked for, and that what was replayed
// after the plan was made is skipped.
func TestPlanLeavesReplayed(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	letters(t, store, 5)
	for id, outcome := range map[string]job.Outcome{"w1": job.OutcomeSucceeded, "w2": "", "w3": job.OutcomeDeadLettered} {
		start := begin(t, store, keyOf(id), id)
		require.NoError(t, store.ConfirmReplay(t.Context(), id, "run"))
		if outcome != "" {
			require.NoError(t, store.Settle(t.Context(), dlqstore.SettleRequest{
				Key: dlqstore.Key{Namespace: "default", WorkflowID: start.Replay.NewWorkflowID, RunID: "run"}, FirstRunID: "run", Outcome: outcome, Replayed: true,
			}))
		}
	}
	request := dlqstore.PlanRequest{Verb: job.BulkReplay, All: true, Limit: 3}
	first := plan(t, store, request)
	require.EqualValues(t, 5, first.Matched)
	require.EqualValues(t, 2, first.Report.LeftOut)
	require.EqualValues(t, 3, first.Members)
	require.False(t, first.Truncated())
	require.Equal(t, "w3", first.Report.Sample[0].WorkflowID)
	second := begun(t, store, plan(t, store, request))
	request.Parameters.IncludeReplayed = true
	require.True(t, plan(t, store, request).Truncated())

	first = begun(t, store, first)
	members, err := store.Members(t.Context(), first.ID, 0, 10)
	require.NoError(t, err)
	starts, err := store.BeginMemberReplays(t.Context(), first, members)
	require.NoError(t, err)
	require.Len(t, starts, 3)
	members, err = store.Members(t.Context(), second.ID, 0, 10)
	require.NoError(t, err)
	starts, err = store.BeginMemberReplays(t.Context(), second, members)
	require.NoError(t, err)
	require.Empty(t, starts, "the first plan has these in hand")
	causes, err := store.PlanCauses(t.Context(), second.ID, 5)
	require.NoError(t, err)
	require.Len(t, causes, 1)
	require.EqualValues(t, 3, causes[0].Members)
	require.Contains(t, causes[0].Error, "it was replayed after the plan was made")
}

// TestPlanTakesTheNewest proves that of a job whose replay died again a plan replays
// the newest dead letter alone, as long as any of its line is there, under way or has
// succeeded, and that a replay which dies meanwhile is seen when the plan is carried out.
func TestPlanTakesTheNewest(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	letters(t, store, 2)
	request := dlqstore.PlanRequest{Verb: job.BulkReplay, All: true}
	early := begun(t, store, plan(t, store, request))
	dies := func(key dlqstore.Key, request string) dlqstore.Key {
		start := begin(t, store, key, request)
		require.NoError(t, store.ConfirmReplay(t.Context(), request, "run"))
		again := letter(dlqstore.Key{Namespace: "default", WorkflowID: start.Replay.NewWorkflowID, RunID: "run"})
		again.FirstRunID = "run"
		move(t, store, again)
		require.Equal(t, 1, scalar[int](t, store, `select count(*) from deadletter.replays where request_id = $1 and outcome = 'dead_lettered'`, request))
		return again.Key
	}
	again := dies(keyOf("w1"), "r1")
	made := plan(t, store, request)
	require.EqualValues(t, 3, made.Matched)
	require.EqualValues(t, 1, made.Report.LeftOut)
	require.EqualValues(t, 2, made.Members)
	require.Equal(t, []string{"w2", again.WorkflowID}, []string{made.Report.Sample[0].WorkflowID, made.Report.Sample[1].WorkflowID})
	members, err := store.Members(t.Context(), early.ID, 0, 10)
	require.NoError(t, err)
	starts, err := store.BeginMemberReplays(t.Context(), early, members)
	require.NoError(t, err)
	require.Len(t, starts, 1)
	require.Equal(t, "w2", starts[0].DeadLetter.WorkflowID)

	taken := func(id string) int64 {
		t.Helper()
		return plan(t, store, dlqstore.PlanRequest{Verb: job.BulkReplay, Filter: dlqstore.Filter{WorkflowID: id}}).Members
	}
	third := dies(again, "r2")
	require.NoError(t, store.Purge(t.Context(), again, "ann"))
	require.Zero(t, taken("w1"), "the third of its line stands for it")
	require.EqualValues(t, 1, taken(third.WorkflowID))
	fourth := begin(t, store, third, "r3").Replay
	require.NoError(t, store.ConfirmReplay(t.Context(), "r3", "run"))
	require.NoError(t, store.Purge(t.Context(), third, "ann"))
	require.Zero(t, taken("w1"), "the fourth is under way")
	settle := func(outcome string) {
		run(t, store, `update deadletter.replays set outcome = $2 where request_id = $1`, fourth.RequestID, outcome)
	}
	settle("succeeded")
	require.Zero(t, taken("w1"), "the fourth has done the work")
	settle("cancelled")
	require.EqualValues(t, 1, taken("w1"), "nothing else stands for it")
	fifth := dies(keyOf("w1"), "r4")
	reset := dlqstore.SettleRequest{Key: fifth, FirstRunID: "run", Outcome: job.OutcomeSucceeded, Replayed: true, Actor: "ann"}
	reset.RunID = "the run after the reset"
	require.NoError(t, store.Settle(t.Context(), reset))
	require.NoError(t, store.Purge(t.Context(), fifth, "ann"))
	require.Zero(t, taken("w1"), "the fifth has done the work after a reset")
}

// TestForgetPlans proves that plans are removed with their members some months after
// their end, and no others.
func TestForgetPlans(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	letters(t, store, 2)
	for _, change := range []string{
		"state = 'finished', finished_at = now() - interval '91 days'", "expires_at = now() - interval '91 days'",
		"state = 'finished', finished_at = now() - interval '89 days'", "state = 'applying', expires_at = now() - interval '91 days'",
	} {
		made := plan(t, store, dlqstore.PlanRequest{Verb: job.BulkPurge, All: true})
		run(t, store, `update deadletter.plans set `+change+` where id = $1`, made.ID)
	}
	require.NoError(t, store.ForgetPlans(t.Context()))
	require.Equal(t, 2, scalar[int](t, store, `select count(*) from deadletter.plans where state = 'applying' or finished_at > now() - interval '90 days'`))
	require.Equal(t, 2, scalar[int](t, store, `select count(*) from deadletter.plans`))
	require.Equal(t, 4, scalar[int](t, store, `select count(*) from deadletter.plan_items`))
}
