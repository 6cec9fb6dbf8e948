package activities

import (
	"testing"

	"github.com/stretchr/testify/require"
	failurepb "go.temporal.io/api/failure/v1"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

func application(kind, message, stack string, cause *failurepb.Failure) *failurepb.Failure {
	return &failurepb.Failure{
		Message: message, StackTrace: stack, Cause: cause,
		FailureInfo: &failurepb.Failure_ApplicationFailureInfo{ApplicationFailureInfo: &failurepb.ApplicationFailureInfo{Type: kind}},
	}
}

func timeout(message string, cause *failurepb.Failure) *failurepb.Failure {
	return &failurepb.Failure{
		Message: message, Cause: cause,
		FailureInfo: &failurepb.Failure_TimeoutFailureInfo{TimeoutFailureInfo: &failurepb.TimeoutFailureInfo{}},
	}
}

// printOf is the fingerprint of a job of type T that died of a failure.
func printOf(f *failurepb.Failure) string {
	d := describe(f)
	return fingerprint(&dlqstore.DeadLetter{JobType: "T", Reason: job.ReasonFatalError, ErrorType: d.kind, ErrorMessage: d.message, ErrorStack: d.stack}, f)
}

// TestFingerprint proves what two dead letters of one group have in common: job
// type, reason, root error type, and frame or message; and nothing else.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	plain := func(message string) *failurepb.Failure { return application("E", message, "", nil) }
	require.Equal(t, printOf(plain("no order 17")), printOf(plain("no order 4711")))
	require.NotEqual(t, printOf(plain("no order")), printOf(plain("no customer")))

	deep := func(kind, message, stack string) *failurepb.Failure {
		return application("wrapError", "send: "+message, "", application(kind, message, stack, nil))
	}
	require.NotEqual(t, printOf(deep("A", "x", "")), printOf(deep("B", "x", "")), "the root's type counts")
	one, other := "main.send(0x1)\n\t/src/a.go:10 +0x1\n", "main.send(0x2)\n\t/build/a.go:99 +0x2\n"
	require.Equal(t, printOf(deep("A", "x", one)), printOf(deep("A", "y", other)), "with a frame, neither message nor line counts")
	require.NotEqual(t, printOf(deep("A", "x", one)), printOf(deep("A", "x", "main.read()\n\t/src/a.go:10\n")))
	require.Equal(t, printOf(deep("A", "x", one)), printOf(application("Outer", "words", "main.outer()\n\t/a.go:1\n", application("A", "x", other, nil))))

	require.Equal(t, printOf(timeout("late", plain("a"))), printOf(timeout("late", plain("b"))), "the attempt before does not count")
	require.NotEqual(t, printOf(timeout("late", plain("a"))), printOf(plain("late")))

	dl := func(kind string, reason job.Reason) *dlqstore.DeadLetter {
		return &dlqstore.DeadLetter{JobType: kind, Reason: reason, ErrorMessage: "m"}
	}
	require.NotEqual(t, fingerprint(dl("T", job.ReasonTimeout), nil), fingerprint(dl("U", job.ReasonTimeout), nil))
	require.NotEqual(t, fingerprint(dl("T", job.ReasonTimeout), nil), fingerprint(dl("T", job.ReasonZombie), nil))
	unknown := func(message string) string {
		return fingerprint(&dlqstore.DeadLetter{JobType: "T", Reason: job.ReasonUnknownJobType, ErrorMessage: message}, plain(message))
	}
	require.Equal(t, unknown("unable to find activityType=T. Supported types: [A, B]"), unknown("unable to find activityType=T. Supported types: [B, A]"))
	require.Regexp(t, "^[0-9a-f]{16}$", fingerprint(dl("", ""), nil))
}

// TestFingerprintOfUnknownType proves that the jobs which grew too old while no worker
// knew their type are one group, whatever the workers said that they know.
func TestFingerprintOfUnknownType(t *testing.T) {
	t.Parallel()
	tooOld := func(known string) string {
		f := application(job.GoUnknownType, "unable to find activityType=T. Supported types: ["+known+"]", "", nil)
		return fingerprint(&dlqstore.DeadLetter{JobType: "T", Reason: job.ReasonRetryLifetimeExpired, ErrorType: job.GoUnknownType, ErrorMessage: f.GetMessage()}, f)
	}
	require.Equal(t, tooOld("A, B"), tooOld("B, A"))
}

