package a2a

import (
	"unicode/utf8"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	protov2 "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"inbox/internal/boundedjson"
)

// boundedCodec reads requests of gRPC within the bounds of those in JSON. A message that is out of them, or none at all, is
// handed on empty with a note in its unknown fields, because gRPC answers an error of a codec itself: with INTERNAL and
// the text of its own decoder.
type boundedCodec struct{ encoding.CodecV2 }

func newBoundedCodec() boundedCodec { return boundedCodec{encoding.GetCodecV2(proto.Name)} }

// noteField is a field number that no message of the protocol has: the note is one varint, a key of codecNotes.
const noteField = protowire.Number(536_870_911)

const (
	noteMalformed = iota + 1
	noteTooDeep
	noteTooMany
	noteNotUTF8
)

// Unmarshal counts a request before it is decoded.
func (c boundedCodec) Unmarshal(data mem.BufferSlice, into any) error {
	message, is := into.(protov2.Message)
	if !is {
		return c.CodecV2.Unmarshal(data, into)
	}
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	encoded := buffer.ReadOnlyData()
	counted := wireCounter{}
	note := counted.message(encoded, message.ProtoReflect().Descriptor(), 1)
	if note == 0 && protov2.Unmarshal(encoded, message) != nil {
		note = noteMalformed
	}
	if note != 0 {
		protov2.Reset(message)
		message.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, noteField, protowire.VarintType), note))
	}
	return nil
}

// codecProblem is what the codec noted of a request; nil when it was read.
func codecProblem(request any) *problem {
	message, is := request.(protov2.Message)
	if !is {
		return nil
	}
	number, kind, size := protowire.ConsumeTag(message.ProtoReflect().GetUnknown())
	if size < 0 || number != noteField || kind != protowire.VarintType {
		return nil
	}
	note, _ := protowire.ConsumeVarint(message.ProtoReflect().GetUnknown()[size:])
	switch note {
	case noteTooDeep:
		return outOfBounds(&boundedjson.Error{Reason: boundedjson.TooDeep, Limit: maxRequestDepth})
	case noteTooMany:
		return outOfBounds(&boundedjson.Error{Reason: boundedjson.TooMany, Limit: maxRequestValues})
	case noteNotUTF8:
		return newProblem(a2a.ErrInvalidParams, "a text of the request is not valid UTF-8")
	}
	return newProblem(a2a.ErrInvalidParams, "the request cannot be read")
}

// wireCounter counts fields and nesting of an encoded message, and looks whether its texts are UTF-8.
type wireCounter struct{ values int }

func (c *wireCounter) message(encoded []byte, kind protoreflect.MessageDescriptor, depth int) (note uint64) {
	// A value of a Struct nests in three messages where JSON nests once.
	if depth > 3*maxRequestDepth {
		return noteTooDeep
	}
	for len(encoded) > 0 {
		if c.values++; c.values > 3*maxRequestValues {
			return noteTooMany
		}
		number, wireType, size := protowire.ConsumeTag(encoded)
		if size < 0 {
			return noteMalformed
		}
		encoded = encoded[size:]
		length := protowire.ConsumeFieldValue(number, wireType, encoded)
		if length < 0 {
			return noteMalformed
		}
		field := kind.Fields().ByNumber(number)
		if field != nil && wireType == protowire.BytesType {
			content, _ := protowire.ConsumeBytes(encoded)
			switch field.Kind() {
			case protoreflect.MessageKind:
				if note := c.message(content, field.Message(), depth+1); note != 0 {
					return note
				}
			case protoreflect.StringKind:
				if !utf8.Valid(content) {
					return noteNotUTF8
				}
			}
		}
		encoded = encoded[length:]
	}
	return 0
}
