package activities

import (
	"bytes"
	"encoding/json"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
)

// readableJSON returns the arguments as one JSON array, each as its own bytes,
// so that no number is altered. It is nil unless every argument is readable: an
// encrypted or binary one is kept only as the wire held it.
func readableJSON(args []*commonpb.Payload) json.RawMessage {
	parts := make([][]byte, 0, len(args))
	for _, arg := range args {
		part := elementJSON(arg)
		if part == nil {
			return nil
		}
		parts = append(parts, part)
	}
	return append(append([]byte("["), bytes.Join(parts, []byte(","))...), ']')
}

// elementJSON returns a payload's JSON as its own bytes, nil if it has none.
func elementJSON(payload *commonpb.Payload) []byte {
	switch string(payload.GetMetadata()[converter.MetadataEncoding]) {
	case converter.MetadataEncodingNil:
		return []byte("null")
	case converter.MetadataEncodingJSON, converter.MetadataEncodingProtoJSON:
		if json.Valid(payload.GetData()) {
			return payload.GetData()
		}
	}
	return nil
}
