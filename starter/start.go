package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/internal/connect"
)

// do starts the jobs, prints their workflow and run ids, and waits if asked to.
func (r *request) do(ctx context.Context, environ []string, out io.Writer) error {
	config, err := connect.Load(environ, r.Overrides)
	if err != nil {
		return err
	}
	c, err := config.Dial(ctx, log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	defer c.Close()
	var runs []client.WorkflowRun
	for i := range r.count {
		j := r.job
		if j.ID != "" && r.count > 1 {
			j.ID = fmt.Sprintf("%s-%d", j.ID, i+1)
		}
		run, err := deadletter.Enqueue(ctx, c, j, r.args...)
		if err != nil {
			return err
		}
		fmt.Fprintln(out, run.GetID(), run.GetRunID())
		runs = append(runs, run)
	}
	failed := 0
	for _, run := range runs {
		if !r.wait {
			break
		}
		if err := run.Get(ctx, nil); err != nil {
			failed++
			fmt.Fprintf(out, "%s failed: %v\n", run.GetID(), err)
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d jobs failed", failed, len(runs))
	}
	return nil
}
