package operator

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"inbox/engine/store"
	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/config"
	"inbox/internal/fault"
)

func openStore(t *testing.T) *store.Store {
	t.Helper()
	directory := storetest.Directory(t, func(directory string) (io.Closer, error) {
		return store.Open(t.Context(), store.Options{DataDir: directory})
	})
	opened, err := store.Open(t.Context(), store.Options{URL: "sqlite", DataDir: directory})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	})
	return opened
}

func TestPeopleAreUnlinkedByWhatTheListShows(t *testing.T) {
	rows := openStore(t)
	people := People{Rows: rows, store: rows}
	link := func(agent string, a, b exchange.LinkSide) {
		t.Helper()
		made := exchange.PersonLink{Agent: agent, Digest: "shown", Sides: [2]exchange.LinkSide{a, b}}
		if err := rows.InTx(t.Context(), func(tx *store.Tx) error { return tx.PutLink(t.Context(), made) }); err != nil {
			t.Fatal(err)
		}
	}
	side := func(subject, address string) exchange.LinkSide {
		return exchange.LinkSide{
			Principal: "localhost " + subject, Issuer: "localhost", Subject: subject, Method: identity.MethodEmailDMARC, Address: identity.ProvenAddress(address),
		}
	}
	ana, work := side("acct:ana@social.test", "@ana@social.test"), side("mailto:ana@work.test", "@ana@work.test")
	link("memory", ana, side("mailto:ana@mail.test", "@ana@mail.test"))
	link("memory", ana, work)
	link("doctor", ana, work)
	link("memory", side("acct:bo@social.test", "@bo@social.test"), side("mailto:shared@mail.test", "@shared@mail.test"))
	link("memory", side("acct:cy@social.test", "@cy@social.test"), side("token:1", "@shared@mail.test"))

	for _, test := range []struct{ agent, who, want string }{
		{"", "mailto:ana@mail.test", "localhost mailto:ana@mail.test"},
		{"memory", "ana@work.test", "localhost mailto:ana@work.test"},
		{"", "localhost acct:ana@social.test", "localhost acct:ana@social.test"}, // of the other agent
	} {
		if got, err := people.UnlinkNamed(t.Context(), test.agent, test.who, CommandLine); err != nil || got != test.want {
			t.Errorf("%s: %q, %v", test.who, got, err)
		}
	}
	if left, err := people.List(t.Context(), "", 10); err != nil || len(left) != 4 {
		t.Errorf("%+v, %v", left, err)
	}
	link("memory", ana, work)
	for _, test := range []struct{ agent, who, want string }{
		{"", "@shared@mail.test", `is the name of several linked people: localhost mailto:shared@mail.test and localhost token:1; name one by its principal: ` +
			`inbox people unlink 'localhost mailto:shared@mail.test'`},
		{"", "mailto:ana@mail.test", `"mailto:ana@mail.test" has no link: it must be the principal, the subject or the proven address of a side, as they are listed by: inbox people list --json`},
		{"shop", "@ana@work.test", `"@ana@work.test" has no link for agent "shop", only for memory; to end that link: inbox people unlink @ana@work.test --agent memory`},
	} {
		if _, err := people.UnlinkNamed(t.Context(), test.agent, test.who, CommandLine); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s for %q: %v; want %q", test.who, test.agent, err, test.want)
		}
	}
	if err := people.Unlink(t.Context(), "shop", ana.Principal, CommandLine); !fault.Is(err, fault.NotFound) ||
		!strings.Contains(err.Error(), "inbox people unlink 'localhost acct:ana@social.test' --agent memory") {
		t.Errorf("by its principal: %v", err)
	}
	if got, err := people.UnlinkNamed(t.Context(), "Memory", "@ana@work.test", CommandLine); err != nil || got != work.Principal {
		t.Errorf("the agent in other letters: %s, %v", got, err)
	}
}

