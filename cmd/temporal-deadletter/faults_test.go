package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/tern/v2/migrate"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
)

// use is a command line that is right, for the tests of what can be wrong with all
// else.
type use struct {
	args     string
	temporal bool // it needs Temporal
	key      bool // it acts on dead letter w, or job w
	person   bool // it needs a terminal
	fails    bool // there is nothing that it could be done to
}

// uses has every verb. PLAN stands for a plan.
var uses = []use{
	{args: "list"},
	{args: "groups"},
	{args: "export"},
	{args: "show w", key: true, temporal: true},
	{args: "edit w --queue q", key: true},
	{args: "edit w --queue q2 --replay", key: true, temporal: true},
	{args: "note text -w w", key: true},
	{args: "note text --fingerprint f00"},
	{args: "events"},
	{args: "replay w", key: true, temporal: true},
	{args: "pin w", key: true},
	{args: "unpin w", key: true},
	{args: "plan replay --all"},
	{args: "plan purge --all"},
	{args: "plan edit --all --set-queue q3"},
	{args: "plan retag --all --set-tag a=b"},
	{args: "plan list"},
	{args: "plan show PLAN"},
	{args: "plan items PLAN"},
	{args: "plan pause PLAN", temporal: true, fails: true},
	{args: "plan resume PLAN", temporal: true, fails: true},
	{args: "apply PLAN --yes --detach", temporal: true},
	{args: "plan cancel PLAN", temporal: true},
	{args: "stats", temporal: true},
	{args: "stats --by type"},
	{args: "stats --hourly"},
	{args: "watch", temporal: true, person: true},
	{args: "jobs", temporal: true},
	{args: "jobs retry-now w", temporal: true, fails: true},
	{args: "jobs cancel w --yes", temporal: true, fails: true},
	{args: "retention set p --all --keep 3650d --yes"},
	{args: "retention list"},
	{args: "retention run --yes"},
	{args: "retention remove p"},
	{args: "purge -w w --yes", key: true},
	{args: "purge --all --yes"},
	{args: "migrate"},
	{args: "reconcile --since 1h --dry-run", temporal: true},
}

// call runs the command line with more arguments behind it.
func (u use) call(t *testing.T, environ []string, plan string, more ...string) result {
	t.Helper()
	args := append(strings.Fields(strings.ReplaceAll(u.args, "PLAN", plan)), more...)
	if !u.person {
		return call(t, environ, nil, args...)
	}
	var errw bytes.Buffer
	display := &screen{drawn: func(int) { t.Error("something was drawn") }}
	return result{run(t.Context(), args, environ, person{strings.NewReader("")}, display, &errw), "", errw.String()}
}

// oneLine requires that the command failed with that code, wrote nothing, and said
// each of the texts in one line.
func (r result) oneLine(t *testing.T, u use, code int, says ...string) {
	t.Helper()
	require.Equal(t, code, r.code, "%s: %s", u.args, r.errw)
	require.Empty(t, r.out, u.args)
	require.Equal(t, 1, strings.Count(r.errw, "\n"), "%s: one line: %s", u.args, r.errw)
	require.True(t, strings.HasPrefix(r.errw, name+": "), "%s: %s", u.args, r.errw)
	require.NotContains(t, r.errw, "geheim", u.args)
	for _, text := range says {
		require.Contains(t, r.errw, text, u.args)
	}
}

// TestUsesAreComplete proves that no verb is left out of the tests of faults.
func TestUsesAreComplete(t *testing.T) {
	t.Parallel()
	var requireUse func(cmd *cobra.Command)
	requireUse = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			requireUse(sub)
		}
		path := strings.TrimPrefix(cmd.CommandPath(), name+" ")
		if path == "dev" || path == "version" || path == "help" || path == "plan" || path == "retention" || !cmd.HasParent() {
			return
		}
		require.True(t, slices.ContainsFunc(uses, func(u use) bool { return u.args == path || strings.HasPrefix(u.args, path+" ") }), path)
	}
	requireUse((&cli{out: new(bytes.Buffer), errw: new(bytes.Buffer), output: outputText}).rootCommand())
}

// TestEveryVerbWrongFlag proves that a flag that does not exist is told by every
// verb in one line, with the help to read, and exit code 2.
func TestEveryVerbWrongFlag(t *testing.T) {
	t.Parallel()
	for _, u := range uses {
		u.call(t, noEnv, "plan-x", "--frob").oneLine(t, u, exitUsage, "unknown flag: --frob; see `temporal-deadletter ", " --help`")
	}
}

