package operator

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"inbox/agents"
	"inbox/engine/admission"
	"inbox/identity"
	"inbox/internal/config"
	"inbox/internal/fault"
	"inbox/normalized"
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
	Automatic bool   // the message is automatic mail, such as a vacation notice or one of a list
}

// AccessAnswer says what would happen and why.
type AccessAnswer struct {
	Outcome    admission.Outcome `json:"outcome"`
	Believed   bool              `json:"believed"`         // the evidence would be believed
	Doubt      string            `json:"doubt,omitempty"`  // why it would not
	Rule       int               `json:"rule"`             // number of the rule that decided, from 1; 0 = none
	Text       string            `json:"text,omitempty"`   // that rule
	Code       string            `json:"code,omitempty"`   // of the audit record
	Reason     string            `json:"reason,omitempty"` // why it is denied, held or not answered
	Access     string            `json:"access"`           // of the agent
	Unverified string            `json:"unverified"`       // of the agent: what a message without evidence gets
	Evidence   *AccessProof      `json:"evidence,omitempty"`

	Steps []AccessStep `json:"steps,omitempty"` // what was checked, in order; from Why alone
}

// AccessProof is the evidence that was checked against the rules, with everything that was filled in.
type AccessProof struct {
	Issuer    string `json:"issuer"`
	Method    string `json:"method"`
	Subject   string `json:"subject"`
	Assurance string `json:"assurance"`
}

// AccessSettings are the settings of an agent that decide who may enter.
func AccessSettings(agent *config.Agent) agents.Settings {
	methods := make(map[string][]string, len(agent.ApproverMethods))
	for _, entry := range agent.ApproverMethods {
		for _, name := range entry.Methods {
			methods[entry.Address] = append(methods[entry.Address], agents.ApproverMethods[name])
		}
	}
	return agents.Settings{Access: agent.AccessPolicy(), Unverified: agent.Unverified, Approvers: agent.Approvers, ApproverMethods: methods}
}

// CheckAccess answers from the configuration alone. fault.NotFound for an agent that is not in it.
func CheckAccess(c *config.Config, q AccessQuestion) (AccessAnswer, error) {
	asked, err := ask(c, q)
	if err != nil {
		return AccessAnswer{}, err
	}
	asked.decide()
	return asked.answer, nil
}

// askedAccess is a question about a sender in the terms of the engine, and its answer.
type askedAccess struct {
	admission.Question
	agent  *config.Agent
	paused string // why the operator paused the agent
	answer AccessAnswer
}

// ask reads what the configuration knows of a question.
func ask(c *config.Config, q AccessQuestion) (*askedAccess, error) {
	agent, err := configuredAgent(c, q.Agent)
	if err != nil {
		return nil, err
	}

	settings := AccessSettings(agent)
	asked := &askedAccess{agent: agent, answer: AccessAnswer{Access: agent.Access, Unverified: agent.Unverified}}
	believed, err := askedEvidence(c, agent, q, &asked.answer)
	if err != nil {
		return nil, err
	}
	address := q.Address
	if parsed, err := identity.ParseAddress(address); err == nil {
		address = parsed.String()
	} else if address != "" {
		return nil, fault.Newf(fault.Malformed, "%q is not an address; write one such as @alice@example.org", q.Address)
	}

	asked.Question = admission.Question{
		Purpose: q.Purpose, Settings: &settings,
		Sender: normalized.Sender{Address: identity.Stated(address), Identities: believed, Verified: len(believed) > 0},
	}
	if q.Automatic {
		asked.NoReply = "automatic mail is never answered"
	}
	return asked, nil
}

// decide answers as the engine does.
func (a *askedAccess) decide() []admission.Step {
	decision := admission.Decide(a.Question)
	a.answer.Outcome, a.answer.Code, a.answer.Reason = decision.Outcome, decision.Code, decision.Reason
	if decision.Rule >= 0 {
		a.answer.Rule, a.answer.Text = decision.Rule+1, ruleText(a.agent.Rules[decision.Rule])
	}
	return decision.Steps()
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
