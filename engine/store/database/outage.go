package database

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"inbox/internal/fault"
)

const (
	// outageEvery is the interval between two lines about an outage that lasts.
	outageEvery = time.Minute
	// outageQuiet is how long no transaction and no read may have failed before an outage counts as ended.
	outageQuiet = 10 * time.Second
)

// outage reports in the log when the database begins to fail, once a minute while it does, and when it works again. The errors of callers say
// that they are reported, so that the log need not have a line for each message that met them. Damage is reported once.
type outage struct {
	logger logger
	remedy string // for damage

	lasts  atomic.Bool
	damage atomic.Pointer[Damage]

	lock     sync.Mutex
	since    time.Time
	last     time.Time // failure
	told     time.Time
	failures int
}

// reported is an error that an outage has in the log already.
type reported struct{ error }

// Logged implements what package telemetry asks an error.
func (reported) Logged() bool { return true }

// Unwrap returns the error of the database.
func (r reported) Unwrap() error { return r.error }

// note takes the result of a transaction or a read, and returns it for the caller.
func (o *outage) note(err error) error {
	if err == nil {
		if o.lasts.Load() {
			o.worked()
		}
		return nil
	}
	if !errors.Is(err, fault.ErrStore) || errors.Is(err, context.Canceled) || errors.Is(err, errClosed) {
		return err // of the work, of a caller that has left, or of this process, which ends
	}
	if errors.Is(err, fault.ErrDamaged) {
		o.damaged(err)
		return reported{err}
	}
	o.failed(err)
	return reported{err}
}

// damaged remembers the first damage that was met.
func (o *outage) damaged(err error) {
	if o.damage.CompareAndSwap(nil, &Damage{time.Now(), err}) {
		o.logger.Error("the database is damaged; "+o.remedy, "error", err)
	}
}

func (o *outage) failed(err error) {
	o.lock.Lock()
	defer o.lock.Unlock()

	now := time.Now()
	o.last = now
	o.failures++
	switch {
	case !o.lasts.Load():
		o.since, o.told, o.failures = now, now, 1
		o.lasts.Store(true)
		o.logger.Error("the database is not available; log.level = \"debug\" shows what this affects", "error", err)
	case now.Sub(o.told) >= outageEvery:
		o.told = now
		o.logger.Error("the database is still not available", "since", o.since.UTC().Format(time.RFC3339), "failures", o.failures, "error", err)
	}
}

func (o *outage) worked() {
	o.lock.Lock()
	defer o.lock.Unlock()

	if !o.lasts.Load() || time.Since(o.last) < outageQuiet {
		return
	}
	o.lasts.Store(false)
	o.logger.Warn("the database is available again", "lasted", o.last.Sub(o.since).Round(time.Second).String(), "failures", o.failures)
}
