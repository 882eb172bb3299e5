package storetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/policypart"
)

var demandCases = map[string]func(*testing.T, *probe){
	"come back as they were":            demandRoundTrip,
	"exist once":                        demandConflict,
	"text that a database cannot keep":  demandUnstorable,
	"the newest of a turn":              demandNewest,
	"by code while they are open":       demandByCode,
	"are claimed once":                  demandClaims,
	"are not claimed after they expire": demandExpired,
	"are claimed with a payment each":   demandPayments,
	"race for one payment":              demandPaymentRace,
	"are settled once":                  demandSettled,
	"settled as they are to be":         demandSettlement,
	"notes":                             demandNotes,
	"fall due":                          demandDue,
	"approvals are listed":              demandApprovals,
	"keep notes that are not settled":   demandNotesKept,
}

func at(t time.Time) identity.Time { return identity.At(t) }

// demand makes a demand that is open for an hour.
func (p *probe) demand(turnID string) policypart.Issuance {
	p.now = p.now.Add(time.Millisecond)
	id, expires := newID(), at(p.now.Add(time.Hour))
	return policypart.Issuance{
		ID: id, StateHash: "hash of " + id, TurnID: turnID, Agent: "echo", ThreadID: "thread 1", MessageID: "<m1@peer>",
		Via: "email", Principal: "peer.example alice",
		Asker: []policypart.Resolver{{Issuer: "peer.example", Subject: "acct:alice", Method: "urn:m"}},
		Kind:  policypart.PaymentRequired, Purpose: policypart.PurposeLink, Action: "sha256:aa", Status: policypart.StatusIssued,
		Part: policypart.Part{
			Kind: policypart.PaymentRequired, Message: "2 < 3 & \"more\"\u2028", URL: "https://inbox.example/policy/" + id,
			ExpiresAt: &expires, Accepts: []json.RawMessage{json.RawMessage(`{"amount":12345678901234567890.10,"a":null}`)},
			Data:  map[string]json.RawMessage{"com.example.order": json.RawMessage(`{"z":1,"a":[1e3,-0.0]}`)},
			Extra: map[string]json.RawMessage{"newer": json.RawMessage(`[{}]`)},
		},
		IssuedAt: p.now, ExpiresAt: p.now.Add(time.Hour), UpdatedAt: p.now, Notes: json.RawMessage(`{"b": 1, "a": "<é>"}`),
	}
}

func (p *probe) issue(demands ...policypart.Issuance) {
	p.Helper()
	p.trust(func(tx TrustTx) error {
		for _, demand := range demands {
			if err := tx.InsertDemand(p.Context(), demand); err != nil {
				return err
			}
		}
		return nil
	})
}

func (p *probe) stored(id string) policypart.Issuance {
	p.Helper()
	demand, err := p.Trust.Demand(p.Context(), id)
	p.ok(err)
	return demand
}

func demandRoundTrip(t *testing.T, p *probe) {
	demand, bare := p.demand(newID()), policypart.Issuance{ID: newID(), StateHash: "bare"}
	p.issue(demand, bare)
	p.same(demand, p.stored(demand.ID))
	p.same(bare, p.stored(bare.ID))

	if got := p.stored(demand.ID); string(got.Notes) != string(demand.Notes) {
		t.Errorf("notes %s", got.Notes)
	}

	got, found, err := p.Trust.DemandByState(t.Context(), demand.StateHash)
	if err != nil || !found || got.ID != demand.ID {
		t.Errorf("by state: %+v, %v, %v", got, found, err)
	}

	for _, hash := range append(unkeepable, "", "another") {
		if _, found, err := p.Trust.DemandByState(t.Context(), hash); found || err != nil {
			t.Errorf("state %q: %v, %v", hash, found, err)
		}
	}

	_, err = p.Trust.Demand(t.Context(), newID())
	p.missing(err)
}

func demandConflict(t *testing.T, p *probe) {
	first := p.demand(newID())
	p.issue(first)
	sameID, sameState := p.demand(newID()), p.demand(newID())
	sameID.ID, sameState.StateHash = first.ID, first.StateHash

	for _, demand := range []policypart.Issuance{sameID, sameState} {
		err := p.InTx(t.Context(), func(tx TrustTx) error { return tx.InsertDemand(t.Context(), demand) })
		if !fault.Is(err, fault.Conflict) {
			t.Errorf("got %v, want fault.Conflict", err)
		}
	}
	p.same(first, p.stored(first.ID))
}

