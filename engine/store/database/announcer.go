package database

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"inbox/internal/clock"
)

// logger is the part of slog.Logger that the engines use.
type logger interface {
	Warn(message string, arguments ...any)
	Error(message string, arguments ...any)
}

// notifyChannel is PostgreSQL's channel name; a payload is "<node> <channel> <payload>".
const notifyChannel = "inbox"

const (
	// maxAnnounced bounds the wake-ups of one round; beyond it the others hear "anything".
	maxAnnounced = 512
	// announceTimeout bounds one round; a lost one costs the others no more than their slow poll.
	announceTimeout = 5 * time.Second
	// lastRound is how long the end waits for what is not announced yet: a command commits and is gone, and the servers
	// that run would find its work only by their poll.
	lastRound = time.Second
	// firstPause doubles up to lastPause between attempts to listen again.
	firstPause, lastPause = 100 * time.Millisecond, 5 * time.Second
)

// announcer tells the other nodes what was committed here, many wake-ups in one statement. It does so after the
// commit and beside it: NOTIFY inside the transactions makes their commits wait for each other, because
// PostgreSQL holds a global lock from the notification until the end of the commit.
type announcer struct {
	node   string
	pool   *pgxpool.Pool
	outage *outage

	lock    sync.Mutex
	waiting map[Wake]struct{}
	signal  chan struct{}
	ending  chan struct{}
	ended   sync.Once // a store may be closed again
	cancel  context.CancelFunc
	done    chan struct{}
}

func startAnnouncer(pool *pgxpool.Pool, outage *outage) *announcer {
	ctx, cancel := context.WithCancel(context.Background())
	a := &announcer{
		node: rand.Text(), pool: pool, outage: outage,
		waiting: make(map[Wake]struct{}), signal: make(chan struct{}, 1),
		ending: make(chan struct{}), cancel: cancel, done: make(chan struct{}),
	}
	go a.loop(ctx)
	return a
}

func (a *announcer) add(wakes []Wake) {
	a.lock.Lock()
	for _, w := range wakes {
		if len(a.waiting) >= maxAnnounced {
			w.Payload = ""
		}
		a.waiting[w] = struct{}{}
	}
	a.lock.Unlock()

	select {
	case a.signal <- struct{}{}:
	default:
	}
}

func (a *announcer) loop(ctx context.Context) {
	defer close(a.done)
	for last := false; !last; {
		select {
		case <-a.signal:
		case <-a.ending:
			last = true
		}

		if err := a.send(ctx, a.take()); err != nil && ctx.Err() == nil {
			err = a.outage.note(Unavailable("notify other nodes", err))
			a.outage.logger.Warn("other nodes were not notified; they find the work by polling", "error", err)
		}
	}
}

func (a *announcer) take() []string {
	a.lock.Lock()
	defer a.lock.Unlock()

	payloads := make([]string, 0, len(a.waiting))
	for w := range a.waiting {
		payloads = append(payloads, a.node+" "+w.Channel+" "+w.Payload)
	}

	clear(a.waiting)
	return payloads
}

// send does not wait for the disk: a notification that a crash loses is found by polling.
func (a *announcer) send(ctx context.Context, payloads []string) error {
	if len(payloads) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, announceTimeout)
	defer cancel()

	_, err := a.pool.Exec(ctx, `SELECT pg_notify('`+notifyChannel+`', payload), set_config('synchronous_commit', 'off', true)
		FROM unnest($1::text[]) AS payload`, payloads)
	return err
}

func (a *announcer) stop() {
	a.ended.Do(func() { close(a.ending) })
	select {
	case <-a.done:
	case <-time.After(lastRound):
	}

	a.cancel()
	<-a.done
}

// Listen waits for the notifications of other nodes on a connection of its own and connects again when that breaks.
func (e *postgresEngine) Listen(ctx context.Context, notify func(channel, payload string)) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := e.listenOnce(ctx, notify, func() { pause = firstPause })
		if errors.Is(err, errOld) && ctx.Err() == nil {
			continue
		}
		if ctx.Err() == nil {
			err = e.outage.note(Unavailable("listen for other nodes", err))
			e.logger.Warn("listening for other nodes broke; connecting again", "error", err)
		}

		if clock.Sleep(ctx, pause) != nil {
			return nil //nolint:nilerr // it was told to end
		}
	}
}

func (e *postgresEngine) listenOnce(ctx context.Context, notify func(channel, payload string), connected func()) (err error) {
	moved := e.primary.moved()
	config := e.config.Copy()
	e.primary.putFirst(&config.Config)
	connection, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		err = errors.Join(err, connection.Close(closing))
	}()

	if _, err := connection.Exec(ctx, "LISTEN "+notifyChannel); err != nil {
		return err
	}
	connected()
	notifyAll(notify)
	life, cancel := context.WithTimeout(ctx, connectionLife)
	defer cancel()
	go func() {
		select {
		case <-moved:
			cancel()
		case <-life.Done():
		}
	}()

	for {
		notification, err := connection.WaitForNotification(life)
		switch {
		case err != nil && life.Err() != nil && ctx.Err() == nil:
			return errOld
		case err != nil:
			return err
		}
		e.heard(notification.Payload, notify)
	}
}

func (e *postgresEngine) heard(text string, notify func(channel, payload string)) {
	node, rest, _ := strings.Cut(text, " ")
	channel, payload, _ := strings.Cut(rest, " ")
	if node != e.announcer.node {
		notify(channel, payload)
	}
}
