package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"

	"inbox/e2e/instance"
	"inbox/internal/await"
)

// changingNames is a name server whose answers a test changes.
type changingNames struct {
	address string
	mu      sync.Mutex
	answers map[string]string // name without the final dot → IPv4
	asked   map[string]int    // A questions
}

func startNames(t *testing.T) *changingNames {
	t.Helper()
	connection, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	names := &changingNames{address: connection.LocalAddr().String(), answers: map[string]string{}, asked: map[string]int{}}
	started := make(chan struct{})
	server := &dns.Server{PacketConn: connection, Handler: names, NotifyStartedFunc: func() { close(started) }}
	ended := make(chan error, 1)
	go func() { ended <- server.ActivateAndServe() }()
	await.Receive(t, started, "the name server to start")
	t.Cleanup(func() {
		if err := server.Shutdown(); err != nil {
			t.Error(err)
		}
		if err := await.Receive(t, ended, "the end of the name server"); err != nil {
			t.Error(err)
		}
	})
	return names
}

func (n *changingNames) ServeDNS(w dns.ResponseWriter, query *dns.Msg) {
	n.mu.Lock()
	defer n.mu.Unlock()
	reply, question := new(dns.Msg).SetReply(query), query.Question[0]
	name := strings.TrimSuffix(strings.ToLower(question.Name), ".")
	address, known := n.answers[name]
	switch {
	case !known:
		reply.Rcode = dns.RcodeNameError
	case question.Qtype == dns.TypeA:
		n.asked[name]++
		reply.Answer = append(reply.Answer, &dns.A{Hdr: dns.RR_Header{Name: question.Name, Rrtype: dns.TypeA, Class: dns.ClassINET}, A: net.ParseIP(address)})
	}
	_ = w.WriteMsg(reply)
}

func (n *changingNames) set(name, address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.answers[name] = address
}

func (n *changingNames) questions(name string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked[name]
}

// TestWebhooksOnlyGoOutside: addresses inside are refused when they are registered, in every form, and a name that leads
// inside only later is not dialled.
func TestWebhooksOnlyGoOutside(t *testing.T) {
	t.Parallel()
	names := startNames(t)
	var reached atomic.Int64
	// Only who may listen there can count connections; the others rely on the server's own count of refusals.
	if listener, err := net.Listen("tcp", "127.0.0.1:443"); err == nil {
		t.Cleanup(func() { _ = listener.Close() })
		go func() {
			for {
				connection, err := listener.Accept()
				if err != nil {
					return
				}
				reached.Add(1)
				_ = connection.Close()
			}
		}()
	}
	s := start(t, instance.Settings{Strict: true, Domain: "inbox.test", DNS: names.address})
	w := &a2aWays{server: s}
	ann := s.mint("ann")
	local := "http://" + s.Settings.HTTP
	send := func(id, config string) (int, string) {
		t.Helper()
		body := `{"message":{"messageId":"` + id + `","role":"ROLE_USER","parts":[{"text":"hello"}]},"configuration":{"taskPushNotificationConfig":` + config + `}}`
		return w.postTo(local+"/a2a/echo/rest/message:send", ann, body)
	}
	names.set("inside.test", "10.0.0.7")
	names.set("metadata.test", "169.254.169.254")
	names.set("local.test", "127.0.0.1")
	names.set("shared.test", "100.64.0.1")
	for i, address := range []string{
		"http://93.184.215.14/h", "https://127.0.0.1/h", "https://127.1/h", "https://2130706433/h", "https://0x7f000001/h", "https://localhost/h",
		"https://10.0.0.7/h", "https://192.168.1.1/h", "https://172.16.0.1/h", "https://169.254.169.254/latest/meta-data", "https://0.0.0.0/h",
		"https://[::1]/h", "https://[::ffff:127.0.0.1]/h", "https://[fe80::1]/h", "https://[fd00::1]/h", "https://[64:ff9b::7f00:1]/h", "https://100.64.0.1/h",
		"https://inside.test/h", "https://metadata.test/h", "https://local.test/h", "https://LOCAL.test./h", "https://shared.test/h",
		"https://public.test:8443/h", "https://user:secret@public.test/h", "file:///etc/passwd", "gopher://public.test/", "//public.test/h", "https:///h",
	} {
		if status, answer := send(fmt.Sprint("refused-", i), `{"url":"`+address+`"}`); status != http.StatusBadRequest || strings.Contains(answer, "10.0.0.7") && !strings.Contains(address, "10.0.0.7") {
			t.Errorf("%s: %d %s", address, status, answer)
		}
	}
	if turns := states(t, s.Instance); len(turns) != 0 {
		t.Errorf("of refused messages there are turns: %v", turns)
	}
	names.set("rebind.test", "93.184.215.14")
	rebind := func() bool { names.set("rebind.test", "127.0.0.1"); return true }
	// The webhook is registered while its name leads outside; work begins after it leads inside.
	names.mu.Lock()
	names.asked["rebind.test"] = 0
	names.mu.Unlock()
	if status, answer := send("rebinds", `{"id":"later","url":"https://gone.test/h"}`); status != http.StatusOK {
		t.Fatalf("a name that nobody knows yet: %d %s", status, answer)
	}
	before := s.metric("inbox_outgoing_refused_dials_total")
	task, refusal := taskIn(func() string {
		_, answer := send("rebinds-2", `{"url":"https://gone.test/h"}`)
		return answer
	}())
	if task == "" {
		t.Fatal(refusal)
	}
	create := fmt.Sprintf(`{"taskId":%q,"id":"rebinds","url":"https://rebind.test/h"}`, task)
	if status, answer := w.postTo(local+"/a2a/echo/rest/tasks/"+task+"/pushNotificationConfigs", ann, create); status != http.StatusOK || names.questions("rebind.test") == 0 {
		t.Fatalf("while the name leads outside: %d %s", status, answer)
	}
	rebind()
	names.set("gone.test", "127.0.0.1") // known by now, and inside: the calls that are under way meet it
	eventually(t, "the webhook is called and refused", func() bool { return s.metric("inbox_outgoing_refused_dials_total") > before })
	if reached.Load() != 0 {
		t.Errorf("an address inside was dialled %d times", reached.Load())
	}
}

