package storage

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"inbox/engine/store"
	"inbox/internal/disk"
	"inbox/internal/fault"
	"inbox/internal/sealing"
)

// The key that seals secrets is a file beside the database and not in it: a copy of the database alone does not open them.
// Nodes that share a database share the file. The database has the fingerprint of its key, so that a node with another one,
// or one whose key was lost, is refused before it makes anything new.
const (
	secretKeyFile     = "secret.key"
	pendingKeyFile    = "secret.key.new" // made, and not yet the database's
	sealingNamespace  = "sealing"
	sealingMarkerName = "key"
)

// Sealer seals with the key of this node, which is that of all nodes.
type Sealer struct {
	box     *sealing.Box
	store   *store.Store
	state   *store.State
	options Options
}

// OpenSealer reads the key, or makes one where the database has none yet and the operator named none.
func OpenSealer(ctx context.Context, options Options, opened *store.Store) (*Sealer, error) {
	state := opened.State()
	value, _, err := state.Get(ctx, sealingNamespace, sealingMarkerName)
	if err != nil {
		return nil, err
	}

	file, mark := options.keyFile(), string(value)
	box, err := readSecretKey(file)
	switch {
	case errors.Is(err, fs.ErrNotExist) && options.SecretKeyFile == "":
		return makeSealer(ctx, options, opened, mark)
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("secret_key_file: there is no %s: put it back or correct the key; for a first start make it with: "+
			"openssl rand -base64 32", file)
	case err != nil:
		return nil, fmt.Errorf("secret_key_file: %w", err)
	}

	s := &Sealer{box, opened, state, options}
	return s, s.bind(ctx, mark)
}

// KeyFile is the file with the key, as written or the usual one of the directory.
func KeyFile(directory, written string) string {
	if written != "" {
		return written
	}
	return filepath.Join(directory, secretKeyFile)
}

func (o Options) keyFile() string { return KeyFile(o.DataDir, o.SecretKeyFile) }

func readSecretKey(file string) (*sealing.Box, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}

	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(content)))
	if err != nil {
		return nil, fmt.Errorf("%s is not base64: put the right file back; for a first start make one with: openssl rand -base64 32", file)
	}

	box, err := sealing.New(key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: put the right file back; for a first start make one with: openssl rand -base64 32", file, err)
	}
	return box, nil
}

// makeSealer makes the key of a database that has none. The file gets its name only when the database has the fingerprint:
// a process that dies in between leaves a file that the next start goes on with.
func makeSealer(ctx context.Context, options Options, opened *store.Store, mark string) (*Sealer, error) {
	file, pending := options.keyFile(), filepath.Join(options.DataDir, pendingKeyFile)
	if err := makePendingKey(pending); err != nil {
		return nil, fmt.Errorf("data_dir: cannot write %s: %w", pending, disk.Cause(err))
	}

	box, err := readSecretKey(pending)
	if errors.Is(err, fs.ErrNotExist) {
		return OpenSealer(ctx, options, opened) // another process was faster
	}
	if err != nil {
		return nil, fmt.Errorf("data_dir: %w", err)
	}

	if mark != box.Fingerprint() && !options.NewIdentity {
		lost, err := sealedBefore(ctx, opened, mark)
		if err != nil || lost {
			return nil, errors.Join(missingKey(options, file, err), os.Remove(pending))
		}
	}

	s := &Sealer{box, opened, opened.State(), options}
	if err := s.bind(ctx, mark); err != nil {
		return nil, err
	}
	if err := os.Rename(pending, file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("data_dir: cannot write %s: %w", file, disk.Cause(err))
	}

	return s, nil
}

// makePendingKey writes a new key. Of two processes that start at once with one directory the first wins.
func makePendingKey(pending string) error {
	written, err := disk.WriteBeside(pending, base64.StdEncoding.EncodeToString(sealing.NewKey())+"\n")
	if err != nil {
		return err
	}

	err = os.Link(written, pending)
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	return errors.Join(err, os.Remove(written))
}

// sealedBefore reports whether the database has secrets that a new key would not open. Versions that left no fingerprint have
// sealed the key of the limits all the same.
func sealedBefore(ctx context.Context, opened *store.Store, mark string) (bool, error) {
	if mark != "" {
		return true, nil
	}
	_, found, err := opened.State().Get(ctx, limitsNamespace, networkKeyName)
	return found, err
}

func missingKey(options Options, file string, err error) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("secret_key_file: %s is missing, and only the key in it opens the secrets of %s, the keys of the agents among them: "+
		"put the file back from a backup or from another node; to go on with new keys: %s", file, options.DatabaseName, newIdentity)
}

