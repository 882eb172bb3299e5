package a2a

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/internal/safehttp"
	"inbox/internal/webtoken"
	"inbox/normalized"
	"inbox/policypart"
)

const defaultVersion = "1.0.0"

// endpoint is the URL of an agent's JSON-RPC interface; HTTP+JSON 1.0 is below it at /rest, 0.3 at /v1.
func (d *cards) endpoint(agent exchange.AgentProfile) string {
	return d.base + "/a2a/" + url.PathEscape(agent.Name)
}

// agentCard10 is the A2A 1.0 card with some of the agent's skills.
func (d *cards) agentCard10(agent exchange.AgentProfile, skills []exchange.Skill) *a2a.AgentCard {
	return &a2a.AgentCard{
		Name: displayName(agent), Description: description(agent), Version: version(agent),
		Provider:            d.provider(),
		SupportedInterfaces: d.interfaces(agent),
		Capabilities: a2a.AgentCapabilities{
			Streaming: true, PushNotifications: d.options.Push.Watches != nil, Extensions: cardExtensions(agent), ExtendedAgentCard: true,
		},
		DefaultInputModes:    []string{"text/plain", "text/markdown", mimeJSON, "*/*"},
		DefaultOutputModes:   []string{"text/plain", "text/markdown"},
		SecuritySchemes:      d.securitySchemes(),
		SecurityRequirements: d.securityRequirements(),
		Skills:               cardSkills(skills),
	}
}

// agentCardJSON is the public card, which also carries the fields of 0.3 (A2A 1.0, section 8; 0.3, section 5.5), signed.
// Scopes are bare for readers of bareScopes.
func (d *cards) agentCardJSON(ctx context.Context, agent exchange.AgentProfile, bare bool) ([]byte, error) {
	return d.inBothVersions(ctx, d.agentCard10(agent, openSkills(agent)), bare)
}

// inBothVersions writes a card with the fields of 1.0 and of 0.3, signed.
func (d *cards) inBothVersions(ctx context.Context, card *a2a.AgentCard, bare bool) ([]byte, error) {
	producer, ok := a2av0.NewStaticAgentCardProducer(card).(a2asrv.AgentCardJSONProducer)
	if !ok {
		return nil, fmt.Errorf("the SDK's card producer for both versions does not write JSON")
	}
	card03, err := producer.CardJSON(ctx)
	if err != nil {
		return nil, fmt.Errorf("write agent card: %w", err)
	}
	both, err := withBothSchemes(card, card03)
	if err != nil {
		return nil, err
	}
	if !bare {
		if both["securityRequirements"], err = listedRequirements(card.SecurityRequirements); err != nil {
			return nil, err
		}
	}
	return d.signed(ctx, both)
}

// provider is who operates the server, with an address for questions (A2A 1.0, section 4.4.2: AgentProvider). Its url has
// to be a web page.
func (d *cards) provider() *a2a.AgentProvider {
	organization := cmp.Or(d.options.Operator, identity.HostOf(d.options.Domain))
	if d.options.Contact != "" {
		organization += " <" + d.options.Contact + ">"
	}
	return &a2a.AgentProvider{Org: organization, URL: cmp.Or(d.options.OperatorURL, d.base)}
}

// interfaces are the ways to an agent in order of preference. The tenant tells the one gRPC listener which agent is meant;
// 0.3 has none, so there gRPC reaches the default agent only.
func (d *cards) interfaces(agent exchange.AgentProfile) []*a2a.AgentInterface {
	endpoint := d.endpoint(agent)
	list := []*a2a.AgentInterface{
		{URL: endpoint, ProtocolBinding: a2a.TransportProtocolJSONRPC, ProtocolVersion: a2a.Version},
		{URL: endpoint + "/rest", ProtocolBinding: a2a.TransportProtocolHTTPJSON, ProtocolVersion: a2a.Version},
	}
	address := d.options.GRPCAddress()
	if address != "" {
		list = append(list, &a2a.AgentInterface{
			URL: address, ProtocolBinding: a2a.TransportProtocolGRPC, ProtocolVersion: a2a.Version, Tenant: agent.Name,
		})
	}
	list = append(list,
		&a2a.AgentInterface{URL: endpoint, ProtocolBinding: a2a.TransportProtocolJSONRPC, ProtocolVersion: a2av0.Version},
		&a2a.AgentInterface{URL: endpoint, ProtocolBinding: a2a.TransportProtocolHTTPJSON, ProtocolVersion: a2av0.Version})
	if first, _ := d.defaultAgent(); address != "" && first.Name == agent.Name {
		list = append(list, &a2a.AgentInterface{URL: address, ProtocolBinding: a2a.TransportProtocolGRPC, ProtocolVersion: a2av0.Version})
	}
	return list
}

