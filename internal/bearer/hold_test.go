package bearer

import (
	"context"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"inbox/exchange"
	"inbox/exchange/exchangetest"
	"inbox/internal/fault"
)

// noUses are rows of tokens that take every use.
type noUses struct{}

func (noUses) UseTokens(context.Context, map[string]time.Time) error { return nil }

// running makes uses of tokens that run until the end of the test.
func running(t *testing.T, source exchange.Tokens) *Uses {
	t.Helper()
	uses := NewUses(source)
	go func() { _ = uses.Run(t.Context(), noUses{}, func(err error) { t.Error(err) }) }()
	return uses
}

// TestRequestsEndWithTheirToken: a request under way ends when its token was revoked, and no other one does.
func TestRequestsEndWithTheirToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := Mint()
		other, _ := Mint()
		source := exchangetest.NewTokens(map[string]exchange.Token{mine: {ID: "1"}, other: {ID: "2"}})
		uses := running(t, source)
		hold := func(token string) context.Context {
			request := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
			if token != "" {
				request.Header.Set("Authorization", "Bearer "+token)
			}
			ctx, release := uses.HoldRequest(request)
			t.Cleanup(release)
			return ctx
		}
		first, second, stranger, guest := hold(mine), hold(mine), hold(other), hold("")

		uses.Changed()
		synctest.Wait()
		source.Revoke(mine)
		synctest.Wait()
		for what, ctx := range map[string]context.Context{"a valid token": first, "one that is revoked where no one told of it": second} {
			if ctx.Err() != nil {
				t.Errorf("%s: %v", what, ctx.Err())
			}
		}

		uses.Changed()
		synctest.Wait()
		for _, ctx := range []context.Context{first, second} {
			if !fault.Is(context.Cause(ctx), fault.Unauthenticated) {
				t.Errorf("a request of a revoked token ends with %v", context.Cause(ctx))
			}
		}
		if stranger.Err() != nil || guest.Err() != nil {
			t.Errorf("others end: %v, %v", stranger.Err(), guest.Err())
		}

		source.Put(other, exchange.Token{ID: "2", ExpiresAt: time.Now().Add(time.Second)})
		<-time.After(UsesEvery)
		synctest.Wait()
		if !fault.Is(context.Cause(stranger), fault.Unauthenticated) {
			t.Errorf("a request of a token that has expired ends with %v", context.Cause(stranger))
		}
	})
}

// TestReleasedRequestsAreForgotten: nothing is kept of a request that was answered.
func TestReleasedRequestsAreForgotten(t *testing.T) {
	uses := NewUses(exchangetest.NewTokens(nil))
	token, _ := Mint()
	_, first := uses.Hold(t.Context(), token)
	_, second := uses.Hold(t.Context(), token)
	first()
	second()
	if len(uses.held) != 0 {
		t.Errorf("kept: %v", uses.held)
	}
}

// slowTokens answers when the test says so.
type slowTokens struct {
	exchange.Tokens

	asked, answer chan struct{}
}

func (s slowTokens) TokenByHash(ctx context.Context, hash string) (exchange.Token, bool, error) {
	token, found, err := s.Tokens.TokenByHash(ctx, hash)
	s.asked <- struct{}{}
	<-s.answer
	return token, found, err
}

// TestCachesForgetWhatChanged: also what was being read while it changed.
func TestCachesForgetWhatChanged(t *testing.T) {
	source := exchangetest.NewTokens(map[string]exchange.Token{"a": {ID: "1"}})
	slow := slowTokens{source, make(chan struct{}), make(chan struct{})}
	uses := NewUses(slow)
	cache := NewCache(uses)
	found := make(chan exchange.Token)
	find := func() {
		token, _, err := cache.Find(t.Context(), "a")
		if err != nil {
			t.Error(err)
		}
		found <- token
	}

	go find()
	<-slow.asked
	source.Revoke("a")
	uses.Changed()
	slow.answer <- struct{}{}
	<-found // it was read before
	go find()
	<-slow.asked
	slow.answer <- struct{}{}
	if token := <-found; token.Valid(time.Now()) {
		t.Errorf("a revoked token is remembered as %+v", token)
	}
}
