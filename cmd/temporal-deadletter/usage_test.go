package main

import (
	"bytes"
	"context"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWrongUsage proves that each fault of the command line exits 2 with one
// line that names it, before any server is asked.
func TestWrongUsage(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args string
		says string
	}{
		{"", "name a verb: apply, dev, edit, events, export, groups, jobs, list, migrate, note, pin, plan, purge, reconcile, replay, retention, show, stats, unpin, version, watch"},
		{"lisst", `there is no verb "lisst"; did you mean list?`},
		{"--frob list", "unknown flag: --frob"},
		{"list --frob", "unknown flag: --frob; see `temporal-deadletter list --help`"},
		{"list extra", `list takes no argument, and "extra" is one`},
		{"stats extra", "takes no argument"},
		{"-o yaml list", `"yaml" is none of text, json, jsonl`},
		{"list --limit 0", "--limit: 0 is not between 1 and 1000"},
		{"list --limit 1001", "not between 1 and 1000"},
		{"list --limit many", "invalid argument"},
		{"list --reason nonsense", `--reason: "nonsense" is none of max_retries_exceeded`},
		{"list --reason dead_letter", "is none of"},
		{"list --type=", "--type has an empty value"},
		{"list --tag tenant", `--tag: "tenant" does not look like key=value`},
		{"list --tag =x", "does not look like key=value"},
		{"list --tag a=1 --tag a=2", `--tag: a cannot be both "1" and "2"`},
		{"list --dead-after yesterday", `--dead-after: "yesterday" is not a time`},
		{"export --raw", "--raw is for --format csv"},
		{"list --dead-before -2h", "is not a time"},
		{"list --replayed=perhaps", "invalid argument"},
		{"list --enqueued-after soon", `--enqueued-after: "soon" is not a time`},
		{"list --min-attempts -1", "--min-attempts: -1 is not between 0 and 2147483647"},
		{"list --generation 3000000000", "--generation: 3000000000 is not between"},
		{"list --min-attempts 3 --max-attempts 2", "--min-attempts 3 is above --max-attempts 2"},
		{"list --where customer.id=42", `--where: "customer.id=42", character 1: a path begins with args[N]`},
		{"list --where=", `--where: "", character 1: a path begins`},
		{"list" + strings.Repeat(" --where args[0]=1", 17), "--where: 17 conditions are given, and 16 is the most"},
		{"groups --limit 0", "--limit: 0 is not between 1 and 1000"},
		{"groups --where args[0]", "= and a value are missing"},
		{"export --format xml", `--format: "xml" is neither jsonl nor csv`},
		{"export -o json", "export writes one object per line: pass -o jsonl"},
		{"export -o jsonl --format csv", "either -o jsonl or --format csv, not both"},
		{"export --format csv --with-payloads", "--with-payloads is for jsonl"},
		{"stats --by moon", `--by: "moon" is none of type, queue, reason`},
		{"stats --by=", `--by: "" is none of`},
		{"stats --by type --limit 0", "--limit: 0 is not between"},
		{"stats --by type --hourly", "stats takes one of --by, --hourly and --watch"},
		{"stats --watch", "watch redraws a terminal, and the output is none: use `temporal-deadletter stats`"},
		{"watch", "watch redraws a terminal, and the output is none"},
		{"watch -o json", "watch is for people: use `temporal-deadletter stats -o json`"},
		{"watch --interval 1ms", "--interval: 1ms is below 100ms"},
		{"show", "name the job: temporal-deadletter show -w WORKFLOW_ID"},
		{"show -w", "flag needs an argument"},
		{"show a b", "show takes one workflow id, not 2"},
		{"show a -w b", `both "b" and "a" are given`},
		{"replay", "name the job: temporal-deadletter replay -w WORKFLOW_ID"},
		{"purge", "say what to purge"},
		{"purge --yes", "say what to purge"},
		{"purge --type= --reason timeout --yes", "--type has an empty value"},
		{"purge -w a --all --yes", "either -w or a filter, not both"},
		{"purge -w a --reason timeout --yes", "either -w or a filter, not both"},
		{"purge -r run --all --yes", "pass -w too"},
		{"purge --all --limit 0 --yes", "--limit: 0 is not a positive number"},
		{"purge a --yes", "takes no argument"},
		{"purge --all", "there is no terminal to ask on: pass --yes"},
		{"purge -w a", "there is no terminal to ask on: pass --yes"},
		{"edit", "name the job: temporal-deadletter edit -w WORKFLOW_ID"},
		{"edit a", "say what to change: --merge-patch, --json-patch"},
		{"edit a --queue=", "--queue has an empty value"},
		{"edit a --args=[] --merge-patch={}", "give one of them"},
		{"edit a --args=[] --editor", "give one of them"},
		{"edit a --arg 1", `--arg: "1" does not look like N=JSON`},
		{"edit a --arg x=1", "does not look like N=JSON"},
		{"edit a --arg 0=1 --arg 0=2", "--arg: argument 0 is given twice"},
		{"edit a --arg 8=1", "there is no place 8"},
		{"edit a --args @/nonexistent/args.json", "--args: open /nonexistent/args.json"},
		{"edit a --tag x", `--tag: "x" does not look like key=value`},
		{"edit a --tag x=1 --untag x", `--untag: "x" is no tag to remove here`},
		{"edit a --queue q --revision 0", "--revision: 0 is no revision"},
		{"edit a --revert 0", "--revert: 0 is no revision"},
		{"edit a --revert 2 --to-original", "--to-original is --revert 1"},
		{"edit a --to-original --dry-run", "leave out --replay, --revert and --to-original"},
		{"edit a --editor", "--editor needs a terminal, and there is none"},
		{"note -w a", "note takes one text, and 0 are given"},
		{"note -w a two words", "and 2 are given: put it in quotes"},
		{"note text", "say what the note is on"},
		{"note text -w a --fingerprint f", "one of them"},
		{"note text -r run --fingerprint f", "pass -w too"},
		{"events extra", "takes no argument"},
		{"events --actor=", "--actor has an empty value"},
		{"events --limit 0", "--limit: 0 is not between 1 and 1000"},
		{"events --since yesterday", `--since: "yesterday" is not a time`},
		{"jobs --limit 0", "--limit: 0 is not between 1 and 1000"},
		{"jobs --scan 20001", "--scan: 20001 is not between 1 and 20000"},
		{"jobs --min-attempt 0", "--min-attempt: 0 is not a positive number"},
		{"jobs --type=", "--type has an empty value"},
		{"jobs revive", `jobs takes no argument, and "revive" is one`},
		{"jobs retry-now", "name the job: temporal-deadletter jobs retry-now -w WORKFLOW_ID"},
		{"jobs cancel -w a", "there is no terminal to ask on: pass --yes"},
		{"jobs cancel --yes", "name the job: temporal-deadletter jobs cancel -w WORKFLOW_ID"},
		{"jobs --ui-url localhost:8233", "wrong setting --ui-url or DEADLETTER_UI_URL: it must look like http://localhost:8233"},
		{"pin", "name the job: temporal-deadletter pin -w WORKFLOW_ID"},
		{"unpin a b", "unpin takes one workflow id, not 2"},
		{"retention", "say what to do: list, remove, run, set"},
		{"retention prune", `retention takes no argument, and "prune" is one`},
		{"retention set --keep 30d --all", "name one policy: temporal-deadletter retention set NAME"},
		{"retention set a b --keep 30d --all", "name one policy"},
		{"retention set a --all", "say what to keep: --keep 30d, --keep-last 10000, or both"},
		{"retention set a --keep 30d", "the policy selects everything"},
		{"retention set a --keep 30d --all --type T", "--all is for a policy without"},
		{"retention set a --keep 30d --type=", "--type has an empty value"},
		{"retention set a --keep 30d --reason bored", `--reason: "bored" is none of`},
		{"retention set a --keep 30d --tag tenant", `--tag: "tenant" does not look like key=value`},
		{"retention set a --keep 30 --all", `--keep: "30" is not a length of time such as 2w, 30d, 12h or 1d12h`},
		{"retention set a --keep d --all", "is not a length of time"},
		{"retention set a --keep -1h --all", "is not a length of time"},
		{"retention set a --keep 1d-1h --all", "is not a length of time"},
		{"retention set a --keep 99999d --all", "is not a length of time"},
		{"retention set a --keep 0d --all", "is not a length of time"},
		{"retention set a --keep 1us --all", "1ms at least"},
		{"retention set a --keep-last 0 --all", "--keep-last: 0 is not a positive number"},
		{"retention set a --keep 30d --all", "there is no terminal to ask on: pass --yes"},
		{"retention remove", "name one policy: temporal-deadletter retention remove NAME"},
		{"retention run", "there is no terminal to ask on: pass --yes"},
		{"retention run now", `run takes no argument, and "now" is one`},
		{"retention list x", "list takes no argument"},
		{"dev -o json", "dev is for people"},
		{"dev --ui-port 99999", "99999 is no port"},
		{"dev --ui-port 8233", "--ui-port is for a Temporal that dev starts, and 127.0.0.1:1 is named"},
		{"dev --database-url nonsense", "wrong setting --database-url or DEADLETTER_DATABASE_URL"},
		{"list --profile nowhere", "profile nowhere"},
		{"list --database-url nonsense", "wrong setting --database-url or DEADLETTER_DATABASE_URL: open the dead letter store: the database URL is not valid"},
		{"migrate --database-url postgres://somebody:geheim@%zz", "it must look like postgres://user@host:5432/database"},
	} {
		t.Run(test.args, func(t *testing.T) {
			t.Parallel()
			r := call(t, noEnv, strings.NewReader("y\n"), strings.Fields(test.args)...)
			require.Equal(t, exitUsage, r.code, r.errw)
			require.Empty(t, r.out)
			require.Contains(t, r.errw, test.says)
			require.True(t, strings.HasPrefix(r.errw, "temporal-deadletter: "), r.errw)
			require.Equal(t, 1, strings.Count(r.errw, "\n"), "one line: %s", r.errw)
			require.NotContains(t, r.errw, "geheim")
		})
	}
}

