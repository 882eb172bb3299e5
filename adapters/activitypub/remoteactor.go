package activitypub

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"strings"
	"time"

	"inbox/adapters/activitypub/document"
)

// remoteActor is what is kept of an actor of another server.
type remoteActor struct {
	document.Actor
	NoBot     bool      `json:"no_bot,omitempty"` // the profile asks programs not to write unasked
	FetchedAt time.Time `json:"fetched_at"`
	Until     time.Time `json:"until,omitzero"`   // the actor was changed: what is kept holds no longer than this
	GoneAt    time.Time `json:"gone_at,omitzero"` // since when its server says that it does not exist
}

// freshUntil is when the actor is to be fetched again.
func (r *remoteActor) freshUntil() time.Time {
	end := r.FetchedAt.Add(keyLife)
	if !r.Until.IsZero() && r.Until.Before(end) {
		return r.Until
	}
	return end
}

func (r *remoteActor) fresh(now time.Time) bool { return now.Before(r.freshUntil()) }

// readActor reads the actor document that was fetched at an instant.
func readActor(doc document.Object, now time.Time) (*remoteActor, error) {
	described, err := document.ReadActor(doc)
	if err != nil {
		return nil, err
	}
	return &remoteActor{Actor: described, NoBot: asksNoBots(document.Text(doc, "summary")), FetchedAt: now.UTC()}, nil
}

// parseKey reads SPKI or PKCS #1 PEM, or a Multikey, and refuses weak and absurd keys.
func parseKey(material string) (crypto.PublicKey, error) {
	if strings.HasPrefix(material, "z") {
		return parseMultikey(material)
	}
	block, _ := pem.Decode([]byte(material))
	if block == nil {
		return nil, errors.New("key is neither PEM nor a Multikey")
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		pkcs1, otherErr := x509.ParsePKCS1PublicKey(block.Bytes) // "RSA PUBLIC KEY" of some small servers
		if otherErr != nil {
			return nil, errors.New("key cannot be parsed")
		}
		parsed = pkcs1
	}
	switch key := parsed.(type) {
	case *rsa.PublicKey:
		return key, checkRSA(key)
	case ed25519.PublicKey:
		return key, nil
	}
	return nil, errors.New("key is neither RSA nor Ed25519")
}

func checkRSA(key *rsa.PublicKey) error {
	bits := key.N.BitLen()
	switch {
	case bits < 2048:
		return errors.New("RSA key is shorter than 2048 bits")
	case bits > 8192:
		return errors.New("RSA key is longer than 8192 bits")
	case key.E < 65537:
		return errors.New("RSA key has an exponent below 65537")
	}
	return nil
}
