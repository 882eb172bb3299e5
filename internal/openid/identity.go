package openid

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
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
}

// Redeem trades the code for an ID token and verifies it (OpenID Connect Core, section 3.1.3.7): signature by a key of
// the provider, issuer, audience, authorized party, times and nonce. fault.Unauthenticated when the code is refused or
// the token is bad, fault.Unavailable when the provider cannot be reached.
func (p *Provider) Redeem(ctx context.Context, code, nonce, verifier string) (Identity, error) {
	if code == "" || len(code) > maxCodeBytes {
		return Identity{}, rejected(errors.New("no usable code"))
	}

	provider, err := p.provider(ctx)
	if err != nil {
		return Identity{}, err
	}

	ctx = oidc.ClientContext(ctx, p.client)
	token, err := p.config(provider).Exchange(ctx, code, oauth2.VerifierOption(verifier))
	if err != nil {
		return Identity{}, classed(err)
	}

	raw, _ := token.Extra("id_token").(string)
	if raw == "" || len(raw) > maxTokenBytes {
		return Identity{}, rejected(errors.New("the provider gave no usable ID token"))
	}

	verified, err := provider.Verifier(&oidc.Config{ClientID: p.options.ClientID, Now: p.options.Now}).Verify(ctx, raw)
	if err != nil {
		return Identity{}, rejected(fmt.Errorf("verify ID token: %w", err))
	}

	return p.identity(verified, raw, nonce)
}

func (p *Provider) identity(token *oidc.IDToken, raw, nonce string) (Identity, error) {
	var claims struct {
		AuthorizedParty string          `json:"azp"`
		Email           string          `json:"email"`
		EmailVerified   json.RawMessage `json:"email_verified"`
		Name            string          `json:"name"`
	}
	switch err := token.Claims(&claims); {
	case err != nil:
		return Identity{}, rejected(fmt.Errorf("read ID token: %w", err))
	case subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(nonce)) != 1:
		return Identity{}, rejected(errors.New("the ID token was made for another login: nonce"))
	case claims.AuthorizedParty != "" && claims.AuthorizedParty != p.options.ClientID:
		return Identity{}, rejected(errors.New("the ID token was made for another client: azp"))
	case token.Subject == "" || len(token.Subject) > maxSubjectBytes:
		return Identity{}, rejected(errors.New("the ID token has no usable subject"))
	}

	// Amazon Cognito writes the boolean as a string.
	if verified := string(claims.EmailVerified); verified != "true" && verified != `"true"` {
		claims.Email = ""
	}

	sum := sha256.Sum256([]byte(raw))
	return Identity{
		Issuer: token.Issuer, Subject: token.Subject, Email: claims.Email, Name: claims.Name,
		TokenHash: hex.EncodeToString(sum[:]), IssuedAt: token.IssuedAt,
	}, nil
}
