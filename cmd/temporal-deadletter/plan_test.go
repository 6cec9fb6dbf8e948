package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/connect"
	"github.com/deadletter-dev/deadletter/internal/devstack/devtest"
)

// startDLQ serves the dead-letter queue of the bench's namespace.
func (b *bench) startDLQ(queue string) {
	b.t.Helper()
	config, err := connect.Load(b.environ, connect.Overrides{})
	require.NoError(b.t, err)
	plugin, err := deadletter.NewPlugin(deadletter.Options{Store: b.store, TaskQueue: queue, NoUpkeep: true})
	require.NoError(b.t, err)
	c := devtest.Dial(b.t, client.Options{HostPort: b.address, Namespace: config.Temporal.Namespace, Logger: silent, Plugins: []client.Plugin{plugin}})
	serving := worker.New(c, queue, worker.Options{})
	require.NoError(b.t, serving.Start())
	b.t.Cleanup(serving.Stop)
}

// newPlan makes a plan and returns its id.
func (b *bench) newPlan(args ...string) string {
	b.t.Helper()
	var made struct{ ID string }
	b.decode(&made, append(append([]string{"plan"}, args...), "-o", "json")...)
	require.Regexp(b.t, `^plan-[a-z2-7]{10}$`, made.ID)
	return made.ID
}

// TestPlan proves that a plan shows what it would do in words and in JSON, and
// changes nothing.
func TestPlan(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for i := range 3 {
		b.move(fmt.Sprintf("order-%d", i))
	}
	require.Equal(t, "There are no plans.\n", b.succeed("plan", "list"))
	text := b.succeed("plan", "replay", "--type", "SendEmail", "--limit", "2", "--rate", "0.5", "--canary", "1", "--max-refail", "12.5%", "--actor", "ann")
	for _, want := range []string{
		`(?m)^Plan +plan-\w{10}, by ann at `, `(?m)^Verb +replay$`, `(?m)^Namespace +default$`, `(?m)^Database +127\.0\.0\.1:\d+/\w+, schema deadletter$`,
		`(?m)^Filter +type SendEmail$`, `(?m)^Matched +3$`, `(?m)^Members +2$`, `(?m)^Will affect +2$`, `(?m)^Truncated +yes: the 2 oldest of 3`,
		`(?m)^By reason +max_retries_exceeded 2$`, `(?m)^By type +SendEmail 2$`, `(?m)^Speed +0.5 per second, about 4s$`,
		`(?m)^Canary +1 first; it stops when more than 12.5% die again$`, `(?m)^State +planned$`, `mailbox is full`,
		`Nothing has been changed\. Until .*, apply it with: temporal-deadletter apply plan-`,
	} {
		require.Regexp(t, want, text)
	}
	id := regexp.MustCompile(`plan-\w{10}`).FindString(text)
	require.Equal(t, text, b.succeed("plan", "show", id))

	var shown map[string]any
	b.decode(&shown, "plan", "show", id, "-o", "json")
	require.Equal(t, json.Number("2"), shown["will_affect"])
	require.Equal(t, true, shown["truncated"])
	require.Equal(t, json.Number("4"), shown["estimated_seconds"])
	require.Equal(t, "planned", shown["state"])

	require.Contains(t, b.succeed("plan", "items", id), "pending  order-0")
	require.Equal(t, "No members match.\n", b.succeed("plan", "items", id, "--state", "failed"))
	r := b.call("plan", "items", id, "--limit", "1", "-o", "jsonl")
	require.Zero(t, r.code)
	require.Contains(t, r.errw, "repeat the command with --after 1")
	var item dlqstore.PlanItem
	require.NoError(t, json.Unmarshal([]byte(r.out), &item))
	require.Equal(t, "order-0", item.WorkflowID)

	require.Contains(t, b.succeed("plan", "purge", "--all"), "from "+timeText(&died))
	require.Contains(t, b.succeed("plan", "replay", "--reason", "zombie"), "There is nothing to apply.")
	require.Equal(t, 4, strings.Count(b.succeed("plan", "list"), "\n"))
	require.EqualValues(t, 3, b.count())
}

