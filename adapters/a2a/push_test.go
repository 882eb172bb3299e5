package a2a

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/sealing"
)

// watchTable keeps watches in memory, in the order of their making.
type watchTable struct {
	mu   sync.Mutex
	rows []exchange.Watch
}

func (w *watchTable) PutWatch(_ context.Context, watch exchange.Watch) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, row := range w.rows {
		if row.Agent == watch.Agent && row.Principal == watch.Principal && row.Reference == watch.Reference && row.Name == watch.Name {
			w.rows[i].Data = watch.Data
			return nil
		}
	}
	w.rows = append(w.rows, watch)
	return nil
}

func (w *watchTable) Watches(_ context.Context, agent, principal, reference string) (found []exchange.Watch, _ error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, row := range w.rows {
		if row.Agent == agent && row.Principal == principal && row.Reference == reference {
			found = append(found, row)
		}
	}
	return found, nil
}

func (w *watchTable) Watch(_ context.Context, id string) (exchange.Watch, bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, row := range w.rows {
		if row.ID == id {
			return row, true, nil
		}
	}
	return exchange.Watch{}, false, nil
}

func (w *watchTable) DeleteWatch(_ context.Context, id string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, row := range w.rows {
		if row.ID == id {
			w.rows = append(w.rows[:i], w.rows[i+1:]...)
			return nil
		}
	}
	return nil
}

// boxSealer seals as the server does, with one key.
type boxSealer struct{ *sealing.Box }

func (s boxSealer) Seal(_ context.Context, secret []byte, purpose string) (string, error) {
	return s.Box.Seal(secret, purpose), nil
}

func (s boxSealer) Open(_ context.Context, sealed, purpose string) ([]byte, error) {
	return s.Box.Open(sealed, purpose)
}

// openWeb allows https and this machine.
type openWeb struct{ *http.Client }

func (openWeb) CheckTarget(_ context.Context, u *url.URL) error {
	if u.Scheme != "https" && u.Hostname() != "127.0.0.1" {
		return errors.New("refused")
	}
	return nil
}

// receiver is a webhook that keeps what it gets.
type receiver struct {
	*httptest.Server
	echoes bool // it confirms by the handshake
	asks   bool // it answers 401 without credentials
	status int
	bare   int // requests without credentials
	got    []*http.Request
	bodies []string
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{status: http.StatusNoContent, echoes: true}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, _ := io.ReadAll(request.Body)
		if request.Header.Get("Authorization") == "" {
			r.bare++
		}
		token := request.Header.Get("X-A2A-Notification-Token")
		if other := request.Header.Get("A2A-Notification-Token"); other != token || token != "" && request.Method == http.MethodGet {
			t.Errorf("%s carries the tokens %q and %q", request.Method, token, other)
		}
		if request.Method == http.MethodGet {
			if !r.echoes {
				w.WriteHeader(http.StatusMethodNotAllowed)
				return
			}
			_, _ = io.WriteString(w, request.URL.Query().Get("validationToken"))
			return
		}
		r.got, r.bodies = append(r.got, request), append(r.bodies, string(body))
		w.Header().Set("Retry-After", "7")
		if r.asks && request.Header.Get("Authorization") == "" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.WriteHeader(r.status)
	}))
	t.Cleanup(r.Close)
	return r
}

func pushing(t *testing.T) (*bundle, *watchTable, *receiver) {
	table, hook := &watchTable{}, newReceiver(t)
	box, err := sealing.New(sealing.NewKey())
	if err != nil {
		t.Fatal(err)
	}
	b := setup(t, func(o *Options) {
		o.Push = Push{Watches: table, Sealer: boxSealer{box}, Web: openWeb{hook.Client()}}
	})
	return b, table, hook
}

// registered sends a message with a webhook and returns its task.
func (b *bundle) registered(hook *receiver) string {
	b.Helper()
	config := `{"url":"` + hook.URL + `/h","token":"tok-1","authentication":{"scheme":"Bearer","credentials":"cred-1"}}`
	sent := b.rpc(b.ada, "SendMessage", `{"message":`+hello("m1")+`,"configuration":{"taskPushNotificationConfig":`+config+`}}`)
	return sent.at(b.T, "result.task.id").(string)
}

func hello(id string) string {
	return `{"messageId":"` + id + `","role":"ROLE_USER","parts":[{"text":"hello"}]}`
}

