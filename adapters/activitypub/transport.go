package activitypub

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/notetext"
	"inbox/adapters/activitypub/signature"
	"inbox/exchange"
	"inbox/internal/clip"
	"inbox/internal/fault"
	"inbox/internal/safehttp"
)

// scheme: draft-cavage, rfc9421. result: 2xx, 3xx, 4xx, 5xx, error
var posts = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_activitypub_posts_total", Help: "Activities posted to other servers, by signature scheme and result.",
}, []string{"scheme", "result"})

// transport posts activities to inboxes, signed as their servers want it.
type transport struct {
	*site
	keys    *keyring
	actors  *actors
	follows *follows
	schemes *cache[knownScheme]
}

// outgoing is one activity on its way to one inbox.
type outgoing struct {
	agent   string // who signs
	actor   string // to whom, where known
	inbox   string
	body    []byte
	attempt int  // from 1; 0 = unknown
	shared  bool // the inbox is that of a server and actor is only one of its followers
}

// answer is what the other server said.
type answer struct {
	status     int
	detail     string
	retryAfter time.Duration
	location   string           // of a redirect
	offer      *signature.Offer // how it wants to be signed to; nil = it did not say
}

// post signs and sends. It signs now and never earlier, because receivers refuse old dates; it follows no redirect but one to the same
// inbox with a slash at its end, or without one; and where the first signature scheme is refused it tries the other one once. The errors are classed for retries.
func (t *transport) post(ctx context.Context, p outgoing) (detail string, err error) {
	target, err := url.Parse(p.inbox)
	if err == nil {
		err = t.options.Client.CheckURL(target)
	}
	if err != nil {
		return "", fault.GiveUp("the inbox address is refused by the outgoing policy", err)
	}

	key, err := t.keys.key(ctx, p.agent)
	if err != nil {
		return "", fault.RetryIn(0, "our own signing key could not be read", exchange.WithReach(err, exchange.ReachOurs))
	}

	said, err := t.postEither(ctx, p, target, key)
	if err != nil {
		return "", err
	}

	if slashed, found := t.slashedInbox(target, said); found {
		p.inbox = slashed.String()
		if said, err = t.postEither(ctx, p, slashed, key); err != nil {
			return "", err
		}
	}

	if said.status == http.StatusMovedPermanently || said.status == http.StatusPermanentRedirect {
		if moved, found := t.movedInbox(ctx, p); found {
			p.inbox = moved.String()
			if said, err = t.postEither(ctx, p, moved, key); err != nil {
				return "", err
			}
		}
	}

	return said.detail, t.classify(ctx, p, said)
}

// postEither sends with the scheme that this host is known to take, else with draft-cavage; on 400 or 401 with the other.
func (t *transport) postEither(ctx context.Context, p outgoing, target *url.URL, key *ownKey) (answer, error) {
	host := document.HostOf(p.inbox)
	first := t.schemeOf(ctx, host)
	remembered := first.Scheme != ""
	if !remembered {
		first.Scheme = signature.Cavage
	}

	said, err := t.send(ctx, p, target, key, first, nil)
	if err != nil || said.status != http.StatusBadRequest && said.status != http.StatusUnauthorized {
		if err == nil && said.status/100 == 2 && !remembered {
			t.rememberScheme(ctx, host, first)
		}
		return said, err
	}

	other := knownScheme{Scheme: otherScheme(first.Scheme)}
	if said.offer != nil {
		other = knownScheme{Scheme: signature.RFC9421, Label: said.offer.Label, Components: said.offer.Components}
	}

	second, err := t.send(ctx, p, target, key, other, said.offer)
	if remembered && said.status == http.StatusUnauthorized {
		t.forgetScheme(ctx, host)
	}

	if err == nil && second.status/100 == 2 {
		t.rememberScheme(ctx, host, other)
		return second, nil
	}
	return said, nil // the first answer is the one that the operator can act on
}

