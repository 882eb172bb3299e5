package a2a

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"

	"inbox/exchange"
	"inbox/normalized"
)

// bearing sends the token with every request of the SDK's client.
type bearing struct {
	token string
	next  http.RoundTripper
}

func (b bearing) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

// peer is the SDK's own client, made from our card, speaking one interface of it.
func (b *bundle) peer(token string, version a2a.ProtocolVersion, binding a2a.TransportProtocol) *a2aclient.Client {
	b.Helper()
	ctx := context.Background()
	authorized := &http.Client{Transport: bearing{token, b.client.Transport}}
	resolver := agentcard.NewResolver(authorized)
	resolver.CardParser = a2av0.NewAgentCardParser()
	card, err := resolver.Resolve(ctx, b.url+"/a2a/echo")
	if err != nil {
		b.Fatal(err)
	}
	var chosen []*a2a.AgentInterface
	for _, offered := range card.SupportedInterfaces {
		offered.URL = strings.Replace(offered.URL, "https://agents.test", b.url, 1)
		if offered.ProtocolVersion == version && offered.ProtocolBinding == binding {
			chosen = append(chosen, offered)
		}
	}
	card.SupportedInterfaces = chosen
	old := a2aclient.TransportFactoryFn(func(_ context.Context, _ *a2a.AgentCard, i *a2a.AgentInterface) (a2aclient.Transport, error) {
		return a2av0.NewJSONRPCTransport(a2av0.JSONRPCTransportConfig{URL: i.URL, Client: authorized}), nil
	})
	client, err := a2aclient.NewFromCard(ctx, card, a2aclient.WithJSONRPCTransport(authorized), a2aclient.WithRESTTransport(authorized),
		a2aclient.WithCompatTransport(a2av0.Version, a2a.TransportProtocolJSONRPC, old))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = client.Destroy() })
	return client
}

func TestTheSDKsClient(t *testing.T) {
	for _, c := range []struct {
		version a2a.ProtocolVersion
		binding a2a.TransportProtocol
	}{
		{a2a.Version, a2a.TransportProtocolJSONRPC}, {a2a.Version, a2a.TransportProtocolHTTPJSON},
		{a2av0.Version, a2a.TransportProtocolJSONRPC},
	} {
		t.Run(string(c.binding)+" "+string(c.version), func(t *testing.T) {
			b := setup(t)
			b.engine.agent = growing
			ada, bob, ctx := b.peer(b.ada, c.version, c.binding), b.peer(b.bob, c.version, c.binding), t.Context()
			send := func(text string) *a2a.SendMessageRequest {
				return &a2a.SendMessageRequest{Message: a2a.NewMessage(a2a.MessageRoleUser, a2a.NewTextPart(text))}
			}

			sent, err := ada.SendMessage(ctx, send("hello"))
			if err != nil {
				t.Fatal(err)
			}
			task, ok := sent.(*a2a.Task)
			if !ok || task.Status.State != a2a.TaskStateCompleted || task.Artifacts[0].Parts[0].Text() != "one two three" {
				t.Fatalf("sent: %+v", sent)
			}
			var text strings.Builder
			var last a2a.TaskState
			for event, err := range ada.SendStreamingMessage(ctx, send("stream")) {
				if err != nil {
					t.Fatal(err)
				}
				switch e := event.(type) {
				case *a2a.TaskArtifactUpdateEvent:
					text.WriteString(e.Artifact.Parts[0].Text())
				case *a2a.TaskStatusUpdateEvent:
					last = e.Status.State
				}
			}
			if text.String() != "one two three" || last != a2a.TaskStateCompleted {
				t.Errorf("streamed %q, %s", text.String(), last)
			}
			if got, err := ada.GetTask(ctx, &a2a.GetTaskRequest{ID: task.ID}); err != nil || got.ID != task.ID {
				t.Errorf("get: %v %v", got, err)
			}
			_, err = bob.GetTask(ctx, &a2a.GetTaskRequest{ID: task.ID})
			if !errors.Is(err, a2a.ErrTaskNotFound) {
				t.Errorf("somebody else's get: %v", err)
			}
			if _, err := ada.CancelTask(ctx, &a2a.CancelTaskRequest{ID: task.ID}); !errors.Is(err, a2a.ErrTaskNotCancelable) {
				t.Errorf("cancel: %v", err)
			}
			if c.version == a2a.Version {
				if list, err := ada.ListTasks(ctx, &a2a.ListTasksRequest{}); err != nil || list.TotalSize != 2 {
					t.Errorf("list: %+v %v", list, err)
				}
			}
		})
	}
}

