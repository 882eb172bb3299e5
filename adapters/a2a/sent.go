package a2a

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/exchange"
	"inbox/normalized"
	"inbox/policypart"
)

// sent is what a message was on the wire beyond what the normalized message keeps, in the terms of 1.0, so that the history of
// a task is what was sent. It holds no content that a normalized part has.
type sent struct {
	Metadata   json.RawMessage `json:"metadata,omitempty"` // without proofs and settlements
	Extensions []string        `json:"extensions,omitempty"`
	References []a2a.TaskID    `json:"references,omitempty"`
	Parts      []sentPart      `json:"parts"`
}

type sentPart struct {
	Kind      string          `json:"kind"` // of the content: text, raw, url or data
	At        int             `json:"at,omitempty"`
	Text      string          `json:"text,omitempty"` // where no normalized part has it: At is zero
	MediaType string          `json:"media_type,omitempty"`
	Filename  string          `json:"filename,omitempty"`
	Metadata  json.RawMessage `json:"metadata,omitempty"`
}

const (
	kindText = "text"
	kindRaw  = "raw"
	kindURL  = "url"
	kindData = "data"

	maxSentText     = 1 << 20 // bytes of texts that no normalized part has, of one message
	maxHistoryFiles = 1 << 20 // bytes of stored files in the history of one task; what is over it is named by its digest
)

// rawPart and rawMessage are what of a request the SDK reads into floats.
type rawPart struct {
	Data     json.RawMessage `json:"data"`
	Metadata json.RawMessage `json:"metadata"`
}

type rawMessage struct {
	Metadata json.RawMessage `json:"metadata"`
	Parts    []rawPart       `json:"parts"`
	Content  []rawPart       `json:"content"` // the parts by HTTP+JSON of 0.3
}

type rawRequest struct {
	Message rawMessage `json:"message"`
	Request rawMessage `json:"request"` // the message by HTTP+JSON of 0.3, as its .proto file calls it
}

// exact restores the digits that the numbers in metadata and data of a message had on the wire: the SDK reads them as floats,
// which rounds above 2^53. Whatever the bindings made of the rest of a value stays theirs. By gRPC numbers
// are floats, and data that is no object is nothing for the SDK.
func (c *call) exact(message *a2a.Message) {
	if message == nil || c.stopping != nil && c.old || !hasOpenValues(message) {
		return
	}

	var body struct {
		rawRequest
		Params rawRequest `json:"params"`
	}
	if json.Unmarshal(c.original, &body) != nil {
		return
	}

	for _, raw := range []rawMessage{body.Params.Message, body.Message, body.Request} {
		message.Metadata = exactly(message.Metadata, raw.Metadata)
		parts := slices.Concat(raw.Parts, raw.Content)
		if len(parts) != len(message.Parts) {
			continue
		}

		for i, part := range message.Parts {
			if part == nil {
				continue
			}

			part.Metadata = exactly(part.Metadata, parts[i].Metadata)
			if data, is := part.Content.(a2a.Data); is {
				part.Content = a2a.Data{Value: exactData(data.Value, parts[i].Data)}
				if value, ok := exactValue(parts[i].Data); ok && c.stopping != nil { // the SDK reads objects only
					part.Content = a2a.Data{Value: value}
				}
			}
		}
	}
}

// hasOpenValues reports whether a message has values of any JSON type: metadata, or a part of data.
func hasOpenValues(message *a2a.Message) bool {
	return len(message.Metadata) > 0 || slices.ContainsFunc(message.Parts, func(part *a2a.Part) bool {
		if part == nil {
			return false
		}
		_, is := part.Content.(a2a.Data)
		return is || len(part.Metadata) > 0
	})
}

// exactly is the decoded metadata with the numbers of the document, where the two say the same. What was taken out of the
// metadata stays out.
func exactly(decoded map[string]any, document json.RawMessage) map[string]any {
	if len(decoded) == 0 || len(document) == 0 {
		return decoded
	}
	if value, ok := exactValue(document); ok {
		withDigits(decoded, value)
	}
	return decoded
}

// withDigits returns a decoded value with the numbers of the exact one in the same places.
func withDigits(decoded, exact any) any {
	switch known := decoded.(type) {
	case float64:
		if alike(decoded, exact) {
			return exact
		}
	case []any:
		if items, is := exact.([]any); is && len(items) == len(known) {
			for i := range known {
				known[i] = withDigits(known[i], items[i])
			}
		}
	case map[string]any:
		members, _ := exact.(map[string]any)
		for name := range known {
			if member, has := members[name]; has {
				known[name] = withDigits(known[name], member)
			}
		}
	}
	return decoded
}

// exactData does that for data, which bindings of 0.3 wrap once more.
func exactData(decoded any, document json.RawMessage) any {
	value, ok := exactValue(document)
	for range 3 {
		if !ok {
			return decoded
		}
		if alike(decoded, value) {
			return value
		}

		members, _ := value.(map[string]any)
		if value, ok = members["data"]; !ok {
			value, ok = members["value"]
		}
	}

	return decoded
}

