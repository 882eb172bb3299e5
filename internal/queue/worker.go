package queue

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// claimTimeout bounds one claim. A claim is not called away when the queue stops: a lease that no worker knows
	// of would hold its job back for its whole length.
	claimTimeout = 10 * time.Second
	// shortPause is the wait after a claim that found nothing although something was due: another node or an
	// unfinished transaction holds it.
	shortPause = 20 * time.Millisecond
	// busyPause is the wait after a claim that found something. While work keeps coming, wake-ups end it and the
	// store is not asked what is due next.
	busyPause = 50 * time.Millisecond
	// maxClaim bounds the jobs of one claim.
	maxClaim = 100
	// reviveEvery is how often the store is asked for jobs whose time has come while claims find other work.
	reviveEvery = 250 * time.Millisecond
	// reservePause is the least time between two looks for those who may use the reserve, while all other slots are
	// taken, and while all that waits is behind the limits of its groups: a flood of wake-ups for the rest costs no more. A message
	// that this node accepts reserves its slot and needs no look.
	reservePause = 10 * time.Millisecond
	// maxShares is how many shares one look takes in, firstShares at first, in at most maxLooks statements. Where there are more, it goes by group.
	maxShares   = 64
	firstShares = 8
	maxLooks    = 16
	// maxLookGroups bounds the groups of such a look, and wideGroups those whose shares are read.
	maxLookGroups = 256
	wideGroups    = 16
	// wideShares are read of a group from the beginning, and of each rank behind its cursor.
	wideShares = 32
)

// worker claims and starts the jobs of one kind.
type worker struct {
	queue   *Queue
	kind    string
	options KindOptions
	handler Handler
	wake    chan struct{} // something may be runnable
	freed   chan struct{} // a slot is free
	slots   *slots
	meters  meters

	// of the loop alone
	reviveAt time.Time // when the store is asked to make jobs ready whose time has come
	looked   time.Time // when the last claim began
	group    string    // behind which group the next look begins, where there are many

	serving sync.Mutex
	ctx     context.Context //nolint:containedctx // of the loop; nil while it does not run

	seen atomic.Int64 // when the loop last did its work, in nanoseconds since 1970
}

