package activitypub

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"mime"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/signature"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

// profiles are the actors of the agents and of the server itself.
type profiles struct {
	*site
	keys      *keyring
	verifier  *verifier
	outbox    *outbox
	documents *cache[encodedDocument]
}

// Profile is what the actor of an agent shows beside its name and summary. Empty fields are left out.
type Profile struct {
	Icon, Image  string   // addresses of pictures
	IconSize     int      // width and height of Icon, in pixels; 0 = unknown
	Hidden       bool     // not to be suggested to people (discoverable false)
	Indexable    bool     // posts may be found by search
	AlsoKnownAs  []string // actor IRIs that may move here
	QuotesByFans bool     // followers may quote without asking; otherwise no one
}

// picture is an Image of an actor.
type picture struct {
	Type      string `json:"type"`
	MediaType string `json:"mediaType,omitempty"`
	URL       string `json:"url"`
}

// interaction says who may quote (FEP-044f).
type interaction struct {
	CanQuote approval `json:"canQuote"`
}

type approval struct {
	Automatic []string `json:"automaticApproval"`
}

// show adds what the operator wrote about the agent.
func (d *actorDocument) show(p Profile) {
	d.Icon, d.Image = pictureAt(p.Icon), pictureAt(p.Image)
	d.Discoverable, d.Indexable, d.AlsoKnownAs = !p.Hidden, p.Indexable, p.AlsoKnownAs
	d.Interaction = whoQuotes(d.ID, d.Followers, p.QuotesByFans)
}

// whoQuotes lets the followers quote, or the actor alone: no one.
func whoQuotes(actor, followers string, byFollowers bool) *interaction {
	if byFollowers {
		return &interaction{approval{[]string{followers}}}
	}
	return &interaction{approval{[]string{actor}}}
}

func pictureAt(address string) *picture {
	parsed, err := url.Parse(address)
	if err != nil || address == "" {
		return nil
	}

	media, _, err := mime.ParseMediaType(mime.TypeByExtension(path.Ext(parsed.Path)))
	if err != nil {
		media = ""
	}
	return &picture{"Image", media, address}
}

// Links returns the link from an agent's address to its actor, and to its picture.
func (p *profiles) Links(agent exchange.AgentProfile) []exchange.Link {
	links := []exchange.Link{{Rel: "self", Type: activityMediaType, Href: p.actorIRI(agent.Name)}}
	if p.options.Profile == nil {
		return links
	}

	if icon := pictureAt(p.options.Profile(agent.Name).Icon); icon != nil {
		links = append(links, exchange.Link{Rel: "http://webfinger.net/rel/avatar", Type: icon.MediaType, Href: icon.URL})
	}
	return links
}

// InstanceLinks returns the address of the server's own actor and its link, for WebFinger: Mastodon looks up who
// signs a fetch.
func (p *profiles) InstanceLinks() (address string, links []exchange.Link) {
	link := exchange.Link{Rel: "self", Type: activityMediaType, Href: p.instanceIRI()}
	return "@" + p.instanceName() + "@" + p.options.Domain, []exchange.Link{link}
}

// actorDocument is an actor as other servers read it. Mastodon wants AS literally in @context.
type actorDocument struct {
	Context           []any             `json:"@context"`
	ID                string            `json:"id"`
	Type              string            `json:"type"`
	PreferredUsername string            `json:"preferredUsername"`
	Name              string            `json:"name"`
	Summary           string            `json:"summary,omitempty"`
	URL               string            `json:"url"`
	Inbox             string            `json:"inbox"`
	Outbox            string            `json:"outbox"`
	Followers         string            `json:"followers,omitempty"`
	Following         string            `json:"following,omitempty"`
	Featured          string            `json:"featured,omitempty"`
	Endpoints         map[string]string `json:"endpoints"`
	PublicKey         publicKey         `json:"publicKey"`
	AssertionMethod   []multikey        `json:"assertionMethod"`
	ManuallyApproves  bool              `json:"manuallyApprovesFollowers"`
	Discoverable      bool              `json:"discoverable"`
	Indexable         bool              `json:"indexable"`
	Published         string            `json:"published,omitempty"`
	Attachment        []propertyValue   `json:"attachment,omitempty"`
	WebFinger         string            `json:"webfinger"`
	Icon              *picture          `json:"icon,omitempty"`
	Image             *picture          `json:"image,omitempty"`
	Interaction       *interaction      `json:"interactionPolicy,omitempty"`
	AlsoKnownAs       []string          `json:"alsoKnownAs,omitempty"`
	MovedTo           string            `json:"movedTo,omitempty"`
	Implements        []implemented     `json:"implements,omitempty"`
}

