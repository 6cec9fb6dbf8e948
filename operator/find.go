package operator

import (
	"context"
	"iter"

	"github.com/deadletter-dev/deadletter/dlqstore"
)

// The verbs of this file read Postgres alone, and whatever the filter says, the
// operator's namespace.

// Export returns all dead letters of the namespace that the request selects, in
// memory that does not grow with their number; see dlqstore.Store.Export.
func (o *Operator) Export(ctx context.Context, request dlqstore.ExportRequest) iter.Seq2[*dlqstore.DeadLetter, error] {
	request.Filter.Namespace = o.namespace
	return o.store.Export(ctx, request)
}

// Groups groups the dead letters of the namespace that the filter selects by
// fingerprint, the largest group first, and says how many more groups there are
// than the limit; see dlqstore.Store.Groups.
func (o *Operator) Groups(ctx context.Context, filter dlqstore.Filter, limit int) (groups []dlqstore.Group, more int, err error) {
	filter.Namespace = o.namespace
	return o.store.Groups(ctx, filter, limit)
}

// StatsBy counts the dead letters of the namespace by type, queue or reason, the
// largest count first, and says how many more values there are than the limit; see
// dlqstore.Store.CountBy.
func (o *Operator) StatsBy(ctx context.Context, by dlqstore.Dimension, limit int) (tallies []dlqstore.Tally, more int, err error) {
	return o.store.CountBy(ctx, o.namespace, by, limit)
}

// Trend tells what happened to the namespace's dead letters in the last 24 hours,
// and which is the oldest.
func (o *Operator) Trend(ctx context.Context) (*dlqstore.Trend, error) {
	return o.store.Trend(ctx, o.namespace)
}
