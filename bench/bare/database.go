package bare

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"

	_ "modernc.org/sqlite" // the driver
)

// database commits what is waiting together, one sync for all, as the server does.
type database struct {
	pool       *sql.DB
	connection *sql.Conn
	message    *sql.Stmt
	job        *sql.Stmt
	queue      chan *row
	stopping   chan struct{}
	finished   chan struct{}
}

type row struct {
	activity activity
	body     []byte
	done     chan error
}

// maxTogether bounds the rows of one commit.
const maxTogether = 128

var tables = []string{
	"CREATE TABLE messages (id TEXT PRIMARY KEY, actor TEXT, content TEXT, body BLOB)",
	"CREATE TABLE jobs (id TEXT PRIMARY KEY, state TEXT)",
}

func open(ctx context.Context, directory string) (*database, error) {
	settings := url.Values{"_pragma": {"journal_mode(WAL)", "synchronous(FULL)"}}
	pool, err := sql.Open("sqlite", "file:"+filepath.Join(directory, "bare.db")+"?"+settings.Encode())
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}

	d := &database{pool: pool, queue: make(chan *row, maxTogether), stopping: make(chan struct{}), finished: make(chan struct{})}
	if err := d.prepare(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open database: %w", err), pool.Close())
	}

	go d.loop()
	return d, nil
}

func (d *database) prepare(ctx context.Context) (err error) {
	if d.connection, err = d.pool.Conn(ctx); err != nil {
		return err
	}

	for _, table := range tables {
		if _, err := d.connection.ExecContext(ctx, table); err != nil {
			return err
		}
	}

	if d.message, err = d.connection.PrepareContext(ctx, "INSERT INTO messages VALUES (?, ?, ?, ?)"); err != nil {
		return err
	}

	d.job, err = d.connection.PrepareContext(ctx, "INSERT INTO jobs VALUES (?, 'ready')")
	return err
}

// insert returns when both rows are synced.
func (d *database) insert(ctx context.Context, a activity, body []byte) error {
	r := &row{activity: a, body: body, done: make(chan error, 1)}
	select {
	case d.queue <- r:
	case <-d.stopping:
		return errors.New("the database is closed")
	case <-ctx.Done():
		return ctx.Err()
	}

	select {
	case err := <-r.done:
		return err
	case <-d.finished:
		return errors.New("the database is closed")
	}
}

func (d *database) loop() {
	defer close(d.finished)
	for {
		var group []*row
		select {
		case first := <-d.queue:
			group = append(group, first)
		case <-d.stopping:
			return
		}

		for waiting := true; waiting && len(group) < maxTogether; {
			select {
			case next := <-d.queue:
				group = append(group, next)
			default:
				waiting = false
			}
		}

		err := d.commit(group)
		for _, r := range group {
			r.done <- err
		}
	}
}

func (d *database) commit(group []*row) error {
	ctx := context.Background()
	if _, err := d.connection.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}

	for _, r := range group {
		_, err := d.message.ExecContext(ctx, r.activity.ID, r.activity.Actor, r.activity.Object.Content, r.body)
		if err == nil {
			_, err = d.job.ExecContext(ctx, r.activity.ID)
		}
		if err != nil {
			_, rolledBack := d.connection.ExecContext(ctx, "ROLLBACK")
			return errors.Join(err, rolledBack)
		}
	}

	_, err := d.connection.ExecContext(ctx, "COMMIT")
	return err
}

func (d *database) close() error {
	close(d.stopping)
	<-d.finished
	return errors.Join(d.connection.Close(), d.pool.Close())
}
