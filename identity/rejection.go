package identity

// Rejection says why a piece of evidence was not believed. The message goes on without it.
type Rejection struct {
	Code    string `json:"code"`   // evidence:… or credential:…
	Reason  string `json:"reason"` // one line for the operator, without secrets
	Issuer  string `json:"issuer,omitempty"`
	Subject string `json:"subject,omitempty"`
	Method  string `json:"method,omitempty"`
}
