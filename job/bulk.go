package job

import (
	"errors"
	"fmt"
	"math"
)

// BulkVerb is what a bulk operation does to each member of its plan: a closed set.
type BulkVerb string

// The bulk verbs.
const (
	BulkReplay BulkVerb = "replay"
	BulkPurge  BulkVerb = "purge"
	BulkEdit   BulkVerb = "edit"
	BulkRetag  BulkVerb = "retag"
)

// ParseBulkVerb refuses what is none.
func ParseBulkVerb(text string) (BulkVerb, error) {
	switch verb := BulkVerb(text); verb {
	case BulkReplay, BulkPurge, BulkEdit, BulkRetag:
		return verb, nil
	default:
		return "", fmt.Errorf("unknown bulk verb %q: it must be replay, purge, edit or retag", text)
	}
}

// Defaults and bounds of BulkSettings.
const (
	DefaultBulkRate        = 50.0
	DefaultBulkConcurrency = 8
	MaxBulkConcurrency     = 100
	DefaultMaxRefail       = 0.2
	MaxBulkCanary          = 10_000
)

// BulkSettings say how fast a bulk operation goes, and when it stops by itself.
type BulkSettings struct {
	// Rate is members per second. Zero means DefaultBulkRate, negative no limit.
	Rate float64 `json:"rate,omitempty"`
	// Concurrency is how many starts are under way at once. Zero means
	// DefaultBulkConcurrency; MaxBulkConcurrency is the most.
	Concurrency int `json:"concurrency,omitempty"`
	// Canary is how many members a replay starts first, to wait for their outcome
	// before it goes on in growing steps. Zero means none.
	Canary int `json:"canary,omitempty"`
	// MaxRefail is the share, from 0 to 1, of replayed jobs that may die again, or
	// not start; more, and a replay with a canary stops. Nil means DefaultMaxRefail.
	MaxRefail *float64 `json:"max_refail,omitempty"`
}

// Check returns every fault of the settings for the verb in one error.
func (s BulkSettings) Check(verb BulkVerb) error {
	var faults []error
	add := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	switch {
	case math.IsNaN(s.Rate) || math.IsInf(s.Rate, 0):
		add("rate %v: it must be a number of members per second", s.Rate)
	case s.Rate > 0 && s.Rate < 0.01:
		add("rate %v: at least 0.01 per second, or negative for no limit", s.Rate)
	}
	if s.Concurrency < 0 || s.Concurrency > MaxBulkConcurrency {
		add("concurrency %d: it must be from 1 to %d, or 0 for %d", s.Concurrency, MaxBulkConcurrency, DefaultBulkConcurrency)
	}
	if s.Canary < 0 || s.Canary > MaxBulkCanary {
		add("canary %d: it must be from 1 to %d, or 0 for none", s.Canary, MaxBulkCanary)
	}
	if s.Canary > 0 && verb != BulkReplay {
		add("canary: only a replay has one, and this is %s", verb)
	}
	if limit := s.MaxRefail; limit != nil {
		if math.IsNaN(*limit) || *limit < 0 || *limit > 1 {
			add("max_refail %v: it must be a share from 0 to 1", *limit)
		}
		if s.Canary == 0 {
			add("max_refail: it needs a canary")
		}
	}
	return errors.Join(faults...)
}

// WithDefaults returns the settings as they are carried out: a Rate of 0 then
// means no limit.
func (s BulkSettings) WithDefaults() BulkSettings {
	switch {
	case s.Rate == 0:
		s.Rate = DefaultBulkRate
	case s.Rate < 0:
		s.Rate = 0
	}
	if s.Concurrency == 0 {
		s.Concurrency = DefaultBulkConcurrency
	}
	if s.Canary > 0 && s.MaxRefail == nil {
		limit := DefaultMaxRefail
		s.MaxRefail = &limit
	}
	return s
}

// BulkInput starts a bulk operation: the argument of workflow
// deadletter.BulkOperation, whose id is BulkWorkflowID of the plan.
type BulkInput struct {
	PlanID string `json:"plan_id"`
	// Actor is who applies the plan. Empty means "workflow".
	Actor string `json:"actor"`
	// Settings replace those of the plan; nil keeps them.
	Settings *BulkSettings `json:"settings,omitempty"`
	// Carried is set by a run that goes on as another.
	Carried *BulkCarried `json:"carried,omitempty"`

	unread
}

// Check says what is wrong with the request, or missing.
func (in BulkInput) Check() error {
	if in.PlanID == "" {
		return in.or(errors.New("plan_id is missing: name the plan to apply"))
	}
	return in.or(nil)
}

// plainBulkInput is BulkInput without its methods.
type plainBulkInput BulkInput

// UnmarshalJSON leaves it to Check to refuse what it cannot read.
func (in *BulkInput) UnmarshalJSON(data []byte) error {
	in.unread = readRequest(data, (*plainBulkInput)(in))
	return nil
}

// MarshalJSON is the reverse of UnmarshalJSON.
func (in BulkInput) MarshalJSON() ([]byte, error) { return writeRequest(in.unread, plainBulkInput(in)) }

