package channel_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inbox/agents/channel"
)

// surface is a connector that writes down what happens.
type surface struct {
	happened []string
	refuse   error
	message  map[string]any
	sendFail error
}

func (s *surface) notef(format string, args ...any) {
	s.happened = append(s.happened, fmt.Sprintf(format, args...))
}

func (s *surface) Validate(context.Context, map[string]any) error {
	s.notef("validate")
	return s.refuse
}

func (s *surface) Message(_ context.Context, payload map[string]any) (channel.Message, error) {
	value := map[string]any{"connector_id": "slack", "external_provider": "slack", "external_conversation_id": "C1", "external_message_id": "m1", "text": payload["text"]}
	maps.Copy(value, s.message)
	return channel.NormalizeMessage(value)
}

func (s *surface) Send(_ context.Context, _ channel.Message, text string) error {
	s.notef("send %s", text)
	return s.sendFail
}

func (s *surface) SendError(_ context.Context, _ channel.Message, _ map[string]any, text string) error {
	s.notef("apologize %s", text)
	return s.sendFail
}

func (s *surface) ProcessingStart(context.Context, channel.Message) { s.notef("start") }
func (s *surface) ProcessingEnd(context.Context, channel.Message)   { s.notef("end") }
func (s *surface) Complete(context.Context, channel.Message)        { s.notef("complete") }

