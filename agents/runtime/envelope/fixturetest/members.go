package fixturetest

import (
	"bytes"
	"encoding/json"
	"fmt"

	"inbox/agents/runtime/value"
)

// Member is a member of an object, or an item of a list, which has no name.
type Member struct {
	Name  string
	Value any
	Text  json.RawMessage
}

// Members splits an object or a list in the order of the text, each name once at the place where it stood first: for
// records in which that order counts.
func Members(text []byte) ([]Member, error) {
	if _, err := value.Decode(text, recorded); err != nil {
		return nil, fmt.Errorf("read members: %w", err)
	}

	decoder := json.NewDecoder(bytes.NewReader(text))
	opening, err := decoder.Token()
	if err != nil || (opening != json.Delim('{') && opening != json.Delim('[')) {
		return nil, err
	}

	var found []Member
	places := map[string]int{}
	for decoder.More() {
		var member Member
		if opening == json.Delim('{') {
			key, _ := decoder.Token()
			member.Name, _ = key.(string)
		}
		if err := decoder.Decode(&member.Text); err != nil {
			return nil, fmt.Errorf("read members: %w", err)
		}
		if member.Value, err = value.Decode(member.Text, recorded); err != nil {
			return nil, fmt.Errorf("read members: %w", err)
		}

		place, known := places[member.Name]
		if opening == json.Delim('{') && known {
			found[place] = member
			continue
		}
		places[member.Name] = len(found)
		found = append(found, member)
	}
	return found, nil
}

// MemberText returns the text of a member, nil if the object has none of the name.
func MemberText(object []byte, name string) json.RawMessage {
	members, _ := Members(object)
	for _, member := range members {
		if member.Name == name {
			return member.Text
		}
	}
	return nil
}
