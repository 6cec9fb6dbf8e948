package job

import (
	"encoding/json"
	"time"
)

// OperatorInput is the argument of the operator workflow. A run without one, which
// earlier versions started, goes by the rules of its time.
type OperatorInput struct {
	// Version says by which rules the run goes: OperatorVersion is the newest.
	Version int `json:"version,omitempty"`
	// MaxHistory is after how many events a run hands over to the next one. Zero, and
	// more than 4,000, mean 4,000.
	MaxHistory int `json:"max_history,omitempty"`
	// Requests are what the run before has accepted and not finished, if that was of
	// version 1. Older builds do not read it, so later versions leave it empty.
	Requests []AcceptedRequest `json:"requests,omitempty"`
}

// OperatorVersion is the version of a new operator workflow. Since 1 a run hands over
// what it has accepted instead of waiting until it is idle. Since 2 it gives all of that to
// workflows of BacklogWorkflowType.
const OperatorVersion = 2

// AcceptedRequest is a request that the operator workflow has accepted and not finished,
// as it is handed over to another run.
type AcceptedRequest struct {
	// Message is the name of the signal or update, or RefuseMessage.
	Message string `json:"message"`
	// Via is "signal" or "update": who asks, if the request does not say.
	Via string `json:"via"`
	// ID is the request's id, unless it brings its own.
	ID string `json:"id"`
	// Accepted is when it came. What is not done MaxRequestAge later is refused.
	Accepted time.Time `json:"accepted"`
	// Payload is the request as it came: a payload of Temporal's API in its protobuf
	// form. Empty for a signal without an argument, and for the request of a Backlog
	// whose payload has an argument of its own.
	Payload []byte `json:"payload,omitempty"`
}

// MaxRequestAge is how long the operator workflow tries to carry out a request, such as
// during an outage of Postgres, before it refuses it.
const MaxRequestAge = 24 * time.Hour

// Backlog is the first argument of workflow deadletter.Backlog. The second is the payload
// of the last request if that is large, in the encoding that it came in.
type Backlog struct {
	Requests []AcceptedRequest `json:"requests"`
}

// RefuseMessage is the Message of a request that is refused already, and whose event is
// still to be written: its payload is a RefuseInput. No signal or update has this name.
const RefuseMessage = "refuse"

// Sender is the second argument of an activity that carries out a request. It stands
// for what the request does not say, also where the request cannot be read.
type Sender struct {
	RequestID string `json:"request_id,omitempty"`
	Actor     string `json:"actor,omitempty"`
}

// RefuseInput asks for the event of a refusal: the input of activity deadletter.Refuse,
// and the detail of an error of RefusedErrorType, NotFoundErrorType, AmbiguousErrorType
// or ConflictErrorType whose event could not be written.
type RefuseInput struct {
	Verb       string          `json:"verb"`
	WorkflowID string          `json:"workflow_id,omitempty"`
	RunID      string          `json:"run_id,omitempty"`
	PlanID     string          `json:"plan_id,omitempty"`
	RequestID  string          `json:"request_id,omitempty"`
	Actor      string          `json:"actor,omitempty"`
	Detail     json.RawMessage `json:"detail,omitempty"`
	// UnlessDone leaves the event out if the request was carried out after all.
	UnlessDone bool `json:"unless_done,omitempty"`
}
