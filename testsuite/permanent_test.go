package testsuite_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/worker"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// startDLQWithout starts a worker of the dead-letter queue whose role lacks rights that
// statements take away. It returns the role, quoted.
func (w *world) startDLQWithout(revoke ...string) (role string) {
	w.t.Helper()
	name := "without-" + w.namespace
	role = pgx.Identifier{name}.Sanitize()
	w.exec(`create role ` + role)
	w.t.Cleanup(func() {
		_, _ = w.store.Pool().Exec(context.WithoutCancel(w.t.Context()), `drop owned by `+role+`; drop role `+role)
	})
	w.exec(`grant usage on schema deadletter to ` + role)
	w.exec(`grant all on all tables in schema deadletter to ` + role)
	w.exec(`grant all on all sequences in schema deadletter to ` + role)
	for _, statement := range revoke {
		w.exec(statement + ` from ` + role)
	}
	database, err := url.Parse(w.database)
	require.NoError(w.t, err)
	query := database.Query()
	query.Set("role", name)
	database.RawQuery = query.Encode()
	store, err := dlqstore.Open(w.t.Context(), database.String(), dlqstore.WithTimeout(5*time.Minute))
	require.NoError(w.t, err)
	w.t.Cleanup(store.Close)
	plugin, err := deadletter.NewPlugin(deadletter.Options{Store: store, SweepInterval: -1, RetentionInterval: -1})
	require.NoError(w.t, err)
	w.start(worker.New(w.dial(plugin), deadletter.DefaultTaskQueue, worker.Options{}))
	return role
}

func (w *world) exec(statement string) {
	w.t.Helper()
	_, err := w.store.Pool().Exec(w.t.Context(), statement)
	require.NoError(w.t, err, statement)
}

func (w *world) signal(message string, in any) {
	w.t.Helper()
	require.NoError(w.t, w.client.SignalWorkflow(w.t.Context(), deadletter.OperatorWorkflowID, "", message, in))
}

// causes returns the causes and the actors in the events of a verb's refusals.
func (w *world) causes(verb string) (causes, actors []string) {
	w.t.Helper()
	rows, err := w.store.Pool().Query(w.t.Context(),
		`select coalesce(detail->>'cause', ''), actor from deadletter.events where verb = $1 order by id`, verb+"_refused")
	require.NoError(w.t, err)
	var cause, actor string
	_, err = pgx.ForEachRow(rows, []any{&cause, &actor}, func() error {
		causes, actors = append(causes, cause), append(actors, actor)
		return nil
	})
	require.NoError(w.t, err)
	return causes, actors
}

// TestPermanentErrors proves that what Postgres rejects is refused at once, with an event
// that names the cause and the sender: by signal, by update and in a bulk operation. The
// other verbs go on meanwhile, and nothing is carried out when the right is there later.
func TestPermanentErrors(t *testing.T) {
	t.Parallel()
	const purges = 120 // more than may run at once
	w := newWorld(t)
	stop := w.startJobs(handlers{"Fail": fail})
	role := w.startDLQWithout(`revoke delete on all tables in schema deadletter`)
	dead := w.deadJob()
	stop()
	w.cloneDead(dead, "clone-", purges)
	w.waitOperator()

	for n := range purges {
		w.signal(job.PurgeMessage, job.PurgeInput{WorkflowID: fmt.Sprint("clone-", n+1)})
	}
	w.signal(job.NoteMessage, job.NoteInput{WorkflowID: dead.GetID(), Text: "goes on"})
	w.signal(job.ReplayMessage, job.ReplayInput{WorkflowID: dead.GetID()})
	require.Eventually(t, func() bool { return w.dead(dead).ResurrectionCount == 1 }, patience, 20*time.Millisecond)
	w.grows(purges, func() int { return w.refusals(dlqstore.VerbPurge) })
	w.refuses(job.PurgeMessage, job.PurgeInput{WorkflowID: dead.GetID()}, job.RefusedErrorType)
	causes, actors := w.causes(dlqstore.VerbPurge)
	require.Len(t, causes, purges+1)
	for i, cause := range causes {
		require.Contains(t, cause, "permission denied")
		require.Contains(t, cause, "42501")
		require.Equal(t, map[bool]string{false: "signal", true: "update"}[i == purges], actors[i])
	}

	plan := w.plan(dlqstore.PlanRequest{Verb: job.BulkPurge, Filter: dlqstore.Filter{WorkflowID: "clone-1"}})
	w.apply(plan)
	plan = w.inState(plan, job.PlanFinished)
	require.EqualValues(t, 1, plan.Progress().Failed)

	w.exec(`grant delete on all tables in schema deadletter to ` + role)
	require.NoError(t, w.tell(job.PurgeMessage, job.PurgeInput{WorkflowID: "clone-2"}, nil))
	require.EqualValues(t, purges, w.count(), "what was refused was carried out")
}