type publicKey struct {
	ID    string `json:"id"`
	Owner string `json:"owner"`
	PEM   string `json:"publicKeyPem"`
}

// multikey is the key of the proofs inside our activities (FEP-521a).
type multikey struct {
	ID         string `json:"id"`
	Type       string `json:"type"`
	Controller string `json:"controller"`
	Key        string `json:"publicKeyMultibase"`
}

// implemented announces a specification (FEP-844e).
type implemented struct {
	Href string `json:"href"`
	Name string `json:"name"`
}

// actorContext defines every term beside ActivityStreams and security in place, so that no one has to fetch contexts.
var actorContext = []any{
	document.ActivityStreams,
	"https://w3id.org/security/v1",
	"https://w3id.org/security/multikey/v1",
	signature.IntegrityContext,
	map[string]any{
		"manuallyApprovesFollowers": "as:manuallyApprovesFollowers",
		"toot":                      "http://joinmastodon.org/ns#",
		"discoverable":              "toot:discoverable",
		"indexable":                 "toot:indexable",
		"featured":                  map[string]string{"@id": "toot:featured", "@type": "@id"},
		"webfinger":                 "https://purl.archive.org/socialweb/webfinger#webfinger",
		"alsoKnownAs":               map[string]string{"@id": "as:alsoKnownAs", "@type": "@id"},
		"movedTo":                   map[string]string{"@id": "as:movedTo", "@type": "@id"},
		"gts":                       "https://gotosocial.org/ns#",
		"interactionPolicy":         map[string]string{"@id": "gts:interactionPolicy", "@type": "@id"},
		"canQuote":                  map[string]string{"@id": "gts:canQuote", "@type": "@id"},
		"automaticApproval":         map[string]string{"@id": "gts:automaticApproval", "@type": "@id"},
		// Neither multikey/v1 nor data-integrity/v1 names it, and Fedify then finds no key.
		"assertionMethod": map[string]string{"@id": "https://w3id.org/security#assertionMethod", "@type": "@id", "@container": "@set"},
		"implements":      map[string]string{"@id": "https://w3id.org/fep/844e#implements", "@type": "@id"},
	},
}

// agentActor makes the actor of an agent: type Service, which people see as "automated".
func (p *profiles) agentActor(agent exchange.AgentProfile, key *ownKey, movedTo string) actorDocument {
	id := p.actorIRI(agent.Name)
	actor := p.baseActor(id, key)
	actor.Type, actor.PreferredUsername, actor.Name = "Service", agent.Name, agent.DisplayName
	if actor.Name == "" {
		actor.Name = agent.Name
	}

	if summary := strings.TrimSpace(agent.Summary); summary != "" {
		actor.Summary = "<p>" + strings.ReplaceAll(html.EscapeString(summary), "\n", "<br>") + "</p>"
	}
	if !agent.CreatedAt.IsZero() {
		actor.Published = agent.CreatedAt.UTC().Format(time.RFC3339)
	}

	actor.URL, actor.Discoverable = p.profileURL(agent.Name), true
	actor.ManuallyApproves = p.followPolicy(agent.Name) != FollowAccept
	p.profileFields(&actor)
	actor.Followers, actor.Following, actor.Featured = id+"/followers", id+"/following", id+"/featured"
	actor.WebFinger, actor.MovedTo = agent.Name+"@"+p.options.Domain, movedTo
	if p.options.Profile != nil {
		actor.show(p.options.Profile(agent.Name))
	}

	return actor
}