func TestWebhookIsTold(t *testing.T) {
	b, table, hook := pushing(t)
	hook.asks = true
	task := b.registered(hook)
	turn := b.engine.newestTurn()
	if strings.Contains(string(table.rows[0].Data), "cred-1") || strings.Contains(string(table.rows[0].Data), "tok-1") {
		t.Errorf("the secrets are stored in the clear: %s", table.rows[0].Data)
	}
	for _, state := range []string{exchange.StateRunning, exchange.StateAnswered} {
		change := exchange.WatchJob{WatchID: table.rows[0].ID, TurnID: turn, State: state, At: time.Now()}
		if err := b.adapter.notifier.Notify(t.Context(), change, false); err != nil {
			t.Fatal(err)
		}
	}
	var kinds []string
	for i, body := range hook.bodies {
		var event map[string]struct {
			TaskID string `json:"taskId"`
		}
		if err := json.Unmarshal([]byte(body), &event); err != nil || len(event) != 1 {
			t.Fatalf("body %s: %v", body, err)
		}
		for kind, about := range event {
			kinds = append(kinds, kind)
			if about.TaskID != task {
				t.Errorf("task %s, want %s", about.TaskID, task)
			}
		}
		header := hook.got[i].Header
		if i == 0 && header.Get("Authorization") == "" { // the host was not known yet
			continue
		}
		if header.Get("Authorization") != "Bearer cred-1" || header.Get("X-A2A-Notification-Token") != "tok-1" ||
			header.Get("A2A-Notification-Token") != "tok-1" || header.Get("Content-Type") != "application/a2a+json" {
			t.Errorf("headers %v", header)
		}
	}
	if want := []string{"statusUpdate", "statusUpdate", "artifactUpdate", "statusUpdate"}; !slices.Equal(kinds, want) {
		t.Errorf("told %v", kinds)
	}
	stale := exchange.WatchJob{WatchID: table.rows[0].ID, TurnID: turn, State: exchange.StateWaiting}
	if err := b.adapter.notifier.Notify(t.Context(), stale, false); err != nil || len(hook.bodies) != len(kinds) {
		t.Errorf("a state that is over was told: %v", err)
	}
}

// TestCancelledQuestionIsToldAndListed: a task that asked its owner and was given up is the newest, and its webhook hears.
func TestCancelledQuestionIsToldAndListed(t *testing.T) {
	b, table, hook := pushing(t)
	b.engine.agent = asking
	task := b.registered(hook)
	turn := b.engine.newestTurn()
	b.rpc(b.ada, "SendMessage", `{"message":`+hello("m2")+`}`)
	at := b.rpc(b.ada, "CancelTask", `{"id":"`+task+`"}`).text(t, "result.status.timestamp")
	listed := b.rpc(b.ada, "ListTasks", `{"statusTimestampAfter":"`+at+`"}`)
	if listed.text(t, "result.tasks.0.id") != task || listed.text(t, "result.tasks.0.status.state") != "TASK_STATE_CANCELED" {
		t.Errorf("since %s: %s", at, listed.body)
	}
	change := exchange.WatchJob{WatchID: table.rows[0].ID, TurnID: turn, State: exchange.StateAnswered, At: time.Now()}
	if err := b.adapter.notifier.Notify(t.Context(), change, false); err != nil {
		t.Fatal(err)
	}
	if len(hook.bodies) != 1 || !strings.Contains(hook.bodies[0], `"TASK_STATE_CANCELED"`) {
		t.Errorf("told %v", hook.bodies)
	}
}

func TestWebhookThatFails(t *testing.T) {
	b, table, hook := pushing(t)
	b.registered(hook)
	change := exchange.WatchJob{WatchID: table.rows[0].ID, TurnID: b.engine.newestTurn(), State: exchange.StateAnswered}
	hook.status = http.StatusServiceUnavailable
	if err := b.adapter.notifier.Notify(t.Context(), change, false); fault.Of(err).RetryAfter != 7*time.Second || len(table.rows) != 1 {
		t.Errorf("503: %v, %d webhooks", err, len(table.rows))
	}
	hook.status = http.StatusFound
	if err := b.adapter.notifier.Notify(t.Context(), change, false); err == nil || len(table.rows) != 1 {
		t.Errorf("a redirect: %v, %d webhooks", err, len(table.rows))
	}
	if err := b.adapter.notifier.Notify(t.Context(), change, true); err == nil || len(table.rows) != 0 {
		t.Errorf("the last attempt: %v, %d webhooks", err, len(table.rows))
	}
}

func TestWebhookThatIsGone(t *testing.T) {
	b, table, hook := pushing(t)
	b.registered(hook)
	hook.status = http.StatusGone
	change := exchange.WatchJob{WatchID: table.rows[0].ID, TurnID: b.engine.newestTurn(), State: exchange.StateAnswered}
	if err := b.adapter.notifier.Notify(t.Context(), change, false); !fault.Of(err).Permanent || len(table.rows) != 0 {
		t.Errorf("410: %v, %d webhooks", err, len(table.rows))
	}
}

