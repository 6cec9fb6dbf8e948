package dlqstore_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/devstack/devtest"
)

// encodedDatabase returns the URL of an empty database of the encoding.
func encodedDatabase(t testing.TB, encoding string) string {
	t.Helper()
	url := devtest.Postgres(t)
	config, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	name := config.Database + "_" + strings.ToLower(encoding)
	exec := func(statement string) {
		ctx := context.WithoutCancel(t.Context())
		conn, err := pgx.Connect(ctx, url)
		require.NoError(t, err)
		_, err = conn.Exec(ctx, statement)
		require.NoError(t, err)
		require.NoError(t, conn.Close(ctx))
	}
	exec(fmt.Sprintf(`create database %s template template0 encoding '%s' locale 'C'`, name, encoding))
	t.Cleanup(func() { exec(`drop database ` + name + ` with (force)`) })
	return strings.Replace(url, config.Database, name, 1)
}

// TestEncodings proves that in a database of any encoding a job with any text in any
// place becomes a dead letter, once, that every verb works on it, and that the same
// text finds it again.
func TestEncodings(t *testing.T) {
	t.Parallel()
	for _, encoding := range []string{"SQL_ASCII", "LATIN1", "WIN1252", "EUC_JP", "UTF8"} {
		t.Run(encoding, func(t *testing.T) {
			t.Parallel()
			store := openAt(t, encodedDatabase(t, encoding))
			for _, text := range []string{"plain", "café", "日本語", "line\u2028separator", "😀 and é", `literal \u65e5`, strings.Repeat("語", 320)} {
				useEverything(t, store, text)
			}
		})
	}
}

// TestStoredTexts proves what a database of each encoding holds of a text, in columns,
// jsonb and the readable copy, in the hook's and in other clients' eyes too.
func TestStoredTexts(t *testing.T) {
	t.Parallel()
	const japanese, latin = "日本😀", "café"
	for encoding, want := range map[string]struct {
		japanese, latin       string // of a text
		escapedCopy, rawCopy  string // of the arguments; empty for null
		escapedLatin          string
		escapeInTags, message string
	}{
		"UTF8":      {japanese, latin, `["日"]`, `["日"]`, `["é"]`, "\u2028", strings.Repeat("é", 2000)},
		"SQL_ASCII": {japanese, latin, "", `["日"]`, "", "\u2028", strings.Repeat("é", 2000)},
		"LATIN1":    {`\u65e5\u672c\ud83d\ude00`, latin, "", "", `["é"]`, `\u2028`, strings.Repeat("é", 2000)},
		"EUC_JP":    {`\u65e5\u672c\ud83d\ude00`, `caf\u00e9`, `["日"]`, `["日"]`, `["é"]`, `\u2028`, strings.Repeat(`\u00e9`, 2000)[:2000]},
	} {
		t.Run(encoding, func(t *testing.T) {
			t.Parallel()
			url := encodedDatabase(t, encoding)
			store := openAt(t, url)
			inspection, err := dlqstore.Inspect(t.Context(), url)
			require.NoError(t, err)
			require.Equal(t, encoding, inspection.Encoding)

			for i, test := range []struct{ payload, copied string }{
				{`["\u65e5"]`, want.escapedCopy}, {`["日"]`, want.rawCopy}, {`["\u00e9"]`, want.escapedLatin}, {`["a\u0041"]`, `["aA"]`},
			} {
				dl := letter(keyOf(fmt.Sprint(latin, i)))
				dl.ErrorMessage, dl.ErrorType, dl.JobType = strings.Repeat("é", 2500), japanese, latin
				dl.Tags = map[string]string{"tag": "\u2028"}
				dl.PayloadJSON = json.RawMessage(test.payload)
				moved, err := store.Move(t.Context(), dl, nil, "worker", func(ctx context.Context, tx pgx.Tx, stored *dlqstore.DeadLetter) error {
					require.Equal(t, test.copied == "", stored.PayloadJSON == nil)
					var column string
					return tx.QueryRow(ctx, `select job_type from deadletter.dead_letters where job_type = $1 limit 1`, want.latin).Scan(&column)
				})
				require.NoError(t, err, test.payload)
				require.True(t, moved)
				got, err := store.Get(t.Context(), dlqstore.Key{Namespace: "default", WorkflowID: fmt.Sprint(want.latin, i), RunID: fmt.Sprint(want.latin, i, "-run")})
				require.NoError(t, err)
				require.Equal(t, test.copied, string(got.PayloadJSON))
				require.Equal(t, dl.Payloads, got.Payloads)
				require.Equal(t, want.japanese, got.ErrorType)
				require.Equal(t, want.latin, got.JobType)
				require.Equal(t, map[string]string{"tag": want.escapeInTags}, got.Tags)
			}
			groups, _, err := store.Groups(t.Context(), dlqstore.Filter{}, 0)
			require.NoError(t, err)
			require.Equal(t, want.message, groups[0].ErrorMessage, "cut between characters")
			planned := plan(t, store, dlqstore.PlanRequest{Verb: "purge", All: true})
			require.Len(t, planned.Report.Sample, 4)
			require.True(t, strings.HasPrefix(want.message, planned.Report.Sample[0].ErrorMessage))
			require.Len(t, []rune(planned.Report.Sample[0].ErrorMessage), 200)

			// A client of another kind sees the same.
			conn, err := pgx.Connect(t.Context(), url)
			require.NoError(t, err)
			defer func() { _ = conn.Close(t.Context()) }()
			_, err = conn.Exec(t.Context(), `set client_encoding = 'UTF8'`)
			require.NoError(t, err)
			var seen string
			require.NoError(t, conn.QueryRow(t.Context(), `select distinct job_type from deadletter.dead_letters`).Scan(&seen))
			require.Equal(t, want.latin, seen)
		})
	}
}

