package discovery

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// load reads the keys anew when what is known is old, and makes the first key.
func (k *Keyring) load(ctx context.Context) error {
	if len(k.known) > 0 && k.now().Before(k.until) {
		return nil
	}

	keys, err := k.read(ctx)
	if err == nil && len(keys) == 0 {
		if err = k.make(ctx, 1); err == nil {
			keys, err = k.read(ctx)
		}
	}
	if err != nil {
		return fmt.Errorf("read signing keys: %w", err)
	}
	if len(keys) == 0 {
		return errors.New("read signing keys: the key that was stored is not there")
	}

	k.known, k.until = keys, k.now().Add(keyringLife)
	if err := k.retire(ctx); err != nil {
		return err
	}

	return k.forget(ctx)
}

// read collects the keys from the oldest that matters to the newest. The pointer to the oldest may be a little behind:
// what was forgotten there is passed over.
func (k *Keyring) read(ctx context.Context) ([]storedKey, error) {
	number, err := k.first(ctx)
	if err != nil {
		return nil, err
	}

	var keys []storedKey
	for last := number + maxKeys; ; number++ {
		value, found, err := k.state.Get(ctx, keyNamespace, strconv.Itoa(number))
		if err == nil && !found && len(keys) == 0 && number < last {
			continue
		}
		if err != nil || !found {
			return keys, err
		}

		var key storedKey
		if err := json.Unmarshal(value, &key); err != nil || len(key.Public) != ed25519.PublicKeySize {
			return nil, fmt.Errorf("signing key %d cannot be read", number)
		}
		keys = append(keys, key)
	}
}

func (k *Keyring) first(ctx context.Context) (int, error) {
	value, found, err := k.state.Get(ctx, keyNamespace, firstNumber)
	if err != nil || !found {
		return 1, err
	}
	number, _ := strconv.Atoi(string(value)) // our own bytes
	return max(number, 1), nil
}

// forget moves the pointer past keys that are not published any more, so that a long life of rotations costs nothing.
// Nodes that do it at the same moment write the same or an older number, which is only slower.
func (k *Keyring) forget(ctx context.Context) error {
	gone := 0
	for gone < len(k.known)-1 && !k.now().Before(k.known[gone+1].CreatedAt.Add(PreviousKeyLife)) {
		gone++
	}

	if gone == 0 {
		return nil
	}

	first := strconv.Itoa(k.known[gone].Number)
	if err := k.state.Put(ctx, keyNamespace, firstNumber, []byte(first), time.Time{}); err != nil {
		return fmt.Errorf("forget old signing keys: %w", err)
	}

	for _, key := range k.known[:gone] {
		value, err := json.Marshal(key)
		if err != nil {
			return fmt.Errorf("encode signing key: %w", err)
		}
		if err := k.state.Put(ctx, keyNamespace, strconv.Itoa(key.Number), value, k.now().Add(forgottenLife)); err != nil {
			return fmt.Errorf("forget old signing keys: %w", err)
		}
	}

	k.known = k.known[gone:]
	return nil
}
