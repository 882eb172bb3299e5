package storetest

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/normalized"
	"inbox/policypart"
)

// TrustTx is what is written about trust inside one transaction, beside the pipeline's own rows.
type TrustTx interface {
	pipeline.Tx
	DocumentsTx
	InsertDemand(ctx context.Context, demand policypart.Issuance) error
	SettleDemand(ctx context.Context, demand policypart.Issuance, from []string, read json.RawMessage) (bool, error)
	ResumeTurn(ctx context.Context, turnID string, resolution *policypart.Resolution, trace *normalized.Response, at time.Time) (bool, error)
	PutLink(ctx context.Context, link exchange.PersonLink) error
	Audit(ctx context.Context, record exchange.AuditRecord) error
	InsertDispatch(ctx context.Context, dispatch exchange.Dispatch) error
	FinishDispatch(ctx context.Context, id string, response normalized.Response, at time.Time) (bool, error)
	Dispatches(ctx context.Context, turnID string) ([]exchange.Dispatch, error)
}

// Trust is what demands, audit, people and dispatches need outside transactions.
type Trust interface {
	Demand(ctx context.Context, id string) (policypart.Issuance, error)
	DemandByState(ctx context.Context, hash string) (policypart.Issuance, bool, error)
	DemandOfTurn(ctx context.Context, turnID string) (policypart.Issuance, bool, error)
	DemandByCode(ctx context.Context, codeHash string) (policypart.Issuance, bool, error)
	DueDemands(ctx context.Context, now time.Time, after policypart.Issuance, limit int) ([]policypart.Issuance, error)
	ClaimDemand(ctx context.Context, id, payment string, notes json.RawMessage, now time.Time) (bool, error)
	NoteDemand(ctx context.Context, id, status string, notes json.RawMessage) (bool, error)
	Approvals(ctx context.Context, filter exchange.ApprovalFilter) ([]policypart.Issuance, error)
	Audit(ctx context.Context, record exchange.AuditRecord) error
	AuditRecords(ctx context.Context, filter exchange.AuditFilter) ([]exchange.AuditRecord, error)
	Links(ctx context.Context, before string, limit int) ([]exchange.PersonLink, error)
	LinksOf(ctx context.Context, agent, principal string) ([]exchange.PersonLink, error)
	EndLinks(ctx context.Context, filter exchange.LinkFilter, end exchange.LinkEnd) ([]exchange.PersonLink, error)
	Dispatch(ctx context.Context, id string) (exchange.Dispatch, error)
	CallsIn(ctx context.Context, threadID string) (bool, error)
	Dispatches(ctx context.Context, turnID string) ([]exchange.Dispatch, error)
}

func (p *probe) trust(work func(TrustTx) error) {
	p.Helper()
	if err := p.InTx(p.Context(), work); err != nil {
		p.Fatalf("transaction: %v", err)
	}
}

// race runs attempts at once and fails unless one of them says that it won.
func (p *probe) race(attempt func(i int) (bool, error)) {
	p.Helper()
	const runners = 16
	won := make([]bool, runners)
	var group sync.WaitGroup
	for i := range runners {
		group.Go(func() {
			var err error
			if won[i], err = attempt(i); err != nil {
				p.Errorf("attempt %d: %v", i, err)
			}
		})
	}

	group.Wait()
	winners := 0
	for _, w := range won {
		if w {
			winners++
		}
	}

	if winners != 1 {
		p.Errorf("%d of %d won", winners, runners)
	}
}

// unkeepable are texts that PostgreSQL refuses or that a database would change.
var unkeepable = []string{"a\x00b", "a\xffb"}

func (p *probe) wait(turn exchange.TurnRecord) {
	p.Helper()
	p.trust(func(tx TrustTx) error {
		moved, err := tx.MoveTurn(p.Context(), pipeline.Move{
			ID: turn.ID, From: []string{exchange.StateAccepted}, To: exchange.StateWaiting, Reason: "consent", At: p.now,
		})
		if !moved {
			p.Error("not parked")
		}
		return err
	})
}

var resumeCases = map[string]func(*testing.T, *probe){
	"with what it waited for":      resumeRoundTrip,
	"once":                         resumeOnce,
	"only when waiting":            resumeWaiting,
	"earlier resumptions are kept": resumeKeeps,
}

func (p *probe) resolution() *policypart.Resolution {
	return &policypart.Resolution{
		Kind: policypart.PaymentRequired, Outcome: policypart.OutcomePaid, ResolvedAt: at(p.now), Receipt: "https://pay.example/1",
		ResolvedBy: &policypart.Resolver{Issuer: "a.example", Subject: "alice<1>", Method: "urn:x"},
		Data:       map[string]json.RawMessage{"com.example.n": json.RawMessage(`12345678901234567890.50`)},
	}
}

func trace() *normalized.Response {
	return &normalized.Response{InReplyTo: "m1", Parts: []normalized.Part{normalized.Text("<b>seen\u2028</b>")}}
}

func (p *probe) resume(turnID string, resolution *policypart.Resolution, trace *normalized.Response) bool {
	p.Helper()
	resumed := false
	p.trust(func(tx TrustTx) (err error) {
		resumed, err = tx.ResumeTurn(p.Context(), turnID, resolution, trace, p.now)
		return err
	})
	return resumed
}

func resumeRoundTrip(t *testing.T, p *probe) {
	turn := p.message("m1")
	p.insert(turn)
	p.wait(turn)

	if !p.resume(turn.ID, p.resolution(), trace()) {
		t.Fatal("not resumed")
	}

	want := turn
	want.Reason, want.UpdatedAt = "resumed", p.now
	want.Message.PolicyResolution, want.Message.ReceivedTrace = p.resolution(), trace()
	p.same(want, p.turn(turn.ID))
	p.same([]string{`1 turn.accepted `, `2 turn.waiting {"reason":"consent"}`, `3 turn.accepted {"reason":"resumed"}`}, p.timeline(turn.ID))
	turns, err := p.Records.Turns(t.Context(), exchange.TurnFilter{})
	p.ok(err)
	p.same([]exchange.TurnRecord{want}, turns)
}

func resumeOnce(t *testing.T, p *probe) {
	turn := p.message("m1")
	p.insert(turn)
	p.wait(turn)
	p.race(func(int) (resumed bool, err error) {
		err = p.InTx(t.Context(), func(tx TrustTx) (err error) {
			resumed, err = tx.ResumeTurn(t.Context(), turn.ID, p.resolution(), nil, p.now)
			return err
		})
		return resumed, err
	})

	if rows := p.timeline(turn.ID); len(rows) != 3 {
		t.Errorf("timeline %v", rows)
	}
}

func resumeWaiting(t *testing.T, p *probe) {
	turn := p.message("m1")
	p.insert(turn)
	if p.resume(turn.ID, p.resolution(), nil) || p.resume(newID(), p.resolution(), nil) {
		t.Error("resumed what was not waiting")
	}
	p.same(turn, p.turn(turn.ID))
}

func resumeKeeps(t *testing.T, p *probe) {
	turn := p.message("m1")
	p.insert(turn)
	p.wait(turn)
	p.resume(turn.ID, nil, trace())
	p.wait(turn)
	p.resume(turn.ID, p.resolution(), nil)
	got := p.turn(turn.ID)
	if got.Message.ReceivedTrace == nil || got.Message.PolicyResolution == nil {
		t.Errorf("message %+v", got.Message)
	}
}
