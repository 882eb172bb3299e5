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
	link := func(pair ...exchange.PersonIdentity) {
		t.Helper()
		if err := rows.InTx(t.Context(), func(tx *store.Tx) error { return tx.LinkPerson(t.Context(), pair) }); err != nil {
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
		if got, err := people.UnlinkNamed(t.Context(), test.who); err != nil || got != test.want {
			t.Errorf("%s: %q, %v", test.who, got, err)
		}
	}
	link(person("acct:bo@social.test", "@bo@social.test"), person("mailto:shared@mail.test", "@shared@mail.test"))
	if _, err := people.UnlinkNamed(t.Context(), "@shared@mail.test"); !fault.Is(err, fault.Conflict) {
		t.Errorf("an address of two: %v", err)
	}
	if _, err := people.UnlinkNamed(t.Context(), "mailto:ana@mail.test"); !fault.Is(err, fault.NotFound) {
		t.Errorf("unlinked twice: %v", err)
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