// instanceActor makes the server's own actor, which signs our fetches.
func (p *profiles) instanceActor(key *ownKey) actorDocument {
	actor := p.baseActor(p.instanceIRI(), key)
	actor.Type, actor.PreferredUsername, actor.Name = "Application", p.instanceName(), p.options.Domain
	actor.URL, actor.ManuallyApproves = cmp.Or(p.options.About, p.base+"/"), true
	actor.WebFinger = p.instanceName() + "@" + p.options.Domain
	actor.Implements = []implemented{{"https://datatracker.ietf.org/doc/html/rfc9421", "RFC-9421: HTTP Message Signatures"}}
	return actor
}

func (p *profiles) baseActor(id string, key *ownKey) actorDocument {
	return actorDocument{
		Context: actorContext, ID: id, Inbox: id + "/inbox", Outbox: id + "/outbox",
		Endpoints:       map[string]string{"sharedInbox": p.sharedInbox()},
		PublicKey:       publicKey{ID: id + key.fragment(), Owner: id, PEM: key.Public},
		AssertionMethod: append([]multikey{{ID: id + proofKeyFragment, Type: "Multikey", Controller: id, Key: key.Multikey}}, key.formerKeys(id, p.now())...),
	}
}

func (p *profiles) serveActor(w http.ResponseWriter, r *http.Request) {
	agent, found := p.requestedAgent(w, r)
	if !found {
		return
	}

	switch accepts(r) {
	case formActivity:
		if !p.verifier.mayRead(w, r) {
			return
		}
		movedTo, err := p.movedTo(r.Context(), agent.Name)
		if err != nil {
			refuse(w, r, unavailable(err))
			return
		}
		p.serveDocument(w, r, agent.Name, func(key *ownKey) (string, actorDocument) {
			return p.fingerprint(agent) + key.fragment() + " " + movedTo, p.agentActor(agent, key, movedTo)
		})
	case formPage:
		w.Header().Set("Vary", "Accept")
		http.Redirect(w, r, p.profileURL(agent.Name), http.StatusSeeOther)
	default:
		refuseForm(w)
	}
}

// serveInstance answers everyone without a signature: a peer that checks our fetches must be able to read this key
// before it knows us.
func (p *profiles) serveInstance(w http.ResponseWriter, r *http.Request) {
	if accepts(r) == formNone {
		refuseForm(w)
		return
	}
	p.serveDocument(w, r, "", func(key *ownKey) (string, actorDocument) { return "instance" + key.fragment(), p.instanceActor(key) })
}

// fingerprint changes with everything that the configuration says about the agent's account.
func (p *profiles) fingerprint(agent exchange.AgentProfile) string {
	shown := fmt.Sprintf("%q %q %q %q %d %q", agent.Name, agent.DisplayName, agent.Summary, agent.Kind, agent.CreatedAt.Unix(), p.followPolicy(agent.Name))
	if p.options.Profile != nil {
		shown += fmt.Sprintf(" %+q", fmt.Sprint(p.options.Profile(agent.Name)))
	}
	return shown
}

// serveDocument encodes an actor once and keeps the bytes while the agent stays as it is.
func (p *profiles) serveDocument(w http.ResponseWriter, r *http.Request, owner string, content func(*ownKey) (string, actorDocument)) {
	key, err := p.keys.key(r.Context(), owner)
	if err != nil {
		refuse(w, r, unavailable(err))
		return
	}

	of, actor := content(key)
	kept, found := p.documents.get(strings.ToLower(owner), p.now())
	if !found || kept.of != of {
		if kept, err = newDocument(of, actor); err != nil {
			refuse(w, r, err)
			return
		}
		p.documents.put(strings.ToLower(owner), kept, p.now().Add(time.Hour))
	}

	seconds := 180
	if p.options.AuthorizedFetch && owner != "" {
		seconds = 0 // what one signer may read is for no shared cache
	}
	writeDocument(w, r, kept, seconds)
}