// withBothSchemes describes the ways to authenticate in the form of 1.0 (one key that names the kind) and of 0.3 (a type
// key). The SDK's producer writes the second alone, and its own strict 1.0 parser then refuses the card.
func withBothSchemes(card *a2a.AgentCard, card03 []byte) (map[string]json.RawMessage, error) {
	var document map[string]json.RawMessage
	if err := json.Unmarshal(card03, &document); err != nil {
		return nil, fmt.Errorf("read agent card: %w", err)
	}
	var old, both map[string]map[string]json.RawMessage
	if err := json.Unmarshal(document["securitySchemes"], &old); err != nil {
		return nil, fmt.Errorf("read security schemes: %w", err)
	}
	fresh, err := json.Marshal(card.SecuritySchemes)
	if err != nil {
		return nil, fmt.Errorf("write security schemes: %w", err)
	}
	if err := json.Unmarshal(fresh, &both); err != nil {
		return nil, fmt.Errorf("read security schemes: %w", err)
	}
	for name, scheme := range both {
		for _, member := range []string{"type", "scheme", "bearerFormat", "description", "openIdConnectUrl"} {
			if value, has := old[name][member]; has {
				scheme[member] = value
			}
		}
	}
	document["securitySchemes"], err = json.Marshal(both)
	return document, err
}

// extensions are what a peer may use with us; none is required.
var extensions = []mentionableExtension{
	{policypart.Extension, "Demands for consent, a login or a payment, and refusals, as structured parts."},
	{identity.EvidenceExtension, "Signed evidence of who speaks or on whose behalf, in metadata.mentionable." + evidenceKey + "."},
	{identity.CredentialExtension, "Verifiable credentials about who speaks, in metadata.mentionable." + credentialsKey + "."},
}

// cardExtensions says with the identity extension what a caller must prove.
func cardExtensions(agent exchange.AgentProfile) []a2a.AgentExtension {
	list := make([]a2a.AgentExtension, len(extensions))
	for i, extension := range extensions {
		list[i] = a2a.AgentExtension{URI: extension.URI, Description: extension.Description}
		if extension.URI == identity.EvidenceExtension && agent.IdentityPolicy != nil {
			list[i].Params = map[string]any{"identity_policy": agent.IdentityPolicy.Published()}
		}
	}
	return list
}

func publishedPolicy(agent exchange.AgentProfile) any {
	if agent.IdentityPolicy == nil {
		return nil
	}
	return agent.IdentityPolicy.Published()
}

func displayName(agent exchange.AgentProfile) string {
	if agent.DisplayName != "" {
		return agent.DisplayName
	}
	return agent.Name
}

func description(agent exchange.AgentProfile) string {
	if agent.Summary != "" {
		return agent.Summary
	}
	return "The agent " + agent.Address + "."
}

func version(agent exchange.AgentProfile) string {
	if agent.Version != "" {
		return agent.Version
	}
	return defaultVersion
}

// skillsOf returns at least one skill: clients refuse a card without.
func skillsOf(agent exchange.AgentProfile) []exchange.Skill {
	if len(agent.Skills) > 0 {
		return agent.Skills
	}
	return []exchange.Skill{{ID: "message", Name: "Messages", Description: description(agent), Tags: []string{"chat"}}}
}

