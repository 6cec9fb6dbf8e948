package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"google.golang.org/protobuf/proto"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// arguments returns the data of each stored argument.
func (b *bench) arguments(key dlqstore.Key) (all []string) {
	b.t.Helper()
	dl, err := b.store.Get(b.t.Context(), key)
	require.NoError(b.t, err)
	var payloads commonpb.Payloads
	require.NoError(b.t, proto.Unmarshal(dl.Payloads, &payloads))
	for _, payload := range payloads.GetPayloads() {
		all = append(all, string(payload.GetData()))
	}
	return all
}

// TestEdit proves each way to edit on the command line, what it prints in words
// and in JSON, that show tells of it, and that the original can be had again.
func TestEdit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	key := b.move("edit-1")
	before, err := b.store.Get(t.Context(), key)
	require.NoError(t, err)

	text := b.succeed("edit", "-w", "edit-1", "--merge-patch", `{"price": 2.50}`, "--actor", "oncall")
	require.Regexp(t, `Edited\s+edit-1\nRevision\s+2\nRequest id\s+\S+\n    /arguments/0/price  1\.10 → 2\.50\n$`, text)
	require.Equal(t, []string{`{"id": 9007199254740993, "price": 2.50}`}, b.arguments(key))

	file := filepath.Join(t.TempDir(), "patch.json")
	require.NoError(t, os.WriteFile(file, []byte(`[{"op": "add", "path": "/0/new", "value": "Zoë"}]`), 0o600))
	b.succeed("edit", "edit-1", "--json-patch", "@"+file)
	b.succeed("edit", "edit-1", "--arg", "1=[1e400]", "--revision", "3")
	require.Equal(t, []string{`{"id": 9007199254740993, "price": 2.50,"new":"Zoë"}`, `[1e400]`}, b.arguments(key))

	var edited struct {
		Revision  int
		RequestID string `json:"request_id"`
		Diff      dlqstore.Diff
		Replay    *job.ReplayOutput
	}
	b.decode(&edited, "edit", "edit-1", "--queue", "slow", "--policy", `{"max_attempts": 9}`, "--priority", "1", "--tag", "ring=beta", "--untag", "tenant", "-o", "json")
	require.Equal(t, 5, edited.Revision)
	require.NotEmpty(t, edited.RequestID)
	require.Nil(t, edited.Replay)
	require.Len(t, edited.Diff.Changes, 4)
	dl, err := b.store.Get(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, "slow", dl.TaskQueue)
	require.Equal(t, 9, *dl.MaxAttempts)
	require.Equal(t, map[string]string{"ring": "beta"}, dl.Tags)
	require.JSONEq(t, `{"priority_key": 1}`, string(dl.Priority))

	shown := b.succeed("show", "edit-1")
	for _, part := range []string{`revision 2  `, `oncall`, `/arguments/0/price  1.10 → 2.50`, `/arguments/1  (none) → [1e400]`, `"emails" → "slow"`, "args[1]"} {
		require.Contains(t, shown, part)
	}
	var all struct{ Revisions []dlqstore.Revision }
	b.decode(&all, "show", "edit-1", "-o", "json")
	require.Len(t, all.Revisions, 4)
	require.Equal(t, "1.10", string(all.Revisions[0].Diff.Changes[0].Before))

	require.Contains(t, b.succeed("edit", "edit-1", "--to-original"), "Revision    6")
	after, err := b.store.Get(t.Context(), key)
	require.NoError(t, err)
	before.Revision = 6
	require.Equal(t, before, after)

	require.Regexp(t, `(?s)Revision 6 of edit-1 would change:.*/tags  \(none\) → {"a":"b"}`, b.succeed("edit", "edit-1", "--tag", "a=b", "--dry-run"))
	require.Equal(t, "Nothing would change.\n", b.succeed("edit", "edit-1", "--queue", "emails", "--dry-run"))
	require.Equal(t, []string{exactArgument}, b.arguments(key))
}