// alike reports whether a value as the SDK decoded it and an exact one are the same but for the digits of numbers.
func alike(decoded, exact any) bool {
	switch known := decoded.(type) {
	case float64:
		number, is := exact.(json.Number)
		read, err := strconv.ParseFloat(string(number), 64)
		return is && err == nil && read == known
	case []any:
		items, is := exact.([]any)
		if !is || len(items) != len(known) {
			return false
		}

		for i := range known {
			if !alike(known[i], items[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		members, is := exact.(map[string]any)
		if !is || len(members) != len(known) {
			return false
		}

		for name := range known {
			member, has := members[name]
			if !has || !alike(known[name], member) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(decoded, exact)
}

// exactValue reads JSON with the digits of its numbers; false for what is none, or has a number that gRPC could not write.
func exactValue(document []byte) (value any, ok bool) {
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	if decoder.Decode(&value) != nil || decoder.More() {
		return nil, false
	}
	return value, finite(value)
}

func finite(value any) bool {
	switch v := value.(type) {
	case json.Number:
		number, err := v.Float64()
		return err == nil && !math.IsInf(number, 0)
	case []any:
		for _, item := range v {
			if !finite(item) {
				return false
			}
		}
	case map[string]any:
		for _, member := range v {
			if !finite(member) {
				return false
			}
		}
	}
	return true
}

// sentOf notes a message; at returns for each of its parts the place of the normalized one, counted from 1, or zero.
func sentOf(message *a2a.Message, at []int, parts []normalized.Part) (*sent, error) {
	noted := &sent{Extensions: message.Extensions, References: message.ReferenceTasks}
	var err error
	if noted.Metadata, err = rawMetadata(message.Metadata); err != nil {
		return nil, err
	}

	texts := 0
	for i, part := range message.Parts {
		p := sentPart{At: at[i], MediaType: part.MediaType, Filename: part.Filename}
		if p.Metadata, err = rawMetadata(part.Metadata); err != nil {
			return nil, err
		}

		switch content := part.Content.(type) {
		case a2a.Text:
			p.Kind = kindText
			if p.At == 0 || parts[p.At-1].Content != string(content) {
				if texts += len(content); texts <= maxSentText {
					p.At, p.Text = 0, string(content)
				}
			}
		case a2a.Raw:
			p.Kind = kindRaw
		case a2a.URL:
			p.Kind, p.At, p.Text = kindURL, 0, string(content)
		case a2a.Data:
			p.Kind = kindData
		}

		noted.Parts = append(noted.Parts, p)
	}

	return noted, nil
}

func rawMetadata(metadata map[string]any) (json.RawMessage, error) {
	if metadata == nil {
		return nil, nil
	}
	return json.Marshal(metadata)
}

// restore fills a message of the history as it was sent.
func (s *tasks) restore(ctx context.Context, message *a2a.Message, noted *sent, turn exchange.TurnRecord, files *int) (err error) {
	message.Extensions, message.ReferenceTasks = noted.Extensions, noted.References
	if message.Metadata, err = exactMetadata(noted.Metadata); err != nil {
		return fmt.Errorf("read metadata of message %s: %w", turn.ID, err)
	}

	for _, p := range noted.Parts {
		part := &a2a.Part{MediaType: p.MediaType, Filename: p.Filename}
		if part.Metadata, err = exactMetadata(p.Metadata); err != nil {
			return fmt.Errorf("read metadata of a part of message %s: %w", turn.ID, err)
		}
		if part.Content, err = s.restoreContent(ctx, p, turn.Message.Parts, files); err != nil {
			return err
		}

		if part.Content != nil {
			message.Parts = append(message.Parts, part)
		}
	}

	return nil
}

func exactMetadata(document json.RawMessage) (map[string]any, error) {
	if len(document) == 0 {
		return nil, nil
	}
	var metadata map[string]any
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	return metadata, decoder.Decode(&metadata)
}

func policyData(policy policypart.Part) (a2a.PartContent, error) {
	encoded, err := json.Marshal(policy)
	if err != nil {
		return nil, fmt.Errorf("write policy part: %w", err)
	}
	value, _ := exactValue(encoded)
	return a2a.Data{Value: value}, nil
}

// restoreContent returns nil for a content that is not kept any more.
func (s *tasks) restoreContent(ctx context.Context, p sentPart, parts []normalized.Part, files *int) (a2a.PartContent, error) {
	switch {
	case p.Kind == kindURL:
		return a2a.URL(p.Text), nil
	case p.At == 0:
		return a2a.Text(p.Text), nil
	case p.At > len(parts):
		return nil, nil
	}

	kept := parts[p.At-1]
	if p.Kind == kindText {
		return a2a.Text(kept.Content), nil
	}
	if kept.Policy != nil {
		return policyData(*kept.Policy)
	}
	if kept.BytesRef == nil {
		return nil, nil
	}

	var content []byte
	if kept.BytesRef.Kind == normalized.BytesInline {
		inline, err := kept.BytesRef.Bytes()
		if err != nil {
			return nil, fmt.Errorf("read inline bytes: %w", err)
		}
		content = inline
	} else {
		if kept.Size > int64(*files) {
			return a2a.URL(digestURI(kept.BytesRef.Digest)), nil
		}
		stored, err := s.readBlob(ctx, kept.BytesRef.Digest)
		if err != nil {
			return nil, err
		}
		*files -= len(stored)
		content = stored
	}

	if p.Kind == kindData {
		if value, is := exactValue(content); is {
			return a2a.Data{Value: value}, nil
		}
	}

	return a2a.Raw(content), nil
}
