package activitypub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/signature"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/internal/safehttp"
)

// outcome: ok, gone, error
var fetches = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_activitypub_fetches_total", Help: "ActivityPub documents fetched from other servers, by outcome.",
}, []string{"outcome"})

const acceptActivity = `application/activity+json, application/ld+json; profile="https://www.w3.org/ns/activitystreams"`

// errGone reports whether the other server has no such document (any more).
var errGone = errors.New("document does not exist")

// errHidden is errGone where the other server may only not show the document to us: that is what 404 means for private notes.
var errHidden = fmt.Errorf("%w, or not for us", errGone)

// errNotFetched wraps every other failure to get a document.
var errNotFetched = errors.New("document could not be fetched")

// errUnreachable is errNotFetched where the server may have the document: it did not answer, or not now.
var errUnreachable = fmt.Errorf("%w: its server does not answer", errNotFetched)

// fetcher fetches documents from other servers and signs requests to those that require it.
type fetcher struct {
	*site
	keys   *keyring
	worked *cache[knownScheme] // host → how it showed the last document
}

// fetched is a document as it came.
type fetched struct {
	doc   document.Object
	raw   []byte
	final string // the address that answered after redirects
}

// reading says how a document is to be had.
type reading struct {
	// as is the agent that signs, because the document may be for it alone. Empty = everyone may read the document, or the server: it
	// is asked for unsigned first, because a signature costs a millisecond, and signed by the server's own actor, so that no agent's
	// key is needed to look up a key.
	as    string
	limit int64 // in bytes; 0 = document.MaxBytes

	// further reports whether one request more may be made, after the first was refused; nil = yes. It is where the requests that a
	// stranger causes are charged to them.
	further func() bool
}

// unsigned is the scheme of requests without a signature.
const unsigned = "unsigned"

const (
	workedLife = 24 * time.Hour // of the memory of how a host is read
	maxTries   = 5              // requests for one document, redirects apart: each scheme, the path without its query, an offer
)

// attempt is one way to ask for a document.
type attempt struct {
	knownScheme
	offer   *signature.Offer // of the answer before, which may hold for one request only
	noQuery bool             // for servers that sign and verify the path without its query
}

// fetch gets one ActivityPub document. It asks unsigned, signed by draft-cavage and by RFC 9421, in the order that the host is
// known to want, until one is not refused: secure mode refuses the first, old and new servers one of the others, and some refuse a
// signature that they did not ask for.
func (f *fetcher) fetch(ctx context.Context, iri string, how reading) (got fetched, err error) {
	defer func() { fetches.WithLabelValues(fetchOutcome(err)).Inc() }()
	target := document.WithoutFragment(iri)
	memory := document.HostOf(target)
	if how.as != "" {
		memory += " private"
	}
	last, known := f.worked.get(memory, f.now())
	attempts := f.attempts(how, last)

	var refused refusals
	for made := 0; made < len(attempts) && made < maxTries; made++ {
		if made > 0 && how.further != nil && !how.further() {
			break
		}

		one := attempts[made]
		said := f.ask(ctx, target, one, how)
		if said.refusal == 0 {
			if said.err == nil && (one.Scheme != last.Scheme || one.offer != nil) {
				f.worked.put(memory, one.knownScheme, f.now().Add(workedLife))
			}
			return said.fetched, said.err
		}

		refused.add(said, one, known && one.Scheme == last.Scheme)
		attempts = append(attempts[:made+1], adjusted(attempts[made+1:], one, said, strings.Contains(target, "?"))...)
	}

	return got, refused.verdict()
}

// attempts lists the ways to ask in their order: what worked last, and the rest.
func (f *fetcher) attempts(how reading, last knownScheme) []attempt {
	order := []string{unsigned, signature.Cavage, signature.RFC9421}
	if how.as != "" {
		order = []string{signature.Cavage, signature.RFC9421, unsigned}
	}

	var list []attempt
	if last.Scheme != "" {
		list = append(list, attempt{knownScheme: last})
	}
	for _, scheme := range order {
		if scheme != last.Scheme {
			list = append(list, attempt{knownScheme: knownScheme{Scheme: scheme}})
		}
	}
	return list
}

// adjusted returns the remaining attempts after a refusal, beginning with the one that the refusal asks for.
func adjusted(left []attempt, tried attempt, said answered, query bool) []attempt {
	switch {
	case said.offer != nil && tried.offer == nil:
		offered := attempt{
			knownScheme: knownScheme{Scheme: signature.RFC9421, Label: said.offer.Label, Components: said.offer.Components}, offer: said.offer,
		}
		left = slices.DeleteFunc(slices.Clone(left), func(a attempt) bool { return a.Scheme == signature.RFC9421 })
		return append([]attempt{offered}, left...)
	case said.refusal == http.StatusUnauthorized && tried.Scheme == signature.Cavage && query && !tried.noQuery:
		tried.noQuery = true
		return append([]attempt{tried}, left...)
	}
	return slices.Clone(left)
}

// answered is the result of one request. refusal is the HTTP status if another attempt may succeed, otherwise 0.
type answered struct {
	fetched
	err     error
	refusal int
	offer   *signature.Offer
}

