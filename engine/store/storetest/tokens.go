package storetest

import (
	"testing"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
)

var tokenCases = map[string]func(*testing.T, *probe){"tokens": tokens, "use of tokens": usedTokens, "sessions of the console": consoleSessions}

func tokens(t *testing.T, p *probe) {
	first := exchange.Token{ID: newID(), Name: "alice", Agent: "echo", Hash: "aa", CreatedAt: p.now}
	second := exchange.Token{ID: newID(), Name: "bob", Hash: "bb", Scope: exchange.TokenAdmin, CreatedAt: p.now}
	p.ok(p.Records.CreateToken(t.Context(), first))
	p.ok(p.Records.CreateToken(t.Context(), second))

	if err := p.Records.CreateToken(t.Context(), exchange.Token{ID: newID(), Hash: "aa"}); !fault.Is(err, fault.Conflict) {
		t.Errorf("same hash: %v", err)
	}

	listed, err := p.Records.Tokens(t.Context())
	p.ok(err)
	p.same([]exchange.Token{second, first}, listed)
	p.ok(p.Records.RevokeToken(t.Context(), first.ID))
	p.missing(p.Records.RevokeToken(t.Context(), first.ID))
	p.missing(p.Records.RevokeToken(t.Context(), newID()))
	got, found, err := p.Records.TokenByHash(t.Context(), "aa")
	if err != nil || !found || got.RevokedAt.IsZero() || got.Agent != "echo" {
		t.Errorf("revoked token: %+v, %v, %v", got, found, err)
	}
	if got, found, err := p.Records.TokenByHash(t.Context(), "bb"); err != nil || !found || !got.RevokedAt.IsZero() || got.Scope != exchange.TokenAdmin {
		t.Errorf("valid token: %+v, %v, %v", got, found, err)
	}
	if _, found, err := p.Records.TokenByHash(t.Context(), "cc\x00"); err != nil || found {
		t.Errorf("unknown token: %v, %v", found, err)
	}
}

func usedTokens(t *testing.T, p *probe) {
	token := exchange.Token{ID: newID(), Name: "wall", Hash: "dd", Scope: exchange.TokenRead, CreatedAt: p.now, ExpiresAt: p.now.Add(time.Hour)}
	p.ok(p.Records.CreateToken(t.Context(), token))
	for _, at := range []time.Time{p.now.Add(time.Minute), p.now.Add(time.Second)} { // the later one stays
		p.ok(p.Records.UseTokens(t.Context(), map[string]time.Time{token.ID: at, newID(): at}))
	}
	got, _, err := p.Records.TokenByHash(t.Context(), "dd")
	p.ok(err)
	token.LastUsedAt = p.now.Add(time.Minute)
	p.same(token, got)
	if got.Valid(p.now.Add(time.Hour)) || !got.Valid(p.now.Add(time.Hour-time.Microsecond)) {
		t.Error("the token does not end when it should")
	}
}

func consoleSessions(t *testing.T, p *probe) {
	token := exchange.Token{ID: newID(), Name: "desk", Hash: "ee", Scope: exchange.TokenWork, CreatedAt: p.now}
	p.ok(p.Records.CreateToken(t.Context(), token))
	session := func(hash string, by *exchange.Token) exchange.ConsoleSession {
		s := exchange.ConsoleSession{
			ID: newID(), Hash: hash, Name: "desk", Token: by, CreatedAt: p.now, SeenAt: p.now, ProvenAt: p.now, ExpiresAt: p.now.Add(time.Hour),
			Address: "192.0.2.1", Agent: "Browser/1",
		}
		if by == nil {
			s.Subject, s.Members, s.ProvenAt = "https://login.test u1", []string{"group:ops"}, time.Time{}
		}
		return s
	}
	create := func(s exchange.ConsoleSession) {
		t.Helper()
		p.ok(p.Records.CreateConsoleSession(t.Context(), s, 2))
	}

	first, second, login := session("h1", &token), session("h2", &token), session("h3", nil)
	create(first)
	create(second)
	create(login)
	got, found, err := p.Records.ConsoleSession(t.Context(), "h3")
	if err != nil || !found {
		t.Fatal(found, err)
	}
	p.same(login, got)
	got, _, err = p.Records.ConsoleSession(t.Context(), "h1")
	p.ok(err)
	if got.Token == nil || got.Token.ID != token.ID || got.Token.Scope != exchange.TokenWork || !got.Token.RevokedAt.IsZero() {
		t.Errorf("its token is %+v", got.Token)
	}
	if _, found, err := p.Records.ConsoleSession(t.Context(), "h9\x00"); found || err != nil {
		t.Error(found, err)
	}

	later := p.now.Add(time.Minute)
	p.ok(p.Records.SeeConsoleSession(t.Context(), login.ID, later))
	p.ok(p.Records.SeeConsoleSession(t.Context(), login.ID, p.now))
	p.ok(p.Records.ProveConsoleSession(t.Context(), login.ID, later, []string{"a@example.org"}))
	login.SeenAt, login.ProvenAt, login.Members = later, later, []string{"a@example.org"}
	got, _, err = p.Records.ConsoleSession(t.Context(), "h3")
	p.ok(err)
	p.same(login, got)

	third := session("h4", &token) // one too many of this owner: the oldest ends
	create(third)
	ids := func(filter exchange.ConsoleSessionFilter) (ids []string) {
		t.Helper()
		filter.Limit = max(filter.Limit, 1)
		list, err := p.Records.ConsoleSessions(t.Context(), filter)
		p.ok(err)
		for _, s := range list {
			ids = append(ids, s.ID)
		}
		return ids
	}
	p.same([]string{third.ID, login.ID, second.ID}, ids(exchange.ConsoleSessionFilter{Limit: 10}))
	p.same([]string{third.ID, second.ID}, ids(exchange.ConsoleSessionFilter{Owner: first.Owner(), Limit: 10}))
	p.same([]string{login.ID}, ids(exchange.ConsoleSessionFilter{Before: third.ID, Limit: 1}))

	p.missing(p.Records.EndConsoleSession(t.Context(), second.ID, login.Owner()))
	p.ok(p.Records.EndConsoleSession(t.Context(), second.ID, first.Owner()))
	p.missing(p.Records.EndConsoleSession(t.Context(), second.ID, exchange.SessionOwner{}))
	p.ok(p.Records.RevokeToken(t.Context(), token.ID))
	p.same([]string{login.ID}, ids(exchange.ConsoleSessionFilter{Limit: 10}))
	p.ok(p.Records.EndConsoleSession(t.Context(), login.ID, exchange.SessionOwner{}))
}
