package activitypub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/internal/safehttp"
)

// outcome: ok, gone, error
var fetches = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_activitypub_fetches_total", Help: "ActivityPub documents fetched from other servers, by outcome.",
}, []string{"outcome"})

const acceptActivity = `application/activity+json, application/ld+json; profile="https://www.w3.org/ns/activitystreams"`

// errGone says that the other server has no such document (any more).
var errGone = errors.New("document does not exist")

// errNotFetched wraps every other failure to get a document.
var errNotFetched = errors.New("document could not be fetched")

// fetch gets one ActivityPub document with a GET signed by the server's own actor, so that servers in secure mode
// answer and no agent's key is needed to look up a key. It returns the address that answered after redirects.
func (a *Adapter) fetch(ctx context.Context, iri string) (doc object, final string, err error) {
	defer func() { fetches.WithLabelValues(fetchOutcome(err)).Inc() }()
	target := withoutFragment(iri)
	response, err := a.get(ctx, target, true)
	if err == nil && response.StatusCode == http.StatusUnauthorized && strings.Contains(target, "?") {
		_ = response.Body.Close()
		response, err = a.get(ctx, target, false) // servers that sign and verify the path without its query
	}
	if err != nil {
		return nil, "", fmt.Errorf("%w: %w", errNotFetched, err)
	}
	defer response.Body.Close()
	doc, err = readDocument(response)
	return doc, response.Request.URL.String(), err
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

func (a *Adapter) get(ctx context.Context, address string, withQuery bool) (*http.Response, error) {
	key, err := a.keys.key(ctx, "")
	if err != nil {
		return nil, err
	}
	sign := func(request *http.Request) error {
		request.Header.Set("User-Agent", a.userAgent())
		request.Header.Set("Date", a.now().UTC().Format(http.TimeFormat))
		return signCavage(request, nil, a.instanceIRI()+"#main-key", key.Private, withQuery)
	}
	return a.options.Client.Get(ctx, address, safehttp.GetOptions{Accept: acceptActivity, Sign: sign, MaxBytes: maxBodyBytes})
}

// userAgent is sent with every request: GoToSocial answers 418 to an empty one.
func (a *Adapter) userAgent() string {
	version := a.options.Version
	if version == "" {
		version = "dev"
	}
	return "inbox/" + version + " (+" + a.base + "/)"
}

func readDocument(response *http.Response) (object, error) {
	switch {
	case response.StatusCode == http.StatusNotFound, response.StatusCode == http.StatusGone:
		return nil, fmt.Errorf("%w: %s", errGone, response.Status)
	case response.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%w: %s", errNotFetched, response.Status)
	case !isActivityType(response.Header.Get("Content-Type"), true):
		return nil, fmt.Errorf("%w: not an ActivityPub content type", errNotFetched)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBodyBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotFetched, err)
	}
	if len(body) > maxBodyBytes {
		return nil, fmt.Errorf("%w: document is over 1 MiB", errNotFetched)
	}
	doc, err := parseObject(body)
	if err != nil { // not wrapped: it is no fault of the request that made us fetch
		return nil, fmt.Errorf("%w: %s", errNotFetched, err.Error())
	}
	return doc, nil
}

// isActivityType says whether a Content-Type means ActivityPub. A fetched document must name the profile with
// application/ld+json: a file that somebody uploaded to a server must never pass as an actor (CVE-2024-25623).
func isActivityType(header string, needProfile bool) bool {
	if header == "application/activity+json" {
		return true
	}
	media, parameters, err := mime.ParseMediaType(header)
	if err != nil {
		return false
	}
	switch media {
	case "application/activity+json":
		return true
	case "application/ld+json":
		profile, given := parameters["profile"]
		return slices.Contains(strings.Fields(profile), activityStreams) || !needProfile && !given
	}
	return false
}

// fetchExact gets a document whose id is the IRI asked for. A document with another id on the same origin is fetched
// once more at that id, which must then be its own.
func (a *Adapter) fetchExact(ctx context.Context, iri string) (object, error) {
	doc, final, err := a.fetch(ctx, iri)
	if err != nil {
		return nil, err
	}
	id := str(doc, "id")
	if !sameOrigin(id, iri) {
		return nil, fmt.Errorf("%w: its id is on another server", errNotFetched)
	}
	if id == withoutFragment(iri) && sameOrigin(final, id) {
		return doc, nil
	}
	doc, final, err = a.fetch(ctx, id)
	if err != nil {
		return nil, err
	}
	// An open redirect on the named server must not let another server speak for it.
	if str(doc, "id") != id || !sameOrigin(final, id) {
		return nil, fmt.Errorf("%w: its id names another document", errNotFetched)
	}
	return doc, nil
}

// fetchActor gets an actor at its own id.
func (a *Adapter) fetchActor(ctx context.Context, iri string, now time.Time) (*remoteActor, error) {
	doc, err := a.fetchExact(ctx, iri)
	if err != nil {
		return nil, err
	}
	actor, err := readActor(doc, now)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotFetched, err)
	}
	return actor, nil
}
