// Package resourceid lets a Temporal client in Go call about workflows whose id is
// not printable ASCII. Such ids are legal: clients in other languages start them.
//
// The SDK repeats the id in the header temporal-resource-id of each call, for proxies
// that route by it, and gRPC refuses a header that is not printable ASCII. Without the
// header a call is as one of an SDK that does not know it: the server reads the id in
// the request.
package resourceid

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

const header = "temporal-resource-id"

// DialOption leaves the header out of each call in which it could not be sent. Put it
// behind all other options: the SDK sets the header in an interceptor of its own, and
// this one must come after it.
func DialOption() grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(
		ctx context.Context, method string, request, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		return invoke(sendable(ctx), method, request, reply, cc, opts...)
	})
}

func sendable(ctx context.Context) context.Context {
	sent, _ := metadata.FromOutgoingContext(ctx) // a copy
	if !slices.ContainsFunc(sent.Get(header), func(id string) bool { return !Printable(id) }) {
		return ctx
	}
	sent.Delete(header)
	return metadata.NewOutgoingContext(ctx, sent)
}

// Printable reports whether an id is printable ASCII, which a client without
// DialOption can send.
func Printable(id string) bool {
	return !slices.ContainsFunc([]byte(id), func(b byte) bool { return b < ' ' || b > '~' })
}