// TestNoDatabaseNamed proves that a missing database is a matter of the command
// line, which says how to name one.
func TestNoDatabaseNamed(t *testing.T) {
	t.Parallel()
	environ := slices.DeleteFunc(slices.Clone(noEnv), func(s string) bool { return strings.HasPrefix(s, "DEADLETTER_") })
	for _, verb := range []string{"list", "stats", "migrate"} {
		r := call(t, environ, nil, verb)
		require.Equal(t, exitUsage, r.code)
		require.Equal(t, "temporal-deadletter: no database is named: pass --database-url or set DEADLETTER_DATABASE_URL (or DATABASE_URL)\n", r.errw)
	}
}

// TestHelp proves that the help of every verb works without a server and shows
// an example.
func TestHelp(t *testing.T) {
	t.Parallel()
	root := (&cli{out: new(bytes.Buffer), errw: new(bytes.Buffer), output: outputText}).rootCommand()
	for _, verb := range root.Commands() {
		if !verb.IsAvailableCommand() {
			continue
		}
		r := call(t, noEnv, nil, verb.Name(), "--help")
		require.Zero(t, r.code)
		require.Contains(t, r.out, "Examples:\n  temporal-deadletter "+verb.Name())
	}
}

// TestVersion proves that the version needs no server, in each form.
func TestVersion(t *testing.T) {
	t.Parallel()
	require.Regexp(t, `^temporal-deadletter \S+ \(go1\..+\)\n$`, call(t, noEnv, nil, "version").out)
	require.Regexp(t, `^\{"version":".+","go":"go1\..+"\}\n$`, call(t, noEnv, nil, "version", "-o", "jsonl").out)
	require.Equal(t, call(t, noEnv, nil, "version"), call(t, noEnv, nil, "--version"))
}

