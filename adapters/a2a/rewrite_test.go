package a2a

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	pb0 "github.com/a2aproject/a2a-go/a2apb"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"inbox/normalized"
)

func TestFilesOf03InBothEncodings(t *testing.T) {
	for _, c := range []struct {
		content, want string
		plain         bool
	}{
		{"hello", "aGVsbG8=", false},       // the file itself, of a program that is not known
		{"aGVsbG8=", "aGVsbG8=", false},    // its base64 text, as those in Go and Python send it
		{"aGVsbG8=", "YUdWc2JHOD0=", true}, // a file that happens to be base64, of the JavaScript SDK
		{"test", "dGVzdA==", true},         // as do four letters
		{"", "", false}, {"", "", true},
	} {
		if got := string(asBase64([]byte(c.content), c.plain)); got != c.want {
			t.Errorf("%+v became %q", c, got)
		}
		part := &pb0.FilePart_FileWithBytes{FileWithBytes: []byte(c.content)}
		encodeFiles(&pb0.SendMessageRequest{Request: &pb0.Message{Parts: []*pb0.Part{
			{Part: &pb0.Part_Text{Text: "hi"}}, {Part: &pb0.Part_File{File: &pb0.FilePart{File: part}}},
		}}}, c.plain)
		if got := string(part.FileWithBytes); got != c.want {
			t.Errorf("%+v became %q by gRPC", c, got)
		}
	}
	for body, want := range map[string]string{
		`{"message":{"content":[{"text":"x"},{"file":{"fileWithBytes":"aGVsbG8="}}],"role":"r"}}`: `{"message":{"content":[{"text":"x"},{"file":{"fileWithBytes":"YUdWc2JHOD0="}}],"role":"r"}}`,
		`{"message":{"content":[{"file":{"fileWithBytes":"YUdWc2JHOD0="}}]}}`:                     `{"message":{"content":[{"file":{"fileWithBytes":"YUdWc2JHOD0="}}]}}`,
		`{"message":{"content":[{"file":{"file_with_bytes":"aGVsbG8"}}]}}`:                        `{"message":{"content":[{"file":{"file_with_bytes":"YUdWc2JHOD0="}}]}}`,
		`{"message":{"content":[{"file":{"fileWithBytes":"no base64!"}}]}}`:                       `{"message":{"content":[{"file":{"fileWithBytes":"no base64!"}}]}}`,
		`{"message":{"content":[{"text":"fileWithBytes"}]}}`:                                      `{"message":{"content":[{"text":"fileWithBytes"}]}}`,
		`{"message":{"content":[{"data":{"data":{"fileWithBytes":"aGVsbG8="}}}]}}`:                `{"message":{"content":[{"data":{"data":{"fileWithBytes":"aGVsbG8="}}}]}}`,
		`{"fileWithBytes":`: `{"fileWithBytes":`,
	} {
		if diff := cmp.Diff(want, string(encodeFilesJSON([]byte(body), false))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", body, diff)
		}
	}
}

// TestFilesOf03InAnswers: what the SDK encodes once too often is decoded wherever a file can stand, and nothing else.
func TestFilesOf03InAnswers(t *testing.T) {
	file := func() []*pb0.Part {
		return []*pb0.Part{{Part: &pb0.Part_File{File: &pb0.FilePart{File: &pb0.FilePart_FileWithBytes{FileWithBytes: []byte("aGVsbG8=")}}}}}
	}
	task := func() *pb0.Task {
		return &pb0.Task{
			Artifacts: []*pb0.Artifact{{Parts: file()}}, History: []*pb0.Message{{Parts: file()}},
			Status: &pb0.TaskStatus{Update: &pb0.Message{Parts: file()}},
		}
	}
	for name, answer := range map[string]proto.Message{
		"task":    task(),
		"sent":    &pb0.SendMessageResponse{Payload: &pb0.SendMessageResponse_Task{Task: task()}},
		"message": &pb0.SendMessageResponse{Payload: &pb0.SendMessageResponse_Msg{Msg: &pb0.Message{Parts: file()}}},
		"list":    &pb0.ListTasksResponse{Tasks: []*pb0.Task{task()}},
		"event": &pb0.StreamResponse{Payload: &pb0.StreamResponse_ArtifactUpdate{
			ArtifactUpdate: &pb0.TaskArtifactUpdateEvent{Artifact: &pb0.Artifact{Parts: file()}},
		}},
	} {
		decodeFiles(answer)
		if text := prototext.Format(answer); strings.Contains(text, "aGVsbG8=") || !strings.Contains(text, `"hello"`) {
			t.Errorf("%s: %s", name, text)
		}
	}
	for answer, want := range map[string]string{
		`{"task":{"artifacts":[{"parts":[{"file":{"fileWithBytes":"YUdWc2JHOD0=","name":"n"}}]}]}}`: `{"task":{"artifacts":[{"parts":[{"file":{"fileWithBytes":"aGVsbG8=","name":"n"}}]}]}}`,
		"data: {\"file\":{\"fileWithBytes\":\"YUdWc2JHOD0=\"}}\n\n":                                 "data: {\"file\":{\"fileWithBytes\":\"aGVsbG8=\"}}\n\n",
		`{"file":{"fileWithBytes":"/+8="}}`:                                                         `{"file":{"fileWithBytes":"/+8="}}`,
		`{"data":{"data":{"fileWithBytes":"YUdWc2JHOD0="}}}`:                                        `{"data":{"data":{"fileWithBytes":"YUdWc2JHOD0="}}}`,
		`{"metadata":{"fileWithBytes":"YUdWc2JHOD0="},"a":"b"}`:                                     `{"metadata":{"fileWithBytes":"YUdWc2JHOD0="},"a":"b"}`,
		": keep-alive\n\n": ": keep-alive\n\n", "": "",
	} {
		if diff := cmp.Diff(want, string(decodeFilesJSON([]byte(answer)))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", answer, diff)
		}
	}
}

