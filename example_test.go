package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
)

type EmailArgs struct {
	To string `json:"to"`
}

func SendEmail(_ context.Context, args EmailArgs) error {
	if args.To == "" {
		return deadletter.Fatal(errors.New("no recipient"))
	}
	return nil
}

// The whole wiring: one plugin object, the team's own activities, a worker for the
// dead-letter queue, and a job.
func Example() {
	ctx := context.Background()
	run := func() error {
		const databaseURL = "postgres://localhost/app"
		if err := dlqstore.Migrate(ctx, databaseURL); err != nil {
			return err
		}
		store, err := dlqstore.Open(ctx, databaseURL)
		if err != nil {
			return err
		}
		defer store.Close()
		plugin, err := deadletter.NewPlugin(deadletter.Options{Store: store})
		if err != nil {
			return err
		}
		c, err := client.Dial(client.Options{Plugins: []client.Plugin{plugin}})
		if err != nil {
			return err
		}
		defer c.Close()

		jobs := worker.New(c, "emails", worker.Options{})
		jobs.RegisterActivity(SendEmail)
		dlq := worker.New(c, deadletter.DefaultTaskQueue, worker.Options{})
		for _, w := range []worker.Worker{jobs, dlq} {
			if err := w.Start(); err != nil {
				return err
			}
			defer w.Stop()
		}

		job, err := deadletter.Enqueue(ctx, c, deadletter.Job{
			Type:      "SendEmail",
			TaskQueue: "emails",
			Policy:    deadletter.Policy{MaxAttempts: 5, BaseDelay: 10 * time.Second},
			Tags:      map[string]string{"tenant": "acme"},
		}, EmailArgs{To: "a@b.c"})
		if err != nil {
			return err
		}
		return job.Get(ctx, nil)
	}
	_ = run
}

// A handler that knows that no retry will help says so.
func ExampleFatal() {
	err := deadletter.Fatal(errors.New("no such customer"))
	fmt.Println(err)
	// Output: no such customer (type: deadletter.Fatal, retryable: false): no such customer
}

// A policy that could not mean anything is refused before anything starts, with
// every fault at once.
func ExampleEnqueue_invalid() {
	_, err := deadletter.Enqueue(context.Background(), nil, deadletter.Job{
		TaskQueue: "emails",
		Policy:    deadletter.Policy{BackoffMultiplier: 0.5},
	})
	fmt.Println(err)
	// Output:
	// deadletter: enqueue "": invalid job:
	// type: missing; name the activity type of the handler
	// backoff_multiplier: 0.5 is not a number of at least 1; use 1 for a constant wait
}
