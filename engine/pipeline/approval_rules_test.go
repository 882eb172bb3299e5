package pipeline_test

import (
	"testing"

	"inbox/agents"
	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
)

// held is an agent whose answers someone has to let pass, or not, by rules about the sender.
func heldByRules(own string, rules ...agents.ReplyRule) *script {
	return &script{
		answer:   func(agents.Turn) normalized.Response { return texts("the answer") },
		settings: agents.Settings{Unverified: agents.UnverifiedAnswer, ApproveReplies: own, ReplyRules: rules},
	}
}

func replyRule(address, word string) agents.ReplyRule {
	return agents.ReplyRule{Rule: identity.Rule{Effect: identity.EffectAllow, Address: address}, ApproveReplies: word}
}

func TestRulesSayWhoseAnswersAreHeld(t *testing.T) {
	unproven := from("boss", "unproven", "unproven")
	unproven.Message.Sender.Identities, unproven.Message.Sender.Verified = nil, false
	unproven.Message.Sender.AuthMethod = normalized.AuthNone
	cases := map[string]struct {
		agent *script
		in    exchange.Inbound
		held  bool
	}{
		"a rule holds what the agent lets pass": {
			heldByRules(agents.ApproveNever, replyRule("@ana@peer.test", agents.ApproveAlways)), message("1"), true,
		},
		"a rule lets pass what the agent holds": {
			heldByRules(agents.ApproveAlways, replyRule("@*@peer.test", agents.ApproveNever)), message("1"), false,
		},
		"somebody else keeps the agent's own": {
			heldByRules(agents.ApproveNever, replyRule("@boss@peer.test", agents.ApproveAlways)), message("1"), false,
		},
		"the first rule counts": {
			heldByRules(agents.ApproveNever, replyRule("@ana@peer.test", agents.ApproveNever), replyRule("@*@peer.test", agents.ApproveAlways)),
			message("1"), false,
		},
		"who proves nothing is nobody's exception": {
			heldByRules(agents.ApproveUnverified, replyRule("@boss@peer.test", agents.ApproveNever)), unproven, true,
		},
		"a rule about everybody may look at the proof": {
			heldByRules(agents.ApproveAlways, agents.ReplyRule{Rule: identity.Rule{Effect: identity.EffectAllow}, ApproveReplies: agents.ApproveUnverified}),
			message("1"), false,
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			eachDatabase(t, func(t *testing.T, url string) {
				e, _ := approving(t, url, &script{answer: test.agent.answer, settings: test.agent.settings})
				if test.held {
					turn := e.waits(t, test.in, "approval (reply)")
					e.told(t)
					if said := plain(turn.Response); len(said) != 1 || said[0] == "the answer" {
						t.Errorf("the asker may see %q", said)
					}
					e.answered(t, decision("owner", "o-"+test.in.Message.ID, "approve "+e.open(t).Code))
					e.ends(t, turn.ID, exchange.StateAnswered)
					return
				}
				if turn := e.settled(t, e.receive(t, test.in).TurnID); turn.State != exchange.StateAnswered || plain(turn.Response)[0] != "the answer" {
					t.Errorf("the turn is %s (%s): %v", turn.State, turn.Reason, plain(turn.Response))
				}
			})
		})
	}
}

func TestReplyRulesAreChecked(t *testing.T) {
	for name, rule := range map[string]agents.ReplyRule{
		"a word that is none": replyRule("@ana@peer.test", "sometimes"),
		"a rule that denies":  {Rule: identity.Rule{Effect: identity.EffectDeny}, ApproveReplies: agents.ApproveNever},
	} {
		if err := (agents.Settings{ReplyRules: []agents.ReplyRule{rule}}).WithDefaults().Validate(); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
