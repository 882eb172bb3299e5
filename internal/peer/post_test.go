package peer

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"inbox/internal/await"
)

func TestFediversePosts(t *testing.T) {
	t.Parallel()
	alice, bob := startFediverse(t, FediverseOptions{}), startFediverse(t, FediverseOptions{User: "bob", Name: "Bob", Reply: upper})
	ctx := limited(t, 20*time.Second)
	message := Message{To: bob.Address(), Text: "hello\nthere", Language: "de", Files: []File{{Name: "a.txt", MIME: "text/plain", Content: []byte("content")}}}
	sent, err := alice.Post(ctx, bob.BaseURL(), message)
	if err != nil {
		t.Fatal(err)
	}
	defer sent.Close()
	if !sent.Taken || !strings.HasPrefix(sent.Said, "HTTP 202") {
		t.Errorf("the server said %q", sent.Said)
	}
	got, err := alice.waiting.await(ctx, bob.actorID(), sent.arrival)
	if err != nil || !strings.Contains(got.text, "HELLO") {
		t.Errorf("the answer is %q, %v", got.text, err)
	}
	served := 0
	for path := range alice.files {
		response, err := http.Get(alice.BaseURL() + path)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := readBody(response); err == nil && string(body) == "content" {
			served++
		}
	}
	if served != 1 {
		t.Error("the file cannot be fetched")
	}

	for _, fault := range FediverseFaults() {
		message := Message{To: bob.Address(), Text: "hello", Fault: fault, Bytes: maxDocumentBytes}
		sent, err := alice.Post(ctx, bob.BaseURL(), message)
		if err != nil {
			t.Errorf("%s: %v", fault, err)
			continue
		}
		if sent.Taken || !strings.HasPrefix(sent.Said, "HTTP 4") {
			t.Errorf("%s: the server said %q", fault, sent.Said)
		}
		sent.Close()
	}
	if _, err := alice.Post(ctx, bob.BaseURL(), Message{To: bob.Address(), Text: "hello", Fault: FaultSPFFail}); err == nil {
		t.Error("a fault of mail is committed in the fediverse")
	}
}

func TestMailPosts(t *testing.T) {
	t.Parallel()
	alice, bob := mailPair(t)
	ctx := limited(t, 20*time.Second)
	message := Message{To: bob.Address(), Subject: "Grüße", Text: "hello", Language: "de", Files: []File{{Name: "a.bin", MIME: "application/octet-stream", Content: make([]byte, 200)}}}
	sent, err := alice.Post(ctx, bob.SMTPAddr(), message)
	if err != nil || !sent.Taken {
		t.Fatalf("%+v, %v", sent, err)
	}
	defer sent.Close()
	if got, err := alice.waiting.await(ctx, bob.Address(), sent.arrival); err != nil || got.text != upper("hello") {
		t.Errorf("the answer is %q, %v", got.text, err)
	}

	// A sender whose domain shares the name server, and whose proof is broken.
	for _, fault := range []string{FaultUnsigned, FaultDKIMBroken, FaultKeyMismatch, FaultExpired, FaultMalformed} {
		carol := startMail(t, MailOptions{Domain: fault + ".example", User: "carol", Beside: alice, Fault: fault})
		sent, err := carol.Post(ctx, bob.SMTPAddr(), Message{To: bob.Address(), Text: "hello", Fault: fault})
		if err != nil || sent.Taken || !strings.HasPrefix(sent.Said, "SMTP 550 5.7.20") {
			t.Errorf("%s: %+v, %v", fault, sent, err)
			continue
		}
		sent.Close()
	}
}

func TestCallerCalls(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 8)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Header.Get("Authorization")
		if r.Header.Get("Authorization") != "Bearer secret" {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		_, _ = w.Write([]byte(`{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s1","task":{"contextId":"c1"}}}`))
	}))
	t.Cleanup(server.Close)

	caller := NewCaller(CallerOptions{Token: "secret"})
	t.Cleanup(caller.Close)
	for thread, call := range map[string]func(context.Context, string, Message) (Sent, error){"c1": caller.Task, "s1": caller.Chat} {
		sent, err := call(t.Context(), server.URL, Message{Text: "hello"})
		if err != nil || !sent.Taken || sent.Thread != thread || sent.Said != "HTTP 200 OK" {
			t.Errorf("%+v, %v", sent, err)
		}
		if got := await.Receive(t, asked, "a request"); got != "Bearer secret" {
			t.Errorf("the token is %q", got)
		}
		for fault, want := range map[string]string{FaultNoToken: "", FaultWrongToken: "Bearer "} {
			sent, err := call(t.Context(), server.URL, Message{Text: "hello", Fault: fault})
			if err != nil || sent.Taken || sent.Said != "HTTP 401 Unauthorized who are you?\n" {
				t.Errorf("%s: %+v, %v", fault, sent, err)
			}
			if got := await.Receive(t, asked, "a request"); !strings.HasPrefix(got, want) || got == "Bearer secret" {
				t.Errorf("%s: the token is %q", fault, got)
			}
		}
	}

	server.Close()
	if _, err := caller.Task(t.Context(), server.URL, Message{Text: "hello", Fault: FaultOversize}); err == nil || cutOff(err) || errors.Is(err, context.Canceled) {
		t.Errorf("a server that is not there is taken for one that refuses: %v", err)
	}
}