// signal wakes the worker of a kind; there is none when this node does not handle it.
func (w *worker) signal() {
	if w == nil {
		return
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// loop claims as soon as there is a free slot and a reason to look: a wake-up, a job coming due, or the slow poll.
// A claim that was filled is reason enough to look again.
func (w *worker) loop(ctx context.Context) {
	w.lives(nil)
	w.serve(ctx)
	defer w.serve(nil) //nolint:staticcheck // nil means that no worker serves
	look, fresh, limited, failures := true, true, false, 0
	var woken time.Time // first wake-up since the last look
	pause := time.NewTimer(0)
	defer pause.Stop()
	for ctx.Err() == nil {
		free, reserve := w.slots.open()
		switch since := time.Since(w.looked); {
		case look && fresh && !free && reserve && since < reservePause:
			pause.Reset(reservePause - since)
		case look && fresh && limited && time.Since(woken) < reservePause: // a message that comes now is acknowledged first
			pause.Reset(reservePause - time.Since(woken))
		case look && (free || reserve && fresh):
			found, err := w.claim(ctx)
			w.lives(err)
			look, fresh, limited, woken = err == nil && found.more, false, found.limited, time.Time{}
			failures = countFailures(failures, err)
			pause.Reset(w.pause(ctx, found, failures))
		case !free && !reserve:
			w.lives(nil) // all slots are taken: there is nothing to look for
		}

		select {
		case <-ctx.Done():
		case <-w.freed:
			limited = false
		case <-w.wake:
			look, fresh = true, true
			if woken.IsZero() {
				woken = time.Now()
			}
		case <-pause.C:
			look, fresh = true, true
			pause.Reset(w.queue.options.Poll)
		}
	}
}

// lives notes that the loop did its work, unless that failed.
func (w *worker) lives(err error) {
	if err == nil {
		w.seen.Store(time.Now().UnixNano())
	}
}

// serve lets slots be reserved until it is called with nil.
func (w *worker) serve(ctx context.Context) {
	w.serving.Lock()
	defer w.serving.Unlock()
	w.ctx = ctx
}

func countFailures(before int, err error) int {
	if err == nil {
		return 0
	}
	return before + 1
}

// found is what a claim brought.
type found struct {
	claimed int
	more    bool // another claim may bring more
	limited bool // there was nothing to claim but jobs of groups that run as much as they can
	missed  bool // something was ready that was not to be had: another node or an unfinished transaction holds it
}

// claim takes jobs for which there are slots and starts them.
func (w *worker) claim(ctx context.Context) (found, error) {
	w.looked = time.Now()
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTimeout)
	defer cancel()
	brought, err := w.take(ctx, bounded)
	if err != nil {
		claimFailures.WithLabelValues(w.kind).Inc()
		w.queue.options.Logger.WarnContext(ctx, "claim jobs", "kind", w.kind, "error", err)
	}
	return brought, err
}

func (w *worker) take(ctx, bounded context.Context) (found, error) {
	if err := w.revive(bounded); err != nil {
		return found{}, err
	}

	shares, limited, err := w.shares(bounded)
	if err != nil {
		return found{}, err
	}

	takes, left := w.slots.allot(shares, maxClaim)
	if len(takes) == 0 {
		w.slots.settle(left, true)
		return found{more: left, limited: limited && !left}, nil
	}

	until := time.Now().Add(w.queue.options.Lease)
	jobs, err := w.queue.store.Claim(bounded, Claim{
		Owner: w.queue.options.Owner, Kind: w.kind, Lease: w.queue.options.Lease, Takes: takes,
	})

	got := map[Share]int{}
	for _, job := range jobs {
		got[job.Share]++
		w.start(ctx, job, until)
	}

	brought, dry := found{claimed: len(jobs), more: left}, true
	for _, one := range takes {
		for range one.Count - got[one.Share] {
			w.leave(one.Share)
		}
		dry = dry && got[one.Share] < one.Count
		brought.missed = brought.missed || got[one.Share] == 0
	}

	brought.more = brought.more || !dry
	if err == nil {
		w.slots.settle(left, dry)
	}

	return brought, err
}

// revive asks the store to make jobs ready whose time has come, when it may have.
func (w *worker) revive(ctx context.Context) error {
	now := time.Now()
	if now.Before(w.reviveAt) {
		return nil
	}
	more, err := w.queue.store.Revive(ctx, w.kind)
	if err == nil && !more {
		w.reviveAt = now.Add(w.queue.options.Poll)
	}
	return err
}

// shares returns the shares in which jobs are ready and may run, and whether some groups may not: all of them where there are few. Where there are many it goes by group,
// those first whose turn it is, and in each of them goes on behind the member that was served last.
func (w *worker) shares(ctx context.Context) (shares []Share, limited bool, err error) {
	store := w.queue.store
	shares, limited, all, err := w.fewShares(ctx)
	if err != nil || all {
		return shares, limited, err
	}

	groups, err := store.Groups(ctx, w.kind, w.group, maxLookGroups)
	if err == nil && w.group != "" && len(groups) < maxLookGroups {
		var others []string
		others, err = store.Groups(ctx, w.kind, "", maxLookGroups-len(groups))
		groups = append(groups, others...)
	}
	if err != nil {
		return nil, false, err
	}

	if len(shares) > 0 && shares[0].Group == "" { // Groups begins behind it
		groups = append(groups, "")
	}

	slices.Sort(groups)
	groups = slices.Compact(groups)
	w.group = ""

	if len(groups) >= maxLookGroups {
		w.group = groups[len(groups)-1]
	}

	first, cursors := w.slots.order(groups, wideGroups)
	shares = nil
	for _, group := range first {
		of, err := w.sharesOf(ctx, group, cursors[group])
		if err != nil {
			return nil, false, err
		}
		shares = append(shares, of...)
	}

	return shares, limited, nil
}

// fewShares reads all shares that may run, unless there are many of them or of the groups. What waits behind the limit of a group is passed over:
// an agent that is away, with the messages of thousands before it, costs one step of a look.
func (w *worker) fewShares(ctx context.Context) (shares []Share, limited, all bool, err error) {
	behind, size := Share{Rank: RankResumed - 1}, firstShares
	for range maxLooks {
		page, err := w.queue.store.Shares(ctx, w.kind, behind, size)
		if err != nil || len(page) == 0 {
			return shares, limited, err == nil, err
		}

		full := w.slots.limitedOf(page)
		for _, share := range page {
			if share.Rank != RankResumed && full[share.Group] {
				limited = true
				continue
			}
			shares = append(shares, share)
		}

		switch {
		case len(page) < size:
			return shares, limited, true, nil
		case len(shares) >= maxShares:
			return shares, limited, false, nil
		}
		if behind = page[size-1]; behind.Rank != RankResumed && full[behind.Group] {
			behind = Share{Group: behind.Group, Rank: RankGuest + 1}
		} else {
			size = min(2*size, maxShares-len(shares))
		}
	}
	return shares, limited, false, nil
}

func (w *worker) sharesOf(ctx context.Context, group string, cursors [RankGuest + 1]string) ([]Share, error) {
	shares, err := w.queue.store.Shares(ctx, w.kind, Share{Group: group, Rank: RankResumed - 1}, wideShares)
	if err != nil {
		return nil, err
	}

	wide := len(shares) == wideShares && shares[wideShares-1].Group == group && !w.slots.limitedOf(shares)[group]
	for rank := RankProven; wide && rank <= RankGuest; rank++ {
		behind, err := w.queue.store.Shares(ctx, w.kind, Share{Group: group, Rank: rank, Member: cursors[rank]}, wideShares)
		if err != nil {
			return nil, err
		}
		shares = append(shares, behind...)
	}

	shares = slices.DeleteFunc(shares, func(l Share) bool { return l.Group != group })
	slices.SortFunc(shares, Share.Compare)
	return slices.Compact(shares), nil
}

// pause is how long to wait for a wake-up before looking again.
func (w *worker) pause(ctx context.Context, brought found, failures int) time.Duration {
	poll := w.queue.options.Poll/2 + rand.N(w.queue.options.Poll/2)
	if failures > 0 {
		return min(poll, rand.N(time.Second<<min(failures, 6))+shortPause)
	}

	now := time.Now()
	if brought.claimed > 0 {
		if busy := now.Add(reviveEvery); busy.Before(w.reviveAt) {
			w.reviveAt = busy
		}
		return min(poll, busyPause)
	}

	wait, waits, err := w.queue.store.NextDue(ctx, w.kind)
	if err == nil && waits {
		w.reviveAt = now.Add(wait)
		poll = min(poll, max(wait, shortPause))
	}

	if brought.missed {
		poll = min(poll, shortPause)
	}

	return poll
}