// TestPlanItemsPages proves that the members of a plan are listed page by page, in
// each form, without a gap or a repetition, also of one state, and that a superseded
// one is flagged by the plan before anything is applied.
func TestPlanItemsPages(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.many(25)
	_, err := b.store.Pool().Exec(t.Context(), `update deadletter.dead_letters set superseded_at = now() where workflow_id in ('job-3', 'job-7')`)
	require.NoError(t, err)
	id := b.newPlan("replay", "--all")
	text := b.succeed("plan", "show", id)
	require.Regexp(t, `(?m)^Superseded +2 whose job succeeded later, left out$`, text)
	require.Regexp(t, `(?m)^Will affect +23$`, text)
	require.Regexp(t, `(?m)^Superseded +2 whose job succeeded later, replayed all the same$`, b.succeed("plan", "replay", "--all", "--include-superseded"))

	for state, want := range map[string]int{"": 25, "pending": 23, "skipped": 2} {
		var listed []string
		after := "0"
		for pages := 0; ; pages++ {
			require.Less(t, pages, 5)
			var page struct {
				Items     []dlqstore.PlanItem
				NextAfter json.Number `json:"next_after"`
			}
			b.decode(&page, "plan", "items", id, "--state", state, "--limit", "10", "--after", after, "-o", "json")
			for i := range page.Items {
				listed = append(listed, page.Items[i].WorkflowID)
			}
			if after = page.NextAfter.String(); after == "0" {
				break
			}
		}
		require.Len(t, listed, want, state)
		require.Equal(t, "job-"+map[string]string{"": "25", "pending": "25", "skipped": "7"}[state], listed[want-1])
		seen := map[string]bool{}
		for _, workflow := range listed {
			require.False(t, seen[workflow], workflow)
			seen[workflow] = true
		}
	}
	r := b.call("plan", "items", id, "--after", "20", "--limit", "10")
	require.Zero(t, r.code)
	require.Empty(t, r.errw, "the last page")
	require.Equal(t, 6, strings.Count(r.out, "\n"))
}

// TestPlanUsage proves that a wrong command line is told in one line with exit
// code 2, an unknown plan with 1, and that neither leaves a plan.
func TestPlanUsage(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"plan"}, exitUsage, "name what to plan: "},
		{[]string{"plan", "bury"}, exitUsage, `"bury"`},
		{[]string{"plan", "replay"}, exitUsage, "say which dead letters: a filter such as --reason, or --all"},
		{[]string{"plan", "replay", "--type", ""}, exitUsage, "--type has an empty value"},
		{[]string{"plan", "replay", "--all", "--rate", "0"}, exitUsage, "--rate: 0 is none; give dead letters per second"},
		{[]string{"plan", "replay", "--all", "--limit", "0"}, exitUsage, "--limit: 0 is not between 1 and 1000000"},
		{[]string{"plan", "replay", "--all", "--max-refail", "120%"}, exitUsage, `"120%" is no share such as 20% or 0.2`},
		{[]string{"plan", "replay", "--all", "--max-refail", "20%"}, exitUsage, "it needs a canary"},
		{[]string{"plan", "replay", "--all", "--concurrency", "1000"}, exitUsage, "concurrency 1000: it must be from 1 to 100"},
		{[]string{"plan", "purge", "--all", "--canary", "3"}, exitUsage, "unknown flag: --canary"},
		{[]string{"plan", "show"}, exitUsage, "show takes one plan"},
		{[]string{"plan", "show", "plan-nosuch"}, exitFailed, `plan "plan-nosuch" of namespace default: not found; see ` + "`temporal-deadletter plan list`"},
		{[]string{"plan", "items", "plan-nosuch"}, exitFailed, "not found"},
		{[]string{"plan", "items", "plan-nosuch", "--state", "gone"}, exitUsage, `--state: "gone" is none of pending`},
		{[]string{"apply", "plan-nosuch"}, exitUsage, "pass --yes to act without asking"},
		{[]string{"apply", "--yes"}, exitUsage, "apply takes one plan"},
		{[]string{"apply", "plan-nosuch", "--yes"}, exitFailed, "not found"},
		{[]string{"plan", "pause", "plan-nosuch"}, exitFailed, "not found"},
		{[]string{"plan", "cancel", "plan-nosuch", "again"}, exitUsage, "cancel takes one plan"},
	} {
		r := b.call(test.args...)
		require.Equal(t, test.code, r.code, "%v: %s", test.args, r.errw)
		require.Contains(t, r.errw, test.want, "%v", test.args)
		require.Equal(t, 1, strings.Count(r.errw, "\n"), "%v: one line: %s", test.args, r.errw)
		require.Empty(t, r.out, "%v", test.args)
	}
	require.Equal(t, "There are no plans.\n", b.succeed("plan", "list"))
}

// TestApply proves that apply asks with the target in sight, follows the operation
// to its end, fails when a member failed, and joins nothing that has ended.
func TestApply(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	queue := "dlq-" + strings.ToLower(t.Name())
	b.environ = append(b.environ, "DEADLETTER_TASK_QUEUE="+queue)
	b.startDLQ(queue)
	for i := range 3 {
		b.move(fmt.Sprintf("applied-%d", i))
	}
	id := b.newPlan("purge", "--type", "SendEmail", "--limit", "2")
	r := call(t, b.environ, person{strings.NewReader("no\n")}, "apply", id)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.out, "Purge 2 dead letters? [y/N] ")
	require.Equal(t, "temporal-deadletter: nothing was changed: the answer was not yes\n", r.errw)
	require.EqualValues(t, 3, b.count())

	r = call(t, b.environ, person{strings.NewReader("yes\n")}, "apply", id, "--rate", "-1")
	require.Zero(t, r.code, r.errw)
	require.Contains(t, r.out, "Finished "+id+": 2 done, 0 skipped, 0 failed, 0 left untouched.")
	require.Contains(t, r.errw, "[########################] 100%  finished  2 of 2")
	require.EqualValues(t, 1, b.count())
	r = b.call("apply", id, "--yes")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.errw, "it is finished; make a new plan")
	require.Regexp(t, `apply_refused .*`+id, b.succeed("events", "--verb", "apply_refused"))

	b.move("applied-bad", func(dl *dlqstore.DeadLetter) { dl.Priority = json.RawMessage(`{"priority_key": "high"}`) })
	id = b.newPlan("replay", "--all")
	r = b.call("apply", id, "--yes", "-o", "json")
	require.Equal(t, exitFailed, r.code)
	require.JSONEq(t, `{"plan_id":"`+id+`","state":"finished","members":2,"pending":0,"done":1,"skipped":0,"failed":1}`, r.out)
	require.Contains(t, r.errw, "1 of 2 failed: see `temporal-deadletter plan items "+id+" --state failed`")
	require.Regexp(t, `failed +applied-bad .*refused`, b.succeed("plan", "items", id, "--state", "failed"))
}

