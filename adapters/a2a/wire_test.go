package a2a

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	a2apb0 "github.com/a2aproject/a2a-go/a2apb"
	"github.com/a2aproject/a2a-go/v2/a2a"
	pb "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"inbox/identity"
	"inbox/internal/webtoken"
	"inbox/normalized"
)

func TestTimesHaveMilliseconds(t *testing.T) {
	for body, want := range map[string]string{
		`{"state":"TASK_STATE_COMPLETED","timestamp":"2026-01-02T03:04:05Z"}`:        `{"state":"TASK_STATE_COMPLETED","timestamp":"2026-01-02T03:04:05.000Z"}`,
		`{"state":"TASK_STATE_INPUT_REQUIRED","timestamp":"2026-01-02T03:04:05.1Z"}`: `{"state":"TASK_STATE_INPUT_REQUIRED","timestamp":"2026-01-02T03:04:05.100Z"}`,
		`{"state":"completed","timestamp":"2026-01-02T03:04:05.12Z"}`:                `{"state":"completed","timestamp":"2026-01-02T03:04:05.120Z"}`,
		`{"state":"completed","timestamp":"2026-01-02T03:04:05.123Z"}`:               `{"state":"completed","timestamp":"2026-01-02T03:04:05.123Z"}`,
		`[{"state":"working","timestamp":"2026-01-02T03:04:05Z"},"Z"]`:               `[{"state":"working","timestamp":"2026-01-02T03:04:05.000Z"},"Z"]`,
		`{"text":"\"state\":\"working\",\"timestamp\":\"2026-01-02T03:04:05Z\""}`:    `{"text":"\"state\":\"working\",\"timestamp\":\"2026-01-02T03:04:05Z\""}`,
		`{"data":{"state":"open","timestamp":"2026-01-02T03:04:05Z"}}`:               `{"data":{"state":"open","timestamp":"2026-01-02T03:04:05Z"}}`,
	} {
		if got := string(inMilliseconds([]byte(body))); got != want {
			t.Errorf("%s became %s", body, got)
		}
	}
}

func TestListSinceAnInstant(t *testing.T) {
	b := setup(t)
	task := b.rpc(b.ada, "SendMessage", message("m1", "hello"))
	at, err := time.Parse(time.RFC3339, task.text(t, "result.task.status.timestamp"))
	if err != nil {
		t.Fatal(err)
	}
	for since, want := range map[time.Time]float64{at: 1, at.Add(-time.Millisecond): 1, at.Add(2 * time.Millisecond): 0} {
		listed := b.rpc(b.ada, "ListTasks", `{"statusTimestampAfter":"`+since.Format(time.RFC3339Nano)+`"}`)
		if listed.at(t, "result.totalSize") != want {
			t.Errorf("since %v of %v: %s", since, at, listed.body)
		}
	}
	missing := owner{"echo", "somebody"}.names().MintName()
	if got := b.rpc(b.ada, "ListTasks", `{"contextId":"`+missing+`"}`); got.at(t, "result.pageSize") != 50.0 || got.at(t, "result.totalSize") != 0.0 {
		t.Errorf("of a foreign context: %s", got.body)
	}
}

func TestParamsMayBeLeftOut(t *testing.T) {
	b := setup(t)
	for _, method := range []string{"ListTasks", "GetExtendedAgentCard", "agent/getAuthenticatedExtendedCard"} {
		if got := b.do("POST", "/a2a/echo", b.ada, `{"jsonrpc":"2.0","id":1,"method":"`+method+`"} `); got.decode(t).Error != nil {
			t.Errorf("%s: %s", method, got.body)
		}
	}
	for _, body := range []string{`{"jsonrpc":"2.0","id":"mine","method":5}`, `{"jsonrpc":"2.0","id":"mine"}`} {
		if got := b.do("POST", "/a2a/echo", b.ada, body); got.text(t, "id") != "mine" {
			t.Errorf("%s has lost its id: %s", body, got.body)
		}
	}
}

