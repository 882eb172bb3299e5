package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"time"

	"inbox/internal/clock"
)

// maxForgotten bounds the file that is written anew to be rid of old texts, which takes as long as copying it.
const maxForgotten = 256 << 20

// Replaced writes the file anew, because what was replaced stands on in free places of it, and empties the log.
func (e *sqliteEngine) Replaced(ctx context.Context) {
	info, err := os.Stat(e.path)
	if err == nil && info.Size() > maxForgotten {
		err = errors.New("the file is large")
	}
	if err == nil {
		err = e.writer.between(ctx, func(s *writerSession) error { return s.execute("VACUUM") })
	}
	if err == nil {
		err = e.emptyLog(ctx)
	}
	if err != nil {
		e.logger.Warn("old texts of what was replaced may remain in free space of the database file until you run: sqlite3 "+
			e.path+" VACUUM", "error", err)
	}
}

const (
	cleanTries = 20
	cleanPause = 500 * time.Millisecond
)

// truncatePatience is how long all transactions wait at the most for those who read an old state, when the log is emptied.
const truncatePatience = 50 * time.Millisecond

// overwritten is the user_version of a file whose free places have nothing of removed rows: since it was made, or written anew, they are overwritten
// when they go (secure_delete). Files of before have 0.
const overwritten = 1

// markOverwritten says so of a file.
var markOverwritten = fmt.Sprintf("PRAGMA user_version = %d", overwritten)

// ForgetFree writes a file of before of up to 256 MiB anew, once: all others wait for it. Then it empties the write-ahead log, which readers of
// an old state may hold for a moment.
func (e *sqliteEngine) ForgetFree(ctx context.Context) (remains []string, err error) {
	remains, err = e.overwriteFree(ctx)
	if err != nil {
		return nil, err
	}
	return remains, e.emptyLog(ctx)
}

// emptyLog tries it for some seconds: a reader of an old state, or a checkpoint that runs beside it, ends soon.
func (e *sqliteEngine) emptyLog(ctx context.Context) error {
	for range cleanTries {
		switch done, err := e.writer.truncateLog(ctx, e.reads); {
		case err != nil:
			return err
		case done:
			return nil
		}
		if err := clock.Sleep(ctx, cleanPause); err != nil {
			return Unavailable("clean the write-ahead log", err)
		}
	}
	return Unavailable("clean the write-ahead log", errors.New("another process reads an old state of the database"))
}

// truncateLog empties the write-ahead log: most of it through the pool while others write, the rest between two transactions. Done is false
// if a reader of an old state holds it.
func (w *writer) truncateLog(ctx context.Context, pool *sql.DB) (done bool, err error) {
	if _, err := pool.ExecContext(ctx, checkpoint); err != nil {
		return false, Unavailable("clean the write-ahead log", err)
	}

	var busy, pages, moved int64
	err = w.between(ctx, func(s *writerSession) error {
		patience := lockPatience
		if w.locked {
			patience = shortPatience
		}
		if err := s.wait(truncatePatience); err != nil {
			return err
		}
		err := s.Each(ctx, "PRAGMA wal_checkpoint(TRUNCATE)", nil, func(r Row) error { return r.Scan(&busy, &pages, &moved) })
		return errors.Join(err, s.wait(patience))
	})
	return err == nil && busy == 0, err
}

func (e *sqliteEngine) overwriteFree(ctx context.Context) (remains []string, err error) {
	var version int64
	if err := e.Each(ctx, "PRAGMA user_version", nil, func(r Row) error { return r.Scan(&version) }); err != nil || version == overwritten {
		return nil, err
	}
	info, err := os.Stat(e.path)
	if err != nil {
		return nil, Unavailable("clean the database file", err)
	}
	if info.Size() > maxForgotten {
		return []string{"the database file is large and was not rewritten: data that an older version of the program removed may remain in its free space until you run: sqlite3 " + File + " VACUUM"}, nil
	}
	return nil, e.writer.between(ctx, func(s *writerSession) error {
		if err := s.execute("VACUUM"); err != nil {
			return err
		}
		return s.execute(markOverwritten)
	})
}
