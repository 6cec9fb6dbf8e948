package dlqstore

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// cursor is the last row of a page. Callers hold it as opaque text.
type cursor struct {
	Version     int    `json:"v"`
	DeadAt      int64  `json:"t"` // microseconds, as Postgres keeps them
	Namespace   string `json:"n"`
	WorkflowID  string `json:"w"`
	RunID       string `json:"r"`
	OldestFirst bool   `json:"o,omitempty"`
}

const cursorVersion = 1

func cursorAt(dl *DeadLetter, oldestFirst bool) (string, error) {
	text, err := json.Marshal(cursor{
		Version: cursorVersion, DeadAt: dl.DeadAt.UnixMicro(),
		Namespace: dl.Namespace, WorkflowID: dl.WorkflowID, RunID: dl.RunID, OldestFirst: oldestFirst,
	})
	return base64.RawURLEncoding.EncodeToString(text), err
}

// parseCursor refuses whatever cursorAt did not write.
func parseCursor(text string) (cursor, error) {
	var c cursor
	decoded, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || json.Unmarshal(decoded, &c) != nil {
		return cursor{}, fmt.Errorf("%w: it does not decode", ErrBadCursor)
	}
	key := Key{Namespace: c.Namespace, WorkflowID: c.WorkflowID, RunID: c.RunID}
	if c.Version != cursorVersion {
		return cursor{}, fmt.Errorf("%w: it is of version %d, this build reads %d", ErrBadCursor, c.Version, cursorVersion)
	}
	if err := key.check(); err != nil {
		return cursor{}, fmt.Errorf("%w: %w", ErrBadCursor, err)
	}
	if c.DeadAt < minMicros || c.DeadAt > maxMicros {
		return cursor{}, fmt.Errorf("%w: its time is out of range", ErrBadCursor)
	}
	return c, nil
}

// The range of years that both Postgres and Go's JSON can write.
var (
	minMicros = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	maxMicros = time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC).UnixMicro()
)

func (c cursor) addTo(args pgx.NamedArgs) {
	args["after_dead_at"] = time.UnixMicro(c.DeadAt)
	args["after_namespace"], args["after_workflow_id"], args["after_run_id"] = c.Namespace, c.WorkflowID, c.RunID
}