func demandUnstorable(t *testing.T, p *probe) {
	for _, bad := range unkeepable {
		for i, change := range []func(*policypart.Issuance){
			func(d *policypart.Issuance) { d.ID = bad }, func(d *policypart.Issuance) { d.StateHash = bad },
			func(d *policypart.Issuance) { d.TurnID = bad }, func(d *policypart.Issuance) { d.Principal = bad },
			func(d *policypart.Issuance) { d.MessageID = bad }, func(d *policypart.Issuance) { d.Kind = bad },
		} {
			demand := p.demand(newID())
			change(&demand)
			err := p.InTx(t.Context(), func(tx TrustTx) error { return tx.InsertDemand(t.Context(), demand) })
			if !fault.Is(err, fault.Malformed) {
				t.Errorf("change %d with %q: %v", i, bad, err)
			}
		}

		demand := p.demand(newID())
		demand.Part.Message, demand.Notes = bad, json.RawMessage(`"`+bad+`"`)
		p.issue(demand) // texts for people are mended
		p.stored(demand.ID)
	}
}

func demandNewest(t *testing.T, p *probe) {
	turnID := newID()
	if _, found, err := p.Trust.DemandOfTurn(t.Context(), turnID); found || err != nil {
		t.Errorf("of no turn: %v, %v", found, err)
	}

	first, second := p.demand(turnID), p.demand(turnID)
	p.issue(second, first, p.demand(newID()))
	got, found, err := p.Trust.DemandOfTurn(t.Context(), turnID)
	if err != nil || !found || got.ID != second.ID {
		t.Errorf("got %+v, %v, %v", got, found, err)
	}
}

func demandByCode(t *testing.T, p *probe) {
	demand := p.demand(newID())
	demand.CodeHash = "code"
	p.issue(demand, p.demand(newID()))
	check := func(code, want string) {
		t.Helper()
		got, found, err := p.Trust.DemandByCode(t.Context(), code)
		if err != nil || found != (want != "") || got.ID != want {
			t.Errorf("%q: %+v, %v, %v", code, got, found, err)
		}
	}

	check("code", demand.ID)
	check("", "")
	check("other", "")
	demand.Status = policypart.StatusDropped
	p.settle(true, demand, policypart.StatusIssued)
	check("code", "")
}

func demandClaims(t *testing.T, p *probe) {
	demand := p.demand(newID())
	p.issue(demand)
	notes := func(i int) string { return fmt.Sprintf(`{"by":%d}`, i) }
	winner := make(chan int, 16)
	p.race(func(i int) (bool, error) {
		claimed, err := p.Trust.ClaimDemand(t.Context(), demand.ID, "", json.RawMessage(notes(i)), p.now)
		if claimed {
			winner <- i
		}
		return claimed, err
	})

	demand.Status, demand.Notes = policypart.StatusClaimed, json.RawMessage(notes(<-winner))
	p.same(demand, p.stored(demand.ID))
}

func demandExpired(t *testing.T, p *probe) {
	demand := p.demand(newID())
	p.issue(demand)
	claim := func(at time.Time) bool {
		claimed, err := p.Trust.ClaimDemand(t.Context(), demand.ID, "", nil, at)
		p.ok(err)
		return claimed
	}
	if claim(demand.ExpiresAt) || claim(demand.ExpiresAt.Add(time.Minute)) {
		t.Error("claimed after its end")
	}
	if !claim(demand.ExpiresAt.Add(-time.Microsecond)) {
		t.Error("not claimed before its end")
	}
	if got := p.stored(demand.ID); string(got.Notes) != string(demand.Notes) {
		t.Errorf("notes %s", got.Notes)
	}
	if claimed, err := p.Trust.ClaimDemand(t.Context(), newID(), "", nil, p.now); claimed || err != nil {
		t.Errorf("claimed nothing: %v, %v", claimed, err)
	}
}

