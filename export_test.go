package deadletter

import (
	"context"

	"go.temporal.io/sdk/log"
)

// NewReport returns how one keeper reports that work on the store failed.
func NewReport(ctx context.Context, logger log.Logger) func(failed string, err error) {
	k := &keeper{ctx: ctx, lacking: make(map[string]string)}
	return func(failed string, err error) { k.report(logger, failed, err) }
}
