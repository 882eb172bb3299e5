package activitypub

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/signature"
	"inbox/internal/clip"
	"inbox/internal/fault"
)

// scheme: draft-cavage, rfc9421, eddsa-jcs-2022, origin-fetch, none. result: ok, refused
var verifications = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_activitypub_signatures_total", Help: "Incoming activities by how their actor was proven and the result.",
}, []string{"scheme", "result"})

// verifier decides who made a request, and what it takes to be read or answered.
type verifier struct {
	*site
	fetcher *fetcher
	actors  *actors

	refusals      *counter // by network address
	confirmations *counter // by relaying host
}

// proven is who really acts.
type proven struct {
	actor  *remoteActor
	keyID  string
	scheme string
	relay  string // actor who brought the activity of another actor; empty = the actor itself

	// request says that the actor's own server sent this request to this host: its signature covers method, path, host and body.
	// A proof inside an activity, or what the actor's server shows, says nothing of the kind: everyone who has read it can bring it.
	request bool

	// proofProblem says what is wrong with the object proof of an activity that is proven otherwise; empty = the proof is right, or
	// there is none.
	proofProblem string
}

// presented is what a request offers as proof, after every check that needs no key.
type presented struct {
	signed  signature.Claim // without KeyID = the request is not signed
	proofs  []signature.Proof
	problem error // no proof can be right, which the actor's own signature makes up for
}

// authenticate proves that in.actor did what the activity says: by the signature of the request, by a proof inside the
// activity, or by asking the actor's own server. Everything that can be judged without a key comes first, so a bad
// request never makes us connect anywhere. The errors are faults.
func (v *verifier) authenticate(r *http.Request, in *incoming) (proven, error) {
	shown, err := v.checkRequest(r, in)
	if err == nil {
		var by proven
		if by, err = v.verifyRequest(v.sourced(r), in, shown); err == nil {
			verifications.WithLabelValues(by.scheme, "ok").Inc()
			return by, nil
		}
	}

	verifications.WithLabelValues(signature.SchemeOf(r.Header), "refused").Inc()
	return proven{}, asRefusal(err)
}

func asRefusal(err error) error {
	if _, classed := errors.AsType[*fault.Fault](err); classed {
		return err
	}
	return fault.Wrap(fault.Unauthenticated, publicReason(err), err)
}

// authenticateReader proves that actor asks for one of our documents.
func (v *verifier) authenticateReader(r *http.Request, actor string) error {
	signed, err := v.checkClaim(r, nil)
	if err != nil {
		return err
	}
	if !document.SameOrigin(signed.KeyID, actor) {
		return errForeignKey
	}

	_, err = signature.VerifyWith(v.sourced(r), v.actors, signed.KeyID, func(found *remoteKey) error {
		if found.actor.ID != actor {
			return errOtherOwner
		}
		return signed.Verify(found.key)
	})
	return err
}

var (
	errForeignKey = errors.New("the key is not on the actor's server")
	errOtherOwner = errors.New("the key belongs to another actor")
)

// checkRequest judges signature and proofs as far as that goes without their keys. Another actor's activity is taken
// further only if a proof or its own server can still confirm it.
func (v *verifier) checkRequest(r *http.Request, in *incoming) (shown presented, err error) {
	if signature.SchemeOf(r.Header) != signature.None {
		if shown.signed, err = v.checkClaim(r, in.body); err != nil {
			return shown, err
		}
	}

	shown.proofs, shown.problem = signature.ReadProofs(in.body, in.activity, in.actor, v.now())
	switch {
	case shown.problem != nil && (shown.signed.KeyID == "" || !document.SameOrigin(shown.signed.KeyID, in.actor) && !in.confirmable()):
		return shown, shown.problem
	case len(shown.proofs) > 0:
		return shown, nil
	case shown.signed.KeyID == "":
		return shown, errors.New("request is not signed")
	case !document.SameOrigin(shown.signed.KeyID, in.actor) && !in.confirmable():
		return shown, errForeignKey // key and owner share an origin, so it can never be the actor's
	}

	return shown, nil
}

func (v *verifier) checkClaim(r *http.Request, body []byte) (signed signature.Claim, err error) {
	signed, err = signature.Check(signature.Request{
		Method: r.Method, Target: requestTarget(r), Host: r.Host, Origin: v.base, Header: r.Header, Body: body,
		AnyHost: v.options.UnsignedHost,
	}, v.now())
	if err != nil {
		return signature.Claim{}, err
	}
	if !v.meansUs(r.Host) {
		return signature.Claim{}, errors.New("signature was made for another host")
	}
	if !v.isRemote(signed.KeyID) {
		return signature.Claim{}, errors.New("keyId is not an address on another server")
	}
	if !v.admits(document.HostOf(signed.KeyID)) {
		return signature.Claim{}, errNotAdmitted
	}
	signed.KeyID = document.Canonical(signed.KeyID)
	return signed, nil
}

// errNotAdmitted is the answer to those whom the operator excludes.
var errNotAdmitted = fault.New(fault.Forbidden, "this server does not accept messages from yours")

// requestTarget returns path and query as they came: Go's parsed URL has lost the escapes that were signed.
func requestTarget(r *http.Request) string {
	if strings.HasPrefix(r.RequestURI, "/") {
		return r.RequestURI
	}
	return r.URL.RequestURI() // absolute form, or a request that never was on a wire
}