// TestEditRefused proves that an edit which cannot be done exits 1 with one line
// that says why, and that the audit lists it.
func TestEditRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.move("edit-2")
	b.move("encrypted", func(dl *dlqstore.DeadLetter) {
		dl.Payloads = encode(&commonpb.Payloads{Payloads: []*commonpb.Payload{{Metadata: map[string][]byte{"encoding": []byte("binary/encrypted")}, Data: []byte("geheim")}}})
	})
	b.succeed("edit", "edit-2", "--tag", "a=b", "--actor", "first")
	for args, says := range map[string]string{
		"edit edit-2 --tag a=c --revision 1":          "the edit is of revision 1, and first made revision 2 at ",
		"edit edit-2 --tag a=b":                       "it would change nothing",
		"edit edit-2 --merge-patch {":                 "merge_patch: not valid JSON at line 1, column 1",
		"edit edit-2 --policy {\"max_attempts\":0.5}": "max_attempts: 0.5 is not a whole number",
		"edit edit-2 --revert 7":                      "there is no revision 7 to go back to; the newest is 2",
		"edit encrypted --merge-patch {\"a\":1}":      `argument 0 has encoding "binary/encrypted"`,
		"edit encrypted --arg 1=1":                    "a codec, encryption say, is in the way",
		"edit nobodys --queue q":                      "not found; see `temporal-deadletter list`",
	} {
		r := b.call(append(strings.Fields(args), "--actor", "refused")...)
		require.Equal(t, exitFailed, r.code, args)
		require.Empty(t, r.out)
		require.Contains(t, r.errw, says)
		require.Equal(t, 1, strings.Count(r.errw, "\n"), r.errw)
		require.NotContains(t, r.errw, "geheim")
	}
	var audit struct{ Events []dlqstore.Event }
	b.decode(&audit, "events", "--actor", "refused", "-o", "json")
	require.Len(t, audit.Events, 8)
	for _, event := range audit.Events {
		require.Equal(t, dlqstore.VerbEditRefused, event.Verb)
		require.NotContains(t, string(event.Detail), "max_attempts")
	}
}

// TestEditor proves that --editor edits the arguments' own bytes in a file that
// only its owner reads, keeps a text that is refused, and leaves none otherwise.
func TestEditor(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	key := b.move("edit-3")
	seen := filepath.Join(t.TempDir(), "seen")
	edit := func(script string, more ...string) result {
		t.Helper()
		path := filepath.Join(t.TempDir(), "editor")
		require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700))
		environ := append(append([]string{}, b.environ...), "PATH="+os.Getenv("PATH"), "EDITOR=false", "VISUAL="+path+" --wait", "SEEN="+seen)
		return call(t, environ, person{strings.NewReader("")}, append([]string{"edit", "edit-3", "--editor"}, more...)...)
	}

	r := edit(`test "$1" = --wait && stat -c %a "$2" > "$SEEN" && cat "$2" >> "$SEEN" && echo "$2" >> "$SEEN" && sed -i 's/1\.10/1.20/' "$2"`)
	require.Zero(t, r.code, r.errw)
	was, err := os.ReadFile(seen)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(was)), "\n")
	require.Equal(t, []string{"600", "[", exactArgument, "]"}, lines[:4])
	require.NoFileExists(t, lines[4])
	require.Equal(t, []string{`{"id": 9007199254740993, "price": 1.20}`}, b.arguments(key))

	r = edit(`rm "$2"`)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.errw, "nothing was changed: the editor removed the file instead of saving it\n")

	r = edit("exit 0")
	require.Zero(t, r.code)
	require.Regexp(t, `^temporal-deadletter: \S+\.json is a JSON array of the arguments of edit-3\. Saved unchanged, it changes nothing\.\nNothing was changed\.\n$`, r.errw)

	kept := regexp.MustCompile(`your text is kept: mend it and pass --args @(\S+)\n$`)
	for script, says := range map[string]string{
		`printf '[\n  {"id" 1}\n]' > "$2"`: "not valid JSON at line 2, column 9",
		`printf '{}' > "$2"`:               "the arguments must be a JSON array",
		`printf '[1]' > "$2"; exit 3`:      "the editor: exit status 3",
	} {
		r = edit(script)
		require.Equal(t, exitFailed, r.code)
		require.Contains(t, r.errw, says)
		require.Regexp(t, kept, r.errw)
		path := kept.FindStringSubmatch(r.errw)[1]
		require.FileExists(t, path)
		require.NoError(t, os.Remove(path))
	}
	// A conflict keeps the text too, which can then be passed again.
	r = edit(`printf '["mine"]' > "$2"`, "--revision", "1")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.errw, "revision conflict")
	path := kept.FindStringSubmatch(strings.ReplaceAll(r.errw, "; see it with", "\n; see it with")[:strings.Index(r.errw, "; see it with")] + "\n")[1]
	b.succeed("edit", "edit-3", "--args", "@"+path)
	require.Equal(t, []string{`"mine"`}, b.arguments(key))
	require.NoError(t, os.Remove(path))
}

