package a2a

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	"github.com/a2aproject/a2a-go/v2/a2asrv"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/webtoken"
	"inbox/normalized"
	"inbox/policypart"
)

const defaultVersion = "1.0.0"

// agentCardJSON is the public card, which also carries the fields of 0.3 (A2A 1.0, section 8; 0.3, section 5.5), signed.
// Scopes are bare for readers of bareScopes.
func (d *cards) agentCardJSON(ctx context.Context, agent exchange.AgentProfile, bare bool) ([]byte, error) {
	return d.inBothVersions(ctx, d.agentCard10(agent, openSkills(agent)), bare)
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

// Relations of the links that cards tell of.
const (
	relSelf   = "self" // the actor
	relAvatar = "http://webfinger.net/rel/avatar"
)

// link is the first link of an agent at another protocol.
func (d *cards) link(agent exchange.AgentProfile, relation string) (exchange.Link, bool) {
	if d.options.Links == nil {
		return exchange.Link{}, false
	}
	links := d.options.Links(agent)
	at := slices.IndexFunc(links, func(link exchange.Link) bool { return link.Rel == relation })
	if at < 0 {
		return exchange.Link{}, false
	}
	return links[at], true
}

// agentCard10 is the A2A 1.0 card with some of the agent's skills.
func (d *cards) agentCard10(agent exchange.AgentProfile, skills []exchange.Skill) *a2a.AgentCard {
	icon, _ := d.link(agent, relAvatar)
	return &a2a.AgentCard{
		IconURL: icon.Href,
		Name:    displayName(agent), Description: description(agent), Version: version(agent),
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

// extensions are what a peer may use with us; none is required.
var extensions = []mentionableExtension{
	{policypart.Extension, "Demands for consent, a login or a payment, and refusals, as structured parts."},
	{identity.EvidenceExtension, "Signed evidence of who speaks or on whose behalf, in metadata.mentionable." + evidenceKey + "."},
	{identity.CredentialExtension, "Verifiable credentials about who speaks, in metadata.mentionable." + credentialsKey + "."},
}

// extensionsOf are those that a peer may use with an agent.
func extensionsOf(agent exchange.AgentProfile) []mentionableExtension {
	if !agent.ShowsTools {
		return extensions
	}
	return append(slices.Clip(extensions), mentionableExtension{ToolEventsExtension, "Calls of tools as data parts, to peers that activate it."})
}

// cardExtensions says with the identity extension what a caller must prove.
func cardExtensions(agent exchange.AgentProfile) []a2a.AgentExtension {
	offered := extensionsOf(agent)
	list := make([]a2a.AgentExtension, len(offered))
	for i, extension := range offered {
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
	for _, issuer := range d.options.Issuers() {
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

// mentionable is the card in the form of the message contract, section 11.
type mentionable struct {
	Address         string                  `json:"address"`
	Name            string                  `json:"name"`
	Description     string                  `json:"description"`
	Icon            *mentionableIcon        `json:"icon,omitempty"`
	Version         string                  `json:"version"`
	ProtocolVersion string                  `json:"protocol_version"`
	A2A             mentionableA2A          `json:"a2a"`
	ActivityPub     *mentionableActivityPub `json:"activitypub,omitempty"`
	Mentionable     mentionableTraits       `json:"mentionable"`

	Signatures []webtoken.CardSignature `json:"signatures,omitempty"` // as those of an A2A card, over the whole document
}

type mentionableIcon struct {
	URL  string `json:"url"`
	MIME string `json:"mime,omitempty"` // empty where the address does not tell it
}

type mentionableActivityPub struct {
	Actor string `json:"actor"` // id
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
				Streaming: true, PushNotifications: d.options.Push.Watches != nil, Extensions: extensionsOf(agent),
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

	if icon, has := d.link(agent, relAvatar); has {
		card.Icon = &mentionableIcon{icon.Href, icon.Type}
	}
	if actor, has := d.link(agent, relSelf); has {
		card.ActivityPub = &mentionableActivityPub{actor.Href}
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
