package pages

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"inbox/console/account"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/operator"
)

const (
	// maxWatchers bounds the pages that are told of new messages at once; each costs a connection.
	maxWatchers = 200
	// lookEvery is how often the server looks for new messages while a page is open.
	lookEvery = 500 * time.Millisecond
	// aliveEvery is how often a page without news hears that it is still connected, and its session is looked at.
	aliveEvery = 20 * time.Second
	// retryAfter is how long a page waits before it connects again.
	retryAfter = 5 * time.Second
)

// live looks for new messages while pages are open: one look for all of them, which is one row of an index.
type live struct {
	arrivals operator.Arrivals

	mu       sync.Mutex
	watchers map[chan string]bool
	stop     context.CancelFunc
}

// watch tells of the newest message until leave is called. A watcher that is slow misses numbers and gets the last one.
func (l *live) watch() (news <-chan string, leave func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.watchers) >= maxWatchers {
		return nil, nil, fault.New(fault.Unavailable, "as many pages are open as the server tells of new messages; reload the page to see them")
	}

	watcher := make(chan string, 1)
	if l.watchers == nil {
		l.watchers = map[chan string]bool{}
	}
	if l.watchers[watcher] = true; l.stop == nil {
		ctx, stop := context.WithCancel(context.Background())
		l.stop = stop
		go l.look(ctx)
	}
	return watcher, func() { l.leave(watcher) }, nil
}

func (l *live) leave(watcher chan string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.watchers, watcher)
	if len(l.watchers) == 0 && l.stop != nil {
		l.stop()
		l.stop = nil
	}
}

// look runs while someone watches.
func (l *live) look(ctx context.Context) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for last := ""; ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if newest, err := l.arrivals.Newest(ctx); err == nil && newest != last { // the database may be back in a moment
			last = newest
			l.tell(newest)
		}
	}
}

func (l *live) tell(newest string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for watcher := range l.watchers {
		select {
		case <-watcher:
		default:
		}
		watcher <- newest
	}
}

func (p *Pages) liveRoute() httpserver.Route {
	return p.page(exchange.RoleRead, at("live"), p.stream)
}

// stream says when messages came later than after: server-sent events named "arrived" with the number of the newest one. It ends with
// the session, which is looked at before anything is told.
func (p *Pages) stream(w http.ResponseWriter, r *http.Request, _ account.Session) error {
	seen, err := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64)
	if err != nil {
		return fault.InField("after", "must be the number of a message")
	}
	news, leave, err := p.live.watch()
	if err != nil {
		return err
	}
	defer leave()

	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	out := httpserver.OpenEvents(ctx, w, httpserver.EventOptions{KeepAlive: aliveEvery, WriteTimeout: aliveEvery, Retry: retryAfter}, stop)
	defer out.Close()
	alive := time.NewTicker(aliveEvery)
	defer alive.Stop()

	for {
		select {
		case <-ctx.Done(): // the reader went away
			return nil
		case <-httpserver.Stopping(ctx): // the page connects again, here or at another node
			out.Write(httpserver.StoppingEvent())
			return nil
		case newest := <-news:
			if p.ended(r) {
				return nil
			}
			if number, err := strconv.ParseInt(newest, 10, 64); err == nil && number > seen {
				seen = number
				out.Write(httpserver.Event{Name: "arrived", Data: []byte(newest)})
			}
		case <-alive.C:
			if p.ended(r) {
				return nil
			}
		}
	}
}

// ended reports whether the session of a request is over. While the database cannot say, it is not.
func (p *Pages) ended(r *http.Request) bool {
	session, there, err := p.accounts.Session(r)
	return err == nil && (!there || session.Role < exchange.RoleRead)
}
