package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
)

// TestGroups proves that groups shows each cause once, the largest first, with its
// count, times, queues, a sample and the newest note on it, in each form and under a
// filter.
func TestGroups(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	require.Equal(t, "No dead letters match.\n", b.succeed("groups"))
	require.JSONEq(t, `{"groups": [], "more": 0}`, b.succeed("groups", "-o", "json"))
	b.move("order-1")
	b.move("order-2", func(dl *dlqstore.DeadLetter) { dl.DeadAt, dl.TaskQueue = died.Add(time.Hour), "bulk" })
	b.move("charge-1", func(dl *dlqstore.DeadLetter) {
		dl.JobType, dl.Fingerprint, dl.ErrorType, dl.ErrorMessage = "Charge", "f01", "", "the bank\x1b[2J says no"
	})
	b.move("elsewhere", func(dl *dlqstore.DeadLetter) { dl.Namespace = "another" })

	lines := strings.Split(b.succeed("groups", "--address", nowhere), "\n")
	require.Equal(t, []string{
		"COUNT  FIRST DEAD AT         LAST DEAD AT          TYPE       REASON                QUEUES       FINGERPRINT  SAMPLE    ERROR",
		"2      2026-03-01 12:00:00Z  2026-03-01 13:00:00Z  SendEmail  max_retries_exceeded  bulk,emails  f00          order-2   SMTPError: mailbox is full",
		"1      2026-03-01 12:00:00Z  2026-03-01 12:00:00Z  Charge     max_retries_exceeded  emails       f01          charge-1  the bank\ufffd[2J says no",
		"",
	}, lines)
	var page struct {
		Groups []dlqstore.Group `json:"groups"`
		More   int              `json:"more"`
	}
	b.decode(&page, "groups", "-o", "json", "--limit", "1")
	require.Equal(t, 1, page.More)
	require.Len(t, page.Groups, 1)
	require.Equal(t, "order-2", page.Groups[0].Sample.WorkflowID)
	require.Equal(t, []string{"bulk", "emails"}, page.Groups[0].TaskQueues)

	r := b.call("groups", "-o", "jsonl", "--limit", "1")
	require.Zero(t, r.code)
	require.Equal(t, 1, strings.Count(r.out, "\n"))
	require.Equal(t, "temporal-deadletter: groups left out: 1; raise --limit to see them\n", r.errw)
	require.Contains(t, b.succeed("groups", "--type", "Charge", "-o", "jsonl"), `"fingerprint":"f01","count":1,`)
	require.Contains(t, b.succeed("groups", "--error-text", "BANK", "-o", "jsonl"), `"fingerprint":"f01","count":1,`)
	require.Empty(t, b.succeed("groups", "--queue", "none", "-o", "jsonl"))

	for _, text := range []string{"bad deploy", "mended\x1b[2J in 4711"} {
		b.succeed("note", text, "--fingerprint", "f00", "--actor", "ada")
	}
	b.succeed("note", "of the row alone", "-w", "charge-1")
	text := b.succeed("groups")
	require.Regexp(t, `ERROR +NEWEST NOTE\n2 .* mended\x{fffd}\[2J in 4711 \(ada, [-0-9]+ [:0-9]+Z, and 1 before\)\n1 .*says no\n$`, text)
	b.decode(&page, "groups", "-o", "json", "--limit", "1")
	require.EqualValues(t, 2, page.Groups[0].Notes)
	require.Equal(t, "ada", page.Groups[0].Note.Actor)
	require.Contains(t, b.succeed("groups", "--type", "Charge", "-o", "jsonl"), `"notes":0,"note":null}`)
}
