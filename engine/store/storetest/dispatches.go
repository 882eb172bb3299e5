package storetest

import (
	"testing"
	"time"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/normalized"
)

var dispatchCases = map[string]func(*testing.T, *probe){
	"from call to answer":              dispatchLife,
	"are finished once":                dispatchOnce,
	"of a turn, in order":              dispatchOrder,
	"in a conversation from before":    dispatchBefore,
	"text that a database cannot keep": dispatchUnstorable,
}

func (p *probe) dispatch(turnID string, number int) exchange.Dispatch {
	p.now = p.now.Add(time.Millisecond)
	return exchange.Dispatch{
		ID: newID(), TurnID: turnID, Number: number, Agent: "echo", From: "@echo@inbox.example", To: "@other@b.example",
		ThreadID: "thread of both", Parts: []normalized.Part{normalized.Text("a < b\u2028")},
		Chain: normalized.AgentChain{Hop: 2, MaxHops: 4}, Sender: normalized.Sender{Address: identity.Stated("@alice@peer.example"), AuthMethod: normalized.AuthNone},
		State: exchange.DispatchPending, Combine: true, CreatedAt: p.now, UpdatedAt: p.now,
	}
}

func (p *probe) call(dispatches ...exchange.Dispatch) {
	p.Helper()
	p.trust(func(tx TrustTx) error {
		for _, dispatch := range dispatches {
			if err := tx.InsertDispatch(p.Context(), dispatch); err != nil {
				return err
			}
		}
		return nil
	})
}

func dispatchLife(t *testing.T, p *probe) {
	dispatch := p.dispatch(newID(), 1)
	p.call(dispatch)
	got, err := p.Trust.Dispatch(t.Context(), dispatch.ID)
	p.ok(err)
	p.same(dispatch, got)
	err = p.InTx(t.Context(), func(tx TrustTx) error { return tx.InsertDispatch(t.Context(), dispatch) })
	if !fault.Is(err, fault.Conflict) {
		t.Errorf("second one: %v, want fault.Conflict", err)
	}

	at := p.now.Add(time.Second)
	p.trust(func(tx TrustTx) error {
		finished, err := tx.FinishDispatch(t.Context(), dispatch.ID, *trace(), at)
		if !finished {
			t.Error("not finished")
		}
		return err
	})

	dispatch.State, dispatch.Response, dispatch.UpdatedAt = exchange.DispatchDone, trace(), at
	got, err = p.Trust.Dispatch(t.Context(), dispatch.ID)
	p.ok(err)
	p.same(dispatch, got)
	_, err = p.Trust.Dispatch(t.Context(), newID())
	p.missing(err)
}

func dispatchOnce(t *testing.T, p *probe) {
	dispatch := p.dispatch(newID(), 1)
	p.call(dispatch)
	p.race(func(int) (finished bool, err error) {
		err = p.InTx(t.Context(), func(tx TrustTx) (err error) {
			finished, err = tx.FinishDispatch(t.Context(), dispatch.ID, *trace(), p.now)
			return err
		})
		return finished, err
	})
}

func dispatchOrder(t *testing.T, p *probe) {
	turnID := newID()
	third, first, second := p.dispatch(turnID, 3), p.dispatch(turnID, 1), p.dispatch(turnID, 2)
	p.call(third, first, p.dispatch(newID(), 1), second)
	want := []exchange.Dispatch{first, second, third}
	got, err := p.Trust.Dispatches(t.Context(), turnID)
	p.ok(err)
	p.same(want, got)
	p.trust(func(tx TrustTx) error {
		got, err := tx.Dispatches(t.Context(), turnID)
		p.same(want, got)
		return err
	})
}

func dispatchUnstorable(t *testing.T, p *probe) {
	for _, bad := range unkeepable {
		for i, change := range []func(*exchange.Dispatch){
			func(d *exchange.Dispatch) { d.ID = bad }, func(d *exchange.Dispatch) { d.TurnID = bad },
			func(d *exchange.Dispatch) { d.To = bad }, func(d *exchange.Dispatch) { d.ThreadID = bad },
		} {
			dispatch := p.dispatch(newID(), 1)
			change(&dispatch)
			err := p.InTx(t.Context(), func(tx TrustTx) error { return tx.InsertDispatch(t.Context(), dispatch) })
			if !fault.Is(err, fault.Malformed) {
				t.Errorf("change %d with %q: %v", i, bad, err)
			}
		}
	}
}

// dispatchBefore: calls are found by a conversation whose id is not made of names, and by no other.
func dispatchBefore(t *testing.T, p *probe) {
	before, now := p.dispatch(newID(), 1), p.dispatch(newID(), 1)
	before.ThreadID, now.ThreadID = "dispatch-01", exchange.ConversationID("local", "@other@b.example", alice, "echo thread 1")
	p.call(before, now)
	for threadID, want := range map[string]bool{before.ThreadID: true, now.ThreadID: false, "dispatch-02": false, "": false} {
		if found, err := p.Trust.CallsIn(t.Context(), threadID); found != want || err != nil {
			t.Errorf("calls in %q: %v, %v", threadID, found, err)
		}
	}
}
