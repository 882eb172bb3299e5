package bearer

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"inbox/internal/fault"
)

// errEnded is the cause of contexts that ended with their token.
var errEnded = fault.New(fault.Unauthenticated, "the bearer token was revoked or has expired")

// hold is one request under way.
type hold struct{ end context.CancelCauseFunc }

// HoldRequest returns the context of a request that ends, with a fault of kind Unauthenticated as its cause, when the token that the
// request shows opens nothing any more. That of a request without a token is its own.
func (u *Uses) HoldRequest(r *http.Request) (ctx context.Context, release func()) {
	return u.Hold(r.Context(), Of(r))
}

// Hold is HoldRequest for a token that came another way. The caller looks at the token afterwards: what was changed before is not told.
func (u *Uses) Hold(ctx context.Context, token string) (context.Context, func()) {
	if !WellFormed(token) {
		return ctx, func() {}
	}

	ctx, end := context.WithCancelCause(ctx)
	one := &hold{end}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.held[token] == nil {
		u.held[token] = map[*hold]bool{}
	}
	u.held[token][one] = true
	return ctx, func() { u.leave(token, one) }
}

func (u *Uses) leave(token string, one *hold) {
	one.end(context.Canceled)
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.held[token], one)
	if len(u.held[token]) == 0 {
		delete(u.held, token)
	}
}

// Changed is told that tokens may have been revoked, here or by another process. It does not wait for the ends of what is under way.
func (u *Uses) Changed() {
	u.mu.Lock()
	caches := slices.Clone(u.caches)
	u.mu.Unlock()
	for _, c := range caches {
		c.forget()
	}

	select {
	case u.look <- struct{}{}:
	default:
	}
}

// release ends what is under way with tokens that open nothing any more. A token that cannot be looked for is looked for again later.
func (u *Uses) release(ctx context.Context) {
	u.mu.Lock()
	tokens := slices.Collect(maps.Keys(u.held))
	u.mu.Unlock()
	for _, token := range tokens {
		read, found, err := u.source.TokenByHash(ctx, Hash(token))
		if err != nil || found && read.Valid(time.Now()) {
			continue
		}
		u.mu.Lock()
		for one := range u.held[token] {
			one.end(errEnded)
		}
		u.mu.Unlock()
	}
}

// Hold is that of the tokens in which the cache looks; without a *Uses the context ends with ctx alone.
func (c *Cache) Hold(ctx context.Context, token string) (context.Context, func()) {
	if uses, is := c.source.(*Uses); is {
		return uses.Hold(ctx, token)
	}
	return ctx, func() {}
}
