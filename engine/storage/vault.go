package storage

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"inbox/engine/store"
)

// Vault is the table of documents for those who keep private keys there: it seals them on the way in and opens them on the
// way out. Other documents pass as they are.
type Vault struct {
	*store.State
	sealer *Sealer
}

// Vault returns the documents.
func (s *Sealer) Vault() Vault { return Vault{s.state, s} }

func (v Vault) isSealed(namespace string) bool {
	return slices.Contains(v.sealer.options.Sealed, namespace)
}

// purposeOf binds a sealed document to its place: put elsewhere it does not open.
func purposeOf(namespace, key string) string { return "document " + namespace + " " + key }

func (v Vault) seal(namespace, key string, value []byte) []byte {
	if !v.isSealed(namespace) {
		return value
	}
	return []byte(v.sealer.box.Seal(value, purposeOf(namespace, key)))
}

// Open returns a document that stands at another place under the same name, as it was put. One that is not sealed was written by a version that did not.
func (v Vault) Open(ctx context.Context, namespace, key string, value []byte) ([]byte, error) {
	if !v.isSealed(namespace) || !sealedForm(value) {
		return value, nil
	}
	opened, err := v.sealer.Open(ctx, string(value), purposeOf(namespace, key))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", namespace, key, err)
	}
	return opened, nil
}

// sealedForm tells what was sealed from keys as they were kept before: PEM, JSON, base64 and random bytes.
func sealedForm(value []byte) bool { return bytes.HasPrefix(value, []byte("v1.")) }

// Get returns a document.
func (v Vault) Get(ctx context.Context, namespace, key string) (value []byte, found bool, err error) {
	value, found, err = v.State.Get(ctx, namespace, key)
	if err != nil || !found {
		return nil, false, err
	}
	value, err = v.Open(ctx, namespace, key, value)
	return value, err == nil, err
}

// Put writes a document.
func (v Vault) Put(ctx context.Context, namespace, key string, value []byte, expires time.Time) error {
	return v.State.Put(ctx, namespace, key, v.seal(namespace, key, value), expires)
}

// PutIfAbsent writes a document unless a live one is there, and returns the one that is there afterwards.
func (v Vault) PutIfAbsent(
	ctx context.Context, namespace, key string, value []byte, expires time.Time,
) (current []byte, inserted bool, err error) {
	current, inserted, err = v.State.PutIfAbsent(ctx, namespace, key, v.seal(namespace, key, value), expires)
	if err != nil {
		return nil, false, err
	}
	current, err = v.Open(ctx, namespace, key, current)
	return current, inserted, err
}

// Swap writes a document in place of another one.
func (v Vault) Swap(ctx context.Context, namespace, key string, old, value []byte, expires time.Time) (swapped bool, err error) {
	if !v.isSealed(namespace) {
		return v.State.Swap(ctx, namespace, key, old, value, expires)
	}

	kept, found, err := v.State.Get(ctx, namespace, key)
	if err != nil || !found {
		return false, err
	}

	current, err := v.Open(ctx, namespace, key, kept)
	if err != nil || !bytes.Equal(current, old) {
		return false, err
	}
	return v.State.Swap(ctx, namespace, key, kept, v.seal(namespace, key, value), expires)
}

// List returns documents in order of their keys.
func (v Vault) List(ctx context.Context, namespace, after string, limit int) (keys []string, values [][]byte, err error) {
	keys, values, err = v.State.List(ctx, namespace, after, limit)
	for i := range values {
		if err == nil {
			values[i], err = v.Open(ctx, namespace, keys[i], values[i])
		}
	}
	return keys, values, err
}

// Several returns those documents of the keys that are there.
func (v Vault) Several(ctx context.Context, namespace string, keys []string) (map[string][]byte, error) {
	values, err := v.State.Several(ctx, namespace, keys)
	for key := range values {
		if err == nil {
			values[key], err = v.Open(ctx, namespace, key, values[key])
		}
	}
	return values, err
}

// sealKeys seals what older versions have left open, all in one transaction. Of several nodes that start together one does
// it.
func (s *Sealer) sealKeys(ctx context.Context) error {
	changed, err := s.store.RewriteDocuments(ctx, s.options.Sealed, func(namespace, key string, value []byte) []byte {
		if sealedForm(value) {
			return value
		}
		return s.Vault().seal(namespace, key, value)
	})
	if err != nil {
		return fmt.Errorf("seal the private keys: %w", err)
	}

	if changed > 0 {
		s.options.Logger.InfoContext(ctx, "private keys that stood open in the database are sealed now: guard older backups like the keys",
			"keys", changed)
	}

	return nil
}

// dropSealed removes what only a lost key opens; it is made anew when it is needed.
func (s *Sealer) dropSealed(ctx context.Context) error {
	for _, namespace := range s.options.Sealed {
		for after := ""; ; {
			keys, values, err := s.state.List(ctx, namespace, after, 500)
			if err != nil {
				return err
			}

			for i, key := range keys {
				after = key
				if _, err := s.box.Open(string(values[i]), purposeOf(namespace, key)); err == nil || !sealedForm(values[i]) {
					continue
				}
				if err := s.state.Delete(ctx, namespace, key); err != nil {
					return err
				}
			}

			if len(keys) < 500 {
				break
			}
		}
	}
	return nil
}