// ask makes one request.
func (f *fetcher) ask(ctx context.Context, target string, one attempt, how reading) (said answered) {
	keyID := ""
	response, err := f.options.Client.Get(ctx, target, safehttp.GetOptions{
		Accept: acceptActivity, MaxBytes: cmp.Or(how.limit, document.MaxBytes),
		Sign: func(request *http.Request) (err error) {
			keyID, err = f.prepare(ctx, request, one, how.as)
			return err
		},
	})
	switch {
	case fault.Is(err, fault.Unavailable): // our own trouble
		return answered{err: err}
	case err != nil:
		return answered{err: fmt.Errorf("%w: %w", kindOfFailure(err), err)}
	}

	switch response.StatusCode {
	case http.StatusUnauthorized:
		if keyID == "" {
			keyID, _ = f.keyID(ctx, how.as)
		}
		said.offer = signature.ReadOffer(response.Header, http.MethodGet, keyID)
		said.refusal = response.StatusCode
	case http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotAcceptable:
		said.refusal = response.StatusCode
	}
	if said.refusal != 0 {
		_, _ = io.CopyN(io.Discard, response.Body, 4<<10) // returns the connection to the next attempt
		_ = response.Body.Close()
		return said
	}

	said.fetched, said.err = read(response, nil)
	if one.Scheme == unsigned && said.err == nil && forStrangers(said.doc, target) {
		return answered{refusal: http.StatusUnauthorized}
	}
	return said
}

// forStrangers knows half an answer: Akkoma shows requests without a signature the key of an actor and hides the rest.
func forStrangers(doc document.Object, target string) bool {
	return document.IsActor(doc) && document.Text(doc, "id") == target && document.Text(doc, "inbox") == ""
}

// prepare names us as the one who asks, and signs as the attempt wants. It is called for every hop of a redirect, so each of them is one
// that the operator admits.
func (f *fetcher) prepare(ctx context.Context, request *http.Request, one attempt, as string) (keyID string, err error) {
	if host := document.HostOf(request.URL.String()); host == f.host || !f.admits(host) {
		return "", errElsewhere
	}

	request.Header.Set("User-Agent", f.userAgent())
	if one.Scheme == unsigned {
		return "", nil
	}

	key, err := f.keys.key(ctx, as)
	if err != nil {
		return "", unavailable(err)
	}
	keyID = f.signerIRI(as) + key.fragment()
	request.Header.Set("Date", f.now().UTC().Format(http.TimeFormat))

	switch offer := one.offer; {
	case one.Scheme == signature.Cavage:
		return keyID, signature.SignCavage(request, nil, keyID, key.Private, !one.noQuery)
	case offer == nil && len(one.Components) == 0:
		return keyID, signature.SignMessage(request, nil, keyID, key.Private, f.now())
	case offer == nil:
		offer = &signature.Offer{Label: one.Label, Components: one.Components}
		fallthrough
	default:
		return keyID, offer.Sign(request, nil, keyID, key.Private, f.now())
	}
}

// errElsewhere ends a fetch that is led to this server, or to one that the operator excludes.
var errElsewhere = errors.New("the address is on a server that is not asked")

// keyID returns the id of the key that signs for an agent, or for the server.
func (f *fetcher) keyID(ctx context.Context, as string) (string, error) {
	key, err := f.keys.key(ctx, as)
	if err != nil {
		return "", err
	}
	return f.signerIRI(as) + key.fragment(), nil
}

// refusals are the answers to the ways to ask that did not help.
type refusals struct {
	forbidden, hidden bool
	status            int // of the first
}

// add notes a refusal. usual: the host showed the last document to a request of this kind. A 404 says something only to a request
// that the server may have taken: to an unsigned one it is the answer of a server that hides everything from strangers.
func (r *refusals) add(said answered, one attempt, usual bool) {
	if r.status == 0 {
		r.status = said.refusal
	}
	r.forbidden = r.forbidden || said.refusal == http.StatusForbidden && one.Scheme != unsigned
	r.hidden = r.hidden || said.refusal == http.StatusNotFound && (usual || one.Scheme != unsigned)
}

func (r *refusals) verdict() error {
	if r.hidden && !r.forbidden {
		return fmt.Errorf("%w: %d %s", errHidden, http.StatusNotFound, http.StatusText(http.StatusNotFound))
	}
	return fmt.Errorf("%w: %d %s", errNotFetched, r.status, http.StatusText(r.status))
}

func read(response *http.Response, err error) (fetched, error) {
	if err != nil {
		return fetched{}, fmt.Errorf("%w: %w", kindOfFailure(err), err)
	}
	defer response.Body.Close()
	raw, doc, err := readDocument(response)
	return fetched{doc, raw, response.Request.URL.String()}, err
}

// kindOfFailure tells a server that may answer later from one that cannot be asked at all.
func kindOfFailure(err error) error {
	if found, is := errors.AsType[*net.DNSError](err); is {
		if found.IsTimeout || found.IsTemporary {
			return errUnreachable
		}
		return errNotFetched
	}

	slow, is := errors.AsType[net.Error](err)
	if is && slow.Timeout() || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, safehttp.ErrTimeout) ||
		errors.Is(err, safehttp.ErrBusy) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errUnreachable
	}
	return errNotFetched
}

func fetchOutcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, errGone):
		return "gone"
	}
	return "error"
}

func readDocument(response *http.Response) ([]byte, document.Object, error) {
	switch {
	case response.StatusCode == http.StatusGone:
		return nil, nil, fmt.Errorf("%w: %s", errGone, response.Status)
	case response.StatusCode >= http.StatusInternalServerError, response.StatusCode == http.StatusTooManyRequests:
		return nil, nil, fmt.Errorf("%w: %s", errUnreachable, response.Status)
	case response.StatusCode != http.StatusOK:
		return nil, nil, fmt.Errorf("%w: %s", errNotFetched, response.Status)
	case !document.IsActivityType(response.Header.Get("Content-Type"), true):
		return nil, nil, fmt.Errorf("%w: not an ActivityPub content type", errNotFetched)
	}

	body, err := io.ReadAll(io.LimitReader(response.Body, document.MaxBytes+1))
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", kindOfFailure(err), err)
	}
	if len(body) > document.MaxBytes {
		return nil, nil, fmt.Errorf("%w: document is over 1 MiB", errNotFetched)
	}

	doc, err := document.Parse(body)
	if err != nil { // not wrapped: it is no fault of the request that made us fetch
		return nil, nil, fmt.Errorf("%w: %s", errNotFetched, err.Error())
	}
	return body, doc, nil
}

// fetchExact gets a document whose id is the IRI asked for. A document with another id on the same origin is fetched
// once more at that id, which must then be its own.
func (f *fetcher) fetchExact(ctx context.Context, iri string, how reading) (fetched, error) {
	got, err := f.fetch(ctx, iri, how)
	if err != nil {
		return fetched{}, err
	}

	id := document.Text(got.doc, "id")
	if !document.SameOrigin(id, iri) {
		return fetched{}, fmt.Errorf("%w: its id is on another server", errNotFetched)
	}
	if id == document.WithoutFragment(iri) && document.SameOrigin(got.final, id) {
		return got, nil
	}
	if how.further != nil && !how.further() {
		return fetched{}, fmt.Errorf("%w: too many requests for one document", errNotFetched)
	}
	if got, err = f.fetch(ctx, id, how); err != nil {
		return fetched{}, err
	}

	// An open redirect on the named server must not let another server speak for it.
	if document.Text(got.doc, "id") != id || !document.SameOrigin(got.final, id) {
		return fetched{}, fmt.Errorf("%w: its id names another document", errNotFetched)
	}
	return got, nil
}

// fetchActor gets an actor at its own id.
func (f *fetcher) fetchActor(ctx context.Context, iri string, how reading) (*remoteActor, error) {
	got, err := f.fetchExact(ctx, iri, how)
	if err != nil {
		return nil, err
	}

	actor, err := readActor(got.doc, f.now())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotFetched, err)
	}
	return actor, nil
}

// isDeleted returns nil if the object's own server says that it is gone or shows a Tombstone. sure is false if it may only be
// hidden from us.
func (f *fetcher) isDeleted(ctx context.Context, id string, how reading) (sure bool, err error) {
	got, err := f.fetch(ctx, id, how)
	switch {
	case isGone(err):
		return !errors.Is(err, errHidden), nil
	case err != nil:
		return false, err
	case document.IsA(got.doc, "Tombstone") && document.Text(got.doc, "id") == document.WithoutFragment(id) && document.SameOrigin(got.final, id):
		return true, nil
	}

	return false, errStillThere
}

var errStillThere = errors.New("the object still exists")

// webfinger resolves an address (RFC 7033) to its subject and the actor it names.
func (f *fetcher) webfinger(ctx context.Context, address identity.Address) (subject identity.Address, self string, err error) {
	scheme := "https"
	if f.options.AllowPrivate && (strings.Contains(address.Domain, ":") || strings.HasPrefix(f.base, "http:")) {
		scheme = "http"
	}

	target := scheme + "://" + address.Domain + "/.well-known/webfinger?resource=" + url.QueryEscape(address.Acct())
	response, err := f.options.Client.Get(ctx, target, safehttp.GetOptions{
		Accept: "application/jrd+json, application/json", MaxBytes: 256 << 10, MaxRedirects: 2,
	})
	if err != nil {
		return subject, "", fmt.Errorf("webfinger %s: %w: %w", address, errNoAnswer, err)
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode == http.StatusTooManyRequests, response.StatusCode >= http.StatusInternalServerError:
		return subject, "", fmt.Errorf("webfinger %s: %w: %s", address, errNoAnswer, response.Status)
	case response.StatusCode != http.StatusOK:
		return subject, "", fmt.Errorf("webfinger %s: %s", address, response.Status)
	}

	body, err := io.ReadAll(response.Body)
	if err != nil {
		return subject, "", fmt.Errorf("webfinger %s: %w: %w", address, errNoAnswer, err)
	}
	return document.ReadResource(body)
}
