package inbox_test

import (
	"bytes"
	"cmp"
	"errors"
	"io/fs"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"inbox"
	"inbox/engine/storage"
	"inbox/engine/store"
	"inbox/engine/store/storetest"
	"inbox/internal/await"
	"inbox/internal/blob/blobtest"
	"inbox/operator"
)

// place is a data directory with its database and the settings that go with it.
type place struct {
	*testing.T
	directory string
	database  string // URL
	key       string // secret_key_file; empty = the usual one
	files     string // blob_url; empty = the usual one
	domain    string // empty = localhost
	access    string // keys of a bucket
	secret    string
}

func (p place) config() *inbox.Config {
	p.Helper()
	config, err := inbox.LoadConfig("", []string{
		"INBOX_DATA_DIR=" + p.directory, "INBOX_DATABASE_URL=" + p.database, "INBOX_SECRET_KEY_FILE=" + p.key, "INBOX_LOG_LEVEL=error",
		"INBOX_HTTP_LISTEN=127.0.0.1:0", "INBOX_SMTP_LISTEN=", "INBOX_PUBLIC_URL=http://localhost:8080",
		"INBOX_BLOB_URL=" + p.files, "INBOX_DOMAIN=" + p.domain, "INBOX_BLOB_ACCESS_KEY=" + p.access, "INBOX_BLOB_SECRET_KEY=" + p.secret,
	})
	if err != nil {
		p.Fatal(err)
	}
	return config
}

// start starts a server and stops it at once.
func (p place) start(newIdentity bool) error {
	p.Helper()
	config := p.config()
	config.NewIdentity = newIdentity
	server, err := inbox.New(p.Context(), config)
	if err != nil {
		return err
	}
	return errors.Join(server.Operator().Tokens.EnsureAdmin(p.Context(), p.directory), server.Close())
}

func (p place) mustStart() {
	p.Helper()
	if err := p.start(false); err != nil {
		p.Fatalf("the server does not start: %v", err)
	}
}

// refused expects one sentence with the words, twice: nothing was made that lets a second start pass.
func (p place) refused(words ...string) {
	p.Helper()
	for range 2 {
		err := p.start(false)
		if err == nil {
			p.Fatalf("the server starts; want a refusal with %q", words)
		}
		for _, word := range words {
			if !strings.Contains(err.Error(), word) || strings.Contains(err.Error(), "\n") {
				p.Errorf("refused with %q; want one line with %q", err, word)
			}
		}
	}
}

// anew expects that --new-identity starts, and that it is not needed afterwards.
func (p place) anew() {
	p.Helper()
	if err := p.start(true); err != nil {
		p.Fatalf("--new-identity: %v", err)
	}
	p.mustStart()
}

func (p place) path(name string) string { return filepath.Join(p.directory, name) }

func (p place) remove(names ...string) {
	p.Helper()
	for _, name := range names {
		if err := os.Remove(p.path(name)); err != nil {
			p.Fatal(err)
		}
	}
}

func (p place) write(name, content string) {
	p.Helper()
	if err := os.WriteFile(p.path(name), []byte(content), 0o600); err != nil {
		p.Fatal(err)
	}
}

func (p place) read(name string) string {
	p.Helper()
	content, err := os.ReadFile(p.path(name))
	if err != nil {
		p.Fatal(err)
	}
	return string(content)
}

// forget removes documents of the database.
func (p place) forget(keys ...[2]string) {
	p.Helper()
	opened, err := store.Open(p.Context(), store.Options{URL: p.database, DataDir: p.directory})
	if err != nil {
		p.Fatal(err)
	}
	for _, key := range keys {
		err = errors.Join(err, opened.State().Delete(p.Context(), key[0], key[1]))
	}
	if err := errors.Join(err, opened.Close()); err != nil {
		p.Fatal(err)
	}
}

const otherKey = "ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=\n"

var (
	fingerprintDocument = [2]string{"sealing", "key"}
	idDocument          = [2]string{"database", "id"}
	networkKeyDocument  = [2]string{"limits", "network-key"}
)

