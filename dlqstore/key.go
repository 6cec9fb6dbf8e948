package dlqstore

import (
	"errors"
	"strings"
	"unicode/utf8"
)

// Key names one dead letter: the job's namespace and workflow id, and its final run.
type Key struct {
	Namespace  string `json:"namespace"`
	WorkflowID string `json:"workflow_id"`
	RunID      string `json:"run_id"`
}

// String returns the key as namespace/workflow/run, for people, or without the
// run when that is empty.
func (k Key) String() string {
	if k.RunID == "" {
		return k.Namespace + "/" + k.WorkflowID
	}
	return k.Namespace + "/" + k.WorkflowID + "/" + k.RunID
}

// holdable reports whether a text column can hold every part as it is. A key is
// never altered, so no row has one that is not.
func (k Key) holdable() bool {
	for _, part := range []string{k.Namespace, k.WorkflowID, k.RunID} {
		if !utf8.ValidString(part) || strings.ContainsRune(part, 0) {
			return false
		}
	}
	return true
}

// check refuses a key under which nothing can be stored.
func (k Key) check() error {
	switch {
	case k.Namespace == "" || k.WorkflowID == "" || k.RunID == "":
		return errors.New("the key needs a namespace, a workflow id and a run id")
	case !k.holdable():
		return errors.New("the key is not text that Postgres can hold")
	default:
		return nil
	}
}
