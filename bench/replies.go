package main

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"inbox/e2e/instance"
	"inbox/e2e/load"
)

// replyPatience is how long a measurement waits for replies after the last message.
const replyPatience = 20 * time.Second

// conversation sends one message and waits for its reply. The latency is that of the whole way.
func (w *world) conversation(ctx context.Context, id string, send func() error) error {
	ledger := w.ledger.Load()
	ledger.Sent("", id, time.Now())

	if err := send(); err != nil {
		return err
	}

	ledger.Acknowledged(id)
	select {
	case <-ledger.Answered(id):
		return nil
	case <-time.After(replyPatience):
		return fmt.Errorf("no reply to %s within %s", id, replyPatience)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func measureNoteReplies(ctx context.Context, w *world, _ *instance.Instance) (measurement, error) {
	target, err := w.inbox("echo")
	if err != nil {
		return measurement{}, err
	}

	notes, err := w.meetAndHear(target)
	if err != nil {
		return measurement{}, err
	}

	var next atomic.Int64
	return saturate(ctx, w.duration, noteWindow, func(int) error {
		i := int(next.Add(1)) - 1
		if i >= len(notes) {
			return errUsedUp
		}
		return w.conversation(ctx, notes[i].noteID, func() error { return w.post(target, notes[i]) })
	})
}

// meetAndHear makes the first contact and waits for its replies, so that they do not disturb the measurement.
func (w *world) meetAndHear(target *url.URL) ([]signedNote, error) {
	notes, err := w.meet(target, w.pools.echoNotes)
	if err != nil {
		return nil, err
	}

	for _, note := range w.pools.echoNotes[:persons] {
		select {
		case <-w.ledger.Load().Answered(note.noteID):
		case <-time.After(replyPatience):
			return nil, fmt.Errorf("no reply to the first note %s", note.noteID)
		}
	}
	return notes, nil
}

// measureNoteRepliesOpenLoop sends at a fixed rate. A latency counts from the moment at which the message was due, so
// a server that falls behind cannot hide it.
func measureNoteRepliesOpenLoop(ctx context.Context, w *world, _ *instance.Instance) (measurement, error) {
	target, err := w.inbox("echo")
	if err != nil {
		return measurement{}, err
	}

	notes, err := w.meetAndHear(target)
	if err != nil {
		return measurement{}, err
	}

	ledger := load.NewLedger()
	w.ledger.Store(ledger)
	m, err := w.openLoop(ctx, openLoopPerSecond, notes, func(note signedNote, due time.Time) error {
		ledger.Sent("", note.noteID, due)
		return w.conversation(ctx, note.noteID, func() error { return w.post(target, note) })
	})
	m.latencies = ledger.Latencies("")
	return m, err
}

// openLoop sends notes at a fixed rate. The time of each one counts from the moment at which it was due.
func (w *world) openLoop(ctx context.Context, perSecond int, notes []signedNote, send func(note signedNote, due time.Time) error) (measurement, error) {
	count := min(len(notes), perSecond*int(w.duration/time.Second))
	took := make([]time.Duration, count)
	var failures failures
	var group sync.WaitGroup
	started := time.Now()
	for i, note := range notes[:count] {
		due := started.Add(time.Duration(i) * time.Second / time.Duration(perSecond))
		select {
		case <-time.After(time.Until(due)):
		case <-ctx.Done():
			return measurement{}, ctx.Err()
		}
		group.Go(func() {
			failures.add(send(note, due))
			took[i] = time.Since(due)
		})
	}

	group.Wait()
	m := measurement{latencies: took, elapsed: time.Since(started), errors: failures.count, err: failures.last}
	return m, m.problem()
}

// failures counts errors of many goroutines.
type failures struct {
	mu    sync.Mutex
	count int
	last  error
}

func (f *failures) add(err error) {
	if err == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count++
	f.last = err
}

func measureMailReplies(ctx context.Context, w *world, _ *instance.Instance) (measurement, error) {
	connections := make([]*load.MailSender, mailWindow)
	defer closeAll(connections)
	var next atomic.Int64
	return saturate(ctx, w.duration, mailWindow, func(worker int) error {
		i := int(next.Add(1)) - 1
		if i >= len(w.pools.echoMails) {
			return errUsedUp
		}
		mail := w.pools.echoMails[i]
		return w.conversation(ctx, mail.messageID, func() error { return bring(w.smtp, &connections[worker], mail) })
	})
}
