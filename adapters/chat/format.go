package chat

import (
	"encoding/json"
	"fmt"

	"inbox/agents/runtime/value"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
)

// schemaWish is a schema that an answer has to have, as clients write it.
type schemaWish struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"`
	Strict      bool            `json:"strict"`
}

// formatWish is the form of an answer as clients of both endpoints write it: a completion has the schema in a member of its own.
type formatWish struct {
	schemaWish

	Type       string      `json:"type"`
	JSONSchema *schemaWish `json:"json_schema"`
}

// maxSchemaList bounds the lists of a schema: each value of an answer may be compared with each of an enum. It is OpenAI's limit of an enum.
const maxSchemaList = 1000

// longestList returns the length of the longest list in a schema.
func longestList(schema any) (length int) {
	switch typed := schema.(type) {
	case []any:
		length = len(typed)
		for _, item := range typed {
			length = max(length, longestList(item))
		}
	case map[string]any:
		for _, member := range typed {
			length = max(length, longestList(member))
		}
	}
	return length
}

// formatOf reads the form that the answer has to have. One that the agent cannot give is refused.
func (c *completion) formatOf(wish json.RawMessage, field string) (*exchange.Format, error) {
	if !given(wish) {
		return nil, nil
	}

	var asked formatWish
	if err := json.Unmarshal(wish, &asked); err != nil {
		return nil, fault.InField(field, "must be an object with a type")
	}
	format := &exchange.Format{Kind: asked.Type}
	switch asked.Type {
	case "text":
		return nil, nil
	case exchange.FormatObject:
	case exchange.FormatSchema:
		schema := asked.schemaWish
		if asked.JSONSchema != nil {
			schema = *asked.JSONSchema
		}
		var object map[string]json.RawMessage
		if json.Unmarshal(schema.Schema, &object) != nil || object == nil {
			return nil, fault.InField(field, "needs a schema that is an object")
		}
		if len(schema.Schema)+len(schema.Description)+len(schema.Name) > exchange.MaxFormat {
			return nil, &fault.Fault{Kind: fault.TooLarge, Field: field, Public: fmt.Sprintf("has over %d KiB, which is the limit", exchange.MaxFormat>>10)}
		}
		read, err := value.Decode(schema.Schema, value.Limits{Bytes: exchange.MaxFormat}) // as the answer is checked
		if err != nil {
			return nil, fault.InField(field, "has a schema that nests too deeply")
		}
		if longestList(read) > maxSchemaList {
			return nil, fault.InField(field, fmt.Sprintf("has a schema with a list, such as enum, of over %d values, which is the limit", maxSchemaList))
		}
		format.Name, format.Description, format.Schema, format.Strict = schema.Name, schema.Description, schema.Schema, schema.Strict
	default:
		return nil, fault.InField(field+".type", "must be text, json_object or json_schema")
	}

	if !c.api.options.Formats(c.agent.Name, asked.Type) {
		return nil, unsupported(field, "cannot be "+asked.Type+": this agent cannot hold its answers to a form")
	}
	return format, nil
}

// formed returns a response without what would break its form: the lines of the sources.
func formed(response normalized.Response) normalized.Response {
	response.Parts, _ = normalized.Cited(response.Parts)
	return response
}
