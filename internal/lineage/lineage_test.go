package lineage_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"

	"github.com/deadletter-dev/deadletter/internal/lineage"
	"github.com/deadletter-dev/deadletter/job"
)

// TestMemo proves that a lineage survives its memo, beside the job's own fields and
// without touching the memo that it came to.
func TestMemo(t *testing.T) {
	t.Parallel()
	want := job.Lineage{Generation: 2, ReplayedFromWorkflowID: "w", ReplayedFromRunID: "r", RequestID: "q", Actor: "a"}
	own := &commonpb.Memo{Fields: map[string]*commonpb.Payload{"order": {Data: []byte("17")}}}
	for _, memo := range []*commonpb.Memo{nil, own} {
		with, err := lineage.InMemo(memo, want)
		require.NoError(t, err)
		require.Equal(t, want, lineage.FromMemo(with))
		require.Len(t, with.GetFields(), len(memo.GetFields())+1)
	}
	require.Len(t, own.GetFields(), 1)
}

// TestForged proves that what is no lineage makes an original job, and that a
// forged one is bounded and holdable.
func TestForged(t *testing.T) {
	t.Parallel()
	memo := func(encoding, data string) *commonpb.Memo {
		return &commonpb.Memo{Fields: map[string]*commonpb.Payload{
			job.LineageMemoKey: {Metadata: map[string][]byte{"encoding": []byte(encoding)}, Data: []byte(data)},
		}}
	}
	for _, other := range []*commonpb.Memo{
		nil, {}, memo("json/plain", `7`), memo("json/plain", `{"generation":"1"}`), memo("binary/encrypted", `{"generation":1}`), memo("json/plain", `{`),
	} {
		require.Zero(t, lineage.FromMemo(other))
	}
	long := lineage.FromMemo(memo("json/plain", `{"generation":1,"actor":"\u0000`+strings.Repeat("é", 5000)+`"}`))
	require.Equal(t, 1, long.Generation)
	require.LessOrEqual(t, len(long.Actor), 3000)
	require.True(t, strings.HasPrefix(long.Actor, "␀é"))
}
