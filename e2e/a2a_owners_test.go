package e2e

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/a2aproject/a2a-go/a2apb"       // registers the messages of 0.3
	_ "github.com/a2aproject/a2a-go/v2/a2apb/v1" // registers the messages of 1.0
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"inbox/e2e/instance"
	"inbox/internal/await"
)

// owned are ids that a request names.
type owned struct{ task, context, hook string }

// nothing is for requests without ids: NUL is in no answer.
var nothing = owned{"\x00", "\x00", "\x00"}

func (o owned) in(text string) string {
	return strings.NewReplacer("{task}", o.task, "{context}", o.context, "{hook}", o.hook).Replace(text)
}

// out takes the ids out of an answer, which may repeat what the caller gave.
func (o owned) out(text string) string {
	return strings.NewReplacer(o.context, "{context}", o.task, "{task}", o.hook, "{hook}").Replace(text)
}

// Bodies that send a message which names what is another's.
const (
	message10 = `{"message":{"messageId":"x","role":"ROLE_USER","parts":[{"text":"x"}],%s}}`
	message03 = `{"message":{"kind":"message","messageId":"x","role":"user","parts":[{"kind":"text","text":"x"}],%s}}`
	rest03    = `{"message":{"messageId":"x","role":"ROLE_USER","content":[{"text":"x"}],%s}}`
	grpc03    = `{"request":{"messageId":"x","role":"ROLE_USER","parts":[{"text":"x"}],%s}}`
)

const (
	ofTask      = `"taskId":"{task}"`
	ofBoth      = `"taskId":"{task}","contextId":"{context}"`
	ofContext   = `"contextId":"{context}"`
	ofReference = `"referenceTaskIds":["{task}"]`
	pushHook    = `"url":"http://127.0.0.1:1/","token":"t"`
	parent      = `tasks/{task}`
	name        = `tasks/{task}/pushNotificationConfigs/{hook}`
)

// ownersTable is every operation that takes the id of something that belongs to someone, by every binding.
func ownersTable() []operation {
	var table []operation
	add := func(binding, call, body string) { table = append(table, operation{binding, call, body}) }
	for _, named := range []string{ofTask, ofBoth, ofContext, ofReference} {
		for _, call := range []string{"SendMessage", "SendStreamingMessage"} {
			add("JSON-RPC 1.0", call, fmt.Sprintf(message10, named))
			add("gRPC 1.0", call, fmt.Sprintf(message10, named))
			if named != ofReference { // the messages of gRPC and HTTP+JSON knew none in 0.3
				add("gRPC 0.3", call, fmt.Sprintf(grpc03, named))
			}
		}
		for _, call := range []string{"message/send", "message/stream"} {
			add("JSON-RPC 0.3", call, fmt.Sprintf(message03, named))
		}
		for _, call := range []string{"message:send", "message:stream"} {
			add("HTTP+JSON 1.0", "POST /"+call, fmt.Sprintf(message10, named))
			if named != ofReference {
				add("HTTP+JSON 0.3", "POST /"+call, fmt.Sprintf(rest03, named))
			}
		}
	}
	for _, binding := range []string{"JSON-RPC 1.0", "gRPC 1.0"} {
		add(binding, "GetTask", `{"id":"{task}"}`)
		add(binding, "CancelTask", `{"id":"{task}"}`)
		add(binding, "SubscribeToTask", `{"id":"{task}"}`)
		add(binding, "ListTasks", `{"contextId":"{context}"}`)
		add(binding, "CreateTaskPushNotificationConfig", `{"taskId":"{task}","id":"{hook}",`+pushHook+`}`)
		add(binding, "GetTaskPushNotificationConfig", `{"taskId":"{task}","id":"{hook}"}`)
		add(binding, "ListTaskPushNotificationConfigs", `{"taskId":"{task}"}`)
		add(binding, "DeleteTaskPushNotificationConfig", `{"taskId":"{task}","id":"{hook}"}`)
	}
	add("JSON-RPC 0.3", "tasks/get", `{"id":"{task}"}`)
	add("JSON-RPC 0.3", "tasks/cancel", `{"id":"{task}"}`)
	add("JSON-RPC 0.3", "tasks/resubscribe", `{"id":"{task}"}`)
	add("JSON-RPC 0.3", "tasks/pushNotificationConfig/set", `{"taskId":"{task}","pushNotificationConfig":{"id":"{hook}",`+pushHook+`}}`)
	add("JSON-RPC 0.3", "tasks/pushNotificationConfig/get", `{"id":"{task}","pushNotificationConfigId":"{hook}"}`)
	add("JSON-RPC 0.3", "tasks/pushNotificationConfig/list", `{"id":"{task}"}`)
	add("JSON-RPC 0.3", "tasks/pushNotificationConfig/delete", `{"id":"{task}","pushNotificationConfigId":"{hook}"}`)
	for _, binding := range []string{"HTTP+JSON 1.0", "HTTP+JSON 0.3"} {
		hook := `{"taskId":"{task}","id":"{hook}",` + pushHook + `}`
		if binding == "HTTP+JSON 0.3" {
			hook = `{"name":"` + name + `","pushNotificationConfig":{"id":"{hook}",` + pushHook + `}}`
		}
		add(binding, "GET /tasks/{task}", "")
		add(binding, "GET /tasks/{task}?historyLength=3", "")
		add(binding, "GET /tasks?contextId={context}", "")
		add(binding, "POST /tasks/{task}:cancel", "{}")
		add(binding, "GET /tasks/{task}:subscribe", "")
		add(binding, "POST /tasks/{task}:subscribe", "{}")
		add(binding, "POST /tasks/{task}/pushNotificationConfigs", hook)
		add(binding, "GET /tasks/{task}/pushNotificationConfigs/{hook}", "")
		add(binding, "GET /tasks/{task}/pushNotificationConfigs", "")
		add(binding, "DELETE /tasks/{task}/pushNotificationConfigs/{hook}", "")
	}
	add("gRPC 0.3", "GetTask", `{"name":"`+parent+`"}`)
	add("gRPC 0.3", "CancelTask", `{"name":"`+parent+`"}`)
	add("gRPC 0.3", "TaskSubscription", `{"name":"`+parent+`"}`)
	add("gRPC 0.3", "CreateTaskPushNotificationConfig", `{"parent":"`+parent+`","configId":"{hook}","config":{"name":"`+name+`","pushNotificationConfig":{"id":"{hook}",`+pushHook+`}}}`)
	add("gRPC 0.3", "GetTaskPushNotificationConfig", `{"name":"`+name+`"}`)
	add("gRPC 0.3", "ListTaskPushNotificationConfig", `{"parent":"`+parent+`"}`)
	add("gRPC 0.3", "DeleteTaskPushNotificationConfig", `{"name":"`+name+`"}`)
	return table
}

