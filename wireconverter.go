package deadletter

import (
	"context"
	"reflect"
	"strings"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/proto"

	"github.com/deadletter-dev/deadletter/internal/wire"
)

// wireConverter has the plugin's own values travel as JSON through a data converter that
// writes something else, and lets raw payloads through one that does not know
// converter.RawValue. The application's values are left to that converter.
type wireConverter struct {
	converter.DataConverter
	// knowsRaw says that the converter takes and gives converter.RawValue, as those of
	// the SDK do. The plugin's values then go through its codec, and else past it.
	knowsRaw bool
}

func newWireConverter(own converter.DataConverter) converter.DataConverter {
	return wireConverter{own, knowsRaw(own)}
}

func knowsRaw(c converter.DataConverter) bool {
	probe := &commonpb.Payload{
		Metadata: map[string][]byte{converter.MetadataEncoding: []byte(converter.MetadataEncodingJSON)}, Data: []byte(`"probe"`),
	}
	var back converter.RawValue
	encoded, err := c.ToPayload(converter.NewRawValue(probe))
	if err == nil {
		err = c.FromPayload(encoded, &back)
	}
	if err == nil {
		return proto.Equal(probe, back.Payload())
	}
	// A codec that fails at the moment must not be passed by.
	_, err = c.ToPayload("probe")
	return err != nil
}

// own reports whether a value, or what a pointer points to, is of one of this module's types.
func own(value any) bool {
	t := reflect.TypeOf(value)
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t != nil && (t.PkgPath() == module || strings.HasPrefix(t.PkgPath(), module+"/"))
}

var module = reflect.TypeFor[Job]().PkgPath()

// ToPayload encodes one value.
func (c wireConverter) ToPayload(value any) (*commonpb.Payload, error) {
	raw, ok := value.(converter.RawValue)
	if !ok {
		if !own(value) {
			return c.DataConverter.ToPayload(value)
		}
		payload, err := converter.GetDefaultDataConverter().ToPayload(value)
		if err != nil {
			return nil, err
		}
		raw = converter.NewRawValue(payload)
	}
	if c.knowsRaw {
		return c.DataConverter.ToPayload(raw)
	}
	return raw.Payload(), nil
}

// FromPayload decodes one value.
func (c wireConverter) FromPayload(payload *commonpb.Payload, into any) error {
	target, ok := into.(*converter.RawValue)
	if !ok && !own(into) {
		return c.DataConverter.FromPayload(payload, into)
	}
	raw := converter.NewRawValue(payload)
	if c.knowsRaw {
		if err := c.DataConverter.FromPayload(payload, &raw); err != nil {
			return err
		}
	}
	switch {
	case ok:
		*target = raw
		return nil
	case wire.IsCodec(wire.Encoding(raw.Payload())): // written by a client without the plugin
		return c.DataConverter.FromPayload(payload, into)
	default:
		return converter.GetDefaultDataConverter().FromPayload(raw.Payload(), into)
	}
}

// leaves reports whether the application's converter can take all values at once, as
// it does for a codec that calls a server.
func (c wireConverter) leaves(values []any) bool {
	for _, value := range values {
		switch value.(type) {
		case converter.RawValue, *converter.RawValue:
			if !c.knowsRaw {
				return false
			}
		default:
			if own(value) {
				return false
			}
		}
	}
	return true
}

// ToPayloads encodes several values.
func (c wireConverter) ToPayloads(values ...any) (*commonpb.Payloads, error) {
	if c.leaves(values) {
		return c.DataConverter.ToPayloads(values...)
	}
	encoded := new(commonpb.Payloads)
	for _, value := range values {
		payload, err := c.ToPayload(value)
		if err != nil {
			return nil, err
		}
		encoded.Payloads = append(encoded.Payloads, payload)
	}
	return encoded, nil
}

// FromPayloads decodes as many values as there are on both sides.
func (c wireConverter) FromPayloads(payloads *commonpb.Payloads, into ...any) error {
	if c.leaves(into) {
		return c.DataConverter.FromPayloads(payloads, into...)
	}
	for i, payload := range payloads.GetPayloads() {
		if i == len(into) {
			break
		}
		if err := c.FromPayload(payload, into[i]); err != nil {
			return err
		}
	}
	return nil
}

// WithWorkflowContext hands the context on.
func (c wireConverter) WithWorkflowContext(ctx workflow.Context) converter.DataConverter {
	if aware, ok := c.DataConverter.(workflow.ContextAware); ok {
		c.DataConverter = aware.WithWorkflowContext(ctx)
	}
	return c
}

// WithContext hands the context on.
func (c wireConverter) WithContext(ctx context.Context) converter.DataConverter {
	if aware, ok := c.DataConverter.(workflow.ContextAware); ok {
		c.DataConverter = aware.WithContext(ctx)
	}
	return c
}

// WithSerializationContext hands the context on.
func (c wireConverter) WithSerializationContext(ctx converter.SerializationContext) converter.DataConverter {
	if aware, ok := c.DataConverter.(converter.DataConverterWithSerializationContext); ok {
		c.DataConverter = aware.WithSerializationContext(ctx)
	}
	return c
}
