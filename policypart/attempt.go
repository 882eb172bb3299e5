package policypart

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"slices"
	"strings"
	"time"
)

// Codes of the eight checks, in their order (message contract, section 9), and of a payment that is good and another
// demand's.
const (
	CodeUnknown   = "state:unknown"   // no such demand
	CodeAgent     = "state:agent"     // a demand of another agent
	CodeThread    = "state:thread"    // of another thread or task
	CodePrincipal = "state:principal" // the resolving party is not the asker
	CodeExpired   = "state:expired"   // too late
	CodeUsed      = "state:used"      // settled before, or claimed by another attempt
	CodeTerms     = "state:terms"     // other terms than those frozen at issue
	CodeProof     = "state:proof"     // receipt, grant or login that does not verify
	CodePayment   = "state:payment"   // the payment was offered for another demand before
)

// Refusal says why an attempt to resolve a demand failed.
type Refusal struct {
	Code   string // one of the codes above
	Reason string // one line for the operator, without secrets

	Withdrawn bool // with CodeUsed: no one met the demand; its message was withdrawn, or its asker wrote again
}

// Error returns "code: reason".
func (r *Refusal) Error() string { return r.Code + ": " + r.Reason }

// Attempt is one try to resolve a demand: who tries it, where, with which state and for which terms.
type Attempt struct {
	State     string     // as presented
	Agent     string     // name of the agent that was addressed
	ThreadID  string     // of the message that carries the resolution
	TurnID    string     // of the parked turn that the message names; empty = it names none
	Principal string     // of the message's sender
	Resolvers []Resolver // verified identities of the message's sender
	Resolver  *Resolver  // the one identity that a signed envelope vouches for; it then counts in place of Resolvers

	// Bearer is set where no one is named and holding the state is the proof: it went to the asker alone, in a url of
	// their own. Agent, thread and principal are then those of the demand.
	Bearer bool

	Terms    string // hash of what the resolution is about, see Part.Terms; empty = the kind alone
	Kind     string // of the resolution
	Unproven string // why the receipt or grant was not verified; empty = it was
	At       time.Time
}

// HashState returns what is stored of a state: lower-case hex SHA-256.
func HashState(state string) string {
	sum := sha256.Sum256([]byte(state))
	return hex.EncodeToString(sum[:])
}

// Check holds an attempt against the demand as it was frozen: the eight checks of the message contract, section 9, in
// their order; the first failure is given, nil = all passed. It is pure: that only one of several attempts at the same
// time passes "used" is the work of the conditional update that follows.
func (i Issuance) Check(a Attempt) *Refusal {
	for _, check := range []func(Attempt) *Refusal{
		i.checkState, i.checkPlace, i.checkPrincipal, i.checkOpen, i.checkTerms, checkProof,
	} {
		if refusal := check(a); refusal != nil {
			return refusal
		}
	}
	return nil
}

// CheckOpen returns the refusal of an attempt at a time when no one can resolve the demand any more.
func (i Issuance) CheckOpen(at time.Time) *Refusal { return i.checkOpen(Attempt{At: at}) }

// Open reports whether the demand can be resolved at a time.
func (i Issuance) Open(at time.Time) bool { return i.CheckOpen(at) == nil }

func (i Issuance) checkState(a Attempt) *Refusal {
	if i.ID == "" || subtle.ConstantTimeCompare([]byte(HashState(a.State)), []byte(i.StateHash)) != 1 {
		return &Refusal{Code: CodeUnknown, Reason: "no demand has this state"}
	}
	return nil
}

func (i Issuance) checkPlace(a Attempt) *Refusal {
	switch {
	case a.Bearer:
		return nil
	case !strings.EqualFold(a.Agent, i.Agent):
		return &Refusal{Code: CodeAgent, Reason: "the demand is of agent " + i.Agent}
	case a.ThreadID != i.ThreadID, a.TurnID != "" && a.TurnID != i.TurnID:
		return &Refusal{Code: CodeThread, Reason: "the demand was made in another thread or task"}
	}
	return nil
}

// checkPrincipal wants the identity that was asked, not just its address. A sender must be the principal that was asked, and have
// every identity of the asker: one of them may be a Connector's own, which all of its users share. An asker without any verified identity is
// known by the principal alone, which is marked as unverified and so never meets a verified one.
func (i Issuance) checkPrincipal(a Attempt) *Refusal {
	missing := func(asker Resolver) bool { return !slices.Contains(a.Resolvers, asker) }
	switch {
	case a.Bearer:
		return nil
	case a.Resolver != nil && slices.Contains(i.Asker, *a.Resolver):
		return nil
	case a.Resolver == nil && len(i.Asker) == 0 && a.Principal == i.Principal:
		return nil
	case a.Resolver == nil && len(i.Asker) > 0 && a.Principal == i.Principal && !slices.ContainsFunc(i.Asker, missing):
		return nil
	}
	return &Refusal{Code: CodePrincipal, Reason: "the resolving party is not the asker"}
}

func (i Issuance) checkOpen(a Attempt) *Refusal {
	switch {
	case i.Status == StatusExpired, !a.At.Before(i.ExpiresAt):
		return &Refusal{Code: CodeExpired, Reason: "the demand expired at " + i.ExpiresAt.UTC().Format(time.RFC3339)}
	case i.Status == StatusDropped, i.endedByOperator():
		return &Refusal{Code: CodeUsed, Reason: "the demand was withdrawn", Withdrawn: true}
	case i.Status != StatusIssued:
		return &Refusal{Code: CodeUsed, Reason: "the demand is " + i.Status + " already"}
	}
	return nil
}

// endedByOperator reports whether the operator ended the demand, who can meet none of an asker's: consent, a login and money are theirs to
// give. An approval is the operator's to decide.
func (i Issuance) endedByOperator() bool {
	return i.Status == StatusDenied && i.Purpose != PurposeApproval &&
		i.Resolution != nil && i.Resolution.ResolvedBy != nil && i.Resolution.ResolvedBy.Method == MethodOperator
}

// checkTerms also finds a stored part that does not match the hash made at issue any more.
func (i Issuance) checkTerms(a Attempt) *Refusal {
	if terms, err := i.Part.Terms(); err != nil || terms != i.Action {
		return &Refusal{Code: CodeTerms, Reason: "the stored demand does not match its frozen terms"}
	}

	switch {
	case a.Kind != "" && a.Kind != i.Kind:
		return &Refusal{Code: CodeTerms, Reason: "the demand is for " + i.Kind + ", the resolution for another kind"}
	case a.Terms != "" && a.Terms != i.Action:
		return &Refusal{Code: CodeTerms, Reason: "amount, payee or scopes are not those that were asked for"}
	}
	return nil
}

func checkProof(a Attempt) *Refusal {
	if a.Unproven != "" {
		return &Refusal{Code: CodeProof, Reason: a.Unproven}
	}
	return nil
}
