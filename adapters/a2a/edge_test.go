package a2a

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"inbox/exchange"
	"inbox/internal/await"
	"inbox/internal/bearer"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/normalized"
	"inbox/policypart"
)

func TestCredentials(t *testing.T) {
	b := setup(t)
	onlyOther := b.engine.token("limited", "OTHER")
	revoked, _ := bearer.Mint()
	b.engine.Tokens.Put(revoked, exchange.Token{ID: newID(), Name: "gone", RevokedAt: time.Now()})
	unknown, _ := bearer.Mint()
	for name, c := range map[string]struct {
		header string
		status int
	}{
		"none":        {"", 401},
		"basic":       {"Basic YTpi", 401},
		"short":       {"Bearer inbox_x", 401},
		"foreign":     {"Bearer eyJhbGciOiJub25lIn0.e30.", 401},
		"unknown":     {"Bearer " + unknown, 401},
		"revoked":     {"Bearer " + revoked, 401},
		"other agent": {"Bearer " + onlyOther, 403},
		"lower case":  {"bearer " + b.ada, 200},
	} {
		t.Run(name, func(t *testing.T) {
			r := b.do("POST", "/a2a/echo", "", `{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{}}`, "Authorization", c.header)
			if r.status != c.status {
				t.Errorf("status %d, want %d: %s", r.status, c.status, r.body)
			}
			if challenged := r.header.Get("WWW-Authenticate") != ""; challenged != (c.status != 200) {
				t.Errorf("WWW-Authenticate %q", r.header.Get("WWW-Authenticate"))
			}
		})
	}
	compare(t, "error-401.json", b.rpc("", "ListTasks", "{}").body)
	if r := b.do("POST", "/a2a/other", onlyOther, `{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{}}`); r.status != 200 {
		t.Errorf("its own agent: %d", r.status)
	}
	if r := b.do("POST", "/a2a/nobody", b.ada, "{}"); r.status != 404 {
		t.Errorf("unknown agent: %d", r.status)
	}
	if r := b.do("GET", "/a2a/echo/rest/tasks", "", ""); r.status != 401 || r.at(t, "error.status") != "UNAUTHENTICATED" {
		t.Errorf("REST without token: %d %s", r.status, r.body)
	}
}