// TestServersDown proves that an unreachable server exits 1 with one line that
// names it and the setting to mend, and never the password.
func TestServersDown(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	noPostgres := append(slices.Clone(b.environ), noEnv[2])
	noTemporal := append(slices.Clone(b.environ), noEnv[1])
	wrongPassword := append(slices.Clone(b.environ), "DEADLETTER_DATABASE_URL="+withPassword(t, b.url, "geheim"))
	noNamespace := append(slices.Clone(b.environ), "TEMPORAL_NAMESPACE=nobodys")
	for _, test := range []struct {
		name    string
		environ []string
		args    string
		says    []string
	}{
		{"list", noPostgres, "list", []string{"cannot use Postgres at 127.0.0.1:1/jobs", "--database-url or DEADLETTER_DATABASE_URL"}},
		{"groups", noPostgres, "groups", []string{"cannot use Postgres at 127.0.0.1:1/jobs"}},
		{"export", noPostgres, "export", []string{"cannot use Postgres at 127.0.0.1:1/jobs"}},
		{"stats by", noPostgres, "stats --by type", []string{"cannot use Postgres at 127.0.0.1:1/jobs"}},
		{"show", noPostgres, "show -w a", []string{"cannot use Postgres at 127.0.0.1:1/jobs"}},
		{"purge", noPostgres, "purge --all --yes", []string{"cannot use Postgres at 127.0.0.1:1/jobs"}},
		{"edit", noPostgres, "edit a --queue q", []string{"cannot use Postgres at 127.0.0.1:1/jobs"}},
		{"note", noPostgres, "note text -w a", []string{"cannot use Postgres at 127.0.0.1:1/jobs"}},
		{"events", noPostgres, "events", []string{"cannot use Postgres at 127.0.0.1:1/jobs"}},
		{"edit and replay", noTemporal, "edit a --queue q --replay", []string{"cannot reach Temporal at 127.0.0.1:1"}},
		{"retention", noPostgres, "retention run --yes", []string{"cannot use Postgres at 127.0.0.1:1/jobs"}},
		{"pin", noPostgres, "pin a", []string{"cannot use Postgres at 127.0.0.1:1/jobs"}},
		{"jobs", noTemporal, "jobs", []string{"cannot reach Temporal at 127.0.0.1:1"}},
		{"retry-now", noTemporal, "jobs retry-now a", []string{"cannot reach Temporal at 127.0.0.1:1"}},
		{"migrate", noPostgres, "migrate", []string{"cannot use Postgres at 127.0.0.1:1/jobs"}},
		{"twice", noPostgres, "list --database-url postgres://somebody:geheim@localhost:1/jobs", []string{"cannot use Postgres at localhost:1/jobs: connection refused: see"}},
		{"password", wrongPassword, "list", []string{"refuses the user or the password of --database-url or DEADLETTER_DATABASE_URL"}},
		{"stats", noTemporal, "stats", []string{"cannot reach Temporal at 127.0.0.1:1", "--address or TEMPORAL_ADDRESS"}},
		{"show without Temporal", noTemporal, "show -w a", []string{"cannot reach Temporal at 127.0.0.1:1"}},
		{"replay", noTemporal, "replay -w a", []string{"cannot reach Temporal at 127.0.0.1:1"}},
		{"namespace", noNamespace, "stats", []string{`namespace "nobodys" is not on the Temporal server`, "--namespace"}},
		{"schema", b.environ, "list --schema nobodys", []string{`schema "nobodys" is not set up`, "run `temporal-deadletter migrate`"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := call(t, test.environ, nil, strings.Fields(test.args)...)
			require.Equal(t, exitFailed, r.code, r.errw)
			require.Empty(t, r.out)
			for _, text := range test.says {
				require.Contains(t, r.errw, text)
			}
			require.Equal(t, 1, strings.Count(r.errw, "\n"), "one line: %s", r.errw)
			require.NotContains(t, r.errw, "geheim")
			require.LessOrEqual(t, strings.Count(r.errw, "connection refused"), 1, r.errw)
		})
	}
}

