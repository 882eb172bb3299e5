package inbox

import (
	"bytes"
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"inbox/engine/store"
	"inbox/engine/store/storetest"
	"inbox/internal/await"
)

// keysOf starts a server as far as its keys, and gives what others see of them.
func (p place) keysOf() (seen string, err error) {
	p.Helper()
	config := p.config()
	config.SMTP.Listen = "127.0.0.1:0"
	server, err := New(p.Context(), config)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	if err := server.activitypub.Prepare(p.Context()); err != nil {
		return "", err
	}
	_, dkim := server.email.DNSRecord()
	signing, err := server.keyring.Signing(p.Context())
	if err != nil {
		return "", err
	}
	request := httptest.NewRequest("GET", "/agents/echo", nil)
	request.Header.Set("Accept", "application/activity+json")
	answer := httptest.NewRecorder()
	server.http.Handler().ServeHTTP(answer, request)
	_, key, found := strings.Cut(answer.Body.String(), `"publicKeyPem":"`)
	if !found {
		return "", errors.New("no key in " + answer.Body.String())
	}
	key, _, _ = strings.Cut(key, `"`)
	return dkim + " " + signing.Kid + " " + key, nil
}

// rewrite changes the documents with keys as they stand in the database, and says how many.
func (p place) rewrite(change func(v vault, namespace, key string, value []byte) []byte) int {
	p.Helper()
	opened, err := store.Open(p.Context(), store.Options{URL: p.database, DataDir: p.directory})
	if err != nil {
		p.Fatal(err)
	}
	sealer, err := openSealer(p.Context(), p.config(), opened)
	if err != nil {
		p.Fatal(err)
	}
	changed, err := opened.RewriteDocuments(p.Context(), sealedNamespaces, func(namespace, key string, value []byte) []byte {
		return change(vault{opened.State(), sealer}, namespace, key, value)
	})
	if err := errors.Join(err, opened.Close()); err != nil {
		p.Fatal(err)
	}
	return changed
}

// unseal leaves the keys as versions did that sealed none.
func unseal(v vault, namespace, key string, value []byte) []byte {
	opened, err := v.open(context.Background(), namespace, key, value)
	if err != nil {
		return value
	}
	return opened
}

// TestKeysAreSealed: no private key stands open in the database, those of an older version are sealed once, by whichever node
// starts first, and they are the same keys.
func TestKeysAreSealed(t *testing.T) {
	for name, database := range map[string]string{"sqlite": "sqlite", "postgres": storetest.Postgres(t)} {
		t.Run(name, func(t *testing.T) {
			p := place{T: t, directory: t.TempDir(), database: database}
			before, err := p.keysOf()
			if err != nil {
				t.Fatal(err)
			}
			read, open := 0, 0
			look := func(_ vault, _, _ string, value []byte) []byte {
				read++
				if !sealedForm(value) || bytes.Contains(value, []byte("PRIVATE")) {
					open++
				}
				return value
			}
			if p.rewrite(look); read < 8 || open > 0 { // two actors with two keys each, DKIM, bounces, evidence, demands
				t.Errorf("of %d keys %d stand open", read, open)
			}
			if changed := p.rewrite(unseal); changed != read {
				t.Fatalf("%d of %d keys were opened", changed, read)
			}
			nodes := 1
			if name == "postgres" {
				nodes = 3
			}
			var group sync.WaitGroup
			for range nodes {
				group.Go(func() {
					after, err := p.keysOf()
					if err != nil || after != before {
						t.Errorf("the keys are %s, %v; want %s", after, err, before)
					}
				})
			}
			await.Done(t, group.Wait, "the keys of all nodes")
			read = 0
			if p.rewrite(look); open > 0 || read < 8 {
				t.Errorf("of %d keys %d stand open after the second start", read, open)
			}
			if name == "sqlite" {
				if content, err := os.ReadFile(p.path(store.File)); err != nil || bytes.Contains(content, []byte("BEGIN PRIVATE")) {
					t.Errorf("a key stands in the file, %v", err)
				}
			}

			p.remove(secretKeyFile)
			if err := p.start(true); err != nil {
				t.Fatal(err)
			}
			if after, err := p.keysOf(); err != nil || after == before {
				t.Errorf("a new identity has the keys %s, %v", after, err)
			}
		})
	}
}

// TestSealedDocumentsAreDocuments: who keeps keys sees none of the sealing.
func TestSealedDocumentsAreDocuments(t *testing.T) {
	server := startServer(t)
	ctx, v := t.Context(), server.vault()
	const key = "rsa:somebody"
	space := sealedNamespaces[0]
	if _, inserted, err := v.PutIfAbsent(ctx, space, key, []byte("one"), time.Time{}); err != nil || !inserted {
		t.Errorf("%v %v", inserted, err)
	}
	if current, inserted, err := v.PutIfAbsent(ctx, space, key, []byte("two"), time.Time{}); err != nil || inserted || string(current) != "one" {
		t.Errorf("%s %v %v", current, inserted, err)
	}
	if swapped, err := v.Swap(ctx, space, key, []byte("two"), []byte("three"), time.Time{}); err != nil || swapped {
		t.Errorf("%v %v", swapped, err)
	}
	if swapped, err := v.Swap(ctx, space, key, []byte("one"), []byte("three"), time.Time{}); err != nil || !swapped {
		t.Errorf("%v %v", swapped, err)
	}
	if values, err := v.Several(ctx, space, []string{key}); err != nil || string(values[key]) != "three" {
		t.Errorf("%s %v", values[key], err)
	}
	if keys, values, err := v.List(ctx, space, "rsa:somebodx", 1); err != nil || len(keys) != 1 || string(values[0]) != "three" {
		t.Errorf("%v %s %v", keys, values, err)
	}
	kept, _, err := server.store.State().Get(ctx, space, key)
	if err != nil || !sealedForm(kept) {
		t.Errorf("kept as %q, %v", kept, err)
	}
	if err := server.store.State().Put(ctx, space, "rsa:other", kept, time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := v.Get(ctx, space, "rsa:other"); err == nil {
		t.Error("a key opens in the place of another one")
	}
}
