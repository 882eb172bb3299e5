// Package recording keeps messages that an agent got, with what it answered, as files that can be passed on and sent again: without secrets
// and, unless that is not wanted, without the names of people. What a recording has is listed here, member by member; everything else of
// a message is left out. It sends nothing.
package recording

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"inbox/exchange"
	"inbox/internal/markup"
	"inbox/normalized"
)

// Format is the number of the form of message.json.
const Format = 1

// Recording is one message with what became of it.
type Recording struct {
	Message  Message  `json:"message"`
	Expected Expected `json:"expected"`

	Original []byte `json:"-"` // as it came, with everything in it; nil = it is not kept
}

// Message is message.json.
type Message struct {
	Format   int       `json:"format"`
	ID       string    `json:"id"` // UUIDv7 of the turn: recordings are sent again in this order
	At       time.Time `json:"at"`
	Agent    string    `json:"agent"`
	Channel  string    `json:"channel"` // such as email
	Thread   string    `json:"thread"`  // the same for messages of one conversation
	Subject  string    `json:"subject,omitempty"`
	Language string    `json:"language,omitempty"` // BCP 47
	Sender   Sender    `json:"sender"`
	Parts    []Part    `json:"parts"`
}

// Sender is who wrote a message, and what proved it.
type Sender struct {
	Address    string     `json:"address"`
	Name       string     `json:"name,omitempty"`
	AuthMethod string     `json:"auth_method"`
	Verified   bool       `json:"verified"`
	Evidence   []Evidence `json:"evidence,omitempty"`
}

// Evidence is a proof by its kind: keys, claims, ids of tokens and signatures are left out.
type Evidence struct {
	Method    string `json:"method"`
	Assurance string `json:"assurance,omitempty"`
}

// Part is one piece of a message: a text, a link, or a file without its bytes.
type Part struct {
	Kind  string `json:"kind"`
	MIME  string `json:"mime,omitempty"`
	Text  string `json:"text,omitempty"`
	Name  string `json:"name,omitempty"` // of a file
	Size  int64  `json:"size,omitempty"` // of a file
	URL   string `json:"url,omitempty"`
	Title string `json:"title,omitempty"`
}

// Expected is expected.json: what became of the message.
type Expected struct {
	State string   `json:"state"`
	Text  string   `json:"text,omitempty"`  // of the answer
	Parts []Part   `json:"parts,omitempty"` // of the answer: kinds, types and names alone
	Tools []string `json:"tools,omitempty"` // names of the tools that the agent called, each once, in the order of letters
}

// Of makes a recording of a message and the names of the tools that its agent called.
func Of(turn exchange.TurnRecord, tools []string, scrubber *Scrubber) Recording {
	message, sender := turn.Message, turn.Message.Sender
	made := Message{
		Format: Format, ID: turn.ID, At: turn.AcceptedAt.UTC(), Agent: turn.Agent, Channel: turn.Channel, Thread: scrubber.thread(turn.Agent, turn.ThreadID),
		Sender: Sender{AuthMethod: sender.AuthMethod, Verified: sender.Verified},
	}
	made.Sender.Address, made.Sender.Name = scrubber.sender(sender.Address.String(), sender.DisplayName)
	for _, evidence := range sender.Identities {
		made.Sender.Evidence = append(made.Sender.Evidence, Evidence{Method: evidence.Method, Assurance: evidence.Assurance})
	}
	if message.Surface != nil {
		made.Subject, made.Language = scrubber.Text(message.Surface.Subject), message.Surface.Language
	}
	if profile := sender.Profile; made.Language == "" && profile != nil {
		made.Language = profile.Locale
	}
	for i := range message.Parts {
		if part, kept := partOf(&message.Parts[i], scrubber); kept {
			made.Parts = append(made.Parts, part)
		}
	}
	return Recording{Message: made, Expected: ExpectedOf(turn, tools, scrubber)}
}

func partOf(part *normalized.Part, scrubber *Scrubber) (Part, bool) {
	switch part.Kind {
	case normalized.PartText:
		return Part{Kind: part.Kind, MIME: part.MIME, Text: scrubber.Text(part.Content)}, true
	case normalized.PartLink:
		return Part{Kind: part.Kind, URL: scrubber.Text(part.URL), Title: scrubber.Text(part.Title)}, true
	case normalized.PartFile, normalized.PartArtifact:
		return Part{Kind: part.Kind, MIME: part.MIME, Name: scrubber.Text(part.Name), Size: part.Size}, true
	}
	return Part{}, false
}

// ExpectedOf is what became of a message.
func ExpectedOf(turn exchange.TurnRecord, tools []string, scrubber *Scrubber) Expected {
	expected := Expected{State: turn.State, Tools: slices.Compact(slices.Sorted(slices.Values(tools)))}
	if turn.Response == nil {
		return expected
	}
	expected.Text = strings.TrimSpace(scrubber.Text(markup.PlainText(turn.Response.Parts)))
	for i := range turn.Response.Parts {
		part := &turn.Response.Parts[i]
		expected.Parts = append(expected.Parts, Part{Kind: part.Kind, MIME: part.MIME, Name: scrubber.Text(part.Name)})
	}
	return expected
}

// ToolsOf returns the names of the tools that the rows of a timeline tell of.
func ToolsOf(events []exchange.Event) (names []string) {
	for _, event := range events {
		var step exchange.ToolStep
		if event.Kind == exchange.EventToolCalled && json.Unmarshal(event.Body, &step) == nil {
			names = append(names, step.Name)
		}
	}
	return names
}

// Text is what the message says, without the subject that mail puts before it.
func (m Message) Text() string {
	var texts []string
	for _, part := range m.Parts {
		switch part.Kind {
		case normalized.PartText:
			texts = append(texts, part.Text)
		case normalized.PartLink:
			texts = append(texts, part.URL)
		}
	}
	text := strings.Join(texts, "\n\n")
	if rest, led := strings.CutPrefix(text, "Subject: "); led && m.Subject != "" {
		if _, body, more := strings.Cut(rest, "\n\n"); more {
			return body
		}
	}
	return text
}