// Field is a line of an actor's profile (schema.org PropertyValue). A value that is a web or mail address becomes a link.
type Field struct{ Name, Value string }

type propertyValue struct {
	Type  string `json:"type"`
	Name  string `json:"name"`
	Value string `json:"value"` // HTML
}

var fieldContext = map[string]any{
	"schema": "http://schema.org#", "PropertyValue": "schema:PropertyValue", "value": "schema:value",
}

// profileFields puts the operator's lines and the page for administrators onto an actor.
func (p *profiles) profileFields(actor *actorDocument) {
	fields := p.options.Fields
	if p.options.About != "" {
		fields = append(slices.Clone(fields), Field{Name: "For administrators", Value: p.options.About})
	}
	if len(fields) == 0 {
		return
	}
	actor.Context = append(append([]any{}, actor.Context...), fieldContext)
	for _, field := range fields {
		value := html.EscapeString(field.Value)
		switch {
		case strings.HasPrefix(field.Value, "https://"), strings.HasPrefix(field.Value, "http://"):
			value = `<a href="` + value + `" rel="nofollow noopener" target="_blank">` + html.EscapeString(strings.SplitN(field.Value, "://", 2)[1]) + `</a>`
		case strings.Contains(field.Value, "@") && !strings.HasPrefix(field.Value, "@"):
			value = `<a href="mailto:` + value + `">` + value + `</a>`
		}
		actor.Attachment = append(actor.Attachment, propertyValue{"PropertyValue", field.Name, value})
	}
}

// AtProfile serves the actor at the address of an agent's page to those who name ActivityPub: people copy that address
// into the search of their server. Everyone else gets the page, with a link to the
// actor.
func (p *profiles) AtProfile(page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asksForActivity(r) {
			p.serveActor(w, r)
			return
		}

		w.Header().Add("Vary", "Accept")
		if agent, found := p.options.Directory.Agent(httpserver.Param(r, "agent")); found {
			w.Header().Add("Link", "<"+p.actorIRI(agent.Name)+`>; rel="alternate"; type="`+activityMediaType+`"`)
		}
		page.ServeHTTP(w, r)
	})
}

// announceActor sends the actor as it is now to its followers and to those who heard of it lately.
func (p *profiles) announceActor(ctx context.Context, agent string) error {
	profile, known := p.options.Directory.Agent(agent)
	if !known {
		return fault.Newf(fault.NotFound, "there is no agent %q", agent)
	}

	key, err := p.keys.key(ctx, profile.Name)
	if err != nil {
		return err
	}

	moved, err := p.movedTo(ctx, profile.Name)
	if err != nil {
		return err
	}

	actor := p.agentActor(profile, key, moved)
	context := actor.Context
	actor.Context = nil
	now := p.now().UTC()
	update := struct {
		Context   []any         `json:"@context"`
		ID        string        `json:"id"`
		Type      string        `json:"type"`
		Actor     string        `json:"actor"`
		To        []string      `json:"to"`
		Cc        []string      `json:"cc"`
		Published string        `json:"published"`
		Object    actorDocument `json:"object"`
	}{
		context, actor.ID + "#updates/" + strconv.FormatInt(now.UnixMilli(), 10), "Update", actor.ID, []string{document.Public},
		[]string{actor.ID + "/followers"}, now.Format(time.RFC3339), actor,
	}
	return p.outbox.announce(ctx, profile.Name, update.ID, update, true)
}

// movedTo returns the actor to which an agent moved; empty when it is here.
func (p *profiles) movedTo(ctx context.Context, agent string) (string, error) {
	value, found, err := p.options.State.Get(ctx, departedNamespace, strings.ToLower(agent))
	var where moved
	if err != nil || !found {
		return "", err
	}
	if err := json.Unmarshal(value, &where); err != nil {
		return "", err
	}
	return where.Target, nil
}
