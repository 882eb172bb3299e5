package remote

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"inbox/identity"
	"inbox/internal/webtoken"
)

func TestSignedCards(t *testing.T) {
	own, err := identity.NewSigningKey("upstream.test")
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := identity.NewSigningKey("stranger.test")
	if err != nil {
		t.Fatal(err)
	}
	upstream := startUpstream(t, wayRPC, true, growing)
	for name, c := range map[string]struct {
		signer identity.SigningKey
		change func(card map[string]any)
		good   bool
	}{
		"as signed":                {own, nil, true},
		"changed":                  {own, func(card map[string]any) { card["name"] = "somebody else" }, false},
		"key of another place":     {stranger, func(card map[string]any) { card["name"] = "somebody else" }, true}, // says nothing
		"signature that is no JWS": {own, func(card map[string]any) { card["signatures"] = "x" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			card := upstream.document(wayRPC, true)
			document, err := json.Marshal(card)
			if err != nil {
				t.Fatal(err)
			}
			if card["signatures"], err = webtoken.SignCard(document, []identity.SigningKey{c.signer}, "https://keys.test/jwks.json"); err != nil {
				t.Fatal(err)
			}
			if c.change != nil {
				c.change(card)
			}
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/.well-known/jwks.json" {
					_, _ = w.Write(identity.KeySet([]identity.PublicKey{own.Public()}))
					return
				}
				_ = json.NewEncoder(w).Encode(card)
			}))
			defer web.Close()
			agent := newAgent(t, web.URL, func(o *Options) { o.EndpointHosts = []string{hostPort(mustURL(t, upstream.URL))} })
			if _, err := handle(t.Context(), t, agent, turnOf("s", "hello")); (err == nil) != c.good {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestOwnServerSignsWhereNoTokenIs: with a token of the operator nothing is signed.
func TestOwnServerSignsWhereNoTokenIs(t *testing.T) {
	upstream := startUpstream(t, wayRPC, true, growing)
	asked := map[string]bool{}
	assert := func(_ context.Context, agent, audience string) (string, error) {
		asked[agent+" "+audience] = true
		return "signed", nil
	}
	mustHandle(t, newAgent(t, upstream.URL, func(o *Options) { o.Assert = assert }), turnOf("a", "hello"))
	if want := turnOf("a", "").Agent + " " + upstream.URL + wellKnown; len(asked) != 1 || !asked[want] {
		t.Errorf("signed for %v, want %q", asked, want)
	}
	if last := upstream.tokens[len(upstream.tokens)-1]; last != "Bearer signed" {
		t.Errorf("shown %q", last)
	}
	clear(asked)
	mustHandle(t, newAgent(t, upstream.URL, func(o *Options) { o.Assert, o.Token = assert, "fixed" }), turnOf("b", "hello"))
	delete(upstream.card, "securitySchemes")
	mustHandle(t, newAgent(t, upstream.URL, func(o *Options) { o.Assert = assert }), turnOf("c", "hello"))
	if last := upstream.tokens[len(upstream.tokens)-1]; last != "" || len(asked) != 0 {
		t.Errorf("an open agent is shown %q; signed for %v", last, asked)
	}
}
