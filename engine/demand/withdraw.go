package demand

import (
	"context"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/policypart"
)

// codeWithdrawn is the code of the audit row and of the final notice of a demand that the operator took back.
const codeWithdrawn = "demand:withdrawn"

// operators take demands back that wait for their askers. They can meet none of them: consent, a login or money are the asker's to give.
type operators struct {
	store   Store
	demands *registry
	secrets *secrets
	now     func() time.Time
}

// Withdraw ends a demand that no one answered yet, and with it the message that waits for it; its asker is told in one sentence. By is who
// does it, for the record. fault.NotFound without such a demand, and for an approval, which is denied instead; fault.Conflict when it was
// answered or is being settled; fault.Gone when its time is over.
func (o *operators) Withdraw(ctx context.Context, id, by string) error {
	issuance, err := o.store.Demand(ctx, id)
	if fault.Is(err, fault.NotFound) || err == nil && issuance.Purpose == policypart.PurposeApproval {
		return fault.Newf(fault.NotFound, "there is no demand %s", id)
	}
	if err != nil {
		return err
	}

	now := o.now()
	if refusal := issuance.CheckOpen(now); refusal != nil {
		return asFault(refusal)
	}

	ending := o.withdrawn(issuance, by, now)
	if err = o.demands.turns.Settle(ctx, ending); fault.Is(err, fault.Conflict) {
		// The message went on or was cancelled, and left its demand behind.
		if current, err := o.store.Demand(ctx, id); err != nil || current.CheckOpen(now) != nil {
			return fault.New(fault.Conflict, "the demand was answered at this moment")
		}
		ending.Issuance.Status, ending.Response, ending.State = policypart.StatusDropped, nil, ""
		err = unlessConflict(o.demands.turns.Settle(ctx, ending))
	}
	if err == nil {
		demands.WithLabelValues(issuance.Kind, policypart.OutcomeDenied).Inc()
	}
	return err
}

func (o *operators) withdrawn(i policypart.Issuance, by string, now time.Time) Ending {
	resolver := &policypart.Resolver{Issuer: hostOf(o.secrets.base), Subject: by, Method: policypart.MethodOperator}
	ending := denied(i, resolver, policypart.StatusIssued, "The operator of this server ended this request, so nothing was done: "+quoted(i), now)
	ending.Response.Error.Code, ending.Response.Metadata = codeWithdrawn, nil
	ending.Audit = []exchange.AuditRecord{approvalRow(i, codeWithdrawn, by, i.Kind+" was withdrawn by "+by, now)}
	return ending
}
