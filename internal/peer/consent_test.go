package peer

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-smtp"

	"inbox/internal/await"
)

// page is the page of a demand: it shows, and takes the decision by POST alone.
type page struct {
	mu       sync.Mutex
	opened   int
	granted  bool
	byGET    bool   // a page that takes opening it for a decision
	form     string // instead of the usual one
	onGrant  func()
	address  string
	received http.Header
}

const usualForm = `<form method="post"><input type="hidden" name="mark" value="m"><button name="decision" value="grant">Allow</button>
	<button name="decision" value="decline">Decline</button></form>`

func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !strings.HasPrefix(r.URL.Path, "/policy/") {
		http.NotFound(w, r)
		return
	}
	switch {
	case r.Method == http.MethodPost && r.FormValue("decision") == "grant" && r.FormValue("mark") == "m" && !p.granted:
		p.granted, p.received = true, r.Header.Clone()
		go p.onGrant()
		_, _ = io.WriteString(w, "<h1>Thank you</h1>")
	case r.Method == http.MethodPost:
		http.Error(w, "which decision?", http.StatusBadRequest)
	case p.granted:
		http.Error(w, "decided", http.StatusGone)
	default:
		p.opened++
		p.granted = p.byGET
		_, _ = io.WriteString(w, "<!doctype html><p>May I?</p>"+orDefault(p.form, usualForm))
	}
}

func startPage(t *testing.T, onGrant func(*page)) *page {
	t.Helper()
	made := &page{}
	granted := make(chan struct{}, 1)
	made.onGrant = func() {
		defer close(granted)
		if onGrant != nil {
			onGrant(made)
		}
	}
	server := httptest.NewServer(made)
	t.Cleanup(func() {
		server.Close()
		made.mu.Lock()
		defer made.mu.Unlock()
		if made.granted && !made.byGET {
			await.Receive(t, granted, "what follows the grant")
		}
	})
	made.address = server.URL + "/policy/secret_-1"
	return made
}

// askingAccount returns bob, who answers a mention with a demand and goes on when it is granted.
func askingAccount(t *testing.T, change func(demand object), paper *page) *Fediverse {
	t.Helper()
	bob := startFediverse(t, FediverseOptions{User: "bob"})
	next := bob.server.Handler
	bob.server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/policy/"):
			paper.ServeHTTP(w, r)
			return
		case r.Method != http.MethodPost:
			next.ServeHTTP(w, r)
			return
		}
		var activity activityDocument
		var note noteDocument
		body, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(body, &activity)
		_ = json.Unmarshal(activity.Object, &note)
		w.WriteHeader(http.StatusAccepted)
		send := func(text string, change func(object)) {
			ctx, cancel := context.WithTimeout(bob.life, requestTimeout)
			defer cancel()
			asker, err := bob.fetchActor(ctx, activity.Actor)
			if err != nil {
				return
			}
			create := bob.note(asker, "@alice@example", text, note.ID)
			change(create["object"].(object))
			_ = bob.deliver(ctx, asker.Inbox, create)
		}
		direct := func(made object) { made["to"], made["cc"] = []string{activity.Actor}, []string{} }
		paper.onGrant = func() { send("You said: granted", direct) }
		bob.work.Go(func() {
			send("Please allow. Allow: "+bob.base+"/policy/secret_-1 Valid until tomorrow", func(made object) { direct(made); change(made) })
		})
	})
	return bob
}

