package channel

import (
	"context"
	"fmt"
	"time"

	"inbox/agents/runtime/envelope"
)

// What the other side reads when there is nothing better to say.
const (
	sayFailed  = "Sorry, I could not process your message right now."
	sayNothing = "Sorry, I could not generate a response."
)

// Surface is what a connector owns of its product: reading a payload and sending texts.
type Surface interface {
	// Validate says whether the payload shall be answered. Skip drops it without a word; the text of any other error is
	// sent back.
	Validate(ctx context.Context, payload map[string]any) error

	// Message makes the normalized message of a valid payload.
	Message(ctx context.Context, payload map[string]any) (Message, error)

	// Send sends one text of the agent to where the message came from.
	Send(ctx context.Context, to Message, text string) error

	// SendError sends an apology. payload is what Validate saw; to is the zero Message before there is one.
	SendError(ctx context.Context, to Message, payload map[string]any, text string) error
}

// Lifecycle is implemented by a Surface that shows signs of life, such as "is typing".
type Lifecycle interface {
	ProcessingStart(ctx context.Context, message Message)
	ProcessingEnd(ctx context.Context, message Message) // always after ProcessingStart
	Complete(ctx context.Context, message Message)      // after everything was sent, or could not be
}

// Chat answers a chat input with a chat output (agent runtime contract, section 6.1).
type Chat func(ctx context.Context, input map[string]any) (output map[string]any, err error)

// Loop is a direct channel: it takes payloads of one product to one agent and the answers back. Surface and Chat are
// required; it is safe for concurrent use as far as they are.
type Loop struct {
	Agent    string // may be empty when Chat finds the agent itself
	Surface  Surface
	Chat     Chat
	Sessions Sessions // nil = every message begins a session
	Source   string   // of the client_context; "" = SourceChannel

	Duplicates Duplicates    // its Marks may be nil: then messages that come again are answered again
	Remember   time.Duration // how long a message id is remembered; zero = DefaultRemember
}

// DefaultRemember is how long a Loop remembers which messages it took.
const DefaultRemember = 24 * time.Hour

// Handle does one payload: validate, extract, look up the session, chat, keep the session, send, complete (agent
// runtime contract, section 6.2). It gives what the chat gave. Of a payload that is dropped it says so with an *Error
// of CodeSilentSkip or CodeEmptyMessage; errors of the chat and of sending are returned after the apology was sent.
func (l Loop) Handle(ctx context.Context, payload map[string]any) (map[string]any, error) {
	message, err := l.message(ctx, payload)
	if err != nil {
		return nil, err
	}
	first, err := l.claim(ctx, message)
	if err != nil {
		return nil, fmt.Errorf("claim channel message: %w", err)
	}
	if !first {
		return nil, Skip("the message came again.")
	}
	key := NewSessionKey(message.ConnectorID, message.ConversationID, l.Agent)
	session, err := l.session(ctx, key)
	if err != nil {
		l.release(ctx, message)
		return nil, fmt.Errorf("look up channel session: %w", err)
	}
	output, err := l.chat(ctx, message, session)
	if err != nil {
		l.release(ctx, message)
	}
	if live, shows := l.Surface.(Lifecycle); shows {
		defer live.Complete(ctx, message)
	}
	if err != nil {
		return nil, l.apologize(ctx, message, payload, err)
	}
	return output, l.deliver(ctx, message, payload, key, session, output)
}

func (l Loop) message(ctx context.Context, payload map[string]any) (Message, error) {
	if err := l.Surface.Validate(ctx, payload); err != nil {
		if code(err) == CodeSilentSkip {
			return Message{}, err
		}
		return Message{}, l.apologize(ctx, Message{}, payload, err)
	}
	message, err := l.Surface.Message(ctx, payload)
	switch {
	case err != nil:
		return Message{}, err
	case message.FromSelf:
		return Message{}, Skip("the message is the connector's own.")
	}
	if message.Text = envelope.Trim(message.Text); message.Text == "" {
		return Message{}, &Error{CodeEmptyMessage, "No message text to process."}
	}
	return message, message.check()
}

// claim is true for the one caller that shall take the message.
func (l Loop) claim(ctx context.Context, message Message) (bool, error) {
	if l.Duplicates.Marks == nil {
		return true, nil
	}
	remember := l.Remember
	if remember <= 0 {
		remember = DefaultRemember
	}
	return l.Duplicates.Claim(ctx, message.place(), message.MessageID, remember)
}

// release lets a message come again that got no answer. Its own failure only makes the repeat a duplicate.
func (l Loop) release(ctx context.Context, message Message) {
	if l.Duplicates.Marks != nil {
		_ = l.Duplicates.Forget(context.WithoutCancel(ctx), message.place(), message.MessageID)
	}
}

// place is where the id of a message is the only one: ids of two connectors, or of two rooms, may be equal.
func (m Message) place() string {
	return fmt.Sprintf("%s/%s/%d/%s", m.ConnectorID, m.Provider, len(m.ConversationID), m.ConversationID)
}

func (l Loop) session(ctx context.Context, key SessionKey) (string, error) {
	if l.Sessions == nil || key.Conversation == "" {
		return "", nil
	}
	return l.Sessions.Session(ctx, key)
}

func (l Loop) chat(ctx context.Context, message Message, session string) (map[string]any, error) {
	if live, shows := l.Surface.(Lifecycle); shows {
		live.ProcessingStart(ctx, message)
		defer live.ProcessingEnd(ctx, message)
	}
	return l.Chat(ctx, l.Input(message, session))
}

// Input is the chat input of a message; an empty session begins a new one.
func (l Loop) Input(message Message, session string) map[string]any {
	return map[string]any{
		"agent": l.Agent, "message": message.Text, "session_id": nullable(session),
		"attachments": filledList(message.Attachments), "client_context": message.ClientContext(l.Source),
	}
}

// deliver keeps the session before anything is sent, so that a failure to send loses no conversation.
func (l Loop) deliver(ctx context.Context, message Message, payload map[string]any, key SessionKey, session string, output map[string]any) error {
	if now := trimmed(output["session_id"]); now != "" && now != session && l.Sessions != nil && key.Conversation != "" {
		if err := l.Sessions.SetSession(ctx, key, now); err != nil {
			return l.apologize(ctx, message, payload, fmt.Errorf("keep channel session: %w", err))
		}
	}
	texts := Replies(output)
	if len(texts) == 0 {
		return l.Surface.SendError(ctx, message, payload, sayNothing)
	}
	for _, text := range texts {
		if err := l.Surface.Send(ctx, message, text); err != nil {
			return fmt.Errorf("send channel reply: %w", err)
		}
	}
	return nil
}

// apologize sends the text of a refusal, and a plain sentence for everything else: what failed inside is for logs.
func (l Loop) apologize(ctx context.Context, message Message, payload map[string]any, cause error) error {
	text := sayFailed
	if code(cause) != "" && cause.Error() != "" {
		text = cause.Error()
	}
	if err := l.Surface.SendError(ctx, message, payload, text); err != nil {
		return fmt.Errorf("%w (and the apology was not sent: %w)", cause, err)
	}
	return cause
}

// Replies are the texts of a chat output: its reply, or else the texts of its assistant messages.
func Replies(output map[string]any) []string {
	if reply := trimmed(output["reply"]); reply != "" {
		return []string{reply}
	}
	var texts []string
	for _, one := range envelope.Elements(output["messages"]) {
		message := envelope.Assoc(one)
		if text := trimmed(message["content"]); text != "" && message["role"] == "assistant" {
			texts = append(texts, text)
		}
	}
	return texts
}
