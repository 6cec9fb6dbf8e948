package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	failurepb "go.temporal.io/api/failure/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/proto"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/devstack/devtest"
	"github.com/deadletter-dev/deadletter/job"
)

// asProgram makes this test binary behave as the program.
const asProgram = "TEST_AS_PROGRAM"

// interruptAt names a text at which the program interrupts itself. From outside a
// signal comes some time after the text, and meanwhile the program may have ended.
const interruptAt = "TEST_INTERRUPT_AT"

func TestMain(m *testing.M) {
	switch at := os.Getenv(interruptAt); {
	case at != "":
		mainInterrupted(at)
	case os.Getenv(asProgram) != "":
		main()
	default:
		devtest.Main(m)
	}
}

// mainInterrupted is main with a Ctrl-C that has arrived when the text is written.
func mainInterrupted(at string) {
	ctx, _ := signal.NotifyContext(context.Background(), os.Interrupt)
	out := io.MultiWriter(os.Stdout, onText{at, func() {
		if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
			panic(err)
		}
		<-ctx.Done()
	}})
	os.Exit(run(ctx, os.Args[1:], os.Environ(), os.Stdin, out, os.Stderr))
}

// nowhere is an address on which nothing listens.
const nowhere = "127.0.0.1:1"

// noEnv is an environment in which no server can be reached.
var noEnv = []string{
	"TEMPORAL_CONFIG_FILE=/nonexistent/temporal.toml",
	"TEMPORAL_ADDRESS=" + nowhere,
	"DEADLETTER_DATABASE_URL=postgres://somebody:geheim@" + nowhere + "/jobs?sslmode=disable&connect_timeout=5",
}

// result is what one run of the program left.
type result struct {
	code      int
	out, errw string
}

func call(t *testing.T, environ []string, in io.Reader, args ...string) result {
	t.Helper()
	var out, errw bytes.Buffer
	code := run(t.Context(), args, environ, in, &out, &errw)
	return result{code, out.String(), errw.String()}
}

// person types answers at a terminal.
type person struct{ io.Reader }

func (person) IsTerminal() bool { return true }

// bench is a database with an empty schema and a Temporal server.
type bench struct {
	t       *testing.T
	url     string
	address string
	store   *dlqstore.Store
	environ []string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	address, namespace := devtest.Temporal(t)
	url := devtest.Postgres(t)
	require.NoError(t, dlqstore.Migrate(t.Context(), url))
	store, err := dlqstore.Open(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	return &bench{t: t, url: url, address: address, store: store, environ: []string{
		"TEMPORAL_CONFIG_FILE=/nonexistent/temporal.toml",
		"TEMPORAL_ADDRESS=" + address,
		"TEMPORAL_NAMESPACE=" + namespace,
		"DEADLETTER_DATABASE_URL=" + url,
	}}
}

func (b *bench) call(args ...string) result {
	b.t.Helper()
	return call(b.t, b.environ, strings.NewReader(""), args...)
}

// succeed runs a command that must exit 0 and returns its output.
func (b *bench) succeed(args ...string) string {
	b.t.Helper()
	r := b.call(args...)
	require.Zero(b.t, r.code, r.errw)
	return r.out
}

// decode runs a command that must exit 0 and decodes its JSON with the numbers
// as they are written.
func (b *bench) decode(into any, args ...string) {
	b.t.Helper()
	decoder := json.NewDecoder(strings.NewReader(b.succeed(args...)))
	decoder.UseNumber()
	require.NoError(b.t, decoder.Decode(into))
	require.False(b.t, decoder.More(), "one document")
}

func (b *bench) dial() client.Client {
	b.t.Helper()
	return devtest.Dial(b.t, client.Options{HostPort: b.address, Logger: silent})
}

// died is when the dead letters of tests died, unless they say otherwise.
var died = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// deadLetter has arguments whose numbers do not survive a float64.
func deadLetter(workflowID string) *dlqstore.DeadLetter {
	three := 3
	return &dlqstore.DeadLetter{
		Key:               dlqstore.Key{Namespace: "default", WorkflowID: workflowID, RunID: "0190a5d0-0000-7000-8000-000000000001"},
		FirstRunID:        "0190a5d0-0000-7000-8000-000000000001",
		JobType:           "SendEmail",
		TaskQueue:         "emails",
		WorkflowTaskQueue: "emails",
		Reason:            job.ReasonMaxRetriesExceeded,
		Attempts:          &three,
		MaxAttempts:       &three,
		ErrorType:         "SMTPError",
		ErrorMessage:      "mailbox is full",
		ErrorStack:        "send.go:42\nmain.go:7",
		Tags:              map[string]string{"tenant": "acme"},
		Options:           json.RawMessage(`{"type": "SendEmail", "task_queue": "emails"}`),
		OptionsPayload:    encode(&commonpb.Payload{Metadata: jsonEncoding(), Data: []byte(`{"type": "SendEmail", "task_queue": "emails"}`)}),
		PayloadJSON:       json.RawMessage(`[` + exactArgument + `]`),
		Payloads:          encode(&commonpb.Payloads{Payloads: []*commonpb.Payload{{Metadata: jsonEncoding(), Data: []byte(exactArgument)}}}),
		Fingerprint:       "f00",
		DeadAt:            died,
	}
}

const exactArgument = `{"id": 9007199254740993, "price": 1.10}`

func jsonEncoding() map[string][]byte { return map[string][]byte{"encoding": []byte("json/plain")} }

func encode(message proto.Message) []byte {
	data, err := proto.Marshal(message)
	if err != nil {
		panic(err)
	}
	return data
}

// move makes the dead letter, changed by each of the edits.
func (b *bench) move(workflowID string, edits ...func(*dlqstore.DeadLetter)) dlqstore.Key {
	b.t.Helper()
	dl := deadLetter(workflowID)
	for _, edit := range edits {
		edit(dl)
	}
	wait := 3 * time.Second
	attempts := []dlqstore.Attempt{
		{Attempt: 1, StartedAt: &died, ErrorMessage: "first try", Wait: &wait},
		{Attempt: 2, StartedAt: &died, ErrorMessage: "second try"},
	}
	moved, err := b.store.Move(b.t.Context(), dl, attempts, "test", nil)
	require.NoError(b.t, err)
	require.True(b.t, moved)
	return dl.Key
}

func (b *bench) count() int64 {
	b.t.Helper()
	n, err := b.store.Count(context.WithoutCancel(b.t.Context()), dlqstore.Filter{})
	require.NoError(b.t, err)
	return n
}

// failureChain is a failure with its causes, each of the type of its message.
func failureChain(messages ...string) []byte {
	var failure *failurepb.Failure
	for _, message := range slices.Backward(messages) {
		kind, _, _ := strings.Cut(message, "\x1b")
		failure = &failurepb.Failure{
			Message: message, Cause: failure,
			FailureInfo: &failurepb.Failure_ApplicationFailureInfo{ApplicationFailureInfo: &failurepb.ApplicationFailureInfo{
				Type: strings.ToUpper(kind[:1]) + kind[1:],
			}},
		}
	}
	return encode(failure)
}