// TestStart says for every pair of a database and a directory what a start does with it. Each case begins after the first
// start of a server in an empty directory, on both databases.
func TestStart(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]func(*testing.T) string{
		"sqlite":   func(*testing.T) string { return "sqlite" },
		"postgres": func(t *testing.T) string { return storetest.Postgres(t) },
	} {
		for what, run := range map[string]func(p place){
			"again": func(p place) { p.mustStart() },
			"the secret key is lost": func(p place) {
				key := p.read("secret.key")
				p.remove("secret.key")
				p.refused("secret_key_file", p.path("secret.key"), "is missing", "--new-identity")
				if _, err := os.Stat(p.path("secret.key")); !errors.Is(err, fs.ErrNotExist) {
					p.Error("a key was made all the same")
				}
				p.write("secret.key", key)
				p.mustStart()
			},
			"the secret key is lost for good": func(p place) {
				p.remove("secret.key")
				p.anew()
			},
			"another secret key": func(p place) {
				p.write("secret.key", otherKey)
				p.refused("secret_key_file", "has the fingerprint", "give every node of a database the same file", "--new-identity")
				p.anew()
			},
			"the secret key is no key": func(p place) {
				p.write("secret.key", "?")
				p.refused("secret_key_file", "is not base64: put the right file back")
			},
			"an old version, which left no marks": func(p place) {
				p.forget(fingerprintDocument, idDocument)
				p.remove("database.id")
				p.mustStart()
				p.forget(fingerprintDocument)
				p.write("secret.key", otherKey)
				p.refused("has the fingerprint")
			},
			"an old version, and the secret key is lost": func(p place) {
				p.forget(fingerprintDocument, idDocument)
				p.remove("database.id", "secret.key")
				p.refused("is missing")
			},
			"an older version, which sealed nothing": func(p place) {
				p.rewrite(unseal)
				p.forget(fingerprintDocument, idDocument, networkKeyDocument)
				p.remove("database.id", "secret.key")
				p.mustStart()
			},
			"killed before the key had its name": func(p place) {
				p.write("secret.key.new", p.read("secret.key"))
				p.remove("secret.key", "database.id", operator.AdminTokenFile)
				p.mustStart()
			},
			"a copy of everything": func(p place) {
				copied := p
				copied.directory = p.TempDir()
				if err := os.CopyFS(copied.directory, os.DirFS(p.directory)); err != nil {
					p.Fatal(err)
				}
				copied.mustStart()
			},
			"another directory": func(p place) { // another node, or a restored database without what was beside it
				other := p
				other.directory = p.TempDir()
				if p.database == "sqlite" {
					other.write(store.File, p.read(store.File))
				}
				other.refused("secret_key_file", "is missing", "put the file back from a backup or from another node")
				other.key = p.path("secret.key")
				other.refused("blob_url", other.path("blobs"), "is empty or was never used", "the same on every node", "--new-identity")
				other.files = "file://" + p.path("blobs")
				other.mustStart()
				if other.read("database.id") != p.read("database.id") {
					p.Error("the directory does not name the database")
				}
				other.key = ""
				other.write("secret.key", p.read("secret.key"))
				other.mustStart()
			},
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				t.Parallel()
				p := place{T: t, directory: t.TempDir(), database: url(t)}
				p.mustStart()
				run(p)
			})
		}
	}
}

// TestFirstStart needs no flags, whether the operator made the secret key or not.
func TestFirstStart(t *testing.T) {
	t.Parallel()
	for name, database := range map[string]string{"sqlite": "sqlite", "postgres": storetest.Postgres(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := place{T: t, directory: filepath.Join(t.TempDir(), "data"), database: database, key: filepath.Join(t.TempDir(), "key")}
			if err := p.start(false); err == nil || !strings.Contains(err.Error(), "for a first start make it with: openssl rand -base64 32") {
				t.Errorf("without the key that was named: %v", err)
			}
			if err := os.WriteFile(p.key, []byte(otherKey), 0o600); err != nil {
				t.Fatal(err)
			}
			p.mustStart()
			p.mustStart()
		})
	}
	t.Run("after a command", func(t *testing.T) {
		t.Parallel()
		p := place{T: t, directory: t.TempDir(), database: "sqlite"}
		opened, err := inbox.OpenOperator(t.Context(), p.config())
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = opened.Tokens.Create(t.Context(), "ann", "")
		if err := errors.Join(err, opened.Close()); err != nil {
			t.Fatal(err)
		}
		p.mustStart()
	})
	t.Run("killed in the middle", func(t *testing.T) {
		t.Parallel()
		p := place{T: t, directory: t.TempDir(), database: "sqlite"}
		p.write("secret.key.new", otherKey)
		p.mustStart()
		if p.read("secret.key") != otherKey {
			t.Error("the pending key was not used")
		}
	})
}

