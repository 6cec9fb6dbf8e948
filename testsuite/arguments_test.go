package testsuite_test

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"google.golang.org/protobuf/proto"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// TestArguments proves that arguments of every number and kind reach the handler,
// the dead letter and the replay as they were sent.
func TestArguments(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	raw := func(encoding, data string) converter.RawValue {
		return converter.NewRawValue(&commonpb.Payload{
			Metadata: map[string][]byte{converter.MetadataEncoding: []byte(encoding), "extra": []byte("kept")}, Data: []byte(data),
		})
	}
	digits := raw(converter.MetadataEncodingJSON, `{"id": 9007199254740993, "price": 1.10, "big": 123456789012345678901234567890}`)
	eight := []any{1, 2, 3, 4, 5, 6, 7, 8}
	large := strings.Repeat("x", 1_900_000)

	cases := map[string]struct {
		args []any
		json string // "" where it is not readable
	}{
		"none":       {nil, `[]`},
		"one struct": {[]any{emailArgs{To: "a@b.c", Size: "1"}}, `[{"to":"a@b.c","size":1}]`},
		"three":      {[]any{"a", 2, true}, `["a",2,true]`},
		"eight":      {eight, `[1,2,3,4,5,6,7,8]`},
		"null":       {[]any{nil, "after"}, `[null,"after"]`},
		"protobuf":   {[]any{&commonpb.WorkflowType{Name: "proto"}}, `[{"name":"proto"}]`},
		"binary":     {[]any{[]byte{0, 255}}, ""},
		"odd":        {[]any{raw("binary/odd", "\x00\x01")}, ""},
		"digits":     {[]any{digits}, string(digits.Payload().GetData())},
		"unholdable": {[]any{"nul \x00 inside"}, ""},
		"large":      {[]any{large}, `["` + large + `"]`},
	}
	// The handler of each case takes what there is, raw.
	var got atomic.Pointer[[]*commonpb.Payload]
	w.startJobs(handlers{"Fail": func(_ context.Context, a1, a2, a3, a4, a5, a6, a7, a8 converter.RawValue) error {
		var payloads []*commonpb.Payload
		for _, arg := range []converter.RawValue{a1, a2, a3, a4, a5, a6, a7, a8} {
			if arg.Payload() != nil {
				payloads = append(payloads, arg.Payload())
			}
		}
		got.Store(&payloads)
		return errors.New("boom")
	}})
	w.startDLQ(nil)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			run := w.enqueue(deadletter.Job{Type: "Fail", Policy: quick(1)}, c.args...)
			require.ErrorContains(t, w.wait(run, nil), "max_retries_exceeded")
			sent := &commonpb.Payloads{Payloads: w.history(run)[0].GetWorkflowExecutionStartedEventAttributes().GetInput().GetPayloads()[1:]}
			require.Len(t, sent.GetPayloads(), len(c.args))
			require.True(t, proto.Equal(sent, &commonpb.Payloads{Payloads: *got.Load()}), "the handler got something else")

			dl := w.dead(run)
			var stored commonpb.Payloads
			require.NoError(t, proto.Unmarshal(dl.Payloads, &stored))
			require.True(t, proto.Equal(sent, &stored), "the dead letter keeps something else")
			if c.json == "" {
				require.Nil(t, dl.PayloadJSON)
			} else if name == "digits" {
				for _, number := range []string{"9007199254740993", "1.10", "123456789012345678901234567890"} {
					require.Contains(t, string(dl.PayloadJSON), number)
				}
			} else {
				require.JSONEq(t, c.json, string(dl.PayloadJSON))
			}

			got.Store(nil)
			again := w.replay(run, "")
			require.Error(t, w.wait(again, nil))
			require.True(t, proto.Equal(sent, &commonpb.Payloads{Payloads: *got.Load()}), "the replay's handler got something else")
		})
	}
}

// TestUnholdableErrors proves that an error which the wire or Postgres cannot hold
// is retried like any other and leaves a dead letter whose head and tail can be
// read.
func TestUnholdableErrors(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var calls atomic.Int32
	nasty := "head \x00 \xff " + strings.Repeat("€", 1<<20) + " tail"
	w.startJobs(handlers{
		"Error": func(context.Context) error { calls.Add(1); return errors.New(nasty) },
		"Panic": func(context.Context) error { calls.Add(1); panic(nasty) },
		"Typed": func(context.Context) error {
			calls.Add(1)
			return temporal.NewApplicationError(nasty, "Typed", "details")
		},
	})
	w.startDLQ(nil)
	for _, jobType := range []string{"Error", "Panic", "Typed"} {
		t.Run(jobType, func(t *testing.T) {
			calls.Store(0)
			run := w.enqueue(deadletter.Job{Type: jobType, Policy: quick(2)})
			require.ErrorContains(t, w.wait(run, nil), "dead-lettered: max_retries_exceeded after 2 attempts")
			require.EqualValues(t, 2, calls.Load())
			dl := w.dead(run)
			require.Contains(t, dl.ErrorMessage, "head ␀")
			require.Contains(t, dl.ErrorMessage, " tail")
			require.Contains(t, dl.ErrorMessage, "bytes left out")
			require.LessOrEqual(t, len(dl.ErrorMessage), dlqstore.MaxErrorMessage)
			require.True(t, utf8.ValidString(dl.ErrorMessage))
		})
	}
}

// encryption is a codec as teams use it: AES-GCM with a fresh nonce each time.
type encryption struct{ aead cipher.AEAD }

