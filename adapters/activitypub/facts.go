package activitypub

import (
	"encoding/json"
	"fmt"
	"strings"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/notetext"
	"inbox/normalized"
)

const (
	maxFacts     = 64  // emoji, and hashtags, of one note
	maxFactBytes = 256 // of a name
)

// noteFacts are things about a note that its text does not say. They ride in the sender's profile under "activitypub":
// context, and never authorization.
type noteFacts struct {
	Type      string        `json:"type,omitempty"` // of the object, when it is no Note
	Sensitive bool          `json:"sensitive,omitempty"`
	Hashtags  []string      `json:"hashtags,omitempty"`
	Emoji     []customEmoji `json:"emoji,omitempty"` // :name: stays in the text
}

// customEmoji is a picture that people saw in place of :name:.
type customEmoji struct {
	Name string `json:"name"`
	URL  string `json:"url"`
}

func (q *question) facts() noteFacts {
	var facts noteFacts
	if kind := document.Type(q.object); kind != "Note" {
		facts.Type = notetext.Visible(kind, maxFactBytes)
	}
	facts.Sensitive, _ = q.object["sensitive"].(bool)
	for _, entry := range document.List(q.object["tag"]) {
		tag, _ := entry.(document.Object)
		name := notetext.Visible(document.Text(tag, "name"), maxFactBytes)
		switch {
		case name == "":
		case document.IsA(tag, "Hashtag") && len(facts.Hashtags) < maxFacts:
			facts.Hashtags = append(facts.Hashtags, "#"+strings.TrimPrefix(name, "#"))
		case document.IsA(tag, "Emoji") && len(facts.Emoji) < maxFacts:
			if icon := document.Embedded(tag["icon"]); icon != nil && notetext.IsAddress(document.Href(icon["url"])) {
				facts.Emoji = append(facts.Emoji, customEmoji{name, document.Href(icon["url"])})
			}
		}
	}
	return facts
}

// addFacts puts what the text does not say into the profile.
func (q *question) addFacts(profile *normalized.SenderProfile) error {
	body, err := json.Marshal(q.facts())
	if err != nil {
		return fmt.Errorf("encode facts: %w", err)
	}
	if string(body) != "{}" {
		profile.Extensions = map[string]json.RawMessage{"activitypub": body}
	}
	return nil
}
