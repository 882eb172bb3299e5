package storetest

import (
	"testing"

	"inbox/exchange"
	"inbox/internal/fault"
)

var tokenCases = map[string]func(*testing.T, *probe){"tokens": tokens}

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
