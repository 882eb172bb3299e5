package demand

import (
	"context"
	"encoding/json"
	"time"

	"inbox/exchange"
	"inbox/policypart"
)

// Store is what this package needs of the database. Demands are inserted and settled by the pipeline inside its own
// transactions; here they are only found and noted.
type Store interface {
	// Demand returns one demand; fault.NotFound when there is none.
	Demand(ctx context.Context, id string) (policypart.Issuance, error)
	// DemandByState finds a demand by the hash of its state.
	DemandByState(ctx context.Context, hash string) (policypart.Issuance, bool, error)
	// DemandByCode finds the link demand whose code word has the hash.
	DemandByCode(ctx context.Context, codeHash string) (policypart.Issuance, bool, error)
	// DemandOfTurn returns the newest demand of a turn.
	DemandOfTurn(ctx context.Context, turnID string) (policypart.Issuance, bool, error)
	// Approvals lists demands that somebody else than their asker decides, newest first.
	Approvals(ctx context.Context, filter exchange.ApprovalFilter) ([]policypart.Issuance, error)
	// DueDemands returns at most limit demands that are issued and past their time, or claimed and two minutes past it.
	DueDemands(ctx context.Context, now time.Time, limit int) ([]policypart.Issuance, error)
	// ClaimDemand moves a demand from issued to claimed with one conditional update; false = it was not issued any more,
	// or it is past its time. The same transaction remembers the payment, named by facilitator.Payment.Key (empty = none),
	// until the demand ends unmet; fault.Conflict when another demand has it, then nothing is claimed.
	ClaimDemand(ctx context.Context, id, payment string, notes json.RawMessage, now time.Time) (bool, error)
	// NoteDemand replaces the notes of a demand that is in the status; false = it is not.
	NoteDemand(ctx context.Context, id, status string, notes json.RawMessage) (bool, error)
	// Audit stores one audit row.
	Audit(ctx context.Context, record exchange.AuditRecord) error
}
