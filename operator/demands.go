package operator

import (
	"context"
	"strconv"
	"strings"
	"time"

	"inbox/engine/store"
	"inbox/internal/fault"
	"inbox/operator/lookup"
	"inbox/policypart"
)

// Demands are what agents asked back from who wrote to them: consent, a login, a payment, or whether two addresses are one person's. Only
// the asker can meet one. Approvals are not among them: others decide those.
type Demands struct {
	DemandEndings

	store *store.Store
	index *lookup.Index
}

// DemandEndings end demands.
type DemandEndings interface {
	// Withdraw ends one that no one answered, and with it its message; the asker is told. By is who does it, for the record.
	// fault.NotFound, fault.Conflict (answered, or being settled) and fault.Gone (its time is over).
	Withdraw(ctx context.Context, id, by string) error
}

// Demand is one that waits.
type Demand struct {
	ID        string    `json:"id"`
	Kind      string    `json:"kind"`              // of the part: consent_required, unauthorized, payment_required
	Purpose   string    `json:"purpose,omitempty"` // link, link_confirm or link_complete where two addresses may be one person's
	Status    string    `json:"status"`            // issued, or claimed while a payment is being settled
	Agent     string    `json:"agent"`
	TurnID    string    `json:"turn_id"`
	ThreadID  string    `json:"thread_id"`
	Principal string    `json:"principal"`       // for whom it waits
	Asker     string    `json:"asker,omitempty"` // the same, by what is proven; empty = nothing is
	Via       string    `json:"received_via"`
	Title     string    `json:"title,omitempty"`
	Message   string    `json:"message"` // in the words of the agent
	Scopes    []string  `json:"scopes,omitempty"`
	Amount    string    `json:"amount,omitempty"`
	Currency  string    `json:"currency,omitempty"`
	IssuedAt  time.Time `json:"issued_at"`
	ExpiresAt time.Time `json:"expires_at"`
}

// List lists those that wait, the one that ends first first. After is "" or the cursor of the last row of the page before; limit is 1 to 500.
func (d Demands) List(ctx context.Context, agent, after string, limit int) ([]Demand, error) {
	ends, id, err := readDemandCursor(after)
	if err != nil {
		return nil, err
	}
	issuances, err := d.store.WaitingDemands(ctx, agent, ends, id, limit)
	found := []Demand{}
	for i := range issuances {
		found = append(found, demandOf(&issuances[i]))
	}
	return found, err
}

func demandOf(i *policypart.Issuance) Demand {
	one := Demand{
		ID: i.ID, Kind: i.Kind, Purpose: i.Purpose, Status: i.Status, Agent: i.Agent, TurnID: i.TurnID, ThreadID: i.ThreadID,
		Principal: i.Principal, Via: i.Via, Title: i.Part.Title, Message: i.Part.Message, Scopes: i.Part.Scopes,
		Amount: i.Part.Amount, Currency: i.Part.Currency, IssuedAt: i.IssuedAt, ExpiresAt: i.ExpiresAt,
	}
	if len(i.Asker) > 0 {
		one.Asker = i.Asker[0].Subject
	}
	return one
}

// DemandCursor is the cursor of a page behind the demand.
func DemandCursor(d Demand) string {
	return strconv.FormatInt(d.ExpiresAt.UnixMicro(), 10) + "." + d.ID
}

func readDemandCursor(cursor string) (ends time.Time, id string, err error) {
	if cursor == "" {
		return now(), "", nil
	}
	micros, id, found := strings.Cut(cursor, ".")
	number, err := strconv.ParseInt(micros, 10, 64)
	if err != nil || !found {
		return ends, "", fault.InField("after", "is not one that this server gave")
	}
	return time.UnixMicro(number), id, nil
}
