// Package lineage writes and reads the memo field that ties a replayed job to its
// dead letter: plain JSON, whatever codec the job's own client uses. It does no
// I/O, so workflow code may use it.
package lineage

import (
	"fmt"
	"maps"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"

	"github.com/deadletter-dev/deadletter/internal/text"
	"github.com/deadletter-dev/deadletter/job"
)

// maxText bounds each text of a lineage that is read, in bytes. Anyone can write a
// memo; a replay's own words are no longer than this.
const maxText = 3000

// FromMemo returns the lineage in a job's memo, each text holdable and bounded. No
// memo, none in it, or anything else under its name is an original job's.
func FromMemo(memo *commonpb.Memo) job.Lineage {
	var lineage job.Lineage
	payload := memo.GetFields()[job.LineageMemoKey]
	if payload == nil || converter.GetDefaultDataConverter().FromPayload(payload, &lineage) != nil {
		return job.Lineage{}
	}
	for _, words := range []*string{&lineage.ReplayedFromWorkflowID, &lineage.ReplayedFromRunID, &lineage.RequestID, &lineage.Actor} {
		*words = text.Clipped(*words, maxText)
	}
	return lineage
}

// InMemo returns a copy of the memo, which may be nil, with the lineage in it.
func InMemo(memo *commonpb.Memo, lineage job.Lineage) (*commonpb.Memo, error) {
	payload, err := converter.GetDefaultDataConverter().ToPayload(lineage)
	if err != nil {
		return nil, fmt.Errorf("lineage: %w", err)
	}
	fields := maps.Clone(memo.GetFields())
	if fields == nil {
		fields = map[string]*commonpb.Payload{}
	}
	fields[job.LineageMemoKey] = payload
	return &commonpb.Memo{Fields: fields}, nil
}