func TestBase64OfEveryForm(t *testing.T) {
	b := setup(t)
	for i, raw := range []string{"/+8=", "_-8=", "/+8", "_-8", `\/+8=`} {
		body := strings.Replace(message("m"+string(rune('a'+i)), "x"), `{"text":"x"}`, `{"raw":"`+raw+`","filename":"f"}`, 1)
		if got := b.rpc(b.ada, "SendMessage", body).text(t, "result.task.history.0.parts.0.raw"); got != "/+8=" {
			t.Errorf("%s came back as %q", raw, got)
		}
	}
	for _, raw := range []string{"***", "a"} {
		body := `{"message":{"kind":"message","messageId":"x","role":"user","parts":[{"kind":"file","file":{"bytes":"` + raw + `"}}]}}`
		if got := b.rpc(b.ada, "message/send", body).decode(t); got.Error == nil || got.Error.Code != -32602 {
			t.Errorf("%s in 0.3: %+v", raw, got)
		}
	}
}

func TestAcceptedOutputModesReachTheAgent(t *testing.T) {
	b := setup(t)
	for modes, want := range map[string]string{
		`[]`:             "[text/markdown text/plain]",
		`["text/plain"]`: "[text/plain]",
		`["text/plain; charset=utf-8","image/png","text/plain"]`: "[text/plain]",
		`["text/html","text/markdown"]`:                          "[text/html text/markdown]",
		`["text/plain","*/*"]`:                                   "[text/markdown text/plain]",
		`["text","application/json",""]`:                         "[text/markdown text/plain]",
	} {
		b.rpc(b.ada, "SendMessage", `{"configuration":{"acceptedOutputModes":`+modes+`},`+message(fmt.Sprint("m", len(modes)), "hello")[1:])
		if got := fmt.Sprint(b.engine.last().Message.RecipientCapabilities.TextMIMEs); got != want {
			t.Errorf("%s: %s", modes, got)
		}
	}
}

func TestMediaTypeOfHTTPJSON(t *testing.T) {
	b := setup(t)
	for _, c := range []struct {
		header []string
		want   string
	}{
		{nil, "application/json"},
		{[]string{"Accept", "application/json, application/a2a+json"}, "application/json"},
		{[]string{"Accept", "application/a2a+json"}, "application/a2a+json"},
		{[]string{"Content-Type", "application/a2a+json"}, "application/a2a+json"},
	} {
		for _, at := range []string{"/a2a/echo/rest/tasks", "/a2a/echo/rest/tasks/missing"} {
			if got := b.do("GET", at, b.ada, "", c.header...).header.Get("Content-Type"); got != c.want {
				t.Errorf("%v: %s", c.header, got)
			}
		}
	}
	if got := b.do("POST", "/a2a/echo/v1/message:send", b.ada, `{}`, "Content-Type", "application/a2a+json").header.Get("Content-Type"); got != "application/json" {
		t.Errorf("0.3: %s", got)
	}
}

