package dlqstore_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/devstack/devtest"
	"github.com/deadletter-dev/deadletter/job"
)

// roles are those of docs/roles.md in a database of a test.
type roles struct {
	t      *testing.T
	url    string
	prefix string   // of their names
	sql    []string // the page's statements, in its order
	owner  *dlqstore.Store
}

// The places of the page's statements.
const (
	createRoles = iota
	grantRights
	grantPurge
)

// newRoles does what docs/roles.md says: it creates the roles, migrates as the migrator,
// and grants the rights.
func newRoles(t *testing.T) *roles {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "docs", "roles.md"))
	require.NoError(t, err)
	r := &roles{t: t, prefix: "r" + strings.ToLower(rand.Text()) + "_"}
	for _, block := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		// Roles belong to the whole server, which other tests use.
		r.sql = append(r.sql, regexp.MustCompile(`deadletter_(migrator|worker|operator|reader)\b`).ReplaceAllString(block[1], r.prefix+"$1"))
	}
	bystander := devtest.Postgres(t)
	t.Cleanup(func() { // when the roles' database is gone
		execute(t, bystander, fmt.Sprintf(`drop role %[1]smigrator, %[1]sworker, %[1]soperator, %[1]sreader`, r.prefix))
	})
	r.url = devtest.Postgres(t)
	execute(t, r.url, r.sql[createRoles])
	require.NoError(t, dlqstore.Migrate(t.Context(), r.as("migrator")))
	execute(t, r.as("migrator"), r.sql[grantRights])
	r.owner = r.open("migrator")
	return r
}

// as returns the URL at which the database takes a client for the role.
func (r *roles) as(role string) string {
	at, err := url.Parse(r.url)
	require.NoError(r.t, err)
	settings := at.Query()
	settings.Set("role", r.prefix+role)
	at.RawQuery = settings.Encode()
	return at.String()
}

func (r *roles) open(role string) *dlqstore.Store {
	r.t.Helper()
	store, err := dlqstore.Open(r.t.Context(), r.as(role))
	require.NoError(r.t, err)
	r.t.Cleanup(store.Close)
	return store
}

// execute runs statements on a connection of their own.
func execute(t *testing.T, databaseURL, statements string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conn, err := pgx.Connect(ctx, databaseURL)
	require.NoError(t, err)
	_, err = conn.Exec(ctx, statements)
	require.NoError(t, err)
	require.NoError(t, conn.Close(ctx))
}

// verb is what somebody does with the store; key is a dead letter's.
type verb func(ctx context.Context, store *dlqstore.Store, key dlqstore.Key) error

// readingVerbs are all that only read.
var readingVerbs = map[string]verb{
	"list": func(ctx context.Context, s *dlqstore.Store, _ dlqstore.Key) error {
		rows, _, err := s.List(ctx, dlqstore.Filter{Namespace: "default"}, dlqstore.Page{})
		if err == nil && len(rows) == 0 {
			return errors.New("no rows")
		}
		return err
	},
	"count": func(ctx context.Context, s *dlqstore.Store, _ dlqstore.Key) error {
		_, err := s.Count(ctx, dlqstore.Filter{JobType: "SendEmail"})
		return err
	},
	"export": func(ctx context.Context, s *dlqstore.Store, _ dlqstore.Key) error {
		for _, err := range s.Export(ctx, dlqstore.ExportRequest{Filter: dlqstore.Filter{Namespace: "default"}, WithPayloads: true}) {
			if err != nil {
				return err
			}
		}
		return nil
	},
	"groups": func(ctx context.Context, s *dlqstore.Store, _ dlqstore.Key) error {
		_, _, err := s.Groups(ctx, dlqstore.Filter{}, 0)
		return err
	},
	"show": func(ctx context.Context, s *dlqstore.Store, key dlqstore.Key) error {
		_, err := s.Resolve(ctx, key.Namespace, key.WorkflowID, "")
		_, got := s.Get(ctx, key)
		_, attempts := s.Attempts(ctx, key)
		_, replays := s.Replays(ctx, key)
		_, events := s.Events(ctx, key)
		_, revisions := s.Revisions(ctx, key)
		_, notes := s.Notes(ctx, key, "f1")
		_, lineage := s.Lineage(ctx, key)
		return errors.Join(err, got, attempts, replays, events, revisions, notes, lineage)
	},
	"events": func(ctx context.Context, s *dlqstore.Store, _ dlqstore.Key) error {
		_, _, err := s.ListEvents(ctx, dlqstore.EventFilter{Namespace: "default"}, dlqstore.EventPage{})
		return err
	},
	"stats": func(ctx context.Context, s *dlqstore.Store, _ dlqstore.Key) error {
		_, err := s.CountDeadLetters(ctx, "default")
		_, _, by := s.CountBy(ctx, "default", dlqstore.ByReason, 0)
		_, trend := s.Trend(ctx, "default")
		_, pruned := s.PrunedSince(ctx, "default", instant)
		_, spans := s.Spans(ctx, dlqstore.Filter{})
		return errors.Join(err, by, trend, pruned, spans)
	},
	"plan list": func(ctx context.Context, s *dlqstore.Store, _ dlqstore.Key) error {
		plans, err := s.Plans(ctx, "default", 10)
		for _, p := range plans {
			_, got := s.Plan(ctx, "default", p.ID)
			_, items := s.PlanItems(ctx, p.ID, "", 0, 10)
			_, causes := s.PlanCauses(ctx, p.ID, 10)
			_, outcomes := s.Outcomes(ctx, p.ID)
			err = errors.Join(err, got, items, causes, outcomes)
		}
		return err
	},
	"retention list": func(ctx context.Context, s *dlqstore.Store, _ dlqstore.Key) error {
		_, err := s.RetentionPolicies(ctx, "default")
		_, report := s.PruneReports(ctx, "default")
		return errors.Join(err, report)
	},
}

