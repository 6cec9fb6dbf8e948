package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// TestRetention goes through the verbs as an operator does: a report that stores
// nothing, the question, the policy in the list, a run, the removal.
func TestRetention(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for i := range 3 {
		b.move(fmt.Sprint("old-", i), func(dl *dlqstore.DeadLetter) { dl.DeadAt = died.Add(time.Duration(i) * time.Hour) })
	}
	b.move("charge", func(dl *dlqstore.DeadLetter) { dl.JobType, dl.Reason = "Charge", job.ReasonZombie })
	b.move("new", func(dl *dlqstore.DeadLetter) { dl.DeadAt = time.Now() })
	require.Contains(t, b.succeed("retention", "list"), "There is no policy: dead letters are kept until they are purged.")
	require.Equal(t, "No policy is enabled.\n", b.succeed("retention", "run", "--dry-run"))

	set := []string{"retention", "set", "month", "--all", "--keep", "30d", "--keep-last", "10000", "--actor", "oncall"}
	report := `^Policy        month
Namespace     default
Database      127\.0\.0\.1:\d+/deadletter_test_\w+, schema deadletter
Governs       everything that no other policy governs
Keeps         30d, and no more than the last 10000
Would go now  4 dead letters, for good
Dead between  2026-03-01 12:00:00Z and 2026-03-01 14:00:00Z
  COUNT  TYPE       REASON
  3      SendEmail  max_retries_exceeded
  1      Charge     zombie
The first to go
  2026-03-01 12:00:00Z  zombie                Charge     charge
  2026-03-01 12:00:00Z  max_retries_exceeded  SendEmail  old-0
  2026-03-01 13:00:00Z  max_retries_exceeded  SendEmail  old-1
  2026-03-01 14:00:00Z  max_retries_exceeded  SendEmail  old-2
`
	require.Regexp(t, report+`$`, b.succeed(append(set, "--dry-run")...))
	r := call(t, b.environ, person{strings.NewReader("n\n")}, set...)
	require.Equal(t, exitFailed, r.code)
	require.Equal(t, "temporal-deadletter: nothing was stored: the answer was not yes\n", r.errw)
	require.Contains(t, b.succeed("retention", "list"), "There is no policy")
	r = call(t, b.environ, person{strings.NewReader("y\n")}, set...)
	require.Zero(t, r.code, r.errw)
	require.Regexp(t, report+`Set policy month\? \[y/N\] Policy month is set\.`, r.out)

	require.Contains(t, b.succeed("retention", "set", "charges", "--type", "Charge", "--tag", "tenant=acme", "--keep-last", "1", "--yes"), "Policy charges is set.")
	require.Contains(t, b.succeed("retention", "set", "off", "--reason", "timeout", "--keep", "12h", "--disabled", "--yes"), "Policy off is stored, and disabled.\n")
	require.Contains(t, b.succeed("pin", "old-1"), "old-1 is pinned: no retention policy removes it.\n")
	require.Regexp(t, `Pinned +by \S+ at 20`, b.succeed("show", "old-1"))

	dry := b.succeed("retention", "run", "--dry-run")
	require.Regexp(t, `Would go now  2 dead letters, for good\n`, dry)
	require.Regexp(t, `Pinned, stay  1\n`, dry)
	require.NotContains(t, dry, "off")
	r = call(t, b.environ, person{strings.NewReader("\n")}, "retention", "run")
	require.Equal(t, exitFailed, r.code)
	require.Equal(t, "temporal-deadletter: nothing was removed: the answer was not yes\n", r.errw)
	require.EqualValues(t, 5, b.count())
	require.True(t, strings.HasSuffix(b.succeed("retention", "run", "--yes", "--actor", "oncall"), "Removed 2 dead letters by policy month.\n"))
	require.EqualValues(t, 3, b.count())
	events, err := b.store.Events(t.Context(), deadLetter("old-0").Key)
	require.NoError(t, err)
	require.Equal(t, "oncall", events[len(events)-1].Actor)
	require.True(t, strings.HasSuffix(b.succeed("retention", "run", "--yes"), "Nothing was removed.\n"))

	list := strings.Split(b.succeed("retention", "list"), "\n")
	require.Regexp(t, `^NAME +GOVERNS +KEEPS +STATE +REMOVED IN 24H +SET BY +SET AT$`, list[0])
	require.Regexp(t, `^charges +type Charge, tag tenant=acme +the last 1 +enabled +0 +`, list[1])
	require.Regexp(t, `^off +reason timeout +12h0m0s +disabled +0 +`, list[2])
	require.Regexp(t, `^month +everything that no other policy governs +30d, and no more than the last 10000 +enabled +2 +oncall +20`, list[3])

	require.Contains(t, b.succeed("unpin", "old-1"), "old-1 is not pinned: retention policies govern it.\n")
	require.Contains(t, b.succeed("unpin", "old-1"), "; so it was before.\n")
	require.Contains(t, b.succeed("retention", "remove", "month"), "Policy month is removed.")
	r = b.call("retention", "remove", "month")
	require.Equal(t, exitFailed, r.code)
	require.Equal(t, "temporal-deadletter: remove retention policy \"month\": not found; see `temporal-deadletter retention list`\n", r.errw)
}

