package operator

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"inbox/adapters/activitypub"
	"inbox/engine/admission"
	"inbox/engine/moderation"
	"inbox/identity"
	"inbox/internal/config"
	"inbox/normalized"
)

// AccessStep is one thing that is checked before a sender is let in.
type AccessStep struct {
	Check  string           `json:"check"`          // CheckEvidence, or one of package admission
	Rule   int              `json:"rule,omitempty"` // of admission.CheckRule: its number, from 1
	Result admission.Result `json:"result"`
	Detail string           `json:"detail,omitempty"` // in words: the rule, why it is not about the sender, the entry of a list
}

// CheckEvidence comes before the checks of package admission: what was proven, and whether it is believed.
const CheckEvidence = "evidence"

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

// Why says what would become of a message, or of the use of a tool or a skill, and what is checked on the way: the evidence, the agent's
// pause, the lists of the operator and the rules of the agent, in the order in which the server checks them. Nothing is sent and nothing
// is stored. The channel says how its senders are proven where the question does not; empty = none. Limits on how much someone may send
// are not looked at. fault.NotFound for an agent that there is not.
func (o *Operator) Why(ctx context.Context, q AccessQuestion, channel string) (AccessAnswer, error) {
	c := o.options.Current()
	asked, err := ask(c, q.filled(channel))
	if err != nil {
		return AccessAnswer{}, err
	}
	if asked.Listed, err = o.listedAs(ctx, c, asked.Sender); err != nil {
		return AccessAnswer{}, err
	}

	paused, err := o.Agents.List(ctx, AgentFilter{Name: asked.agent.Name})
	if err != nil {
		return AccessAnswer{}, err
	}
	for _, one := range paused {
		if one.Paused != nil {
			asked.Closed, asked.paused = "the agent is paused: mail is refused, others are told to come again", one.Paused.Reason
		}
	}

	asked.explain(asked.decide())
	return asked.answer, nil
}

// listedAs asks the operator's lists about a sender.
func (o *Operator) listedAs(ctx context.Context, c *config.Config, sender normalized.Sender) (moderation.Verdict, error) {
	if o.options.Listed != nil {
		return o.options.Listed(sender), nil
	}
	return o.stored(ctx, c, sender)
}

// stored asks the operator's lists about a sender, as the database has them.
func (o *Operator) stored(ctx context.Context, c *config.Config, sender normalized.Sender) (moderation.Verdict, error) {
	lists := moderation.New(moderation.Options{
		Source: o.options.Store, Domain: c.Domain, Hosts: o.options.OwnHosts, OnlyAllowed: c.Federation.Mode == activitypub.ModeAllowlist,
	})
	if _, err := lists.Read(ctx); err != nil {
		return moderation.Verdict{}, err
	}
	return lists.Sender(sender), nil
}

// explain adds the steps of a decision to the answer, each with what it looked at.
func (a *askedAccess) explain(steps []admission.Step) {
	a.answer.Steps = append(a.answer.Steps, AccessStep{Check: CheckEvidence, Result: admission.Passes, Detail: a.evidence()})
	for _, step := range steps {
		shown := AccessStep{Check: step.Check, Result: step.Result, Detail: step.Reason}
		switch step.Check {
		case admission.CheckRule, admission.CheckSetting:
			a.passedRules()
			if step.Check == admission.CheckRule {
				shown.Rule, shown.Detail = a.answer.Rule, a.answer.Text
				break
			}
			shown.Detail = strings.TrimSuffix(a.agent.Access+": "+step.Reason, ": ")
		case admission.CheckPause:
			shown.Detail = a.paused
		case admission.CheckUnverified:
			shown.Detail = cmp.Or(step.Reason, a.agent.Unverified)
		case admission.CheckApprover:
			shown.Detail = "the sender is an approver: a message that decides about an approval is taken"
		}
		a.answer.Steps = append(a.answer.Steps, shown)
	}
}

// evidence says what proves the sender.
func (a *askedAccess) evidence() string {
	switch proof := a.answer.Evidence; {
	case proof == nil:
		return "nothing proves the sender"
	case a.answer.Believed:
		return fmt.Sprintf("%s says %s is %s (%s)", proof.Issuer, proof.Subject, cmp.Or(proof.Assurance, "-"), proof.Method)
	}
	return "would be rejected: " + a.answer.Doubt
}

// passedRules adds the rules that come before the one that decided, or all.
func (a *askedAccess) passedRules() {
	for i, rule := range a.Settings.Access.Rules {
		if i+1 == a.answer.Rule {
			return
		}
		a.answer.Steps = append(a.answer.Steps, AccessStep{
			Check: admission.CheckRule, Rule: i + 1, Result: admission.Passes, Detail: ruleText(a.agent.Rules[i]) + ": " + a.mismatch(rule),
		})
	}
}

// mismatch says why a rule is not about the sender.
func (a *askedAccess) mismatch(rule identity.Rule) string {
	purposes := rule.Purposes
	if len(purposes) == 0 {
		purposes = []string{identity.PurposeMessage}
	}
	if !slices.Contains(purposes, cmp.Or(a.Purpose, identity.PurposeMessage)) {
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
		if !part.rule.Matches(a.Sender.Address, a.Sender.Identities) {
			fields = append(fields, part.name)
		}
	}

	switch {
	case len(fields) > 0 && len(a.Sender.Identities) == 0:
		return "it asks for " + strings.Join(fields, ", ") + ", and nothing proves the sender"
	case len(fields) > 0:
		return "the sender has another " + strings.Join(fields, ", ")
	}
	return "no single piece of evidence fits all of it"
}
