package inbox

import (
	"context"
	"time"

	"inbox/adapters/discovery"
	"inbox/identity"
)

// PublishedKey is a public key with which this server vouches for its agents.
type PublishedKey struct {
	ID       string    `json:"kid"`
	NotAfter time.Time `json:"not_after,omitzero"` // zero = it is in use
}

func (o *Operator) keyring(ctx context.Context) (*discovery.Keyring, error) {
	secrets, err := o.vault(ctx)
	if err != nil {
		return nil, err
	}
	return discovery.NewKeyring(secrets, o.config.Domain, time.Now), nil
}

// Keys lists the published keys, the one in use first.
func (o *Operator) Keys(ctx context.Context) ([]PublishedKey, error) {
	keyring, err := o.keyring(ctx)
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

// RotateKey makes a new key; servers that run notice within a minute.
func (o *Operator) RotateKey(ctx context.Context) error {
	keyring, err := o.keyring(ctx)
	if err != nil {
		return err
	}
	return keyring.Rotate(ctx)
}
