package peer

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"inbox/internal/await"
)

func startFediverse(t *testing.T, options FediverseOptions) *Fediverse {
	t.Helper()
	server, err := NewFediverse(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return server
}

func upper(text string) string { return "You said: " + strings.ToUpper(text) }

func limited(t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// unlessWaiting is a bound that only a test meets that waits in vain, on purpose.
func unlessWaiting(t *testing.T, waits bool) context.Context {
	t.Helper()
	if waits {
		return limited(t, 5*time.Second)
	}
	return limited(t, await.Patience)
}

func TestFediversePeersTalk(t *testing.T) {
	t.Parallel()
	bob := startFediverse(t, FediverseOptions{User: "bob", Reply: upper})
	alice := startFediverse(t, FediverseOptions{})
	got, err := alice.Ask(limited(t, 10*time.Second), bob.BaseURL(), bob.Address(), "Hello <b> & 'you'")
	if err != nil {
		t.Fatal(err)
	}
	if got.Answer != "You said: HELLO <B> & 'YOU'" || got.From != alice.Address() || got.To != bob.Address() {
		t.Errorf("conversation = %+v", got)
	}
	if len(got.Evidence) < 3 || !strings.Contains(strings.Join(got.Evidence, "\n"), bob.key.id) {
		t.Errorf("evidence does not name the key: %q", got.Evidence)
	}
	if !strings.HasPrefix(got.MessageID, alice.BaseURL()+"/users/alice/statuses/") {
		t.Errorf("message id = %q", got.MessageID)
	}
}

func TestFediverseSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	silent := startFediverse(t, FediverseOptions{User: "bob"})
	alice := startFediverse(t, FediverseOptions{})
	tests := map[string]struct{ address, want string }{
		"no account": {"@carol@" + silent.host, "404"},
		"no address": {"bob", "invalid address"},
		"no answer":  {silent.Address(), "no answer came"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := alice.Ask(limited(t, 3*time.Second), silent.BaseURL(), test.address, "anybody there?")
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error = %v, want %q in it", err, test.want)
			}
		})
	}
}

// TestFediverseInboxRefuses sends a reply that would be right but for one thing.
func TestFediverseInboxRefuses(t *testing.T) {
	t.Parallel()
	alice := startFediverse(t, FediverseOptions{})
	bob := startFediverse(t, FediverseOptions{User: "bob"})
	mallory := startFediverse(t, FediverseOptions{User: "mallory"})
	target, err := bob.fetchActor(t.Context(), alice.actorID())
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		change  func(r *http.Request, body *[]byte)
		unsign  bool
		signer  *Fediverse
		address string
		status  int
	}{
		"right":         {status: http.StatusAccepted},
		"no signature":  {unsign: true, status: http.StatusUnauthorized},
		"other signer":  {signer: mallory, status: http.StatusBadRequest},
		"plain JSON":    {change: setHeader("Content-Type", "application/json"), status: http.StatusUnsupportedMediaType},
		"tampered body": {change: tamper, status: http.StatusUnauthorized},
		"tampered with new digest": {change: func(r *http.Request, body *[]byte) {
			tamper(r, body)
			r.Header.Set("Digest", bodyDigest(*body))
		}, status: http.StatusUnauthorized},
		"other date": {change: setHeader("Date", time.Now().UTC().Add(time.Minute).Format(http.TimeFormat)), status: http.StatusUnauthorized},
		"old date":   {change: setHeader("Date", "Fri, 20 Nov 2026 00:00:00 GMT"), status: http.StatusUnauthorized},
		"covers little": {change: func(r *http.Request, _ *[]byte) {
			r.Header.Set("Signature", strings.Replace(r.Header.Get("Signature"), " digest", "", 1))
		}, status: http.StatusUnauthorized},
		"key of somebody else": {change: func(r *http.Request, _ *[]byte) {
			r.Header.Set("Signature", strings.Replace(r.Header.Get("Signature"), bob.key.id, mallory.key.id, 1))
		}, status: http.StatusUnauthorized},
		"key that is not listed": {change: func(r *http.Request, _ *[]byte) {
			r.Header.Set("Signature", strings.Replace(r.Header.Get("Signature"), "#main-key", "#other-key", 1))
		}, status: http.StatusUnauthorized},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			body, err := json.Marshal(bob.note(target, alice.Address(), "hello", ""))
			if err != nil {
				t.Fatal(err)
			}
			signer := bob
			if test.signer != nil {
				signer = test.signer
			}
			if status := post(t, alice.base+"/inbox", signer, body, test.unsign, test.change); status != test.status {
				t.Errorf("status %d, want %d", status, test.status)
			}
		})
	}
}