func withPassword(t *testing.T, database, password string) string {
	t.Helper()
	parsed, err := url.Parse(database)
	require.NoError(t, err)
	parsed.User = url.UserPassword(parsed.User.Username(), password)
	return parsed.String()
}

// TestMigrate proves that migrate makes what the other verbs miss, may be run
// again, and says which it was.
func TestMigrate(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	require.Equal(t, exitFailed, b.call("list", "--schema", "other").code)
	for _, state := range []string{"was created", "is up to date", "is up to date"} {
		require.Regexp(t, `^Schema other of 127\.0\.0\.1:\d+/deadletter_test_\w+ `+state+`\.\n$`, b.succeed("migrate", "--schema", "other"))
	}
	require.Equal(t, "No dead letters match.\n", b.succeed("list", "--schema", "other"))
}

// TestHelpOfFlags proves that the help says of flags what is so, and keeps to lines
// that a person reads.
func TestHelpOfFlags(t *testing.T) {
	t.Parallel()
	for args, says := range map[string]string{
		"apply":          "dev and apply use it",
		"jobs retry-now": "its run id (default: that of the current run)",
		"jobs cancel":    "its run id (default: that of the current run)",
		"show":           "its run id; needed when several runs of the id are dead letters",
		"list":           "why it is dead, such as timeout or fatal_error; --reason help lists all",
		"retention set":  "only this reason, such as timeout or fatal_error; --reason help lists all",
	} {
		r := call(t, noEnv, nil, append(strings.Fields(args), "--help")...)
		require.Zero(t, r.code)
		require.Contains(t, r.out, says, args)
	}
	r := call(t, noEnv, nil, "list", "--reason", "help")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.errw, reasons())
}