func TestFediverseConsent(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(object)
		paper  *page
		want   string // in the error; empty = it works
	}{
		"right":         {func(object) {}, &page{}, ""},
		"public demand": {func(made object) { made["cc"] = []string{publicAddress} }, &page{}, "sent to others, too: " + publicAddress},
		"mentions others": {func(made object) {
			made["tag"] = append(made["tag"].([]object), object{"type": "Mention", "href": "http://carol.example"})
		}, &page{}, "carol"},
		"leads elsewhere": {func(made object) { made["content"] = "<p>http://evil.example/policy/x</p>" }, &page{}, "leads to http://evil.example"},
		"no demand":       {func(made object) { made["content"] = "<p>hello</p>" }, &page{}, `asked nothing back, it answered "hello"`},
		"opening decides": {func(object) {}, &page{byGET: true}, "410"},
		"no form":         {func(object) {}, &page{form: `<a href="?grant">Allow</a>`}, "no form"},
		"form elsewhere":  {func(object) {}, &page{form: strings.Replace(usualForm, "<form", `<form action="http://evil.example/"`, 1)}, "the form leads to"},
		"only declining":  {func(object) {}, &page{form: strings.Replace(usualForm, `"grant"`, `"other"`, 1)}, "no form"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			alice := startFediverse(t, FediverseOptions{})
			bob := askingAccount(t, test.change, test.paper)
			demand, got, err := alice.AskWithConsent(limited(t, 10*time.Second), bob.BaseURL(), bob.Address(), "please")
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "secret_-1") {
					t.Errorf("error = %v, want %q", err, test.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.Answer != "You said: granted" || demand.URL != bob.base+"/policy/secret_-1" || demand.MessageID == "" || len(demand.Evidence) < 5 || test.paper.opened < 2 {
				t.Errorf("demand %+v, answer %+v, opened %d times", demand, got, test.paper.opened)
			}
			if test.paper.received.Get("Sec-Fetch-Site") != "same-origin" || test.paper.received.Get("Origin") != bob.base {
				t.Errorf("the form came with %v", test.paper.received)
			}
		})
	}
}

// letterbox takes mail as bob and hands it to a function.
type letterbox func(received)

func (l letterbox) NewSession(*smtp.Conn) (smtp.Session, error) { return l, nil }
func (l letterbox) Mail(string, *smtp.MailOptions) error        { return nil }
func (l letterbox) Rcpt(string, *smtp.RcptOptions) error        { return nil }
func (l letterbox) Reset()                                      {}
func (l letterbox) Logout() error                               { return nil }
func (l letterbox) Data(body io.Reader) error {
	raw, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	arrived, err := readMail(raw)
	if err == nil {
		go l(arrived)
	}
	return err
}

func TestMailConsent(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(first, second *letter)
		want   string
	}{
		"right":         {func(*letter, *letter) {}, ""},
		"other thread":  {func(_, second *letter) { second.inReplyTo = "elsewhere@hatter.example" }, "no answer came"},
		"the same id":   {func(first, second *letter) { second.id = first.id }, "have the same id"},
		"asks again":    {func(first, second *letter) { second.text = first.text }, "asks again"},
		"asks nothing":  {func(first, _ *letter) { first.text = "hello" }, `asked nothing back, it answered "hello"`},
		"to others too": {func(first, _ *letter) { first.to += ">, <carol@wonderland.example" }, "sent to others, too: carol@wonderland.example"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			alice, bob := mailPair(t)
			first := letter{id: "1@hatter.example", to: alice.Address(), subject: "Re: hi"}
			second := letter{id: "2@hatter.example", to: alice.Address(), subject: "Re: hi", text: "it is done"}
			send := func(one letter) {
				signed, err := bob.sign(bob.compose(one))
				if err == nil {
					_ = bob.submit(t.Context(), alice.SMTPAddr(), alice.Address(), signed)
				}
			}
			paper := startPage(t, func(*page) { send(second) })
			first.text = "Please allow\nAllow: " + paper.address + "\nValid until tomorrow"
			box := smtp.NewServer(letterbox(func(arrived received) {
				first.inReplyTo, second.inReplyTo = arrived.id, arrived.id
				test.change(&first, &second)
				send(first)
			}))
			listener, err := listen("")
			if err != nil {
				t.Fatal(err)
			}
			served := make(chan struct{})
			go func() { defer close(served); _ = box.Serve(listener) }()
			t.Cleanup(func() { _ = box.Close(); await.Receive(t, served, "the end of the letterbox") })
			demand, got, err := alice.AskWithConsent(unlessWaiting(t, name == "other thread"), listener.Addr().String(), bob.Address(), "hi", "please")
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Fatalf("error = %v, want %q", err, test.want)
			}
			if err == nil && (got.Answer != "it is done" || demand.URL != paper.address || demand.MessageID != "1@hatter.example" || paper.opened < 2) {
				t.Errorf("demand %+v, answer %+v, opened %d times", demand, got, paper.opened)
			}
		})
	}
}

