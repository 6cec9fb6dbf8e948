package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// TestListText proves that the table shows a row for each dead letter, the newest
// first, and says how to get the next page, which then has the rest.
func TestListText(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for i := range 3 {
		b.move(fmt.Sprintf("order-%d", i), func(dl *dlqstore.DeadLetter) { dl.DeadAt = died.Add(time.Duration(i) * time.Minute) })
	}
	page := b.succeed("list", "--limit", "2")
	require.Equal(t, []string{
		"DEAD AT               AGE   REASON                TYPE       ATTEMPTS  REPLAYS  WORKFLOW ID  ERROR",
		"2026-03-01 12:02:00Z  AGO  max_retries_exceeded  SendEmail  3         0        order-2      mailbox is full",
		"2026-03-01 12:01:00Z  AGO  max_retries_exceeded  SendEmail  3         0        order-1      mailbox is full",
		"",
	}, strings.Split(regexp.MustCompile(`\d+d `).ReplaceAllString(page, "AGO "), "\n")[:4])
	next := regexp.MustCompile(`Next page: repeat the command with --cursor (\S+)\n$`).FindStringSubmatch(page)
	require.NotNil(t, next, page)

	rest := b.succeed("list", "--limit", "2", "--cursor", next[1])
	require.Contains(t, rest, "order-0")
	require.NotContains(t, rest, "order-1")
	require.NotContains(t, rest, "Next page")

	oldest := b.succeed("list", "--oldest-first", "--limit", "1")
	require.Contains(t, oldest, "order-0")
	r := b.call("list", "--cursor", next[1], "--oldest-first")
	require.Equal(t, exitUsage, r.code, "a cursor of the other order")
	require.Contains(t, r.errw, "start again without --cursor")
}

// TestListJSON proves that the machine's forms have the columns' names, one
// document or one object per line, and that no number is altered, with the flags
// before the verb as well as after it.
func TestListJSON(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	require.JSONEq(t, `{"dead_letters": [], "next_cursor": ""}`, b.succeed("list", "-o", "json"))
	require.Empty(t, b.succeed("list", "-o", "jsonl"))
	b.move("order-1")
	b.move("order-2", func(dl *dlqstore.DeadLetter) { dl.DeadAt = died.Add(time.Minute); dl.ErrorMessage = "a < b & c" })

	for _, args := range [][]string{
		{"list", "-o", "json", "--limit", "1"},
		{"--output", "json", "--profile", "default", "list", "--limit", "1"},
		{"--address", nowhere, "--namespace", "default", "-o", "json", "list", "--limit", "1"},
	} {
		if args[1] == "json" && args[2] == "--profile" {
			b.environ[0] = "TEMPORAL_CONFIG_FILE=" + profileFile(t, "[profile.default]\n")
		}
		text := b.succeed(args...)
		require.Contains(t, text, "9007199254740993")
		require.Contains(t, text, "1.10")
		require.Contains(t, text, "a < b & c", "not escaped for HTML")
		var page struct {
			DeadLetters []map[string]any `json:"dead_letters"`
			NextCursor  string           `json:"next_cursor"`
		}
		require.NoError(t, json.Unmarshal([]byte(text), &page))
		require.Len(t, page.DeadLetters, 1)
		require.NotEmpty(t, page.NextCursor)
		for _, column := range []string{
			"namespace", "workflow_id", "run_id", "first_run_id", "job_type", "task_queue", "reason", "attempts", "max_attempts", "error_type",
			"error_message", "error_stack", "retry_state", "tags", "options", "payload_json", "priority", "worker_identity", "enqueued_at",
			"first_attempt_at", "last_attempt_at", "dead_at", "resurrection_count", "last_resurrection_at", "generation",
			"replayed_from_workflow_id", "replayed_from_run_id", "fingerprint", "revision",
		} {
			require.Contains(t, page.DeadLetters[0], column)
		}
	}

	r := b.call("list", "-o", "jsonl", "--limit", "1")
	require.Zero(t, r.code)
	require.Contains(t, r.errw, "there is more: repeat the command with --cursor ")
	lines := strings.Split(strings.TrimSpace(b.succeed("-o", "jsonl", "list")), "\n")
	require.Len(t, lines, 2)
	for i, id := range []string{"order-2", "order-1"} {
		require.Contains(t, lines[i], `"payload_json":[{"id":9007199254740993,"price":1.10}]`)
		require.Contains(t, lines[i], `"workflow_id":"`+id+`"`)
	}
}

