package store

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/engine/store/database"
)

var clockOffset = promauto.NewGauge(prometheus.GaugeOpts{
	Name: "inbox_clock_offset_seconds", Help: "How far this node's clock is ahead of the database's, measured every ten seconds and when the clock is set.",
})

const (
	clockEvery = 10 * time.Second
	// stepEvery is how soon it is noticed that the clock was set.
	stepEvery = time.Second
	// agreeing is up to which offset two clocks are one.
	agreeing = time.Second
	// MaxClockOffset is above which a node's clock is reported.
	MaxClockOffset = 2 * time.Second
	// MaxWorkingOffset is above which a node must not work: times that its messages and answers carry would be too wrong.
	MaxWorkingOffset = 10 * time.Second
)

// storeClock tells the time of the database: stored times are compared with it, and with no node's clock. It is measured, and carried on
// by the monotonic clock, so that setting the clock of this node does not move it. The zero offset of SQLite is right: the process is the
// database.
type storeClock struct {
	local    func() time.Time // this node's clock; callers read their instants by it
	measured atomic.Pointer[measurement]
}

// measurement is one instant by both clocks. It is off by at most half of the time that the question took.
type measurement struct {
	here, there time.Time
	took        time.Duration
}

// now is the present by the database's clock.
func (c *storeClock) now() time.Time {
	here := c.local()
	if last := c.measured.Load(); last != nil {
		return last.there.Add(here.Sub(last.here))
	}
	return here
}

func (c *storeClock) nowMicros() int64 { return c.now().UnixMicro() }

// microsOrNow is micros for a caller that need not say when.
func (c *storeClock) microsOrNow(t time.Time) int64 {
	if t.IsZero() {
		return c.nowMicros()
	}
	return t.UnixMicro()
}

// stored is the instant of a caller by the database's clock; the zero time stays. Clocks that agree within the error of a measurement are
// taken as one: an instant that was stored is then found as it was.
func (c *storeClock) stored(at time.Time) time.Time {
	if at.IsZero() || c.measured.Load() == nil {
		return at
	}
	if offset := c.offset(); offset.Abs() > agreeing {
		return at.Round(0).Add(-offset)
	}
	return at
}

// offset is how far this node's clock is ahead by the last measurement, which a step of the clock since then changes.
func (c *storeClock) offset() time.Duration { return c.local().Round(0).Sub(c.now()) }

// ClockOffset returns how far this node's clock is ahead of the database's, within half of the time of one question.
func (d *shared) ClockOffset(ctx context.Context) (time.Duration, error) {
	last, err := d.measureClock(ctx)
	return last.here.Round(0).Sub(last.there), err
}

func (d *shared) measureClock(ctx context.Context) (last measurement, err error) {
	var there int64
	before := d.options.Now()
	if _, err := first(ctx, d.engine.Reader(), "SELECT "+d.dialect.now, nil, &there); err != nil {
		return last, err
	}

	took := d.options.Now().Sub(before)
	return measurement{before.Add(took / 2), time.UnixMicro(there), took}, nil
}

// errSlowMeasurement: the database answered too late to tell its time by it.
var errSlowMeasurement = errors.New("the database took too long to tell its time")

// setClock measures the clock of the database and goes by it from now on. A measurement that is less exact than clocks agree is used only
// as the first one: the monotonic clock carries the one before on with a smaller error.
func (d *shared) setClock(ctx context.Context) error {
	if d.engine.Kind() == database.SQLite {
		return nil
	}
	last, err := d.measureClock(ctx)
	if err != nil {
		return err
	}
	if last.took.Abs() > agreeing && d.measured.Load() != nil {
		return errSlowMeasurement
	}

	d.measured.Store(&last)
	clockOffset.Set(d.offset().Seconds())
	return nil
}

// ClockWrong returns how far this node's clock is ahead of the database's if that is more than a node may work with; else 0. It asks no one.
func (d *shared) ClockWrong() time.Duration {
	if offset := d.offset(); d.engine.Kind() != database.SQLite && offset.Abs() > MaxWorkingOffset {
		return offset
	}
	return 0
}

// watchClock measures regularly and when this node's clock was set, until ctx ends. It warns of a wrong clock when it is found, and once a minute.
func (d *shared) watchClock(ctx context.Context) {
	ticker := time.NewTicker(stepEvery)
	defer ticker.Stop()

	checked, warned := d.options.Now(), time.Time{}
	for before := d.offset(); ; {
		if offset := d.offset(); offset.Abs() <= MaxClockOffset {
			warned = time.Time{}
		} else if now := time.Now(); now.Sub(warned) >= time.Minute {
			warned = now
			d.options.Logger.WarnContext(ctx, "the clock of this node differs from the database's: let both keep time with NTP",
				"ahead", offset.Round(time.Millisecond).String())
		}

		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}

		now, stepped := d.options.Now(), (d.offset()-before).Abs() >= stepEvery
		if !stepped && now.Sub(checked) < clockEvery {
			continue
		}
		if err := d.setClock(ctx); err == nil { // else it is measured again in a second
			checked, before = now, d.offset()
		}
	}
}