// repairingVerbs are those of an operator who may not remove dead letters.
var repairingVerbs = map[string]verb{
	"note": func(ctx context.Context, s *dlqstore.Store, key dlqstore.Key) error {
		_, err := s.AddNote(ctx, dlqstore.NoteRequest{Key: key, Text: "note", RequestID: rand.Text(), Actor: "ann"})
		return err
	},
	"edit": func(ctx context.Context, s *dlqstore.Store, key dlqstore.Key) error {
		dl, err := s.Get(ctx, key)
		if err != nil {
			return err
		}
		_, _, err = s.Edit(ctx, change(key, dl.Revision, argumentsOf(fmt.Sprintf(`["%s"]`, rand.Text()))))
		return err
	},
	"replay": func(ctx context.Context, s *dlqstore.Store, key dlqstore.Key) error {
		start, err := s.BeginReplay(ctx, dlqstore.ReplayRequest{Key: key, Actor: "ann"})
		if err != nil {
			return err
		}
		return s.ConfirmReplay(ctx, start.Replay.RequestID, "new-run")
	},
	"refused replay": func(ctx context.Context, s *dlqstore.Store, key dlqstore.Key) error {
		start, err := s.BeginReplay(ctx, dlqstore.ReplayRequest{Key: key, Actor: "ann"})
		if err != nil {
			return err
		}
		return s.RefuseReplay(ctx, start.Replay.RequestID, "no")
	},
	"plan": func(ctx context.Context, s *dlqstore.Store, _ dlqstore.Key) error {
		_, err := s.CreatePlan(ctx, dlqstore.PlanRequest{Verb: job.BulkReplay, Filter: dlqstore.Filter{Namespace: "default"}, All: true, Actor: "ann", RequestID: rand.Text()})
		return err
	},
	"retention set": func(ctx context.Context, s *dlqstore.Store, _ dlqstore.Key) error {
		_, err := s.SetRetention(ctx, policy("emails"), true, "ann")
		return err
	},
	"retention remove": func(ctx context.Context, s *dlqstore.Store, _ dlqstore.Key) error {
		if _, err := s.SetRetention(ctx, policy("gone"), true, "ann"); err != nil {
			return err
		}
		return s.RemoveRetention(ctx, "default", "gone", "ann")
	},
	"pin": func(ctx context.Context, s *dlqstore.Store, key dlqstore.Key) error {
		_, err := s.Pin(ctx, key, "ann")
		_, unpin := s.Unpin(ctx, key, "ann")
		return errors.Join(err, unpin)
	},
	"jobs cancel": func(ctx context.Context, s *dlqstore.Store, key dlqstore.Key) error {
		return s.RecordJobVerb(ctx, dlqstore.JobEvent{Key: key, Verb: "cancel", Actor: "ann"}, nil)
	},
}