// TestMigrateSequences proves that migrate fails where the numbering of a table is behind
// its rows, names the mend, and mends it when it is told to.
func TestMigrateSequences(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.move("w")
	_, err := b.store.Pool().Exec(t.Context(), `alter table deadletter.events alter column id restart`)
	require.NoError(t, err)
	r := b.call("migrate")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.errw, "the next id of table events is 1, and there is a row with 1: inserts will fail; run `temporal-deadletter migrate --repair-sequences`")
	require.Contains(t, b.succeed("migrate", "--repair-sequences"), "is up to date.\nThe next id of table events is 2, and was 1.\n")
	require.NotContains(t, b.succeed("migrate", "--repair-sequences"), "The next")
	b.move("w2")
}

// TestMigrateEncoding proves that migrate warns of an encoding that is not UTF8, and works.
func TestMigrateEncoding(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	require.NotContains(t, b.call("migrate").errw, "encoding")
	name := b.store.Pool().Config().ConnConfig.Database
	_, err := b.store.Pool().Exec(t.Context(), `create database `+name+`_ascii template template0 encoding 'SQL_ASCII' locale 'C'`)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := b.store.Pool().Exec(context.WithoutCancel(t.Context()), `drop database `+name+`_ascii with (force)`)
		require.NoError(t, err)
	})
	r := b.call("migrate", "--database-url", strings.Replace(b.url, name, name+"_ascii", 1))
	require.Zero(t, r.code, r.errw)
	require.Contains(t, r.out, "was created.\n")
	require.Equal(t, 1, strings.Count(r.errw, "\n"))
	require.Contains(t, r.errw, "the database's encoding is SQL_ASCII")
}