func TestProgramsOf03(t *testing.T) {
	for program, plain := range map[string]bool{
		"node": true, "undici": true, "Deno/2.1": true, "Bun/1.2": true, "Mozilla/5.0 (X11)": true, "grpc-node-js/1.13.4": true, "mine grpc-node-js/1": true,
		"": false, "python-httpx/0.28": false, "Go-http-client/1.1": false, "grpc-go/1.70": false, "grpc-python/1.60 grpc-c/37": false, "curl/8": false,
	} {
		if got := plainFiles(http.Header{"User-Agent": {program}}); got != plain {
			t.Errorf("%q: %v", program, got)
		}
	}
	if !plainFiles(http.Header{"Sec-Fetch-Mode": {"cors"}}) {
		t.Error("a browser is not known")
	}
}

func TestFilesOf03ByJSONRPC(t *testing.T) {
	for body, want := range map[string]string{
		`{"file":{"bytes":"aGVsbG8="}}`: `{"file":{"bytes":"aGVsbG8="}}`,
		`{"file":{"bytes":"aGVsbG8"}}`:  `{"file":{"bytes":"aGVsbG8="}}`,
		`{"file":{"bytes":"_-8"}}`:      `{"file":{"bytes":"/+8="}}`,
		`{"file":{"bytes":"\/+8="}}`:    `{"file":{"bytes":"/+8="}}`,
		`{"data":{"bytes":"***"}}`:      `{"data":{"bytes":"***"}}`,
	} {
		got, p := filesOf03([]byte(body))
		if diff := cmp.Diff(want, string(got)); diff != "" || p != nil {
			t.Errorf("%s: %v (-want +got):\n%s", body, p, diff)
		}
	}
	for _, body := range []string{`{"file":{"bytes":"***"}}`, `{"file":{"bytes":"aGVsbG8=x"}}`, `{"file":{"bytes":"a"}}`} {
		if _, p := filesOf03([]byte(body)); p == nil {
			t.Errorf("%s was taken", body)
		}
	}
}

func TestWebhookOf03Wrapped(t *testing.T) {
	for body, want := range map[string]string{
		`{"name":"n","pushNotificationConfig":{"url":"u"}}`:                 `{"config":{"name":"n","pushNotificationConfig":{"url":"u"}}}`,
		`{"parent":"p","config":{"pushNotificationConfig":{"url":"u"}}}`:    `{"parent":"p","config":{"pushNotificationConfig":{"url":"u"}}}`,
		`{"message":{},"configuration":{"pushNotificationConfig":{}}}`:      `{"message":{},"configuration":{"pushNotificationConfig":{}}}`,
		`{"message":{"content":[{"text":"\"pushNotificationConfig\":1"}]}}`: `{"message":{"content":[{"text":"\"pushNotificationConfig\":1"}]}}`,
		`["pushNotificationConfig"]`:                                        `["pushNotificationConfig"]`,
	} {
		if diff := cmp.Diff(want, string(wrapHook([]byte(body)))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", body, diff)
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