// verifyRequest does the arithmetic. The signature of the actor suffices: a proof that is wrong beside it is only noted in
// the evidence, because peers that change an activity after they proved it (or prove it with an old key) would otherwise lose
// their messages. What another actor brings needs a right proof, or the word of the actor's own server: a proof that cannot be used
// counts as none, because the server that forwards could leave it out.
func (v *verifier) verifyRequest(ctx context.Context, in *incoming, shown presented) (proven, error) {
	var signer proven
	if signed := shown.signed; signed.KeyID != "" {
		found, err := signature.VerifyWith(ctx, v.keysFor(in), signed.KeyID, func(found *remoteKey) error { return signed.Verify(found.key) })
		if err != nil {
			return proven{}, err
		}
		signer = proven{actor: found.actor, keyID: signed.KeyID, scheme: signed.Scheme, request: signed.ForHost}
	}

	direct := signer.actor != nil && signer.actor.ID == in.actor
	problem := shown.problem
	if len(shown.proofs) > 0 {
		by, err := v.verifyProofs(ctx, shown.proofs, in, !direct)
		if err == nil && !direct {
			by.relay = signer.name()
			return by, nil
		}
		problem = err
	}

	switch {
	case direct && problem != nil:
		signer.proofProblem = "failed: " + publicReason(problem)
		verifications.WithLabelValues(signature.ProofSuite, "refused").Inc()
		return signer, nil
	case direct:
		return signer, nil
	case problem != nil && (signer.actor == nil || !in.confirmable() || fault.Is(problem, fault.Unavailable) || fault.Is(problem, fault.RateLimited)):
		return proven{}, problem
	}

	by, err := v.confirm(ctx, in, signer)
	switch {
	case problem == nil:
	case err != nil && !fault.Is(err, fault.Unavailable) && !fault.Is(err, fault.RateLimited):
		return proven{}, fmt.Errorf("%w, and the actor's server does not confirm the activity", problem)
	case err == nil:
		by.proofProblem = "failed: " + publicReason(problem)
		verifications.WithLabelValues(signature.ProofSuite, "refused").Inc()
	}
	return by, err
}

// keysFor returns what finds the keys of an activity. An account that deletes itself may not be shown any more, and its key with it.
func (v *verifier) keysFor(in *incoming) signature.Keys[*remoteKey] {
	if in.aboutSelf("Delete") {
		return partingKeys{v.actors}
	}
	return v.actors
}

// name is the actor's id; empty for no one.
func (p proven) name() string {
	if p.actor == nil {
		return ""
	}
	return p.actor.ID
}

// publicReason is what the peer's operator reads: our own short sentences, and nothing about the network.
func publicReason(err error) string {
	switch {
	case errors.Is(err, errGone):
		return "the key does not exist any more"
	case errors.Is(err, errNotFetched):
		return "the key could not be fetched"
	}
	return clip.Bytes(err.Error(), 200)
}

// verifyProofs demands one proof by the actor that is right. alone: nothing but the proof says that the actor did it.
func (v *verifier) verifyProofs(ctx context.Context, proofs []signature.Proof, in *incoming, alone bool) (proven, error) {
	var problem error
	for _, proof := range proofs {
		var found *remoteKey
		var err error
		if alone {
			err = checkProofAge(proof, in, v.now())
		}
		if err == nil {
			found, err = signature.VerifyWith(ctx, v.actors, proof.KeyID, func(found *remoteKey) error { return verifyProof(proof, found, in.actor) })
		}
		if err == nil {
			return proven{actor: found.actor, keyID: proof.KeyID, scheme: signature.ProofSuite}, nil
		}

		if problem == nil {
			problem = fmt.Errorf("object proof: %w", err)
		}
	}

	return proven{}, problem
}

// verifyProof checks a proof of an actor with a key that was found.
func verifyProof(proof signature.Proof, found *remoteKey, actor string) error {
	switch {
	case found.actor.ID != actor:
		return errOtherOwner
	case !found.assertion:
		return signature.ErrNoProofKey
	}
	return proof.Verify(found.key)
}

// mayRead reports whether a request may read a document that is open to everyone, and answers it when not. In secure mode
// that is every signer whom the operator does not exclude. The server's own actor is always open: without its key no one
// could check our own signed requests. Pages for people are no documents; what has none is a document whatever is asked for.
func (v *verifier) mayRead(w http.ResponseWriter, r *http.Request) bool {
	if !v.options.AuthorizedFetch {
		return true
	}
	if err := v.signedByAnyone(r); err != nil {
		w.Header().Add("Vary", "Signature, Signature-Input")
		if fault.Is(err, fault.Unauthenticated) {
			v.offerSignatures(w, r)
		}
		refuse(w, r, err)
		return false
	}
	return true
}

// signedByAnyone proves that some actor signed the request.
func (v *verifier) signedByAnyone(r *http.Request) error {
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

// reportAlive tells of a host that sent something with a good signature: it lives.
func (v *verifier) reportAlive(ctx context.Context, by proven) {
	if v.options.Alive != nil && by.actor != nil && by.relay == "" {
		v.options.Alive(ctx, document.HostOf(by.actor.ID))
	}
}
