package operator

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"inbox/adapters/activitypub"
	"inbox/agents"
	"inbox/engine/moderation"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/config"
	"inbox/normalized"
)

// AccessStep is one thing that is asked before a sender is let in.
type AccessStep struct {
	Check  string `json:"check"`            // one of the checks below
	Rule   int    `json:"rule,omitempty"`   // of CheckRule: its number, from 1
	Result string `json:"result"`           // one of the results below
	Detail string `json:"detail,omitempty"` // in words: the rule, why it is not about the sender, the entry of a list
}

// Checks, in the order in which they are made.
const (
	CheckEvidence   = "evidence"   // what was proven, and whether it is believed
	CheckPause      = "pause"      // whether the agent rests
	CheckLists      = "lists"      // the operator's lists of who is kept out or let in
	CheckUnverified = "unverified" // what the agent's setting says about senders without proof
	CheckRule       = "rule"       // one of the agent's rules
	CheckSetting    = "access"     // what the agent's setting says where no rule decides
)

// Results of a check.
const (
	StepPasses = "passes" // the next one is asked
	StepAllows = "allows"
	StepHolds  = "holds"
	StepDenies = "denies"
)

// proofs are the methods by which the channels prove their senders.
var proofs = map[string]string{"email": identity.MethodEmailDMARC, "activitypub": identity.MethodActivityPubSignature, "a2a": identity.MethodA2AJWT}

// filled adds to a question what follows from its channel and its address: a channel proves by one method, and mail proves an address.
func (q AccessQuestion) filled(channel string) AccessQuestion {
	q.Method = cmp.Or(q.Method, proofs[channel])
	if q.Method == "" || q.Subject != "" {
		return q
	}

	address, err := identity.ParseAddress(q.Address)
	switch {
	case err != nil:
	case strings.HasPrefix(methodURN(q.Method), "urn:mentionable:auth:email-"):
		q.Subject = "mailto:" + strings.TrimPrefix(address.String(), "@")
	default:
		q.Subject = "acct:" + strings.TrimPrefix(address.String(), "@")
	}
	return q
}

// Why says what would become of a message, or of the use of a tool or a skill, and what is asked on the way: the evidence, the lists of the
// operator and the rules of the agent, in the order in which the server asks them. Nothing is sent and nothing is stored. The channel
// says how its senders are proven where the question does not; empty = none. Limits on how much someone may send are not
// looked at. fault.NotFound for an agent that there is not.
func (o *Operator) Why(ctx context.Context, q AccessQuestion, channel string) (AccessAnswer, error) {
	c := o.options.Current()
	answer, sender, err := checkAccess(c, q.filled(channel))
	if err != nil {
		return AccessAnswer{}, err
	}
	agent, err := configuredAgent(c, q.Agent)
	if err != nil {
		return AccessAnswer{}, err
	}
	listed, err := o.listedAs(ctx, c, sender)
	if err != nil {
		return AccessAnswer{}, err
	}
	paused, err := o.Agents.List(ctx, AgentFilter{Name: agent.Name})
	if err != nil {
		return AccessAnswer{}, err
	}

	way := accessWay{agent: agent, purpose: cmp.Or(q.Purpose, identity.PurposeMessage), sender: sender, answer: &answer}
	way.walk(paused, listed)
	return answer, nil
}

// listedAs asks the operator's lists about a sender.
func (o *Operator) listedAs(ctx context.Context, c *config.Config, sender askedSender) (moderation.Verdict, error) {
	asked := normalized.Sender{Address: sender.address, Identities: sender.believed, Verified: len(sender.believed) > 0}
	if o.options.Listed != nil {
		return o.options.Listed(asked), nil
	}
	lists := moderation.New(moderation.Options{
		Source: o.options.Store, Domain: c.Domain, Hosts: o.options.OwnHosts, OnlyAllowed: c.Federation.Mode == activitypub.ModeAllowlist,
	})
	if _, err := lists.Read(ctx); err != nil {
		return moderation.Verdict{}, err
	}
	return lists.Sender(asked), nil
}

// accessWay writes down what is asked about one sender.
type accessWay struct {
	agent   *config.Agent
	purpose string
	sender  askedSender
	answer  *AccessAnswer
}

func (w accessWay) note(check, result, detail string) {
	w.answer.Steps = append(w.answer.Steps, AccessStep{Check: check, Result: result, Detail: detail})
}

// decide ends the way before the rules are asked, or in another way than they say.
func (w accessWay) decide(outcome, code, reason string) {
	w.answer.Outcome, w.answer.Code, w.answer.Reason, w.answer.Rule, w.answer.Text = outcome, code, reason, 0, ""
}

