package activities

import "sync"

// maxRuns bounds each half of a runSet.
const maxRuns = 10_000

// runSet remembers run ids, the last ten to twenty thousand of them, so that a sweep
// need not read the same histories as the one before it. What it has forgotten is read
// again. The zero value is empty; it is safe for concurrent use.
type runSet struct {
	mu            sync.Mutex
	newer, former map[string]struct{}
}

func (s *runSet) add(runID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.newer == nil || len(s.newer) >= maxRuns {
		s.newer, s.former = make(map[string]struct{}), s.newer
	}
	s.newer[runID] = struct{}{}
}

func (s *runSet) has(runID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, newer := s.newer[runID]
	_, former := s.former[runID]
	return newer || former
}
