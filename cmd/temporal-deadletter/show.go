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
			"letters are shown from Postgres alone. For a dead letter it shows the error with its causes,\n" +
			"the attempts, edits and notes, the job that it is a replay of, and what became of its own\n" +
			"replays. For a dead letter that was removed it shows who removed it, and when.",
		Example: "  " + name + " show -w order-4711\n" +
			"  " + name + " show order-4711 -o json",
		Args: key.arguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := c.config()
			if err != nil {
				return err
			}
			shown, err := c.show(cmd.Context(), config, key)
			if err != nil {
				return err
			}
			page := operator.RunPage(config.UIURL, shown.Key)
			switch {
			case c.output != outputText:
				return c.printJSON(shownJSON(shown, page))
			case shown.DeadLetter == nil:
				return printLive(c.out, shown, page)
			default:
				return printDead(c.out, shown, page)
			}
		},
	}
	key.add(cmd)
	return cmd
}

// show asks both servers, or Postgres alone when Temporal is down and there is
// one dead letter that can be meant.
func (c *cli) show(ctx context.Context, config *connect.Config, key keyFlags) (*operator.Shown, error) {
	store, err := c.storeOf(ctx, config)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	shown, err := c.showLive(ctx, config, store, key)
	if ctx.Err() != nil || !isAway(err) {
		return shown, err
	}
	stored, unstored := operator.ShowStored(ctx, store, config.Temporal.Namespace, key.workflowID, key.runID)
	if unstored != nil {
		return nil, err
	}
	fmt.Fprintf(c.errw, "%s: cannot reach Temporal at %s: shown from Postgres alone\n", name, printable(config.Temporal.HostPort))
	return stored, nil
}

// isAway reports whether Temporal does not answer.
func isAway(err error) bool {
	var unavailable *serviceerror.Unavailable
	var silent *serviceerror.DeadlineExceeded
	return errors.Is(err, connect.ErrNoTemporal) || errors.As(err, &unavailable) || errors.As(err, &silent)
}

func (c *cli) showLive(ctx context.Context, config *connect.Config, store *dlqstore.Store, key keyFlags) (*operator.Shown, error) {
	connected, err := config.Dial(ctx, silent)
	if err != nil {
		return nil, err
	}
	defer connected.Close()
	verbs, err := operator.New(operator.Config{
		Store: store, Client: connected, Namespace: config.Temporal.Namespace, TaskQueue: config.TaskQueue, OnLimited: c.sayLimited,
	})
	if err != nil {
		return nil, err
	}
	return verbs.Show(ctx, key.workflowID, key.runID)
}

// deadJSON is a dead letter's row with what belongs to it. "attempts" is the
// row's count, hence attempt_list.
type deadJSON struct {
	*dlqstore.DeadLetter
	AttemptList []dlqstore.Attempt      `json:"attempt_list"`
	ErrorChain  []operator.FailureCause `json:"error_chain"`
	Heartbeat   *operator.Heartbeat     `json:"heartbeat"`
	Revisions   []dlqstore.Revision     `json:"revisions"`
	Notes       []dlqstore.Note         `json:"notes"`
	Replays     []dlqstore.Replay       `json:"replays"`
	Ancestors   []dlqstore.Ancestor     `json:"ancestors"`
	Descendants []dlqstore.Descendant   `json:"descendants"`
	Events      []dlqstore.Event        `json:"events"`
	DeadRuns    []string                `json:"dead_runs"`
	UI          string                  `json:"ui,omitempty"`
}

