// Package exchangetest is what tests of adapters and agents put in the place of the engine, where the real one would hide what
// they look at: a store of documents, a directory of agents, tokens, and a receiver that records what it is handed. It is for
// tests only.
package exchangetest

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
)

// Documents is a store of documents in memory. Nothing in it ends by itself.
type Documents struct {
	mu     sync.Mutex
	values map[string][]byte
	ends   map[string]time.Time
	err    error

	single, several int
}

// NewDocuments returns an empty store.
func NewDocuments() *Documents {
	return &Documents{values: map[string][]byte{}, ends: map[string]time.Time{}}
}

// Fail lets every call fail with the error from now on; nil ends that.
func (d *Documents) Fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

// Len returns the number of documents in all namespaces.
func (d *Documents) Len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.values)
}

// Has reports whether there is a document.
func (d *Documents) Has(namespace, key string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.values[at(namespace, key)] != nil
}

// Ends returns when a document was last said to end.
func (d *Documents) Ends(namespace, key string) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ends[at(namespace, key)]
}

// All returns the documents of a namespace by key.
func (d *Documents) All(namespace string) map[string][]byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	found := map[string][]byte{}
	for name, value := range d.values {
		if key, ok := strings.CutPrefix(name, at(namespace, "")); ok {
			found[key] = value
		}
	}
	return found
}

// Copy puts all documents of another store into this one.
func (d *Documents) Copy(from *Documents) {
	from.mu.Lock()
	values := maps.Clone(from.values)
	from.mu.Unlock()

	d.mu.Lock()
	defer d.mu.Unlock()
	maps.Copy(d.values, values)
}

// Reads returns how often single documents and several at a time were read since the last call.
func (d *Documents) Reads() (single, several int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	single, several = d.single, d.several
	d.single, d.several = 0, 0
	return single, several
}

func at(namespace, key string) string { return namespace + "\x00" + key }

// Get returns a document.
func (d *Documents) Get(_ context.Context, namespace, key string) ([]byte, bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.single++
	value, found := d.values[at(namespace, key)]
	return value, found, d.err
}

// Put stores a document. It refuses the keys that the store refuses.
func (d *Documents) Put(_ context.Context, namespace, key string, value []byte, expires time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(namespace) > 128 || len(key) > 2048 {
		return fault.InField("key", "is longer than 2048 bytes")
	}
	if d.err == nil {
		d.values[at(namespace, key)], d.ends[at(namespace, key)] = bytes.Clone(value), expires
	}
	return d.err
}

// PutIfAbsent stores a document where there is none and returns the one that is there then.
func (d *Documents) PutIfAbsent(_ context.Context, namespace, key string, value []byte, expires time.Time) ([]byte, bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if current, found := d.values[at(namespace, key)]; found || d.err != nil {
		return current, false, d.err
	}
	d.values[at(namespace, key)], d.ends[at(namespace, key)] = value, expires
	return value, true, nil
}

// Once marks a key and reports whether it had no mark.
func (d *Documents) Once(ctx context.Context, namespace, key string, expires time.Time) (first bool, err error) {
	_, first, err = d.PutIfAbsent(ctx, namespace, key, []byte("mark"), expires)
	return first, err
}

// Swap changes a document that is still the old one.
func (d *Documents) Swap(_ context.Context, namespace, key string, old, value []byte, expires time.Time) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	current, found := d.values[at(namespace, key)]
	if d.err != nil || !found || !bytes.Equal(current, old) {
		return false, d.err
	}
	d.values[at(namespace, key)], d.ends[at(namespace, key)] = value, expires
	return true, nil
}

// Delete removes a document.
func (d *Documents) Delete(_ context.Context, namespace, key string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.values, at(namespace, key))
	return d.err
}

// List returns documents in the order of their keys.
func (d *Documents) List(_ context.Context, namespace, after string, limit int) (keys []string, values [][]byte, err error) {
	all := d.All(namespace)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if key > after && len(keys) < limit {
			keys, values = append(keys, key), append(values, all[key])
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return keys, values, d.err
}

// Count returns the number of documents in a namespace.
func (d *Documents) Count(_ context.Context, namespace string) (int64, error) {
	count := int64(len(d.All(namespace)))
	d.mu.Lock()
	defer d.mu.Unlock()
	return count, d.err
}

// Several returns those of the documents that there are.
func (d *Documents) Several(_ context.Context, namespace string, keys []string) (map[string][]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.several++
	found := map[string][]byte{}
	for _, key := range keys {
		if value, is := d.values[at(namespace, key)]; is {
			found[key] = value
		}
	}
	return found, d.err
}

// Claim does what the engine does with the claim of an inbound, and returns the document that stood in its place.
func (d *Documents) Claim(claim *exchange.Claim) (instead []byte) {
	if claim == nil {
		return nil
	}

	ctx := context.Background()
	current, inserted, _ := d.PutIfAbsent(ctx, claim.Namespace, claim.Key, claim.Value, time.Time{})
	if inserted {
		if claim.Alias != "" {
			_, _, _ = d.PutIfAbsent(ctx, claim.AliasNamespace, claim.Alias, []byte(claim.Key), time.Time{})
		}
		return nil
	}

	if claim.Instead != nil {
		if swapped, _ := d.Swap(ctx, claim.Namespace, claim.Key, claim.Instead, claim.Value, time.Time{}); swapped {
			return nil
		}
	}

	if bytes.Equal(current, claim.Value) {
		return nil
	}

	return current
}
