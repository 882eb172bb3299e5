package a2a

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	pb0 "github.com/a2aproject/a2a-go/a2apb"
	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"inbox/exchange"
	"inbox/internal/httpserver"
	"inbox/internal/markup/markuptest"
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
		got, p := rpcOf03([]byte(body))
		if diff := cmp.Diff(want, string(got)); diff != "" || p != nil {
			t.Errorf("%s: %v (-want +got):\n%s", body, p, diff)
		}
	}
	for _, body := range []string{`{"file":{"bytes":"***"}}`, `{"file":{"bytes":"aGVsbG8=x"}}`, `{"file":{"bytes":"a"}}`} {
		if _, p := rpcOf03([]byte(body)); p == nil {
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

// TestHostileHTMLPartsCostTheirLength: a text/html part had no bound at all.
func TestHostileHTMLPartsCostTheirLength(t *testing.T) {
	markuptest.CostsItsLength(t, markuptest.HTML, 128<<10, func(source string) { normalizeText(source, "text/html; charset=utf-8") })
}

func TestHTMLPartsBecomeMarkdown(t *testing.T) {
	part := normalizeText("<h1>Plan</h1><blockquote>old</blockquote><ul><li><b>one</b></li></ul>", "text/html")
	if part.MIME != normalized.MIMEMarkdown || part.Content != "# Plan\n\n> old\n\n- **one**" {
		t.Errorf("%+v", part)
	}
	if long := normalizeText(strings.Repeat("<p>word</p>", 100_000), "text/html"); !strings.Contains(long.Content, "The text was cut") || len(long.Content) > 600<<10 {
		t.Errorf("%d bytes, without a word that the rest is missing", len(long.Content))
	}
}

// TestPartsSurviveTheWay takes parts from the wire to ours and back.
func TestPartsSurviveTheWay(t *testing.T) {
	b := setup(t)
	name := rapid.StringMatching(`[a-z]{0,8}`)
	part := rapid.Custom(func(t *rapid.T) *a2a.Part {
		switch rapid.IntRange(0, 4).Draw(t, "kind") {
		case 0:
			return &a2a.Part{Content: a2a.Text(rapid.String().Draw(t, "text")), MediaType: "text/plain"}
		case 1:
			return &a2a.Part{Content: a2a.Text(rapid.String().Draw(t, "text")), MediaType: "text/markdown"}
		case 2:
			content := rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
			return &a2a.Part{Content: a2a.Raw(content), MediaType: "image/png", Filename: name.Draw(t, "name")}
		case 3:
			return &a2a.Part{Content: a2a.Data{Value: map[string]any{"k": name.Draw(t, "value")}}, MediaType: "application/json"}
		default:
			address := "https://x.test/" + name.Draw(t, "path")
			return &a2a.Part{Content: a2a.URL(address), MediaType: rapid.SampledFrom([]string{"text/html", "image/png"}).Draw(t, "type")}
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		sent := a2a.ContentParts(rapid.SliceOfN(part, 1, 5).Draw(t, "parts"))
		ours, err := normalizeParts(b.Context(), sent, b.adapter.options.Blobs)
		if err != nil {
			t.Fatal(err)
		}
		back, err := b.adapter.renderParts(b.Context(), ours, true)
		if err != nil {
			t.Fatal(err)
		}
		for i := range sent {
			if raw, ok := sent[i].Content.(a2a.Raw); ok && bytes.Equal(raw, back[i].Raw()) {
				back[i].Content = raw // an empty file is nil or of no length
			}
		}
		if diff := cmp.Diff(sent, back); diff != "" {
			t.Fatalf("-sent +back:\n%s", diff)
		}
	})
}

// FuzzRPC posts anything: the answer is always JSON-RPC, never a defect of ours, and never has Go's words in it.
func FuzzRPC(f *testing.F) {
	for _, seed := range []string{
		call10("SendMessage", message("m1", "hello")), call10("ListTasks", "{}"), call10("GetTask", `{"id":7}`), `[]`, `{`, ``,
		call10("SendStreamingMessage", message("m2", "hello")), call10("tasks/resubscribe", `{"id":"x"}`),
		`{"jsonrpc":"2.0","id":1e400,"method":"GetTask","params":{"id":"x"}}`,
		call10("SendMessage", `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"data":null}]}}`),
		call10("message/send", `{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"file","file":{"bytes":"%%"}}]}}`),
		call10("SendMessage", `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}],"metadata":{"mentionable":{"agent_chain":[]}}}}`),
	} {
		f.Add([]byte(seed))
	}
	e := newEngine("echo")
	token := e.token("ada", "")
	adapter, err := New(Options{
		Domain: "agents.test", PublicURL: "https://agents.test", Receiver: e, Directory: e, Turns: e, Runs: e, Tokens: e, Claims: e,
		Blobs: noBlobs{},
	})
	if err != nil {
		f.Fatal(err)
	}
	server, err := httpserver.New(httpserver.Options{Routes: adapter.Routes(), WithoutHealth: true})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(e.running.Wait)
	f.Fuzz(func(t *testing.T, body []byte) {
		r := httptest.NewRequest(http.MethodPost, "/a2a/echo", bytes.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		server.Handler().ServeHTTP(w, r)
		if w.Code >= http.StatusInternalServerError || strings.Contains(w.Body.String(), "Go struct") {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		if w.Header().Get("Content-Type") == "application/json" && !json.Valid(w.Body.Bytes()) {
			t.Fatalf("not JSON: %s", w.Body)
		}
	})
}

// noBlobs panics when a message is large enough to need the blob store.
type noBlobs struct{ exchange.Blobs }

func TestRedact(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"nothing":      {`{"message":{"parts":[{"text":"identity_evidence"}]}}`, `{"message":{"parts":[{"text":"identity_evidence"}]}}`},
		"first":        {`{"metadata":{"mentionable":{"identity_evidence":[{"a":1}], "agent_chain":{"hop":1}}}}`, `{"metadata":{"mentionable":{ "agent_chain":{"hop":1}}}}`},
		"last":         {`{"metadata":{"mentionable":{"agent_chain":{"hop":1} , "identity_evidence":[1]}}}`, `{"metadata":{"mentionable":{"agent_chain":{"hop":1}}}}`},
		"middle":       {`{"metadata":{"mentionable":{"a":1,"verifiable_credentials":[],"b":2}}}`, `{"metadata":{"mentionable":{"a":1,"b":2}}}`},
		"only":         {`{"metadata":{"mentionable":{"identity_evidence":[]}}}`, `{"metadata":{"mentionable":{}}}`},
		"all":          {`{"metadata":{"mentionable":{"identity_evidence":[] , "verifiable_credentials":[],"resumption_envelopes":1,"policy_resolution":{}}}}`, `{"metadata":{"mentionable":{}}}`},
		"around one":   {`{"metadata":{"mentionable":{"identity_evidence":1,"a":1,"verifiable_credentials":2,"policy_resolution":3,"b":2}}}`, `{"metadata":{"mentionable":{"a":1,"b":2}}}`},
		"twice":        {`{"metadata":{"mentionable":{"identity_evidence":1}},"metadata":{"mentionable":{"identity_evidence":2,"c":1}}}`, `{"metadata":{"mentionable":{}},"metadata":{"mentionable":{"c":1}}}`},
		"case":         {`{"Message":{"METADATA":{"mentionable":{"identity_evidence":1}}}}`, `{"Message":{"METADATA":{"mentionable":{}}}}`},
		"escaped":      {`{"m\u0065tadata":{"mentionable":{"identity\u005fevidence":"secret"}}}`, `{"m\u0065tadata":{"mentionable":{}}}`},
		"by URI":       {`{"metadata":{"https://mentionable.dev/spec/identity/v0.1":[1],"https:\/\/mentionable.dev\/ns\/identity\/v0.1":{},"x":1}}`, `{"metadata":{"x":1}}`},
		"payment":      {`{"metadata":{"x402.payment.status":"payment-submitted","x402.payment.payload":{"p":"secret"}}}`, `{"metadata":{"x402.payment.status":"payment-submitted"}}`},
		"in a part":    {`{"parts":[{"metadata":{"mentionable":{"identity_evidence":1}}}]}`, `{"parts":[{"metadata":{"mentionable":{}}}]}`},
		"elsewhere":    {`{"data":{"mentionable":{"identity_evidence":1}}}`, `{"data":{"mentionable":{"identity_evidence":1}}}`},
		"after it":     {`{"metadata":{"mentionable":{"identity_evidence":1}}} {"metadata":`, `{"metadata":{"mentionable":{}}}`},
		"hidden after": {`{"a":1} "\u0000 {"metadata":{"mentionable":{"identity_evidence":1}}}`, `{"a":1}`},
	} {
		if got := string(redact([]byte(c.in))); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	if got := redact([]byte(`"\u0000` + `" `)); string(got) != `"\u0000"` {
		t.Errorf("a text became %s", got)
	}
	if got := redact([]byte(`["\u0000",` + strings.Repeat("[", 1<<20))); got != nil {
		t.Errorf("%d bytes are left of a nest", len(got))
	}
}

// FuzzRedact checks the quick cutter against a slow one that decodes, deletes and encodes.
func FuzzRedact(f *testing.F) {
	for _, seed := range []string{
		`{"metadata":{"mentionable":{"identity_evidence":[1],"a":{}}}}`, `[{"Metadata":{"x402.payment.payload":1}},2]`, `{"a":"\u0065"}`,
		`{"metadata":[{"mentionable":{"policy_resolution":1}}]}`, `{"metadata":{"mentionable":{"policy_resolution":1,"policy_resolution":2}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		var before any
		if json.Unmarshal(document, &before) != nil {
			redact(document) // must not panic
			return
		}
		var after any
		got := redact(document)
		if err := json.Unmarshal(got, &after); err != nil {
			t.Fatalf("%q became %q: %v", document, got, err)
		}
		if unique(document) {
			want, _ := json.Marshal(cleaned("", "", before))
			have, _ := json.Marshal(after)
			if !bytes.Equal(want, have) {
				t.Fatalf("%q became %s, want %s", document, have, want)
			}
		}
	})
}

func cleaned(above, name string, value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			if secretMember(above, name, key) {
				delete(v, key)
				continue
			}
			v[key] = cleaned(name, key, inner)
		}
	case []any:
		for i := range v {
			v[i] = cleaned("", "", v[i])
		}
	}
	return value
}

// unique says that no object names a member twice: decoding then loses nothing.
func unique(document []byte) bool {
	dec := json.NewDecoder(bytes.NewReader(document))
	type level struct {
		keys  map[string]bool
		value bool
	}
	var stack []*level
	for {
		token, err := dec.Token()
		if err != nil {
			return err == io.EOF
		}
		delim, isDelim := token.(json.Delim)
		if isDelim && (delim == '}' || delim == ']') {
			stack = stack[:len(stack)-1]
			continue
		}
		if len(stack) > 0 {
			if top := stack[len(stack)-1]; top.keys != nil {
				if !top.value {
					key, _ := token.(string)
					if top.keys[key] {
						return false
					}
					top.keys[key], top.value = true, true
					continue
				}
				top.value = false
			}
		}
		switch {
		case isDelim && delim == '{':
			stack = append(stack, &level{keys: map[string]bool{}})
		case isDelim:
			stack = append(stack, &level{})
		}
	}
}

// TestFilesWithoutATypeHaveOne: clients leave the type out, and an agent reads a file by its type.
func TestFilesWithoutATypeHaveOne(t *testing.T) {
	for _, c := range []struct {
		part *a2a.Part
		want string
	}{
		{&a2a.Part{Content: a2a.Raw("pear,5"), Filename: "prices.csv"}, "text/csv"},
		{&a2a.Part{Content: a2a.Raw("pear,5"), Filename: "prices.csv", MediaType: "application/octet-stream"}, "text/csv"},
		{&a2a.Part{Content: a2a.Raw("\x89PNG\r\n\x1a\n")}, "image/png"},
		{&a2a.Part{Content: a2a.Raw("pear,5")}, "text/plain"},
		{&a2a.Part{Content: a2a.Raw("\x00\x01")}, "application/octet-stream"},
		{&a2a.Part{Content: a2a.Raw("pear,5"), MediaType: "application/pdf", Filename: "a.csv"}, "application/pdf"},
		{&a2a.Part{Content: a2a.URL("https://files.example/pear.png?key=x")}, "image/png"},
		{&a2a.Part{Content: a2a.URL("https://files.example/9f3a"), Filename: "prices.csv"}, "text/csv"},
	} {
		got, err := normalizePart(t.Context(), c.part, "part", nil)
		if err != nil || got.Kind != normalized.PartFile || got.MIME != c.want {
			t.Errorf("%+v is %q, want %q: %v", c.part, got.MIME, c.want, err)
		}
	}
}