func setHeader(name, value string) func(*http.Request, *[]byte) {
	return func(r *http.Request, _ *[]byte) { r.Header.Set(name, value) }
}

func tamper(_ *http.Request, body *[]byte) {
	*body = bytes.Replace(*body, []byte("hello"), []byte("hullo"), 1)
}

func post(t *testing.T, inbox string, signer *Fediverse, body []byte, unsign bool, change func(*http.Request, *[]byte)) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, inbox, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", activityJSON)
	if !unsign {
		if err := signer.key.sign(request, body); err != nil {
			t.Fatal(err)
		}
	}
	if change != nil {
		change(request, &body)
	}
	request.Body, request.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	response, err := signer.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readBody(response); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode
}

func TestFediverseJudgesReplies(t *testing.T) {
	t.Parallel()
	alice := startFediverse(t, FediverseOptions{})
	mention := `"tag":[{"type":"Mention","href":"` + alice.actorID() + `","name":"@alice"}]`
	tests := map[string]struct{ note, want string }{
		"right":        {`{"content":"<p>hi</p>","cc":["` + alice.actorID() + `"],` + mention + `}`, ""},
		"single cc":    {`{"content":"<p>hi</p>","cc":"` + alice.actorID() + `",` + mention + `}`, ""},
		"no mention":   {`{"content":"<p>hi</p>","cc":["` + alice.actorID() + `"]}`, "does not mention"},
		"not for her":  {`{"content":"<p>hi</p>","to":["` + publicAddress + `"],` + mention + `}`, "does not mention"},
		"mention only": {`{"content":"<p>@alice </p>","cc":["` + alice.actorID() + `"],` + mention + `}`, "no text"},
		"empty":        {`{"content":"<p> </p>","cc":["` + alice.actorID() + `"],` + mention + `}`, "no text"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var note noteDocument
			if err := json.Unmarshal([]byte(test.note), &note); err != nil {
				t.Fatal(err)
			}
			got := alice.judge(actorDocument{}, requestSignature{}, note)
			if (got.err == nil) != (test.want == "") || got.err != nil && !strings.Contains(got.err.Error(), test.want) {
				t.Errorf("error = %v, want %q", got.err, test.want)
			}
		})
	}
}

func TestNoteText(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		`<p><span class="h-card"><a href="https://a.example/@b" class="u-url mention">@<span>b</span></a></span> hi &amp; bye</p>`: "hi & bye",
		`<p>one<br>two</p><p>three</p>`: "one\ntwo\nthree",
		`@a@b.example @c hello @d`:      "hello @d",
		`plain`:                         "plain",
		``:                              "",
	}
	for content, want := range tests {
		if got := noteText(content); got != want {
			t.Errorf("noteText(%q) = %q, want %q", content, got, want)
		}
	}
}

func FuzzParseSignature(f *testing.F) {
	f.Add(`keyId="http://a.example/u#main-key",algorithm="rsa-sha256",headers="(request-target) host date digest",signature="AAAA"`)
	f.Add(`keyId="a,b", signature="AAAA"`)
	f.Add(`keyId=`)
	f.Fuzz(func(t *testing.T, header string) {
		signature, err := parseSignature(header)
		if err == nil && (signature.keyID == "" || len(signature.value) == 0) {
			t.Errorf("accepted %q without key or signature", header)
		}
	})
}

