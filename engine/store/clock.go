package store

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

var clockOffset = promauto.NewGauge(prometheus.GaugeOpts{
	Name: "inbox_clock_offset_seconds", Help: "How far this node's clock is ahead of the database's, measured once a minute.",
})

const (
	clockEvery = time.Minute
	// MaxClockOffset is above which a node's clock is reported. Leases do not depend on it; times that people read do, and
	// the order of messages that come to different nodes.
	MaxClockOffset = 2 * time.Second
)

// ClockOffset returns how far this node's clock is ahead of the database's, within half of the time of one question.
func (s *Store) ClockOffset(ctx context.Context) (time.Duration, error) {
	var there int64
	before := s.options.Now()
	if _, err := first(ctx, s.engine.reader(), "SELECT "+s.engine.dialect().now, nil, &there); err != nil {
		return 0, err
	}
	after := s.options.Now()
	return before.Add(after.Sub(before) / 2).Sub(time.UnixMicro(there)), nil
}

// watchClock warns of a clock that is wrong, until ctx ends.
func (s *Store) watchClock(ctx context.Context) {
	ticker := time.NewTicker(clockEvery)
	defer ticker.Stop()
	for {
		s.compareClock(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (s *Store) compareClock(ctx context.Context) {
	offset, err := s.ClockOffset(ctx)
	if err != nil {
		return // whoever needs the database hears of it
	}
	clockOffset.Set(offset.Seconds())
	if offset.Abs() > MaxClockOffset {
		s.options.Logger.WarnContext(ctx, "the clock of this node differs from the database's: let both keep time with NTP",
			"ahead", offset.Round(time.Millisecond).String())
	}
}