// TestRetentionReportHeld proves that what a replay holds is told of in the columns
// of the rest.
func TestRetentionReportHeld(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.move("free")
	_, err := b.store.BeginReplay(t.Context(), dlqstore.ReplayRequest{Key: b.move("held"), Actor: "test"})
	require.NoError(t, err)
	report := b.succeed("retention", "set", "month", "--all", "--keep", "30d", "--dry-run")
	require.Contains(t, report, "\nWould go now  1 dead letter, for good\n")
	require.Contains(t, report, "\nHeld, stay    1 for now, by a plan or a replay\n")
}

// TestRetentionJSON proves that programs find one document on standard output, and
// people the report beside it.
func TestRetentionJSON(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.move("old")
	var report struct {
		WouldPrune json.Number `json:"would_prune"`
		Policy     struct {
			KeepForMS json.Number `json:"keep_for_ms"`
			JobType   *string     `json:"job_type"`
		}
	}
	b.decode(&report, "retention", "set", "p", "--type", "SendEmail", "--keep", "1d12h", "--dry-run", "-o", "json")
	require.Equal(t, "1", report.WouldPrune.String())
	require.Equal(t, "129600000", report.Policy.KeepForMS.String())
	require.Equal(t, "SendEmail", *report.Policy.JobType)
	r := b.call("retention", "set", "p", "--type", "SendEmail", "--keep", "1d12h", "--yes", "-o", "json")
	require.Zero(t, r.code, r.errw)
	require.Contains(t, r.errw, "Would go now  1 dead letter, for good")
	require.True(t, json.Valid([]byte(r.out)), r.out)

	var reports struct{ Reports []json.RawMessage }
	b.decode(&reports, "retention", "run", "--dry-run", "-o", "json")
	require.Len(t, reports.Reports, 1)
	var pruned struct{ Pruned map[string]int }
	b.decode(&pruned, "retention", "run", "--yes", "-o", "json")
	require.Equal(t, map[string]int{"p": 1}, pruned.Pruned)
	var list struct {
		Policies []struct {
			Policy struct{ Name string }
			Pruned int `json:"pruned_24h"`
		}
		Pruned []struct{ Policy string } `json:"pruned_24h"`
	}
	b.decode(&list, "retention", "list", "-o", "json")
	require.Equal(t, "p", list.Policies[0].Policy.Name)
	require.Equal(t, 1, list.Policies[0].Pruned)
	require.Equal(t, "p", list.Pruned[0].Policy)
	require.Equal(t, 1, strings.Count(b.succeed("retention", "list", "-o", "jsonl"), "\n"))
	b.decode(&struct{}{}, "retention", "remove", "p", "-o", "json")
	b.move("pinned")
	var pin struct{ Pinned, Changed bool }
	b.decode(&pin, "pin", "pinned", "-o", "json")
	require.True(t, pin.Pinned && pin.Changed)
}
