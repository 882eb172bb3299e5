package admission_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"inbox/agents"
	"inbox/engine/admission"
	"inbox/engine/moderation"
	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
)

// ann is proven by her mail; her address alone proves nothing.
func ann(proven bool) normalized.Sender {
	sender := normalized.Sender{Address: identity.Stated("@ann@social.example")}
	if proven {
		sender.Identities = []identity.Evidence{identity.Transport(identity.TransportProof{
			Domain: "inbox.example", Subject: "mailto:ann@social.example", Method: identity.MethodEmailDMARC,
			Assurance: identity.AssuranceDomain, Recipient: "@helper@inbox.example", Addressed: identity.AddressedRequest,
		})}
		sender.Verified = true
	}
	return sender
}

func settings(access, unverified string, rules ...identity.Rule) *agents.Settings {
	return &agents.Settings{Access: identity.AccessPolicy{Access: access, Rules: rules}, Unverified: unverified}
}

var (
	refused = moderation.Verdict{Effect: exchange.EffectRefuse, Code: "block:host", Reason: "blocked by the operator: social.example"}
	held    = moderation.Verdict{Effect: exchange.EffectHold, Code: "block:host", Reason: "blocked by the operator: social.example"}
	allow   = identity.Rule{Effect: identity.EffectAllow, Address: "@ann@social.example"}
	deny    = identity.Rule{Effect: identity.EffectDeny, Address: "@*@social.example"}
	tool    = identity.Rule{Effect: identity.EffectAllow, Purposes: []string{"tool:search"}, Method: identity.MethodEmailDMARC}
)

func TestDecide(t *testing.T) {
	approver := settings(identity.AccessRules, agents.UnverifiedHold)
	approver.Approvers = []string{"ann@social.example"}

	for name, one := range map[string]struct {
		question admission.Question
		outcome  admission.Outcome
		by, code string
		rule     int
	}{
		"public, proven":                       {admission.Question{Sender: ann(true), Settings: settings(identity.AccessPublic, agents.UnverifiedRefuse)}, admission.Allowed, admission.CheckSetting, "", -1},
		"public, unproven, answer":             {admission.Question{Sender: ann(false), Settings: settings(identity.AccessPublic, agents.UnverifiedAnswer)}, admission.Allowed, admission.CheckSetting, "", -1},
		"public, unproven, hold":               {admission.Question{Sender: ann(false), Settings: settings(identity.AccessPublic, agents.UnverifiedHold)}, admission.Held, admission.CheckUnverified, "", -1},
		"public, unproven, refuse":             {admission.Question{Sender: ann(false), Settings: settings(identity.AccessPublic, agents.UnverifiedRefuse)}, admission.Denied, admission.CheckUnverified, identity.CodeAccessUnverified, -1},
		"refused by the lists":                 {admission.Question{Sender: ann(true), Settings: settings(identity.AccessPublic, agents.UnverifiedAnswer), Listed: refused}, admission.Denied, admission.CheckLists, "block:host", -1},
		"refused by the lists, automatic":      {admission.Question{Sender: ann(true), Settings: settings(identity.AccessPublic, agents.UnverifiedAnswer), Listed: refused, NoReply: "a list"}, admission.Denied, admission.CheckLists, "block:host", -1},
		"held by the lists":                    {admission.Question{Sender: ann(true), Settings: settings(identity.AccessPublic, agents.UnverifiedAnswer), Listed: held}, admission.Held, admission.CheckLists, "block:host", -1},
		"held by the lists, closed by a rule":  {admission.Question{Sender: ann(true), Settings: settings(identity.AccessPublic, agents.UnverifiedAnswer, deny), Listed: held}, admission.Denied, admission.CheckRule, identity.CodeAccessDenied, 0},
		"automatic":                            {admission.Question{Sender: ann(false), Settings: settings(identity.AccessRules, agents.UnverifiedRefuse), NoReply: "a vacation notice"}, admission.Silent, admission.CheckAutomatic, "", -1},
		"let in by a rule":                     {admission.Question{Sender: ann(true), Settings: settings(identity.AccessRules, agents.UnverifiedRefuse, allow, deny)}, admission.Allowed, admission.CheckRule, "", 0},
		"kept out by a rule, unproven, hold":   {admission.Question{Sender: ann(false), Settings: settings(identity.AccessPublic, agents.UnverifiedHold, allow, deny)}, admission.Denied, admission.CheckRule, identity.CodeAccessDenied, 1},
		"no rule, proven":                      {admission.Question{Sender: ann(true), Settings: settings(identity.AccessRules, agents.UnverifiedHold)}, admission.Denied, admission.CheckSetting, identity.CodeAccessNoRule, -1},
		"no rule, unproven, hold":              {admission.Question{Sender: ann(false), Settings: settings(identity.AccessRules, agents.UnverifiedHold)}, admission.Held, admission.CheckUnverified, "", -1},
		"no rule, unproven, answer":            {admission.Question{Sender: ann(false), Settings: settings(identity.AccessRules, agents.UnverifiedAnswer)}, admission.Denied, admission.CheckSetting, identity.CodeAccessNoRule, -1},
		"an approver decides":                  {admission.Question{Sender: ann(true), Settings: approver, Decides: func() bool { return true }}, admission.Allowed, admission.CheckApprover, "", -1},
		"an approver says something else":      {admission.Question{Sender: ann(true), Settings: approver, Decides: func() bool { return false }}, admission.Denied, admission.CheckSetting, identity.CodeAccessNoRule, -1},
		"an approver, in general":              {admission.Question{Sender: ann(true), Settings: approver}, admission.Denied, admission.CheckSetting, identity.CodeAccessNoRule, -1},
		"paused":                               {admission.Question{Sender: ann(true), Settings: settings(identity.AccessPublic, agents.UnverifiedAnswer), Listed: refused, Closed: "paused"}, admission.Denied, admission.CheckPause, "", -1},
		"a tool without a rule":                {admission.Question{Purpose: "tool:search", Sender: ann(true), Settings: settings(identity.AccessPublic, agents.UnverifiedAnswer)}, admission.Denied, admission.CheckSetting, identity.CodeAccessNoRule, -1},
		"a tool with a rule":                   {admission.Question{Purpose: "tool:search", Sender: ann(true), Settings: settings(identity.AccessRules, agents.UnverifiedHold, allow, tool), Listed: held}, admission.Allowed, admission.CheckRule, "", 1},
		"a tool for who is only a name":        {admission.Question{Purpose: "tool:search", Sender: ann(false), Settings: settings(identity.AccessRules, agents.UnverifiedHold, tool)}, admission.Denied, admission.CheckSetting, identity.CodeAccessNoRule, -1},
		"a tool of who is refused by the list": {admission.Question{Purpose: "tool:search", Sender: ann(true), Settings: settings(identity.AccessRules, agents.UnverifiedHold, tool), Listed: refused}, admission.Denied, admission.CheckLists, "block:host", -1},
	} {
		t.Run(name, func(t *testing.T) {
			got := admission.Decide(one.question)
			if got.Outcome != one.outcome || got.By() != one.by || got.Code != one.code || got.Rule != one.rule {
				t.Errorf("%s by %s, code %q, rule %d; want %s by %s, code %q, rule %d\n%+v",
					got.Outcome, got.By(), got.Code, got.Rule, one.outcome, one.by, one.code, one.rule, got.Steps())
			}
		})
	}
}

