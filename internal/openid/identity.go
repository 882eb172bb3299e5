package openid

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"inbox/internal/uniquejson"
)

const (
	maxCodeBytes    = 4 << 10
	maxTokenBytes   = 32 << 10
	maxSubjectBytes = 255 // OpenID Connect Core, section 2: sub
)

// Identity is who the provider says that the browser's user is.
type Identity struct {
	Issuer    string
	Subject   string
	Email     string    // empty unless the provider says that it is verified
	Name      string    // for display
	TokenHash string    // lower-case hex SHA-256 of the ID token, for the audit trail; the token is not kept
	IssuedAt  time.Time // of the ID token
	Groups    []string  // names of groups that the provider says; those beyond 1,000 are left out

	// AuthenticatedAt is when the provider made its user prove who they are; zero where it does not say so.
	AuthenticatedAt time.Time
}

// Redeem trades the code for an ID token and verifies it (OpenID Connect Core, section 3.1.3.7): signature by a key of
// the provider, issuer, audience, authorized party, times and nonce. fault.Unauthenticated when the return or its code is refused
// (with ErrTurnedBack where there was no login) or the token is bad, fault.Unavailable when the provider cannot be reached.
func (p *Provider) Redeem(ctx context.Context, back Return, nonce, verifier string) (Identity, error) {
	provider, err := p.provider(ctx)
	if err != nil {
		return Identity{}, err
	}
	if err := back.check(p.options.Issuer, metadataOf(provider).ReturnsIssuer); err != nil {
		return Identity{}, err
	}

	ctx = oidc.ClientContext(ctx, p.client)
	token, err := p.config(provider).Exchange(ctx, back.Code, oauth2.VerifierOption(verifier))
	if err != nil {
		return Identity{}, classed(err)
	}

	raw, _ := token.Extra("id_token").(string)
	if raw == "" || len(raw) > maxTokenBytes {
		return Identity{}, rejected(errors.New("the provider gave no usable ID token"))
	}
	if err := unique(raw); err != nil {
		return Identity{}, rejected(err)
	}

	verified, err := provider.Verifier(&oidc.Config{ClientID: p.options.ClientID, Now: p.options.Now}).Verify(ctx, raw)
	if err != nil {
		return Identity{}, rejected(fmt.Errorf("verify ID token: %w", err))
	}

	return p.identity(verified, raw, nonce)
}

// unique refuses an ID token that readers could read differently.
func unique(raw string) error {
	pieces := strings.Split(raw, ".")
	for _, piece := range pieces[:len(pieces)-1] {
		body, err := base64.RawURLEncoding.DecodeString(piece)
		if err == nil {
			err = uniquejson.Object(body)
		}
		if err != nil {
			return fmt.Errorf("read ID token: %w", err)
		}
	}
	return nil
}

func (p *Provider) identity(token *oidc.IDToken, raw, nonce string) (Identity, error) {
	var claims struct {
		AuthorizedParty string          `json:"azp"`
		Email           string          `json:"email"`
		EmailVerified   json.RawMessage `json:"email_verified"`
		Name            string          `json:"name"`
		AuthTime        float64         `json:"auth_time"`
	}
	var all map[string]json.RawMessage
	switch err := errors.Join(token.Claims(&claims), token.Claims(&all)); {
	case err != nil:
		return Identity{}, rejected(fmt.Errorf("read ID token: %w", err))
	case subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(nonce)) != 1:
		return Identity{}, rejected(errors.New("the ID token was made for another login: nonce"))
	case claims.AuthorizedParty != "" && claims.AuthorizedParty != p.options.ClientID:
		return Identity{}, rejected(errors.New("the ID token was made for another client: azp"))
	case claims.AuthorizedParty == "" && len(token.Audience) > 1:
		return Identity{}, rejected(errors.New("the ID token has several audiences and does not say for whom it was made: azp"))
	case all["iat"] == nil:
		return Identity{}, rejected(errors.New("the ID token does not say when it was made: iat"))
	case token.Subject == "" || len(token.Subject) > maxSubjectBytes:
		return Identity{}, rejected(errors.New("the ID token has no usable subject"))
	}

	// Amazon Cognito writes the boolean as a string.
	if verified := string(claims.EmailVerified); verified != "true" && verified != `"true"` {
		claims.Email = ""
	}

	sum := sha256.Sum256([]byte(raw))
	found := Identity{
		Issuer: token.Issuer, Subject: token.Subject, Email: claims.Email, Name: claims.Name,
		TokenHash: hex.EncodeToString(sum[:]), IssuedAt: token.IssuedAt, Groups: groups(all[p.options.GroupsClaim]),
	}
	if claims.AuthTime > 0 && claims.AuthTime < maxTime {
		found.AuthenticatedAt = time.Unix(int64(claims.AuthTime), 0)
	}
	return found, nil
}

const (
	maxGroups = 1000
	maxTime   = 1 << 40 // seconds since 1970
)

// groups reads a list of names, or a single one; what is neither counts as none.
func groups(claim json.RawMessage) []string {
	var list []string
	if err := json.Unmarshal(claim, &list); err == nil {
		return list[:min(len(list), maxGroups)]
	}
	var one string
	if err := json.Unmarshal(claim, &one); err == nil && one != "" {
		return []string{one}
	}
	return nil
}
