package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/demo"
	"github.com/deadletter-dev/deadletter/operator"
)

// demonstration is what dev shows: jobs, their dead letters, and a replay. Each
// step checks that the outcome is the expected one.
type demonstration struct {
	out      io.Writer
	session  *session
	handlers demo.Handlers
	queue    string // also the prefix of the job ids
	// deadLetters is the dead-letter queue.
	deadLetters string
	private     bool // nobody else uses the servers
	jobs        []demoJob
	running     map[string]client.WorkflowRun // by job id
}

// newDemonstration takes the dead-letter queue that was asked for, if any. On a
// Temporal that others use it has one of its own otherwise: their dead letters
// must not end in the demo's database.
func newDemonstration(out io.Writer, s *session, deadLetters string) *demonstration {
	d := &demonstration{out: out, session: s, queue: demo.TaskQueue, running: map[string]client.WorkflowRun{}}
	d.private = !s.config.TemporalNamed && !s.config.DatabaseNamed
	if !d.private {
		// Other workers may serve the usual queue, and other runs have left their ids.
		d.queue += "-" + uuid.NewString()[:8]
	}
	switch {
	case deadLetters != "":
		d.deadLetters = deadLetters
	case s.config.TemporalNamed:
		d.deadLetters = d.queue + "-dead-letters"
	default:
		d.deadLetters = s.config.TaskQueue
	}
	d.jobs = demoJobs()
	return d
}

func (d *demonstration) id(name string) string { return d.queue + "-" + name }

// play goes through the steps and names the one that went wrong.
func (d *demonstration) play(ctx context.Context) error {
	defer d.abandon(context.WithoutCancel(ctx))
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"start the jobs", d.start},
		{"cancel a waiting job", d.cancelWaiting},
		{"wait for the jobs", d.await},
		{"list the dead letters", d.list},
		{"replay one", d.replay},
		{"count", d.count},
	} {
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("step %q: %w", step.name, err)
		}
	}
	return nil
}

// abandon ends what an interrupted demo leaves on a server that is not ours.
func (d *demonstration) abandon(ctx context.Context) {
	if !d.session.config.TemporalNamed {
		return // it ends with the server
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second) // a second Ctrl-C ends it
	defer cancel()
	for id, run := range d.running {
		_ = d.session.client.TerminateWorkflow(ctx, id, run.GetRunID(), "the demo was interrupted")
	}
}

func (d *demonstration) say(format string, args ...any) {
	fmt.Fprintf(d.out, "\n"+format+"\n", args...)
}

func (d *demonstration) start(ctx context.Context) error {
	d.say("Starting %d jobs", len(d.jobs))
	for i := range d.jobs {
		j := &d.jobs[i]
		run, err := d.startOne(ctx, j)
		if err != nil {
			return err
		}
		d.running[run.GetID()] = run
	}
	return nil
}

func (d *demonstration) startOne(ctx context.Context, j *demoJob) (client.WorkflowRun, error) {
	tags := map[string]string{"tenant": "acme"}
	if j.rawPolicy != nil {
		// Enqueue refuses such a policy; other clients do not look at it.
		options := client.StartWorkflowOptions{ID: d.id(j.name), TaskQueue: d.queue}
		return d.session.client.ExecuteWorkflow(ctx, options, deadletter.WorkflowType,
			map[string]any{"type": j.jobType, "policy": j.rawPolicy, "tags": tags}, j.argument)
	}
	return deadletter.Enqueue(ctx, d.session.client, deadletter.Job{
		ID: d.id(j.name), Type: j.jobType, TaskQueue: d.queue, Policy: j.policy, Tags: tags,
	}, j.argument)
}