func TestWebhooksOfATask(t *testing.T) {
	b, _, hook := pushing(t)
	task := b.registered(hook)
	create := func(token, config string) reply { return b.rpc(token, "CreateTaskPushNotificationConfig", config) }
	made := create(b.ada, `{"task_id":"`+task+`","id":"mine","url":"https://peer.example/h","authentication":{"scheme":"Bearer","credentials":"secret"}}`)
	if made.at(t, "result.id") != "mine" || strings.Contains(made.body, "secret") {
		t.Errorf("created %s", made.body)
	}
	listed := b.rpc(b.ada, "ListTaskPushNotificationConfigs", `{"taskId":"`+task+`"}`)
	if listed.at(t, "result.configs.#") != 2.0 || strings.Contains(listed.body, "secret") || strings.Contains(listed.body, "cred-1") {
		t.Errorf("listed %s", listed.body)
	}
	for _, method := range []string{"GetTaskPushNotificationConfig", "DeleteTaskPushNotificationConfig", "ListTaskPushNotificationConfigs"} {
		foreign := b.rpc(b.bob, method, `{"taskId":"`+task+`","id":"mine"}`)
		missing := b.rpc(b.bob, method, `{"taskId":"missing","id":"mine"}`)
		if foreign.body != missing.body || foreign.decode(t).Error.Code != -32001 {
			t.Errorf("%s of somebody else: %s, of nobody: %s", method, foreign.body, missing.body)
		}
	}
	for name, config := range map[string]string{
		"no address":       `{"taskId":"` + task + `"}`,
		"not https":        `{"taskId":"` + task + `","url":"http://peer.example/"}`,
		"user in address":  `{"taskId":"` + task + `","url":"https://u:p@peer.example/"}`,
		"line in token":    `{"taskId":"` + task + `","url":"https://peer.example/","token":"a\r\nX: y"}`,
		"line in password": `{"taskId":"` + task + `","url":"https://peer.example/","authentication":{"scheme":"Bearer","credentials":"a\nb"}}`,
		"two words":        `{"taskId":"` + task + `","url":"https://peer.example/","authentication":{"scheme":"Bearer x"}}`,
		"slash in id":      `{"taskId":"` + task + `","id":"a/b","url":"https://peer.example/"}`,
		"dots as id":       `{"taskId":"` + task + `","id":"..","url":"https://peer.example/"}`,
	} {
		if refused := create(b.ada, config); refused.decode(t).Error == nil || refused.decode(t).Error.Code != -32602 {
			t.Errorf("%s: %s", name, refused.body)
		}
	}
	for range 2 {
		if gone := b.rpc(b.ada, "DeleteTaskPushNotificationConfig", `{"taskId":"`+task+`","id":"mine"}`); gone.decode(t).Error != nil {
			t.Errorf("delete: %s", gone.body)
		}
	}
	if got := b.rpc(b.ada, "GetTaskPushNotificationConfig", `{"taskId":"`+task+`","id":"mine"}`); got.decode(t).Error == nil {
		t.Errorf("a deleted webhook: %s", got.body)
	}
}

// TestAnswersWithoutContent: an answer by JSON-RPC has a result, also where there is nothing to say.
func TestAnswersWithoutContent(t *testing.T) {
	b, _, _ := pushing(t)
	task := b.rpc(b.ada, "SendMessage", `{"message":`+hello("m1")+`}`).at(t, "result.task.id").(string)
	old := `{"id":"` + task + `","pushNotificationConfigId":"none"}`
	for _, c := range []struct{ method, params, want string }{
		{"tasks/pushNotificationConfig/list", old, `"result":[]`}, {"tasks/pushNotificationConfig/delete", old, `"result":null`},
		{"DeleteTaskPushNotificationConfig", `{"taskId":"` + task + `","id":"none"}`, `"result":{}`},
	} {
		if got := b.rpc(b.ada, c.method, c.params); !strings.Contains(got.body, c.want) || !strings.Contains(got.body, `"jsonrpc":"2.0"`) {
			t.Errorf("%s: %s, want %s", c.method, got.body, c.want)
		}
	}
}

// TestWebhookOfARefusedMessage: nothing stays of what was not taken.
func TestWebhookOfARefusedMessage(t *testing.T) {
	b, table, hook := pushing(t)
	b.engine.refusal = fault.New(fault.Forbidden, "no")
	b.rpc(b.ada, "SendMessage", `{"message":`+hello("m1")+`,"configuration":{"taskPushNotificationConfig":{"url":"`+hook.URL+`"}}}`)
	if len(table.rows) != 0 {
		t.Errorf("%d webhooks stay", len(table.rows))
	}
}

