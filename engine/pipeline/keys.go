package pipeline

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"inbox/engine/demand"
	"inbox/internal/redact"
	"inbox/normalized"
)

// hiddenFile stands in the place of a file that holds a key of this server and is no plain text.
const hiddenFile = "[file removed: it holds a link of this server]"

// keys are what hides keys of this server.
func (s *core) keys() *redact.Redactor {
	if s.options.Keys == nil {
		return new(redact.Redactor)
	}
	return s.options.Keys()
}

// hideKeys takes the addresses and codes of this server that open something out of a message: a reply quotes the mail that it answers,
// and the agent must not get the key to a decision about itself. It comes before anything is stored.
func (s *acceptor) hideKeys(_ context.Context, a *acceptance) (string, error) {
	message, r := &a.in.Message, s.keys()
	typed := sync.OnceValue(func() bool { // asked of the message as it came, and only where there is something to hide
		said, decides := demand.ReadDecision(*message)
		return decides && said.Code != ""
	})

	message.Parts = s.withoutKeys(message.Parts, func(text string) string {
		clean := r.Text(text)
		if clean != text && typed() { // the code that an approver typed is read later
			return r.Links(text)
		}
		return clean
	})
	hideInSender(r, message)
	return outcomeNext, nil
}

// hideInSender hides keys in what a message says beside its parts.
func hideInSender(r *redact.Redactor, message *normalized.Message) {
	sender := &message.Sender
	if sender.Profile == nil && message.Surface == nil {
		sender.DisplayName = r.Text(sender.DisplayName)
		return
	}

	said := normalized.Message{Sender: normalized.Sender{DisplayName: sender.DisplayName, Profile: sender.Profile}, Surface: message.Surface}
	document, err := said.AppendJSON(make([]byte, 0, 2<<10))
	if err == nil {
		hidden := r.JSON(document, r.Text)
		if string(hidden) == string(document) {
			return
		}
		said = normalized.Message{}
		err = json.Unmarshal(hidden, &said)
	}
	if err != nil { // it says nothing, rather than a key
		said = normalized.Message{}
	}

	if profile := said.Sender.Profile; profile != nil {
		if strings.Contains(profile.URL, redact.HiddenLink) {
			profile.URL = ""
		}
		if profile.Avatar != nil && strings.Contains(profile.Avatar.URL, redact.HiddenLink) {
			profile.Avatar = nil
		}
	}
	sender.DisplayName, sender.Profile, message.Surface = said.Sender.DisplayName, said.Sender.Profile, said.Surface
}

// withoutKeys returns parts whose texts went through hide.
func (s *core) withoutKeys(parts []normalized.Part, hide func(string) string) []normalized.Part {
	clean := make([]normalized.Part, 0, len(parts))
	for _, part := range parts {
		clean = append(clean, s.withoutKey(part, hide))
	}
	return clean
}

func (s *core) withoutKey(part normalized.Part, hide func(string) string) normalized.Part {
	if part.OnlyText() { // nearly every part: it needs no document
		clean := hide(part.Content)
		if clean != part.Content || !strings.Contains(part.Content, part.New) {
			part.New = hide(part.New)
		}
		part.Content = clean
		return part
	}

	inline := part.BytesRef
	if inline != nil && inline.Kind == normalized.BytesInline {
		content, err := inline.Bytes()
		if err == nil && s.keys().Holds(content) {
			clean := hide(string(content))
			if s.keys().Holds([]byte(clean)) {
				return normalized.Text(hiddenFile)
			}
			inline, part.Size = normalized.Inline([]byte(clean)), int64(len(clean))
		}
		part.BytesRef = new(normalized.BytesRef{Kind: normalized.BytesInline}) // the bytes are no text of the document
	}

	document, err := json.Marshal(part)
	if err == nil {
		if hidden := s.keys().JSON(document, hide); string(hidden) != string(document) && json.Unmarshal(hidden, &part) != nil {
			return normalized.Text(redact.HiddenLink)
		}
	}
	if inline != nil && inline.Kind == normalized.BytesInline {
		part.BytesRef = inline
	}

	switch {
	case part.Kind == normalized.PartLink && strings.Contains(part.URL, redact.HiddenLink):
		return normalized.Text(strings.TrimSpace(part.Title + " " + redact.HiddenLink))
	case part.BytesRef != nil && strings.Contains(part.BytesRef.URL, redact.HiddenLink):
		return normalized.Text(hiddenFile)
	case part.Policy != nil && strings.Contains(part.Policy.URL, redact.HiddenLink):
		part.Policy.URL = ""
	}
	return part
}

// shownAgain hides the codes in what an agent is shown of a conversation with an approver: the request is an answer of the agent by name,
// but the server wrote it.
func (s *core) shownAgain(past []normalized.HistoricalMessage) []normalized.HistoricalMessage {
	for i, message := range past {
		if message.Role != normalized.RoleAssistant {
			continue
		}
		past[i].Parts = s.withoutCodes(message.Parts)
		past[i].Segments = slices.Clone(message.Segments)
		for k, segment := range message.Segments {
			past[i].Segments[k].Parts = s.withoutCodes(segment.Parts)
		}
	}
	return past
}

func (s *core) withoutCodes(parts []normalized.Part) []normalized.Part {
	parts = slices.Clone(parts)
	for i := range parts {
		parts[i].Content = s.keys().Text(parts[i].Content)
	}
	return parts
}