// cancelWaiting cancels the job that is to be cancelled between two attempts.
func (d *demonstration) cancelWaiting(ctx context.Context) error {
	id := d.id(cancelledName)
	err := poll(ctx, func() (bool, error) {
		described, err := d.session.client.DescribeWorkflow(ctx, id, "")
		if err != nil {
			return false, err
		}
		for _, pending := range described.RawResponse.GetPendingActivities() {
			if pending.GetLastFailure() != nil {
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("%s: wait for its first failure: %w", id, err)
	}
	return d.session.client.CancelWorkflow(ctx, id, "")
}

func (d *demonstration) await(ctx context.Context) error {
	var wrong []error
	width := 16
	for i := range d.jobs {
		width = max(width, len(d.id(d.jobs[i].name)))
	}
	for i := range d.jobs {
		j := &d.jobs[i]
		id := d.id(j.name)
		var result string
		end := d.running[id].Get(ctx, &result)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		delete(d.running, id)
		outcome, words := outcomeOf(end, result)
		fmt.Fprintf(d.out, "  %-*s %-14s %s\n", width, id, j.jobType, printable(words))
		if outcome != j.outcome {
			wrong = append(wrong, fmt.Errorf("%s: want it %s, and it is %s", id, j.outcome, words))
		}
	}
	return errors.Join(wrong...)
}

// outcomeOf tells how a job ended: done, cancelled or dead.
func outcomeOf(end error, result string) (outcome, words string) {
	died, dead := deadletter.AsDeadLettered(end)
	switch {
	case end == nil && result == "":
		return outcomeDone, "done"
	case end == nil:
		return outcomeDone, "done: " + result
	case temporal.IsCanceledError(end):
		return outcomeCancelled, "cancelled, and a dead letter"
	case dead:
		return outcomeDead, fmt.Sprintf("a dead letter: %s after %s", died.Reason, attemptsText(died.Attempts))
	default:
		return "wrong", end.Error()
	}
}

func attemptsText(count *int) string {
	if count != nil && *count == 1 {
		return "1 attempt"
	}
	return countText(count) + " attempts"
}

// list shows the dead letters and compares them with what the jobs should leave.
func (d *demonstration) list(ctx context.Context) error {
	rows, _, err := d.session.List(ctx, dlqstore.Filter{TaskQueue: d.queue}, dlqstore.Page{})
	if err != nil {
		return err
	}
	d.say("The dead letters, in Postgres (%s list)", name)
	if err := deadLetterTable(d.out, rows, time.Now()); err != nil {
		return err
	}
	found := map[string]*dlqstore.DeadLetter{}
	for i := range rows {
		found[rows[i].WorkflowID] = &rows[i]
	}
	var wrong []error
	expected := 0
	for i := range d.jobs {
		j := &d.jobs[i]
		if j.reason == "" {
			continue
		}
		expected++
		dl := found[d.id(j.name)]
		switch {
		case dl == nil:
			wrong = append(wrong, fmt.Errorf("%s left no dead letter", d.id(j.name)))
		case dl.Reason != j.reason:
			wrong = append(wrong, fmt.Errorf("%s: want reason %s, and it is %s", d.id(j.name), j.reason, dl.Reason))
		case j.attempts != attemptsUnknown && (dl.Attempts == nil || *dl.Attempts != j.attempts):
			wrong = append(wrong, fmt.Errorf("%s: want %d attempts, and it has %s", d.id(j.name), j.attempts, countText(dl.Attempts)))
		}
	}
	if len(rows) != expected {
		wrong = append(wrong, fmt.Errorf("want %d dead letters, and there are %d", expected, len(rows)))
	}
	return errors.Join(wrong...)
}

// replay mends the handler, replays the job that it failed, and waits for the
// new one.
func (d *demonstration) replay(ctx context.Context) error {
	id := d.id(replayedName)
	d.handlers.Mend()
	d.say("Mended the handler %s. Replaying %s (%s replay -w %s)", demo.ResizeImage, id, name, id)
	started, err := d.session.Replay(ctx, operator.ReplayRequest{WorkflowID: id, Actor: name + " dev"})
	if err != nil {
		return err
	}
	run := d.session.client.GetWorkflow(ctx, started.WorkflowID, started.RunID)
	d.running[started.WorkflowID] = run
	fmt.Fprintf(d.out, "  new job %s\n", started.WorkflowID)
	var result string
	if err := run.Get(ctx, &result); err != nil {
		return fmt.Errorf("the new job %s: %w", started.WorkflowID, err)
	}
	delete(d.running, started.WorkflowID)
	fmt.Fprintf(d.out, "  done: %s\n", printable(result))

	shown, err := d.session.Show(ctx, id, "")
	switch {
	case err != nil:
		return err
	case shown.DeadLetter == nil:
		return fmt.Errorf("%s is no dead letter any more", id)
	case shown.DeadLetter.ResurrectionCount != 1:
		return fmt.Errorf("want resurrection_count 1, and it is %d", shown.DeadLetter.ResurrectionCount)
	}
	fmt.Fprintf(d.out, "  %s stays a dead letter, now with resurrection_count = %d\n", id, shown.DeadLetter.ResurrectionCount)
	return nil
}

// count shows the stats. Temporal counts closed workflows some moments late, so
// on servers of our own it waits for the right numbers.
func (d *demonstration) count(ctx context.Context) error {
	want := operator.Stats{Done: 1} // the replay
	for i := range d.jobs {
		if d.jobs[i].reason == "" {
			want.Done++
		} else {
			want.DeadLetter++
		}
	}
	want.Total = want.Done + want.DeadLetter
	var stats operator.Stats
	err := poll(ctx, func() (bool, error) {
		var err error
		stats, err = d.session.Stats(ctx)
		return stats == want || !d.private, err
	})
	if errors.Is(err, errStill) {
		return fmt.Errorf("want %+v, and it stays %+v", want, stats)
	}
	if err != nil {
		return err
	}
	d.say("Stats (%s stats)", name)
	return printStats(d.out, stats)
}

// pollLimit bounds the wait for what should come within a second or two, unless the
// machine has other things to do.
const pollLimit = 2 * time.Minute

var errStill = fmt.Errorf("not so after %s", pollLimit)

// poll asks until the answer is yes.
func poll(ctx context.Context, ask func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, pollLimit, errStill)
	defer cancel()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		if yes, err := ask(); yes || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-again.C:
		}
	}
}