func shownJSON(shown *operator.Shown, page string) any {
	if shown.DeadLetter != nil {
		return deadJSON{
			DeadLetter: shown.DeadLetter, AttemptList: notNil(shown.Attempts), ErrorChain: notNil(shown.Causes), Heartbeat: shown.Heartbeat,
			Revisions: notNil(shown.Revisions), Notes: notNil(shown.Notes), Replays: notNil(shown.Replays),
			Ancestors: notNil(shown.Lineage.Ancestors), Descendants: notNil(shown.Lineage.Descendants),
			Events: notNil(shown.Events), DeadRuns: notNil(shown.DeadRuns), UI: page,
		}
	}
	live := liveJSON{Key: shown.Key, ClosedAs: shown.ClosedAs, Pending: shown.Pending, Live: shown.Live, Removed: shown.Removed, DeadRuns: shown.DeadRuns, UI: page}
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

func printDead(w io.Writer, shown *operator.Shown, page string) error {
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
	if dl.SupersededAt != nil {
		rows = append(rows, []string{"Superseded", supersededText(dl)})
	}
	rows = append(append(rows, deadRunRows(shown)...), pageRows(page)...)
	if err := table(w, rows); err != nil {
		return err
	}
	printNotes(w, shown.Notes)
	printArguments(w, dl)
	printError(w, dl)
	printCauses(w, shown.Causes)
	printHeartbeat(w, shown.Heartbeat)
	if err := printAttempts(w, shown.Attempts); err != nil {
		return err
	}
	if err := printReplays(w, shown.Replays); err != nil {
		return err
	}
	if err := printLineage(w, shown.Lineage); err != nil {
		return err
	}
	if err := printRevisions(w, shown.Revisions); err != nil {
		return err
	}
	return printEvents(w, shown.Events)
}

func supersededText(dl *dlqstore.DeadLetter) string {
	by := ""
	if dl.SupersededByRunID != nil {
		by = " as run " + printable(*dl.SupersededByRunID)
	}
	return "the job was reset and succeeded at " + timeText(dl.SupersededAt) + by + ": a replay would do its work again"
}

func pageRows(page string) [][]string {
	if page == "" {
		return nil
	}
	return [][]string{{"Temporal UI", printable(page)}}
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
		fmt.Fprintf(w, "  args[%d]  %s\n", i, printable(string(argument)))
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
	rows := [][]string{{"  REQUESTED", "BY", "REVISION", "NEW WORKFLOW ID", "STATE", "FINISHED", "REQUEST ID"}}
	for i := range replays {
		r := &replays[i]
		finished, revision := "not yet", ""
		if r.FinishedAt != nil || r.Outcome != nil {
			finished = timeText(r.FinishedAt)
		}
		if r.Revision != nil {
			revision = strconv.Itoa(*r.Revision)
		}
		rows = append(rows, []string{
			"  " + timeText(&r.RequestedAt), printable(r.Actor), revision, printable(r.NewWorkflowID), printable(replayState(r)), finished, printable(r.RequestID),
		})
	}
	return table(w, rows)
}

func replayState(r *dlqstore.Replay) string {
	switch {
	case r.Outcome != nil && r.Error != nil:
		return string(*r.Outcome) + ": " + *r.Error
	case r.Outcome != nil && r.SameFingerprint != nil && *r.SameFingerprint:
		return string(*r.Outcome) + ", of the same cause"
	case r.Outcome != nil && r.SameFingerprint != nil:
		return string(*r.Outcome) + ", of another cause"
	case r.Outcome != nil:
		return string(*r.Outcome)
	case r.NewRunID != nil:
		return "started as run " + *r.NewRunID
	default:
		return "not yet confirmed"
	}
}

func printEvents(w io.Writer, events []dlqstore.Event) error {
	section(w, "Events")
	rows := [][]string{{"  AT", "VERB", "BY", "DETAIL"}}
	for i := range events {
		e := &events[i]
		rows = append(rows, []string{"  " + timeText(&e.At), printable(e.Verb), orNone(e.Actor), detailText(e.Detail)})
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

func replaysText(dl *dlqstore.DeadLetter) string {
	if dl.LastResurrectionAt == nil {
		return strconv.Itoa(dl.ResurrectionCount)
	}
	return fmt.Sprintf("%d, the last at %s", dl.ResurrectionCount, timeText(dl.LastResurrectionAt))
}
