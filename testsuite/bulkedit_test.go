package testsuite_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/proto"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// TestBulkEdit proves that a patch over a group of five hundred shows what it would
// change of each row, leaves out and lists the rows that it does not fit, and then
// changes exactly what it showed, once; and that a bulk replay takes the edited
// arguments.
func TestBulkEdit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var mu sync.Mutex
	seen := map[string]int{}
	w.startJobs(handlers{"Order": func(_ context.Context, order json.RawMessage) error {
		var fields struct{ Price json.Number }
		if err := json.Unmarshal(order, &fields); err != nil {
			return err
		}
		if fields.Price != "1.10" {
			return fmt.Errorf("no price: %s", fields.Price)
		}
		mu.Lock()
		defer mu.Unlock()
		seen[string(order)]++
		return nil
	}})
	w.startDLQ(nil)
	dead := w.enqueue(deadletter.Job{Type: "Order", Policy: quick(1)}, json.RawMessage(`{"id":9007199254740993,"price":0,"to":"é \u003c"}`))
	require.Error(t, w.wait(dead, nil))
	w.cloneDead(dead, "bulk-", 499)
	// The tenth has no JSON, the twentieth is mended by hand already.
	binary, err := converter.GetDefaultDataConverter().ToPayloads([]byte{1, 2, 3})
	require.NoError(t, err)
	fine, err := converter.GetDefaultDataConverter().ToPayloads(map[string]any{"price": json.Number("1.10")})
	require.NoError(t, err)
	for id, payloads := range map[string]*commonpb.Payloads{"bulk-10": binary, "bulk-20": fine} {
		data, err := proto.Marshal(payloads)
		require.NoError(t, err)
		_, err = w.store.Pool().Exec(t.Context(), `update deadletter.dead_letters set payloads = $2 where workflow_id = $1`, id, data)
		require.NoError(t, err)
	}
	plan, err := w.operator.CreateEditPlan(t.Context(), dlqstore.PlanRequest{
		Verb: job.BulkEdit, Filter: dlqstore.Filter{JobType: "Order"}, Actor: "ann",
		Parameters: dlqstore.PlanParameters{BulkSettings: job.BulkSettings{Rate: -1}},
	}, job.Edit{MergePatch: json.RawMessage(`{"price": 1.10}`)})
	require.NoError(t, err)
	require.EqualValues(t, 500, plan.Members)
	require.EqualValues(t, 498, plan.Pending())
	skipped, err := w.operator.PlanItems(t.Context(), plan.ID, dlqstore.ItemSkipped, 0, 0)
	require.NoError(t, err)
	require.Len(t, skipped, 2)
	require.Contains(t, skipped[0].Error, "argument 0 cannot be edited")
	require.Contains(t, skipped[1].Error, "it would change nothing")
	items, err := w.operator.PlanItems(t.Context(), plan.ID, dlqstore.ItemPending, 0, 1)
	require.NoError(t, err)
	require.Equal(t, &dlqstore.Diff{Changes: []dlqstore.Change{{Path: "/arguments/0/price", Before: json.RawMessage("0"), After: json.RawMessage("1.10")}}}, items[0].Detail)

	// One is edited by hand after the plan was made.
	_, err = w.store.Pool().Exec(t.Context(), `update deadletter.dead_letters set revision = 2 where workflow_id = 'bulk-30'`)
	require.NoError(t, err)
	w.apply(plan)
	plan = w.ended(plan)
	require.Equal(t, job.BulkProgress{PlanID: plan.ID, State: job.PlanFinished, Members: 500, Done: 497, Skipped: 3}, plan.Progress())
	var edited, events int
	require.NoError(t, w.store.Pool().QueryRow(t.Context(), `
select (select count(*) from deadletter.dead_letters where revision = 2), (select count(*) from deadletter.events where verb = 'edit' and plan_id = $1)`,
		plan.ID).Scan(&edited, &events))
	require.Equal(t, 498, edited)
	require.Equal(t, 497, events)

	revision := 2
	replay := w.plan(dlqstore.PlanRequest{
		Verb: job.BulkReplay, Filter: dlqstore.Filter{JobType: "Order", WorkflowID: "bulk-499"},
		Parameters: dlqstore.PlanParameters{BulkSettings: job.BulkSettings{Canary: 1}},
	})
	w.apply(replay)
	require.Equal(t, job.PlanFinished, w.ended(replay).State)
	require.Equal(t, map[string]int{`{"id":9007199254740993,"price":1.10,"to":"é \u003c"}`: 1}, seen)
	var replayed []int
	require.NoError(t, w.store.Pool().QueryRow(t.Context(), `select array_agg(revision) from deadletter.replays`).Scan(&replayed))
	require.Equal(t, []int{revision}, replayed)
}