// walk follows the order of the engine's admission.
func (w accessWay) walk(paused []AgentSummary, listed moderation.Verdict) {
	message, proven := w.purpose == identity.PurposeMessage, len(w.sender.believed) > 0
	w.evidence()

	for _, one := range paused {
		if one.Paused != nil {
			w.note(CheckPause, StepDenies, one.Paused.Reason)
			w.decide(AccessDenied, "", "the agent is paused: mail is refused, others are told to come again")
			return
		}
	}
	if listed.Refused() {
		w.note(CheckLists, StepDenies, listed.Reason)
		w.decide(AccessDenied, listed.Code, listed.Reason)
		return
	}
	w.note(CheckLists, StepPasses, listed.Reason)

	if message && !proven && w.agent.Unverified == agents.UnverifiedRefuse {
		w.note(CheckUnverified, StepDenies, w.answer.Reason)
		return
	}
	if !w.rules() {
		w.otherwise(proven)
	}

	switch {
	case !message || w.answer.Outcome == AccessDenied:
	case listed.Effect == exchange.EffectHold:
		w.note(CheckLists, StepHolds, listed.Reason)
		w.answer.Outcome, w.answer.Code, w.answer.Reason = AccessHeld, listed.Code, listed.Reason
	case !proven:
		w.note(CheckUnverified, map[string]string{AccessHeld: StepHolds, AccessAllowed: StepAllows}[w.answer.Outcome], w.agent.Unverified)
	}
}

func (w accessWay) evidence() {
	switch proof := w.answer.Evidence; {
	case proof == nil:
		w.note(CheckEvidence, StepPasses, "nothing proves the sender")
	case w.answer.Believed:
		w.note(CheckEvidence, StepPasses, fmt.Sprintf("%s says %s is %s (%s)", proof.Issuer, proof.Subject, cmp.Or(proof.Assurance, "-"), proof.Method))
	default:
		w.note(CheckEvidence, StepPasses, "would be rejected: "+w.answer.Doubt)
	}
}

// rules writes down each rule until one decides, and reports whether one did.
func (w accessWay) rules() bool {
	policy := w.agent.AccessPolicy()
	decided := policy.Decide(w.purpose, w.sender.address, w.sender.believed).Rule
	for i, rule := range policy.Rules {
		step := AccessStep{Check: CheckRule, Rule: i + 1, Result: StepPasses, Detail: ruleText(w.agent.Rules[i])}
		if i == decided {
			step.Result = StepDenies
			if rule.Effect == identity.EffectAllow {
				step.Result = StepAllows
			}
			w.answer.Steps = append(w.answer.Steps, step)
			return true
		}
		step.Detail += ": " + w.mismatch(rule)
		w.answer.Steps = append(w.answer.Steps, step)
	}
	return false
}

// mismatch says why a rule is not about the sender.
func (w accessWay) mismatch(rule identity.Rule) string {
	purposes := rule.Purposes
	if len(purposes) == 0 {
		purposes = []string{identity.PurposeMessage}
	}
	if !slices.Contains(purposes, w.purpose) {
		return "it is about " + strings.Join(purposes, ", ")
	}

	var fields []string
	for _, part := range []struct {
		name string
		rule identity.Rule
	}{
		{"issuer", identity.Rule{Effect: rule.Effect, Issuer: rule.Issuer}}, {"method", identity.Rule{Effect: rule.Effect, Method: rule.Method}},
		{"subject", identity.Rule{Effect: rule.Effect, Subject: rule.Subject}}, {"assurance", identity.Rule{Effect: rule.Effect, Assurance: rule.Assurance}},
		{"address", identity.Rule{Effect: rule.Effect, Address: rule.Address}},
	} {
		if !part.rule.Matches(w.sender.address, w.sender.believed) {
			fields = append(fields, part.name)
		}
	}

	switch {
	case len(fields) > 0 && len(w.sender.believed) == 0:
		return "it asks for " + strings.Join(fields, ", ") + ", and nothing proves the sender"
	case len(fields) > 0:
		return "the sender has another " + strings.Join(fields, ", ")
	}
	return "no single piece of evidence fits all of it"
}

// otherwise is what the setting access says where no rule decides.
func (w accessWay) otherwise(proven bool) {
	detail := w.agent.Access
	switch {
	case w.answer.Outcome == AccessAllowed:
		w.note(CheckSetting, StepAllows, detail)
	case w.answer.Outcome == AccessHeld && !proven:
		w.note(CheckSetting, StepPasses, detail)
	default:
		w.note(CheckSetting, StepDenies, detail+": "+w.answer.Reason)
	}
}