func TestRefusedRequests(t *testing.T) {
	b := setup(t)
	request := func(method, params string) string {
		return `{"jsonrpc":"2.0","id":"a","method":"` + method + `","params":` + params + `}`
	}
	parts := func(parts string) string {
		return request("SendMessage", `{"message":{"messageId":"m","role":"ROLE_USER","parts":[`+parts+`]}}`)
	}
	withMeta := func(metadata string) string {
		return strings.Replace(parts(`{"text":"x"}`), `"messageId"`, `"metadata":`+metadata+`,"messageId"`, 1)
	}
	chained := func(chain string) string { return withMeta(`{"mentionable":{"agent_chain":` + chain + `}}`) }
	for name, c := range map[string]struct {
		body   string
		status int
		code   int
		text   string
	}{
		"no JSON":             {`{"jsonrpc":`, 200, -32700, "not JSON"},
		"batch":               {`[{"jsonrpc":"2.0","id":1,"method":"GetTask"}]`, 200, -32600, "batches"},
		"id is an object":     {`{"jsonrpc":"2.0","id":{},"method":"GetTask"}`, 200, -32600, "id"},
		"version of JSON-RPC": {`{"jsonrpc":"1.0","id":"a","method":"GetTask"}`, 200, -32600, "2.0"},
		"no method":           {`{"jsonrpc":"2.0","id":"a"}`, 200, -32600, "method"},
		"unknown method":      {request("Nothing", "{}"), 200, -32601, "no such method"},
		"method of 0.2":       {request("tasks/send", "{}"), 200, -32601, "no such method"},
		"no params":           {`{"jsonrpc":"2.0","id":"a","method":"GetTask"}`, 200, -32602, "id: is needed"},
		"method is a number":  {`{"jsonrpc":"2.0","id":"a","method":5}`, 200, -32600, "method"},
		"method is an object": {`{"jsonrpc":"2.0","id":"a","method":{"a":1}}`, 200, -32600, "method"},
		"params is a list":    {request("GetTask", "[]"), 200, -32602, "params"},
		"wrong type":          {request("GetTask", `{"id":5}`), 200, -32602, "id: has the wrong type"},
		"wrong type inside":   {request("SendMessage", `{"message":{"messageId":7}}`), 200, -32602, "message.messageId"},
		"no message":          {request("SendMessage", "{}"), 200, -32602, "message: is needed"},
		"no messageId":        {request("SendMessage", `{"message":{"role":"ROLE_USER","parts":[{"text":"x"}]}}`), 200, -32602, "message.messageId"},
		"role":                {request("SendMessage", `{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"x"}]}}`), 200, -32602, "message.role"},
		"no parts":            {parts(""), 200, -32602, "message.parts"},
		"blank":               {parts(`{"text":" \n"}`), 200, -32602, "message.parts"},
		"null part":           {parts(`null`), 200, -32602, "message.parts[0]"},
		"part of two":         {parts(`{"text":"x","url":"https://x.test"}`), 200, -32602, "message.parts[0]: must be an object with exactly one"},
		"empty part":          {parts(`{"text":"x"},{}`), 200, -32602, "message.parts[1]"},
		"no base64":           {parts(`{"raw":"***"}`), 200, -32602, "message.parts[0]"},
		"plain http file":     {parts(`{"url":"http://x.test/a.png"}`), 200, -32602, "message.parts[0].url"},
		"65 parts":            {parts(strings.Repeat(`{"text":"x"},`, 64) + `{"text":"x"}`), 200, -32602, "message.parts"},
		"long text":           {parts(`{"text":"` + strings.Repeat("x", 1<<20+1) + `"}`), 200, -32602, "message.parts[0].content"},
		"long messageId":      {strings.Replace(parts(`{"text":"x"}`), `"m"`, `"`+strings.Repeat("m", 3000)+`"`, 1), 200, -32602, "message.messageId"},
		"control in id":       {strings.Replace(parts(`{"text":"x"}`), `"m"`, `"m\u0000"`, 1), 200, -32602, "message.messageId"},
		"control in context":  {strings.Replace(parts(`{"text":"x"}`), `"messageId"`, `"contextId":"\n","messageId"`, 1), 200, -32602, "message.contextId"},
		"large metadata":      {strings.Replace(parts(`{"text":"x"}`), `"messageId"`, `"metadata":{"a":"`+strings.Repeat("x", 70_000)+`"},"messageId"`, 1), 200, -32602, "message.metadata"},
		"history length":      {request("GetTask", `{"id":"x","historyLength":-1}`), 200, -32602, "historyLength"},
		"page size":           {request("ListTasks", `{"pageSize":101}`), 200, -32602, "pageSize"},
		"page token":          {request("ListTasks", `{"pageToken":"AAAA"}`), 200, -32602, "pageToken"},
		"status":              {request("ListTasks", `{"status":"BUSY"}`), 200, -32602, "status"},
		"push in a message":   {strings.Replace(parts(`{"text":"x"}`), `{"message"`, `{"configuration":{"taskPushNotificationConfig":{"url":"https://x.test"}},"message"`, 1), 200, -32003, ""},
		"push config":         {request("CreateTaskPushNotificationConfig", `{"taskId":"x","url":"https://x.test"}`), 200, -32003, ""},
		"chain over its end":  {chained(`{"hop":5,"max_hops":4}`), 403, -31403, "chain:exhausted"},
		"chain of fractions":  {chained(`{"hop":1.5,"max_hops":4}`), 403, -31403, "chain:exhausted"},
		"chain below one":     {chained(`{"hop":-1,"max_hops":4}`), 403, -31403, "chain:exhausted"},
		"chain of zero":       {chained(`{"hop":0,"max_hops":4}`), 403, -31403, "chain:exhausted"},
		"chain of 99":         {chained(`{"hop":99,"max_hops":4}`), 403, -31403, "chain:exhausted"},
		"chain of 99 alone":   {chained(`{"hop":99}`), 403, -31403, "chain:exhausted"},
		"chain without hop":   {chained(`{"max_hops":4}`), 403, -31403, "chain:exhausted"},
		"chain as text":       {chained(`{"hop":"1","max_hops":4}`), 403, -31403, "chain:exhausted"},
		"chain as list":       {chained(`[1]`), 403, -31403, "chain:exhausted"},
		"chain of 1e300":      {chained(`{"hop":1e300,"max_hops":1e300}`), 403, -31403, "chain:exhausted"},
		"resolution as text":  {withMeta(`{"mentionable":{"policy_resolution":"yes"}}`), 200, -32602, "policy_resolution"},
		"long resolution":     {withMeta(`{"mentionable":{"policy_resolution":{"kind":"` + strings.Repeat("x", 20_000) + `"}}}`), 200, -32602, "policy_resolution"},
		"stream: no message":  {request("SendStreamingMessage", "{}"), 200, -32602, "message: is needed"},
		"stream: wrong type":  {request("SendStreamingMessage", `{"message":5}`), 200, -32602, "message"},
		"stream: no task":     {request("SubscribeToTask", `{"id":"x"}`), 200, -32001, "task not found"},
	} {
		t.Run(name, func(t *testing.T) {
			r := b.do("POST", "/a2a/echo", b.ada, c.body)
			got := r.decode(t)
			if got.Error == nil || r.status != c.status || got.Error.Code != c.code || !strings.Contains(got.Error.Message, c.text) {
				t.Fatalf("%d %s", r.status, r.body)
			}
			if strings.Contains(r.body, "json:") || strings.Contains(r.body, "Go ") || r.header.Get("Content-Type") != "application/json" {
				t.Errorf("%v %s", r.header, r.body)
			}
			if got.Error.Data[0]["@type"] != errorInfoType || got.Error.Data[0]["domain"] != "a2a-protocol.org" {
				t.Errorf("data %v", got.Error.Data)
			}
		})
	}
	if b.engine.receives != 0 {
		t.Errorf("%d turns were stored", b.engine.receives)
	}
}

