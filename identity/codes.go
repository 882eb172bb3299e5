package identity

import "strings"

// Codes of a Rejection of evidence, in the order of the steps (message contract, section 10).
const (
	CodeMalformed            = "evidence:malformed"
	CodeLimitExceeded        = "evidence:limit_exceeded"
	CodeOwnProofFromPeer     = "evidence:own_proof_from_peer"
	CodeSelfIssued           = "evidence:self_issued"
	CodeUntrustedIssuer      = "evidence:untrusted_issuer"
	CodeWrongAudience        = "evidence:wrong_audience"
	CodeNotYetValid          = "evidence:not_yet_valid"
	CodeExpired              = "evidence:expired"
	CodeLifetimeExceeded     = "evidence:lifetime_exceeded"
	CodeUnsupportedAlgorithm = "evidence:unsupported_algorithm"
	CodeKeyFetchFailed       = "evidence:key_fetch_failed"
	CodeControllerMismatch   = "evidence:controller_mismatch"
	CodeUnknownKey           = "evidence:unknown_key"
	CodeKeyRetired           = "evidence:key_retired"
	CodeWrongKeyPurpose      = "evidence:wrong_key_purpose"
	CodeInvalidSignature     = "evidence:invalid_signature"
	CodeNotCovered           = "evidence:not_covered"
	CodeDelegation           = "evidence:delegation_not_allowed"
	CodeReplayStoreFailed    = "evidence:replay_store_failed"
	CodeReplayed             = "evidence:replayed"
)

// Codes of a Rejection of a verifiable credential: the fifteen of the profile v0.2 (message contract, section 10).
//
//nolint:gosec // names of codes hold no secret
const (
	CodeCredentialMalformed          = "credential:malformed"
	CodeCredentialLimitExceeded      = "credential:limit_exceeded"
	CodeCredentialProfile            = "credential:unsupported_profile"
	CodeCredentialIssuerMethod       = "credential:unsupported_issuer_method"
	CodeCredentialUntrustedIssuer    = "credential:untrusted_issuer"
	CodeCredentialKeyFetchFailed     = "credential:key_fetch_failed"
	CodeCredentialControllerMismatch = "credential:issuer_controller_mismatch"
	CodeCredentialCryptosuite        = "credential:unsupported_cryptosuite"
	CodeCredentialInvalidSignature   = "credential:invalid_signature"
	CodeCredentialDomainMismatch     = "credential:domain_mismatch"
	CodeCredentialChallengeMismatch  = "credential:challenge_mismatch"
	CodeCredentialNotYetValid        = "credential:not_yet_valid"
	CodeCredentialExpired            = "credential:expired"
	CodeCredentialReplayStoreFailed  = "credential:replay_store_failed"
	CodeCredentialReplayed           = "credential:replayed"
)

// meanings says for each code what was found, as far as the operator can do something about it.
//
//nolint:gosec // names of codes hold no secret
var meanings = map[string]string{
	CodeMalformed:            "not evidence as the contract writes it",
	CodeLimitExceeded:        "over 16 pieces, 32 KiB each or 64 KiB together; all pieces over a common limit are dropped",
	CodeOwnProofFromPeer:     "a transport or bearer proof is made inside of a server and says nothing when it comes from a peer",
	CodeSelfIssued:           "names this server as issuer; what we verified ourselves never comes from a peer",
	CodeUntrustedIssuer:      "no [[trust]] entry in force names this issuer",
	CodeWrongAudience:        "made for somebody else",
	CodeNotYetValid:          "begins in the future; the issuer's clock may be wrong",
	CodeExpired:              "has ended",
	CodeLifetimeExceeded:     "lasts longer than 10 minutes",
	CodeUnsupportedAlgorithm: "not EdDSA with Ed25519 over RFC 8785",
	CodeKeyFetchFailed:       "the issuer's key document could not be had",
	CodeControllerMismatch:   "the key or its document belongs to somebody else than the issuer",
	CodeUnknownKey:           "the issuer publishes no such key",
	CodeKeyRetired:           "the issuer took the key out of rotation",
	CodeWrongKeyPurpose:      "the issuer publishes the key for other purposes than assertions",
	CodeInvalidSignature:     "the signature does not fit what was received",
	CodeNotCovered:           "the [[trust]] entries of the issuer do not cover method, assurance and subject",
	CodeDelegation:           "names on_behalf_of, and no [[trust]] entry that covers it has allow_delegated",
	CodeReplayStoreFailed:    "whether it was used before could not be found out",
	CodeReplayed:             "was used before",

	CodeCredentialMalformed:          "not a credential as the profile writes it",
	CodeCredentialLimitExceeded:      "over 4 credentials, 32 KiB each, 64 KiB together, the length of a text or 10 minutes",
	CodeCredentialProfile:            "contexts, types or status are not those of identity v0.2",
	CodeCredentialIssuerMethod:       "the issuer is no did:web",
	CodeCredentialUntrustedIssuer:    "no [[trust]] entry in force covers issuer, method and subject",
	CodeCredentialKeyFetchFailed:     "the issuer's key could not be had or is out of rotation",
	CodeCredentialControllerMismatch: "the key is not the issuer's or not for assertions",
	CodeCredentialCryptosuite:        "not a DataIntegrityProof with eddsa-jcs-2022 for assertionMethod",
	CodeCredentialInvalidSignature:   "the signature does not fit what was received",
	CodeCredentialDomainMismatch:     "made for another agent",
	CodeCredentialChallengeMismatch:  "made for another message",
	CodeCredentialNotYetValid:        "begins in the future; the issuer's clock may be wrong",
	CodeCredentialExpired:            "has ended",
	CodeCredentialReplayStoreFailed:  "whether it was used before could not be found out",
	CodeCredentialReplayed:           "was used before",
}

// refusal is a step that failed: the code and what exactly was found.
type refusal struct{ code, detail string }

func (r *refusal) Error() string { return r.code + ": " + r.detail }

func refuse(code, detail string) *refusal { return &refusal{code: code, detail: detail} }

const maxReasonBytes = 400

// rejection is written for the operator: the meaning of the code, then what was found.
func (r *refusal) rejection(issuer, subject, method string) Rejection {
	reason := meanings[r.code]
	if r.detail != "" {
		reason += ": " + printable(r.detail)
	}
	return Rejection{Code: r.code, Reason: reason, Issuer: issuer, Subject: subject, Method: method}
}

// printable cuts a text that may quote a peer down to one short line.
func printable(text string) string {
	if len(text) > maxReasonBytes {
		text = text[:maxReasonBytes]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == '\u007f' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, ""))
}
