package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"inbox/agents/runtime/envelope"
)

// Entry is one tool as somebody declared it, before anything is checked.
type Entry struct {
	Name  string // the key it stood under, "" in a list
	Value any

	properties []string // order of parameters.properties, where the text is known
}

// Entries reads a declaration set that is a list or an object by names. The members of a map have no order, so they are
// taken in that of their names; where the order of the text matters, use DecodeEntries.
func Entries(value any) []Entry {
	switch set := envelope.Plain(value).(type) {
	case []any:
		entries := make([]Entry, len(set))
		for index, item := range set {
			entries[index] = Entry{Value: item}
		}
		return entries
	case map[string]any:
		entries := make([]Entry, 0, len(set))
		for _, name := range slices.Sorted(maps.Keys(set)) {
			entries = append(entries, Entry{Name: name, Value: set[name]})
		}
		return entries
	default:
		return nil
	}
}

// DecodeEntries is Entries for JSON text, in the order of the text. It reads no more than envelope.Decode does.
func DecodeEntries(text []byte) ([]Entry, error) {
	if _, err := envelope.Decode(text, envelope.Limits{}); err != nil {
		return nil, fmt.Errorf("read tool declarations: %w", err)
	}
	var entries []Entry
	for _, raw := range rawMembers(text) {
		value, err := envelope.Decode(raw.value, envelope.Limits{})
		if err != nil {
			return nil, fmt.Errorf("read tool declarations: %w", err)
		}
		entries = append(entries, Entry{Name: raw.name, Value: value, properties: propertyOrder(raw.value)})
	}
	return entries, nil
}

type rawMember struct {
	name  string // "" for the item of a list
	value json.RawMessage
}

// rawMembers splits an object or a list into its members, each name once at the place where it stood first. It expects
// text that was read before.
func rawMembers(text []byte) []rawMember {
	decoder := json.NewDecoder(bytes.NewReader(text))
	opening, err := decoder.Token()
	if err != nil || (opening != json.Delim('{') && opening != json.Delim('[')) {
		return nil
	}
	var found []rawMember
	places := map[string]int{}
	for decoder.More() {
		var member rawMember
		if opening == json.Delim('{') {
			key, _ := decoder.Token()
			member.name, _ = key.(string)
		}
		if decoder.Decode(&member.value) != nil {
			return found
		}
		place, known := places[member.name]
		switch {
		case opening == json.Delim('[') || !known:
			places[member.name] = len(found)
			found = append(found, member)
		default:
			found[place] = member
		}
	}
	return found
}

// propertyOrder lists the names under parameters.properties of a declaration, or under parameters where there are no
// properties, in the order of the text.
func propertyOrder(declaration json.RawMessage) []string {
	parameters := memberOf(declaration, "parameters")
	properties := memberOf(parameters, "properties")
	if properties == nil {
		properties = parameters
	}
	var names []string
	for _, member := range rawMembers(properties) {
		names = append(names, member.name)
	}
	return names
}

func memberOf(object json.RawMessage, name string) json.RawMessage {
	for _, member := range rawMembers(object) {
		if member.name == name {
			return member.value
		}
	}
	return nil
}