// get fetches a path of the peer, signed by whom it is told.
func get(t *testing.T, f *Fediverse, path string, signer *Fediverse, agent string) (int, object) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.base+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("User-Agent", agent) // empty = none is sent
	if signer != nil {
		if err := signer.key.sign(request, nil); err != nil {
			t.Fatal(err)
		}
	}
	response, err := f.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	body, err := readBody(response)
	if err != nil {
		t.Fatal(err)
	}
	var document object
	_ = json.Unmarshal(body, &document)
	return response.StatusCode, document
}

func TestGoToSocialsHabits(t *testing.T) {
	t.Parallel()
	grace := startFediverse(t, FediverseOptions{User: "grace", GoToSocial: true})
	alice := startFediverse(t, FediverseOptions{})
	cases := map[string]struct {
		path   string
		signer *Fediverse
		agent  string
		status int
		inbox  bool
	}{
		"no user agent":           {"/users/grace", alice, "", http.StatusTeapot, false},
		"unsigned actor":          {"/users/grace", nil, "test/1", http.StatusUnauthorized, false},
		"signed actor":            {"/users/grace", alice, "test/1", http.StatusOK, true},
		"unsigned key is a stub":  {"/users/grace/main-key", nil, "test/1", http.StatusOK, false},
		"unsigned WebFinger":      {"/.well-known/webfinger?resource=acct:grace@" + grace.host, nil, "test/1", http.StatusOK, false},
		"unsigned, unknown paths": {"/users/nobody", nil, "test/1", http.StatusUnauthorized, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			status, document := get(t, grace, c.path, c.signer, c.agent)
			if status != c.status || (document["inbox"] != nil) != c.inbox {
				t.Errorf("status %d, document %v; want %d, inbox %v", status, document, c.status, c.inbox)
			}
		})
	}
	if proven, unproven := grace.Reads(); proven != 1 || unproven != 2 {
		t.Errorf("%d proven and %d unproven reads; want 1 and 2", proven, unproven)
	}
}

// TestPeerWithOneScheme: the other scheme is refused, and a tampered body too.
func TestPeerWithOneScheme(t *testing.T) {
	t.Parallel()
	bob := startFediverse(t, FediverseOptions{User: "bob"})
	modern := startFediverse(t, FediverseOptions{Scheme: SchemeRFC9421})
	target, err := bob.fetchActor(t.Context(), modern.actorID())
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(bob.note(target, modern.Address(), "hello", ""))
	if err != nil {
		t.Fatal(err)
	}
	if status := post(t, modern.base+"/inbox", bob, body, false, nil); status != http.StatusUnauthorized {
		t.Errorf("draft-cavage was answered %d", status)
	}
	for name, want := range map[string]int{"right": http.StatusAccepted, "tampered": http.StatusUnauthorized} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, modern.base+"/inbox", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", activityJSON)
		if err := bob.key.signMessage(request, body); err != nil {
			t.Fatal(err)
		}
		if name == "tampered" {
			changed := bytes.Replace(body, []byte("hello"), []byte("hullo"), 1)
			request.Body = io.NopCloser(bytes.NewReader(changed))
		}
		response, err := bob.client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := readBody(response); err != nil || response.StatusCode != want {
			t.Errorf("%s: %d (%v), want %d", name, response.StatusCode, err, want)
		}
	}
}

func TestPeerIsDownAndUpAgain(t *testing.T) {
	t.Parallel()
	bob := startFediverse(t, FediverseOptions{User: "bob", Reply: upper})
	alice := startFediverse(t, FediverseOptions{})
	if err := bob.Down(); err != nil {
		t.Fatal(err)
	}
	if _, err := alice.Ask(limited(t, time.Second), bob.BaseURL(), bob.Address(), "hello"); err == nil {
		t.Error("a server that is down answered")
	}
	if err := bob.Up(); err != nil {
		t.Fatal(err)
	}
	if _, err := alice.Ask(limited(t, 10*time.Second), bob.BaseURL(), bob.Address(), "hello"); err != nil {
		t.Error(err)
	}
}
