package pull

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"inbox/exchange"
	"inbox/exchange/exchangetest"
	"inbox/internal/bearer"
)

// TestWhoMayNotTakeTurns returns strangers one and the same answer, whether the agent is there or not.
func TestWhoMayNotTakeTurns(t *testing.T) {
	known := testTokens()
	for token, is := range map[string]exchange.Token{
		"revoked": {ID: "2", Agent: "helper", RevokedAt: time.Now()},
		"all":     {ID: "3"},
		"other":   {ID: "4", Agent: "another"},
		"admin":   {ID: "5", Agent: "helper", Scope: exchange.TokenAdmin},
	} {
		known.Put(token, is)
	}
	n := newNode(t, nil, Settings{})
	n.service.tokens = bearer.NewCache(known)
	answers := map[string]bool{}
	for _, header := range []string{
		"", "Bearer", "Bearer ", "Bearer wrong", "Basic " + testToken, testToken, "Bearer revoked", "Bearer all", "Bearer other", "Bearer admin",
		"Bearer " + testToken + "x", "Bearer " + strings.Repeat("x", 600),
	} {
		for _, agent := range []string{"helper", "HELPER", "nobody", "another%00", "..", "%2e%2e"} {
			for _, route := range n.service.Routes() {
				path := strings.NewReplacer("{agent}", agent, "{turn}", "1").Replace(route.Pattern)
				r := httptest.NewRequestWithContext(t.Context(), route.Method, path, nil)
				r.Header.Set("Authorization", header)
				w := httptest.NewRecorder()
				n.handler.ServeHTTP(w, r)
				if w.Code != http.StatusUnauthorized || w.Header().Get("WWW-Authenticate") == "" {
					t.Errorf("%q at %s: %d", header, path, w.Code)
				}
				answers[w.Body.String()] = true
			}
		}
	}
	if len(answers) != 1 {
		t.Errorf("the answers differ: %v", answers)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/pull/Another/take?wait=0", nil)
	r.Header.Set("Authorization", "Bearer other")
	w := httptest.NewRecorder()
	if n.handler.ServeHTTP(w, r); w.Code != http.StatusNotFound {
		t.Errorf("the holder of a token for an agent of another kind gets %d", w.Code)
	}
}

func TestScope(t *testing.T) {
	known := exchangetest.NewTokens(map[string]exchange.Token{"pull": {Agent: "helper", Scope: "pull"}, "peer": {Agent: "helper"}})
	service, err := New(Options{Tokens: known, Scope: "pull"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := service.Agent("helper", Settings{}); err != nil {
		t.Fatal(err)
	}
	n := newNode(t, nil, Settings{})
	n.service.tokens, n.service.options.Scope = service.tokens, "pull"
	for token, want := range map[string]int{"pull": http.StatusNoContent, "peer": http.StatusUnauthorized} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/pull/helper/take?wait=0", nil)
		r.Header.Set("Authorization", "bearer "+token)
		w := httptest.NewRecorder()
		if n.handler.ServeHTTP(w, r); w.Code != want {
			t.Errorf("%s: %d, want %d", token, w.Code, want)
		}
	}
}

// TestTokenRevokedWhileWaiting ends a long poll that began with a valid token.
func TestTokenRevokedWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, nil, Settings{})
		n.service.tokens = bearer.NewCache(shortLived{time.Now().Add(10 * time.Second)})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		time.AfterFunc(20*time.Second, func() { n.run(ctx, question()) })
		n.want(t, http.StatusUnauthorized, "/take?wait=30s", "")
	})
}

// shortLived are tokens that are all revoked at a time.
type shortLived struct{ until time.Time }

func (s shortLived) TokenByHash(context.Context, string) (exchange.Token, bool, error) {
	token := exchange.Token{ID: "1", Agent: "helper"}
	if time.Now().After(s.until) {
		token.RevokedAt = s.until
	}
	return token, true, nil
}

func TestTokensThatCannotBeRead(t *testing.T) {
	n := newNode(t, nil, Settings{})
	broken := testTokens()
	broken.Fail(errors.New("secret host does not answer"))
	n.service.tokens = bearer.NewCache(broken)
	if said := n.want(t, http.StatusServiceUnavailable, "/take", ""); strings.Contains(said, "secret") {
		t.Errorf("internals leak: %s", said)
	}
}
