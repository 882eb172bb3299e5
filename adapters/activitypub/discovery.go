package activitypub

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"html"
	"net/http"
	"strconv"
	"strings"
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/signature"
	"inbox/exchange"
	"inbox/internal/httpserver"
)

// Links gives the link from an agent's address to its actor, and to its picture.
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

// InstanceLinks gives the address of the server's own actor and its link, for WebFinger: Mastodon looks up whoever
// signs a fetch.
func (p *profiles) InstanceLinks() (address string, links []exchange.Link) {
	link := exchange.Link{Rel: "self", Type: activityMediaType, Href: p.instanceIRI()}
	return "@" + p.instanceName() + "@" + p.options.Domain, []exchange.Link{link}
}

// profiles are the actors of the agents and of the server itself.
type profiles struct {
	*site
	keys      *keyring
	verifier  *verifier
	outbox    *outbox
	documents *cache[encodedDocument]
}

// encodedDocument is an encoded answer, kept while what it was made of stays the same.
type encodedDocument struct {
	of   string // fingerprint of the source
	body []byte
	etag string
}

func newDocument(of string, content any) (encodedDocument, error) {
	body, err := document.Encode(content)
	if err != nil {
		return encodedDocument{}, err
	}
	sum := sha256.Sum256(body)
	return encodedDocument{of, body, `"` + hex.EncodeToString(sum[:12]) + `"`}, nil
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

// actorContext defines every term beside ActivityStreams and security in place, so that nobody has to fetch contexts.
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
	actor.URL, actor.ManuallyApproves = p.base+"/", true
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
	agent, found := p.options.Directory.Agent(httpserver.Param(r, "agent"))
	if !found {
		refuse(w, r, p.noAgent(r.Context(), httpserver.Param(r, "agent")))
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
			return fingerprint(agent) + key.fragment() + " " + movedTo, p.agentActor(agent, key, movedTo)
		})
	case formPage:
		w.Header().Set("Vary", "Accept")
		http.Redirect(w, r, p.profileURL(agent.Name), http.StatusSeeOther)
	default:
		refuseForm(w)
	}
}

// serveInstance answers everybody without a signature: a peer that checks our fetches must be able to read this key
// before it knows us.
func (p *profiles) serveInstance(w http.ResponseWriter, r *http.Request) {
	if accepts(r) == formNone {
		refuseForm(w)
		return
	}
	p.serveDocument(w, r, "", func(key *ownKey) (string, actorDocument) { return "instance" + key.fragment(), p.instanceActor(key) })
}

func fingerprint(agent exchange.AgentProfile) string {
	return fmt.Sprintf("%q %q %q %d", agent.Name, agent.DisplayName, agent.Summary, agent.CreatedAt.Unix())
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

// writeDocument sends an encoded ActivityPub document, or 304 for a reader that has it. Nobody keeps it when seconds
// is 0.
func writeDocument(w http.ResponseWriter, r *http.Request, doc encodedDocument, seconds int) {
	header := w.Header()
	header.Set("Cache-Control", "public, max-age="+strconv.Itoa(seconds))
	if seconds == 0 {
		header.Set("Cache-Control", "private, no-store")
	}
	header.Set("Vary", "Accept")
	header.Set("ETag", doc.etag)
	header.Set("X-Content-Type-Options", "nosniff")
	if strings.Contains(r.Header.Get("If-None-Match"), doc.etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	header.Set("Content-Type", activityMediaType+"; charset=utf-8")
	header.Set("Content-Length", strconv.Itoa(len(doc.body)))
	_, _ = w.Write(doc.body)
}