// operation is one row: call is the method, or the HTTP method and path.
type operation struct{ binding, call, body string }

func (o operation) lists() bool {
	return strings.HasPrefix(o.call, "ListTasks") || strings.HasPrefix(o.call, "GET /tasks?")
}

// wireAnswer is everything that a caller can see of an answer.
type wireAnswer struct {
	Status string
	Header []string // but for those that differ in any two answers
	Body   string
}

// ofTheRequest are headers that name the request or its time.
var ofTheRequest = []string{"Date", "X-Request-Id"}

// ownersRig speaks to one server by every binding.
type ownersRig struct {
	t          *testing.T
	base       string // public URL of the server
	connection *grpc.ClientConn
}

func (r *ownersRig) ask(o operation, agent, token string, ids owned) wireAnswer {
	r.t.Helper()
	var answer wireAnswer
	switch body := ids.in(o.body); {
	case strings.HasPrefix(o.binding, "gRPC"):
		answer = r.askGRPC(o, agent, token, body)
	case strings.HasPrefix(o.binding, "JSON-RPC"):
		envelope := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, o.call, body)
		answer = r.askHTTP(o, http.MethodPost, "/a2a/"+agent, token, envelope)
	default:
		method, path, _ := strings.Cut(o.call, " ")
		prefix := map[string]string{"HTTP+JSON 1.0": "/rest", "HTTP+JSON 0.3": "/v1"}[o.binding]
		answer = r.askHTTP(o, method, "/a2a/"+agent+prefix+ids.in(path), token, body)
	}
	answer.Body = ids.out(answer.Body)
	return answer
}

func (r *ownersRig) askHTTP(o operation, method, path, token, body string) wireAnswer {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), method, r.base+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("A2A-Version", o.binding[len(o.binding)-3:])
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	answer := wireAnswer{Status: response.Status, Body: string(text)}
	for header, values := range response.Header {
		if !slices.Contains(ofTheRequest, header) {
			answer.Header = append(answer.Header, fmt.Sprintf("%s: %q", header, values))
		}
	}
	slices.Sort(answer.Header)
	return answer
}

var grpcServices = map[string]string{"gRPC 1.0": "lf.a2a.v1.A2AService", "gRPC 0.3": "a2a.v1.A2AService"}

