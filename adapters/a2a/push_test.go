package a2a

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
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
	"inbox/identity"
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
	asks   int  // it answers this without credentials; 0 = it does not ask
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
		if r.asks != 0 && request.Header.Get("Authorization") == "" {
			w.WriteHeader(r.asks)
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
	hook.asks, hook.echoes = http.StatusUnauthorized, false
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

// TestCredentialsAwaitConfirmation: a host that echoes a token gets credentials with its first notification, one that takes a notification
// without them or asks for them gets it again at once, and every other never.
func TestCredentialsAwaitConfirmation(t *testing.T) {
	for name, c := range map[string]struct {
		echoes bool
		asks   int
		status int
		named  bool
		first  string // Authorization of the notifications of the first change, by call
		after  string // of those of the next
		bare   int    // requests without credentials, the question among them
	}{
		"it echoes":                   {echoes: true, asks: 401, status: 200, first: "Bearer cred-1", after: "Bearer cred-1", bare: 1},
		"it echoes, and refuses all":  {echoes: true, status: 403, first: "Bearer cred-1", after: "Bearer cred-1", bare: 1},
		"it takes what comes":         {status: 200, first: ",Bearer cred-1", after: "Bearer cred-1", bare: 2},
		"it asks with 401":            {asks: 401, status: 200, first: ",Bearer cred-1", after: "Bearer cred-1", bare: 2},
		"it asks with 403":            {asks: 403, status: 200, first: ",Bearer cred-1", after: "Bearer cred-1", bare: 2},
		"it asks, and is not content": {asks: 403, status: 403, first: ",Bearer cred-1", after: "Bearer cred-1", bare: 2},
		"it is not there":             {status: 404, first: "", after: "", bare: 4},
		"it takes no such request":    {status: 405, first: "", after: "", bare: 4},
		"it is crowded":               {status: 429, first: "", after: "", bare: 4},
		"it breaks":                   {status: 500, first: "", after: "", bare: 4},
		"it redirects":                {status: 302, first: "", after: "", bare: 4},
		"the operator named it":       {asks: 403, status: 200, named: true, first: "Bearer cred-1", after: "Bearer cred-1", bare: 0},
		"named, and it refuses all":   {status: 403, named: true, first: "Bearer cred-1", after: "Bearer cred-1", bare: 0},
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

// verifyNotification is what a receiver does: it knows the address of its webhook, the server that it called and that server's jwks.json.
func verifyNotification(keySet []byte, issuer, address, signature string, body []byte) (task string, err error) {
	var set struct {
		Keys []struct{ Kty, Crv, Kid, X string }
	}
	var header struct{ Alg, Typ, Kid string }
	var claims struct {
		Iss, Aud, Jti, TaskID string
		Iat, Exp              int64
		Digest                string `json:"request_body_sha256"`
	}
	pieces := strings.Split(signature, ".")
	if len(pieces) != 3 {
		return "", errors.New("not a JWT")
	}
	for i, into := range []any{&header, &claims} {
		text, err := base64.RawURLEncoding.DecodeString(pieces[i])
		if err != nil || json.Unmarshal(text, into) != nil {
			return "", errors.New("not a JWT")
		}
	}
	signed, err := base64.RawURLEncoding.DecodeString(pieces[2])
	if err != nil || json.Unmarshal(keySet, &set) != nil || header.Alg != "EdDSA" || header.Typ != "a2a-notification+jwt" {
		return "", errors.New("not a notification")
	}
	for _, key := range set.Keys {
		public, err := base64.RawURLEncoding.DecodeString(key.X)
		if err != nil || key.Kid != header.Kid || key.Kty != "OKP" || key.Crv != "Ed25519" {
			continue
		}
		digest, now := sha256.Sum256(body), time.Now().Unix()
		switch {
		case !ed25519.Verify(public, []byte(pieces[0]+"."+pieces[1]), signed):
			return "", errors.New("the signature does not fit")
		case claims.Iss != issuer, claims.Aud != address:
			return "", errors.New("of another server, or for another address")
		case now > claims.Exp || claims.Iat > now+5 || claims.Exp-claims.Iat > 300 || claims.Jti == "":
			return "", errors.New("not of now")
		case claims.Digest != hex.EncodeToString(digest[:]):
			return "", errors.New("another body")
		}
		return claims.TaskID, nil
	}
	return "", errors.New("no such key")
}

// TestNotificationsAreSigned: a receiver verifies each request, whatever its owner registered, with the public key document only. Where the
// owner chose no credentials, the signature is Authorization, too.
func TestNotificationsAreSigned(t *testing.T) {
	key, err := identity.NewSigningKey("agents.test")
	if err != nil {
		t.Fatal(err)
	}
	keySet := identity.KeySet([]identity.PublicKey{key.Public()})
	for name, c := range map[string]struct {
		config string // of the webhook beside its address
		echoes bool
		asks   int
		old    bool
		shown  string // Authorization by call: "jwt" = the signature
	}{
		"no credentials":               {config: ``, shown: "jwt,jwt"},
		"a token, and 403 without":     {config: `,"token":"t"`, asks: 403, shown: "jwt,jwt"},
		"Bearer without credentials":   {config: `,"authentication":{"scheme":"bearer"}`, shown: "jwt,jwt"},
		"another scheme":               {config: `,"authentication":{"scheme":"Basic"}`, shown: ","},
		"credentials of a known host":  {config: `,"authentication":{"scheme":"Bearer","credentials":"c"}`, echoes: true, shown: "Bearer c,Bearer c"},
		"credentials of an other host": {config: `,"authentication":{"scheme":"Bearer","credentials":"c"}`, asks: 401, shown: ",Bearer c,Bearer c"},
		"0.3":                          {config: ``, old: true, shown: "jwt"},
	} {
		t.Run(name, func(t *testing.T) {
			b, table, hook := pushing(t)
			hook.echoes, hook.asks = c.echoes, c.asks
			b.adapter.options.CardKeys = func(context.Context) ([]identity.SigningKey, error) { return []identity.SigningKey{key}, nil }
			address := hook.URL + "/h?for=me"
			config := `{"url":"` + address + `"` + c.config + `}`
			var task string
			if c.old {
				task = b.rpc(b.ada, "message/send", `{"message":{"kind":"message","messageId":"m1","role":"user","parts":[{"kind":"text","text":"hello"}]},"configuration":{"pushNotificationConfig":`+config+`}}`).text(t, "result.id")
			} else {
				task = b.rpc(b.ada, "SendMessage", `{"message":`+hello("m1")+`,"configuration":{"taskPushNotificationConfig":`+config+`}}`).text(t, "result.task.id")
			}
			change := exchange.WatchJob{WatchID: table.rows[0].ID, TurnID: b.engine.newestTurn(), State: exchange.StateAnswered, At: time.Now()}
			if err := b.adapter.notifier.Notify(t.Context(), change, false); err != nil {
				t.Fatal(err)
			}

			var shown []string
			ids := map[string]bool{}
			for i, request := range hook.got {
				signature, body := request.Header.Get(SignatureHeader), []byte(hook.bodies[i])
				about, err := verifyNotification(keySet, "https://agents.test", address, signature, body)
				if err != nil || about != task {
					t.Errorf("call %d: %v, about %q", i+1, err, about)
				}
				if _, err := verifyNotification(keySet, "https://agents.test", address, signature, append(body, ' ')); err == nil {
					t.Error("another body is accepted")
				}
				if ids[signature] {
					t.Error("two calls have the same signature")
				}
				ids[signature] = true
				shown = append(shown, strings.Replace(request.Header.Get("Authorization"), "Bearer "+signature, "jwt", 1))
			}
			if got := strings.Join(shown, ","); got != c.shown {
				t.Errorf("Authorization %q, want %q", got, c.shown)
			}
		})
	}
}

// TestUnsignedNotificationsWait: without its keys a server does not send what a receiver could not verify.
func TestUnsignedNotificationsWait(t *testing.T) {
	b, table, hook := pushing(t)
	b.registered(hook)
	b.adapter.options.CardKeys = func(context.Context) ([]identity.SigningKey, error) { return nil, errors.New("the store is down") }
	change := exchange.WatchJob{WatchID: table.rows[0].ID, TurnID: b.engine.newestTurn(), State: exchange.StateAnswered, At: time.Now()}
	err := b.adapter.notifier.Notify(t.Context(), change, false)
	if err == nil || fault.Of(err).Permanent || len(hook.got) > 0 || len(table.rows) != 1 {
		t.Errorf("%v; %d notifications, %d webhooks", err, len(hook.got), len(table.rows))
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