func cardSkills(skills []exchange.Skill) []a2a.AgentSkill {
	list := make([]a2a.AgentSkill, len(skills))
	for i, skill := range skills {
		tags := skill.Tags
		if tags == nil {
			tags = []string{}
		}
		list[i] = a2a.AgentSkill{
			ID: skill.ID, Name: skill.Name, Description: skill.Description, Tags: tags, Examples: skill.Examples,
		}
	}
	return list
}

// mentionable is the card in the form of the message contract, section 11.
type mentionable struct {
	Address         string            `json:"address"`
	Name            string            `json:"name"`
	Description     string            `json:"description"`
	Version         string            `json:"version"`
	ProtocolVersion string            `json:"protocol_version"`
	A2A             mentionableA2A    `json:"a2a"`
	Mentionable     mentionableTraits `json:"mentionable"`

	Signatures []webtoken.CardSignature `json:"signatures,omitempty"` // as those of an A2A card, over the whole document
}

type mentionableA2A struct {
	Endpoint     string                  `json:"endpoint"`
	Transport    string                  `json:"transport"`
	Capabilities mentionableCapabilities `json:"capabilities"`
	Skills       []mentionableSkill      `json:"skills"`
	InputModes   []mode                  `json:"input_modes"`
	OutputModes  []mode                  `json:"output_modes"`
	Auth         mentionableAuth         `json:"auth"`
}

type mentionableCapabilities struct {
	Streaming              bool                   `json:"streaming"`
	PushNotifications      bool                   `json:"push_notifications"`
	StateTransitionHistory bool                   `json:"state_transition_history"`
	Extensions             []mentionableExtension `json:"extensions"`
}

type mentionableExtension struct {
	URI         string `json:"uri"`
	Description string `json:"description"`
}

type mentionableSkill struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Tags        []string `json:"tags,omitempty"`
	Examples    []string `json:"examples,omitempty"`
}

type mode struct {
	Kind string `json:"kind"`
	MIME string `json:"mime,omitempty"`
}

// mentionableAuth says bearer-jwt, the only bearer scheme of the contract: the token is sent the same way, and what
// is in it is no client's business.
type mentionableAuth struct {
	Scheme string `json:"scheme"`
}

type mentionableTraits struct {
	SupportedInbound []string `json:"supported_inbound"`
	Homepage         string   `json:"homepage,omitempty"`
	IdentityPolicy   any      `json:"identity_policy,omitempty"` // what a caller must prove, so that it knows before it asks
}

func (d *cards) mentionableJSON(ctx context.Context, agent exchange.AgentProfile) ([]byte, error) {
	skills := openSkills(agent)
	list := make([]mentionableSkill, len(skills))
	for i, skill := range skills {
		list[i] = mentionableSkill(skill)
	}
	text := []mode{{Kind: normalized.PartText, MIME: "text/plain"}, {Kind: normalized.PartText, MIME: "text/markdown"}}
	card := mentionable{
		Address: agent.Address, Name: displayName(agent), Description: description(agent), Version: version(agent),
		ProtocolVersion: "0.1",
		A2A: mentionableA2A{
			Endpoint: d.endpoint(agent), Transport: "https+jsonrpc",
			Capabilities: mentionableCapabilities{
				Streaming: true, PushNotifications: d.options.Push.Watches != nil, Extensions: extensions,
			},
			Skills: list, Auth: mentionableAuth{Scheme: "bearer-jwt"}, OutputModes: text,
			InputModes: append(append([]mode{}, text...), mode{Kind: normalized.PartLink}, mode{Kind: normalized.PartFile, MIME: "*/*"}),
		},
		Mentionable: mentionableTraits{
			SupportedInbound: d.options.SupportedInbound,
			Homepage:         d.base + "/@" + url.PathEscape(agent.Name),
			IdentityPolicy:   publishedPolicy(agent),
		},
	}
	document, err := json.Marshal(card)
	if err != nil {
		return nil, err
	}
	if card.Signatures, err = d.signatures(ctx, document); err != nil {
		return nil, err
	}
	return json.MarshalIndent(card, "", "  ")
}

