package operator

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"inbox/agents"
	"inbox/identity"
	"inbox/internal/config"
	"inbox/internal/fault"
)

// AccessQuestion asks what the configuration says about a sender. Without issuer, method and subject the sender proved
// nothing.
type AccessQuestion struct {
	Agent     string
	Purpose   string // empty = message
	Address   string // as the sender states it
	Issuer    string // empty = this server itself
	Method    string // a URN, or its name alone: email-dmarc
	Subject   string
	Assurance string // empty = what this server's own proofs have, or what the issuer is trusted for
}

// What becomes of a message, or of the use of a tool or skill.
const (
	AccessAllowed = "allowed"
	AccessHeld    = "held" // a message waits for the operator
	AccessDenied  = "denied"
)

// AccessAnswer says what would happen and why.
type AccessAnswer struct {
	Outcome    string       `json:"outcome"`          // AccessAllowed, AccessHeld or AccessDenied
	Believed   bool         `json:"believed"`         // the evidence would be believed
	Doubt      string       `json:"doubt,omitempty"`  // why it would not
	Rule       int          `json:"rule"`             // number of the rule that decided, from 1; 0 = none
	Text       string       `json:"text,omitempty"`   // that rule
	Code       string       `json:"code,omitempty"`   // of the audit record, when it is denied
	Reason     string       `json:"reason,omitempty"` // why it is denied or held
	Access     string       `json:"access"`           // of the agent
	Unverified string       `json:"unverified"`       // of the agent: what a message without evidence gets
	Evidence   *AccessProof `json:"evidence,omitempty"`

	Steps []AccessStep `json:"steps,omitempty"` // what was asked, in order; from Why alone
}

// AccessProof is the evidence that was checked against the rules, with everything that was filled in.
type AccessProof struct {
	Issuer    string `json:"issuer"`
	Method    string `json:"method"`
	Subject   string `json:"subject"`
	Assurance string `json:"assurance"`
}

// CheckAccess answers from the configuration alone. fault.NotFound for an agent that is not in it.
func CheckAccess(c *config.Config, q AccessQuestion) (AccessAnswer, error) {
	answer, _, err := checkAccess(c, q)
	return answer, err
}

// askedSender is the sender of a question as the rules are asked about it.
type askedSender struct {
	address  identity.StatedAddress
	believed []identity.Evidence
}

func checkAccess(c *config.Config, q AccessQuestion) (answer AccessAnswer, sender askedSender, err error) {
	agent, err := configuredAgent(c, q.Agent)
	if err != nil {
		return AccessAnswer{}, sender, err
	}

	answer = AccessAnswer{Access: agent.Access, Unverified: agent.Unverified}
	believed, err := askedEvidence(c, agent, q, &answer)
	if err != nil {
		return AccessAnswer{}, sender, err
	}
	address := q.Address
	if parsed, err := identity.ParseAddress(address); err == nil {
		address = parsed.String()
	} else if address != "" {
		return AccessAnswer{}, sender, fault.Newf(fault.Malformed, "%q is not an address; write one such as @alice@example.org", q.Address)
	}

	purpose := cmp.Or(q.Purpose, identity.PurposeMessage)
	decision := agent.AccessPolicy().Decide(purpose, identity.Stated(address), believed)
	answer.Rule, answer.Code, answer.Reason = decision.Rule+1, decision.Code, decision.Reason
	answer.Outcome = AccessDenied
	if decision.Allowed {
		answer.Outcome = AccessAllowed
	}
	if decision.Rule >= 0 {
		answer.Text = ruleText(agent.Rules[decision.Rule])
	}
	if purpose == identity.PurposeMessage && len(believed) == 0 {
		answer.unproven()
	}
	return answer, askedSender{identity.Stated(address), believed}, nil
}

// unproven is what admission does beside the rules when nothing proves the sender of a message.
func (a *AccessAnswer) unproven() {
	byRule := a.Rule > 0 && a.Outcome == AccessDenied
	switch {
	case a.Unverified == agents.UnverifiedRefuse:
		a.Outcome, a.Rule, a.Text = AccessDenied, 0, ""
		a.Code, a.Reason = identity.CodeAccessUnverified, "nothing proves who the sender is, and the agent's setting unverified is refuse"
	case a.Unverified == agents.UnverifiedHold && !byRule:
		a.Outcome, a.Code, a.Reason = AccessHeld, "", "nothing proves who the sender is, and the agent's setting unverified is hold"
	}
}