// TestEveryVerbServersDown proves that every verb that needs a server says in one
// line that it cannot be reached and what names it, with exit code 1, and that those
// that do not need Temporal do their work without.
func TestEveryVerbServersDown(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.move("w")
	plan := b.newPlan("purge", "--type", "SendEmail")
	for _, u := range uses {
		u.call(t, append(slices.Clone(b.environ), noEnv[2]), plan).oneLine(t, u, exitFailed,
			"cannot use Postgres at 127.0.0.1:1/jobs: connection refused: see that it runs and that --database-url or DEADLETTER_DATABASE_URL names it")
		r := u.call(t, append(slices.Clone(b.environ), noEnv[1]), plan)
		switch {
		case u.args == "show w":
			require.Zero(t, r.code, r.errw)
			require.Equal(t, "temporal-deadletter: cannot reach Temporal at 127.0.0.1:1: shown from Postgres alone\n", r.errw)
		case u.temporal:
			r.oneLine(t, u, exitFailed, "cannot reach Temporal at 127.0.0.1:1: see that it runs and that --address or TEMPORAL_ADDRESS names it")
		default:
			require.Zero(t, r.code, "%s: %s", u.args, r.errw)
		}
	}
}

// TestEveryVerbSchema proves that every verb tells of a schema that is missing, or of
// any earlier version, in one line with the mend and exit code 1, that the mend
// works, that a later version is told of in one line and served as the migrations
// promise, and that only migrate refuses it.
func TestEveryVerbSchema(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	newest := b.version("deadletter")
	require.Greater(t, newest, 7)
	for version := range newest {
		schema := fmt.Sprintf("version_%d", version)
		says := fmt.Sprintf("schema %q is at version %d and this build needs %d: run `temporal-deadletter migrate`", schema, version, newest)
		if version == 0 {
			says = fmt.Sprintf("schema %q is not set up", schema)
		} else {
			b.migrateTo(schema, version)
		}
		for i, u := range uses {
			// One check serves all verbs, so each is called with some of the versions only.
			if u.args != "migrate" && (version == 0 || i%(newest-1) == version-1) {
				u.call(t, b.environ, "plan-x", "--schema", schema).oneLine(t, u, exitFailed, says, "run `temporal-deadletter migrate`")
			}
		}
		b.succeed("migrate", "--schema", schema)
		require.Equal(t, newest, b.version(schema))
		require.Equal(t, "No dead letters match.\n", b.succeed("list", "--schema", schema))
	}

	b.move("w")
	plan := b.newPlan("purge", "--type", "SendEmail")
	_, err := b.store.Pool().Exec(t.Context(), `update deadletter.schema_version set version = 1000`)
	require.NoError(t, err)
	for _, u := range uses {
		switch {
		case u.args == "migrate":
			u.call(t, b.environ, plan).oneLine(t, u, exitFailed, "is at version 1000, newer than version", "use a newer build")
		case !u.person:
			r := u.call(t, b.environ, plan)
			require.Equal(t, u.fails, r.code != exitOK, "%s: %s", u.args, r.errw)
			require.Contains(t, r.errw, fmt.Sprintf("schema \"deadletter\" is at version 1000 and this build knows %d: ", newest), u.args)
			require.Equal(t, 1, strings.Count(r.errw, "schema"), u.args)
		}
	}
}

// migrateTo makes a schema as an earlier version did.
func (b *bench) migrateTo(schema string, version int) {
	b.t.Helper()
	ctx := b.t.Context()
	conn, err := pgx.Connect(ctx, b.url)
	require.NoError(b.t, err)
	defer func() { require.NoError(b.t, conn.Close(ctx)) }()
	_, err = conn.Exec(ctx, `create schema `+schema)
	require.NoError(b.t, err)
	migrator, err := migrate.NewMigrator(ctx, conn, schema+".schema_version")
	require.NoError(b.t, err)
	migrator.Data["schema"] = schema
	require.NoError(b.t, migrator.LoadMigrations(os.DirFS("../../dlqstore/migrations")))
	require.NoError(b.t, migrator.MigrateTo(ctx, int32(version)))
}

func (b *bench) version(schema string) (version int) {
	b.t.Helper()
	require.NoError(b.t, b.store.Pool().QueryRow(b.t.Context(), `select version from `+schema+`.schema_version`).Scan(&version))
	return version
}

// TestEveryVerbKeys proves that every verb with a key tells in one line that nothing
// has it, or lists the runs to choose from, with what to do, and exit code 1; and
// that it takes one of them.
func TestEveryVerbKeys(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, u := range uses {
		if u.key {
			u.call(t, b.environ, "").oneLine(t, u, exitFailed, "default/w: not found; see `temporal-deadletter list`, and whether --namespace is the right one")
		}
	}
	for _, u := range uses {
		if strings.Contains(u.args, "PLAN") {
			u.call(t, b.environ, "plan-nosuch").oneLine(t, u, exitFailed,
				`plan "plan-nosuch" of namespace default: not found; see `+"`temporal-deadletter plan list`, and whether --namespace is the right one")
		}
	}
	first := b.move("w")
	b.move("w", func(dl *dlqstore.DeadLetter) { dl.RunID = secondRun })
	for _, u := range uses {
		if u.key {
			u.call(t, b.environ, "").oneLine(t, u, exitFailed, "several runs match, name one: ", first.RunID, secondRun, "; pass it with -r")
			r := u.call(t, b.environ, "", "-r", secondRun)
			require.Zero(t, r.code, "%s: %s", u.args, r.errw)
		}
	}
	require.EqualValues(t, 1, b.count(), "the other run stays")
}