// send makes one request, signed as an offer asked where there is one for this very request.
func (t *transport) send(
	ctx context.Context, p outgoing, target *url.URL, key *ownKey, scheme knownScheme, offer *signature.Offer,
) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), bytes.NewReader(p.body))
	if err != nil {
		return answer{}, fault.GiveUp("the inbox address cannot be used", err)
	}

	request.Header.Set("Content-Type", activityMediaType)
	request.Header.Set("Accept", acceptActivity)
	request.Header.Set("User-Agent", t.userAgent())
	request.Header.Set("Date", t.now().UTC().Format(http.TimeFormat))

	keyID := t.actorIRI(p.agent) + key.fragment()
	if offer == nil && len(scheme.Components) > 0 {
		offer = &signature.Offer{Label: scheme.Label, Components: scheme.Components}
	}
	switch {
	case scheme.Scheme == signature.RFC9421 && offer != nil:
		err = offer.Sign(request, p.body, keyID, key.Private, t.now())
	case scheme.Scheme == signature.RFC9421:
		err = signature.SignMessage(request, p.body, keyID, key.Private, t.now())
	default:
		err = signature.SignCavage(request, p.body, keyID, key.Private, true)
	}
	if err != nil {
		return answer{}, fault.RetryIn(0, "the activity could not be signed", exchange.WithReach(err, exchange.ReachOurs))
	}

	response, err := t.options.Client.Do(request)
	if err != nil {
		posts.WithLabelValues(scheme.Scheme, "error").Inc()
		return answer{}, t.classifyNetwork(err)
	}
	defer response.Body.Close()
	posts.WithLabelValues(scheme.Scheme, strconv.Itoa(response.StatusCode/100)+"xx").Inc()

	said := answer{
		status: response.StatusCode, detail: detailOf(response), location: response.Header.Get("Location"),
		retryAfter: retryAfter(response.Header.Get("Retry-After"), t.now()),
	}
	if said.status == http.StatusUnauthorized {
		said.offer = signature.ReadOffer(response.Header, http.MethodPost, keyID)
	}
	return said, nil
}

func (t *transport) classifyNetwork(err error) error {
	if errors.Is(err, safehttp.ErrRefused) {
		return fault.GiveUp("the inbox address is refused by the outgoing policy", err)
	}
	if !safehttp.Unconnected(err) {
		err = exchange.WithReach(err, exchange.ReachSession)
	}
	if errors.Is(err, safehttp.ErrTimeout) {
		return fault.RetryIn(0, "the server did not answer in time", err)
	}
	return fault.RetryIn(0, "the server could not be reached", err)
}

// detailOf returns status and the beginning of the answer's text for the operator.
func detailOf(response *http.Response) string {
	text, _ := io.ReadAll(io.LimitReader(response.Body, 400))
	detail := response.Status
	if body := notetext.Visible(strings.ToValidUTF8(string(text), ""), 400); body != "" && response.StatusCode/100 != 2 {
		detail += ": " + body
	}
	return clip.Bytes(detail, 512)
}

// maxRetryAfter bounds how long another server may put us off.
const maxRetryAfter = 24 * time.Hour

func retryAfter(header string, now time.Time) time.Duration {
	var wait time.Duration
	if seconds, err := strconv.ParseInt(strings.TrimSpace(header), 10, 32); err == nil {
		wait = time.Duration(seconds) * time.Second
	} else if date, err := http.ParseTime(header); err == nil {
		wait = date.Sub(now)
	}
	return min(max(wait, 0), maxRetryAfter)
}

// classify decides whether an answer is success, worth another attempt, or final.
func (t *transport) classify(ctx context.Context, p outgoing, said answer) error {
	refusal := exchange.WithReach(fmt.Errorf("%s: %s", p.inbox, said.detail), exchange.ReachOfStatus(said.status))
	switch {
	case said.status/100 == 2:
		return nil
	case said.status == http.StatusUnauthorized && p.attempt < t.options.MaxAttempts:
		return fault.RetryIn(said.retryAfter, "the server refused our signature: "+said.detail, refusal) // its copy of our key may be old
	case said.status == http.StatusRequestTimeout, said.status == http.StatusTooEarly, said.status == http.StatusTooManyRequests:
		return fault.RetryIn(said.retryAfter, "the server asks us to wait: "+said.detail, refusal)
	case said.status >= 500 && said.status != http.StatusNotImplemented:
		return fault.RetryIn(said.retryAfter, "the server failed: "+said.detail, refusal)
	case said.status == http.StatusGone, said.status == http.StatusNotFound && t.missedOften(ctx, p.inbox):
		t.follows.dropFollowers(ctx, p)
	}

	return fault.GiveUp("the server refused the activity: "+said.detail, refusal)
}