// TestEncodingOfCallersTransaction proves that the verbs in a caller's transaction make
// texts fit too.
func TestEncodingOfCallersTransaction(t *testing.T) {
	t.Parallel()
	store := openAt(t, encodedDatabase(t, "LATIN1"))
	key := keyOf("日")
	require.NoError(t, pgx.BeginFunc(t.Context(), store.Pool(), func(tx pgx.Tx) error {
		moved, err := store.MoveTx(t.Context(), tx, letter(key), attempts(1), "日", nil)
		require.True(t, moved)
		if err != nil {
			return err
		}
		_, err = store.AddNoteTx(t.Context(), tx, dlqstore.NoteRequest{Key: key, Text: "日", Actor: "日"})
		return err
	}))
	notes, err := store.Notes(t.Context(), key, "")
	require.NoError(t, err)
	require.Equal(t, `\u65e5`, notes[0].Text)
}

// TestEncodedAttempts proves that the errors of attempts are kept as whole as the last
// one, and that a job whose id the database cannot hold is left for people: under the id
// that is stored no try would find it.
func TestEncodedAttempts(t *testing.T) {
	t.Parallel()
	store := openAt(t, encodedDatabase(t, "LATIN1"))
	tried := attempts(1)
	tried[0].ErrorMessage = strings.Repeat("語", 300)
	dl := letter(keyOf("long"))
	moved, err := store.Move(t.Context(), dl, tried, "worker", nil)
	require.NoError(t, err)
	require.True(t, moved)
	kept, err := store.Attempts(t.Context(), dl.Key)
	require.NoError(t, err)
	require.Equal(t, strings.Repeat(`\u8a9e`, 300), kept[0].ErrorMessage)

	for _, id := range []string{"日", "é"} {
		require.NoError(t, store.LeaveJob(t.Context(), keyOf(id), time.Now(), "why"))
	}
	left, err := store.LeftJobs(t.Context(), "default", "")
	require.NoError(t, err)
	require.Len(t, left, 2)
	for _, l := range left {
		require.Equal(t, l.WorkflowID == "é", l.NextAt != nil, l.WorkflowID)
	}
}

// TestRefuseNUL proves that a cause with a character that jsonb cannot hold does not keep
// the event of a refusal from being written.
func TestRefuseNUL(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	asked := dlqstore.Asked{Verb: dlqstore.VerbNote, Key: keyOf("a"), Actor: "ann", RequestID: "r"}
	require.NoError(t, store.Refuse(t.Context(), asked, `{"cause": "encoding a\u0000b"}`, false))
	events, _, err := store.ListEvents(t.Context(), dlqstore.EventFilter{}, dlqstore.EventPage{})
	require.NoError(t, err)
	require.Len(t, events, 1)
	require.JSONEq(t, `{"cause": "encoding a\ufffdb"}`, string(events[0].Detail))
}