// TestListFilters proves that each flag selects by its own column, and that all
// of them must hold.
func TestListFilters(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.move("plain")
	other := b.move("other", func(dl *dlqstore.DeadLetter) {
		dl.JobType, dl.TaskQueue, dl.Reason, dl.Fingerprint = "Charge", "cards", job.ReasonTimeout, "f01"
		dl.ErrorMessage, dl.Tags, dl.DeadAt = "Bank says no", map[string]string{"tenant": "umbrella", "region": "eu"}, time.Now().Add(-time.Hour)
		attempts, enqueued := 7, time.Now().Add(-3*time.Hour)
		dl.Attempts, dl.EnqueuedAt, dl.Generation = &attempts, &enqueued, 2
		dl.PayloadJSON = json.RawMessage(`[{"customer": {"id": 42}, "state": "open"}]`)
	})
	_, err := b.store.BeginReplay(t.Context(), dlqstore.ReplayRequest{Key: other, Actor: "test"})
	require.NoError(t, err)
	b.move("elsewhere", func(dl *dlqstore.DeadLetter) { dl.Namespace = "another" })

	for args, want := range map[string]string{
		"":                                       "other plain",
		"--type Charge":                          "other",
		"--queue cards":                          "other",
		"--reason timeout":                       "other",
		"--fingerprint f01":                      "other",
		"--error-text bank":                      "other",
		"--tag tenant=umbrella --tag region=eu":  "other",
		"--tag tenant=umbrella --tag region=us":  "",
		"--dead-after 2h":                        "other",
		"--dead-before 2h":                       "plain",
		"--dead-after 2026-03-01T13:00:00+01:00": "other plain",
		"--dead-before 2026-03-01T12:00:00Z":     "",
		"--replayed":                             "other",
		"--replayed=true":                        "other",
		"--replayed=false":                       "plain",
		"--enqueued-after 4h":                    "other",
		"--enqueued-before 2h":                   "other",
		"--enqueued-after 2h":                    "",
		"--min-attempts 4":                       "other",
		"--max-attempts 3":                       "plain",
		"--min-attempts 3 --max-attempts 7":      "other plain",
		"--generation 2":                         "other",
		"--generation 0":                         "plain",
		"--superseded":                           "",
		"--superseded=false":                     "other plain",
		"--where args[0].customer.id=42":         "other",
		"--where args[0].customer.id=42 --where args[0].state=open": "other",
		"--where args[0].customer.id=42 --where args[0].state=shut": "",
		"--where args[0].id=9007199254740993":                       "plain",
		"--where args[0].id=9007199254740992":                       "",
		"--type Charge --reason max_retries_exceeded":               "",
		"--namespace another":                                       "elsewhere",
	} {
		var page struct {
			DeadLetters []dlqstore.DeadLetter `json:"dead_letters"`
		}
		b.decode(&page, append([]string{"list", "-o", "json"}, strings.Fields(args)...)...)
		var ids []string
		for i := range page.DeadLetters {
			ids = append(ids, page.DeadLetters[i].WorkflowID)
		}
		require.Equal(t, want, strings.Join(ids, " "), args)
	}
}

// TestPostgresOnly proves that list and purge do not need Temporal.
func TestPostgresOnly(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.move("order-1")
	require.Contains(t, b.succeed("--address", nowhere, "list"), "order-1")
	b.succeed("--address", nowhere, "purge", "-w", "order-1", "--yes")
	require.Zero(t, b.count())
}

// TestHostileText proves that the texts of a job cannot act on the terminal.
func TestHostileText(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.move("order-1", func(dl *dlqstore.DeadLetter) {
		dl.ErrorMessage, dl.ErrorStack, dl.JobType = "red \x1b[2J\a\r\nnext", "at \x1b]0;title\a", "T\u202ey"
		dl.Tags = map[string]string{"k\x1b": "v\x07"}
		dl.PayloadJSON = json.RawMessage(`["\u001b and ` + "\u009b" + `"]`)
	})
	for _, text := range []string{b.succeed("list"), b.succeed("show", "order-1")} {
		for _, r := range text {
			require.False(t, r != '\n' && r < ' ' || r == 0x7f || r == 0x9b || r == 0x202e, "%q in %q", r, text)
		}
	}
}
