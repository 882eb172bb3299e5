package inbox

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
	"inbox/internal/fault"
	"inbox/internal/sealing"
)

// The key that seals other people's secrets is a file beside the database and not in it: a copy of the database alone
// does not open them. Nodes that share a database share the file.
const (
	secretKeyFile     = "secret.key"
	sealingNamespace  = "sealing"
	sealingMarkerName = "key"
)

// sealer seals with the key of this node, after making sure that the other nodes have the same.
type sealer struct {
	box   *sealing.Box
	state *store.State
}

// newSealer reads the key, or makes one where the operator named none.
func newSealer(config *Config, state *store.State) (*sealer, error) {
	file, own := config.SecretKeyFile, config.SecretKeyFile != ""
	if !own {
		file = filepath.Join(config.DataDir, secretKeyFile)
	}
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) && !own {
		content, err = makeSecretKey(file)
	}
	if err != nil {
		return nil, fmt.Errorf("secret_key_file: %w", err)
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(content)))
	if err != nil {
		return nil, fmt.Errorf("secret_key_file: %s is not base64: make one with: openssl rand -base64 32", file)
	}
	box, err := sealing.New(key)
	if err != nil {
		return nil, fmt.Errorf("secret_key_file: %s: %w: make one with: openssl rand -base64 32", file, err)
	}
	return &sealer{box, state}, nil
}

// makeSecretKey writes a new key. Of two servers that start at once with one directory the first wins.
func makeSecretKey(file string) ([]byte, error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, err
	}
	content := base64.StdEncoding.EncodeToString(sealing.NewKey()) + "\n"
	created, err := os.CreateTemp(filepath.Dir(file), secretKeyFile+"-*")
	if err != nil {
		return nil, err
	}
	_, err = created.WriteString(content)
	err = errors.Join(err, created.Sync(), created.Close())
	if err == nil {
		err = os.Link(created.Name(), file)
	}
	_ = os.Remove(created.Name())
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return os.ReadFile(file)
}

// Seal seals a secret; fault.Unavailable where another node of the same database has another key.
func (s *sealer) Seal(ctx context.Context, secret []byte, purpose string) (string, error) {
	mark := []byte(s.box.Fingerprint())
	current, _, err := s.state.PutIfAbsent(ctx, sealingNamespace, sealingMarkerName, mark, time.Time{})
	if err != nil {
		return "", fault.Wrap(fault.Unavailable, "the server cannot keep secrets right now", err)
	}
	if string(current) != string(mark) {
		return "", fault.Wrap(fault.Unavailable, "the server cannot keep secrets right now", fmt.Errorf(
			"this node's secret key has the fingerprint %s, the database was begun with %s: give all nodes the same secret_key_file", mark, current))
	}
	return s.box.Seal(secret, purpose), nil
}

// Open opens what Seal sealed.
func (s *sealer) Open(_ context.Context, sealed, purpose string) ([]byte, error) {
	secret, err := s.box.Open(sealed, purpose)
	if err != nil {
		return nil, fmt.Errorf("open a sealed secret with the key %s: %w (secret_key_file)", s.box.Fingerprint(), err)
	}
	return secret, nil
}
