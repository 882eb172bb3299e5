package storage

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"inbox/internal/sealing"
)

// Proof checks whether a secret key opens what a database has sealed, without the database.
type Proof struct {
	box    *sealing.Box
	sealed []string
}

// NewProof reads the content of a key file. Sealed are the namespaces of Options.
func NewProof(content []byte, sealed []string) (*Proof, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(content)))
	if err != nil {
		return nil, errors.New("the secret key is not base64")
	}
	box, err := sealing.New(key)
	if err != nil {
		return nil, err
	}
	return &Proof{box, sealed}, nil
}

// Check checks one document: one that is sealed, or the one that has the fingerprint of the key. Others pass.
func (p *Proof) Check(namespace, key, value string) error {
	var purpose string
	switch {
	case namespace == sealingNamespace && key == sealingMarkerName && value != p.box.Fingerprint():
		return fmt.Errorf("the secret key has the fingerprint %s, and the database was sealed with %s", p.box.Fingerprint(), value)
	case namespace == limitsNamespace && key == networkKeyName:
		purpose = networkKeyPurpose
	case slices.Contains(p.sealed, namespace) && sealedForm([]byte(value)):
		purpose = purposeOf(namespace, key)
	default:
		return nil
	}

	if _, err := p.box.Open(value, purpose); err != nil {
		return fmt.Errorf("the document %s %s does not open with the secret key %s: %w", namespace, key, p.box.Fingerprint(), err)
	}
	return nil
}

// Opens reports whether the document would be checked.
func (p *Proof) Opens(namespace, key string) bool {
	return slices.Contains(p.sealed, namespace) || namespace == limitsNamespace && key == networkKeyName
}
