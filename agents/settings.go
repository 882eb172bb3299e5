package agents

import (
	"maps"
	"slices"
	"strings"
	"time"

	"inbox/history"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/normalized"
)

// Values of Settings.Unverified: what happens to a message whose sender proved nothing.
const (
	UnverifiedAnswer = "answer" // it is answered like any other; the evidence stays honest
	UnverifiedHold   = "hold"   // it is stored and waits for the operator (default)
	UnverifiedRefuse = "refuse" // it is not accepted
)

// DefaultTimeLimit bounds one run of an agent that sets no limit of its own.
const DefaultTimeLimit = 5 * time.Minute

// Settings are the operator's choices for one agent. The zero value is the careful default.
type Settings struct {
	Unverified   string         // see the Unverified constants; empty = hold
	TimeLimit    time.Duration  // of one run; zero = DefaultTimeLimit
	AnswerAgents bool           // other bots are answered too
	History      history.Policy // how much of the thread the agent gets; zero = history.DefaultPolicy
	HistoryScope string         // see the History constants; empty = thread

	// Approvers are the addresses of those who decide about approvals, beside the operator: @user@domain is asked on the
	// fediverse, user@domain by mail.
	Approvers []string
	// ApproverMethods are the methods of evidence that count for one of the Approvers, by its address as it is written there; one
	// that is missing has those of the form of its address: see MethodsOf.
	ApproverMethods map[string][]string
	ApproveReplies  string // see the Approve constants; empty = never
	// ReplyRules decide instead of ApproveReplies about the senders whom they match; the first that matches counts.
	ReplyRules []ReplyRule

	Access  identity.AccessPolicy // who may use the agent for what; zero = public
	MaxHops int                   // ceiling of agents calling agents; zero = DefaultMaxHops

	ShowTools string // what readers see of the calls of tools, see the ShowTools constants; empty = none

	Retry RetryPolicy // how runs are repeated whose back end failed; empty fields have their defaults

	AckAfter time.Duration // a turn that takes longer is acknowledged once, where the protocol does not show it; zero = never
	AckText  string        // plain text of an acknowledgement that has words; empty = DefaultAckText
	AckLike  bool          // it is a mere sign where the protocol has one: a like in the fediverse
}

// ReplyRule says which answers to some senders are held back.
type ReplyRule struct {
	Rule           identity.Rule // its effect is identity.EffectAllow: what it names must be proven
	ApproveReplies string        // see the Approve constants
}

// Values of Settings.ShowTools: what an answer shows of the tools that were called for it (message contract, section 3).
const (
	ShowToolsNone  = "none"
	ShowToolsNames = "names" // their names, and whether they failed
	ShowToolsFull  = "full"  // arguments and results too, without what looks like a secret
)

// Values of Settings.HistoryScope.
const (
	HistoryThread = "thread" // the agent sees the conversation that it is in
	HistoryPerson = "person" // it also sees the other conversations that the same person had with it
)

// Values of Settings.ApproveReplies: which answers are held back until someone lets them pass.
const (
	ApproveNever      = "never"
	ApproveAlways     = "always"
	ApproveUnverified = "unverified" // those to senders who proved nothing
)

// MaxApprovers bounds Settings.Approvers.
const MaxApprovers = 20

// DefaultAckText is what an acknowledgement says where the operator wrote nothing.
const DefaultAckText = "I am working on your message; the answer follows."

// DefaultMaxHops bounds chains of agents where the operator set nothing (message contract, section 7).
const DefaultMaxHops = 4

// WithDefaults returns a copy in which every empty field has its default.
func (s Settings) WithDefaults() Settings {
	if s.Unverified == "" {
		s.Unverified = UnverifiedHold
	}
	if s.TimeLimit == 0 {
		s.TimeLimit = DefaultTimeLimit
	}
	if s.HistoryScope == "" {
		s.HistoryScope = HistoryThread
	}
	if s.ApproveReplies == "" {
		s.ApproveReplies = ApproveNever
	}
	if s.ShowTools == "" {
		s.ShowTools = ShowToolsNone
	}
	if s.Access.Access == "" {
		s.Access.Access = identity.AccessPublic
	}
	if s.MaxHops == 0 {
		s.MaxHops = DefaultMaxHops
	}
	if s.AckText == "" {
		s.AckText = DefaultAckText
	}

	s.Retry = s.Retry.withDefaults()
	if s.History == (history.Policy{}) {
		s.History = history.DefaultPolicy()
	}

	return s
}