// postTo is post to any address.
func (w *a2aWays) postTo(address, token, body string) (int, string) {
	w.t.Helper()
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, address, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		w.t.Error(err)
	}
	return response.StatusCode, string(answer)
}

// toldHook is a webhook that keeps what it is told; the first answers are those of the list.
type toldHook struct {
	*httptest.Server
	mu      sync.Mutex
	answers []int
	down    bool // everything after the answers of the list is refused, too
	kinds   []string
	headers []http.Header
	bodies  []string
	asked   atomic.Int64 // questions whether it wants credentials, which it does not answer
	strayed atomic.Int64
}

func startHook(t *testing.T, answers ...int) *toldHook {
	t.Helper()
	h := &toldHook{answers: answers}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/h" {
			h.strayed.Add(1)
			return
		}
		if r.Method == http.MethodGet && r.URL.Query().Get("validationToken") != "" {
			h.asked.Add(1)
			w.WriteHeader(http.StatusNotImplemented)
			return
		}
		var event map[string]struct {
			Status struct{ State string }
		}
		body, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(body, &event); err != nil || len(event) != 1 {
			t.Errorf("the webhook is told %s", body)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		status := http.StatusOK
		switch {
		case len(h.answers) > 0:
			status, h.answers = h.answers[0], h.answers[1:]
		case h.down:
			status = http.StatusServiceUnavailable
		default:
			for kind, about := range event {
				h.kinds = append(h.kinds, strings.TrimSpace(kind+" "+about.Status.State))
			}
			h.headers = append(h.headers, r.Header.Clone())
			h.bodies = append(h.bodies, string(body))
		}
		if status/100 == 3 {
			w.Header().Set("Location", "/elsewhere")
		}
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(status)
	}))
	t.Cleanup(h.Close)
	return h
}

// told returns what was taken so far.
func (h *toldHook) told() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.kinds...)
}

// setDown lets the webhook refuse everything, or nothing more.
func (h *toldHook) setDown(down bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.down = down
}

// toldWell reports whether a webhook was told the result and then the end, each once, and that work begins before both where
// it was told at all: work that is done at once is not worth a call.
func toldWell(kinds []string) bool {
	told := strings.TrimPrefix(strings.Join(kinds, ","), "statusUpdate TASK_STATE_WORKING,")
	return told == "artifactUpdate,statusUpdate "+completed
}

// signedFor verifies a notification with outside software, which has the address of the server's public keys.
func (s *server) signedFor(t *testing.T, address, signature, body string) (task, refusal string) {
	t.Helper()
	input, output := node(t, "a2a/notification.mjs", "--keys", s.URL()+"/.well-known/jwks.json", "--issuer", "https://"+s.Settings.HTTP,
		"--audience", address, "--token", signature)
	if _, err := io.WriteString(input, body); err != nil {
		t.Error(err)
	}
	if err := input.Close(); err != nil {
		t.Error(err)
	}
	var report struct{ Task, Error string }
	readJSON(t, output, &report)
	return report.Task, report.Error
}