// TestEditAndReplay proves that both are one step with one request id: the new job
// has the edited bytes, and the same id gives the same job.
func TestEditAndReplay(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	key := b.move("edit-4")
	c := b.dial()
	var first, again struct {
		Revision int
		Replay   job.ReplayOutput
	}
	args := []string{"edit", "edit-4", "--merge-patch", `{"price":3.0}`, "--priority", "4", "--replay", "--request-id", "ticket", "-o", "json"}
	b.decode(&first, args...)
	t.Cleanup(func() { _ = c.TerminateWorkflow(t.Context(), first.Replay.WorkflowID, "", "test") })
	b.decode(&again, args...)
	require.Equal(t, first, again)
	require.Equal(t, 2, first.Revision)

	event, err := c.GetWorkflowHistory(t.Context(), first.Replay.WorkflowID, first.Replay.RunID, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT).Next()
	require.NoError(t, err)
	started := event.GetWorkflowExecutionStartedEventAttributes()
	require.Equal(t, `{"id": 9007199254740993, "price": 3.0}`, string(started.GetInput().GetPayloads()[1].GetData()))
	require.EqualValues(t, 4, started.GetPriority().GetPriorityKey())
	replays, err := b.store.Replays(t.Context(), key)
	require.NoError(t, err)
	require.Len(t, replays, 1)
	require.Equal(t, 2, *replays[0].Revision)
}

// TestSuperseded proves that the job which succeeded after all is flagged by show,
// and replayed only by who says so: by an answer, or by --yes.
func TestSuperseded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	key := b.move("edit-5")
	_, err := b.store.Pool().Exec(t.Context(), `update deadletter.dead_letters set superseded_at = now(), superseded_by_run_id = 'later'`)
	require.NoError(t, err)
	require.Regexp(t, `Superseded\s+the job was reset and succeeded at \S+ \S+ as run later`, b.succeed("show", "edit-5"))

	replays := func() int {
		all, err := b.store.Replays(t.Context(), key)
		require.NoError(t, err)
		return len(all)
	}
	for _, args := range [][]string{{"replay", "edit-5"}, {"edit", "edit-5", "--tag", "a=b", "--replay"}} {
		r := b.call(args...)
		require.Equal(t, exitUsage, r.code)
		require.Contains(t, r.errw, "pass --yes to replay it all the same")
		r = call(t, b.environ, person{strings.NewReader("n\n")}, args...)
		require.Equal(t, exitFailed, r.code)
		require.Contains(t, r.errw, "nothing was replayed: the answer was not yes")
	}
	require.Zero(t, replays())
	require.Zero(t, call(t, b.environ, person{strings.NewReader("y\n")}, "replay", "edit-5").code)
	require.Equal(t, 1, replays())
	b.succeed("edit", "edit-5", "--tag", "a=b", "--replay", "--yes")
	b.succeed("replay", "edit-5", "--yes")
	require.Equal(t, 3, replays())
	c := b.dial()
	all, err := b.store.Replays(t.Context(), key)
	require.NoError(t, err)
	for _, replay := range all {
		_ = c.TerminateWorkflow(t.Context(), replay.NewWorkflowID, "", "test")
	}
}

// TestNotes proves that notes on a dead letter and on its fingerprint are shown,
// safe for a terminal, and that what is no note is refused.
func TestNotes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.move("note-1")
	require.Equal(t, "Noted on note-1.\n", b.succeed("note", "-w", "note-1", "do not\n\x1b[31mreplay", "--actor", "ada"))
	require.Equal(t, "Noted on all dead letters with fingerprint f00.\n", b.succeed("note", "--fingerprint", "f00", "bad deploy"))
	text := b.succeed("show", "note-1")
	require.Regexp(t, `(?s)Notes\n  \S+ \S+  ada\n    do not\n    .\[31mreplay\n  \S+ \S+  \S+, on the fingerprint\n    bad deploy\n`, text)
	require.NotContains(t, text, "\x1b")
	var shown struct{ Notes []dlqstore.Note }
	b.decode(&shown, "show", "note-1", "-o", "json")
	require.Len(t, shown.Notes, 2)
	require.Equal(t, "ada", shown.Notes[0].Actor)

	for says, args := range map[string][]string{
		"8192 is the most":                 {"note", "-w", "note-1", strings.Repeat("x", 8193)},
		"needs a text":                     {"note", "-w", "note-1", " "},
		"nobodys":                          {"note", "-w", "nobodys", "x"},
		`the fingerprint "f01": not found`: {"note", "--fingerprint", "f01", "x"},
	} {
		r := b.call(args...)
		require.Equal(t, exitFailed, r.code)
		require.Contains(t, r.errw, says)
	}
	require.Equal(t, 4, strings.Count(b.succeed("events", "--verb", "note_refused", "-o", "jsonl"), "\n"))
	require.NotContains(t, b.succeed("events"), "bad deploy")
}

