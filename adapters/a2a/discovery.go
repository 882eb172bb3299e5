package a2a

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/bounded"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/internal/webtoken"
)

// CardRel is the link relation from an address to its agent card (message contract, section 11).
const CardRel = "https://mentionable.dev/ns/rel/agent-card"

// Links are the discovery links of an agent that this protocol contributes.
func (d *cards) Links(agent exchange.AgentProfile) []exchange.Link {
	return []exchange.Link{{
		Rel: CardRel, Type: mimeJSON, Href: d.cardURL(agent),
	}}
}

// cardURL is the address of the agent's card, which is also a name of the agent.
func (d *cards) cardURL(agent exchange.AgentProfile) string {
	return d.base + "/.well-known/agent-card/" + url.PathEscape(agent.Name)
}

// agentCard is /a2a/{agent}/.well-known/agent-card.json.
func (d *cards) agentCard(r *http.Request) ([]byte, error) {
	agent, known := d.options.Directory.Agent(httpserver.Param(r, "agent"))
	if !known {
		return nil, noCard()
	}
	return d.agentCardJSON(r.Context(), agent, bareScopes(r.Header))
}

// defaultCard is /.well-known/agent-card.json, which names one agent an origin.
func (d *cards) defaultCard(r *http.Request) ([]byte, error) {
	if agent, known := d.defaultAgent(); known {
		return d.agentCardJSON(r.Context(), agent, bareScopes(r.Header))
	}
	return nil, noCard()
}

// defaultAgent is the one that the operator named, or the first.
func (d *cards) defaultAgent() (exchange.AgentProfile, bool) {
	if d.options.DefaultAgent != "" {
		return d.options.Directory.Agent(d.options.DefaultAgent)
	}
	if agents := d.options.Directory.Agents(); len(agents) > 0 {
		return agents[0], true
	}
	return exchange.AgentProfile{}, false
}

// mentionableCard is /.well-known/agent-card/{agent}.
func (d *cards) mentionableCard(r *http.Request) ([]byte, error) {
	agent, known := d.options.Directory.Agent(httpserver.Param(r, "agent"))
	if !known {
		return nil, noCard()
	}
	return d.mentionableJSON(r.Context(), agent)
}

func noCard() error { return fault.New(fault.NotFound, "no such agent here") }

// cached serves a public document with a strong ETag. Browsers of any origin may read it, without credentials: the
// SDK's own handler reflects the origin and allows them.
func (d *cards) cached(document func(*http.Request) ([]byte, error)) http.Handler {
	return d.cachedAs(mimeJSON, document)
}

func (d *cards) cachedAs(mediaType string, document func(*http.Request) ([]byte, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Access-Control-Allow-Origin", "*")
		switch r.Method {
		case http.MethodGet, http.MethodHead:
		case http.MethodOptions:
			header.Set("Access-Control-Allow-Methods", "GET, HEAD")
			header.Set("Access-Control-Allow-Headers", "A2A-Version, A2A-Extensions")
			w.WriteHeader(http.StatusNoContent)
			return
		default:
			header.Set("Allow", "GET, HEAD, OPTIONS")
			http.Error(w, "cards are read with GET", http.StatusMethodNotAllowed)
			return
		}
		body, err := document(r)
		if err != nil {
			d.cardProblem(w, r, err)
			return
		}
		sum := sha256.Sum256(body)
		tag := `"` + hex.EncodeToString(sum[:16]) + `"`
		header.Set("Etag", tag)
		header.Set("Cache-Control", "public, max-age=300")
		header.Set("Content-Type", mediaType)
		name := r.URL.Path
		if bareScopes(r.Header) {
			name += " bare"
		}
		http.ServeContent(w, r, "", d.seen.since(name, tag), bytes.NewReader(body))
	})
}

// changes remembers since when each document is what it is: there is no other time of its last change.
type changes struct {
	mu    sync.Mutex
	known map[string]change
}

type change struct {
	tag string
	at  time.Time
}

// maxChanges bounds the documents that are remembered; an agent has ten.
const maxChanges = 10_000

