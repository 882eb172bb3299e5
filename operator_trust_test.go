package inbox

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"inbox/engine/store"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/await"
	"inbox/internal/fault"
	"inbox/normalized"
)

// stranger is a mail of somebody who proved nothing.
func stranger(id string) exchange.Inbound {
	return exchange.Inbound{
		Original: []byte("original of " + id), Channel: normalized.ViaEmail,
		Route: []byte(`{"v":1,"local":"echo","from":{"name":"","address":"ana@peer.test"},"verified":false}`),
		Message: normalized.Message{
			ID: id + "@peer.test", ThreadID: id, Recipient: "@echo@localhost:8080", ReceivedVia: normalized.ViaEmail,
			Sender:     normalized.Sender{Address: "@ana@peer.test", AuthMethod: normalized.AuthNone},
			Parts:      []normalized.Part{normalized.Text("hello " + id)},
			ReceivedAt: identity.Now(), Raw: normalized.Raw{MediaType: "message/rfc822"},
			RecipientCapabilities: normalized.RecipientCapabilities{
				MentionRelay: normalized.MentionRelay{Kind: normalized.RelayRecipientField, Fields: []string{"to", "cc"}},
			},
		},
	}
}

func TestHeldMessages(t *testing.T) {
	server := startServer(t, "INBOX_AGENTS_0_NAME=echo", "INBOX_AGENTS_0_KIND=echo", "INBOX_AGENTS_0_UNVERIFIED=hold")
	operator := server.operator()
	ids := map[string]string{}
	for _, name := range []string{"one", "two"} {
		receipt, err := server.pipeline.Receive(t.Context(), stranger(name))
		if err != nil || receipt.State != exchange.StateHeld {
			t.Fatalf("%s: %+v, %v", name, receipt, err)
		}
		ids[name] = receipt.TurnID
	}
	held, err := operator.HeldMessages(t.Context(), "echo", "", 10)
	if err != nil || len(held) != 2 {
		t.Fatalf("held %v, %v", held, err)
	}
	if other, err := operator.HeldMessages(t.Context(), "other", "", 10); err != nil || other == nil || len(other) != 0 {
		t.Errorf("held for another agent: %v, %v", other, err)
	}
	if err := operator.ReleaseHeld(t.Context(), ids["one"]); err != nil {
		t.Fatal(err)
	}
	if err := operator.DropHeld(t.Context(), ids["two"], "spam"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"one": exchange.StateAnswered, "two": exchange.StateRefused} {
		ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
		turn, err := server.pipeline.Wait(ctx, ids[name])
		cancel()
		if err != nil || turn.State != want {
			t.Errorf("%s: %s (%s), %v", name, turn.State, turn.Reason, err)
		}
	}
	if err := operator.DropHeld(t.Context(), ids["one"], "late"); !fault.Is(err, fault.Conflict) {
		t.Errorf("dropping what was released: %v", err)
	}
	if err := operator.ReleaseHeld(t.Context(), "019a0000-0000-7000-8000-000000000000"); !fault.Is(err, fault.NotFound) {
		t.Errorf("releasing nothing: %v", err)
	}
}

func TestPeopleAreUnlinkedByWhatTheListShows(t *testing.T) {
	server := startServer(t)
	operator := server.operator()
	link := func(pair ...exchange.PersonIdentity) {
		t.Helper()
		if err := server.store.InTx(t.Context(), func(tx *store.Tx) error { return tx.LinkPerson(t.Context(), pair) }); err != nil {
			t.Fatal(err)
		}
	}
	person := func(subject, address string) exchange.PersonIdentity {
		return exchange.PersonIdentity{
			Principal: "localhost " + subject, Issuer: "localhost", Subject: subject, Method: identity.MethodEmailDMARC, Address: address, LinkedAt: time.Now(),
		}
	}
	link(person("acct:ana@social.test", "@ana@social.test"), person("mailto:ana@mail.test", "@ana@mail.test"), person("mailto:ana@work.test", "@ana@work.test"))
	link(person("acct:bo@social.test", "@bo@social.test"), person("mailto:shared@mail.test", "@shared@mail.test"))
	link(person("acct:cy@social.test", "@cy@social.test"), person("token:1", "@shared@mail.test"))
	for _, test := range []struct{ who, want string }{
		{"mailto:ana@mail.test", "localhost mailto:ana@mail.test"},
		{"ana@work.test", "localhost mailto:ana@work.test"},
		{"localhost acct:bo@social.test", "localhost acct:bo@social.test"},
	} {
		if got, err := operator.Unlink(t.Context(), test.who); err != nil || got != test.want {
			t.Errorf("%s: %q, %v", test.who, got, err)
		}
	}
	link(person("acct:bo@social.test", "@bo@social.test"), person("mailto:shared@mail.test", "@shared@mail.test"))
	if _, err := operator.Unlink(t.Context(), "@shared@mail.test"); !fault.Is(err, fault.Conflict) {
		t.Errorf("an address of two: %v", err)
	}
	if _, err := operator.Unlink(t.Context(), "mailto:ana@mail.test"); !fault.Is(err, fault.NotFound) {
		t.Errorf("unlinked twice: %v", err)
	}
}

func TestAdminTokenOfANewServer(t *testing.T) {
	server := startServer(t)
	directory := t.TempDir()
	path := filepath.Join(directory, AdminTokenFile)
	// The server has made its own; this directory stands for one that lost the race to the database.
	if err := os.WriteFile(path, []byte("inbox_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	count := func() (valid int) {
		tokens, err := server.store.Tokens(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, token := range tokens {
			if token.Scope == exchange.TokenAdmin && token.RevokedAt.IsZero() {
				valid++
			}
		}
		return valid
	}
	before := count()
	for range 2 {
		if err := ensureAdminToken(t.Context(), server.store, directory); err != nil {
			t.Fatal(err)
		}
	}
	if got := count(); got != before+1 {
		t.Errorf("%d tokens after the file was found, before %d", got, before)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := ensureAdminToken(t.Context(), server.store, directory); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("an operator who took the file away got a new one")
	}
}

func TestFirstAdminTokenIsPrivate(t *testing.T) {
	directory := t.TempDir()
	opened, err := store.Open(t.Context(), store.Options{URL: "sqlite", DataDir: directory})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := ensureAdminToken(t.Context(), opened, directory); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(directory, AdminTokenFile)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	content, err := os.ReadFile(path)
	if err != nil || !strings.HasPrefix(string(content), "inbox_") {
		t.Fatalf("%q, %v", content, err)
	}
	tokens, err := opened.Tokens(t.Context())
	if err != nil || len(tokens) != 1 || tokens[0].Scope != exchange.TokenAdmin {
		t.Errorf("%+v, %v", tokens, err)
	}
}
