package a2a

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/webtoken"
)

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
func (a *Adapter) securitySchemes() a2a.NamedSecuritySchemes {
	schemes := a2a.NamedSecuritySchemes{bearerScheme: a2a.HTTPAuthSecurityScheme{Scheme: "Bearer", Description: tokenDescription}}
	if a.options.Verifier != nil {
		schemes[jwtScheme] = a2a.HTTPAuthSecurityScheme{Scheme: "Bearer", BearerFormat: "JWT", Description: jwtDescription}
	}
	for name, issuer := range a.openIDs() {
		schemes[a2a.SecuritySchemeName(name)] = a2a.OpenIDConnectSecurityScheme{OpenIDConnectURL: issuer.Discovery}
	}
	return schemes
}

// openIDs are the issuers with published metadata, by the name of their scheme.
func (a *Adapter) openIDs() map[string]IssuerCard {
	named := map[string]IssuerCard{}
	for _, issuer := range a.options.Issuers {
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
func (a *Adapter) securityRequirements() a2a.SecurityRequirementsOptions {
	list := a2a.SecurityRequirementsOptions{{bearerScheme: a2a.SecuritySchemeScopes{}}}
	if a.options.Verifier != nil {
		list = append(list, a2a.SecurityRequirements{jwtScheme: a2a.SecuritySchemeScopes{}})
	}
	names := []string{}
	for name := range a.openIDs() {
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
func (a *Adapter) extendedCard(ctx context.Context, c *call) (*a2a.AgentCard, error) {
	card := a.agentCard10(c.agent, skillsWhere(c.agent, func(purpose string) bool {
		return !ruled(c.agent, purpose) || c.agent.IdentityPolicy.Decide(purpose, c.sender.Address, c.sender.Identities).Allowed
	}))
	if c.old {
		// The SDK's conversion for JSON says nothing of authentication and takes in the addresses of 1.0.
		document, err := a.inBothVersions(ctx, card, c.bareScopes)
		if err != nil {
			return nil, err
		}
		c.card = document
		return card, plainParams(card)
	}
	return card, a.signExtended(ctx, c, card)
}

// signExtended signs the extended card as the caller reads it.
func (a *Adapter) signExtended(ctx context.Context, c *call, card *a2a.AgentCard) error {
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
		if c.card, err = a.signed(ctx, members); err != nil {
			return err
		}
		written = c.card
	}
	signatures, err := a.signatures(ctx, written)
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
func (a *Adapter) signatures(ctx context.Context, document []byte) ([]webtoken.CardSignature, error) {
	if a.options.CardKeys == nil {
		return nil, nil
	}
	keys, err := a.options.CardKeys(ctx)
	if err != nil {
		return nil, fmt.Errorf("sign agent card: %w", err)
	}
	return webtoken.SignCard(document, keys, a.base+"/.well-known/jwks.json")
}

// signed writes a card with its signatures.
func (a *Adapter) signed(ctx context.Context, members map[string]json.RawMessage) ([]byte, error) {
	document, err := json.Marshal(members)
	if err != nil {
		return nil, err
	}
	signatures, err := a.signatures(ctx, document)
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
func (a *Adapter) catalog() ([]byte, error) {
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
	for _, agent := range a.options.Directory.Agents() {
		endpoint := a.endpoint(agent)
		entries = append(entries, entry{
			Anchor:   endpoint,
			Describe: []target{{endpoint + "/.well-known/agent-card.json", mimeJSON}},
			Metadata: []target{{a.cardURL(agent), mimeJSON}, {a.resourceMetadataURL(agent), mimeJSON}},
		})
	}
	return json.MarshalIndent(map[string]any{"linkset": entries}, "", "  ")
}
