package activitypub

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/internal/fault"
)

// scheme: draft-cavage, rfc9421, none. result: ok, refused
var verifications = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_activitypub_signatures_total", Help: "Signatures of incoming activities by scheme and result.",
}, []string{"scheme", "result"})

// proven is who really sent a request.
type proven struct {
	actor  *remoteActor
	keyID  string
	scheme string
}

// authenticate proves that actor sent the request. Everything that can be judged without the key comes first, so a
// bad request never makes us connect anywhere (ActivityPub reference, section 4.1). The errors are faults.
func (a *Adapter) authenticate(r *http.Request, body []byte, actor string) (proven, error) {
	scheme, err := a.checkClaim(r, body, actor)
	if err == nil {
		var found remoteKey
		if found, err = a.verifyClaim(r.Context(), scheme, actor); err == nil {
			verifications.WithLabelValues(scheme.Scheme, "ok").Inc()
			return proven{found.actor, scheme.KeyID, scheme.Scheme}, nil
		}
	}
	verifications.WithLabelValues(schemeName(r.Header), "refused").Inc()
	if _, classed := errors.AsType[*fault.Fault](err); classed {
		return proven{}, err
	}
	return proven{}, fault.Wrap(fault.Unauthenticated, publicReason(err), err)
}

// schemeName says by which scheme a request is signed. A request with both is judged by RFC 9421 alone: when the
// present one fails, the other is never tried.
func schemeName(header http.Header) string {
	switch {
	case len(header["Signature-Input"]) > 0:
		return schemeRFC9421
	case len(header["Signature"]) > 0:
		return schemeCavage
	}
	return "none"
}

func (a *Adapter) checkClaim(r *http.Request, body []byte, actor string) (signed claim, err error) {
	request := signedRequest{
		Method: r.Method, Target: requestTarget(r), Host: r.Host, Origin: a.base, Header: r.Header, Body: body,
	}
	switch schemeName(r.Header) {
	case schemeRFC9421:
		signed, err = checkMessageSignature(request, a.now())
	case schemeCavage:
		signed, err = checkCavage(request, a.now())
	default:
		err = errors.New("request is not signed")
	}
	if err != nil {
		return claim{}, err
	}
	if !a.meansUs(r.Host) {
		return claim{}, errors.New("signature was made for another host")
	}
	return signed, a.checkKeyID(signed.KeyID, actor)
}

// requestTarget gives path and query as they came: Go's parsed URL has lost the escapes that were signed.
func requestTarget(r *http.Request) string {
	if strings.HasPrefix(r.RequestURI, "/") {
		return r.RequestURI
	}
	return r.URL.RequestURI() // absolute form, or a request that never was on a wire
}

// meansUs keeps a request that was captured on its way to another server from being replayed here.
func (a *Adapter) meansUs(host string) bool {
	scheme, _, _ := strings.Cut(a.base, "://")
	canonical, ok := canonicalHost(host, scheme)
	return ok && a.hosts[canonical]
}

func (a *Adapter) checkKeyID(keyID, actor string) error {
	keyOrigin, ok := a.remoteOrigin(keyID)
	if !ok {
		return errors.New("keyId is not an address on another server")
	}
	if !a.admits(hostOf(keyID)) {
		return fault.New(fault.Forbidden, "this server does not accept messages from yours")
	}
	// Key and owner share an origin, and the owner must be the actor; so a key elsewhere can never fit.
	if actorOrigin, ok := origin(actor); !ok || actorOrigin != keyOrigin {
		return errors.New("the key is not on the actor's server")
	}
	return nil
}

func (a *Adapter) verifyClaim(ctx context.Context, signed claim, actor string) (remoteKey, error) {
	found, known, err := a.remote.find(ctx, signed.KeyID)
	if err != nil {
		return remoteKey{}, err
	}
	err = ownedBy(found, actor)
	if err == nil {
		err = signed.Verify(found.key)
	}
	if err == nil || !known {
		return found, err
	}
	fresh, ok := a.remote.refresh(ctx, signed.KeyID)
	if !ok {
		return remoteKey{}, err
	}
	if err := ownedBy(fresh, actor); err != nil {
		return remoteKey{}, err
	}
	return fresh, signed.Verify(fresh.key)
}

// ownedBy refuses a key of somebody else before anything has happened (Fedify CVE-2025-54888).
func ownedBy(found remoteKey, actor string) error {
	if found.actor.ID != actor {
		return errors.New("the key belongs to another actor")
	}
	return nil
}

// publicReason is what the peer's operator reads: our own short sentences, and nothing about the network.
func publicReason(err error) string {
	switch {
	case errors.Is(err, errGone):
		return "the key does not exist any more"
	case errors.Is(err, errNotFetched):
		return "the key could not be fetched"
	}
	return clip(err.Error(), 200)
}