// TestLostDatabase: a directory that was used before gets no new database in silence.
func TestLostDatabase(t *testing.T) {
	t.Parallel()
	lose := map[string]func(p place){
		"missing":    func(p place) { p.remove(store.File) },
		"no bytes":   func(p place) { p.write(store.File, "") },
		"no content": func(p place) { p.write(store.File, p.read(store.File+".empty")) },
	}
	for name, lost := range lose {
		for _, sign := range []string{"database.id", "secret.key", operator.AdminTokenFile} {
			t.Run(name+" beside "+sign, func(t *testing.T) {
				t.Parallel()
				p := place{T: t, directory: t.TempDir(), database: "sqlite"}
				p.forget() // makes an empty one
				p.write(store.File+".empty", p.read(store.File))
				p.mustStart()
				whole := p.read(store.File)
				for _, other := range []string{"database.id", "secret.key", operator.AdminTokenFile} {
					if other != sign {
						p.write(other+".before", p.read(other))
						p.remove(other)
					}
				}
				lost(p)
				p.refused("data_dir", p.path(store.File), sign, "put the database back", "--new-identity")
				if _, err := inbox.OpenOperator(t.Context(), p.config()); err == nil || !strings.Contains(err.Error(), "put the database back") {
					t.Errorf("a command got %v", err)
				}
				if _, err := os.Stat(p.path(store.File)); name == "missing" && !errors.Is(err, fs.ErrNotExist) {
					t.Error("a database was made all the same")
				}
				before := p.read(sign)
				p.write("secret.key", cmp.Or(readIf(p.path("secret.key")), readIf(p.path("secret.key"+".before"))))
				p.write(store.File, whole) // the backup
				p.mustStart()
				if p.read(sign) != before {
					t.Errorf("%s was changed", sign)
				}
				lost(p)
				p.anew()
			})
		}
	}
}

func readIf(path string) string {
	content, _ := os.ReadFile(path)
	return string(content)
}

// TestAnotherDatabase: a wrong address is not a new beginning.
func TestAnotherDatabase(t *testing.T) {
	t.Parallel()
	p := place{T: t, directory: t.TempDir(), database: storetest.Postgres(t), key: filepath.Join(t.TempDir(), "key")}
	if err := os.WriteFile(p.key, []byte(otherKey), 0o600); err != nil {
		t.Fatal(err)
	}
	p.mustStart()
	empty, used := p, p
	empty.database, used.database, used.directory = storetest.Postgres(t), storetest.Postgres(t), t.TempDir()
	used.mustStart()
	used.directory = p.directory
	empty.refused("database_url", "is empty", "database.id", "--new-identity")
	used.refused("database_url", "is not the one that data_dir", "--new-identity")
	p.mustStart()
	used.anew()
	p.refused("is not the one")
}

// TestNodesBeginTogether: two nodes find an empty database, each with a directory and no key of its own. One begins, the
// other one is told what it needs.
func TestNodesBeginTogether(t *testing.T) {
	t.Parallel()
	database := storetest.Postgres(t)
	first := place{T: t, directory: t.TempDir(), database: database}
	second := place{T: t, directory: t.TempDir(), database: database}
	first.files = "file://" + t.TempDir()
	second.files = first.files
	ended := make(chan error, 2)
	for _, p := range []place{first, second} {
		go func() { ended <- p.start(false) }()
	}
	var failures []error
	for range 2 {
		select {
		case err := <-ended:
			if err != nil {
				failures = append(failures, err)
			}
		case <-time.After(time.Minute):
			t.Fatal("the nodes did not start within a minute")
		}
	}
	if len(failures) != 1 || !strings.Contains(failures[0].Error(), "secret_key_file") {
		t.Fatalf("%d nodes were refused: %v", len(failures), failures)
	}
	key := cmp.Or(readIf(first.path("secret.key")), readIf(second.path("secret.key")))
	for _, p := range []place{first, second} {
		p.write("secret.key", key)
		p.mustStart()
	}
}

