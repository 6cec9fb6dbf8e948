package dlqstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// allPolicies has each selector and each limit alone, and all at once below others.
func allPolicies() map[string][]dlqstore.RetentionPolicy {
	whole := policy("whole", func(p *dlqstore.RetentionPolicy) {
		p.JobType, p.Reason, p.TagKey, p.TagValue, p.KeepLast = "t", job.ReasonZombie, "k", "v", 3
	})
	return map[string][]dlqstore.RetentionPolicy{
		"by age":    {policy("age")},
		"by number": {policy("number", func(p *dlqstore.RetentionPolicy) { p.KeepFor, p.KeepLast = 0, 3 })},
		"by type":   {policy("type", func(p *dlqstore.RetentionPolicy) { p.JobType = "t" })},
		"by reason": {policy("reason", func(p *dlqstore.RetentionPolicy) { p.Reason = job.ReasonZombie })},
		"by tag":    {policy("tag", func(p *dlqstore.RetentionPolicy) { p.TagKey = "k" })},
		"by all":    {whole},
		"below others": {
			whole,
			policy("a", func(p *dlqstore.RetentionPolicy) { p.JobType = "t" }),
			policy("b", func(p *dlqstore.RetentionPolicy) { p.KeepLast = 1 }),
			policy("c", func(p *dlqstore.RetentionPolicy) { p.KeepLast = 1 }),
		},
	}
}

// policy keeps everything for a day, unless told otherwise.
func policy(name string, changes ...func(*dlqstore.RetentionPolicy)) dlqstore.RetentionPolicy {
	p := dlqstore.RetentionPolicy{Namespace: "default", Name: name, KeepFor: 24 * time.Hour, Enabled: true}
	for _, change := range changes {
		change(&p)
	}
	return p
}

func setPolicy(t testing.TB, store *dlqstore.Store, p dlqstore.RetentionPolicy) {
	t.Helper()
	_, err := store.SetRetention(t.Context(), p, true, "me")
	require.NoError(t, err)
}

// TestRetentionPolicies proves that policies are kept as they were set, replaced
// by name, listed in the order in which they govern and removed, each with an
// event that names the actor.
func TestRetentionPolicies(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	whole := policy("z-whole", func(p *dlqstore.RetentionPolicy) {
		p.JobType, p.Reason, p.TagKey, p.TagValue, p.KeepLast = "SendEmail", job.ReasonZombie, "tenant", "acme", 10_000
	})
	for _, p := range []dlqstore.RetentionPolicy{
		policy("rest"), policy("b", func(p *dlqstore.RetentionPolicy) { p.JobType = "A" }),
		policy("B", func(p *dlqstore.RetentionPolicy) { p.TagKey = "empty" }), whole,
		policy("elsewhere", func(p *dlqstore.RetentionPolicy) { p.Namespace = "other" }),
	} {
		setPolicy(t, store, p)
	}
	stored, err := store.RetentionPolicies(t.Context(), "default")
	require.NoError(t, err)
	var names []string
	for _, p := range stored {
		names = append(names, p.Name)
	}
	require.Equal(t, []string{"z-whole", "B", "b", "rest"}, names)
	whole.Actor, whole.UpdatedAt = "me", stored[0].UpdatedAt
	require.Equal(t, whole, stored[0])
	require.WithinDuration(t, time.Now(), stored[0].UpdatedAt, time.Minute)

	encoded, err := json.Marshal(stored[1])
	require.NoError(t, err)
	require.Contains(t, string(encoded), `"job_type":null,"reason":null,"tag_key":"empty","tag_value":"","keep_for_ms":86400000,"keep_last":null,"enabled":true`)

	again, err := store.SetRetention(t.Context(), policy("rest", func(p *dlqstore.RetentionPolicy) { p.KeepFor, p.KeepLast, p.Enabled = 0, 7, false }), true, "you")
	require.NoError(t, err)
	stored, err = store.RetentionPolicies(t.Context(), "default")
	require.NoError(t, err)
	require.Equal(t, again, stored[3])
	require.Equal(t, "you", again.Actor)

	require.NoError(t, store.RemoveRetention(t.Context(), "default", "rest", "me"))
	require.ErrorIs(t, store.RemoveRetention(t.Context(), "default", "rest", "me"), dlqstore.ErrNotFound)
	require.Equal(t, []string{"retention_set me", "retention_set me", "retention_set me", "retention_set me", "retention_set you", "retention_remove me", "retention_remove_refused me"},
		scalar[[]string](t, store, `select array_agg(verb || ' ' || actor order by id) from deadletter.events where namespace = 'default'`))
}

