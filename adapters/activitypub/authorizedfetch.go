package activitypub

import (
	"net/http"

	"inbox/adapters/activitypub/signature"
	"inbox/internal/fault"
)

// mayRead says whether a request may read a document that is open to everybody, and answers it when not. In secure mode
// that is every signer whom the operator does not exclude. The server's own actor is always open: without its key nobody
// could check our own signed requests. Pages for people are no documents; what has none is a document whatever is asked for.
func (v *verifier) mayRead(w http.ResponseWriter, r *http.Request) bool {
	if !v.options.AuthorizedFetch {
		return true
	}
	if err := v.signedByAnybody(r); err != nil {
		w.Header().Add("Vary", "Signature, Signature-Input")
		if fault.Is(err, fault.Unauthenticated) {
			v.offerSignatures(w, r)
		}
		refuse(w, r, err)
		return false
	}
	return true
}

// signedByAnybody proves that some actor signed the request.
func (v *verifier) signedByAnybody(r *http.Request) error {
	if signature.SchemeOf(r.Header) == signature.None {
		return fault.New(fault.Unauthenticated, "this server answers signed requests only")
	}
	signed, err := v.checkClaim(r, nil)
	if err == nil {
		_, err = signature.VerifyWith(v.sourced(r), v.actors, signed.KeyID, func(found *remoteKey) error {
			if v.options.ActorAllowed != nil && !v.options.ActorAllowed(found.actor.ID) {
				return errNotAdmitted
			}
			return signed.Verify(found.key)
		})
	}
	if err != nil {
		return asRefusal(err)
	}
	return nil
}