// TestControl proves that an operation can be paused, goes on, and can be ended,
// and that a plan which nobody applied can be made void.
func TestControl(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	queue := "dlq-" + strings.ToLower(t.Name())
	b.environ = append(b.environ, "DEADLETTER_TASK_QUEUE="+queue)
	b.startDLQ(queue)
	for i := range 40 {
		b.move(fmt.Sprintf("controlled-%d", i))
	}
	void := b.newPlan("purge", "--all")
	require.Equal(t, exitFailed, b.call("plan", "pause", void).code)
	require.Contains(t, b.succeed("plan", "cancel", void), "is told to end")
	require.Contains(t, b.succeed("plan", "show", void), "cancelled")

	id := b.newPlan("purge", "--all", "--rate", "0.1") // so slow that it cannot end before it is told to
	require.Contains(t, b.succeed("apply", id, "--yes", "--detach"), "The operation is under way.")
	b.succeed("plan", "pause", id)
	b.waitState(id, "paused")
	b.succeed("plan", "resume", id)
	b.waitState(id, "applying")
	b.succeed("plan", "cancel", id)
	b.waitState(id, "cancelled")
	require.Greater(t, b.count(), int64(10))
	r := b.call("plan", "resume", id)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.errw, "it is cancelled")
}

func (b *bench) waitState(id, state string) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		var shown struct{ State string }
		b.decode(&shown, "plan", "show", id, "-o", "json")
		return shown.State == state
	}, time.Minute, 50*time.Millisecond, state)
}

// TestPlanEdit proves that a plan of an edit or a retag shows what would change of
// each dead letter, lists those that it leaves alone, and that apply changes them.
func TestPlanEdit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	queue := "dlq-" + strings.ToLower(t.Name())
	b.environ = append(b.environ, "DEADLETTER_TASK_QUEUE="+queue)
	b.startDLQ(queue)
	key := b.move("planned-1")
	b.move("planned-2", func(dl *dlqstore.DeadLetter) { dl.Payloads, dl.PayloadJSON = []byte{}, nil })
	for args, says := range map[string]string{
		"edit --all":                       "say what to change; see",
		"retag --all --set-tag x":          "does not look like key=value",
		"retag --all --merge-patch {}":     "unknown flag: --merge-patch",
		"edit --all --set-policy {} extra": "takes no argument",
	} {
		r := b.call(append([]string{"plan"}, strings.Fields(args)...)...)
		require.Equal(t, exitUsage, r.code, args)
		require.Contains(t, r.errw, says)
	}
	text := b.succeed("plan", "edit", "--type", "SendEmail", "--merge-patch", `{"price": 2.50}`, "--set-queue", "slow", "--rate", "-1")
	require.Regexp(t, `(?m)^Change +\{"merge_patch":\{"price":2.50\},"task_queue":"slow"\}$`, text)
	require.Regexp(t, `(?s)Left alone.*1 +skipped .*this job has 0.*Sample.*planned-1 .*/arguments/0/price 1\.10 → 2\.50`, text)
	id := regexp.MustCompile(`plan-\w{10}`).FindString(text)
	require.Regexp(t, `pending +planned-1 +/arguments/0/price 1\.10 → 2\.50, /task_queue "emails" → "slow"`, b.succeed("plan", "items", id))
	require.Regexp(t, `skipped +planned-2 .*this job has 0`, b.succeed("plan", "items", id))
	r := b.call("apply", id, "--yes")
	require.Zero(t, r.code, r.errw)
	require.Contains(t, r.out, "1 done, 1 skipped, 0 failed")
	require.Equal(t, []string{`{"id": 9007199254740993, "price": 2.50}`}, b.arguments(key))

	id = b.newPlan("retag", "--queue", "slow", "--set-tag", "incident=4711", "--unset-tag", "tenant")
	require.Zero(t, b.call("apply", id, "--yes").code)
	dl, err := b.store.Get(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"incident": "4711"}, dl.Tags)
	require.Equal(t, 3, dl.Revision)
	require.Regexp(t, `(?s)edit.*`+id, b.succeed("events", "--plan", id))
}
