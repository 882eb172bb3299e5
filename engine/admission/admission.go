// Package admission decides whether an agent takes what a sender asks for: one pure function that acceptance follows, and that
// shows operators step by step how it decided.
package admission

import (
	"cmp"

	"inbox/agents"
	"inbox/engine/moderation"
	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
)

// Question is everything that the decision depends on.
type Question struct {
	Purpose  string // empty = identity.PurposeMessage
	Sender   normalized.Sender
	Settings *agents.Settings
	Closed   string             // why the agent takes nothing now; empty = it does, or that was checked before
	Listed   moderation.Verdict // of the operator's lists about the sender
	NoReply  string             // see exchange.Inbound

	// Decides reports whether the message is a decision of one of the agent's approvers, whom the agent hears even if its rules
	// keep them out otherwise. It is called only where that matters. nil = unknown.
	Decides func() bool
}

// Outcome is what becomes of a message, or of the use of a tool or skill.
type Outcome string

// Outcomes.
const (
	Allowed Outcome = "allowed"
	Held    Outcome = "held"   // the message waits for the operator
	Silent  Outcome = "silent" // the message is kept and never answered
	Denied  Outcome = "denied"
)

// Checks, in the order in which they are made. The lists are checked once for who is refused, and once more for who is held.
const (
	CheckPause      = "pause"      // the agent takes messages now
	CheckLists      = "lists"      // the operator's lists of who is kept out or let in
	CheckAutomatic  = "automatic"  // the message is of a kind that is never answered
	CheckUnverified = "unverified" // what the agent's setting says about senders without proof
	CheckApprover   = "approver"   // the sender may approve, whatever the rules say; made only for whom they keep out
	CheckRule       = "rule"       // the agent's rules; the first that is about the sender decides
	CheckSetting    = "access"     // what the agent's setting says where no rule decides
)

// Result is what a check came to.
type Result string

// Results.
const (
	Passes  Result = "passes" // the next check follows
	Allows  Result = "allows"
	Holds   Result = "holds"
	Denies  Result = "denies"
	Ignores Result = "ignores" // the message is never answered
)

// Step is one check.
type Step struct {
	Check  string
	Result Result
	Reason string // for the operator
}

// maxSteps is the most steps of one decision.
const maxSteps = 8

// Answer is the decision. Code and Reason are for the operator; Code is empty where no audit record is due.
type Answer struct {
	Outcome Outcome
	Code    string
	Reason  string
	Rule    int // index of the rule that decided; -1 = none

	steps [maxSteps]Step // no slice, so that a message allocates nothing for them
	count int
}

// Steps returns the checks that were made, in their order.
func (a *Answer) Steps() []Step { return a.steps[:a.count] }

// By returns the check that decided.
func (a *Answer) By() string { return a.steps[a.count-1].Check }

func (a *Answer) note(check string, result Result, reason string) {
	a.steps[a.count] = Step{check, result, reason}
	a.count++
}

// outcomes are what the results that end a decision mean.
var outcomes = map[Result]Outcome{Allows: Allowed, Holds: Held, Denies: Denied, Ignores: Silent}

// end notes the check that decides.
func (a *Answer) end(check string, result Result, code, reason string) Answer {
	a.note(check, result, reason)
	a.Outcome, a.Code, a.Reason = outcomes[result], code, reason
	return *a
}

const (
	reasonRefuse = "nothing proves the sender; the agent's setting unverified is refuse"
	reasonHold   = "nothing proves the sender; the agent's setting unverified is hold"
)

// Decide answers a question: who is refused by the operator's lists, what is never answered, what a sender without proof gets, and
// whom the agent's rules let in (message contract, section 10).
func Decide(q Question) Answer {
	purpose := cmp.Or(q.Purpose, identity.PurposeMessage)
	message, proven := purpose == identity.PurposeMessage, len(q.Sender.Identities) > 0
	answered := q.Settings.Unverified == agents.UnverifiedAnswer
	a := Answer{Rule: -1}

	if q.Closed != "" {
		return a.end(CheckPause, Denies, "", q.Closed)
	}
	if q.Listed.Refused() {
		return a.end(CheckLists, Denies, q.Listed.Code, q.Listed.Reason)
	}
	a.note(CheckLists, Passes, q.Listed.Reason)

	if message && q.NoReply != "" {
		return a.end(CheckAutomatic, Ignores, "", q.NoReply)
	}
	if message && !proven && q.Settings.Unverified == agents.UnverifiedRefuse {
		return a.end(CheckUnverified, Denies, identity.CodeAccessUnverified, reasonRefuse)
	}

	decision := q.Settings.Decide(purpose, q.Sender)
	byRule := decision.Rule >= 0
	check := CheckSetting
	if byRule {
		a.Rule, check = decision.Rule, CheckRule
	}
	if !decision.Allowed {
		switch {
		case !message:
		case q.Decides != nil && q.Decides():
			return a.end(CheckApprover, Allows, "", "")
		case q.Decides == nil && q.Settings.IsApprover(q.Sender):
			a.note(CheckApprover, Passes, "")
		}
		if !message || proven || byRule || answered {
			return a.end(check, Denies, decision.Code, decision.Reason)
		}
	}

	held := message && (q.Listed.Effect == exchange.EffectHold || !proven && !answered)
	if !held {
		return a.end(check, Allows, "", "")
	}
	a.note(check, Passes, "")
	if q.Listed.Effect == exchange.EffectHold {
		return a.end(CheckLists, Holds, q.Listed.Code, q.Listed.Reason)
	}
	return a.end(CheckUnverified, Holds, "", reasonHold)
}
