package demand

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/policypart"
)

// noteTries bounds how often a change is tried again because someone else changed the sides of the link at the same moment: each of those
// who can adds one.
const noteTries = maxSides + 1

// confirm takes the consent of an address that sent the word. The word may have come from another person than the asker means, so it makes
// no link: the asker is asked about the address first. Addresses that agree meanwhile wait until the asker has said no.
func (l *links) confirm(ctx context.Context, second policypart.Issuance) error {
	return whileNoted(func() error { return l.tryToConfirm(ctx, second) })
}

func whileNoted(change func() error) (err error) {
	for range noteTries {
		if err = change(); !errors.Is(err, errNoted) {
			return err
		}
	}
	return err
}

func (l *links) tryToConfirm(ctx context.Context, second policypart.Issuance) error {
	first, refusal, err := l.openFor(ctx, second)
	if err != nil {
		return fault.Wrap(fault.Unavailable, "the request cannot be read now; try again", err)
	}

	kept := notesOf(first)
	known := slices.ContainsFunc(kept.Sides, func(one linkWith) bool { return one.Principal == second.Principal })
	switch {
	case refusal != nil:
	case first.Principal == second.Principal || len(first.Asker) == 0 || len(second.Asker) == 0:
		refusal = &policypart.Refusal{Code: policypart.CodePrincipal, Reason: "both sides are the same, or one is not verified"}
	case slices.Contains(kept.Refused, second.Principal):
		refusal = refusedByAsker()
	case !known && len(kept.Sides) >= maxSides:
		refusal = &policypart.Refusal{Code: policypart.CodeUsed, Reason: "too many addresses sent the code word"}
	}
	if refusal != nil {
		return l.audit.refuse(ctx, second, refusal)
	}

	names, err := l.names(ctx, notesOf(second).AgentAddress, sideOf(first))
	if err != nil {
		return err
	}
	endings := []Ending{l.agreed(second, names[0])}
	side := linkWith{Demand: second.ID, Principal: second.Principal}
	switch {
	case first.Purpose == policypart.PurposeLink:
		endings = append(endings, l.asking(first, partner{Sides: []linkWith{side}}, codeLinkAgreed))
	case !known:
		kept.Sides = append(kept.Sides, side)
		waits := first
		waits.Notes, waits.UpdatedAt = kept.raw(), l.now()
		endings = append(endings, Ending{Issuance: waits, From: []string{policypart.StatusIssued}, Read: first.Notes})
	}
	return l.demands.settle(ctx, endings...)
}

// openFor returns the demand of the asker that waits for the word that the second side sent.
func (l *links) openFor(ctx context.Context, second policypart.Issuance) (policypart.Issuance, *policypart.Refusal, error) {
	gone := &policypart.Refusal{Code: policypart.CodeUnknown, Reason: "the other side's demand is gone"}
	first, err := l.store.Demand(ctx, notesOf(second).Partner)
	switch {
	case fault.Is(err, fault.NotFound):
		return first, gone, nil
	case err != nil:
		return first, nil, err
	case !isLink(first) || first.Agent != second.Agent:
		return first, gone, nil
	case first.CheckOpen(l.now()) == nil:
		return first, nil, nil
	}

	// The asker may be asked about another address meanwhile.
	later, found, err := l.store.DemandByCode(ctx, first.CodeHash)
	if found && l.takes(later, second.Agent) {
		return later, nil, err
	}
	return first, first.CheckOpen(l.now()), err
}

// agreed ends the turn of the second side, which reads the name of the first one.
func (l *links) agreed(second policypart.Issuance, first string) Ending {
	now := l.now()
	return Ending{
		Issuance: ended(second, deed{outcome: policypart.OutcomeGranted, by: asker(second)}, now), From: []string{policypart.StatusIssued},
		Response: told(second, fmt.Sprintf("Thank you. %s is now asked about this address. If that side agrees, too, %s treats both as the same person. "+
			"To end that later, send a message that is only the word “unlink”, from either of them.", first, notesOf(second).AgentAddress)),
		State: exchange.StateAnswered,
		Audit: []exchange.AuditRecord{auditRow(second, codeGranted, second.Kind+" "+policypart.OutcomeGranted, now)},
	}
}