// removingVerbs remove the dead letter.
var removingVerbs = map[string]verb{
	"purge": func(ctx context.Context, s *dlqstore.Store, key dlqstore.Key) error { return s.Purge(ctx, key, "ann") },
	"purge by filter": func(ctx context.Context, s *dlqstore.Store, key dlqstore.Key) error {
		_, err := s.PurgeMatching(ctx, dlqstore.PurgeRequest{Filter: dlqstore.Filter{Namespace: "default", WorkflowID: key.WorkflowID}, Actor: "ann"})
		return err
	},
}

// requireLacking checks that the error says which right is missing, and that nothing of
// the verb was done.
func (r *roles) requireLacking(err error, name, role, right, table string) {
	r.t.Helper()
	rights, ok := errors.AsType[*dlqstore.RightsError](err)
	require.True(r.t, ok, "%s: %v", name, err)
	require.Equal(r.t, r.prefix+role, rights.Role, name)
	require.Contains(r.t, rights.Rights, right, "%s: %v", name, err)
	require.Equal(r.t, `"deadletter"."`+table+`"`, rights.Object, name)
	require.ErrorContains(r.t, err, fmt.Sprintf(`on "deadletter"."%s" to "%s"`, table, rights.Role))
}

// TestDocumentedRoles proves that the statements of docs/roles.md give each role all that
// the page says, and no more; that nobody but the owner changes tables, that migrate with
// nothing to do works for all, and that tables of later versions need no other grant.
func TestDocumentedRoles(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	worker, operator, reader := r.open("worker"), r.open("operator"), r.open("reader")
	useEverything(t, worker, "plain")
	key := keyOf("w")
	move(t, worker, letter(key))
	for name, verb := range repairingVerbs {
		require.NoError(t, verb(t.Context(), operator, key), name)
		require.NoError(t, verb(t.Context(), worker, key), name)
		lacking, ok := errors.AsType[*dlqstore.RightsError](verb(t.Context(), reader, key))
		require.True(t, ok, name)
		require.Equal(t, r.prefix+"reader", lacking.Role)
	}
	for name, verb := range readingVerbs {
		for _, store := range []*dlqstore.Store{worker, operator, reader} {
			require.NoError(t, verb(t.Context(), store, key), name)
		}
	}
	for name, verb := range removingVerbs {
		r.requireLacking(verb(t.Context(), operator, key), name, "operator", "DELETE", "dead_letters")
		_, refused := errors.AsType[*dlqstore.RightsError](verb(t.Context(), reader, key))
		require.True(t, refused, name)
	}
	_, err := operator.Move(t.Context(), letter(keyOf("forged")), nil, "ann", nil)
	r.requireLacking(err, "move", "operator", "INSERT", "dead_letters")
	_, err = operator.Get(t.Context(), keyOf("forged"))
	require.ErrorIs(t, err, dlqstore.ErrNotFound)

	for _, role := range []string{"migrator", "worker", "operator", "reader"} {
		require.NoError(t, dlqstore.Migrate(t.Context(), r.as(role)), role)
		inspection, err := dlqstore.Inspect(t.Context(), r.as(role))
		require.NoError(t, err, role)
		require.Empty(t, inspection.Behind)
	}

	execute(t, r.as("migrator"), r.sql[grantPurge])
	for name, verb := range removingVerbs {
		again := letter(keyOf(name))
		move(t, worker, again)
		require.NoError(t, verb(t.Context(), operator, again.Key), name)
	}
	requireAgreement(t, r.owner)

	run(t, r.owner, `create table deadletter.later ()`)
	for role, want := range map[string][]string{"worker": {"select", "insert", "update", "delete"}, "operator": {"select", "insert", "update"}, "reader": {"select"}} {
		for _, right := range []string{"select", "insert", "update", "delete", "truncate"} {
			has := scalar[bool](t, r.owner, `select has_table_privilege($1, 'deadletter.later', $2)`, r.prefix+role, right)
			require.Equal(t, strings.Contains(strings.Join(want, " "), right), has, "%s of %s", right, role)
		}
	}
}

