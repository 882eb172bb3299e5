package pull

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"inbox/agents"
	"inbox/agents/upstream"
	"inbox/internal/fault"
	"inbox/normalized"
)

// watch looks after one run until it ends.
type watch struct {
	agent *Agent
	rows  rows
	turn  agents.Turn
	mine  pointer
	fold  *normalized.Fold
	emit  emit

	idle     func()    // ends the count of a turn that a program has
	after    string    // key of the last batch of deltas
	beat     string    // last sign of life
	taken    bool      // by a program
	deadline time.Time // to be taken, or to give the next sign of life
}

var errStopped = errors.New("the engine wants no more deltas")

// follow passes deltas on until the run ends; again = the turn has to be offered once more.
func (w *watch) follow(ctx context.Context) (again bool, err error) {
	wake, leave := w.agent.service.notifier.listen(runTopic(w.mine.Run))
	defer leave()
	defer func() { w.idle() }()
	for {
		found, err := w.read(ctx)
		switch {
		case errors.Is(err, errStopped):
			w.abandon(ctx)
			return false, nil
		case ctx.Err() != nil:
			return false, w.left(ctx)
		case err != nil:
			return false, w.broken(ctx, err)
		case found.end != nil:
			return w.finish(ctx, *found.end)
		case w.turn.Returnable && !w.taken && w.agent.deserted(w.turn.Requires):
			if returned, err := w.giveBack(ctx); returned || err != nil {
				return false, err
			}
			continue
		case !time.Now().Before(w.deadline):
			if decided, err := w.tooLate(ctx); decided || err != nil {
				return false, err
			}
			continue
		}

		timer := time.NewTimer(min(lookEvery, time.Until(w.deadline)))
		select {
		case <-wake:
		case <-timer.C:
		case <-ctx.Done():
		}

		timer.Stop()
	}
}

// read passes new deltas on and takes every sign of life.
func (w *watch) read(ctx context.Context) (status, error) {
	before := w.after
	found, err := w.rows.deltas(ctx, w.mine.Run, w.after, func(key string, batch []byte) error {
		w.after = key
		return w.pass(batch)
	})
	if err != nil {
		return found, err
	}

	began := found.claim != nil && !w.taken
	if began {
		w.idle = w.agent.work(w.turn.Requires)
	}

	if began || found.beat != w.beat || w.after != before {
		w.taken = w.taken || began
		w.beat = found.beat
		w.deadline = time.Now().Add(w.agent.settings.Lease + lookEvery) // a sign on another node is seen later
	}

	return found, nil
}

func (w *watch) pass(batch []byte) error {
	var deltas []json.RawMessage
	if err := decode(batch, &deltas); err != nil {
		return err
	}

	for _, encoded := range deltas {
		delta, err := normalized.DecodeDelta(encoded, w.agent.service.options.Limits)
		if err != nil {
			return upstream.NotUsable(err)
		}

		if delta.Kind == normalized.DeltaResponse && delta.Response != nil {
			complete := delta.Response.Answering(w.turn.Message)
			delta.Response = &complete
		}

		taken, some, err := w.fold.Take(delta)
		if err != nil {
			return upstream.NotUsable(err)
		}
		if some && !w.emit(taken) {
			return errStopped
		}
	}

	return nil
}

// broken classes what ended the run on our side: an unusable answer, or a mailbox that another attempt may reach.
func (w *watch) broken(ctx context.Context, err error) error {
	if !fault.Of(err).Permanent {
		return interrupted(ctx, err)
	}
	w.abandon(ctx)
	return err
}

// giveBack lets a turn wait without a run that no program took and none is there to take. Not returned = another caller was faster.
func (w *watch) giveBack(ctx context.Context) (returned bool, err error) {
	closed, err := w.rows.first(ctx, runSpace+w.mine.Run, claimKey, claim{Closed: true}, nil, w.mine.Until)
	if err != nil || !closed {
		return false, w.orNil(ctx, err)
	}
	w.withdraw(ctx)
	return true, agents.ErrNoWorker
}