// askedEvidence returns the evidence of the question if it would be believed.
func askedEvidence(c *config.Config, agent *config.Agent, q AccessQuestion, answer *AccessAnswer) ([]identity.Evidence, error) {
	if q.Issuer == "" && q.Method == "" && q.Subject == "" {
		return nil, nil
	}
	if q.Method == "" || q.Subject == "" {
		return nil, fault.New(fault.Malformed, "evidence has a method and a subject; give --method and --subject, or none of them")
	}

	issuer, err := identity.CanonicalIssuer(cmp.Or(q.Issuer, c.Domain))
	if err != nil {
		return nil, fault.Wrap(fault.Malformed, err.Error(), err)
	}
	proof := AccessProof{Issuer: issuer, Method: methodURN(q.Method), Subject: q.Subject, Assurance: q.Assurance}

	recipient := identity.Address{Local: agent.Name, Domain: c.Domain}.String()
	evidence := identity.Evidence{
		Issuer: issuer, Method: proof.Method, Subject: q.Subject, Audience: identity.Audience{recipient}, Proof: identity.Proof{Type: identity.ProofSignedAttestation},
	}
	if own, err := identity.CanonicalIssuer(c.Domain); err == nil && own == issuer {
		evidence = identity.Transport(identity.TransportProof{
			Domain: issuer, Subject: q.Subject, Method: proof.Method, Recipient: recipient, Addressed: identity.AddressedRequest,
		})
		proof.Assurance = cmp.Or(proof.Assurance, ownAssurance[proof.Method])
	} else if answer.Doubt = doubt(c, &proof, time.Now()); answer.Doubt != "" {
		answer.Evidence = &proof
		return nil, nil
	}

	evidence.Assurance = proof.Assurance
	answer.Evidence, answer.Believed = &proof, true
	return []identity.Evidence{evidence}, nil
}

// ownAssurance is what the adapters say about their own proofs.
var ownAssurance = map[string]string{
	identity.MethodActivityPubSignature: identity.AssuranceAddress,
	identity.MethodActivityPubProof:     identity.AssuranceAddress,
	identity.MethodEmailDMARC:           identity.AssuranceDomain,
	identity.MethodEmailDKIM:            identity.AssuranceDomain,
	identity.MethodA2AJWT:               identity.AssuranceAgent,
	identity.MethodA2AOAuth:             identity.AssuranceAgent,
	identity.MethodLocalAgent:           identity.AssuranceAgent,
	identity.MethodLocalOperator:        identity.AssuranceAgent,
}

// doubt returns why no entry of the trust list covers the evidence; empty when one does. An assurance that was not asked
// about becomes that of the entry.
func doubt(c *config.Config, proof *AccessProof, now time.Time) string {
	reason := "no [[trust]] entry names the issuer " + proof.Issuer
	for _, entry := range c.TrustedIssuers() {
		issuer, err := identity.CanonicalIssuer(entry.Issuer)
		switch {
		case err != nil || issuer != proof.Issuer:
		case !entry.Expires.IsZero() && !now.Before(entry.Expires):
			reason = "the [[trust]] entry of " + issuer + " has expired"
		case !slices.Contains(entry.Methods, proof.Method):
			reason = "no [[trust]] entry of " + issuer + " has the method " + proof.Method
		case !slices.ContainsFunc(entry.SubjectPrefixes, func(prefix string) bool { return strings.HasPrefix(proof.Subject, prefix) }):
			reason = "no [[trust]] entry of " + issuer + " covers the subject " + proof.Subject
		case proof.Assurance != "" && !slices.Contains(entry.Assurance, proof.Assurance):
			reason = "no [[trust]] entry of " + issuer + " has the assurance " + proof.Assurance
		default:
			proof.Assurance = cmp.Or(proof.Assurance, entry.Assurance[0])
			return ""
		}
	}
	return reason
}

// methodURN takes a method by its name alone, too.
func methodURN(method string) string {
	if strings.Contains(method, ":") {
		return method
	}
	return "urn:mentionable:auth:" + method + ":v0.1"
}

// ruleText writes a rule as it may stand in the file.
func ruleText(r config.Rule) string {
	parts := []string{r.Effect}
	for _, field := range []struct{ name, value string }{
		{"purposes", strings.Join(r.Purposes, ", ")}, {"issuer", r.Issuer}, {"method", r.Method}, {"subject", r.Subject},
		{"assurance", strings.Join(r.Assurance, ", ")}, {"address", r.Address},
	} {
		if field.value != "" {
			parts = append(parts, field.name+" "+field.value)
		}
	}
	return strings.Join(parts, ", ")
}