// TestFilesAndDomain: the nodes of a database serve one domain and keep files in one place, which belongs to no other database.
func TestFilesAndDomain(t *testing.T) {
	t.Parallel()
	server := blobtest.StartServer(t)
	address := map[string]func(t *testing.T) string{
		"a directory": func(t *testing.T) string { return "file://" + t.TempDir() },
		"a bucket":    func(*testing.T) string { return server.URL(uuid.NewString()) },
	}
	for name, url := range map[string]func(*testing.T) string{
		"sqlite":   func(*testing.T) string { return "sqlite" },
		"postgres": func(t *testing.T) string { return storetest.Postgres(t) },
	} {
		for kind, files := range address {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				begin := func(url string) place {
					p := place{T: t, directory: t.TempDir(), database: url, files: files(t)}
					if kind == "a bucket" {
						p.access, p.secret = blobtest.AccessKey, blobtest.SecretKey
					}
					p.mustStart()
					return p
				}
				p := begin(url(t))

				elsewhere := p
				elsewhere.files = files(t)
				elsewhere.refused("blob_url", "is empty or was never used", "--new-identity")
				p.mustStart()

				stranger := begin(url(t))
				stranger.files = p.files
				stranger.refused("blob_url", "is the store", "--new-identity")
				fresh := stranger
				fresh.directory, fresh.database = t.TempDir(), url(t)
				fresh.refused("blob_url", "has the files of another database", "--new-identity")
				p.mustStart()

				renamed := p
				renamed.domain = "other.localhost:8080"
				renamed.refused("domain", "other.localhost here", "used with localhost", "--new-identity")
				p.domain = "localhost:1234" // the port of a test is no name
				p.mustStart()
				renamed.anew()
				p.refused("domain")
				p.domain = renamed.domain

				elsewhere.domain = renamed.domain
				elsewhere.anew()
				p.refused("blob_url")
				stranger.anew()
			})
		}
	}
}

// TestFilesOfADeadNode: a node that died before it had named the place of files is no loss, and one that is at it is waited for.
func TestFilesOfADeadNode(t *testing.T) {
	t.Parallel()
	p := place{T: t, directory: t.TempDir(), database: "sqlite"}
	p.mustStart()
	opened, err := store.Open(t.Context(), store.Options{URL: p.database, DataDir: p.directory})
	if err != nil {
		t.Fatal(err)
	}
	id := strings.TrimSpace(p.read("blobs/store.id"))
	err = opened.State().Put(t.Context(), "database", "files", []byte("new "+id), time.Time{})
	if err := errors.Join(err, opened.Close()); err != nil {
		t.Fatal(err)
	}
	p.mustStart() // it had named the place, and not noted it
	p.remove("blobs/store.id")
	p.refused("is empty or was never used")
}

// TestNodesNameFilesTogether: nodes that start at once name one place once; those with another one are refused.
func TestNodesNameFilesTogether(t *testing.T) {
	t.Parallel()
	shared, database, key := "file://"+t.TempDir(), storetest.Postgres(t), filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(otherKey), 0o600); err != nil {
		t.Fatal(err)
	}
	first := place{T: t, directory: t.TempDir(), database: database, key: key, files: shared}
	first.mustStart()
	first.forget([2]string{"database", "files"})
	if err := os.Remove(strings.TrimPrefix(shared, "file://") + "/store.id"); err != nil { // as an older version leaves it
		t.Fatal(err)
	}

	var group sync.WaitGroup
	refused := make(chan error, 6)
	for range cap(refused) {
		node := first
		node.directory = t.TempDir()
		group.Go(func() {
			if err := node.start(false); err != nil {
				refused <- err
			}
		})
	}
	await.Done(t, group.Wait, "the start of all nodes")
	if len(refused) > 0 {
		t.Errorf("a node was refused: %v", <-refused)
	}
	first.mustStart()
}

// keysOf starts a server as far as its keys, and returns what others see of them.
func (p place) keysOf() (seen string, err error) {
	p.Helper()
	config := p.config()
	config.SMTP.Listen = "127.0.0.1:0"
	server, err := inbox.New(p.Context(), config)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	dkim, evidence, err := server.Keys(p.Context())
	if err != nil {
		return "", err
	}
	request := httptest.NewRequest("GET", "/agents/echo", nil)
	request.Header.Set("Accept", "application/activity+json")
	answer := httptest.NewRecorder()
	server.Handler().ServeHTTP(answer, request)
	_, key, found := strings.Cut(answer.Body.String(), `"publicKeyPem":"`)
	if !found {
		return "", errors.New("no key in " + answer.Body.String())
	}
	key, _, _ = strings.Cut(key, `"`)
	return dkim + " " + evidence + " " + key, nil
}

// rewrite changes the documents with keys as they stand in the database, and returns how many. Change is told how a document
// is kept, and what was put.
func (p place) rewrite(change func(kept, put []byte) []byte) (changed int) {
	p.Helper()
	opened, err := store.Open(p.Context(), store.Options{URL: p.database, DataDir: p.directory})
	if err != nil {
		p.Fatal(err)
	}
	options := inbox.StorageOptions(p.config(), slog.Default())
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
	t.Parallel()
	for name, database := range map[string]string{"sqlite": "sqlite", "postgres": storetest.Postgres(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
