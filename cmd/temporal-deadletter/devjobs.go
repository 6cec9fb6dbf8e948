package main

import (
	"time"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/internal/demo"
	"github.com/deadletter-dev/deadletter/job"
)

// demoJob is a job of the demo with what must become of it.
type demoJob struct {
	name      string
	jobType   string
	policy    deadletter.Policy
	rawPolicy map[string]any // instead of policy, past the checks of Enqueue
	argument  any

	outcome  string
	reason   deadletter.Reason // of its dead letter; empty when there is none
	attempts int               // of its dead letter
}

// How a job ends.
const (
	outcomeDone      = "done"
	outcomeDead      = "dead-lettered"
	outcomeCancelled = "cancelled"
)

// attemptsUnknown stands for the count of a job that is cancelled between two
// attempts: its history does not tell.
const attemptsUnknown = -1

// Names of jobs that steps refer to.
const (
	replayedName  = "resize"
	cancelledName = "cancelled"
	unknownName   = "unknown"
)

// demoJobs is one job for each way to go, with waits short enough to watch.
func demoJobs() []demoJob {
	soon := func(attempts int) deadletter.Policy {
		return deadletter.Policy{MaxAttempts: attempts, BaseDelay: time.Second, BackoffMultiplier: 1, JitterMaxDelay: -1}
	}
	slow := soon(1)
	slow.AttemptTimeout = time.Second
	unknown := soon(2)
	unknown.UnknownTypeGrace = 2 * time.Second // no newer worker is to come
	patient := soon(5)
	patient.BaseDelay = time.Hour
	return []demoJob{
		{name: "email-1", jobType: demo.SendEmail, argument: demo.Email{To: "ada@example.com"}, outcome: outcomeDone},
		{name: "email-2", jobType: demo.SendEmail, argument: demo.Email{To: "alan@example.com"}, outcome: outcomeDone},
		{name: "charge-1", jobType: demo.ChargeCard, policy: soon(3), argument: demo.Charge{Order: 4711, SucceedsOn: 2}, outcome: outcomeDone},
		{name: "charge-2", jobType: demo.ChargeCard, policy: soon(3), argument: demo.Charge{Order: 4712, SucceedsOn: 3}, outcome: outcomeDone},
		{
			name: replayedName, jobType: demo.ResizeImage, policy: soon(3), argument: demo.Image{Name: "cat.heic", Width: 640},
			outcome: outcomeDead, reason: job.ReasonMaxRetriesExceeded, attempts: 3,
		},
		{
			name: "invoice", jobType: demo.ImportInvoice, policy: soon(3), argument: "2026-0042",
			outcome: outcomeDead, reason: job.ReasonFatalError, attempts: 1,
		},
		{
			name: "report", jobType: demo.BuildReport, policy: slow,
			outcome: outcomeDead, reason: job.ReasonTimeout, attempts: 1,
		},
		{
			name: unknownName, jobType: "NoSuchHandler", policy: unknown,
			outcome: outcomeDead, reason: job.ReasonUnknownJobType, attempts: 2,
		},
		{
			name: "invalid", jobType: demo.SendEmail, rawPolicy: map[string]any{"max_attempts": "many", "base_delay": "soon"},
			argument: demo.Email{To: "grace@example.com"},
			outcome:  outcomeDead, reason: job.ReasonFatalError, attempts: 0,
		},
		{
			name: cancelledName, jobType: demo.ChargeCard, policy: patient, argument: demo.Charge{Order: 4713, SucceedsOn: 5},
			outcome: outcomeCancelled, reason: job.ReasonCancelled, attempts: attemptsUnknown,
		},
	}
}