// demandPayments: a payment belongs to the demand that was claimed with it, until that one ends unmet.
func demandPayments(t *testing.T, p *probe) {
	first, second, third := p.demand(newID()), p.demand(newID()), p.demand(newID())
	p.issue(first, second, third)
	claim := func(demand policypart.Issuance, payment, want string) {
		t.Helper()
		claimed, err := p.Trust.ClaimDemand(t.Context(), demand.ID, payment, json.RawMessage(`{"offered":1}`), p.now)
		got := map[bool]string{true: "claimed", false: "not"}[claimed]
		if fault.Is(err, fault.Conflict) && !claimed {
			got, err = "taken", nil
		}
		if err != nil || got != want {
			t.Errorf("claim of %s with %s: %s, %v; want %s", demand.ID, payment, got, err, want)
		}
	}

	claim(first, "payment 1", "claimed")
	claim(first, "payment 1", "not") // the same message once more: it is not another demand's
	claim(first, "payment 2", "not") // and what claims nothing takes no payment
	claim(second, "payment 1", "taken")

	if got := p.stored(second.ID); got.Status != policypart.StatusIssued || string(got.Notes) != string(second.Notes) {
		t.Errorf("a refused claim left %s, %s", got.Status, got.Notes)
	}

	claim(second, "payment 2", "claimed")

	first.Status, first.Notes = policypart.StatusResolved, nil
	p.settle(true, first, policypart.StatusClaimed)
	second.Status, second.Notes = policypart.StatusExpired, nil // its process died after the claim
	p.settle(true, second, policypart.StatusClaimed)
	claim(third, "payment 1", "taken")
	claim(third, "payment 2", "claimed")

	third.Status, third.Notes = policypart.StatusIssued, json.RawMessage(`{"offered":0}`) // its payment could not be checked
	p.settle(true, third, policypart.StatusClaimed)
	p.settle(false, third, policypart.StatusClaimed)
	if got := p.stored(third.ID); got.Status != policypart.StatusIssued || string(got.Notes) != `{"offered":0}` || got.Resolution != nil {
		t.Errorf("a claim that was given back left %s, %s", got.Status, got.Notes)
	}
	fourth := p.demand(newID())
	p.issue(fourth)
	claim(fourth, "payment 2", "claimed")
	claim(third, "payment 2", "taken")
	claim(third, "payment 3", "claimed")
}

// demandPaymentRace: of many demands that are claimed at once with one payment, one gets it.
func demandPaymentRace(t *testing.T, p *probe) {
	demands := make([]policypart.Issuance, 16)
	for i := range demands {
		demands[i] = p.demand(newID())
	}

	p.issue(demands...)
	p.race(func(i int) (bool, error) {
		claimed, err := p.Trust.ClaimDemand(t.Context(), demands[i].ID, "payment", nil, p.now)
		if fault.Is(err, fault.Conflict) {
			err = nil
		}
		return claimed, err
	})

	open := 0
	for _, demand := range demands {
		if p.stored(demand.ID).Status == policypart.StatusIssued {
			open++
		}
	}

	if open != len(demands)-1 {
		t.Errorf("%d demands are open, want all but one of %d", open, len(demands))
	}
}

func (p *probe) settle(want bool, demand policypart.Issuance, from ...string) {
	p.Helper()
	p.trust(func(tx TrustTx) error {
		settled, err := tx.SettleDemand(p.Context(), demand, from, nil)
		if settled != want {
			p.Errorf("settled %v from %v, want %v", settled, from, want)
		}
		return err
	})
}

func demandSettled(t *testing.T, p *probe) {
	demand := p.demand(newID())
	p.issue(demand)
	demand.Status = policypart.StatusDenied
	p.race(func(int) (settled bool, err error) {
		err = p.InTx(t.Context(), func(tx TrustTx) (err error) {
			settled, err = tx.SettleDemand(t.Context(), demand, []string{policypart.StatusIssued, policypart.StatusClaimed}, nil)
			return err
		})
		return settled, err
	})
}

func demandSettlement(_ *testing.T, p *probe) {
	demand := p.demand(newID())
	other := p.demand(newID())
	p.issue(demand, other)
	demand.Status, demand.UpdatedAt, demand.Notes = policypart.StatusResolved, p.now.Add(time.Second), json.RawMessage(`{"tx": "0x1"}`)
	demand.Resolution = p.resolution()
	p.settle(false, demand, policypart.StatusClaimed)
	p.settle(false, demand)
	p.settle(true, demand, policypart.StatusClaimed, policypart.StatusIssued)
	p.same(demand, p.stored(demand.ID))
	for read, want := range map[string]bool{`{"tx": "0x2"}`: false, `{"tx": "0x1"}`: true} { // the notes of the caller are old, or still there
		p.trust(func(tx TrustTx) error {
			settled, err := tx.SettleDemand(p.Context(), demand, []string{demand.Status}, json.RawMessage(read))
			if settled != want {
				p.Errorf("settled %v by the notes %s", settled, read)
			}
			return err
		})
	}
	p.same(other, p.stored(other.ID))
}

func demandNotes(t *testing.T, p *probe) {
	demand := p.demand(newID())
	p.issue(demand)
	note := func(want bool, status string) {
		t.Helper()
		noted, err := p.Trust.NoteDemand(t.Context(), demand.ID, status, json.RawMessage(`{"captured": 1}`))
		if noted != want || err != nil {
			t.Errorf("in %s: %v, %v", status, noted, err)
		}
	}

	note(false, policypart.StatusClaimed)
	note(true, policypart.StatusIssued)

	if got := p.stored(demand.ID); string(got.Notes) != `{"captured": 1}` || got.Status != policypart.StatusIssued {
		t.Errorf("demand %+v", got)
	}
}

