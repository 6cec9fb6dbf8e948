package resourceid

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"
)

// TestSendable proves that the header goes when gRPC would refuse it, alone, and stays
// as it is otherwise.
func TestSendable(t *testing.T) {
	t.Parallel()
	for id, stays := range map[string]bool{
		"workflow:order-1": true, "workflow:a b~": true, "workflow:заказ-1": false, "workflow:job-日本": false, "workflow:a\tb": false, "workflow:a\x7f": false,
	} {
		ctx := metadata.AppendToOutgoingContext(context.Background(), header, id, "temporal-namespace", "default")
		sent, _ := metadata.FromOutgoingContext(sendable(ctx))
		require.Equal(t, []string{"default"}, sent.Get("temporal-namespace"), id)
		if stays {
			require.Equal(t, []string{id}, sent.Get(header))
		} else {
			require.Empty(t, sent.Get(header), id)
		}
	}
	_, any := metadata.FromOutgoingContext(sendable(context.Background()))
	require.False(t, any)
}
