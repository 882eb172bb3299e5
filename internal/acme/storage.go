package acme

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
)

// Documents is where certificates, their private keys and the account are kept: durable, shared by all nodes, sealed by who
// implements it.
type Documents interface {
	Get(ctx context.Context, namespace, key string) (value []byte, found bool, err error)
	Put(ctx context.Context, namespace, key string, value []byte, expires time.Time) error
	PutIfAbsent(ctx context.Context, namespace, key string, value []byte, expires time.Time) (current []byte, inserted bool, err error)
	Swap(ctx context.Context, namespace, key string, old, value []byte, expires time.Time) (swapped bool, err error)
	Delete(ctx context.Context, namespace, key string) error
	List(ctx context.Context, namespace, after string, limit int) (keys []string, values [][]byte, err error)
}

// Namespaces of documents. That of files has private keys and is to be sealed.
const (
	KeyNamespace  = "acme"
	lockNamespace = "acme.locks"
)

// A lock ends by itself when its node died; a living one keeps it.
const (
	lockLife  = 30 * time.Second
	lockKeep  = lockLife / 3
	lockRetry = 500 * time.Millisecond
)

// listed is how many documents are read at once. A server has a few for each name.
const listed = 200

// storage gives the library its files as documents.
type storage struct {
	documents Documents
	logger    *slog.Logger
	holder    string // of locks

	mu   sync.Mutex
	held map[string]heldLock
}

type heldLock struct {
	holder []byte
	stop   context.CancelFunc // ends its keeping
}

func newStorage(documents Documents, logger *slog.Logger) *storage {
	return &storage{documents: documents, logger: logger, holder: rand.Text(), held: map[string]heldLock{}}
}

// file is one document.
type file struct {
	Modified time.Time `json:"modified"`
	Value    []byte    `json:"value"`
}

// Store writes a file.
func (s *storage) Store(ctx context.Context, key string, value []byte) error {
	document, err := json.Marshal(file{time.Now().UTC(), value})
	if err != nil {
		return err
	}
	return s.documents.Put(ctx, KeyNamespace, key, document, time.Time{})
}

func (s *storage) read(ctx context.Context, key string) (read file, err error) {
	document, found, err := s.documents.Get(ctx, KeyNamespace, key)
	if err != nil {
		return read, err
	}
	if !found {
		return read, fmt.Errorf("%s: %w", key, fs.ErrNotExist)
	}
	return read, json.Unmarshal(document, &read)
}

// Load reads a file; fs.ErrNotExist where there is none.
func (s *storage) Load(ctx context.Context, key string) ([]byte, error) {
	read, err := s.read(ctx, key)
	return read.Value, err
}

// Delete removes a file, or all below a directory.
func (s *storage) Delete(ctx context.Context, key string) error {
	below, err := s.List(ctx, key, true)
	if err != nil {
		return err
	}
	for _, one := range append(below, key) {
		if err := s.documents.Delete(ctx, KeyNamespace, one); err != nil {
			return err
		}
	}
	return nil
}

// Exists reports whether there is such a file or directory.
func (s *storage) Exists(ctx context.Context, key string) bool {
	_, err := s.Stat(ctx, key)
	return err == nil
}

// List returns what is in a directory: all files below it, or its own entries.
func (s *storage) List(ctx context.Context, directory string, recursive bool) (found []string, err error) {
	prefix := strings.TrimSuffix(directory, "/") + "/"
	if directory == "" {
		prefix = ""
	}

	for after := prefix; ; {
		keys, _, err := s.documents.List(ctx, KeyNamespace, after, listed)
		if err != nil {
			return nil, err
		}

		for _, key := range keys {
			after = key
			rest, below := strings.CutPrefix(key, prefix)
			if !below {
				return found, nil // keys come in order
			}
			if entry, _, deeper := strings.Cut(rest, "/"); deeper && !recursive {
				key = prefix + entry
			}
			if !slices.Contains(found, key) {
				found = append(found, key)
			}
		}

		if len(keys) < listed {
			return found, nil
		}
	}
}

// Stat describes a file or a directory; fs.ErrNotExist where there is neither.
func (s *storage) Stat(ctx context.Context, key string) (certmagic.KeyInfo, error) {
	read, err := s.read(ctx, key)
	if err == nil {
		return certmagic.KeyInfo{Key: key, Modified: read.Modified, Size: int64(len(read.Value)), IsTerminal: true}, nil
	}
	if below, listing := s.List(ctx, key, true); listing == nil && len(below) > 0 {
		return certmagic.KeyInfo{Key: key}, nil
	}
	return certmagic.KeyInfo{}, err
}

// Lock waits until no other node and no other order of this one works on what the name stands for.
func (s *storage) Lock(ctx context.Context, name string) error {
	for {
		// A holder of its own for each lock: two orders of one node exclude each other, too.
		holder := []byte(s.holder + rand.Text())
		_, mine, err := s.documents.PutIfAbsent(ctx, lockNamespace, name, holder, time.Now().Add(lockLife))
		if err != nil {
			return err
		}
		if mine {
			s.keep(ctx, name, holder)
			return nil
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the lock of %s: %w", name, ctx.Err())
		case <-time.After(lockRetry):
		}
	}
}

// keep renews a lock until it is given back. Orders take minutes where the authority is slow.
func (s *storage) keep(ctx context.Context, name string, holder []byte) {
	keeping, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.mu.Lock()
	s.held[name] = heldLock{holder, stop}
	s.mu.Unlock()

	go func() {
		ticker := time.NewTicker(lockKeep)
		defer ticker.Stop()
		for {
			select {
			case <-keeping.Done():
				return
			case <-ticker.C:
			}
			kept, err := s.documents.Swap(keeping, lockNamespace, name, holder, holder, time.Now().Add(lockLife))
			switch {
			case keeping.Err() != nil:
				return
			case err != nil:
				s.logger.Warn("lock of a certificate is not kept; another node may order it too", "name", name, "error", err)
			case !kept:
				s.logger.Warn("lock of a certificate is lost; another node may order it too", "name", name)
				return
			}
		}
	}()
}

// Unlock gives a lock back. One that another node has meanwhile, because this one could not keep it, stays theirs.
func (s *storage) Unlock(ctx context.Context, name string) error {
	s.mu.Lock()
	lock, held := s.held[name]
	delete(s.held, name)
	s.mu.Unlock()

	if !held {
		return fmt.Errorf("%s is not locked", name)
	}
	lock.stop()
	_, err := s.documents.Swap(context.WithoutCancel(ctx), lockNamespace, name, lock.holder, lock.holder, time.Now())
	return err
}