// TestEachRightIsNeeded proves that an operator without any one of the documented rights
// is told which it is, that this stops no verb that does not need it, and that the page
// grants none without use.
func TestEachRightIsNeeded(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	execute(t, r.as("migrator"), r.sql[grantPurge])
	key := keyOf("w")
	move(t, r.owner, letter(key))
	operator := r.open("operator")
	verbs := maps.Clone(repairingVerbs)
	maps.Copy(verbs, removingVerbs)
	rows, err := r.owner.Pool().Query(t.Context(), `
		select table_name, privilege_type from information_schema.table_privileges
		where table_schema = 'deadletter' and grantee = $1 and privilege_type <> 'SELECT' order by 1, 2`, r.prefix+"operator")
	require.NoError(t, err)
	granted, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct{ Table, Right string }])
	require.NoError(t, err)
	require.Greater(t, len(granted), 10)
	for _, g := range granted {
		run(t, r.owner, fmt.Sprintf(`revoke %s on deadletter.%s from %soperator`, g.Right, g.Table, r.prefix))
		stopped := 0
		for name, verb := range verbs {
			if _, removes := removingVerbs[name]; removes {
				key = keyOf(name + g.Table + g.Right)
				move(t, r.owner, letter(key))
			}
			if err := verb(t.Context(), operator, key); err != nil {
				r.requireLacking(err, name, "operator", g.Right, g.Table)
				stopped++
			}
			key = keyOf("w")
		}
		require.Positive(t, stopped, "%s on %s is granted and not needed", g.Right, g.Table)
		run(t, r.owner, fmt.Sprintf(`grant %s on deadletter.%s to %soperator`, g.Right, g.Table, r.prefix))
	}
}

// TestWorkerWithoutDelete proves that a worker which may delete nothing does all but
// remove, and is told of the missing right.
func TestWorkerWithoutDelete(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	run(t, r.owner, fmt.Sprintf(`revoke delete on all tables in schema deadletter from %sworker`, r.prefix))
	worker, key := r.open("worker"), keyOf("w")
	move(t, worker, letter(key))
	for name, verb := range repairingVerbs {
		if err := verb(t.Context(), worker, key); name == "retention remove" {
			r.requireLacking(err, name, "worker", "DELETE", "retention_policies")
		} else {
			require.NoError(t, err, name)
		}
	}
	_, err := worker.AdvanceSweep(t.Context(), "default", instant, nil)
	require.NoError(t, err)
	require.NoError(t, worker.Settle(t.Context(), dlqstore.SettleRequest{Key: key, FirstRunID: "new-run", Outcome: job.OutcomeSucceeded, Actor: "worker"}))
	r.requireLacking(worker.Compact(t.Context()), "compact", "worker", "DELETE", "dead_letter_counts")
	require.NoError(t, worker.ForgetPlans(t.Context()), "there is none that is old enough")
	run(t, r.owner, `update deadletter.plans set finished_at = now() - $1 * interval '1 second'`, 2*dlqstore.PlanRetention/time.Second)
	r.requireLacking(worker.ForgetPlans(t.Context()), "forget", "worker", "DELETE", "plan_items")
	aged(t, r.owner, "old", 48*time.Hour)
	_, err = worker.Prune(t.Context(), dlqstore.PruneRequest{Namespace: "default", Actor: "retention"})
	r.requireLacking(err, "prune", "worker", "DELETE", "dead_letters")
	require.Equal(t, []string{"old", "w"}, left(t, worker))
	requireAgreement(t, worker)
}

// TestUpgradeRights proves that only the owner upgrades a schema, and that anybody else
// is told who that is.
func TestUpgradeRights(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	run(t, r.owner, `update deadletter.schema_version set version = version - 1`)
	for _, role := range []string{"worker", "operator", "reader"} {
		err := dlqstore.Migrate(t.Context(), r.as(role))
		require.ErrorContains(t, err, fmt.Sprintf("role %q may not upgrade schema %q: run migrate as its owner %q", r.prefix+role, "deadletter", r.prefix+"migrator"))
	}
	require.NoError(t, dlqstore.Migrate(t.Context(), r.as("migrator")))
	err := dlqstore.Migrate(t.Context(), r.as("worker"), dlqstore.WithSchema("other"))
	require.ErrorContains(t, err, fmt.Sprintf(`grant create on database %s to %q`, pgx.Identifier{scalar[string](t, r.owner, `select current_database()`)}.Sanitize(), r.prefix+"worker"))
}