func TestAnswersAreNeverDelivered(t *testing.T) {
	b := setup(t)
	plan, err := b.adapter.Plan(t.Context(), exchange.Reply{Response: normalized.Response{Parts: []normalized.Part{normalized.Text("x")}}})
	if err != nil || plan.NativeID != "" || len(plan.Destinations) != 0 {
		t.Errorf("plan %+v %v", plan, err)
	}
	if _, err := b.adapter.Deliver(t.Context(), exchange.Delivery{}); err == nil {
		t.Error("a delivery was taken")
	}
}

// TestRefusedStreamsAreErrors: the SDK's client returns the error of a stream that was refused, in every version and binding over HTTP.
func TestRefusedStreamsAreErrors(t *testing.T) {
	for _, c := range []struct {
		version a2a.ProtocolVersion
		binding a2a.TransportProtocol
	}{
		{a2a.Version, a2a.TransportProtocolJSONRPC}, {a2a.Version, a2a.TransportProtocolHTTPJSON},
		{a2av0.Version, a2a.TransportProtocolJSONRPC},
	} {
		t.Run(string(c.binding)+" "+string(c.version), func(t *testing.T) {
			b := setup(t)
			ada, bob, ctx := b.peer(b.ada, c.version, c.binding), b.peer(b.bob, c.version, c.binding), t.Context()
			sent, err := ada.SendMessage(ctx, &a2a.SendMessageRequest{Message: a2a.NewMessage(a2a.MessageRoleUser, a2a.NewTextPart("hello"))})
			if err != nil {
				t.Fatal(err)
			}
			task, is := sent.(*a2a.Task)
			if !is {
				t.Fatalf("sent: %+v", sent)
			}
			to := func(id a2a.TaskID, parts ...*a2a.Part) *a2a.SendMessageRequest {
				message := a2a.NewMessage(a2a.MessageRoleUser, parts...)
				message.TaskID = id
				return &a2a.SendMessageRequest{Message: message}
			}
			for name, refused := range map[string]struct {
				stream iter.Seq2[a2a.Event, error]
				want   error
			}{
				"subscribe to a task that ended":      {ada.SubscribeToTask(ctx, &a2a.SubscribeToTaskRequest{ID: task.ID}), a2a.ErrUnsupportedOperation},
				"subscribe to somebody else's task":   {bob.SubscribeToTask(ctx, &a2a.SubscribeToTaskRequest{ID: task.ID}), a2a.ErrTaskNotFound},
				"subscribe to an unknown task":        {ada.SubscribeToTask(ctx, &a2a.SubscribeToTaskRequest{ID: "unknown"}), a2a.ErrTaskNotFound},
				"send to an unknown task":             {ada.SendStreamingMessage(ctx, to("unknown", a2a.NewTextPart("hello"))), a2a.ErrTaskNotFound},
				"send to a task that ended":           {ada.SendStreamingMessage(ctx, to(task.ID, a2a.NewTextPart("hello"))), a2a.ErrUnsupportedOperation},
				"send a message that says nothing":    {ada.SendStreamingMessage(ctx, to("")), a2a.ErrInvalidParams},
				"send to somebody else's task, again": {bob.SendStreamingMessage(ctx, to(task.ID, a2a.NewTextPart("hello"))), a2a.ErrTaskNotFound},
			} {
				var got []error
				for event, err := range refused.stream {
					if err == nil {
						t.Errorf("%s: event %+v", name, event)
					}
					got = append(got, err)
				}
				if len(got) != 1 || !errors.Is(got[0], refused.want) {
					t.Errorf("%s: %v, want %v", name, got, refused.want)
				}
			}
		})
	}
}

