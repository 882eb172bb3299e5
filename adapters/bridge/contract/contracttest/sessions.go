package contracttest

import (
	"testing"

	"inbox/adapters/bridge/contract"
)

// Sessions runs the suite; every test gets an empty store.
func Sessions(t *testing.T, empty func(t *testing.T) contract.Sessions) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, contract.Sessions){
		"keeps and forgets": keepsSessions, "keeps keys apart": keepsSessionKeysApart, "reads imported rows": readsImported,
	} {
		t.Run(name, func(t *testing.T) { test(t, empty(t)) })
	}
}

func session(t *testing.T, sessions contract.Sessions, k contract.SessionKey, want string) {
	t.Helper()
	got, err := sessions.Session(t.Context(), k)
	must(t, err)
	if got != want {
		t.Errorf("session of %v = %q, want %q", k, got, want)
	}
}

func keepsSessions(t *testing.T, sessions contract.Sessions) {
	k := contract.NewSessionKey("Slack_Bot", " C1 ", "helper")
	session(t, sessions, k, "")
	must(t, sessions.DeleteSession(t.Context(), k))
	must(t, sessions.SetSession(t.Context(), k, "s1"))
	session(t, sessions, contract.NewSessionKey("slack-bot", " C1 ", " HELPER"), "s1")
	session(t, sessions, contract.NewSessionKey("slack-bot", "C1", "helper"), "")
	must(t, sessions.SetSession(t.Context(), k, "s2"))
	session(t, sessions, k, "s2")
	must(t, sessions.SetSession(t.Context(), k, ""))
	session(t, sessions, k, "")
	must(t, sessions.SetSession(t.Context(), k, "s3"))
	must(t, sessions.DeleteSession(t.Context(), k))
	session(t, sessions, k, "")
}

func keepsSessionKeysApart(t *testing.T, sessions contract.Sessions) {
	one, other := contract.NewSessionKey("a:b", "c", "d"), contract.NewSessionKey("a", "b:c", "d")
	if one.Imported() != other.Imported() {
		t.Fatal("the keys of the test must collide in the form of the reference")
	}

	must(t, sessions.SetSession(t.Context(), one, "s1"))
	session(t, sessions, other, "")
	must(t, sessions.SetSession(t.Context(), other, "s2"))
	session(t, sessions, one, "s1")
	must(t, sessions.DeleteSession(t.Context(), other))
	session(t, sessions, one, "s1")
}

func readsImported(t *testing.T, sessions contract.Sessions) {
	k := contract.NewSessionKey("telegram", "42", "bot")
	must(t, sessions.ImportSession(t.Context(), k.Imported(), ""))
	session(t, sessions, k, "")
	must(t, sessions.ImportSession(t.Context(), k.Imported(), "old"))
	session(t, sessions, k, "old")
	must(t, sessions.SetSession(t.Context(), k, "new"))
	must(t, sessions.ImportSession(t.Context(), k.Imported(), "older"))
	session(t, sessions, k, "new")
	must(t, sessions.DeleteSession(t.Context(), k))
	session(t, sessions, k, "")
}