// bareScopes reports whether a client reads the scopes of a card's security requirements as a bare list: the Go SDK (2.4)
// does, and refuses the whole card otherwise (decision 0053). Its programs are known by Go's own HTTP client.
func bareScopes(header http.Header) bool {
	return strings.HasPrefix(header.Get("User-Agent"), "Go-http-client/")
}

// scopeList is StringList of the .proto file.
type scopeList struct {
	List []string `json:"list"`
}

type securityRequirement struct {
	Schemes map[a2a.SecuritySchemeName]scopeList `json:"schemes"`
}

// listedRequirements are security requirements as A2A 1.0 writes them (section 4.5.1, SecurityRequirement):
// {"schemes":{"openid":{"list":["a2a:send"]}}}.
func listedRequirements(options a2a.SecurityRequirementsOptions) (json.RawMessage, error) {
	list := make([]securityRequirement, len(options))
	for i, option := range options {
		list[i].Schemes = map[a2a.SecuritySchemeName]scopeList{}
		for name, scopes := range option {
			list[i].Schemes[name] = scopeList{append([]string{}, scopes...)}
		}
	}
	return json.Marshal(list)
}

// varied serves a card that is not the same for all programs.
func varied(card http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "User-Agent")
		card.ServeHTTP(w, r)
	})
}

var checkedCards = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_a2a_card_signatures_total",
	Help: "Cards of agents elsewhere that our agents call, by outcome of their signatures (valid, unsigned, unknown, forged).",
}, []string{"outcome"})

const maxKeySetBytes = 256 << 10

// checkSignature refuses a card whose signature names a key of the card's own origin and does not fit: the card was changed
// on the way. A card without a signature, or with a key from elsewhere, is what TLS says that it is and no more: who signs
// chooses the place of the key, so that a signature by it proves nothing. Keys that cannot be had now are asked for again.
func (c *Caller) checkSignature(ctx context.Context, card []byte, at *url.URL) error {
	var signed struct {
		Signatures []json.RawMessage `json:"signatures"`
	}
	_ = json.Unmarshal(card, &signed) // what cannot be read has no signature; readCard says so
	if len(signed.Signatures) == 0 {
		checkedCards.WithLabelValues("unsigned").Inc()
		return nil
	}
	keys, err := c.keysOf(ctx, at)
	if err != nil {
		return err
	}
	switch err := webtoken.VerifyWhole(card, keys); {
	case errors.Is(err, webtoken.ErrCardForged):
		checkedCards.WithLabelValues("forged").Inc()
		return fault.GiveUp("the card of the other agent was changed after it was signed", err)
	case err != nil:
		checkedCards.WithLabelValues("unknown").Inc()
	default:
		checkedCards.WithLabelValues("valid").Inc()
	}
	return nil
}

// keysOf reads the key set of an origin; none where it publishes none.
func (c *Caller) keysOf(ctx context.Context, card *url.URL) ([]byte, error) {
	at := url.URL{Scheme: card.Scheme, Host: card.Host, Path: "/.well-known/jwks.json"}
	options := safehttp.GetOptions{Accept: "application/jwk-set+json, application/json", MaxBytes: maxKeySetBytes, MaxRedirects: -1}
	response, err := c.options.Client.Get(ctx, at.String(), options)
	switch {
	case errors.Is(err, safehttp.ErrRedirects):
		return nil, nil
	case err != nil:
		return nil, unreachable(err)
	}
	defer func() { _ = response.Body.Close() }()
	switch status := response.StatusCode; {
	case status == http.StatusTooManyRequests, status >= http.StatusInternalServerError:
		return nil, fault.RetryIn(retryAfter(response.Header), "the server of the other agent does not answer right now", nil)
	case status != http.StatusOK:
		return nil, nil
	}
	keys, err := io.ReadAll(io.LimitReader(response.Body, maxKeySetBytes+1))
	if err != nil {
		return nil, unreachable(err)
	}
	return keys, nil
}