func TestA2AConsent(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		state, text, after string
		want               string
	}{
		"right":           {"TASK_STATE_AUTH_REQUIRED", "Allow: %s", stateCompleted, ""},
		"asks nothing":    {stateCompleted, "Allow: %s", stateCompleted, "asked nothing back"},
		"leads elsewhere": {"TASK_STATE_AUTH_REQUIRED", "Allow: http://evil.example/policy/x %s", stateCompleted, "no link to the agent's own server"},
		"no link":         {"TASK_STATE_INPUT_REQUIRED", "Allow me", stateCompleted, "no link to the agent's own server"},
		"fails then":      {"TASK_STATE_AUTH_REQUIRED", "Allow: %s", "TASK_STATE_FAILED", "ended TASK_STATE_FAILED"},
		"never goes on":   {"TASK_STATE_AUTH_REQUIRED", "Allow: %s", "TASK_STATE_AUTH_REQUIRED", "is still TASK_STATE_AUTH_REQUIRED"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			paper := &page{onGrant: func() {}}
			mux := http.NewServeMux()
			server := httptest.NewServer(mux)
			t.Cleanup(server.Close)
			paper.address = server.URL + "/policy/secret_-1"
			mux.Handle("/policy/", paper)
			mux.HandleFunc("/card.json", func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, `{"name":"bob","supportedInterfaces":[{"url":"`+server.URL+`/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}`)
			})
			mux.Handle("/rpc", demandToken(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var call struct{ ID, Method string }
				_ = json.NewDecoder(r.Body).Decode(&call)
				paper.mu.Lock()
				state, text := test.state, strings.ReplaceAll(test.text, "%s", paper.address)
				if paper.granted {
					state, text = test.after, "it is done"
				}
				paper.mu.Unlock()
				task := object{"id": "t", "contextId": "c", "status": object{"state": state, "message": object{"parts": []object{{"text": text}, {"data": object{}}}}}}
				result := any(task)
				if call.Method == "SendMessage" {
					result = object{"task": task}
				}
				_ = json.NewEncoder(w).Encode(object{"jsonrpc": "2.0", "id": call.ID, "result": result})
			})))
			demand, got, err := startA2A(t, testToken).AskWithConsent(unlessWaiting(t, name == "never goes on"), server.URL+"/card.json", "please")
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Fatalf("error = %v, want %q", err, test.want)
			}
			if err == nil && (got.Answer != "it is done" || demand.URL != paper.address || demand.MessageID != "t" || len(got.Evidence) != 3 || len(demand.Evidence) != 4) {
				t.Errorf("demand %+v, answer %+v", demand, got)
			}
		})
	}
}

func TestGrantFormReadsPages(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		usualForm: "decision=grant&mark=m",
		`<form method=post><button name=a value=decline></form><FORM METHOD=POST ACTION=/x><INPUT TYPE=submit NAME=b VALUE=grant>`: "b=grant",
		`<form method=post><select name=s></select><textarea name=t></textarea><button name=d value=grant>`:                        "d=grant",
		`<form><button name=d value=grant></form>`: "",
		`grant`: "",
	} {
		form, err := grantForm(text)
		if (err == nil) != (want != "") || form.fields.Encode() != want {
			t.Errorf("%s: %q, %v, want %q", text, form.fields.Encode(), err, want)
		}
	}
	if _, err := agree(t.Context(), "http://127.0.0.1:1/policy/secret"); err == nil || strings.Contains(fmt.Sprint(err), "secret") {
		t.Errorf("error = %v, want one without the secret", err)
	}
}