// Validate says which setting is not one of the allowed values. It expects defaults to be filled in.
func (s Settings) Validate() error {
	switch s.Unverified {
	case UnverifiedAnswer, UnverifiedHold, UnverifiedRefuse:
	default:
		return fault.InField("unverified", `must be "answer", "hold" or "refuse"`)
	}

	if s.HistoryScope != HistoryThread && s.HistoryScope != HistoryPerson {
		return fault.InField("history.scope", `must be "thread" or "person"`)
	}
	if s.ShowTools != ShowToolsNone && s.ShowTools != ShowToolsNames && s.ShowTools != ShowToolsFull {
		return fault.InField("show_tools", `must be "none", "names" or "full"`)
	}
	if !validApproval(s.ApproveReplies) {
		return fault.InField("approve_replies", `must be "never", "always" or "unverified"`)
	}

	for i := range s.ReplyRules {
		if rule := &s.ReplyRules[i]; !validApproval(rule.ApproveReplies) || rule.Rule.Effect != identity.EffectAllow {
			return fault.InField("reply_rules", `must allow, with "never", "always" or "unverified"`)
		}
	}

	if len(s.Approvers) > MaxApprovers {
		return fault.InField("approvers", "must be at most 20 addresses")
	}

	for _, address := range s.Approvers {
		if _, err := identity.ParseAddress(address); err != nil {
			return fault.InField("approvers", `must be addresses, such as "@owner@social.example" or "owner@example.org"`)
		}
	}

	for address, methods := range s.ApproverMethods {
		unknown := func(method string) bool {
			return !slices.Contains(slices.Collect(maps.Values(ApproverMethods)), method)
		}
		if !slices.Contains(s.Approvers, address) || len(methods) == 0 || slices.ContainsFunc(methods, unknown) {
			return fault.InField("approver_methods", "must name approvers, each with methods of mail or of the fediverse")
		}
	}

	if s.MaxHops < 1 {
		return fault.InField("max_hops", "must be at least 1")
	}
	if s.TimeLimit < 0 {
		return fault.InField("time_limit", "must not be negative")
	}
	if err := s.Retry.validate(); err != nil {
		return err
	}
	if s.AckAfter < 0 {
		return fault.InField("ack_after", "must not be negative")
	}

	return nil
}

// MethodsOf returns the methods of evidence by which a message counts as one of the approver.
func (s Settings) MethodsOf(approver string) []string {
	if named, is := s.ApproverMethods[approver]; is {
		return named
	}
	if strings.HasPrefix(approver, "@") {
		return []string{identity.MethodActivityPubSignature}
	}
	return []string{identity.MethodEmailDMARC, identity.MethodEmailDKIM}
}

// ProvenAs returns the sender with the evidence that counts for an approver: what this server saw itself, by a method that the
// operator named for the address. A token or an attestation speaks for a program, no matter whom it names.
func (s Settings) ProvenAs(approver string, sender normalized.Sender) normalized.Sender {
	methods := s.MethodsOf(approver)
	sender.Identities = slices.DeleteFunc(slices.Clone(sender.Identities), func(evidence identity.Evidence) bool {
		return evidence.Proof.Type != identity.ProofTransport || !slices.Contains(methods, evidence.Method)
	})
	return sender
}

// IsApprover reports whether evidence that counts names one of the approvers as the sender.
func (s Settings) IsApprover(sender normalized.Sender) bool {
	return slices.ContainsFunc(s.Approvers, func(address string) bool {
		counts := func(evidence identity.Evidence) bool { return evidence.Vouches(address) }
		return slices.ContainsFunc(s.ProvenAs(address, sender).Identities, counts)
	})
}

// ApproverMethods are the methods by which an approver may be proven, under the names that the operator writes. All of them are those
// of people at a mail program or an account: a token and an attestation are of programs, which do not approve.
var ApproverMethods = map[string]string{
	"email-dmarc": identity.MethodEmailDMARC, "email-dkim": identity.MethodEmailDKIM,
	"ap-http-signature": identity.MethodActivityPubSignature, "ap-object-proof": identity.MethodActivityPubProof,
}

func validApproval(word string) bool {
	return word == ApproveNever || word == ApproveAlways || word == ApproveUnverified
}

// Decide reports whether the rules let a sender use the agent for a purpose. Rules that keep someone out by address also keep out
// what the caller of that address brings.
func (s Settings) Decide(purpose string, sender normalized.Sender) identity.Decision {
	decision := s.Access.Decide(purpose, sender.Address, sender.Identities)
	if decision.Allowed && !sender.CarriedBy.IsZero() {
		if carrier := s.Access.Decide(purpose, sender.CarriedBy, sender.Identities); carrier.Code == identity.CodeAccessDenied {
			return carrier
		}
	}
	return decision
}

// HoldsReply reports whether an answer to the sender waits until someone lets it pass.
func (s Settings) HoldsReply(sender normalized.Sender) bool {
	word := s.ApproveReplies
	for i := range s.ReplyRules {
		if s.ReplyRules[i].Rule.Matches(sender.Address, sender.Identities) {
			word = s.ReplyRules[i].ApproveReplies
			break
		}
	}
	return word == ApproveAlways || word == ApproveUnverified && sender.Speaker() == nil
}