// bind makes sure that the key is that of the database.
func (s *Sealer) bind(ctx context.Context, mark string) error {
	own := s.box.Fingerprint()
	if mark == "" {
		if err := s.opensOld(ctx); err != nil && !s.options.NewIdentity {
			return s.foreign("another one")
		}
		value, _, err := s.state.PutIfAbsent(ctx, sealingNamespace, sealingMarkerName, []byte(own), time.Time{})
		if err != nil {
			return fmt.Errorf("note the fingerprint of the secret key: %w", err)
		}
		mark = string(value)
	}
	switch {
	case mark == own:
		return nil
	case s.options.NewIdentity:
		return s.takeOver(ctx)
	}

	return s.foreign(mark)
}

func (s *Sealer) foreign(mark string) error {
	return fmt.Errorf("secret_key_file: the key in %s has the fingerprint %s, and the secrets of %s were sealed with %s: give every node "+
		"of a database the same file, or put the right one back; to go on with new keys: %s",
		s.options.keyFile(), s.box.Fingerprint(), s.options.DatabaseName, mark, newIdentity)
}

// opensOld fails when the key is not the one with which a version that left no fingerprint has sealed.
func (s *Sealer) opensOld(ctx context.Context) error {
	kept, found, err := s.state.Get(ctx, limitsNamespace, networkKeyName)
	if err != nil || !found {
		return err
	}
	_, err = s.Open(ctx, string(kept), networkKeyPurpose)
	return err
}

// takeOver makes the key that of the database. What the old one sealed is lost with it: what is needed is made anew.
func (s *Sealer) takeOver(ctx context.Context) error {
	if err := s.state.Delete(ctx, limitsNamespace, networkKeyName); err != nil {
		return fmt.Errorf("remove what the old key sealed: %w", err)
	}
	if err := s.dropSealed(ctx); err != nil {
		return fmt.Errorf("remove what the old key sealed: %w", err)
	}
	if err := s.state.Put(ctx, sealingNamespace, sealingMarkerName, []byte(s.box.Fingerprint()), time.Time{}); err != nil {
		return fmt.Errorf("note the fingerprint of the secret key: %w", err)
	}
	return nil
}

// Seal seals a secret; fault.Unavailable where the key is not that of the database any more.
func (s *Sealer) Seal(ctx context.Context, secret []byte, purpose string) (string, error) {
	mark := s.box.Fingerprint()
	current, _, err := s.state.Get(ctx, sealingNamespace, sealingMarkerName)
	if err != nil {
		return "", fault.Wrap(fault.Unavailable, "the server cannot keep secrets right now", err)
	}
	if string(current) != mark {
		return "", fault.Wrap(fault.Unavailable, "the server cannot keep secrets right now", fmt.Errorf(
			"this node's secret key has the fingerprint %s, the database has %s now: give all nodes the same secret_key_file", mark, current))
	}
	return s.box.Seal(secret, purpose), nil
}

// Open opens what Seal sealed.
func (s *Sealer) Open(_ context.Context, sealed, purpose string) ([]byte, error) {
	secret, err := s.box.Open(sealed, purpose)
	if err != nil {
		return nil, fmt.Errorf("open a sealed secret with the key %s: %w (secret_key_file)", s.box.Fingerprint(), err)
	}
	return secret, nil
}

// SealShort seals what is handed out and expires soon: it is stored nowhere, so that it costs no look at the database whether the key
// is still the common one. Open opens it, on each node with the same key.
func (s *Sealer) SealShort(content []byte, purpose string) string {
	return s.box.Seal(content, purpose)
}

// The key by which networks of senders without proof are named. It is made once and sealed in the database.
const (
	limitsNamespace   = "limits"
	networkKeyName    = "network-key"
	networkKeyPurpose = "limits network key"
)

// NetworkKey reads the key that all nodes share for the names of networks, or makes it. A node that cannot open it, because it
// has another secret key, names networks by a key of its own: it counts senders without proof alone.
func (s *Sealer) NetworkKey(ctx context.Context) ([]byte, error) {
	fresh := sealing.NewKey()
	kept, _, err := s.state.PutIfAbsent(ctx, limitsNamespace, networkKeyName, []byte(s.box.Seal(fresh, networkKeyPurpose)), time.Time{})
	if err != nil {
		return nil, fmt.Errorf("make key of limits: %w", err)
	}

	key, err := s.Open(ctx, string(kept), networkKeyPurpose)
	if err != nil {
		s.options.Logger.WarnContext(ctx, "limits of senders without proof are counted on this node alone", "error", err)
		return fresh, nil
	}
	return key, nil
}
