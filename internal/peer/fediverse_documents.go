package peer

import (
	"encoding/json"
	"slices"
	"strings"
)

// object is a document that we write.
type object map[string]any

type webFingerDocument struct {
	Subject string          `json:"subject"`
	Aliases []string        `json:"aliases,omitempty"`
	Links   []webFingerLink `json:"links"`
}

type webFingerLink struct {
	Rel  string `json:"rel"`
	Type string `json:"type,omitempty"`
	Href string `json:"href,omitempty"`
}

// actorDocument is what we read of someone's actor.
type actorDocument struct {
	Context           texts  `json:"@context"`
	ID                string `json:"id"`
	Type              string `json:"type"`
	PreferredUsername string `json:"preferredUsername"`
	Inbox             string `json:"inbox"`
	PublicKey         struct {
		ID           string `json:"id"`
		Owner        string `json:"owner"`
		PublicKeyPEM string `json:"publicKeyPem"`
	} `json:"publicKey"`
}

// activityDocument is what we read of an activity.
type activityDocument struct {
	Context texts           `json:"@context"`
	ID      string          `json:"id"`
	Type    string          `json:"type"`
	Actor   string          `json:"actor"`
	Object  json.RawMessage `json:"object"`
}

// noteDocument is what we read of a note.
type noteDocument struct {
	ID           string `json:"id"`
	Type         string `json:"type"`
	AttributedTo string `json:"attributedTo"`
	InReplyTo    string `json:"inReplyTo"`
	Content      string `json:"content"`
	To           texts  `json:"to"`
	Cc           texts  `json:"cc"`
	Tag          []struct {
		Type string `json:"type"`
		Href string `json:"href"`
		Name string `json:"name"`
	} `json:"tag"`
}

// mentions reports whether the note notifies the actor the way Mastodon demands: a Mention tag and the address.
func (n noteDocument) mentions(actor string) bool {
	for _, tag := range n.Tag {
		if tag.Type == "Mention" && tag.Href == actor {
			return slices.Contains(n.To, actor) || slices.Contains(n.Cc, actor)
		}
	}
	return false
}

// others returns to whom else than the actor the note is addressed.
func (n noteDocument) others(actor string) string {
	addressed := slices.Concat(n.To, n.Cc)
	for _, tag := range n.Tag {
		if tag.Type == "Mention" {
			addressed = append(addressed, tag.Href)
		}
	}
	addressed = slices.DeleteFunc(addressed, func(one string) bool { return one == actor })
	return strings.Join(addressed, ", ")
}

// texts reads a string or a list and keeps the strings of it: @context lists also hold objects.
type texts []string

// UnmarshalJSON never fails on a list with other things in it.
func (t *texts) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*t = texts{one}
		return nil
	}

	var many []any
	if err := json.Unmarshal(data, &many); err != nil {
		return err
	}

	for _, item := range many {
		if text, ok := item.(string); ok {
			*t = append(*t, text)
		}
	}

	return nil
}