// TestRefusedActor proves that the actor in a refusal's event does not depend on what is
// wrong with the request, nor on whether it can be read.
func TestRefusedActor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startDLQ(nil)
	w.waitOperator()
	wrong := []any{
		nil, "not an object",
		[]byte{0xff},
		7,
		map[string]any{"workflow_id": 5},
		map[string]any{"unknown": 1, "workflow_id": "x"},
		job.PurgeInput{},
		job.PurgeInput{WorkflowID: "nobody"},
		converter.NewRawValue(&commonpb.Payload{ // six times as long when it is passed on
			Metadata: map[string][]byte{converter.MetadataEncoding: []byte(converter.MetadataEncodingJSON)},
			Data:     []byte(`"` + strings.Repeat("<", 400_000) + `"`),
		}),
	}
	for _, in := range wrong {
		w.signal(job.PurgeMessage, in)
	}
	w.grows(len(wrong), func() int { return w.refusals(dlqstore.VerbPurge) })
	causes, actors := w.causes(dlqstore.VerbPurge)
	require.Len(t, actors, len(wrong))
	for i, actor := range actors {
		require.Equal(t, "signal", actor, causes[i])
		require.NotEmpty(t, causes[i])
		require.NotEqual(t, "refused", causes[i])
	}
}

// TestRefusalWithoutEvent proves that a refusal whose event cannot be written has it later.
func TestRefusalWithoutEvent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startDLQ(nil)
	w.waitOperator()
	w.exec(`create function fail() returns trigger language plpgsql as $$ begin raise exception 'not now'; end $$`)
	w.exec(`create trigger fail before insert on deadletter.events for each row execute function fail()`)
	w.signal(job.PurgeMessage, job.PurgeInput{WorkflowID: "nobody"})
	w.refuses(job.PurgeMessage, job.PurgeInput{WorkflowID: "nobody", Actor: "ann"}, job.NotFoundErrorType)
	require.Zero(t, w.refusals(dlqstore.VerbPurge))
	w.exec(`drop trigger fail on deadletter.events`)
	w.grows(2, func() int { return w.refusals(dlqstore.VerbPurge) })
	causes, actors := w.causes(dlqstore.VerbPurge)
	require.Equal(t, []string{"not_found", "not_found"}, causes)
	require.ElementsMatch(t, []string{"signal", "ann"}, actors)
}

// TestSettleRejected proves that a replayed job ends although Postgres rejects the note of
// its outcome, and that an event tells.
func TestSettleRejected(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var calls atomic.Int32
	later := handlers{"Later": func(context.Context) error {
		if calls.Add(1) == 1 {
			return fmt.Errorf("not yet")
		}
		return nil
	}}
	stop := w.startJobs(later)
	role := w.startDLQWithout()
	dead := w.enqueue(deadletter.Job{Type: "Later", Policy: quick(1)})
	require.Error(t, w.wait(dead, nil))
	stop()
	replayed := w.replay(dead, "")
	w.exec(`revoke update on deadletter.replays from ` + role)
	w.startJobs(later)
	require.NoError(t, w.wait(replayed, nil))
	require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED, w.status(replayed))
	causes, _ := w.causes(dlqstore.VerbSettle)
	require.Len(t, causes, 1)
	require.Contains(t, causes[0], "42501")
}

// TestSchemaAway proves that a bulk operation and the end of a replayed job wait for
// tables that are missing for a while, as during the restore of a dump, and fail no
// member for it.
func TestSchemaAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var calls atomic.Int32
	release := make(chan struct{})
	w.startJobs(handlers{"Fail": fail, "Later": func(context.Context) error {
		if calls.Add(1) == 1 {
			return fmt.Errorf("not yet")
		}
		<-release
		return nil
	}})
	stop := w.startDLQ(nil)
	w.cloneDead(w.deadJob(), "bulk-", 4)
	stop()
	plan := w.plan(dlqstore.PlanRequest{Verb: job.BulkReplay, All: true})
	w.apply(plan)
	w.exec(`alter table deadletter.replays rename to away`)
	w.startDLQ(nil)
	w.failedOnce(w.client.GetWorkflow(t.Context(), job.BulkWorkflowID(plan.ID), ""))
	w.exec(`alter table deadletter.away rename to replays`)
	plan = w.ended(plan)
	require.Equal(t, job.BulkProgress{PlanID: plan.ID, State: job.PlanFinished, Members: 5, Done: 5}, plan.Progress())

	dead := w.enqueue(deadletter.Job{Type: "Later", Policy: quick(1)})
	require.Error(t, w.wait(dead, nil))
	replayed := w.replay(dead, "")
	w.pendingIn(enumspb.PENDING_ACTIVITY_STATE_STARTED)(replayed)
	w.exec(`alter table deadletter.replays rename to away`)
	close(release)
	w.failedOnce(replayed)
	w.exec(`alter table deadletter.away rename to replays`)
	require.NoError(t, w.wait(replayed, nil))
	var outcome string
	require.NoError(t, w.store.Pool().QueryRow(t.Context(),
		`select outcome from deadletter.replays where new_workflow_id = $1`, replayed.GetID()).Scan(&outcome))
	require.Equal(t, string(job.OutcomeSucceeded), outcome)
	causes, _ := w.causes(dlqstore.VerbSettle)
	require.Empty(t, causes)
}
