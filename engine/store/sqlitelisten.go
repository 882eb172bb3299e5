package store

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// lookEvery is how soon a server notices what a command on the same file committed.
const lookEvery = 100 * time.Millisecond

// fileWatch is what one connection knows of the file. SQLite has no notifications between processes, but every
// connection can ask, without reading the file, whether another one committed (PRAGMA data_version); the writer of this
// process is another one too.
type fileWatch struct {
	connection *sql.Conn
	commits    func() int64 // of this process
	data, own  int64
	lists      int64
}

// listen passes on what other processes on this host commit: the operator's commands. While this process commits all the
// time too, nobody knows whose a change is; then only the lists are looked at, and other work is found by its poll.
func (e *sqliteEngine) listen(ctx context.Context, notify func(channel, payload string)) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := e.watch(ctx, notify, func() { pause = firstPause })
		if ctx.Err() != nil || errors.Is(err, errClosed) {
			return nil //nolint:nilerr // it was told to end
		}
		e.logger.Warn("watching the database for commands broke; their changes are found by polling until it is there again", "error", err)
		select {
		case <-time.After(pause):
		case <-e.writer.stopping:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// watch looks at the file until ctx or the connection ends.
func (e *sqliteEngine) watch(ctx context.Context, notify func(channel, payload string), connected func()) error {
	connection, err := e.reads.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }() // it goes back to the pool
	watch := fileWatch{connection: connection, commits: e.groups.Load}
	if _, _, err := watch.look(ctx); err != nil {
		return err
	}
	connected()
	notifyAll(notify) // something may have been missed before
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-e.writer.stopping:
			return errClosed
		case <-ticker.C:
		}
		lists, others, err := watch.look(ctx)
		switch {
		case err != nil:
			return err
		case others:
			notifyAll(notify)
		case lists:
			notify(ChannelLists, "")
		}
	}
}

// notifyAll says that anything may have happened.
func notifyAll(notify func(channel, payload string)) {
	for _, channel := range []string{ChannelJob, ChannelTurn, ChannelLists, ChannelBridge} {
		notify(channel, "")
	}
}

// look reports whether the lists changed since the last look, and whether somebody else alone committed.
func (w *fileWatch) look(ctx context.Context) (lists, others bool, err error) {
	own := w.commits()
	var data int64
	if err := w.connection.QueryRowContext(ctx, "PRAGMA data_version").Scan(&data); err != nil {
		return false, false, err
	}
	if data == w.data {
		w.own = own
		return false, false, nil
	}
	others = own == w.own && w.commits() == own
	w.data, w.own = data, own
	before := w.lists
	if err := w.connection.QueryRowContext(ctx, "SELECT version FROM list_version WHERE one = 1").Scan(&w.lists); err != nil {
		return false, false, err
	}
	return w.lists != before, others, nil
}
