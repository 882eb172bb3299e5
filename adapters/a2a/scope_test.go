package a2a

import (
	"context"
	"crypto/rand"
	"io"
	"slices"
	"strings"
	"testing"

	a2apb0 "github.com/a2aproject/a2a-go/a2apb"
	pb "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"inbox/internal/await"
	"inbox/internal/sealing"
)

// scopeRig is a server with an issuer, webhooks and every binding.
type scopeRig struct {
	*bundle
	issuer *issuing
	table  *watchTable
	grpc1  pb.A2AServiceClient
	grpc0  a2apb0.A2AServiceClient
}

func newScopeRig(t *testing.T) *scopeRig {
	box, err := sealing.New(sealing.NewKey())
	if err != nil {
		t.Fatal(err)
	}
	table, hook := &watchTable{}, newReceiver(t)
	b, issuer := withIssuer(t, func(o *Options) { o.Push = Push{Watches: table, Sealer: boxSealer{box}, Web: openWeb{hook.Client()}} })
	connection := b.connect()
	return &scopeRig{bundle: b, issuer: issuer, table: table, grpc1: pb.NewA2AServiceClient(connection), grpc0: a2apb0.NewA2AServiceClient(connection)}
}

func (r *scopeRig) token(scopes ...string) string {
	return r.issuer.token(map[string]any{"scope": strings.Join(scopes, " ")})
}

// sending are all ways to send a message; each reports whether the caller was refused for what its token lacks.
func (r *scopeRig) sending() map[string]func(token, id, hook string) bool {
	http := func(path, body string, header ...string) func(token, id, hook string) bool {
		return func(token, id, hook string) bool {
			filled := strings.NewReplacer("ID", id, "HOOK", hook).Replace(body)
			return r.do("POST", path, token, filled, header...).status == 403
		}
	}
	rpc := func(method, params string) func(token, id, hook string) bool {
		return http("/a2a/echo", `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`)
	}
	one := `{"message":{"messageId":"ID","role":"ROLE_USER","parts":[{"text":"x"}]},"configuration":{HOOK}}`
	old := `{"message":{"kind":"message","messageId":"ID","role":"user","parts":[{"kind":"text","text":"x"}]},"configuration":{HOOK}}`
	oldREST := `{"message":{"messageId":"ID","role":"ROLE_USER","content":[{"text":"x"}]},"configuration":{HOOK}}`
	refused := func(err error) bool { return status.Code(err) == grpccodes.PermissionDenied }
	return map[string]func(token, id, hook string) bool{
		"1.0 JSON-RPC":            rpc("SendMessage", one),
		"1.0 JSON-RPC stream":     rpc("SendStreamingMessage", one),
		"1.0 JSON-RPC snake_case": rpc("SendMessage", strings.Replace(one, "messageId", "message_id", 1)),
		"0.3 JSON-RPC":            rpc("message/send", old),
		"0.3 JSON-RPC stream":     rpc("message/stream", old),
		"1.0 REST":                http("/a2a/echo/rest/message:send", one),
		"1.0 REST stream":         http("/a2a/echo/rest/message:stream", one),
		"0.3 REST":                http("/a2a/echo/v1/message:send", oldREST),
		"0.3 REST stream":         http("/a2a/echo/v1/message:stream", oldREST),
		"1.0 gRPC": func(token, id, hook string) bool {
			_, err := r.grpc1.SendMessage(calling(token), request1(id, hook))
			return refused(err)
		},
		"1.0 gRPC stream": func(token, id, hook string) bool {
			stream, err := r.grpc1.SendStreamingMessage(calling(token), request1(id, hook))
			for err == nil {
				_, err = stream.Recv()
			}
			return refused(err)
		},
		"0.3 gRPC": func(token, id, hook string) bool {
			_, err := r.grpc0.SendMessage(calling(token), request0(id, hook))
			return refused(err)
		},
		"0.3 gRPC stream": func(token, id, hook string) bool {
			stream, err := r.grpc0.SendStreamingMessage(calling(token), request0(id, hook))
			for err == nil {
				_, err = stream.Recv()
			}
			if err != io.EOF && !refused(err) { //nolint:errorlint // the end of a stream
				r.Errorf("0.3 gRPC stream: %v", err)
			}
			return refused(err)
		},
	}
}

func request1(id, hook string) *pb.SendMessageRequest {
	request := grpcMessage(id, "echo")
	if hook != "" {
		request.Configuration = &pb.SendMessageConfiguration{TaskPushNotificationConfig: &pb.TaskPushNotificationConfig{Url: "https://peer.example/h"}}
	}
	return request
}

func request0(id, hook string) *a2apb0.SendMessageRequest {
	request := &a2apb0.SendMessageRequest{Request: &a2apb0.Message{
		MessageId: id, Role: a2apb0.Role_ROLE_USER, Parts: []*a2apb0.Part{{Part: &a2apb0.Part_Text{Text: "x"}}},
	}}
	if hook != "" {
		request.Configuration = &a2apb0.SendMessageConfiguration{PushNotification: &a2apb0.PushNotificationConfig{Url: "https://peer.example/h"}}
	}
	return request
}

