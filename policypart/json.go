package policypart

import (
	"encoding/json"
	"errors"
	"maps"

	"inbox/identity"
)

// plainPart is Part without its methods, for encoding/json.
type plainPart Part

// partKeys are the keys of this contract; all others are Extra.
var partKeys = []string{
	"kind", "code", "title", "message", "message_translations", "url", "action_label", "data", "scopes", "expires_at",
	"auth_challenges", "same_person", "accepts", "amount", "currency", "retry_after_seconds", "blocked_by",
}

// MarshalJSON writes the keys of the contract, then Extra in the order of its keys.
func (p Part) MarshalJSON() ([]byte, error) {
	body, err := json.Marshal(plainPart(p))
	if err != nil || len(p.Extra) == 0 {
		return body, err
	}
	return identity.AppendMembers(body, p.Extra)
}

// UnmarshalJSON reads an object and keeps the keys that it does not know in Extra.
func (p *Part) UnmarshalJSON(data []byte) error {
	var plain plainPart
	if err := json.Unmarshal(data, &plain); err != nil {
		return err
	}
	*p = Part(plain)
	extra, err := identity.UnknownMembers(data, partKeys)
	p.Extra = extra
	return err
}

// MarshalJSON writes the scheme and its parameters side by side.
func (c Challenge) MarshalJSON() ([]byte, error) {
	members := make(map[string]string, len(c.Params)+1)
	maps.Copy(members, c.Params)
	members["scheme"] = c.Scheme
	return json.Marshal(members)
}

// UnmarshalJSON reads an object of strings; null parameters count as absent.
func (c *Challenge) UnmarshalJSON(data []byte) error {
	var members map[string]*string
	if err := json.Unmarshal(data, &members); err != nil {
		return errors.New("a challenge must be an object of strings")
	}

	*c = Challenge{}
	for name, value := range members {
		switch {
		case value == nil:
		case name == "scheme":
			c.Scheme = *value
		default:
			c.set(name, *value)
		}
	}

	return nil
}

func (c *Challenge) set(name, value string) {
	if c.Params == nil {
		c.Params = map[string]string{}
	}
	c.Params[name] = value
}