// TestIssuersThatAreNoLongerTrusted: a link counts while both sides would still be believed.
func TestIssuersThatAreNoLongerTrusted(t *testing.T) {
	settings := &config.Config{Domain: "inbox.test"}
	settings.Trust = []config.Trust{
		{Issuer: "chat.test", Methods: []string{"slack"}, Assurance: []string{"platform"}, SubjectPrefixes: []string{"slack:T1/"}},
		{Issuer: "over.test", Methods: []string{"slack"}, Assurance: []string{"platform"}, SubjectPrefixes: []string{"slack:"}, Expires: time.Now().Add(-time.Minute)},
	}
	settings.A2A.Issuers = []config.Issuer{{Issuer: "https://login.test"}}
	believed := Believed(settings)
	for _, test := range []struct {
		side exchange.LinkSide
		want bool
	}{
		{exchange.LinkSide{Issuer: "inbox.test", Subject: "mailto:a@x.test", Method: identity.MethodEmailDMARC}, true},
		{exchange.LinkSide{Issuer: "inbox.test", Subject: "https://x.test/actor#main", Method: identity.MethodActivityPubSignature}, true},
		{exchange.LinkSide{Issuer: "chat.test", Subject: "slack:T1/U1", Method: "slack"}, true},
		{exchange.LinkSide{Issuer: "chat.test", Subject: "slack:T2/U1", Method: "slack"}, false},
		{exchange.LinkSide{Issuer: "chat.test", Subject: "slack:T1/U1", Method: "teams"}, false},
		{exchange.LinkSide{Issuer: "gone.test", Subject: "slack:T1/U1", Method: "slack"}, false},
		{exchange.LinkSide{Issuer: "over.test", Subject: "slack:T1/U1", Method: "slack"}, false},
		{exchange.LinkSide{Issuer: "inbox.test", Subject: "https://login.test#7", Method: identity.MethodA2AOAuth}, true},
		{exchange.LinkSide{Issuer: "inbox.test", Subject: "https://former.test#7", Method: identity.MethodA2AOAuth}, false},
	} {
		if got := believed(test.side); got != test.want {
			t.Errorf("%+v: %v", test.side, got)
		}
	}
}

func TestAdminTokenOfANewServer(t *testing.T) {
	rows := openStore(t)
	tokens := Tokens{Rows: rows}
	if err := tokens.EnsureAdmin(t.Context(), t.TempDir()); err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	path := filepath.Join(directory, AdminTokenFile)
	// The server has made its own; this directory stands for one that lost the race to the database.
	if err := os.WriteFile(path, []byte("inbox_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	count := func() (valid int) {
		list, err := rows.Tokens(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, token := range list {
			if token.Scope == exchange.TokenAdmin && token.RevokedAt.IsZero() {
				valid++
			}
		}
		return valid
	}
	before := count()
	for range 2 {
		if err := tokens.EnsureAdmin(t.Context(), directory); err != nil {
			t.Fatal(err)
		}
	}
	if got := count(); got != before+1 {
		t.Errorf("%d tokens after the file was found, before %d", got, before)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := tokens.EnsureAdmin(t.Context(), directory); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("an operator who took the file away got a new one")
	}
}

func TestFirstAdminTokenIsPrivate(t *testing.T) {
	directory := t.TempDir()
	rows := openStore(t)
	if err := (Tokens{Rows: rows}).EnsureAdmin(t.Context(), directory); err != nil {
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
	tokens, err := rows.Tokens(t.Context())
	if err != nil || len(tokens) != 1 || tokens[0].Scope != exchange.TokenAdmin {
		t.Errorf("%+v, %v", tokens, err)
	}
}

// TestDetailOfACommandCutsNoName: an erasure finds whole names, not beginnings of them.
func TestDetailOfACommandCutsNoName(t *testing.T) {
	names := make([]string, 40)
	for i := range names {
		names[i] = "@somebody-with-a-name@peer.example"
	}
	detail := detailOf("inbox block add", names)
	if len(detail) > maxDetail || !strings.HasSuffix(detail, names[0]+" …") {
		t.Errorf("%d bytes: %s", len(detail), detail)
	}
	if got := detailOf("inbox show", []string{"one", "two"}); got != "inbox show one two" {
		t.Error(got)
	}
}