func (c *changes) since(path, tag string) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, has := c.known[path]; has && known.tag == tag {
		return known.at
	}
	if c.known == nil {
		c.known = map[string]change{}
	}
	if len(c.known) >= maxChanges {
		bounded.MakeRoom(c.known, func(change) bool { return false })
	}
	now := time.Now()
	c.known[path] = change{tag, now}
	return now
}

func (d *cards) cardProblem(w http.ResponseWriter, r *http.Request, err error) {
	if fault.Is(err, fault.NotFound) {
		http.Error(w, "no such agent here", http.StatusNotFound)
		return
	}
	d.log.ErrorContext(r.Context(), "agent card cannot be written", "error", err)
	http.Error(w, "internal error", http.StatusInternalServerError)
}

// Names of the security schemes in cards.
const (
	bearerScheme = "bearer" // a token of the operator
	jwtScheme    = "jwt"    // a token of an issuer, or what a peer signs for itself
	openIDScheme = "openid" // with a number behind it from the second on
)

//nolint:gosec // these describe tokens and are none
const (
	tokenDescription = "A token minted by the operator of this server."
	jwtDescription   = "A JWT that the server of the calling agent signs for one request (iss https://its domain, sub its address, " +
		"aud this agent, jti, five minutes at most), or an access token of an issuer that the protected-resource metadata names."
)

// securitySchemes are the ways to authenticate that this server takes.
func (d *cards) securitySchemes() a2a.NamedSecuritySchemes {
	schemes := a2a.NamedSecuritySchemes{bearerScheme: a2a.HTTPAuthSecurityScheme{Scheme: "Bearer", Description: tokenDescription}}
	if d.options.Verifier != nil {
		schemes[jwtScheme] = a2a.HTTPAuthSecurityScheme{Scheme: "Bearer", BearerFormat: "JWT", Description: jwtDescription}
	}
	for name, issuer := range d.openIDs() {
		schemes[a2a.SecuritySchemeName(name)] = a2a.OpenIDConnectSecurityScheme{OpenIDConnectURL: issuer.Discovery}
	}
	return schemes
}

// openIDs are the issuers with published metadata, by the name of their scheme.
func (d *cards) openIDs() map[string]IssuerCard {
	named := map[string]IssuerCard{}
	for _, issuer := range d.options.Issuers {
		if issuer.Discovery == "" {
			continue
		}
		name := openIDScheme
		if len(named) > 0 {
			name = fmt.Sprintf("%s%d", openIDScheme, len(named)+1)
		}
		named[name] = issuer
	}
	return named
}

// securityRequirements are alternatives. The SDK writes them in its own form, listedRequirements in that of 1.0.
func (d *cards) securityRequirements() a2a.SecurityRequirementsOptions {
	list := a2a.SecurityRequirementsOptions{{bearerScheme: a2a.SecuritySchemeScopes{}}}
	if d.options.Verifier != nil {
		list = append(list, a2a.SecurityRequirements{jwtScheme: a2a.SecuritySchemeScopes{}})
	}
	names := []string{}
	for name := range d.openIDs() {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		list = append(list, a2a.SecurityRequirements{a2a.SecuritySchemeName(name): a2a.SecuritySchemeScopes(allScopes)})
	}
	return list
}

// openSkills are those of the public card: a skill that a rule is about is shown in the extended card, to whom it opens.
func openSkills(agent exchange.AgentProfile) []exchange.Skill {
	return skillsWhere(agent, func(purpose string) bool { return !ruled(agent, purpose) })
}

func ruled(agent exchange.AgentProfile, purpose string) bool {
	return agent.IdentityPolicy != nil && slices.ContainsFunc(agent.IdentityPolicy.Rules, func(rule identity.Rule) bool {
		return slices.Contains(rule.Purposes, purpose)
	})
}

func skillsWhere(agent exchange.AgentProfile, shown func(purpose string) bool) []exchange.Skill {
	all := skillsOf(agent)
	list := slices.DeleteFunc(slices.Clone(all), func(skill exchange.Skill) bool { return !shown(identity.PurposeSkill + skill.ID) })
	if len(list) == 0 { // clients refuse a card without
		agent.Skills = nil
		return skillsOf(agent)
	}
	return list
}