// TestFormOfARefusedStream: a refusal is an event for clients that read events, and a plain JSON-RPC error for all others.
func TestFormOfARefusedStream(t *testing.T) {
	b := setup(t)
	stream, plain := "text/event-stream", "application/json"
	for name, c := range map[string]struct {
		path, token, body, accept string
		status                    int
		form                      string
	}{
		"of a stream":                        {"", b.ada, call10("SubscribeToTask", `{"id":"x"}`), stream, 200, stream},
		"of a stream of 0.3":                 {"", b.ada, call10("tasks/resubscribe", `{"id":"x"}`), stream, 200, stream},
		"of a stream, either form":           {"", b.ada, call10("SubscribeToTask", `{"id":"x"}`), "application/json, text/event-stream", 200, stream},
		"of a stream, by the binding":        {"", b.ada, call10("SendStreamingMessage", `{"message":1}`), stream, 200, stream},
		"of a version that is not spoken":    {"?A2A-Version=9.9", b.ada, call10("SubscribeToTask", `{"id":"x"}`), stream, 200, stream},
		"of what is no request":              {"", b.ada, `{"jsonrpc":`, stream, 200, stream},
		"of what nests too deeply":           {"", b.ada, strings.Repeat("[", 1000), stream, 200, stream},
		"of a stream, without Accept":        {"", b.ada, call10("SubscribeToTask", `{"id":"x"}`), "", 200, plain},
		"of a stream, any form":              {"", b.ada, call10("SubscribeToTask", `{"id":"x"}`), "*/*", 200, plain},
		"of a stream, as JSON":               {"", b.ada, call10("SubscribeToTask", `{"id":"x"}`), plain, 200, plain},
		"of another method, either form":     {"", b.ada, call10("GetTask", `{"id":"x"}`), "application/json, text/event-stream", 200, plain},
		"without a token":                    {"", "", call10("SubscribeToTask", `{"id":"x"}`), stream, 401, plain},
		"by HTTP+JSON":                       {"/rest/tasks/x:subscribe", b.ada, `{}`, stream, 404, plain},
		"by HTTP+JSON, of a message":         {"/rest/message:stream", b.ada, `{"message":{"messageId":"m","role":"ROLE_USER","taskId":"x","parts":[{"text":"x"}]}}`, stream, 404, plain},
		"by HTTP+JSON of 0.3, of a message":  {"/v1/message:stream", b.ada, `{"message":{"messageId":"m","role":"ROLE_USER","taskId":"x","content":[{"text":"x"}]}}`, stream, 404, plain},
		"by HTTP+JSON, of what is no object": {"/rest/message:stream", b.ada, `[]`, stream, 400, plain},
	} {
		header := []string{"Accept", c.accept}
		if c.accept == "" {
			header = nil
		}
		got := b.do("POST", "/a2a/echo"+c.path, c.token, c.body, header...)
		form, _, _ := strings.Cut(got.header.Get("Content-Type"), ";")
		if got.status != c.status || form != c.form {
			t.Errorf("%s: %d %s, want %d %s", name, got.status, form, c.status, c.form)
		}
		document := got
		if form == stream {
			frames := got.frames()
			if len(frames) != 1 || !strings.HasSuffix(got.body, "\n\n") {
				t.Errorf("%s: %q, want one event", name, got.body)
				continue
			}
			document = frames[0]
		}
		if message := document.text(t, "error.message"); message == "" {
			t.Errorf("%s: %s has no error", name, got.body)
		}
	}
}