func TestLoop(t *testing.T) {
	for name, test := range map[string]struct {
		text     string
		surface  surface
		output   map[string]any
		fails    error
		happened []string
		code     string
	}{
		"a reply": {
			text: " hi ", output: map[string]any{"session_id": "s1", "reply": " hello "},
			happened: []string{"validate", "start", "chat hi <nil>", "end", "send hello", "complete"},
		},
		"several messages": {
			text: "hi", output: map[string]any{"reply": "", "messages": []any{
				map[string]any{"role": "user", "content": "hi"}, map[string]any{"role": "assistant", "content": "a"}, "no message",
				map[string]any{"role": "assistant", "content": " "}, map[string]any{"role": "assistant", "content": "b"},
			}},
			happened: []string{"validate", "start", "chat hi <nil>", "end", "send a", "send b", "complete"},
		},
		"nothing to say": {
			text: "hi", output: map[string]any{},
			happened: []string{"validate", "start", "chat hi <nil>", "end", "apologize Sorry, I could not generate a response.", "complete"},
		},
		"a silent skip": {text: "hi", surface: surface{refuse: channel.Skip("a robot")}, happened: []string{"validate"}, code: channel.CodeSilentSkip},
		"a refusal": {
			text: "hi", surface: surface{refuse: &channel.Error{Code: "too_new", Text: "You are too new."}},
			happened: []string{"validate", "apologize You are too new."}, code: "too_new",
		},
		"a failure inside of validation": {
			text: "hi", surface: surface{refuse: errors.New("database password wrong")},
			happened: []string{"validate", "apologize Sorry, I could not process your message right now."},
		},
		"no text":         {text: " ", happened: []string{"validate"}, code: channel.CodeEmptyMessage},
		"our own message": {text: "hi", surface: surface{message: map[string]any{"from_self": true}}, happened: []string{"validate"}, code: channel.CodeSilentSkip},
		"the agent fails": {
			text: "hi", fails: errors.New("secret inside"),
			happened: []string{"validate", "start", "chat hi <nil>", "end", "apologize Sorry, I could not process your message right now.", "complete"},
		},
		"the agent refuses": {
			text: "hi", fails: &channel.Error{Code: "agents_chat_agent_not_found", Text: "There is no such agent."},
			happened: []string{"validate", "start", "chat hi <nil>", "end", "apologize There is no such agent.", "complete"}, code: "agents_chat_agent_not_found",
		},
	} {
		t.Run(name, func(t *testing.T) {
			played := &test.surface
			loop := channel.Loop{Agent: "helper", Surface: played, Sessions: channel.NewMemorySessions(0), Chat: func(_ context.Context, input map[string]any) (map[string]any, error) {
				played.notef("chat %v %v", input["message"], input["session_id"])
				return test.output, test.fails
			}}
			_, err := loop.Handle(t.Context(), map[string]any{"text": test.text})
			if !slices.Equal(played.happened, test.happened) {
				t.Errorf("happened:\n%q, want\n%q", played.happened, test.happened)
			}
			var coded *channel.Error
			if errors.As(err, &coded); coded == nil && test.code != "" || coded != nil && coded.Code != test.code {
				t.Errorf("error %v, want code %q", err, test.code)
			}
			if failed := test.fails != nil || test.surface.refuse != nil || test.code != ""; failed != (err != nil) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestLoopKeepsSessions(t *testing.T) {
	played, sessions := &surface{sendFail: errors.New("the network is down")}, channel.NewMemorySessions(0)
	given := []any{}
	loop := channel.Loop{Agent: "helper", Surface: played, Sessions: sessions, Chat: func(_ context.Context, input map[string]any) (map[string]any, error) {
		given = append(given, input["session_id"])
		return map[string]any{"session_id": fmt.Sprintf("s%d", len(given)), "reply": "x"}, nil
	}}
	if _, err := loop.Handle(t.Context(), map[string]any{"text": "a"}); err == nil {
		t.Error("the failure to send was lost")
	}
	if _, err := loop.Handle(t.Context(), map[string]any{"text": "b"}); err == nil {
		t.Error("the failure to send was lost")
	}
	played.message = map[string]any{"external_conversation_id": nil}
	_, _ = loop.Handle(t.Context(), map[string]any{"text": "c"})
	_, _ = loop.Handle(t.Context(), map[string]any{"text": "d"})
	if difference := cmp.Diff([]any{nil, "s1", nil, nil}, given); difference != "" {
		t.Error(difference)
	}
	session, _ := sessions.Session(t.Context(), channel.NewSessionKey("slack", "C1", "helper"))
	if session != "s2" {
		t.Errorf("session %q, want the changed one", session)
	}
}

func TestLoopTakesAMessageOnce(t *testing.T) {
	played, chats, fails := &surface{}, 0, true
	loop := channel.Loop{Surface: played, Duplicates: channel.Duplicates{Marks: channel.NewMemoryMarks(0)}, Chat: func(context.Context, map[string]any) (map[string]any, error) {
		if chats++; fails {
			return nil, errors.New("not now")
		}
		return map[string]any{"reply": "x"}, nil
	}}
	for i, want := range []int{1, 2, 2} { // the first failed, so the second is a repeat that counts
		_, err := loop.Handle(t.Context(), map[string]any{"text": "hi"})
		if chats != want {
			t.Errorf("repeat %d: %d chats, %v", i, chats, err)
		}
		fails = false
	}
	played.message = map[string]any{"external_conversation_id": "C2"} // where ids count from one again
	if _, err := loop.Handle(t.Context(), map[string]any{"text": "hi"}); err != nil || chats != 3 {
		t.Errorf("%d chats, %v", chats, err)
	}
}

func TestDispatch(t *testing.T) {
	input := map[string]any{"channel": "sms", "recipient": " +43 1 ", "message": "Done.", "metadata": map[string]any{"a": "b"}}
	transport := func(result map[string]any) channel.Transport {
		return func(_ context.Context, outgoing channel.Outgoing) (map[string]any, error) {
			if outgoing.Recipient != "+43 1" || outgoing.Text != "Done." {
				t.Errorf("outgoing %+v", outgoing)
			}
			return result, nil
		}
	}
	for name, test := range map[string]struct {
		transport channel.Transport
		want      map[string]any
	}{
		"little": {transport(map[string]any{}), map[string]any{"sent": true, "channel": "sms", "recipient": "+43 1"}},
		"much": {transport(map[string]any{"sent": 0, "channel": "sms-at", "message_id": 7, "metadata": map[string]any{"x": "y"}, "secret": "z"}),
			map[string]any{"sent": false, "channel": "sms-at", "recipient": "+43 1", "message_id": "7", "metadata": map[string]any{"x": "y"}}},
	} {
		got, err := channel.Dispatch(t.Context(), input, test.transport)
		if difference := cmp.Diff(test.want, got); difference != "" || err != nil {
			t.Errorf("%s: %v %s", name, err, difference)
		}
	}
	for want, test := range map[string]struct {
		input     map[string]any
		transport channel.Transport
	}{
		channel.CodeNoDispatchHandler: {input, nil}, channel.CodeInvalidDispatch: {input, transport(nil)},
		channel.CodeInvalid: {map[string]any{"channel": "sms", "recipient": "x"}, transport(nil)},
	} {
		_, err := channel.Dispatch(t.Context(), test.input, test.transport)
		var coded *channel.Error
		if !errors.As(err, &coded) || coded.Code != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	if outgoing, _ := channel.ReadOutgoing(input); cmp.Diff(map[string]any{"channel": "sms", "recipient": "+43 1", "message": "Done.", "attachments": []any{}, "client_context": map[string]any{}, "metadata": map[string]any{"a": "b"}}, outgoing.Value()) != "" {
		t.Errorf("value %v", outgoing.Value())
	}
}