// TestRetentionRefuses proves that a policy which cannot be meant is refused with
// every fault, and stores nothing.
func TestRetentionRefuses(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	_, err := store.SetRetention(t.Context(), policy("everything"), false, "me")
	require.ErrorIs(t, err, dlqstore.ErrUnbounded)
	bad := dlqstore.RetentionPolicy{Name: "a\x00", Reason: "bored", TagValue: "v", KeepFor: -time.Hour, KeepLast: -1}
	for _, err := range []error{
		func() error { _, err := store.SetRetention(t.Context(), bad, true, "me"); return err }(),
		func() error { _, err := store.PruneReport(t.Context(), bad); return err }(),
	} {
		for _, fault := range []string{"namespace is missing", "not text that Postgres can hold", `"bored" is not a reason`, "without its key", "1ms at least", "1 at least"} {
			require.ErrorContains(t, err, fault)
		}
	}
	_, err = store.SetRetention(t.Context(), dlqstore.RetentionPolicy{Namespace: "n", JobType: "t"}, false, "me")
	require.ErrorContains(t, err, "a name of 0 bytes")
	require.ErrorContains(t, err, "neither an age nor a number")
	require.Zero(t, scalar[int](t, store, `select count(*) from deadletter.retention_policies`))
	require.Zero(t, scalar[int](t, store, `select count(*) from deadletter.events where verb <> 'retention_set_refused'`))
}

// TestPin proves that a pin is seen on the row with who set it, counts once, and
// can be taken off.
func TestPin(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	key := keyOf("w")
	_, err := store.Pin(t.Context(), key, "me")
	require.ErrorIs(t, err, dlqstore.ErrNotFound)
	move(t, store, letter(key))
	for _, want := range []bool{true, false} {
		changed, err := store.Pin(t.Context(), key, "me")
		require.NoError(t, err)
		require.Equal(t, want, changed)
	}
	dl, err := store.Get(t.Context(), key)
	require.NoError(t, err)
	require.True(t, dl.Pinned)
	require.Equal(t, "me", *dl.PinnedBy)
	require.WithinDuration(t, time.Now(), *dl.PinnedAt, time.Minute)
	for _, want := range []bool{true, false} {
		changed, err := store.Unpin(t.Context(), key, "you")
		require.NoError(t, err)
		require.Equal(t, want, changed)
	}
	dl, err = store.Get(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, letter(key), dl)
	require.Equal(t, []string{"pin_refused me", "move worker", "pin me", "unpin you"},
		scalar[[]string](t, store, `select array_agg(verb || ' ' || actor order by id) from deadletter.events`))
}

// TestRecordJobVerb proves that an act on a live job and its event are one: neither
// happens without the other, as far as Postgres can tell.
func TestRecordJobVerb(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	event := dlqstore.JobEvent{Key: keyOf("w"), Verb: dlqstore.VerbJobCancel, Actor: "me", Detail: map[string]string{"why": "nul \x00"}}
	acted := 0
	act := func(err error) func(ctx context.Context) error {
		return func(context.Context) error { acted++; return err }
	}
	require.NoError(t, store.RecordJobVerb(t.Context(), event, act(nil)))
	boom := errors.New("boom")
	require.ErrorIs(t, store.RecordJobVerb(t.Context(), event, act(boom)), boom)
	event.Verb = dlqstore.VerbJobCancelRefused
	require.NoError(t, store.RecordJobVerb(t.Context(), event, nil))
	require.Equal(t, 2, acted)
	require.Equal(t, []string{"job_cancel", "job_cancel_refused"},
		scalar[[]string](t, store, `select array_agg(verb order by id) from deadletter.events where actor = 'me'`))

	lost := store.RecordJobVerb(t.Context(), event, func(ctx context.Context) error {
		// Ends every other connection of this database, the transaction's among them.
		_, err := store.Pool().Exec(ctx, `select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`)
		return err
	})
	require.ErrorContains(t, lost, "was done, but its event could not be written")
	require.ErrorIs(t, lost, dlqstore.ErrUnavailable)

	run(t, store, `alter table deadletter.events rename to away`)
	require.ErrorIs(t, store.RecordJobVerb(t.Context(), event, act(nil)), dlqstore.ErrSchema)
	event.WorkflowID = "\x00"
	require.ErrorContains(t, store.RecordJobVerb(t.Context(), event, act(nil)), "Postgres can hold")
	require.Equal(t, 2, acted)
}