// extendedCard is the card for one caller: the open skills and those that the rules open to the caller.
func (d *cards) extendedCard(ctx context.Context, c *call) (*a2a.AgentCard, error) {
	card := d.agentCard10(c.agent, skillsWhere(c.agent, func(purpose string) bool {
		return !ruled(c.agent, purpose) || c.agent.IdentityPolicy.Decide(purpose, c.sender.Address, c.sender.Identities).Allowed
	}))
	if c.old {
		// The SDK's conversion for JSON says nothing of authentication and takes in the addresses of 1.0.
		document, err := d.inBothVersions(ctx, card, c.bareScopes)
		if err != nil {
			return nil, err
		}
		c.card = document
		return card, plainParams(card)
	}
	return card, d.signExtended(ctx, c, card)
}

// signExtended signs the extended card as the caller reads it.
func (d *cards) signExtended(ctx context.Context, c *call, card *a2a.AgentCard) error {
	written, err := json.Marshal(card)
	if err != nil {
		return fmt.Errorf("write extended card: %w", err)
	}
	if !c.bareScopes {
		var members map[string]json.RawMessage
		if err := json.Unmarshal(written, &members); err != nil {
			return fmt.Errorf("read extended card: %w", err)
		}
		if members["securityRequirements"], err = listedRequirements(card.SecurityRequirements); err != nil {
			return err
		}
		if c.card, err = d.signed(ctx, members); err != nil {
			return err
		}
		written = c.card
	}
	signatures, err := d.signatures(ctx, written)
	if err != nil {
		return err
	}
	for _, signature := range signatures {
		card.Signatures = append(card.Signatures, a2a.AgentCardSignature{Protected: signature.Protected, Signature: signature.Signature})
	}
	return plainParams(card)
}

// plainParams leaves only what JSON knows in the parameters of the extensions: gRPC takes no structs of ours.
func plainParams(card *a2a.AgentCard) error {
	for i, extension := range card.Capabilities.Extensions {
		encoded, err := json.Marshal(extension.Params)
		if err != nil {
			return fmt.Errorf("write extension %s: %w", extension.URI, err)
		}
		var plain map[string]any
		if err := json.Unmarshal(encoded, &plain); err != nil {
			return fmt.Errorf("read extension %s: %w", extension.URI, err)
		}
		card.Capabilities.Extensions[i].Params = plain
	}
	return nil
}

// signatures are none without keys.
func (d *cards) signatures(ctx context.Context, document []byte) ([]webtoken.CardSignature, error) {
	if d.options.CardKeys == nil {
		return nil, nil
	}
	keys, err := d.options.CardKeys(ctx)
	if err != nil {
		return nil, fmt.Errorf("sign agent card: %w", err)
	}
	return webtoken.SignCard(document, keys, d.base+"/.well-known/jwks.json")
}

// signed writes a card with its signatures.
func (d *cards) signed(ctx context.Context, members map[string]json.RawMessage) ([]byte, error) {
	document, err := json.Marshal(members)
	if err != nil {
		return nil, err
	}
	signatures, err := d.signatures(ctx, document)
	if err != nil {
		return nil, err
	}
	if len(signatures) > 0 {
		if members["signatures"], err = json.Marshal(signatures); err != nil {
			return nil, err
		}
	}
	return json.MarshalIndent(members, "", "  ")
}

// catalog is /.well-known/api-catalog (RFC 9727): every agent with its card, as a link set (RFC 9264).
func (d *cards) catalog() ([]byte, error) {
	type target struct {
		Href string `json:"href"`
		Type string `json:"type,omitempty"`
	}
	type entry struct {
		Anchor   string   `json:"anchor"`
		Describe []target `json:"service-desc"`
		Metadata []target `json:"service-meta"`
	}
	entries := []entry{}
	for _, agent := range d.options.Directory.Agents() {
		endpoint := d.endpoint(agent)
		entries = append(entries, entry{
			Anchor:   endpoint,
			Describe: []target{{endpoint + "/.well-known/agent-card.json", mimeJSON}},
			Metadata: []target{{d.cardURL(agent), mimeJSON}, {d.resourceMetadataURL(agent), mimeJSON}},
		})
	}
	return json.MarshalIndent(map[string]any{"linkset": entries}, "", "  ")
}