// slashedInbox returns where a redirect leads that only adds a slash to the end of the inbox's path, or takes it away, as frameworks do. Any
// other address is not the one that the actor named.
func (t *transport) slashedInbox(inbox *url.URL, said answer) (*url.URL, bool) {
	switch said.status {
	case http.StatusMovedPermanently, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
	default:
		return nil, false
	}

	next, err := inbox.Parse(said.location)
	if err != nil || said.location == "" || next.User != nil || !document.SameOrigin(next.String(), inbox.String()) || next.RawQuery != inbox.RawQuery ||
		next.EscapedPath() == inbox.EscapedPath() || strings.TrimSuffix(next.EscapedPath(), "/") != strings.TrimSuffix(inbox.EscapedPath(), "/") {
		return nil, false
	}
	next.Fragment = ""
	return next, t.options.Client.CheckURL(next) == nil
}

// movedInbox asks the actor anew after a redirect: the inbox that we remember is out of date.
func (t *transport) movedInbox(ctx context.Context, p outgoing) (*url.URL, bool) {
	if p.actor == "" {
		return nil, false
	}
	actor, err := t.actors.fetchActor(ctx, p.actor)
	if err != nil || actor.ID != p.actor {
		return nil, false
	}

	for _, inbox := range []string{actor.SharedInbox, actor.Inbox} {
		if !t.isRemote(inbox) || inbox == p.inbox {
			continue
		}
		if target, err := url.Parse(inbox); err == nil && t.options.Client.CheckURL(target) == nil {
			return target, true
		}
	}

	return nil, false
}

const (
	schemeNamespace = "activitypub.scheme" // host → knownScheme
	schemeLife      = 30 * 24 * time.Hour  // then draft-cavage is tried first again
	schemeLook      = time.Hour            // between looks into the store for a host without a row
)

// knownScheme is the signature scheme that a host took last.
type knownScheme struct {
	Scheme string `json:"scheme"`

	// What it asked to have covered, for RFC 9421; empty = our own choice.
	Label      string   `json:"label,omitempty"`
	Components []string `json:"components,omitempty"`
}

func otherScheme(scheme string) string {
	if scheme == signature.Cavage {
		return signature.RFC9421
	}
	return signature.Cavage
}

// schemeOf returns the scheme that a host is known to take; without Scheme when nothing is known. The store only helps to guess
// right the first time, so its failures are not failures of the delivery.
func (t *transport) schemeOf(ctx context.Context, host string) knownScheme {
	if known, found := t.schemes.get(host, t.now()); found {
		return known
	}
	var known knownScheme
	value, found, err := t.options.State.Get(ctx, schemeNamespace, host)
	if err != nil {
		return known
	}
	if found && json.Unmarshal(value, &known) == nil && (known.Scheme == signature.Cavage || known.Scheme == signature.RFC9421) {
		t.schemes.put(host, known, t.now().Add(schemeLook))
		return known
	}
	return knownScheme{}
}

// rememberScheme keeps what a host took. draft-cavage needs no row: it is tried first wherever nothing is known.
func (t *transport) rememberScheme(ctx context.Context, host string, known knownScheme) {
	t.schemes.put(host, known, t.now().Add(schemeLook))
	if known.Scheme == signature.Cavage {
		return
	}

	if value, err := json.Marshal(known); err == nil {
		_ = t.options.State.Put(ctx, schemeNamespace, host, value, t.now().Add(schemeLife))
	}
}

func (t *transport) forgetScheme(ctx context.Context, host string) {
	t.schemes.drop(host)
	_ = t.options.State.Delete(ctx, schemeNamespace, host)
}

const (
	missedNamespace = "activitypub.missed" // inbox → times at which it was not there
	missedLife      = 7 * 24 * time.Hour
	missedLimit     = 3
	maxDropped      = 1000 // followers that one answer can cost
)

// missedOften counts that an inbox was not found and reports whether that was the third time in seven days.
func (t *transport) missedOften(ctx context.Context, inbox string) bool {
	value, found, err := t.options.State.Get(ctx, missedNamespace, inbox)
	var times []time.Time
	if err != nil || found && json.Unmarshal(value, &times) != nil {
		return false
	}

	now := t.now().UTC()
	times = append(slices.DeleteFunc(times, func(at time.Time) bool { return now.Sub(at) >= missedLife }), now)
	if len(times) >= missedLimit {
		_ = t.options.State.Delete(ctx, missedNamespace, inbox)
		return true
	}

	if value, err := json.Marshal(times); err == nil {
		_ = t.options.State.Put(ctx, missedNamespace, inbox, value, now.Add(missedLife))
	}
	return false
}