// tooLate ends a run that no program took, or whose program is silent. Not decided = another caller was faster.
func (w *watch) tooLate(ctx context.Context) (decided bool, err error) {
	if !w.taken {
		closed, err := w.rows.first(ctx, runSpace+w.mine.Run, claimKey, claim{Closed: true}, nil, w.mine.Until)
		if err != nil || !closed {
			w.deadline = time.Now().Add(lookEvery)
			return false, w.orNil(ctx, err)
		}
		w.withdraw(ctx)
		return true, upstream.Down(0,
			fmt.Errorf("no program took the turn within %s: is one polling /v1/pull/%s/take?", w.agent.settings.MaxWait, w.agent.name))
	}

	before, err := w.rows.end(ctx, w.mine.Run, end{Outcome: lost}, w.mine.Until)
	if err != nil || before != nil {
		return false, w.orNil(ctx, err)
	}

	w.agent.service.ended(w.agent, w.mine.Run)
	return true, upstream.Overdue(fmt.Errorf("the program that took the turn gave no sign of life for %s", w.agent.settings.Lease))
}

func (w *watch) orNil(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	return interrupted(ctx, err)
}

// finish returns the engine what the end of the run says.
func (w *watch) finish(ctx context.Context, how end) (again bool, err error) {
	switch how.Outcome {
	case answered:
		w.complete(how.Response, how.Left)
		w.forgetRequest(ctx)
		return false, nil
	case undelivered:
		return true, nil
	case retried:
		return false, upstream.PutOff(how.After, upstream.Busy, errors.New("the program gave the turn back: "+orUnsaid(how.Reason)))
	case gaveUp:
		return false, upstream.NotTaken(errors.New("the program gave the turn up: " + orUnsaid(how.Reason)))
	default:
		return false, upstream.Overdue(errors.New("the turn was taken over elsewhere"))
	}
}

func orUnsaid(reason string) string {
	if reason == "" {
		return "it gave no reason"
	}
	return reason
}

// complete emits the answer unless it is what the deltas said.
func (w *watch) complete(response *normalized.Response, left normalized.Left) {
	if response == nil {
		return
	}
	response.Left = left

	grown, err := w.fold.Response()
	if err == nil && w.fold.Whole() {
		grown.Clean()
		if grown = grown.Answering(w.turn.Message); grown.Equal(*response) {
			return
		}
	}
	w.emit(normalized.Delta{Kind: normalized.DeltaResponse, Response: response})
}

// left handles the end of ctx. A cause of its own says that someone else will run the turn: the program goes on for them.
func (w *watch) left(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, context.Canceled) || errors.Is(cause, context.DeadlineExceeded) {
		w.abandon(ctx)
	}
	return fmt.Errorf("wait for the answer of a program: %w", cause)
}

// cleanUpTime bounds what is written after a run is over.
const cleanUpTime = 5 * time.Second

// abandon tells the program to stop, unless another attempt looks after the run by now.
func (w *watch) abandon(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTime)
	defer cancel()
	value, found, err := w.rows.mailbox.Get(ctx, turnsSpace+w.agent.name, w.turn.ID)
	var current pointer
	if err == nil && found && decode(value, &current) == nil && current.Owner != w.mine.Owner {
		return
	}

	closed, err := w.rows.first(ctx, runSpace+w.mine.Run, claimKey, claim{Closed: true}, nil, w.mine.Until)
	if err == nil && closed {
		w.withdraw(ctx)
		return
	}

	// What cannot be written now ends by itself with its documents.
	_, _ = w.rows.end(ctx, w.mine.Run, end{Outcome: cancelled}, w.mine.Until)
	w.forgetRequest(ctx)
	w.agent.service.ended(w.agent, w.mine.Run)
}

// withdraw takes a closed offer out of the list; no program can claim what stays behind.
func (w *watch) withdraw(ctx context.Context) {
	_ = w.rows.mailbox.Delete(ctx, offersSpace+w.agent.name, w.mine.Run)
	w.forgetRequest(ctx)
}

// forgetRequest removes the largest document early; it ends by itself otherwise.
func (w *watch) forgetRequest(ctx context.Context) {
	_ = w.rows.mailbox.Delete(ctx, requestsSpace, w.mine.Run)
}