// BulkCarried is where a bulk operation stands when it goes on in a new run.
type BulkCarried struct {
	Verb     BulkVerb     `json:"verb"`
	Settings BulkSettings `json:"settings"` // with defaults
	// Step is how many members the step at hand of a canary takes, Taken how many of
	// them it has taken; both are 0 without a canary.
	Step     int    `json:"step,omitempty"`
	Taken    int    `json:"taken,omitempty"`
	Paused   bool   `json:"paused,omitempty"`
	PausedBy string `json:"paused_by,omitempty"`
	// Progress is what the run before knew last.
	Progress BulkProgress `json:"progress"`
}

// BulkControl is the argument of the signals pause, resume and cancel. What cannot be
// read of it is left out: the name of the signal says what to do.
type BulkControl struct {
	// Actor is who asks. Empty means "signal".
	Actor string `json:"actor,omitempty"`

	unread
}

// plainBulkControl is BulkControl without its methods.
type plainBulkControl BulkControl

// UnmarshalJSON reads what can be read.
func (c *BulkControl) UnmarshalJSON(data []byte) error {
	c.unread = readRequest(data, (*plainBulkControl)(c))
	return nil
}

// PlanState is where a plan stands: a closed set.
type PlanState string

// The states of a plan. The last three are final.
const (
	PlanPlanned   PlanState = "planned"
	PlanApplying  PlanState = "applying"
	PlanPaused    PlanState = "paused"
	PlanFinished  PlanState = "finished"
	PlanCancelled PlanState = "cancelled"
	PlanStopped   PlanState = "stopped" // by its canary
)

// IsFinal reports whether nothing will happen under the plan any more.
func (s PlanState) IsFinal() bool {
	return s == PlanFinished || s == PlanCancelled || s == PlanStopped
}

// BulkProgress is how far a bulk operation is: the result of its workflow and of
// query "progress".
type BulkProgress struct {
	PlanID string    `json:"plan_id"`
	State  PlanState `json:"state"`
	// Members are all, Pending those that have not ended, or were left when the
	// operation ended before its end.
	Members int64 `json:"members"`
	Pending int64 `json:"pending"`
	Done    int64 `json:"done"`
	Skipped int64 `json:"skipped"`
	Failed  int64 `json:"failed"`
	// StopCause says why a stopped operation stopped.
	StopCause string `json:"stop_cause,omitempty"`
}

// Ended is how many members are done or have failed.
func (p BulkProgress) Ended() int64 { return p.Done + p.Failed }

// BulkPlan is what activity deadletter.BulkBegin returns.
type BulkPlan struct {
	Verb     BulkVerb     `json:"verb"`
	Settings BulkSettings `json:"settings"` // with defaults
	Progress BulkProgress `json:"progress"`
}

// BulkStep asks activity deadletter.BulkStep for one stretch of an operation.
type BulkStep struct {
	PlanID string `json:"plan_id"`
	// Limit is the most members to take, 0 for as many as the stretch allows.
	Limit int `json:"limit,omitempty"`
	// Ended is how many were done or had failed when the stretch was asked for: what
	// an earlier try of it took, whose worker was lost, is in the limit too. Nil counts
	// from the try's own beginning.
	Ended *int64 `json:"ended,omitempty"`
}

// BulkStepped is what a stretch did.
type BulkStepped struct {
	// Taken counts the members that are done or failed since, in any of its tries.
	Taken    int          `json:"taken"`
	Progress BulkProgress `json:"progress"`
}

// BulkWatch asks activity deadletter.BulkWatch for the outcomes of an operation's
// replays, at once or, with Wait, when they are known.
type BulkWatch struct {
	PlanID string `json:"plan_id"`
	Wait   bool   `json:"wait,omitempty"`
	// MaxRefail ends the wait early: when so many have died again that what is still
	// open cannot bring their share down to it.
	MaxRefail float64 `json:"max_refail,omitempty"`
}

// BulkOutcomes is what became of the jobs that an operation has replayed.
type BulkOutcomes struct {
	// Replayed are those that started, Open those of them whose end is not known yet.
	Replayed  int64 `json:"replayed"`
	Open      int64 `json:"open"`
	Succeeded int64 `json:"succeeded"`
	// Refailed died again; NotStarted are members whose start failed.
	Refailed   int64 `json:"refailed"`
	Cancelled  int64 `json:"cancelled"`
	NotStarted int64 `json:"not_started"`
}

// RefailShare is the share of bad ends among the ends that are known: died again
// or not started. It is 0 while none is known.
func (o BulkOutcomes) RefailShare() float64 {
	known := o.Succeeded + o.Refailed + o.Cancelled + o.NotStarted
	if known == 0 {
		return 0
	}
	return float64(o.Refailed+o.NotStarted) / float64(known)
}

// LeastRefailShare is the share of bad ends if every job that is still open succeeds.
func (o BulkOutcomes) LeastRefailShare() float64 {
	all := o.Replayed + o.NotStarted
	if all == 0 {
		return 0
	}
	return float64(o.Refailed+o.NotStarted) / float64(all)
}

// BulkMark asks activity deadletter.BulkMark to note that an operation is paused,
// goes on, or has ended.
type BulkMark struct {
	PlanID string    `json:"plan_id"`
	State  PlanState `json:"state"`
	Actor  string    `json:"actor"`
	Cause  string    `json:"cause,omitempty"`
}

// BulkWorkflowID is the workflow id of the operation that applies a plan: one id,
// so a plan is applied once.
func BulkWorkflowID(planID string) string { return "deadletter-bulk-" + planID }
