package dlqstore

import "context"

// CountDeadLetters returns the size of the dead letter queue: the rows of one
// namespace, or of all when it is empty.
func (s *Store) CountDeadLetters(ctx context.Context, namespace string) (int64, error) {
	return s.Count(ctx, Filter{Namespace: namespace})
}