// TestWebhooksAreToldInOrder: a webhook that first redirects and fails is told everything in order afterwards, over a crash,
// with its credentials; these are in no answer and not to be read in the database. Webhooks on this machine get credentials at once in
// development, one behind a name only after it confirmed. Outside software verifies the signatures of all.
func TestWebhooksAreToldInOrder(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		failing, good, behindName := startHook(t, http.StatusFound, http.StatusInternalServerError), startHook(t), startHook(t)
		failing.setDown(true) // over the crash: what is taken in the moment of a crash may be told again
		names := startNames(t)
		names.set("hook.test", "127.0.0.1")
		behindName.URL = strings.Replace(behindName.URL, "127.0.0.1", "hook.test", 1)
		s := start(t, instance.Settings{Database: database, Lease: "1s", DNS: names.address})
		w := &a2aWays{server: s}
		ann := s.mint("ann")
		config := func(hook *toldHook) string {
			return `{"id":"` + hook.URL[len(hook.URL)-4:] + `","url":"` + hook.URL + `/h","token":"token-in-clear","authentication":{"scheme":"Bearer","credentials":"secret-in-clear"}}`
		}
		_, answer := w.post("/a2a/echo/rest/message:send", ann,
			`{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"hello"}]},"configuration":{"taskPushNotificationConfig":`+config(failing)+`}}`)
		task, refusal := taskIn(answer)
		if task == "" {
			t.Fatal(refusal)
		}
		configs := "/a2a/echo/rest/tasks/" + task + "/pushNotificationConfigs"
		_, listed := s.read(t, http.MethodGet, configs, "Authorization", "Bearer "+ann)
		if !strings.Contains(listed, failing.URL) || strings.Contains(listed, "in-clear") {
			t.Errorf("listed: %s", listed)
		}
		stored, err := s.Column(t.Context(), "SELECT data FROM watches")
		if err != nil || len(stored) != 1 || strings.Contains(stored[0], "in-clear") || !strings.Contains(stored[0], failing.URL) {
			t.Errorf("stored: %v (%v)", stored, err)
		}
		s.killed()
		failing.setDown(false)
		_, answer = w.post("/a2a/echo/rest/message:send", ann,
			`{"message":{"messageId":"m2","role":"ROLE_USER","parts":[{"text":"hello"}]},"configuration":{"taskPushNotificationConfig":`+config(good)+`}}`)
		ofGood, refusal := taskIn(answer)
		if ofGood == "" {
			t.Fatal(refusal)
		}
		_, answer = w.post("/a2a/echo/rest/message:send", ann,
			`{"message":{"messageId":"m3","role":"ROLE_USER","parts":[{"text":"hello"}]},"configuration":{"taskPushNotificationConfig":`+config(behindName)+`}}`)
		ofNamed, refusal := taskIn(answer)
		if ofNamed == "" {
			t.Fatal(refusal)
		}
		for name, hook := range map[string]*toldHook{"one that fails first": failing, "a good one": good, "one behind a name": behindName} {
			eventually(t, name+" is told all", func() bool {
				told := hook.told()
				return len(told) > 0 && strings.HasSuffix(told[len(told)-1], completed)
			})
			about := map[*toldHook]string{failing: task, good: ofGood, behindName: ofNamed}[hook]
			hook.mu.Lock()
			told, headers, bodies := hook.kinds, hook.headers, hook.bodies
			hook.mu.Unlock()
			for i, header := range headers {
				if header.Get("X-A2A-Notification-Token") != "token-in-clear" || header.Get("A2A-Notification-Token") != "token-in-clear" {
					t.Errorf("%s: headers %v", name, header)
				}
				signature := header.Get("X-Inbox-Notification-Signature")
				if signed, refusal := s.signedFor(t, hook.URL+"/h", signature, bodies[i]); signed != about {
					t.Errorf("%s: the signature is about %q (%s), want %q", name, signed, refusal, about)
				}
				if _, refusal := s.signedFor(t, hook.URL+"/h", signature, bodies[i]+" "); refusal == "" {
					t.Errorf("%s: the signature fits another body", name)
				}
			}
			asked := hook.asked.Load()
			if hook == behindName { // its first call has no credentials, and comes again with them
				if asked == 0 || headers[0].Get("Authorization") != "" || len(told) < 2 || told[0] != told[1] || bodies[0] != bodies[1] {
					t.Fatalf("%s: asked %d times, told %v, headers %v", name, asked, told, headers)
				}
				asked, told, headers = 0, told[1:], headers[1:]
			}
			if !toldWell(told) || asked != 0 {
				t.Errorf("%s: told %v, asked %d times", name, told, asked)
			}
			for _, header := range headers {
				if header.Get("Authorization") != "Bearer secret-in-clear" {
					t.Errorf("%s: headers %v", name, header)
				}
			}
			if hook.strayed.Load() != 0 {
				t.Errorf("%s: a redirect was followed", name)
			}
		}
		// Five of one task, and no more.
		for i := range 6 {
			status, answer := w.post(configs, ann, fmt.Sprintf(`{"taskId":%q,"id":"more-%d","url":%q}`, task, i, good.URL+"/h"))
			if want := map[bool]int{true: http.StatusOK, false: http.StatusBadRequest}[i < 4]; status/100 != want/100 {
				t.Errorf("webhook %d: %d %s", i+2, status, answer)
			}
		}
	})
}
