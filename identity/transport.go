package identity

import "time"

// TransportProof is what one of our own adapters verified on the wire. All fields but KeyID are required.
type TransportProof struct {
	Domain    string    // our domain: issuer of the evidence and verifier of the proof
	Subject   string    // actor IRI, mailto:user@domain, token:<id>
	Method    string    // one of the Method constants
	Assurance string    // one of the Assurance constants
	Recipient string    // the agent that the message is for, @agent@domain
	KeyID     string    // key URL, DKIM selector and domain, JWT kid
	IssuedAt  time.Time // when we checked, our clock
}

// Transport makes the evidence of a proof that was checked inside our own boundary. Never call it for something that a
// peer claims: evidence with a transport proof that arrives from outside is dropped (message contract, section 10).
func Transport(proof TransportProof) Evidence {
	return Evidence{
		Subject: proof.Subject, Issuer: proof.Domain, Method: proof.Method, Assurance: proof.Assurance,
		Audience: Audience{proof.Recipient}, IssuedAt: At(proof.IssuedAt),
		Proof: Proof{Type: ProofTransport, VerifiedBy: proof.Domain, KeyID: proof.KeyID},
	}
}
