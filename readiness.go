package inbox

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"inbox/engine/store"
	"inbox/internal/clock"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

// shortLife is how long before its end a certificate is told to be due: its renewal has failed for weeks by then.
const shortLife = 7 * 24 * time.Hour

// readiness are the conditions of /readyz: what this node needs to accept a message and to work on it. How many messages
// wait is none of them: a second node does not take more of them because this one hears nothing new. Back ends and certificates are shown
// and take no node out: all nodes have the same ones, and a message for an agent whose back end is down is taken and waits.
func (w *web) readiness() []httpserver.Check {
	checks := []httpserver.Check{
		{
			Name: "database", Run: w.checkDatabase,
			Remedy: "start the database, or correct database_url; the log says if a server is refused as a former primary, or has no synchronous standby; inbox doctor says if it is damaged",
		},
		{
			Name: "database pages", Run: func(context.Context) error { return w.checkPages() }, Bystander: true,
			Remedy: "inbox doctor names the tables; restore the newest backup with inbox restore",
		},
		{
			Name: "queue", Run: func(context.Context) error { return w.queue.Check() },
			Remedy: "look into the log for \"claim jobs\"; when the database answers again, the queue goes on by itself",
		},
		{Name: "disk", Run: func(context.Context) error {
			if w.disk.Full() {
				return fault.New(fault.Unavailable, "there is no room on the disk, for bytes or for files")
			}
			return nil
		}, Remedy: "make room where data_dir is (df, and df -i for inodes), or lower limits.free_disk"},
		{Name: "clock", Run: func(context.Context) error { return w.checkClock() }, Remedy: "let this machine and the database's keep time with NTP; the node goes on as soon as they agree"},
		{Name: "listeners", Run: w.checkListeners, Remedy: "look into the log for the listener that ended; restart the server"},
		{
			Name: "self-probe", Run: func(ctx context.Context) error { return w.probe.check(ctx) }, Bystander: true,
			Remedy: "look into the log for why; ask the listener by hand, and restart the server when it hangs",
		},
		{Name: "agents", Run: func(context.Context) error { return nil }, State: w.agentsState},
		{
			Name: "back ends", Run: w.checkBackEnds, Bystander: true,
			Remedy: "inbox agents list --state down names the agents and the reasons; start the programs behind them, their messages wait",
		},
		{
			Name: "certificate", Run: w.checkCertificate, Bystander: true,
			Remedy: "look into the log for what the certificate authority said, or renew http.cert_file",
		},
	}

	for _, other := range w.further {
		for _, check := range other.readiness() {
			check.Name = other.config.Domain + " " + check.Name
			checks = append(checks, check)
		}
	}
	return checks
}

// checkClock reports a clock with which this node does no work.
func (r *resources) checkClock() error {
	offset := r.store.ClockWrong().Round(time.Second)
	if offset == 0 {
		return nil
	}
	direction := "ahead of"
	if offset < 0 {
		direction = "behind"
	}
	return fault.Newf(fault.Unavailable, "the clock of this node is %s %s the database's; at most %s is allowed", offset.Abs(), direction, store.MaxWorkingOffset)
}

// clockPoll is how often a node looks whether its clock has become right or wrong. That asks no one.
const clockPoll = time.Second

// awaitClock waits until the clock of this node is right, or is not any more.
func (r *resources) awaitClock(ctx context.Context, right bool) error {
	for (r.store.ClockWrong() == 0) != right {
		if err := clock.Sleep(ctx, clockPoll); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// whileInTime does work that stored times decide or that leaves this node, whenever the clock of this node is right, until ctx ends.
func (r *resources) whileInTime(ctx context.Context, works ...func(context.Context) error) error {
	for r.awaitClock(ctx, true) == nil {
		group, inTime := errgroup.WithContext(ctx)
		inTime, stop := context.WithCancel(inTime)
		for _, work := range works {
			group.Go(func() error { return work(inTime) })
		}
		_ = r.awaitClock(inTime, false)
		stop()

		err := ignoreCancelled(group.Wait())
		switch {
		case ctx.Err() != nil || err != nil && r.store.ClockWrong() == 0:
			return err
		case err != nil:
			r.logger.WarnContext(ctx, "work did not stop in time for a wrong clock", "error", err)
		}
	}
	return nil
}

// checkBackEnds counts the agents whose back ends are down, on whichever node that was noted. Their names are not for everyone who asks.
func (w *web) checkBackEnds(ctx context.Context) error {
	list, err := w.store.BackEnds(ctx)
	if err != nil {
		return err
	}

	down, all := 0, w.registry.Agents()
	var since, next time.Time
	for _, outage := range list {
		if _, here := w.registry.Lookup(outage.Agent); here && outage.ClosedAt.IsZero() {
			down++
			if since.IsZero() || outage.Since.Before(since) {
				since = outage.Since
			}
			if next.IsZero() || outage.ProbeAt.Before(next) {
				next = outage.ProbeAt
			}
		}
	}
	if down > 0 {
		return fault.Newf(fault.Unavailable, "the back ends of %d of %d agents are down, the first since %s; the next attempt follows at %s",
			down, len(all), since.UTC().Format(time.RFC3339), later(next, time.Now()).UTC().Format(time.RFC3339))
	}
	return nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// checkCertificate looks at how long the certificates last that this server shows.
func (w *web) checkCertificate(context.Context) error {
	switch {
	case w.acme != nil:
		for _, name := range w.config.CertificateNames() {
			end := w.acme.End(name)
			if end.IsZero() {
				return fault.Newf(fault.Unavailable, "%s has no certificate yet", name)
			}
			if err := lasts(name, end); err != nil {
				return err
			}
		}
	case w.config.HTTP.CertFile != "":
		pair, err := tls.LoadX509KeyPair(w.config.HTTP.CertFile, w.config.HTTP.KeyFile)
		if err != nil {
			return fault.Wrap(fault.Unavailable, "the certificate cannot be read; the one before is in use", err)
		}
		return lasts(w.config.PublicHost(), pair.Leaf.NotAfter)
	}
	return nil
}

func lasts(name string, end time.Time) error {
	left := time.Until(end)
	switch {
	case left <= 0:
		return fault.Newf(fault.Unavailable, "the certificate of %s has ended", name)
	case left < shortLife:
		return fault.New(fault.Unavailable, fmt.Sprintf("the certificate of %s ends in %d hours", name, int(left.Hours())))
	}
	return nil
}
