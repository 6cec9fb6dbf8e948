package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/deadletter-dev/deadletter/operator"
)

func (c *cli) jobsCommand() *cobra.Command {
	var request operator.JobsRequest
	cmd := &cobra.Command{
		Use:   "jobs",
		Short: "List jobs still in flight that are close to dying",
		Long: "List jobs still in flight that are close to dying, the closest first: those whose dead letter\n" +
			"waits to be written, then by attempts left, then by age left. Without --min-attempt it lists\n" +
			"those that have met an error; jobs that are not due yet are never listed. Temporal does not\n" +
			"index attempts, so jobs are looked at one by one, up to --scan of them and for as long as\n" +
			"--timeout; what was found until then is listed, also after Ctrl-C. The state is what a job\n" +
			"waits for, where it waits: see `" + name + " show` for all of it.",
		Example: "  " + name + " jobs\n" +
			"  " + name + " jobs --type ChargeCard --min-attempt 5 -o jsonl\n" +
			"  " + name + " jobs retry-now -w order-4711",
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, flag := range []string{"type", "queue"} {
				if given := cmd.Flags().Lookup(flag); given.Changed && given.Value.String() == "" {
					return usagef("--%s has an empty value; leave the flag out to list all", flag)
				}
			}
			switch {
			case request.Limit < 1 || request.Limit > operator.MaxJobs:
				return usagef("--limit: %d is not between 1 and %d", request.Limit, operator.MaxJobs)
			case request.Scan < 1 || request.Scan > operator.MaxJobsScan:
				return usagef("--scan: %d is not between 1 and %d", request.Scan, operator.MaxJobsScan)
			case request.Timeout < 0:
				return usagef("--timeout: %s is negative; 0 looks as long as it takes", request.Timeout)
			case cmd.Flags().Changed("min-attempt") && request.MinAttempt < 1:
				return usagef("--min-attempt: %d is not a positive number", request.MinAttempt)
			}
			s, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer s.close()
			progress := c.scanProgress()
			request.Progress = progress.show
			found, err := s.Jobs(cmd.Context(), request)
			progress.end()
			if err != nil && found.Looked == 0 {
				return err
			}
			return errors.Join(c.printJobs(found, request.Timeout), err)
		},
	}
	cmd.Args = noArguments
	cmd.Flags().StringVar(&request.Type, "type", "", "job type")
	cmd.Flags().StringVar(&request.Queue, "queue", "", "task queue of the handler")
	cmd.Flags().IntVar(&request.MinAttempt, "min-attempt", 0, "least attempt that the job is at or waits for; 1 lists every job")
	cmd.Flags().IntVar(&request.Limit, "limit", 50, "most jobs to list, up to 1000")
	cmd.Flags().IntVar(&request.Scan, "scan", operator.DefaultJobsScan, "most jobs to look at, those first that have been due for the longest")
	cmd.Flags().DurationVar(&request.Timeout, "timeout", 20*time.Second, "how long to look; 0 looks as long as it takes")
	cmd.AddCommand(c.retryNowCommand(), c.cancelCommand())
	return cmd
}

func (c *cli) printJobs(found operator.Jobs, timeout time.Duration) error {
	switch c.output {
	case outputJSON:
		return c.printJSON(found)
	case outputJSONL:
		for i := range found.Jobs {
			if err := c.printJSON(&found.Jobs[i]); err != nil {
				return err
			}
		}
	case outputText:
		if len(found.Jobs) == 0 {
			fmt.Fprintf(c.out, "None of the running jobs matches; %d were looked at.\n", found.Looked)
		} else if err := listTable(c.out, jobRows(found.Jobs), "WORKFLOW ID", "STATE", "ATTEMPT", "NEXT TRY", "LAST ERROR"); err != nil {
			return err
		}
	}
	if more := found.Matched - len(found.Jobs); more > 0 {
		fmt.Fprintf(c.aside(), "%d more match: raise --limit, or narrow with --type, --queue or --min-attempt.\n", more)
	}
	c.sayQueues(found.Queues, found.Looked)
	if found.Bounded {
		fmt.Fprintf(c.aside(), "Only %d of %d running jobs were looked at, those that have been due for the longest: %s.\n", found.Looked, found.Running, stopText(found.StoppedBy, timeout))
	}
	return nil
}

// stopText says what stopped the search, and how to see more.
func stopText(by operator.JobsStop, timeout time.Duration) string {
	switch by {
	case operator.StoppedByScan:
		return "raise --scan to see more"
	case operator.StoppedByTimeout:
		return fmt.Sprintf("stopped after %s; raise --timeout to see more", timeout)
	case operator.StoppedByInterrupt:
		return "interrupted"
	case operator.StoppedByError:
	}
	return "stopped by an error"
}

// sayQueues tells of the task queues that no worker polls and on which jobs wait.
func (c *cli) sayQueues(queues []operator.JobQueue, looked int) {
	for i := range queues {
		q := &queues[i]
		if q.Unknown == "" && q.Pollers == 0 {
			jobs := "jobs"
			if looked == 1 {
				jobs = "job"
			}
			fmt.Fprintf(c.aside(), "%d of %d %s cannot continue: %s.\n", q.Waiting, looked, jobs, printable(q.NoPollers()))
		}
	}
}

func jobRows(jobs []operator.LiveJob) [][]string {
	rows := [][]string{{"WORKFLOW ID", "TYPE", "ATTEMPT", "STATE", "NEXT TRY", "TOO OLD AT", "LAST ERROR"}}
	for i := range jobs {
		j := &jobs[i]
		failure := j.LastError
		if j.LastErrorType != "" {
			failure = j.LastErrorType + ": " + failure
		}
		state := j.State
		if j.Waiting != nil {
			state = strings.ReplaceAll(string(j.Waiting.Kind), "_", " ")
			if failure == "" {
				failure = j.Waiting.Failure
			}
		}
		rows = append(rows, []string{
			printable(j.WorkflowID), orNone(j.JobType), strconv.Itoa(j.Attempt) + " of " + budgetText(j.MaxAttempts), state,
			orNever(j.NextAttemptAt, "-"), orNever(j.AgeLimitAt, "never"), shortened(printable(failure), maxErrorCell),
		})
	}
	return rows
}

func orNever(at *time.Time, never string) string {
	if at == nil {
		return never
	}
	return timeText(at)
}