// asking lets the asker's turn run again, which asks about the first of the sides (Challenge).
func (l *links) asking(first policypart.Issuance, about partner, code string) Ending {
	now := l.now()
	about.Demand = l.showed(first)
	return Ending{
		Issuance: ended(first, deed{
			outcome: policypart.OutcomeGranted, by: asker(first), data: withData(nil, LinkKey, about),
		}, now),
		From: []string{policypart.StatusIssued}, Resume: true,
		Audit: []exchange.AuditRecord{auditRow(first, code, "the next question is about "+about.Sides[0].Principal, now)},
	}
}

// undecided returns the sides that the asker of a link is still to be asked about.
func undecided(resolution *policypart.Resolution) (bound partner) {
	if resolution != nil {
		_ = json.Unmarshal(resolution.Data[LinkKey], &bound) // that of a link that was made has another shape, without sides
	}
	return bound
}

// completion asks the asker of a link about the first side that is still there.
func (l *links) completion(ctx context.Context, turn exchange.TurnRecord, bound partner) (part policypart.Part, asks bool, err error) {
	if len(bound.Sides) == 0 {
		return part, false, nil
	}

	for ; len(bound.Sides) > 0; bound.Sides = bound.Sides[1:] {
		second, err := l.store.Demand(ctx, bound.Sides[0].Demand)
		switch {
		case err != nil && !fault.Is(err, fault.NotFound):
			return part, false, fault.Wrap(fault.Unavailable, "the link cannot be read now", err)
		case err == nil && consents(second, turn.Agent):
			part, err = l.question(ctx, second, turn, bound)
			return part, err == nil, err
		}
	}
	return part, false, fault.New(fault.Forbidden, "The other address cannot be linked any more. Write again to start over.")
}

// consents reports whether the demand of a second side was agreed to.
func consents(second policypart.Issuance, agent string) bool {
	return second.Purpose == policypart.PurposeLinkConfirm && second.Status == policypart.StatusResolved && second.Agent == agent && len(second.Asker) > 0
}

// question is what the asker has to agree to at last.
func (l *links) question(ctx context.Context, second policypart.Issuance, turn exchange.TurnRecord, bound partner) (policypart.Part, error) {
	sender := turn.Message.Sender
	names, err := l.names(ctx, turn.Message.Recipient, sideOf(second), linkSide(sender.Principal(), resolvers(sender), provenOf(sender)))
	if err != nil {
		return policypart.Part{}, err
	}
	return policypart.Part{
		Kind: policypart.ConsentRequired, Code: CodeLinkComplete, Title: "Is this your other address?",
		Message: fmt.Sprintf("%s sent the code word and agreed to be treated by %s as the same person as %s. "+
			"Agree only if %[1]s is your own address: its owner could then read what you told %[2]s. "+
			"It counts for %[2]s alone, and for these two addresses alone. Either of them ends it with a message that is only the word “unlink”.",
			names[0], turn.Message.Recipient, names[1]),
		ActionLabel: "Link the two addresses",
		Data:        l.bind(CodeLinkComplete, turn, bound),
	}, nil
}

