package inbox

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"inbox/engine/storage"
	"inbox/engine/store"
	"inbox/engine/store/storetest"
	"inbox/internal/await"
)

// keysOf starts a server as far as its keys, and returns what others see of them.
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

// rewrite changes the documents with keys as they stand in the database, and returns how many. Change is told how a document
// is kept, and what was put.
func (p place) rewrite(change func(kept, put []byte) []byte) (changed int) {
	p.Helper()
	opened, err := store.Open(p.Context(), store.Options{URL: p.database, DataDir: p.directory})
	if err != nil {
		p.Fatal(err)
	}
	options := storageOptions(p.config(), slog.Default())
	sealer, err := storage.OpenSealer(p.Context(), options, opened)
	if err != nil {
		p.Fatal(err)
	}
	for _, namespace := range options.Sealed {
		keys, kept, err := opened.State().List(p.Context(), namespace, "", 500)
		if err != nil {
			p.Fatal(err)
		}
		for i, key := range keys {
			put, _, err := sealer.Vault().Get(p.Context(), namespace, key)
			if err != nil {
				p.Fatal(err)
			}
			value := change(kept[i], put)
			if bytes.Equal(value, kept[i]) {
				continue
			}
			if err := opened.State().Put(p.Context(), namespace, key, value, time.Time{}); err != nil {
				p.Fatal(err)
			}
			changed++
		}
	}
	if err := opened.Close(); err != nil {
		p.Fatal(err)
	}
	return changed
}

// unseal leaves the keys as versions did that sealed none.
func unseal(_, put []byte) []byte { return put }

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
			look := func(kept, _ []byte) []byte {
				read++
				if !bytes.HasPrefix(kept, []byte("v1.")) || bytes.Contains(kept, []byte("PRIVATE")) {
					open++
				}
				return kept
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

			p.remove("secret.key")
			if err := p.start(true); err != nil {
				t.Fatal(err)
			}
			if after, err := p.keysOf(); err != nil || after == before {
				t.Errorf("a new identity has the keys %s, %v", after, err)
			}
		})
	}
}