// hooks are the spellings of a webhook in the configuration of a message, by binding.
func hooks(binding string) []string {
	const hook = `{"url":"https://peer.example/h"}`
	switch {
	case strings.HasPrefix(binding, "0.3 JSON-RPC"):
		return []string{`"pushNotificationConfig":` + hook}
	case strings.HasPrefix(binding, "0.3 REST"):
		return []string{`"pushNotification":` + hook, `"push_notification":` + hook}
	}
	return []string{`"taskPushNotificationConfig":` + hook, `"task_push_notification_config":` + hook, `"TaskPushNotificationConfig":` + hook}
}

// TestScopesOfWhatAMessageAsksFor: a webhook that comes with a message needs a2a:push beside a2a:send, by every binding, in
// every spelling, and nothing of a refused request is kept.
func TestScopesOfWhatAMessageAsksFor(t *testing.T) {
	r := newScopeRig(t)
	sets := [][]string{{}, {scopeSend}, {scopePush}, {scopeRead}, {scopeCancel}, {scopeSend, scopePush}, {scopeSend, scopeRead, scopeCancel}, {scopeRead, scopePush, scopeCancel}}
	for binding, send := range r.sending() {
		for _, scopes := range sets {
			may := slices.Contains(scopes, scopeSend)
			if refused := send(r.token(scopes...), rand.Text(), ""); refused == may {
				t.Errorf("%s with %v: refused %v", binding, scopes, refused)
			}
			for _, hook := range hooks(binding) {
				received, kept := r.engine.receives, len(r.table.rows)
				may := may && slices.Contains(scopes, scopePush)
				if refused := send(r.token(scopes...), rand.Text(), hook); refused == may {
					t.Errorf("%s with %v and %s: refused %v", binding, scopes, hook, refused)
				}
				if !may && (r.engine.receives != received || len(r.table.rows) != kept) {
					t.Errorf("%s with %v and %s: the refused request left something", binding, scopes, hook)
				}
			}
		}
	}
}

// TestScopeChallengeNamesAll: the client learns every scope that the request needs (RFC 6750, section 3).
func TestScopeChallengeNamesAll(t *testing.T) {
	r := newScopeRig(t)
	refused := r.rpc(r.token(scopeSend), "SendMessage", `{"message":`+hello("m1")+`,"configuration":{"taskPushNotificationConfig":{"url":"https://peer.example/h"}}}`)
	if challenge := strings.Join(refused.header.Values("WWW-Authenticate"), " "); !strings.Contains(challenge, `scope="a2a:send a2a:push"`) {
		t.Errorf("challenge %q", challenge)
	}
}

// TestSendingReadsNothingElse: a token for sending gets the answer to its own message, nothing that was said in the task
// before, and a token for cancelling gets the state alone.
func TestSendingReadsNothingElse(t *testing.T) {
	r := newScopeRig(t)
	r.engine.agent = asking
	first := r.rpc(r.token(scopeSend, scopeRead), "SendMessage", message("m1", "the secret of the first turn"))
	task := first.text(t, "result.task.id")
	next := r.rpc(r.token(scopeSend), "SendMessage", `{"configuration":{"historyLength":10},`+follow("m2", task, "")[1:])
	if strings.Contains(next.body, "the secret of the first turn") || next.text(t, "result.task.id") != task {
		t.Errorf("sending showed what was said before: %s", next.body)
	}
	if repeat := r.rpc(r.token(scopeSend), "SendMessage", message("m1", "the secret of the first turn")); strings.Contains(repeat.body, "m2") {
		t.Errorf("a repeat showed what was said later: %s", repeat.body)
	}
	if full := r.rpc(r.token(scopeSend, scopeRead), "SendMessage", follow("m2", task, "")); !strings.Contains(full.body, "the secret of the first turn") {
		t.Errorf("with a2a:read: %s", full.body)
	}
	task = r.rpc(r.token(scopeSend), "SendMessage", message("m3", "one more secret")).text(t, "result.task.id")
	cancelled := r.rpc(r.token(scopeCancel), "CancelTask", `{"id":"`+task+`"}`)
	if cancelled.text(t, "result.status.state") != "TASK_STATE_CANCELED" || cancelled.at(t, "result.history") != nil || cancelled.at(t, "result.artifacts") != nil {
		t.Errorf("cancelling showed the task: %s", cancelled.body)
	}
}

// connect serves the bundle by gRPC and returns a connection.
func (b *bundle) connect() *grpc.ClientConn {
	b.Helper()
	connection, err := grpc.NewClient(b.serveGRPC(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(boundedCall), grpc.WithStreamInterceptor(b.boundedStream))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = connection.Close() })
	return connection
}

// boundedCall lets no call wait for ever.
func boundedCall(
	ctx context.Context, method string, request, answer any, connection *grpc.ClientConn, call grpc.UnaryInvoker, options ...grpc.CallOption,
) error {
	ctx, cancel := context.WithTimeout(ctx, 2*await.Patience)
	defer cancel()
	return call(ctx, method, request, answer, connection, options...)
}

// boundedStream lets no stream wait for ever.
func (b *bundle) boundedStream(
	ctx context.Context, description *grpc.StreamDesc, connection *grpc.ClientConn, method string, open grpc.Streamer, options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*await.Patience)
	b.Cleanup(cancel)
	return open(ctx, description, connection, method, options...)
}