func TestRefusedVersionsNameTheOneThatIsSpoken(t *testing.T) {
	b := setup(t)
	for path, c := range map[string]struct{ asked, served string }{"rest": {"0.3", "1.0"}, "v1": {"1.0", "0.3"}} {
		got := b.do("GET", "/a2a/echo/"+path+"/tasks/x", b.ada, "", "A2A-Version", c.asked)
		if got.status != http.StatusBadRequest || !strings.Contains(got.text(t, "error.message"), "must be "+c.served+" at this address") {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
}

func TestNamesAndErrorsOf03(t *testing.T) {
	b := setup(t)
	sent := b.do("POST", "/a2a/echo/v1/message:send", b.ada,
		`{"request":{"message_id":"m1","role":"ROLE_USER","content":[{"text":"request"},{"file":{"file_with_bytes":"YUdr","mime_type":"text/plain","name":"n"}}]},`+
			`"configuration":{"history_length":1}}`)
	if sent.text(t, "task.history.0.messageId") != "m1" || sent.text(t, "task.history.0.content.1.file.mimeType") != "text/plain" {
		t.Errorf("%d %s", sent.status, sent.body)
	}
	for path, want := range map[string]string{"tasks/missing": "TaskNotFoundError", "nothing": "MethodNotFoundError"} {
		if got := b.do("GET", "/a2a/echo/v1/"+path, b.ada, ""); got.text(t, "type") != want {
			t.Errorf("%s: %s", path, got.body)
		}
	}
}

func TestErrorsOf03ByGRPC(t *testing.T) {
	for sentinel, want := range map[error]struct {
		old, fresh grpccodes.Code
		name       string
	}{
		a2a.ErrTaskNotFound:         {grpccodes.NotFound, grpccodes.NotFound, "TaskNotFoundError"},
		a2a.ErrTaskNotCancelable:    {grpccodes.FailedPrecondition, grpccodes.FailedPrecondition, "TaskNotCancelableError"},
		a2a.ErrUnsupportedOperation: {grpccodes.Unimplemented, grpccodes.FailedPrecondition, "UnsupportedOperationError"},
		a2a.ErrInvalidParams:        {grpccodes.InvalidArgument, grpccodes.InvalidArgument, "InvalidParamsError"},
		a2a.ErrInternalError:        {grpccodes.Internal, grpccodes.Internal, "InternalError"},
	} {
		p := newProblem(sentinel, "said")
		if got := status.Convert(p.grpcStatus(true)); got.Code() != want.old || got.Message() != want.name+": said" {
			t.Errorf("0.3: %v", got)
		}
		if got := status.Convert(p.grpcStatus(false)); got.Code() != want.fresh || got.Message() != "said" {
			t.Errorf("1.0: %v", got)
		}
	}
}

// TestExtendedCardOf03 is complete: a client of 0.3 uses it instead of the public one from then on.
func TestExtendedCardOf03(t *testing.T) {
	b, issuer := withIssuer(t)
	public := b.do("GET", "/a2a/echo/.well-known/agent-card.json", "", "")
	var card struct{ Result json.RawMessage }
	if err := json.Unmarshal([]byte(b.rpc(b.ada, "agent/getAuthenticatedExtendedCard", "{}").body), &card); err != nil {
		t.Fatal(err)
	}
	for binding, got := range map[string]reply{
		"JSON-RPC": {body: string(card.Result)}, "HTTP+JSON": b.do("GET", "/a2a/echo/v1/card", b.ada, ""),
	} {
		for _, member := range []string{"url", "preferredTransport", "protocolVersion", "securitySchemes.bearer.type", "additionalInterfaces.0.url"} {
			if want := public.text(t, member); want == "" || got.text(t, member) != want {
				t.Errorf("%s: %s is %q, of the public card %q", binding, member, got.text(t, member), want)
			}
		}
		if got.at(t, "security.0.bearer") == nil || strings.Contains(got.body, `"transport":"HTTP+JSON","url":"https://agents.test/a2a/echo/rest"`) {
			t.Errorf("%s: %s", binding, got.body)
		}
		if err := webtoken.VerifyCard([]byte(got.body), identity.KeySet([]identity.PublicKey{issuer.card.Public()})); err != nil {
			t.Errorf("%s: %v", binding, err)
		}
	}
}

func TestCardByGRPCHasNoEmptyFields(t *testing.T) {
	b := setup(t)
	card, err := b.dial().GetExtendedAgentCard(calling(b.ada), &pb.GetExtendedAgentCardRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if card.DocumentationUrl != nil || card.IconUrl != nil {
		t.Errorf("explicitly empty: %v %v", card.DocumentationUrl, card.IconUrl)
	}
}

// TestStreamedArtifactsEnd: the reader is told when an artifact is whole, also where all of it was streamed.
func TestStreamedArtifactsEnd(t *testing.T) {
	b := setup(t)
	b.engine.agent = func(_ context.Context, r *run) normalized.Response {
		r.say("one ")
		r.say("two")
		return normalized.Response{Parts: []normalized.Part{normalized.Text("one two")}}
	}
	for method, body := range map[string]string{
		"SendStreamingMessage": message("m1", "x"),
		"message/stream":       `{"message":{"kind":"message","messageId":"m2","role":"user","parts":[{"kind":"text","text":"x"}]}}`,
	} {
		var text strings.Builder
		var last []bool
		for _, frame := range b.rpc(b.ada, method, body).frames() {
			for _, at := range []string{"result.artifactUpdate", "result"} {
				part, is := frame.at(t, at+".artifact.parts.0.text").(string)
				if !is {
					continue
				}
				text.WriteString(part)
				end, _ := frame.at(t, at+".lastChunk").(bool)
				last = append(last, end)
			}
		}
		if text.String() != "one two" || !slices.Equal(last, []bool{false, false, true}) {
			t.Errorf("%s: %q %v", method, text.String(), last)
		}
	}
}

func TestDeletedWebhooksByHTTPJSON(t *testing.T) {
	b, _, _ := pushing(t)
	task := b.rpc(b.ada, "SendMessage", message("m1", "x")).text(t, "result.task.id")
	for path, want := range map[string]reply{
		"rest": {http.StatusOK, http.Header{"Content-Type": {"application/json"}}, "{}"}, "v1": {status: http.StatusNoContent},
	} {
		got := b.do("DELETE", "/a2a/echo/"+path+"/tasks/"+task+"/pushNotificationConfigs/none", b.ada, "")
		if got.status != want.status || got.body != want.body || got.header.Get("Content-Type") != want.header.Get("Content-Type") {
			t.Errorf("%s: %d %q %v", path, got.status, got.body, got.header)
		}
	}
}

// TestIDsComeBackAsTheyWere: numbers that no float holds, too, in answers, errors and each event of a stream.
func TestIDsComeBackAsTheyWere(t *testing.T) {
	b := setup(t)
	for _, id := range []string{"7", "0", "-1", "1.5", "1.0", "9007199254740993", "1763838641123456789", "123456789012345678901234567890", `"x"`, "null"} {
		for method, params := range map[string]string{
			"ListTasks": "{}", "GetTask": `{"id":"none"}`, "Nope": "{}", "SendMessage": message("m1", "hello"), "SendStreamingMessage": message("m2", "hello"),
		} {
			body := b.do("POST", "/a2a/echo", b.ada, `{"jsonrpc":"2.0","id":`+id+`,"method":"`+method+`","params":`+params+`}`).body
			answers := strings.Count(body, `"jsonrpc"`)
			if exact := strings.Count(body, `{"jsonrpc":"2.0","id":`+id+`,`); answers == 0 || exact != answers {
				t.Errorf("%s of %s: %d of %d answers have the id: %s", method, id, exact, answers, body)
			}
		}
	}
}

// TestProtoJSONOfRequests: what ProtoJSON takes beside the plain form is taken by JSON-RPC and HTTP+JSON (A2A 1.0, section
// 5.5; Protocol Buffers language guide, ProtoJSON): numbers in quotes, enums by number, null as data.
func TestProtoJSONOfRequests(t *testing.T) {
	b := setup(t)
	send := `{"message":{"messageId":"m1","role":1,"parts":[{"data":null}]},"configuration":{"historyLength":"0"}}`
	if r := b.rpc(b.ada, "SendMessage", send); r.text(t, "result.task.status.state") != "TASK_STATE_COMPLETED" || r.at(t, "result.task.history") != nil {
		t.Errorf("sent: %s", r.body)
	}
	part := b.engine.last().Message.Parts[0]
	if part.Kind != normalized.PartFile || part.MIME != mimeJSON || part.Size != 4 {
		t.Errorf("null became %+v", part)
	}
	if r := b.do("POST", "/a2a/echo/rest/message:send", b.ada, send); r.status != http.StatusOK || r.at(t, "task.history") != nil {
		t.Errorf("again by HTTP+JSON: %d %s", r.status, r.body)
	}
	if r := b.rpc(b.ada, "ListTasks", `{"pageSize":"1","status":3}`); r.at(t, "result.pageSize") != 1.0 || r.at(t, "result.tasks.#") != 1.0 {
		t.Errorf("listed: %s", r.body)
	}
	for _, params := range []string{`{"pageSize":"x"}`, `{"pageSize":1.5}`, `{"pageSize":"1 "}`, `{"pageSize":true}`, `{"historyLength":[1]}`} {
		if got := b.rpc(b.ada, "ListTasks", params).decode(t); got.Error == nil || got.Error.Code != -32602 {
			t.Errorf("%s: %+v", params, got)
		}
	}
}

func TestLowerCamel(t *testing.T) {
	for in, want := range map[string]string{
		`{"params":{"history_length":1,"context_id":"a_b"}}`:                `{"params":{"historyLength":1,"contextId":"a_b"}}`,
		`{"message":{"message_id":"m_1","metadata":{"own_key":{"x_y":1}}}}`: `{"message":{"messageId":"m_1","metadata":{"own_key":{"x_y":1}}}}`,
		`{"parts":[{"data":{"a_b":1}},{"media_type":"text/plain"}]}`:        `{"parts":[{"data":{"a_b":1}},{"mediaType":"text/plain"}]}`,
		`{"a":1}`:                                `{"a":1}`,
		`{ "a_b" : [ ] , "c_d":{} }`:             `{ "aB" : [ ] , "cD":{} }`,
		`{"esc\u0061_b":"\"x_y\":1"}`:            `{"esc\u0061_b":"\"x_y\":1"}`,
		`{"a_b":`:                                `{"a_b":`,
		`[{"a_b":tru,"c_d":1]`:                   `[{"a_b":tru,"c_d":1]`,
		`{"page_size":"5","historyLength":"-1"}`: `{"pageSize":5,"historyLength":-1}`,
		`{"pageSize":2.0,"configuration":{"history_length": 1e1 }}`: `{"pageSize":2,"configuration":{"historyLength": 10 }}`,
		`{"pageSize":"x","historyLength":1.5}`:                      `{"pageSize":"x","historyLength":1.5}`,
		`{"pageSize":"","historyLength":"05"}`:                      `{"pageSize":"","historyLength":"05"}`,
		`{"pageSize":null,"historyLength":"3000000000"}`:            `{"pageSize":null,"historyLength":"3000000000"}`,
		`{"metadata":{"pageSize":"5"},"name":"5"}`:                  `{"metadata":{"pageSize":"5"},"name":"5"}`,
		`{"role":1,"status":8}`:                                     `{"role":"ROLE_USER","status":"TASK_STATE_AUTH_REQUIRED"}`,
		`{"role":9,"status":"TASK_STATE_FAILED"}`:                   `{"role":9,"status":"TASK_STATE_FAILED"}`,
		`{"parts":[{"data":null }]}`:                                `{"parts":[{"data":null ,"raw":"bnVsbA==","mediaType":"application/json"}]}`,
		`{"text":null,"data":null,"media_type":"a/b"}`:              `{"text":null,"data":null,"mediaType":"a/b","raw":"bnVsbA==","mediaType":"application/json"}`,
		`{"text":"x","data":null}`:                                  `{"text":"x","data":null}`,
		`{"metadata":{"data":null}}`:                                `{"metadata":{"data":null}}`,
		``:                                                          ``,
	} {
		if got := string(lowerCamel([]byte(in))); got != want {
			t.Errorf("%s became %s, want %s", in, got, want)
		}
	}
	if got := lowerCamelQuery("history_length=1&page_size=2&x=a_b"); got != "historyLength=1&pageSize=2&x=a_b" {
		t.Errorf("query %s", got)
	}
}

// FuzzLowerCamel looks for documents that are broken by the renaming.
func FuzzLowerCamel(f *testing.F) {
	f.Add([]byte(`{"a_b":[1,"c_d",{"e_f":null,"metadata":{"g_h":1}}],"x":"\\\""}`))
	f.Add([]byte(`[[[[{"_":1,"__a":2}]]]]`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if got := lowerCamel(body); json.Valid(body) != json.Valid(got) {
			t.Fatalf("%q became %q", body, got)
		}
	})
}

func nested(levels int) *structpb.Value {
	value := structpb.NewNumberValue(1)
	for range levels {
		value = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{value}})
	}
	return value
}

// TestDeepStructsAreRefused: gRPC has the bounds of JSON, in both versions, also where the first message is that of a stream.
func TestDeepStructsAreRefused(t *testing.T) {
	b := setup(t)
	connection := b.connect()
	one, old := pb.NewA2AServiceClient(connection), a2apb0.NewA2AServiceClient(connection)
	wide := &structpb.ListValue{}
	for range 2 * maxRequestValues {
		wide.Values = append(wide.Values, structpb.NewNullValue())
	}
	for name, value := range map[string]*structpb.Value{"deep": nested(2 * maxRequestDepth), "very deep": nested(9000), "wide": structpb.NewListValue(wide)} {
		request := grpcMessage("m", "echo")
		request.Message.Parts = []*pb.Part{{Content: &pb.Part_Data{Data: value}}}
		_, err := one.SendMessage(calling(b.ada), request)
		wantStatus(t, err, grpccodes.InvalidArgument, "INVALID_PARAMS")
		stream, err := one.SendStreamingMessage(calling(b.ada), request)
		if err == nil {
			_, err = stream.Recv()
		}
		wantStatus(t, err, grpccodes.InvalidArgument, "INVALID_PARAMS")
		before := request0("m", "")
		before.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"x": value}}
		_, err = old.SendMessage(calling(b.ada), before)
		wantStatus(t, err, grpccodes.InvalidArgument, "INVALID_PARAMS")
		if b.engine.receives != 0 {
			t.Fatalf("%s was taken", name)
		}
	}
	request := grpcMessage("m", "echo")
	request.Message.Parts = []*pb.Part{{Content: &pb.Part_Data{Data: nested(maxRequestDepth / 2)}}}
	if _, err := one.SendMessage(calling(b.ada), request); err != nil {
		t.Errorf("within the bounds: %v", err)
	}
}