// askGRPC makes the request from its JSON by the registered descriptor. Every call is opened as a stream of answers, which
// is the same on the wire.
func (r *ownersRig) askGRPC(o operation, agent, token, body string) wireAnswer {
	r.t.Helper()
	service := grpcServices[o.binding]
	descriptor, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service + "." + o.call))
	if err != nil {
		r.t.Fatal(err)
	}
	method := descriptor.(protoreflect.MethodDescriptor)
	request, answer := r.newMessage(method.Input()), wireAnswer{}
	if err := protojson.Unmarshal([]byte(body), request); err != nil {
		r.t.Fatalf("%s %s: %v", o.binding, o.call, err)
	}
	if tenant := method.Input().Fields().ByName("tenant"); tenant != nil {
		request.ProtoReflect().Set(tenant, protoreflect.ValueOfString(agent))
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	stream, err := r.connection.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/"+service+"/"+o.call)
	if err == nil {
		err = errors.Join(stream.SendMsg(request), stream.CloseSend())
	}
	for err == nil {
		got := r.newMessage(method.Output())
		if err = stream.RecvMsg(got); err == nil {
			encoded, encodeErr := proto.MarshalOptions{Deterministic: true}.Marshal(got)
			if encodeErr != nil {
				r.t.Fatal(encodeErr)
			}
			answer.Body += string(encoded) + "\n"
		}
	}
	if !errors.Is(err, io.EOF) {
		answer.Status = fmt.Sprint(status.Code(err))
		answer.Body += status.Convert(err).Message() // the details are in the trailer
	}
	header, _ := stream.Header()
	for key, values := range metadata.Join(header, stream.Trailer()) {
		if key != "date" {
			answer.Header = append(answer.Header, fmt.Sprintf("%s: %q", key, values))
		}
	}
	slices.Sort(answer.Header)
	return answer
}

func (r *ownersRig) newMessage(descriptor protoreflect.MessageDescriptor) proto.Message {
	r.t.Helper()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(descriptor.FullName())
	if err != nil {
		r.t.Fatal(err)
	}
	return kind.New().Interface()
}

// do sends a JSON-RPC 1.0 request that must succeed.
func (r *ownersRig) do(agent, token, method, params string, result any) {
	r.t.Helper()
	answer := r.ask(operation{"JSON-RPC 1.0", method, params}, agent, token, nothing)
	var envelope struct{ Result json.RawMessage }
	if err := json.Unmarshal([]byte(answer.Body), &envelope); err != nil || envelope.Result == nil {
		r.t.Fatalf("%s gave %+v", method, answer)
	}
	if err := json.Unmarshal(envelope.Result, result); err != nil {
		r.t.Fatal(err)
	}
}

