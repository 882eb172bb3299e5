package pages

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"inbox/console/account"
	"inbox/exchange"
	"inbox/operator"
)

// mostUnread is how many conversations stand above the others because they are unread.
const mostUnread = 20

// maxUnreadCounts bounds the operators whose numbers are remembered.
const maxUnreadCounts = 1000

// unreadCounts remembers how many conversations each operator has not read, so that many open pages cost one look.
type unreadCounts struct {
	mu     sync.Mutex
	counts map[exchange.SessionOwner]unreadCount
}

type unreadCount struct {
	at    time.Time
	count exchange.UnreadCount
}

// current returns the number, some seconds old at most. What cannot be counted is none: the page is about something else.
func (c *unreadCounts) current(ctx context.Context, owner exchange.SessionOwner, arrivals operator.Arrivals) exchange.UnreadCount {
	c.mu.Lock()
	found, known := c.counts[owner]
	c.mu.Unlock()
	if known && time.Since(found.at) < countsFresh {
		return found.count
	}

	count, err := arrivals.CountUnread(ctx, owner)
	if err != nil {
		return found.count
	}
	c.remember(owner, count)
	return count
}

func (c *unreadCounts) remember(owner exchange.SessionOwner, count exchange.UnreadCount) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.counts) >= maxUnreadCounts || c.counts == nil {
		c.counts = map[exchange.SessionOwner]unreadCount{}
	}
	c.counts[owner] = unreadCount{time.Now(), count}
}

// forget makes the next look of an operator a new one.
func (c *unreadCounts) forget(owner exchange.SessionOwner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.counts, owner)
}

// markRead keeps that an operator opened a conversation, up to a message. A browser that another site sent here, or that loads a page in
// advance, shows it to no one. The page is shown also where it cannot be kept.
func (p *Pages) markRead(r *http.Request, s account.Session, turn exchange.TurnRecord) {
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" || strings.Contains(r.Header.Get("Sec-Purpose"), "prefetch") {
		return
	}
	if err := p.Operator.Arrivals.MarkRead(r.Context(), s.Owner, turn); err != nil && r.Context().Err() == nil {
		p.Logger.WarnContext(r.Context(), "a conversation that was opened stays unread", "turn", turn.ID, "error", err)
	}
	p.unread.forget(s.Owner)
}

// markAllRead takes the newest message that was on the page: what came later stays unread.
func (p *Pages) markAllRead(w http.ResponseWriter, r *http.Request, s account.Session) error {
	if err := p.Operator.Arrivals.MarkAllRead(r.Context(), s.Owner, r.PostFormValue("until")); err != nil {
		return err
	}
	p.unread.forget(s.Owner)
	return p.done(w, r, at("inbox"), text(r.Context(), "All conversations are marked as read."))
}