// rawCodec sends bytes as they are.
type rawCodec struct{ encoding.CodecV2 }

func (c rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	if raw, is := v.([]byte); is {
		return mem.BufferSlice{mem.SliceBuffer(raw)}, nil
	}
	return c.CodecV2.Marshal(v)
}

// TestInvalidUTF8IsRefused: broken text is an error of the request by every binding and nothing of it is stored.
func TestInvalidUTF8IsRefused(t *testing.T) {
	b := setup(t)
	const broken = "a\xff\xfeb"
	rpc := func(method, params string) reply {
		return b.do("POST", "/a2a/echo", b.ada, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`)
	}
	for name, r := range map[string]reply{
		"text":     rpc("SendMessage", message("m1", broken)),
		"metadata": rpc("SendMessage", `{"message":{"messageId":"m2","role":"ROLE_USER","parts":[{"text":"x"}],"metadata":{"k":"`+broken+`"}}}`),
		"id":       rpc("SendMessage", message("m"+broken, "x")),
		"0.3":      rpc("message/send", `{"message":{"kind":"message","messageId":"m3","role":"user","parts":[{"kind":"text","text":"`+broken+`"}]}}`),
		"stream":   rpc("SendStreamingMessage", message("m4", broken)),
		"get":      rpc("GetTask", `{"id":"`+broken+`"}`),
	} {
		if r.at(t, "error.code") != -32700.0 {
			t.Errorf("JSON-RPC, %s: %s", name, r.body)
		}
	}
	for _, path := range []string{"/a2a/echo/rest/message:send", "/a2a/echo/rest/message:stream", "/a2a/echo/v1/message:send"} {
		r := b.do("POST", path, b.ada, strings.Replace(message("m5", broken), "parts", map[bool]string{true: "content", false: "parts"}[strings.Contains(path, "/v1/")], 1))
		if r.status != 400 || r.text(t, "error.status") != "INVALID_ARGUMENT" {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
	if r := b.do("GET", "/a2a/echo/rest/tasks?contextId=%ff", b.ada, ""); r.status != 200 || r.at(t, "tasks.#") != 0.0 {
		t.Errorf("a context that is no text: %d %s", r.status, r.body)
	}
	codec := rawCodec{encoding.GetCodecV2(grpcproto.Name)}
	connection, err := grpc.NewClient(b.serveGRPC(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	for _, method := range []string{"/lf.a2a.v1.A2AService/SendMessage", "/a2a.v1.A2AService/SendMessage", "/lf.a2a.v1.A2AService/GetTask"} {
		// The second field is the message of SendMessage in 1.0, the first that of 0.3; both have the id as their first.
		for _, raw := range [][]byte{[]byte("\x12\x04\x0a\x02a\xff"), []byte("\x0a\x04\x0a\x02a\xff"), []byte("\xff")} {
			err := connection.Invoke(context.WithoutCancel(calling(b.ada)), method, raw, &pb.SendMessageResponse{})
			wantStatus(t, err, grpccodes.InvalidArgument, "INVALID_PARAMS")
		}
	}
	if b.engine.receives != 0 {
		t.Errorf("%d messages were taken", b.engine.receives)
	}
}

// TestNamesOfTheProtoFileIn03: a JSON-RPC client of 0.3 that was made from its .proto file writes snake_case. Its members count, and those of
// data and metadata stay the client's own.
func TestNamesOfTheProtoFileIn03(t *testing.T) {
	b, table, hook := pushing(t)
	var got normalized.Message
	b.engine.agent = func(ctx context.Context, r *run) normalized.Response {
		got = r.turn.Message
		return echo(ctx, r)
	}
	sent := b.rpc(b.ada, "message/send", `{"message":{"kind":"message","message_id":"m1","role":"user","metadata":{"my_key":1},"parts":[`+
		`{"kind":"text","text":"hello"},{"kind":"file","file":{"bytes":"aGVsbG8=","mime_type":"text/csv","name":"a_b.csv"}},`+
		`{"kind":"data","data":{"a_b":1}}]},`+
		`"configuration":{"history_length":0,"push_notification_config":{"url":"`+hook.URL+`"}}}`)
	if state := sent.text(t, "result.status.state"); state != "completed" {
		t.Fatalf("%s", sent.body)
	}
	if len(table.rows) != 1 {
		t.Errorf("%d webhooks are registered, want 1", len(table.rows))
	}
	if len(got.Parts) != 3 || got.Parts[1].MIME != "text/csv" || got.Parts[1].Name != "a_b.csv" {
		t.Errorf("parts %+v", got.Parts)
	}
	if document, _ := json.Marshal(got); !strings.Contains(string(document), `a_b`) || got.ID != "m1" {
		t.Errorf("the message is %s", document)
	}
}

// TestPartsAtFaultIn03 names the part and the member for which a message of 0.3 is refused.
func TestPartsAtFaultIn03(t *testing.T) {
	b := setup(t)
	for part, want := range map[string]string{
		`{"type":"text","text":"hello"}`: "message.parts[1].kind: is missing; type is its name in version 0.2",
		`{"text":"hello"}`:               "message.parts[1].kind: is missing",
		`{"kind":"hologram"}`:            "message.parts[1].kind: must be text, file or data",
		`"hello"`:                        "message.parts[1]: must be an object",
		`{"kind":7}`:                     "message.parts[1]: must be an object",
		`{"type":"file","file":{"bytes":"aGVsbG8="}}`:     "message.parts[1].kind: is missing; type is its name in version 0.2",
		`{"type":"data","kind":null,"data":{"kind":"x"}}`: "message.parts[1].kind: is missing; type is its name in version 0.2",
	} {
		for _, method := range []string{"message/send", "message/stream"} {
			r := b.rpc(b.ada, method, `{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"x"},`+part+`]}}`)
			if failure := r.decode(t).Error; failure == nil || failure.Code != -32602 || !strings.Contains(failure.Message, want) {
				t.Errorf("%s with %s: %s, want %q", method, part, r.body, want)
			}
		}
	}
}
