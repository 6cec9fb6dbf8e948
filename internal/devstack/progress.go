package devstack

import (
	"fmt"
	"io"
	"sync"
)

// say writes one line for a person. A nil log is silence.
func say(log io.Writer, format string, args ...any) {
	if log != nil {
		fmt.Fprintf(log, "devstack: "+format+"\n", args...)
	}
}

// lockedWriter lets two servers that start at once write to one log.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