// startIssuer publishes the key of an issuer of access tokens and returns its URL and a token of one of its subjects.
func startIssuer(t *testing.T) (url string, token func(subject, audience string) string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"k1","use":"sig","alg":"EdDSA","x":%q}]}`, encode(public))
	}))
	t.Cleanup(issuer.Close)
	return issuer.URL, func(subject, audience string) string {
		claims, err := json.Marshal(map[string]any{
			"iss": issuer.URL, "sub": subject, "aud": audience, "client_id": "app", "jti": rand.Text(),
			"scope": "a2a:send a2a:read a2a:cancel a2a:push", "iat": time.Now().Unix(), "exp": time.Now().Unix() + 600,
		})
		if err != nil {
			t.Fatal(err)
		}
		signed := encode([]byte(`{"alg":"EdDSA","kid":"k1","typ":"at+jwt"}`)) + "." + encode(claims)
		return signed + "." + encode(ed25519.Sign(private, []byte(signed)))
	}
}

// TestA2AOwners asks for what belongs to others with every operation by every binding, and for what is not there: both
// answers must be the same, apart from the ids that the caller gave.
func TestA2AOwners(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		helper := newPromptedAgent(t, "helper")
		issuer, tokenOf := startIssuer(t)
		address, err := instance.FreeAddress()
		if err != nil {
			t.Fatal(err)
		}
		s := start(t, instance.Settings{
			Database: database, Agents: helper.table + "[[agents]]\nname = \"other\"\nkind = \"echo\"\n",
			More: fmt.Sprintf("[a2a]\ngrpc_listen = %q\ndefault_agent = \"helper\"\n[[a2a.issuers]]\nissuer = %q\njwks_url = %q\n", address, issuer, issuer+"/keys"),
		})
		connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = connection.Close() })
		rig := &ownersRig{t: t, base: s.URL(), connection: connection}
		mint := func(name string) string {
			token, err := s.Token(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			return token
		}
		ann, bob, judy := mint("ann"), mint("bob"), tokenOf("judy", s.URL()+"/a2a/helper")
		ended, running := rig.ownedBy(helper, ann)

		strangers := []struct{ name, agent, token string }{
			{"another principal", "helper", bob}, {"a subject of an issuer", "helper", judy}, {"the owner at another agent", "other", ann},
		}
		missing := owned{"01890000-0000-7000-8000-000000000000", "01890000-0000-7000-8000-000000000000." + strings.Repeat("0", 16), "nook"}
		for _, row := range ownersTable() {
			for _, who := range strangers {
				if row.binding == "gRPC 0.3" && who.agent == "other" {
					continue // it reaches the default agent only
				}
				want := rig.ask(row, who.agent, who.token, missing)
				if !row.lists() && !notFound(want) {
					t.Errorf("%s %s of what is not there: %+v", row.binding, row.call, want)
				}
				for _, ids := range []owned{ended, running} {
					if diff := cmp.Diff(want, rig.ask(row, who.agent, who.token, ids)); diff != "" {
						t.Errorf("%s %s %s by %s (-missing +foreign):\n%s", row.binding, row.call, row.body, who.name, diff)
					}
				}
			}
		}
		rig.checkNothingChanged(helper, ann, ended, running)
		for _, who := range strangers {
			rig.checkMessageID(who.agent, who.token)
		}
	})
}

// ownedBy returns an ended and a running task of one context each, both with a webhook.
func (r *ownersRig) ownedBy(agent *promptedAgent, token string) (ended, running owned) {
	r.t.Helper()
	send := func(text string, immediately bool) (ids owned) {
		var sent struct {
			Task struct{ ID, ContextID string }
		}
		r.do("helper", token, "SendMessage", fmt.Sprintf(`{"message":{"messageId":"m-%s","role":"ROLE_USER","parts":[{"text":%q}]},"configuration":{"returnImmediately":%t}}`,
			strings.Fields(text)[0], text, immediately), &sent)
		var hook struct{ ID string }
		r.do("helper", token, "CreateTaskPushNotificationConfig", fmt.Sprintf(`{"taskId":%q,"id":"hook","url":"http://127.0.0.1:1/"}`, sent.Task.ID), &hook)
		return owned{sent.Task.ID, sent.Task.ContextID, hook.ID}
	}
	ended = send("owned words", false)
	running = send("wait for the owner", true)
	await.Receive(r.t, agent.gate("for the owner").asked, "the agent to be asked")
	return ended, running
}

// notFound reports whether the answer is that of a missing task.
func notFound(a wireAnswer) bool {
	status := strings.HasPrefix(a.Status, "404") || a.Status == "NotFound" ||
		strings.HasPrefix(a.Status, "200") && strings.Contains(a.Body, "-32001") // JSON-RPC
	return status && strings.Contains(a.Body+strings.Join(a.Header, ""), "TASK_NOT_FOUND")
}

// checkNothingChanged looks whether the running task still runs, and whether the webhooks are as they were.
func (r *ownersRig) checkNothingChanged(agent *promptedAgent, token string, all ...owned) {
	r.t.Helper()
	for _, ids := range all {
		var hooks struct{ Configs []pushConfig }
		r.do("helper", token, "ListTaskPushNotificationConfigs", fmt.Sprintf(`{"taskId":%q}`, ids.task), &hooks)
		if len(hooks.Configs) != 1 || hooks.Configs[0].URL != "http://127.0.0.1:1/" {
			r.t.Errorf("the webhooks of task %s are %+v", ids.task, hooks.Configs)
		}
	}
	close(agent.gate("for the owner").open)
	eventually(r.t, "the owner's task completes", func() bool {
		var task struct{ Status struct{ State string } }
		r.do("helper", token, "GetTask", fmt.Sprintf(`{"id":%q}`, all[1].task), &task)
		return task.Status.State == completed
	})
	var list struct{ TotalSize int }
	r.do("helper", token, "ListTasks", `{}`, &list)
	if list.TotalSize != len(all) {
		r.t.Errorf("the owner has %d tasks; want %d", list.TotalSize, len(all))
	}
}

// What differs between the answers to any two messages.
var generated = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}(\.[0-9a-f]{16})?|\d{4}-\d\d-\d\dT[0-9:.]+Z`)

// checkMessageID sends a message with an id that the owner used, and one with an id that no one used.
func (r *ownersRig) checkMessageID(agent, token string) {
	r.t.Helper()
	answers := map[string]wireAnswer{}
	for _, id := range []string{"m-owned", "m-fresh"} {
		body := fmt.Sprintf(`{"message":{"messageId":%q,"role":"ROLE_USER","parts":[{"text":"good evening"}]}}`, id)
		answer := r.ask(operation{"JSON-RPC 1.0", "SendMessage", body}, agent, token, nothing)
		if !strings.Contains(answer.Body, completed) {
			r.t.Errorf("message %s gave %+v", id, answer)
		}
		answer.Header = slices.DeleteFunc(answer.Header, func(h string) bool { return strings.HasPrefix(h, "Content-Length") }) // times are written with as few digits as they need
		answer.Body = strings.ReplaceAll(generated.ReplaceAllString(answer.Body, "{generated}"), id, "{message}")
		answers[id] = answer
	}
	if diff := cmp.Diff(answers["m-fresh"], answers["m-owned"]); diff != "" {
		r.t.Errorf("a message with the id of another's (-fresh +used):\n%s", diff)
	}
}