func TestEdgeOfHTTP(t *testing.T) {
	b := setup(t)
	list := `{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{}}`
	for name, c := range map[string]struct {
		got    reply
		status int
		code   int
	}{
		"GET":                  {b.do("GET", "/a2a/echo", b.ada, ""), 405, -32600},
		"slash at the end":     {b.do("POST", "/a2a/echo/", b.ada, list), 200, 0},
		"agent in capitals":    {b.do("POST", "/a2a/ECHO", b.ada, list), 200, 0},
		"form":                 {b.do("POST", "/a2a/echo", b.ada, list, "Content-Type", "application/x-www-form-urlencoded"), 415, -32005},
		"charset":              {b.do("POST", "/a2a/echo", b.ada, list, "Content-Type", "application/json; charset=utf-8"), 200, 0},
		"version 1.0":          {b.do("POST", "/a2a/echo", b.ada, list, "A2A-Version", "1.0"), 200, 0},
		"version 1.0.1":        {b.do("POST", "/a2a/echo", b.ada, list, "A2A-Version", "1.0.1"), 200, 0},
		"version by query":     {b.do("POST", "/a2a/echo?A2A-Version=2.0", b.ada, list), 200, -32009},
		"version 2.0":          {b.do("POST", "/a2a/echo", b.ada, list, "A2A-Version", "2.0"), 200, -32009},
		"0.3 has no ListTasks": {b.do("POST", "/a2a/echo", b.ada, list, "A2A-Version", "0.3"), 200, -32601},
		"too large":            {b.do("POST", "/a2a/echo", b.ada, `{"x":"`+strings.Repeat("x", maxBodyBytes)+`"}`), 413, -32600},
	} {
		if c.got.status != c.status {
			t.Errorf("%s: status %d, want %d", name, c.got.status, c.status)
		}
		if answer := c.got.decode(t); (answer.Error == nil) != (c.code == 0) || answer.Error != nil && answer.Error.Code != c.code {
			t.Errorf("%s: %s", name, c.got.body)
		}
	}
	if r := b.do("GET", "/a2a/echo/rest/tasks", b.ada, "", "A2A-Version", "0.3"); r.status != 400 || r.text(t, "error.details.0.reason") != "VERSION_NOT_SUPPORTED" {
		t.Errorf("REST with another version: %d %s", r.status, r.body)
	}
	r := b.do("POST", "/a2a/echo", b.ada, list, "A2A-Extensions", "https://x.test/e , "+policypart.Extension)
	if got := r.header.Get("A2A-Extensions"); got != policypart.Extension {
		t.Errorf("active extensions %q", got)
	}
}

