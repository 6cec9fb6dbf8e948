// Package wire reads and changes the payloads that a dead letter keeps as the
// wire held them. What it is not asked to change stays byte for byte, also in the
// protobuf around it.
package wire

import (
	"bytes"
	"encoding/json"
	"errors"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// ReadableJSON returns payloads as one JSON array, each as its own bytes, so that
// no number is altered. It is nil unless every payload is readable: an encrypted
// or binary one is kept only as the wire held it.
func ReadableJSON(payloads []*commonpb.Payload) json.RawMessage {
	parts := make([][]byte, 0, len(payloads))
	for _, payload := range payloads {
		part := ElementJSON(payload)
		if part == nil {
			return nil
		}
		parts = append(parts, part)
	}
	return append(append([]byte("["), bytes.Join(parts, []byte(","))...), ']')
}

// ElementJSON returns a payload's JSON as its own bytes, nil if it has none.
func ElementJSON(payload *commonpb.Payload) []byte {
	switch Encoding(payload) {
	case converter.MetadataEncodingNil:
		return []byte("null")
	case converter.MetadataEncodingJSON, converter.MetadataEncodingProtoJSON:
		if len(payload.GetExternalPayloads()) == 0 && json.Valid(payload.GetData()) {
			return payload.GetData()
		}
	}
	return nil
}

// Encoding returns the name of a payload's encoding.
func Encoding(payload *commonpb.Payload) string {
	return string(payload.GetMetadata()[converter.MetadataEncoding])
}

// IsCodec reports whether the encoding is none of the SDK's own: a codec,
// encryption say, has been at work.
func IsCodec(encoding string) bool {
	switch encoding {
	case converter.MetadataEncodingNil, converter.MetadataEncodingJSON, converter.MetadataEncodingProtoJSON,
		converter.MetadataEncodingBinary, converter.MetadataEncodingProto:
		return false
	default:
		return true
	}
}

// ErrNotPayloads: the bytes are not the protobuf message that they should be.
var ErrNotPayloads = errors.New("the stored bytes are no Temporal payloads")

// Numbers of fields in temporal.api.common.v1.
const (
	payloadsField = 1 // Payloads.payloads
	dataField     = 2 // Payload.data
)

// Payloads is a message Payloads, taken apart.
type Payloads struct {
	// Each is the bytes of one Payload.
	Each [][]byte
	// rest is what else the message holds.
	rest []byte
}

// Split takes a message Payloads apart.
func Split(message []byte) (Payloads, error) {
	var p Payloads
	err := fields(message, func(number protowire.Number, content, whole []byte) {
		if number == payloadsField && content != nil {
			p.Each = append(p.Each, content)
		} else {
			p.rest = append(p.rest, whole...)
		}
	})
	return p, err
}

// Join puts the message together again.
func (p Payloads) Join() []byte {
	message := []byte{}
	for _, payload := range p.Each {
		message = protowire.AppendTag(message, payloadsField, protowire.BytesType)
		message = protowire.AppendBytes(message, payload)
	}
	return append(message, p.rest...)
}

// Decode reads one Payload.
func Decode(payload []byte) (*commonpb.Payload, error) {
	decoded := new(commonpb.Payload)
	if err := proto.Unmarshal(payload, decoded); err != nil {
		return nil, ErrNotPayloads // the cause may quote the bytes
	}
	return decoded, nil
}

// WithData returns a Payload with other data; its metadata stays.
func WithData(payload, data []byte) ([]byte, error) {
	var changed []byte
	written := false
	write := func() {
		if !written {
			changed = protowire.AppendTag(changed, dataField, protowire.BytesType)
			changed = protowire.AppendBytes(changed, data)
			written = true
		}
	}
	err := fields(payload, func(number protowire.Number, content, whole []byte) {
		if number == dataField && content != nil {
			write()
		} else {
			changed = append(changed, whole...)
		}
	})
	write() // a message without data has no such field
	return changed, err
}

// NewJSON returns a Payload with the SDK's encoding for JSON.
func NewJSON(data []byte) []byte {
	payload, err := proto.MarshalOptions{Deterministic: true}.Marshal(&commonpb.Payload{
		Metadata: map[string][]byte{converter.MetadataEncoding: []byte(converter.MetadataEncodingJSON)},
		Data:     data,
	})
	if err != nil {
		panic(err) // such a message always encodes
	}
	return payload
}

// fields calls visit with each field of a message: content is nil for one that is
// not length-delimited, and whole has its tag too.
func fields(message []byte, visit func(number protowire.Number, content, whole []byte)) error {
	for len(message) > 0 {
		number, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return ErrNotPayloads
		}
		length := protowire.ConsumeFieldValue(number, kind, message[tag:])
		if length < 0 {
			return ErrNotPayloads
		}
		whole := message[: tag+length : tag+length]
		var content []byte
		if kind == protowire.BytesType {
			content, _ = protowire.ConsumeBytes(whole[tag:])
			if content == nil {
				content = []byte{}
			}
		}
		visit(number, content, whole)
		message = message[tag+length:]
	}
	return nil
}