// TestEvents proves that the audit lists page by page, newest first, by each
// filter, and outlives the dead letter.
func TestEvents(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.move("events-1")
	b.succeed("edit", "events-1", "--tag", "a=b", "--actor", "ada")
	b.succeed("purge", "-w", "events-1", "--yes", "--actor", "bob")
	r := b.call("purge", "-w", "events-1", "--yes", "--actor", "bob")
	require.Equal(t, exitFailed, r.code)

	type page struct {
		Events     []dlqstore.Event
		NextCursor string `json:"next_cursor"`
	}
	var verbs []string
	args := []string{"events", "--limit", "3", "-o", "json"}
	for {
		var p page
		b.decode(&p, args...)
		for _, event := range p.Events {
			verbs = append(verbs, event.Verb)
		}
		if p.NextCursor == "" {
			break
		}
		args = append(args[:5:5], "--cursor", p.NextCursor)
	}
	require.Equal(t, []string{"purge_refused", "purge", "edit", "move"}, verbs)
	require.Equal(t, 2, strings.Count(b.succeed("events", "--actor", "bob", "-o", "jsonl"), "\n"))
	require.Equal(t, 1, strings.Count(b.succeed("events", "-w", "events-1", "--verb", "edit", "--since", "1h", "-o", "jsonl"), "\n"))
	require.Equal(t, "No events match.\n", b.succeed("events", "--until", "1h"))
	require.Equal(t, "No events match.\n", b.succeed("events", "--plan", "none"))
	require.Contains(t, b.succeed("events", "--limit", "1"), "There is more. Next page: repeat the command with --cursor ")
	require.Regexp(t, `purge_refused\s+bob\s+events-1\s+cause=not_found\n`, b.succeed("events"))
	r = b.call("events", "--cursor", "nonsense")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.errw, "start again without --cursor")
}

// TestShowHistory proves that show tells the causes of an error, the last
// heartbeat, where a job came from and what became of it, and links to the UI.
func TestShowHistory(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	original := b.move("line")
	start, err := b.store.BeginReplay(t.Context(), dlqstore.ReplayRequest{Key: original, RequestID: "r1", Actor: "ada"})
	require.NoError(t, err)
	child := b.move(start.Replay.NewWorkflowID, func(dl *dlqstore.DeadLetter) {
		dl.Generation, dl.ReplayedFromWorkflowID, dl.ReplayedFromRunID = 1, &original.WorkflowID, &original.RunID
		dl.LastHeartbeatDetails = encode(&commonpb.Payloads{Payloads: []*commonpb.Payload{{Metadata: jsonEncoding(), Data: []byte(`{"row":9007199254740993}`)}}})
		dl.Failure = failureChain("outer", "middle\x1b[31m", "inner")
	})
	grandchild, err := b.store.BeginReplay(t.Context(), dlqstore.ReplayRequest{Key: child, RequestID: "r2", Actor: "ada"})
	require.NoError(t, err)

	environ := append(append([]string{}, b.environ...), "DEADLETTER_UI_URL=http://localhost:8233/")
	r := call(t, environ, strings.NewReader(""), "show", child.WorkflowID)
	require.Zero(t, r.code, r.errw)
	for _, part := range []string{
		"Caused by\n  Middle: middle", "\n  Inner: inner\n", `Last heartbeat` + "\n" + `  [{"row":9007199254740993}]`, "Replayed from\n", "line ", "max_retries_exceeded",
		"http://localhost:8233/namespaces/default/workflows/" + child.WorkflowID + "/" + child.RunID + "/history",
	} {
		require.Contains(t, r.out, part)
	}
	require.NotContains(t, r.out, "\x1b")
	var up struct {
		Ancestors  []dlqstore.Ancestor
		ErrorChain []map[string]string `json:"error_chain"`
		Heartbeat  struct{ Details json.RawMessage }
	}
	b.decode(&up, "show", child.WorkflowID, "-o", "json")
	require.Equal(t, original, up.Ancestors[0].Key)
	require.Len(t, up.ErrorChain, 3)
	require.Contains(t, string(up.Heartbeat.Details), "9007199254740993")

	var down struct{ Descendants []dlqstore.Descendant }
	b.decode(&down, "show", "line", "-o", "json", "--ui-url", "https://ui.example.com")
	require.Len(t, down.Descendants, 2)
	require.Equal(t, 2, down.Descendants[1].Depth)
	require.Equal(t, grandchild.Replay.NewWorkflowID, down.Descendants[1].NewWorkflowID)
	require.Contains(t, b.succeed("show", "line"), "Replays of its replays")

	b.succeed("purge", "-w", "line", "--yes")
	require.Regexp(t, `(?s)Replayed from\n.*line .*unknown +purged`, b.succeed("show", child.WorkflowID))
}
