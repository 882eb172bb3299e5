package operator

import (
	"context"
	"time"

	"inbox/adapters/discovery"
	"inbox/adapters/email"
	"inbox/identity"
	"inbox/internal/config"
)

// Vault keeps the documents with private keys.
type Vault interface {
	discovery.State
	email.KeyState
}

// Keys are the public keys with which this server vouches for its agents.
type Keys struct {
	config *config.Config
	vault  func(ctx context.Context) (Vault, error)
}

// PublishedKey is one of them.
type PublishedKey struct {
	ID       string    `json:"kid"`
	NotAfter time.Time `json:"not_after,omitzero"` // zero = it is in use
}

// List lists the published keys, the one in use first.
func (k Keys) List(ctx context.Context) ([]PublishedKey, error) {
	keyring, err := k.keyring(ctx)
	if err != nil {
		return nil, err
	}
	active, previous, err := keyring.Public(ctx)
	keys := []PublishedKey{}
	for _, list := range [][]identity.PublicKey{active, previous} {
		for _, key := range list {
			keys = append(keys, PublishedKey{ID: key.Kid, NotAfter: key.NotAfter})
		}
	}
	return keys, err
}

// Rotate makes a new key; servers that run notice within a minute.
func (k Keys) Rotate(ctx context.Context) error {
	keyring, err := k.keyring(ctx)
	if err != nil {
		return err
	}
	return keyring.Rotate(ctx)
}

func (k Keys) keyring(ctx context.Context) (*discovery.Keyring, error) {
	documents, err := k.vault(ctx)
	if err != nil {
		return nil, err
	}
	return discovery.NewKeyring(documents, k.config.Domain, time.Now), nil
}