// TestCredentialsAwaitConfirmation: the first call to a host carries its token and no Authorization; what the host then says decides.
func TestCredentialsAwaitConfirmation(t *testing.T) {
	for name, c := range map[string]struct {
		echoes, asks bool
		status       int
		named        bool
		first        string // Authorization of the notifications of the first change, by call
		after        string // of those of the next
		bare         int
	}{
		"it takes what comes":       {status: 200, first: "", after: "Bearer cred-1", bare: 1},
		"it asks for credentials":   {asks: true, status: 200, first: ",Bearer cred-1", after: "Bearer cred-1", bare: 1},
		"it refuses and echoes":     {echoes: true, status: 403, first: ",Bearer cred-1", after: "Bearer cred-1", bare: 2},
		"it refuses":                {status: 403, first: "", after: "", bare: 4},
		"it breaks":                 {status: 500, first: "", after: "", bare: 2},
		"it redirects":              {status: 302, first: "", after: "", bare: 2},
		"the operator named it":     {status: 200, named: true, first: "Bearer cred-1", after: "Bearer cred-1", bare: 0},
		"named, and it refuses all": {status: 403, named: true, first: "Bearer cred-1", after: "Bearer cred-1", bare: 0},
	} {
		t.Run(name, func(t *testing.T) {
			b, table, hook := pushing(t)
			hook.echoes, hook.asks, hook.status = c.echoes, c.asks, c.status
			b.adapter.options.Push.Named = func(*url.URL) bool { return c.named }
			b.registered(hook)
			shown := func() string {
				hook.got = nil
				change := exchange.WatchJob{WatchID: table.rows[0].ID, TurnID: b.engine.newestTurn(), State: exchange.StateRunning, At: time.Now()}
				_ = b.adapter.notifier.Notify(t.Context(), change, false)
				var list []string
				for _, request := range hook.got {
					list = append(list, request.Header.Get("Authorization"))
					if token := request.Header.Get("X-A2A-Notification-Token"); token != "tok-1" {
						t.Errorf("a notification carries the token %q", token)
					}
				}
				return strings.Join(list, ",")
			}
			if first := shown(); first != c.first {
				t.Errorf("first %q, want %q", first, c.first)
			}
			if after := shown(); after != c.after {
				t.Errorf("after %q, want %q", after, c.after)
			}
			if hook.bare != c.bare {
				t.Errorf("%d calls without credentials, want %d", hook.bare, c.bare)
			}
		})
	}
}

// TestConfirmationIsOfOneAddress: another path, host or principal confirms for itself; another task does not ask again.
func TestConfirmationIsOfOneAddress(t *testing.T) {
	parse := func(address string) *url.URL { u, _ := url.Parse(address); return u }
	one := confirmKey(exchange.Watch{Agent: "a", Principal: "p", Reference: "t1"}, parse("https://h.example/x?task=1"))
	for name, same := range map[string]bool{
		confirmKey(exchange.Watch{Agent: "a", Principal: "p", Reference: "t2"}, parse("https://H.example/x?task=2")): true,
		confirmKey(exchange.Watch{Agent: "a", Principal: "q", Reference: "t1"}, parse("https://h.example/x")):        false,
		confirmKey(exchange.Watch{Agent: "a", Principal: "p", Reference: "t1"}, parse("https://h.example/y")):        false,
		confirmKey(exchange.Watch{Agent: "a", Principal: "p", Reference: "t1"}, parse("https://h.example:444/x")):    false,
	} {
		if (name == one) != same {
			t.Errorf("%s: same %v", name, same)
		}
	}
}

// TestWebhookIDsInPaths: an id that JSON-RPC took is addressed by HTTP+JSON, however a client escapes it.
func TestWebhookIDsInPaths(t *testing.T) {
	b, _, hook := pushing(t)
	task := b.registered(hook)
	for _, id := range []string{"a:b", "a b", "a%b", "a+b", "a@b=c", "a,b;c", "~", "a..b", "a?b#c"} {
		made := b.rpc(b.ada, "CreateTaskPushNotificationConfig", `{"taskId":"`+task+`","id":"`+id+`","url":"https://peer.example/h"}`)
		if made.text(t, "result.id") != id {
			t.Errorf("%q: %s", id, made.body)
			continue
		}
		for _, escaped := range []string{url.PathEscape(id), strings.ReplaceAll(url.QueryEscape(id), "+", "%20")} {
			for _, base := range []string{"/a2a/echo/rest/tasks/", "/a2a/echo/v1/tasks/"} {
				if got := b.do("GET", base+task+"/pushNotificationConfigs/"+escaped, b.ada, ""); got.status != 200 {
					t.Errorf("%q as %s%s: %d %s", id, base, escaped, got.status, got.body)
				}
			}
		}
	}
}