// TestStepsOfAnApprover: an operator who asks about an approver sees that a decision of theirs would be taken.
func TestStepsOfAnApprover(t *testing.T) {
	approver := settings(identity.AccessRules, agents.UnverifiedHold)
	approver.Approvers = []string{"ann@social.example"}
	mayApprove := func(sender normalized.Sender) bool {
		answer := admission.Decide(admission.Question{Sender: sender, Settings: approver})
		return slices.ContainsFunc(answer.Steps(), func(s admission.Step) bool { return s.Check == admission.CheckApprover })
	}
	if !mayApprove(ann(true)) {
		t.Error("no step says that a proven approver is heard")
	}
	if mayApprove(ann(false)) {
		t.Error("who only states an approver's address is shown as an approver")
	}
}

// TestDecisionsHold: whatever the settings, the last step decides and only the last, nobody whom the lists refuse gets in, nobody without
// proof gets in where the setting does not say answer, and what opens nothing for a stranger opens nothing for automatic mail.
func TestDecisionsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := rapid.SliceOfN(rapid.SampledFrom([]identity.Rule{allow, deny, tool}), 0, 3).Draw(t, "rules")
		question := admission.Question{
			Purpose: rapid.SampledFrom([]string{"", identity.PurposeMessage, "tool:search"}).Draw(t, "purpose"),
			Sender:  ann(rapid.Bool().Draw(t, "proven")),
			Settings: settings(rapid.SampledFrom([]string{identity.AccessPublic, identity.AccessVerified, identity.AccessRules}).Draw(t, "access"),
				rapid.SampledFrom([]string{agents.UnverifiedAnswer, agents.UnverifiedHold, agents.UnverifiedRefuse}).Draw(t, "unverified"), rules...),
			Listed:  rapid.SampledFrom([]moderation.Verdict{{}, held, refused}).Draw(t, "listed"),
			NoReply: rapid.SampledFrom([]string{"", "a vacation notice"}).Draw(t, "automatic"),
			Closed:  rapid.SampledFrom([]string{"", "paused"}).Draw(t, "closed"),
		}
		decided := rapid.SampledFrom([]func() bool{nil, func() bool { return false }, func() bool { return true }}).Draw(t, "decides")
		question.Decides = decided
		answer := admission.Decide(question)

		means := map[admission.Result]admission.Outcome{
			admission.Allows: admission.Allowed, admission.Holds: admission.Held, admission.Denies: admission.Denied, admission.Ignores: admission.Silent,
		}
		for i, step := range answer.Steps() {
			last := i == len(answer.Steps())-1
			if outcome, ends := means[step.Result]; ends != last || last && outcome != answer.Outcome {
				t.Fatalf("outcome %s, steps %+v", answer.Outcome, answer.Steps())
			}
		}

		proven := len(question.Sender.Identities) > 0
		message := question.Purpose != "tool:search"
		byApprover := message && decided != nil && decided()
		switch {
		case answer.Outcome != admission.Allowed:
		case question.Listed.Refused(), question.Closed != "":
			t.Fatalf("let in: %+v", answer.Steps())
		case message && question.NoReply != "":
			t.Fatalf("automatic mail would be answered: %+v", answer.Steps())
		case message && !proven && question.Settings.Unverified != agents.UnverifiedAnswer && !byApprover:
			t.Fatalf("let in without proof: %+v", answer.Steps())
		}
		if answer.Outcome != admission.Allowed && answer.Reason == "" {
			t.Fatalf("%s without a reason: %+v", answer.Outcome, answer.Steps())
		}
	})
}

func BenchmarkDecide(b *testing.B) {
	question := admission.Question{Sender: ann(true), Settings: settings(identity.AccessPublic, agents.UnverifiedHold)}
	b.ReportAllocs()
	for b.Loop() {
		if answer := admission.Decide(question); answer.Outcome != admission.Allowed {
			b.Fatal(answer.Reason)
		}
	}
}