// TestWithoutParticulars proves what is taken out of a message, and what stays.
func TestWithoutParticulars(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		"no such customer": "no such customer",
		"order 4711 at 10.0.0.1:5432 (0xc000a1) 6f3c1a52-8d0e-4f7b-9a43-5b1f0f6a7c11 gone": "order # at # gone",
		"order-4711 is late":                            "# is late",
		"dial tcp [2001:db8::1]:443: refused":           "dial tcp [#: refused",
		"ids 1, 2, 3 and 4":                             "ids # and #",
		"ids 1 and 4":                                   "ids # and #",
		`user "bob \"x\"" and 'eve' and ` + "`mallory`": "user # and # and #",
		"can't reach the user's mailbox":                "can't reach the user's mailbox",
		"GET https://x.example/a?b=c failed":            "GET # failed",
		"mailbox ada@example.com is full":               "mailbox # is full",
		"at 2026-01-02T03:04:05Z and 12:34:56":          "at # and #",
		"two\n\tlines":                                  "two lines",
		"01HZX3K9V7 expired after 3.5s":                 "# expired after #",
	} {
		require.Equal(t, want, withoutParticulars(message), message)
	}
}

// TestFirstFrame proves that the first application frame is found in the stacks of
// each SDK, past the frames of the language, of the SDK and of this plugin.
func TestFirstFrame(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ stack, want string }{
		"none":    {"", ""},
		"unknown": {"something\nelse", ""},
		"go": {"goroutine 7 [running]:\nruntime/debug.Stack()\n\t/go/src/runtime/debug/stack.go:26 +0x5e\n" +
			"github.com/deadletter-dev/deadletter/activities.panicError({0x1, 0x2})\n\t/mod/wireerror.go:1 +0x1\n" +
			"panic({0x5a3e80?, 0xc000012250?})\n\t/go/src/runtime/panic.go:787 +0x132\n" +
			"github.com/acme/mail.(*Sender[...]).Send(0xc0000b4000, {0x7f, 0x5}, ...)\n\t/src/mail.go:42 +0x1d\n" +
			"main.main()\n\t/src/main.go:1\ncreated by go.temporal.io/sdk/internal.(*x).run in goroutine 1\n\t/mod/x.go:2\n", "github.com/acme/mail.(*Sender[...]).Send"},
		"go, all foreign": {"reflect.Value.Call({0x1})\n\t/go/src/reflect/value.go:1\ngo.temporal.io/sdk/internal.run(0x1)\n\t/x.go:1\n", ""},
		"python": {"  File \"/venv/lib/site-packages/temporalio/worker/_activity.py\", line 300, in execute\n    x\n" +
			"  File \"/app/jobs.py\", line 7, in send\n    smtp(to)\n  File \"/app/smtp.py\", line 99, in smtp\n    raise E\n", "smtp smtp.py"},
		"typescript": {"SMTPError: full\n    at new Promise (<anonymous>)\n    at process.processTicksAndRejections (node:internal/process/task_queues:95:5)\n" +
			"    at async sendEmail (/app/releases/17/activities.js:12:9)\n    at async Activity.execute (/app/node_modules/@temporalio/worker/lib/activity.js:1:2)\n", "sendEmail activities.js"},
		"typescript without a name": {"    at file:///app/a.mjs:12:9\n", "a.mjs"},
		"java":                      {"java.base/java.util.Objects.requireNonNull(Objects.java:208)\njava.util.X.f(X.java:1)\ncom.acme.Mail.send(Mail.java:12)\nio.temporal.internal.X.y(X.java:1)\n", "com.acme.Mail.send Mail.java"},
		"java with at":              {"\tat com.acme.Mail.send(Mail.java:12)\n", "com.acme.Mail.send Mail.java"},
		"dotnet":                    {"   at System.String.Parse(String s)\n   at Acme.Mail.Send(String to, Int32 n) in C:\\src\\Mail.cs:line 12\n", "Acme.Mail.Send Mail.cs"},
		"dotnet without files":      {"   at Acme.Mail.Send(String to)\n", "Acme.Mail.Send"},
	} {
		require.Equal(t, test.want, firstFrame(test.stack), name)
	}
}

// FuzzFingerprint proves that no text breaks the fingerprint.
func FuzzFingerprint(f *testing.F) {
	f.Add("at x (/a.js:1:2)", "m '1'")
	f.Add("main.x(0x1)\n\t/a.go:1\n", `"`)
	f.Fuzz(func(t *testing.T, stack, message string) {
		require.Len(t, printOf(application("E", message, stack, nil)), 16)
	})
}