func demandDue(t *testing.T, p *probe) {
	now := p.now
	var demands []policypart.Issuance
	for i, c := range []struct {
		status string
		ended  time.Duration
	}{
		{policypart.StatusIssued, time.Second}, {policypart.StatusIssued, -time.Second}, {policypart.StatusClaimed, time.Minute},
		{policypart.StatusClaimed, 3 * time.Minute}, {policypart.StatusResolved, time.Hour}, {policypart.StatusIssued, 0},
	} {
		demand := p.demand(newID())
		demand.MessageID, demand.Status, demand.ExpiresAt = fmt.Sprint(i), c.status, now.Add(-c.ended)
		p.issue(demand)
		demands = append(demands, demand)
	}

	due := func(after policypart.Issuance, limit int) []string {
		t.Helper()
		found, err := p.Trust.DueDemands(t.Context(), now, after, limit)
		p.ok(err)
		ids := []string{}
		for _, demand := range found {
			ids = append(ids, demand.MessageID)
		}
		return ids
	}

	if diff := cmp.Diff([]string{"3", "0", "5"}, due(policypart.Issuance{}, 10)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := due(policypart.Issuance{}, 1); len(got) != 1 || got[0] != "3" {
		t.Errorf("the first of %d: %v", len(demands), got)
	}
	if diff := cmp.Diff([]string{"0", "5"}, due(demands[3], 10)); diff != "" {
		t.Errorf("after the first (-want +got):\n%s", diff)
	}
}

// approval makes a demand that another principal than its asker decides.
func (p *probe) approval(agent, status string) policypart.Issuance {
	demand := p.demand(newID())
	demand.Agent, demand.Purpose, demand.Status = agent, policypart.PurposeApproval, status
	demand.CodeHash = "code of " + demand.ID
	return demand
}

func demandApprovals(t *testing.T, p *probe) {
	open := p.approval("lister", policypart.StatusIssued)
	denied := p.approval("lister", policypart.StatusDenied)
	claimed := p.approval("lister", policypart.StatusClaimed)
	elsewhere := p.approval("other lister", policypart.StatusIssued)
	link := p.demand(newID())
	link.Agent = "lister"
	p.issue(open, denied, claimed, elsewhere, link)
	list := func(filter exchange.ApprovalFilter, want ...policypart.Issuance) {
		t.Helper()
		found, err := p.Trust.Approvals(t.Context(), filter)
		p.ok(err)
		if diff := cmp.Diff(ids(want), ids(found)); diff != "" {
			t.Errorf("%+v: %s", filter, diff)
		}
	}

	list(exchange.ApprovalFilter{Agent: "lister", Limit: 10}, claimed, open)
	list(exchange.ApprovalFilter{Agent: "lister", All: true, Limit: 10}, claimed, denied, open)
	list(exchange.ApprovalFilter{Agent: "lister", All: true, Limit: 2}, claimed, denied)
	list(exchange.ApprovalFilter{Agent: "lister", All: true, Limit: 2, Before: denied.ID}, open)
	list(exchange.ApprovalFilter{CodeHash: denied.CodeHash, All: true, Limit: 10}, denied)
	list(exchange.ApprovalFilter{CodeHash: denied.CodeHash, Limit: 10})
	list(exchange.ApprovalFilter{CodeHash: open.CodeHash, Limit: 10}, open)
	list(exchange.ApprovalFilter{Agent: "nobody", All: true, Limit: 10})
	everybody, err := p.Trust.Approvals(t.Context(), exchange.ApprovalFilter{Limit: 500})
	p.ok(err)

	if found := ids(everybody); !slices.Contains(found, elsewhere.ID) || !slices.Contains(found, open.ID) || slices.Contains(found, link.ID) {
		t.Errorf("of all agents: %v", found)
	}
}

func ids(demands []policypart.Issuance) []string {
	list := make([]string, 0, len(demands))
	for _, demand := range demands {
		list = append(list, demand.ID)
	}
	return list
}

func demandNotesKept(t *testing.T, p *probe) {
	demand := p.demand(newID())
	p.issue(demand)
	settled := demand
	settled.Status, settled.Notes = policypart.StatusResolved, nil
	p.settle(true, settled, policypart.StatusIssued)
	if got := p.stored(demand.ID); string(got.Notes) != string(demand.Notes) || got.Status != policypart.StatusResolved {
		t.Errorf("demand %+v", got)
	}
}
