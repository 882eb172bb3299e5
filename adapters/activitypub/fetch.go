package activitypub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/signature"
	"inbox/identity"
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

// fetcher gets documents of other servers, signed by the server's own actor where they want it.
type fetcher struct {
	*site
	keys   *keyring
	secure *cache[bool] // hosts that refuse unsigned requests
}

// fetched is a document as it came.
type fetched struct {
	doc   document.Object
	raw   []byte
	final string // the address that answered after redirects
}

// fetchSigned gets one ActivityPub document with a GET signed by the server's own actor, so that servers in secure mode
// answer and no agent's key is needed to look up a key.
func (f *fetcher) fetchSigned(ctx context.Context, iri string) (got fetched, err error) {
	defer func() { fetches.WithLabelValues(fetchOutcome(err)).Inc() }()
	target := document.WithoutFragment(iri)
	response, err := f.get(ctx, target, f.signWith(ctx, true))
	if err == nil && response.StatusCode == http.StatusUnauthorized && strings.Contains(target, "?") {
		_ = response.Body.Close()
		response, err = f.get(ctx, target, f.signWith(ctx, false)) //nolint:bodyclose // read closes it; servers that sign and verify the path without its query
	}
	return read(response, err)
}

// fetchOpen gets a document that most servers show to everyone, such as an actor: a signature costs a millisecond, so
// it is spared where the host did not ask for one. What it asked for is remembered for a day.
func (f *fetcher) fetchOpen(ctx context.Context, iri string) (fetched, error) {
	host := document.HostOf(iri)
	if _, wanted := f.secure.get(host, f.now()); !wanted {
		got, err := f.fetchUnsigned(ctx, iri)
		if !errors.Is(err, errSignatureWanted) {
			return got, err
		}
		f.secure.put(host, true, f.now().Add(secureLife))
	}

	return f.fetchSigned(ctx, iri)
}

// secureLife is how long a host is remembered to want signed requests.
const secureLife = 24 * time.Hour

// errSignatureWanted reports whether an unsigned request was refused or got half an answer.
var errSignatureWanted = errors.New("the server wants a signature")

func (f *fetcher) fetchUnsigned(ctx context.Context, iri string) (got fetched, err error) {
	defer func() {
		if !errors.Is(err, errSignatureWanted) {
			fetches.WithLabelValues(fetchOutcome(err)).Inc()
		}
	}()
	target := document.WithoutFragment(iri)
	response, err := f.get(ctx, target, f.introduce)
	if err == nil && (response.StatusCode == http.StatusUnauthorized || response.StatusCode == http.StatusForbidden) {
		_ = response.Body.Close()
		return got, errSignatureWanted
	}
	if got, err = read(response, err); err != nil {
		return got, err
	}
	if document.IsActor(got.doc) && document.Text(got.doc, "id") == target && document.Text(got.doc, "inbox") == "" {
		return got, errSignatureWanted // Akkoma shows strangers the key of an actor and hides the rest
	}
	return got, nil
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

func (f *fetcher) get(ctx context.Context, address string, prepare func(*http.Request) error) (*http.Response, error) {
	return f.options.Client.Get(ctx, address, safehttp.GetOptions{Accept: acceptActivity, Sign: prepare, MaxBytes: document.MaxBytes})
}

// introduce names us as the one who asks.
func (f *fetcher) introduce(request *http.Request) error {
	request.Header.Set("User-Agent", f.userAgent())
	return nil
}

// signWith returns what signs each hop with the key of the server's own actor.
func (f *fetcher) signWith(ctx context.Context, withQuery bool) func(*http.Request) error {
	return func(request *http.Request) error {
		key, err := f.keys.key(ctx, "")
		if err != nil {
			return err
		}

		request.Header.Set("User-Agent", f.userAgent())
		request.Header.Set("Date", f.now().UTC().Format(http.TimeFormat))
		return signature.SignCavage(request, nil, f.instanceIRI()+key.fragment(), key.Private, withQuery)
	}
}

func readDocument(response *http.Response) ([]byte, document.Object, error) {
	switch {
	case response.StatusCode == http.StatusNotFound:
		return nil, nil, fmt.Errorf("%w: %s", errHidden, response.Status)
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
func (f *fetcher) fetchExact(ctx context.Context, iri string) (document.Object, error) {
	got, err := exact(ctx, iri, f.fetchSigned)
	return got.doc, err
}

func exact(ctx context.Context, iri string, fetch func(context.Context, string) (fetched, error)) (fetched, error) {
	got, err := fetch(ctx, iri)
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
	if got, err = fetch(ctx, id); err != nil {
		return fetched{}, err
	}

	// An open redirect on the named server must not let another server speak for it.
	if document.Text(got.doc, "id") != id || !document.SameOrigin(got.final, id) {
		return fetched{}, fmt.Errorf("%w: its id names another document", errNotFetched)
	}
	return got, nil
}

// fetchActor gets an actor at its own id.
func (f *fetcher) fetchActor(ctx context.Context, iri string, now time.Time) (*remoteActor, error) {
	got, err := exact(ctx, iri, f.fetchOpen)
	if err != nil {
		return nil, err
	}

	actor, err := readActor(got.doc, now)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotFetched, err)
	}
	return actor, nil
}

// fetchBounded is fetchSigned for a document of at most so many bytes.
func (f *fetcher) fetchBounded(ctx context.Context, iri string, limit int64) (got fetched, err error) {
	defer func() { fetches.WithLabelValues(fetchOutcome(err)).Inc() }()
	var response *http.Response
	response, err = f.options.Client.Get(ctx, document.WithoutFragment(iri), safehttp.GetOptions{
		Accept: acceptActivity, Sign: f.signWith(ctx, true), MaxBytes: limit,
	})
	return read(response, err)
}

// isDeleted returns nil if the object's own server says that it is gone or shows a Tombstone. sure is false if it may only be
// hidden from us.
func (f *fetcher) isDeleted(ctx context.Context, id string) (sure bool, err error) {
	got, err := f.fetchSigned(ctx, id)
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