func TestEngineFailures(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		status int
		code   int
		retry  string
	}{
		"store down":    {&fault.Fault{Kind: fault.Unavailable, Public: "try later", RetryAfter: 30 * time.Second, Cause: errors.New("SECRET")}, 503, -32603, "30"},
		"over a rate":   {&fault.Fault{Kind: fault.RateLimited, Public: "slowly", RetryAfter: 1500 * time.Millisecond}, 429, -32000, "2"},
		"blocked":       {fault.New(fault.Forbidden, "no"), 403, -31403, ""},
		"defect":        {errors.New("SECRET"), 200, -32603, ""},
		"agent is gone": {fault.New(fault.Gone, "was removed"), 404, -32600, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.rpc(b.ada, "ListTasks", "{}") // the token is in the cache from here on
			b.engine.fail(c.err)
			for _, method := range []string{"SendMessage", "SendStreamingMessage"} {
				r := b.rpc(b.ada, method, message("m1", "hello"))
				if got := r.decode(t); r.status != c.status || got.Error == nil || got.Error.Code != c.code {
					t.Errorf("%s: %d %s", method, r.status, r.body)
				}
				if r.header.Get("Retry-After") != c.retry || strings.Contains(r.body, "SECRET") {
					t.Errorf("%s: %v %s", method, r.header, r.body)
				}
			}
			if logged := strings.Contains(b.log.String(), "SECRET"); logged != strings.Contains(c.err.Error(), "SECRET") {
				t.Errorf("log: %s", b.log)
			}
			if c.status == 503 {
				if r := b.do("POST", "/a2a/echo/rest/message:send", b.ada, message("m1", "hello")); r.status != 503 || r.text(t, "error.status") != "UNAVAILABLE" {
					t.Errorf("REST: %d %s", r.status, r.body)
				}
				unknown, _ := bearer.Mint()
				if r := b.rpc(unknown, "ListTasks", "{}"); r.status != 503 {
					t.Errorf("token cannot be checked: %d", r.status)
				}
			}
		})
	}
}

// broken panics where the engine is asked.
type broken struct{ exchange.Receiver }

func TestPanicsAreNeutral(t *testing.T) {
	b := setup(t, func(o *Options) { o.Receiver = broken{} })
	for _, path := range []string{"/a2a/echo", "/a2a/echo/rest/message:send", "/a2a/echo/rest/message:stream"} {
		for _, method := range []string{"SendMessage", "SendStreamingMessage"} {
			body := message("m1", "hello")
			if path == "/a2a/echo" {
				body = `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":` + body + `}`
			}
			r := b.do("POST", path, b.ada, body)
			if r.status != http.StatusInternalServerError || r.text(t, "error.message") != "internal error" {
				t.Errorf("%s %s: %d %s", path, method, r.status, r.body)
			}
		}
	}
	if !strings.Contains(b.log.String(), "nil pointer") {
		t.Errorf("log: %s", b.log)
	}
}