// complete makes one person of the asker and the address that the page names. The asker's turn goes on.
func (l *links) complete(ctx context.Context, first policypart.Issuance) error {
	sides := notesOf(first).Sides
	if len(sides) == 0 { // freeze writes at least one
		return l.audit.refuse(ctx, first, &policypart.Refusal{Code: policypart.CodeUnknown, Reason: "the demand names no other side"})
	}

	second, err := l.store.Demand(ctx, sides[0].Demand)
	switch {
	case err != nil && !fault.Is(err, fault.NotFound):
		return fault.Wrap(fault.Unavailable, "the request cannot be read now; try again", err)
	case err != nil || !consents(second, first.Agent) || second.Principal != sides[0].Principal:
		return l.audit.refuse(ctx, first, &policypart.Refusal{Code: policypart.CodeUnknown, Reason: "the other side's demand is gone"})
	}

	now := l.now()
	link := &exchange.PersonLink{
		ID: exchange.DerivedID(second.ID, "link"), Agent: first.Agent, Sides: [2]exchange.LinkSide{sideOf(first), sideOf(second)}, LinkedAt: now,
		Digest: policypart.Digest(first.Part.Title, first.Part.Message, second.Part.Title, second.Part.Message),
	}
	asked, other := link.Sides[0], link.Sides[1]

	resume := granted(first, deed{
		outcome: policypart.OutcomeGranted, by: asker(first), data: withData(nil, LinkKey, map[string]any{
			"address": other.Address, "identity": policypart.Resolver{Issuer: other.Issuer, Subject: other.Subject, Method: other.Method},
		}),
	}, policypart.StatusIssued, now)
	resume.Link = link
	resume.Audit = append(resume.Audit, auditRow(first, codeLinked, asked.Principal+" and "+other.Principal, now))
	still := Ending{Issuance: second, From: []string{policypart.StatusResolved}} // it may be withdrawn at this moment
	return l.demands.settle(ctx, resume, still)
}

// waitingPage is how many demands are read at once.
const waitingPage = 500

// withdraw takes back the consent of an address about which an asker has not decided; taken is false if there is none.
func (l *links) withdraw(ctx context.Context, turn exchange.TurnRecord) (taken bool, err error) {
	ends, after := l.now(), ""
	for {
		page, err := l.store.WaitingDemands(ctx, turn.Agent, ends, after, waitingPage)
		if err != nil {
			return taken, fault.Wrap(fault.Unavailable, "the consent cannot be withdrawn now", err)
		}
		for _, first := range page {
			for _, side := range notesOf(first).Sides {
				if first.Purpose != policypart.PurposeLinkComplete || side.Principal != turn.Principal {
					continue
				}
				withdrawn, err := l.withdrawSide(ctx, side)
				if err != nil {
					return taken, err
				}
				taken = taken || withdrawn
			}
		}
		if len(page) < waitingPage {
			return taken, nil
		}
		ends, after = page[len(page)-1].ExpiresAt, page[len(page)-1].ID
	}
}

func (l *links) withdrawSide(ctx context.Context, side linkWith) (withdrawn bool, err error) {
	second, err := l.store.Demand(ctx, side.Demand)
	switch {
	case fault.Is(err, fault.NotFound), err == nil && second.Status != policypart.StatusResolved:
		return false, nil
	case err != nil:
		return false, fault.Wrap(fault.Unavailable, "the consent cannot be withdrawn now", err)
	}

	now := l.now()
	err = l.demands.settle(ctx, Ending{
		Issuance: ended(second, deed{outcome: policypart.OutcomeDenied, by: asker(second)}, now), From: []string{policypart.StatusResolved},
		Audit: []exchange.AuditRecord{auditRow(second, codeDenied, second.Kind+" was withdrawn", now)},
	})
	return err == nil, err
}

// decline says no to the address that the page names: the asker is asked about the next one, if there is one.
func (l *links) decline(ctx context.Context, first policypart.Issuance) error {
	return whileNoted(func() error {
		current, err := l.store.Demand(ctx, first.ID)
		if err != nil {
			return fault.Wrap(fault.Unavailable, "the request cannot be read now; try again", err)
		}

		ending := denied(current, asker(current), policypart.StatusIssued, sayDeclined+quoted(current), l.now())
		if kept := notesOf(current); len(kept.Sides) > 1 {
			refused := append(slices.Clone(kept.Refused), kept.Sides[0].Principal)
			ending = l.asking(current, partner{Sides: kept.Sides[1:], Refused: refused}, codeDenied)
		}
		ending.Read = current.Notes
		return l.demands.settle(ctx, ending)
	})
}