func newEncryption(t *testing.T) encryption {
	t.Helper()
	block, err := aes.NewCipher([]byte("0123456789abcdef"))
	require.NoError(t, err)
	aead, err := cipher.NewGCM(block)
	require.NoError(t, err)
	return encryption{aead}
}

func (e encryption) Encode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	out := make([]*commonpb.Payload, len(payloads))
	for i, p := range payloads {
		plain, err := proto.Marshal(p)
		if err != nil {
			return nil, err
		}
		nonce := make([]byte, e.aead.NonceSize())
		_, _ = rand.Read(nonce)
		out[i] = &commonpb.Payload{
			Metadata: map[string][]byte{converter.MetadataEncoding: []byte("binary/encrypted")},
			Data:     e.aead.Seal(nonce, nonce, plain, nil),
		}
	}
	return out, nil
}

func (e encryption) Decode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	out := make([]*commonpb.Payload, len(payloads))
	for i, p := range payloads {
		if string(p.GetMetadata()[converter.MetadataEncoding]) != "binary/encrypted" {
			out[i] = p
			continue
		}
		size := e.aead.NonceSize()
		plain, err := e.aead.Open(nil, p.GetData()[:size], p.GetData()[size:], nil)
		if err != nil {
			return nil, err
		}
		out[i] = &commonpb.Payload{}
		if err := proto.Unmarshal(plain, out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// TestEncrypted proves that a team's codec stays a secret of its clients and job
// workers: the operator's side has no key, dead-letters and replays all the same,
// and no plaintext is anywhere in Postgres. A dead-letter worker that does have
// the codec works as well.
func TestEncrypted(t *testing.T) {
	t.Parallel()
	for _, dlqHasKey := range []bool{false, true} {
		t.Run(fmt.Sprintf("dlq has key %v", dlqHasKey), func(t *testing.T) {
			t.Parallel()
			const secret = "4111-1111-1111-1111"
			w := newWorld(t)
			encrypted := converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), newEncryption(t))
			failures := temporal.NewDefaultFailureConverter(temporal.DefaultFailureConverterOptions{
				EncodeCommonAttributes: true, DataConverter: encrypted,
			})
			dial := func(plugins ...client.Plugin) client.Client {
				options := w.options(plugins...)
				options.DataConverter, options.FailureConverter = encrypted, failures
				return w.dialWith(options)
			}
			if dlqHasKey {
				plugin, err := deadletter.NewPlugin(deadletter.Options{Store: w.openStore()})
				require.NoError(t, err)
				w.start(worker.New(dial(plugin), deadletter.DefaultTaskQueue, worker.Options{}))
			} else {
				w.startDLQ(nil)
			}
			var mended atomic.Bool
			plugin, err := deadletter.NewPlugin(deadletter.Options{})
			require.NoError(t, err)
			jobs := worker.New(dial(plugin), w.queue, worker.Options{})
			jobs.RegisterActivityWithOptions(func(_ context.Context, card string) (string, error) {
				if !mended.Load() {
					return "", deadletter.Fatal(errors.New("declined: " + card))
				}
				return "charged " + card, nil
			}, activity.RegisterOptions{Name: "Charge"})
			w.start(jobs)

			run, err := deadletter.Enqueue(t.Context(), dial(), deadletter.Job{
				Type: "Charge", TaskQueue: w.queue, Policy: quick(3), Memo: map[string]any{"card": secret},
			}, secret)
			require.NoError(t, err)
			require.ErrorContains(t, w.wait(run, nil), "dead-lettered: fatal_error after 1 attempts: declined: "+secret)

			dl := w.dead(run)
			require.Nil(t, dl.PayloadJSON)
			require.Equal(t, job.ReasonFatalError, dl.Reason)
			require.Equal(t, 1, *dl.Attempts)
			require.Equal(t, "Charge", dl.JobType)
			w.holdsNowhere(secret)

			mended.Store(true)
			replayed := w.replay(run, "")
			var result string
			require.NoError(t, w.wait(dial().GetWorkflow(t.Context(), replayed.GetID(), replayed.GetRunID()), &result))
			require.Equal(t, "charged "+secret, result)
			w.holdsNowhere(secret)
		})
	}
}

// holdsNowhere searches every row of every table, wire bytes included.
func (w *world) holdsNowhere(secret string) {
	w.t.Helper()
	db := w.connect()
	seen := 0
	for _, table := range []string{"dead_letters", "attempts", "replays", "events"} {
		rows, err := db.Query(w.t.Context(), `select t::text from deadletter.`+table+` t`)
		require.NoError(w.t, err)
		for rows.Next() {
			var row string
			require.NoError(w.t, rows.Scan(&row))
			seen++
			require.NotContains(w.t, row, secret, table)
			require.NotContains(w.t, row, hex.EncodeToString([]byte(secret)), table)
		}
		require.NoError(w.t, rows.Err())
	}
	require.Positive(w.t, seen)
}

// TestNumbersOfTheWire proves that the bounds of Go's numbers survive the options
// object, which other languages write as they like.
func TestNumbersOfTheWire(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startJobs(handlers{"Fine": func(context.Context) error { return nil }})
	run, err := w.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: w.queue}, deadletter.WorkflowType,
		map[string]any{"type": "Fine", "policy": map[string]any{
			"max_attempts": math.MaxInt32, "base_delay": "-1s", "max_delay": "-1s", "max_job_age": "-1s", "attempt_timeout": "-1s", "backoff_multiplier": 1e300,
		}})
	require.NoError(t, err)
	require.NoError(t, w.wait(run, nil))
}
