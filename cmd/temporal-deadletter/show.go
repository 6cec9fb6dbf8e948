package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/proto"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/connect"
	"github.com/deadletter-dev/deadletter/operator"
)

func (c *cli) showCommand() *cobra.Command {
	var key keyFlags
	cmd := &cobra.Command{
		Use:   "show [WORKFLOW_ID]",
		Short: "Show all there is to know of one job, live or dead",
		Long: "Show all there is to know of one job, live or dead. While Temporal cannot be reached, dead\n" +
			"letters are shown from Postgres alone.",
		Example: "  " + name + " show -w order-4711\n" +
			"  " + name + " show order-4711 -o json",
		Args: key.arguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			shown, err := c.show(cmd.Context(), key)
			if err != nil {
				return err
			}
			switch {
			case c.output != outputText:
				return c.printJSON(shownJSON(shown))
			case shown.DeadLetter == nil:
				return printLive(c.out, shown)
			default:
				return printDead(c.out, shown)
			}
		},
	}
	key.add(cmd)
	return cmd
}

// show asks both servers, or Postgres alone when Temporal is down and there is
// one dead letter that can be meant.
func (c *cli) show(ctx context.Context, key keyFlags) (*operator.Shown, error) {
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	store, err := config.OpenStore(ctx)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	shown, err := showLive(ctx, config, store, key)
	unavailable := (*serviceerror.Unavailable)(nil)
	if ctx.Err() != nil || !errors.Is(err, connect.ErrNoTemporal) && !errors.As(err, &unavailable) {
		return shown, err
	}
	stored, unstored := operator.ShowStored(ctx, store, config.Temporal.Namespace, key.workflowID, key.runID)
	if unstored != nil {
		return nil, err
	}
	fmt.Fprintf(c.errw, "%s: cannot reach Temporal at %s: shown from Postgres alone\n", name, printable(config.Temporal.HostPort))
	return stored, nil
}

func showLive(ctx context.Context, config *connect.Config, store *dlqstore.Store, key keyFlags) (*operator.Shown, error) {
	connected, err := config.Dial(ctx, silent)
	if err != nil {
		return nil, err
	}
	defer connected.Close()
	verbs, err := operator.New(operator.Config{Store: store, Client: connected, Namespace: config.Temporal.Namespace})
	if err != nil {
		return nil, err
	}
	return verbs.Show(ctx, key.workflowID, key.runID)
}

// deadJSON is a dead letter's row with what belongs to it. "attempts" is the
// row's count, hence attempt_list.
type deadJSON struct {
	*dlqstore.DeadLetter
	AttemptList []dlqstore.Attempt `json:"attempt_list"`
	Replays     []dlqstore.Replay  `json:"replays"`
	Events      []dlqstore.Event   `json:"events"`
	DeadRuns    []string           `json:"dead_runs"`
}

func shownJSON(shown *operator.Shown) any {
	if shown.DeadLetter != nil {
		return deadJSON{
			shown.DeadLetter, notNil(shown.Attempts), notNil(shown.Replays), notNil(shown.Events), notNil(shown.DeadRuns),
		}
	}
	live := liveJSON{Key: shown.Key, ClosedAs: shown.ClosedAs, Pending: shown.Pending, DeadRuns: shown.DeadRuns}
	if shown.Status != nil {
		live.Status = (*string)(shown.Status)
	}
	return live
}

// notNil makes an empty list [] in JSON and not null.
func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func printDead(w io.Writer, shown *operator.Shown) error {
	dl := shown.DeadLetter
	rows := [][]string{
		{"Workflow id", printable(dl.WorkflowID)},
		{"Run id", printable(dl.RunID)},
		{"Namespace", printable(dl.Namespace)},
		{"Job type", printable(dl.JobType)},
		{"Task queue", printable(dl.TaskQueue)},
		{"Dead letter", string(dl.Reason) + " at " + timeText(&dl.DeadAt)},
		{"Attempts", countText(dl.Attempts) + " of " + budgetText(dl.MaxAttempts)},
		{"Enqueued", timeText(dl.EnqueuedAt)},
		{"First attempt", timeText(dl.FirstAttemptAt)},
		{"Last attempt", timeText(dl.LastAttemptAt)},
		{"Worker", orNone(dl.WorkerIdentity)},
		{"Tags", tagsText(dl.Tags)},
		{"Options", optionsText(dl.Options)},
		{"Priority", jsonText(dl.Priority, "none")},
		{"Replays", replaysText(dl)},
		{"Fingerprint", orNone(dl.Fingerprint)},
		{"Revision", strconv.Itoa(dl.Revision)},
	}
	if dl.Pinned {
		rows = append(rows, []string{"Pinned", "by " + orNone(deref(dl.PinnedBy)) + " at " + timeText(dl.PinnedAt)})
	}
	if dl.ReplayedFromWorkflowID != nil {
		rows = append(rows, []string{"Replayed from", fmt.Sprintf("%s, generation %d", printable(*dl.ReplayedFromWorkflowID), dl.Generation)})
	}
	if dl.FirstRunID != dl.RunID && dl.FirstRunID != "" {
		rows = append(rows, []string{"First run id", printable(dl.FirstRunID)})
	}
	if err := table(w, append(rows, deadRunRows(shown)...)); err != nil {
		return err
	}
	printArguments(w, dl)
	printError(w, dl)
	if err := printAttempts(w, shown.Attempts); err != nil {
		return err
	}
	if err := printReplays(w, shown.Replays); err != nil {
		return err
	}
	return printEvents(w, shown.Events)
}

func section(w io.Writer, title string) { fmt.Fprintf(w, "\n%s\n", title) }

