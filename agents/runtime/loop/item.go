package loop

import (
	"fmt"
	"maps"

	"inbox/agents/runtime/envelope"
)

// Schema and version of a compaction item, the unit that is summarized or archived (agent runtime contract, section
// 3.9).
const (
	CompactionItemSchema  = "agents-api.compaction-item"
	CompactionItemVersion = 1
)

// NormalizeCompactionItem brings an item into the form {schema, version, id, type, content, metadata, group?,
// boundary?}. An item without id gets one from its content and its index in the list, -1 for none. Errors have the code
// invalid_ai_compaction_item.
func NormalizeCompactionItem(raw map[string]any, index int) (map[string]any, error) {
	kind, err := itemText(raw["type"], "type")
	if err != nil {
		return nil, err
	}
	content, has := raw["content"]
	if _, isText := content.(string); !has || (!isText && !envelope.Container(content)) {
		reason := "must be a string or array"
		if !has {
			reason = "is required"
		}
		return nil, itemError("content", reason)
	}
	metadata, boundary := raw["metadata"], raw["boundary"]
	switch {
	case metadata != nil && !envelope.Container(metadata):
		return nil, itemError("metadata", "must be an array")
	case boundary != nil && !envelope.Container(boundary):
		return nil, itemError("boundary", "must be an array")
	}
	item := map[string]any{"type": kind, "content": content, "metadata": envelope.Assoc(metadata)}
	if raw["group"] != nil {
		if item["group"], err = itemText(raw["group"], "group"); err != nil {
			return nil, err
		}
	}
	if boundary != nil {
		item["boundary"] = envelope.Assoc(boundary)
	}
	return identified(item, raw["id"], index)
}

func identified(item map[string]any, id any, index int) (map[string]any, error) {
	if id != nil {
		text, err := itemText(id, "id")
		item["id"] = text
		return withItemSchema(item), err
	}
	source := maps.Clone(item)
	for name, absent := range map[string]any{"group": nil, "boundary": nil} {
		if _, has := source[name]; !has {
			source[name] = absent
		}
	}
	source["index"] = nil
	if index >= 0 {
		source["index"] = index
	}
	item["id"] = "item-" + digest16(source)
	return withItemSchema(item), nil
}

func withItemSchema(item map[string]any) map[string]any {
	item["schema"], item["version"] = CompactionItemSchema, CompactionItemVersion
	return item
}

// NormalizeCompactionItems normalizes a list and stops at the first bad item.
func NormalizeCompactionItems(value any) ([]map[string]any, error) {
	rows, is := envelope.List(value)
	if !is {
		return nil, itemError("items", "must be an array")
	}
	items := make([]map[string]any, 0, len(rows))
	for i, row := range rows {
		raw, is := envelope.Object(row)
		if !is {
			return nil, itemError("item", "must be an array")
		}
		item, err := NormalizeCompactionItem(raw, i)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, nil
}

// CompactionItemOf makes an item of a message: type "message:<type>", its content, and role and payload in the
// metadata.
func CompactionItemOf(message envelope.Envelope, index int) (map[string]any, error) {
	metadata := maps.Clone(orEmpty(message.Metadata))
	metadata["message"] = map[string]any{"role": message.Role, "payload": orEmpty(message.Payload)}
	raw := map[string]any{"type": fmt.Sprintf("message:%s", message.Type), "content": message.Content, "metadata": metadata}
	if message.ID != "" {
		raw["id"] = message.ID
	}
	return NormalizeCompactionItem(raw, index)
}

func itemText(value any, name string) (string, error) {
	text, has := envelope.NonBlank(value)
	if !has {
		return "", itemError(name, "must be a non-empty string")
	}
	return text, nil
}

func itemError(path, reason string) error { return invalid(codeCompactionItem, path, reason) }