func TestNewNamesWhatIsMissing(t *testing.T) {
	e := newEngine("echo")
	whole := Options{
		Domain: "d.test", PublicURL: "https://d.test", Receiver: e, Directory: e, Turns: e, Runs: e, Tokens: e, Claims: e,
	}
	for name, change := range map[string]func(*Options){
		"Domain is empty": func(o *Options) { o.Domain = "" }, "collaborator": func(*Options) {},
	} {
		options := whole
		change(&options)
		if _, err := New(options); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCallerConcurrency: the requests of one caller that are under way are bounded on every binding, and those of others
// are not touched.
func TestCallerConcurrency(t *testing.T) {
	b := setup(t, func(o *Options) { o.CallerConcurrency = 2 })
	client := b.dial()
	running, release := make(chan struct{}, 2), make(chan struct{})
	b.engine.agent = func(ctx context.Context, r *run) normalized.Response {
		if r.turn.Message.Parts[0].Content == "wait" {
			running <- struct{}{}
			hold(ctx, release)
		}
		return echo(ctx, r)
	}
	held := make(chan reply, 1)
	go func() { held <- b.rpc(b.ada, "SendMessage", message("m1", "wait")) }()
	next, _ := b.open(b.ada, "/a2a/echo", call10("SendStreamingMessage", message("m2", "wait")))
	for range 2 {
		await.Receive(t, running, "the agent to work on both messages")
	}
	list := `{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{}}`
	for name, r := range map[string]reply{
		"JSON-RPC": b.do("POST", "/a2a/echo", b.ada, list), "REST": b.do("GET", "/a2a/echo/rest/tasks", b.ada, ""),
		"another agent": b.do("POST", "/a2a/other", b.ada, list),
		"0.3":           b.rpc(b.ada, "tasks/get", `{"id":"x"}`), "0.3 REST": b.do("GET", "/a2a/echo/v1/tasks/x", b.ada, ""),
	} {
		if r.status != http.StatusTooManyRequests || r.header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %s", name, r.status, r.body)
		}
	}
	_, err := client.ListTasks(calling(b.ada), &pb.ListTasksRequest{Tenant: "echo"})
	if status.Code(err) != grpccodes.ResourceExhausted {
		t.Errorf("gRPC: %v", err)
	}
	if r := b.rpc(b.bob, "ListTasks", `{}`); r.status != http.StatusOK {
		t.Errorf("another caller: %d %s", r.status, r.body)
	}
	close(release)
	await.Receive(t, held, "the answer of the send")
	for _, ok := next(); ok; _, ok = next() {
		continue
	}
	if r := b.rpc(b.ada, "ListTasks", `{}`); r.status != http.StatusOK {
		t.Errorf("after the end of the others: %d %s", r.status, r.body)
	}
	b.adapter.limiter.mu.Lock()
	defer b.adapter.limiter.mu.Unlock()
	if len(b.adapter.limiter.open) > 1 { // the stream's handler may still be on its way out
		t.Errorf("callers are remembered: %v", b.adapter.limiter.open)
	}
}

func TestLargeMessagesAndHeadersOverGRPC(t *testing.T) {
	b := setup(t)
	client := b.dial()
	large := grpcMessage("m1", "echo")
	large.Message.Parts[0].Content = &pb.Part_Raw{Raw: bytes.Repeat([]byte{'x'}, maxBodyBytes+1)}
	if _, err := client.SendMessage(calling(b.ada), large); status.Code(err) != grpccodes.ResourceExhausted {
		t.Errorf("a message over the limit: %v", err)
	}
	if _, err := client.ListTasks(calling(b.ada, "x-large", strings.Repeat("x", maxGRPCHeaders)), &pb.ListTasksRequest{}); err == nil {
		t.Error("headers over the limit are taken")
	}
	if _, err := client.ListTasks(calling(b.ada), &pb.ListTasksRequest{}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestPaceOfAddresses: an address that asks too often is put off before its request is read.
func TestPaceOfAddresses(t *testing.T) {
	var asked atomic.Int64
	b := setup(t, func(o *Options) {
		o.GRPCClient = httpserver.Networks{}.Client
		o.GRPCPace = func(remote netip.Addr) time.Duration {
			if remote.String() != "127.0.0.1" {
				t.Errorf("asked about %v", remote)
			}
			if asked.Add(1) > 2 {
				return time.Minute
			}
			return 0
		}
	})
	client := b.dial()
	for i, want := range []grpccodes.Code{grpccodes.OK, grpccodes.OK, grpccodes.ResourceExhausted} {
		if _, err := client.ListTasks(calling(b.ada), &pb.ListTasksRequest{Tenant: "echo"}); status.Code(err) != want {
			t.Errorf("request %d: %v", i+1, err)
		}
	}
}

// TestManyPings: a client that pings all the time is told to calm down and cut off.
func TestManyPings(t *testing.T) {
	b := setup(t)
	connection, err := new(net.Dialer).DialContext(t.Context(), "tcp", b.serveGRPC())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	if err := connection.SetDeadline(time.Now().Add(await.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(connection, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	frames := http2.NewFramer(connection, connection)
	if err := frames.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for i := byte(0); ; i++ {
			if frames.WritePing(false, [8]byte{i}) != nil {
				return
			}
		}
	}()
	for {
		frame, err := frames.ReadFrame()
		if err != nil {
			t.Fatalf("cut off without a word: %v", err)
		}
		if away, is := frame.(*http2.GoAwayFrame); is {
			if away.ErrCode != http2.ErrCodeEnhanceYourCalm {
				t.Errorf("told %v", away.ErrCode)
			}
			return
		}
	}
}

// TestDroppedReadersOverGRPC: streams that are not read are dropped one by one, and a connection with many of them ends,
// because what they did not read stays in memory as long as it.
func TestDroppedReadersOverGRPC(t *testing.T) {
	b := setup(t, func(o *Options) { o.WriteTimeout = 3 * time.Second }) // long enough for readers that read
	begun, release := make(chan struct{}), make(chan struct{})
	b.engine.agent = func(ctx context.Context, r *run) normalized.Response {
		close(begun)
		hold(ctx, release)
		for range 64 {
			r.say(strings.Repeat("x", 64<<10))
		}
		return normalized.Response{Parts: []normalized.Part{normalized.Text("done")}}
	}
	address := b.serveGRPC()
	task := b.rpc(b.ada, "SendMessage", `{"configuration":{"returnImmediately":true},`+message("m1", "hello")[1:]).text(t, "result.task.id")
	await.Receive(t, begun, "the agent to be asked")
	deaf, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = deaf.Close() }()
	var streams []grpc.ServerStreamingClient[pb.StreamResponse]
	bounded, end := context.WithTimeout(calling(b.ada), 2*time.Minute)
	defer end()
	for range maxDropped {
		stream, err := pb.NewA2AServiceClient(deaf).SubscribeToTask(bounded, &pb.SubscribeToTaskRequest{Tenant: "echo", Id: task})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil { // the snapshot, and nothing more
			t.Fatal(err)
		}
		streams = append(streams, stream)
	}
	close(release)
	if r := b.rpc(b.ada, "SendMessage", message("m1", "hello")); r.text(t, "result.task.status.state") != "TASK_STATE_COMPLETED" { // waits for the same turn
		t.Errorf("the run was held up: %.200s", r.body)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for state := deaf.GetState(); state == connectivity.Ready; state = deaf.GetState() { // it may be cut off already
		if !deaf.WaitForStateChange(ctx, state) {
			t.Fatal("a connection whose streams are not read was not cut off within a minute")
		}
	}
	for i, stream := range streams {
		for {
			if _, err = stream.Recv(); err != nil {
				break
			}
		}
		if errors.Is(err, io.EOF) {
			t.Errorf("stream %d ended as if it had been read", i)
		}
	}
}

// TestBodiesOverTheLimit: on every binding, also without a length.
func TestBodiesOverTheLimit(t *testing.T) {
	b := setup(t)
	long := strings.Repeat("x", maxBodyBytes)
	for _, path := range []string{"/a2a/echo", "/a2a/echo/rest/message:send", "/a2a/echo/v1/message:send"} {
		for _, chunked := range []bool{false, true} {
			var body io.Reader = strings.NewReader(message("m1", long))
			if chunked {
				body = io.MultiReader(body)
			}
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+path, body)
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Authorization", "Bearer "+b.ada)
			request.Header.Set("Content-Type", "application/json")
			response, err := b.client.Do(request)
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			_ = response.Body.Close()
			if response.StatusCode != http.StatusRequestEntityTooLarge {
				t.Errorf("%s, chunked %v: %d", path, chunked, response.StatusCode)
			}
		}
	}
	if len(b.engine.inbounds) > 0 {
		t.Errorf("%d messages arrived", len(b.engine.inbounds))
	}
}

// TestPagesFromElsewhere: pages of the configured origins call agents over every binding of HTTP, others do not, and a preflight needs no token.
func TestPagesFromElsewhere(t *testing.T) {
	const page = "https://www.example.com"
	for name, c := range map[string]struct {
		allowed []string
		origin  string
		want    string
	}{
		"configured":         {[]string{"https://other.example", page}, page, page},
		"all":                {[]string{"*"}, page, "*"},
		"another":            {[]string{page}, "https://evil.example", ""},
		"another scheme":     {[]string{page}, "http://www.example.com", ""},
		"another port":       {[]string{page}, page + ":8443", ""},
		"a name with ours":   {[]string{page}, page + ".evil.example", ""},
		"a page of a file":   {[]string{page}, "null", ""},
		"no page":            {[]string{page}, "", ""},
		"nothing configured": {nil, page, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, func(o *Options) { o.Origins = c.allowed })
			origin := []string{"Origin", c.origin}
			if c.origin == "" {
				origin = nil
			}
			for path, method := range map[string]string{
				"/a2a/echo": "POST", "/a2a/echo/": "POST", "/a2a/echo/rest/message:send": "POST", "/a2a/echo/rest/message:stream": "POST",
				"/a2a/echo/rest/tasks": "GET", "/a2a/echo/rest/tasks/x/pushNotificationConfigs/y": "DELETE", "/a2a/echo/v1/message:send": "POST",
				"/a2a/nobody": "POST", "/a2a/nobody/rest/message:send": "POST",
			} {
				asked := b.do("OPTIONS", path, "", "", append([]string{
					"Access-Control-Request-Method", method, "Access-Control-Request-Headers", "authorization,content-type,a2a-version",
				}, origin...)...)
				if asked.status != http.StatusNoContent || asked.header.Get("Access-Control-Allow-Origin") != c.want {
					t.Errorf("preflight of %s: %d %v", path, asked.status, asked.header)
				}
				methods, headers := asked.header.Get("Access-Control-Allow-Methods"), asked.header.Get("Access-Control-Allow-Headers")
				if may := strings.Contains(methods, method) && headers == "authorization,content-type,a2a-version"; may != (c.want != "") || !may && methods+headers != "" {
					t.Errorf("preflight of %s allows %q with %q", path, methods, headers)
				}

				// The answer itself, and a refusal before anything of the request is read.
				for _, token := range []string{b.ada, ""} {
					got := b.do(method, path, token, `{}`, origin...)
					exposed := got.header.Get("Access-Control-Expose-Headers")
					if got.header.Get("Access-Control-Allow-Origin") != c.want || strings.Contains(exposed, "WWW-Authenticate") != (c.want != "") {
						t.Errorf("%s %s: %d %v", method, path, got.status, got.header)
					}
					if got.header.Get("Access-Control-Allow-Credentials") != "" {
						t.Errorf("%s %s allows cookies", method, path)
					}
					if varies := strings.Contains(strings.Join(got.header.Values("Vary"), ","), "Origin"); varies != (c.allowed != nil) {
						t.Errorf("%s %s: Vary %q", method, path, got.header.Values("Vary"))
					}
				}
			}
			stream := b.rpc(b.ada, "SendStreamingMessage", message("m1", "hello"), append([]string{"Accept", "text/event-stream"}, origin...)...)
			if len(stream.frames()) == 0 || stream.header.Get("Access-Control-Allow-Origin") != c.want {
				t.Errorf("a stream: %v %s", stream.header, stream.body)
			}
		})
	}
}

// TestHeadersOfPages: a page may send and read what clients of the protocol do.
func TestHeadersOfPages(t *testing.T) {
	const page = "https://www.example.com"
	b := setup(t, func(o *Options) { o.Origins = []string{page} })
	asked := b.do("OPTIONS", "/a2a/echo", "", "", "Origin", page, "Access-Control-Request-Method", "POST")
	for _, header := range []string{"Authorization", "Content-Type", "Accept", "A2A-Version", "A2A-Extensions", "Last-Event-ID"} {
		if !slices.Contains(strings.Split(asked.header.Get("Access-Control-Allow-Headers"), ", "), header) {
			t.Errorf("a page may not send %s: %v", header, asked.header)
		}
	}
	got := b.rpc(b.ada, "GetTask", `{"id":"x"}`, "Origin", page)
	for _, header := range []string{"A2A-Extensions", "WWW-Authenticate", "Retry-After"} {
		if !slices.Contains(strings.Split(got.header.Get("Access-Control-Expose-Headers"), ", "), header) {
			t.Errorf("a page may not read %s: %v", header, got.header)
		}
	}
	for _, path := range []string{"/.well-known/agent-card.json", "/a2a/echo/.well-known/agent-card.json", "/.well-known/agent-card/echo", "/.well-known/api-catalog"} {
		card := b.do("GET", path, "", "", "Origin", "https://anybody.example")
		asked := b.do("OPTIONS", path, "", "", "Origin", "https://anybody.example", "Access-Control-Request-Method", "GET", "Access-Control-Request-Headers", "authorization")
		if card.status != 200 || card.header.Get("Access-Control-Allow-Origin") != "*" || asked.header.Get("Access-Control-Allow-Origin") != "*" ||
			!strings.Contains(asked.header.Get("Access-Control-Allow-Headers"), "Authorization") {
			t.Errorf("%s: %d %v, preflight %v", path, card.status, card.header, asked.header)
		}
	}
}

// TestDuplicateMembers: no request has two values for one member, for whichever reader.
func TestDuplicateMembers(t *testing.T) {
	b := setup(t)
	say := func(more string) string {
		return `{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"hello"}]` + more + `}}`
	}
	for name, c := range map[string]struct {
		path, body string
		refused    bool
	}{
		"the method":                  {"", `{"jsonrpc":"2.0","id":1,"method":"GetTask","method":"SendMessage","params":` + say("") + `}`, true},
		"the method, escaped":         {"", `{"jsonrpc":"2.0","id":1,"method":"GetTask","m\u0065thod":"SendMessage","params":` + say("") + `}`, true},
		"the method, in another case": {"", `{"jsonrpc":"2.0","id":1,"method":"SendMessage","METHOD":"SendMessage","params":` + say("") + `}`, true},
		"the message":                 {"", call10("SendMessage", `{"message":{"messageId":"x","role":"ROLE_USER","parts":[{"text":"a"}]},`+say("")[1:]), true},
		"the text":                    {"", call10("SendMessage", say(`,"parts":[{"text":"other"}]`)), true},
		"the task, in two spellings":  {"", call10("SendMessage", say(`,"taskId":"a","task_id":"b"`)), true},
		"of a part":                   {"", call10("SendMessage", `{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"a","text":"b"}]}}`), true},
		"of metadata":                 {"", call10("SendMessage", say(`,"metadata":{"a":{"b":1,"b":2}}`)), true},
		"of metadata, by case":        {"", call10("SendMessage", say(`,"metadata":{"a":{"b":1,"B":2,"c_d":3,"cD":4}}`)), false},
		"none":                        {"", call10("SendMessage", say("")), false},
		"0.3":                         {"", call10("message/send", `{"message":{"kind":"message","messageId":"m1","role":"user","parts":[{"kind":"text","text":"a"}],"contextId":"x","context_id":"y"}}`), true},
		"HTTP+JSON":                   {"/rest/message:send", say(`,"taskId":"a","taskId":"b"`), true},
		"HTTP+JSON of 0.3":            {"/v1/message:send", `{"message":{"messageId":"m1","role":"ROLE_USER","content":[{"text":"a"}],"content":[{"text":"b"}]}}`, true},
	} {
		before := b.engine.receives
		got := b.do("POST", "/a2a/echo"+c.path, b.ada, c.body)
		if refused := strings.Contains(got.body, "has already"); refused != c.refused || refused && (b.engine.receives != before || c.path != "" && got.status != 400) {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
}