func printArguments(w io.Writer, dl *dlqstore.DeadLetter) {
	section(w, "Arguments")
	if dl.PayloadJSON == nil {
		fmt.Fprintln(w, "  not readable here: "+unreadable(dl.Payloads))
		return
	}
	var arguments []json.RawMessage
	if err := json.Unmarshal(dl.PayloadJSON, &arguments); err != nil {
		fmt.Fprintln(w, "  "+printable(string(dl.PayloadJSON)))
		return
	}
	if len(arguments) == 0 {
		fmt.Fprintln(w, "  none")
	}
	for i, argument := range arguments {
		fmt.Fprintf(w, "  %d  %s\n", i+1, printable(string(argument)))
	}
}

// unreadable says why the arguments have no readable copy, by their encodings.
func unreadable(wire []byte) string {
	var payloads commonpb.Payloads
	if err := proto.Unmarshal(wire, &payloads); err != nil {
		return "the stored bytes are no Temporal payloads"
	}
	var encodings []string
	size := 0
	for _, payload := range payloads.GetPayloads() {
		encodings = append(encodings, printable(string(payload.GetMetadata()[converter.MetadataEncoding])))
		size += len(payload.GetData())
	}
	slices.Sort(encodings)
	return fmt.Sprintf("encrypted, binary or beyond what Postgres holds as JSON (%d bytes, encoding %s). A replay sends them on as they are.",
		size, strings.Join(slices.Compact(encodings), ", "))
}

func printError(w io.Writer, dl *dlqstore.DeadLetter) {
	section(w, "Error")
	if dl.ErrorType != "" {
		fmt.Fprintln(w, "  type  "+printable(dl.ErrorType))
	}
	for _, line := range printableLines(dl.ErrorMessage) {
		fmt.Fprintln(w, "  "+line)
	}
	if dl.RetryState != "" {
		fmt.Fprintln(w, "  retry state  "+printable(dl.RetryState))
	}
	if dl.ErrorStack == "" {
		return
	}
	section(w, "Stack")
	for _, line := range printableLines(dl.ErrorStack) {
		fmt.Fprintln(w, "  "+line)
	}
}

func deref(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

func printAttempts(w io.Writer, attempts []dlqstore.Attempt) error {
	section(w, "Attempts")
	if len(attempts) == 0 {
		fmt.Fprintln(w, "  none recorded")
		return nil
	}
	rows := [][]string{{"  NO", "STARTED", "ENDED", "WAITED AFTER", "WORKER", "ERROR"}}
	for i := range attempts {
		a := &attempts[i]
		wait := ""
		if a.Wait != nil {
			wait = a.Wait.Round(time.Millisecond).String()
		}
		what := printable(a.ErrorMessage)
		if a.ErrorType != "" {
			what = printable(a.ErrorType) + ": " + what
		}
		rows = append(rows, []string{
			"  " + strconv.Itoa(a.Attempt), timeText(a.StartedAt), timeText(a.EndedAt), wait, orNone(a.WorkerIdentity), shortened(what, maxErrorCell),
		})
	}
	return table(w, rows)
}

func printReplays(w io.Writer, replays []dlqstore.Replay) error {
	if len(replays) == 0 {
		return nil
	}
	section(w, "Replays")
	rows := [][]string{{"  REQUESTED", "BY", "NEW WORKFLOW ID", "STATE", "FINISHED", "REQUEST ID"}}
	for i := range replays {
		r := &replays[i]
		state, finished := "not yet confirmed", "not yet"
		if r.FinishedAt != nil || r.Outcome != nil {
			finished = timeText(r.FinishedAt)
		}
		switch {
		case r.Outcome != nil && r.Error != nil:
			state = string(*r.Outcome) + ": " + *r.Error
		case r.Outcome != nil:
			state = string(*r.Outcome)
			if r.SameFingerprint != nil && *r.SameFingerprint {
				state += ", of the same cause"
			} else if r.SameFingerprint != nil {
				state += ", of another cause"
			}
		case r.NewRunID != nil:
			state = "started as run " + *r.NewRunID
		}
		rows = append(rows, []string{
			"  " + timeText(&r.RequestedAt), printable(r.Actor), printable(r.NewWorkflowID), printable(state), finished, printable(r.RequestID),
		})
	}
	return table(w, rows)
}

func printEvents(w io.Writer, events []dlqstore.Event) error {
	section(w, "Events")
	rows := [][]string{{"  AT", "VERB", "BY", "DETAIL"}}
	for i := range events {
		e := &events[i]
		rows = append(rows, []string{"  " + timeText(&e.At), printable(e.Verb), orNone(e.Actor), printable(string(e.Detail))})
	}
	return table(w, rows)
}

func budgetText(limit *int) string {
	if limit == nil {
		return "no limit"
	}
	return strconv.Itoa(*limit)
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return printable(text)
}

func tagsText(tags map[string]string) string {
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		pairs = append(pairs, printable(key+"="+tags[key]))
	}
	return orNone(strings.Join(pairs, " "))
}

func jsonText(value json.RawMessage, absent string) string {
	if len(value) == 0 || string(value) == "{}" {
		return absent
	}
	return printable(string(value))
}

// optionsText tells of a refused job's options too: they are kept as they were sent.
func optionsText(options json.RawMessage) string {
	if options == nil {
		return "not readable: encrypted, or not JSON"
	}
	return printable(string(options))
}

func replaysText(dl *dlqstore.DeadLetter) string {
	if dl.LastResurrectionAt == nil {
		return strconv.Itoa(dl.ResurrectionCount)
	}
	return fmt.Sprintf("%d, the last at %s", dl.ResurrectionCount, timeText(dl.LastResurrectionAt))
}
