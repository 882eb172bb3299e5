package blob_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"inbox/internal/blob"
	"inbox/internal/blob/blobtest"
	"inbox/internal/children"
	"inbox/internal/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(children.Starter)) }

func TestWrongBuckets(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]blob.S3Options{
		"no endpoint":         {Bucket: "files"},
		"a path":              {Endpoint: "host/path", Bucket: "files"},
		"a user":              {Endpoint: "user@host", Bucket: "files"},
		"a port alone":        {Endpoint: ":9000", Bucket: "files"},
		"no bucket":           {Endpoint: "host"},
		"a bucket of a slash": {Endpoint: "host", Bucket: "fi/les"},
		"what is no host":     {Endpoint: "a host", Bucket: "files"},
		"the end of a scheme": {Endpoint: "//host", Bucket: "files"},
		"a scheme":            {Endpoint: "https://host", Bucket: "files"},
	} {
		if _, err := blob.OpenS3(options); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	for _, endpoint := range []string{"host", "host:1", "127.0.0.1", "[::1]", "[::1]:9000", "s3.eu-west-1.amazonaws.com"} {
		if _, err := blob.OpenS3(blob.S3Options{Endpoint: endpoint, Bucket: "files"}); err != nil {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
}

// between is a proxy between a store and its server.
type between struct {
	*httptest.Server

	mu     sync.Mutex
	seen   []string                                     // method and query of each request
	refuse func(r *http.Request) (status int)           // 0 = pass on
	tamper func(r *http.Request, answer *http.Response) // may be nil
}

func startBetween(t *testing.T, server *blobtest.Server) *between {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	b := &between{}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: server.Endpoint})
			r.Out.Host = r.In.Host // which is signed
		},
		ModifyResponse: func(answer *http.Response) error {
			if b.tamper != nil {
				b.tamper(answer.Request, answer)
			}
			return nil
		},
		Transport: transport,
	}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		b.seen = append(b.seen, r.Method+" "+r.URL.Query().Get("partNumber"))
		status := 0
		if b.refuse != nil {
			status = b.refuse(r)
		}
		b.mu.Unlock()
		if status != 0 {
			w.WriteHeader(status) // without having read the content
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(b.Close)
	return b
}

func (b *between) store(t *testing.T, server *blobtest.Server) *blob.S3 {
	t.Helper()
	return bucket(t, server, func(o *blob.S3Options) {
		o.Endpoint, o.MaxBytes = strings.TrimPrefix(b.URL, "http://"), blob.DefaultMaxBytes
	})
}

func (b *between) count(request string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(b.seen), func(one string) bool { return one != request }))
}

func random(t *testing.T, size int) (content []byte, digest string) {
	t.Helper()
	content = make([]byte, size)
	_, _ = rand.Read(content)
	sum := sha256.Sum256(content)
	return content, hex.EncodeToString(sum[:])
}

func wantContent(t *testing.T, store *blob.S3, digest string, want []byte) {
	t.Helper()
	content, err := store.Open(t.Context(), digest)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = content.Close() }()
	if got, err := io.ReadAll(content); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("read %d bytes, %v; want %d", len(got), err, len(want))
	}
}

// TestS3Parts uploads a long content in parts, of which the server refuses one for a moment, and reads it from any place. Only that part is
// sent again. TestS3Memory shows that a part takes no memory.
func TestS3Parts(t *testing.T) {
	t.Parallel()
	server := blobtest.StartServer(t)
	proxy := startBetween(t, server)
	busy := 1
	proxy.refuse = func(r *http.Request) int {
		if r.URL.Query().Get("partNumber") == "2" && busy > 0 {
			busy--
			return http.StatusServiceUnavailable
		}
		return 0
	}
	store := proxy.store(t, server)

	content, want := random(t, 40<<20)
	digest, size, err := store.Put(t.Context(), bytes.NewReader(content))
	if err != nil || digest != want || size != int64(len(content)) {
		t.Fatalf("put %s of %d bytes, %v", digest, size, err)
	}
	for part, want := range map[string]int{"PUT 1": 1, "PUT 2": 2, "PUT 3": 1, "PUT 4": 0, "PUT ": 0, "DELETE ": 0, "POST ": 2} {
		if got := proxy.count(part); got != want {
			t.Errorf("%d requests %q, want %d", got, part, want)
		}
	}
	wantContent(t, store, digest, content)

	reader, err := store.Open(t.Context(), digest)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Close() }()
	const offset = 17 << 20
	if _, err := reader.(io.Seeker).Seek(offset, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(reader); err != nil || !bytes.Equal(got, content[offset:]) {
		t.Errorf("from %d read %d bytes, %v", offset, len(got), err)
	}
}

// uploads are the directories in which the gateway keeps unfinished uploads.
func uploads(t *testing.T, server *blobtest.Server) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(server.Directory, ".sgwtmp", "multipart", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestS3FailedParts: the parts of a failed upload are removed at once, and those of a process that died by a sweep a day later.
func TestS3FailedParts(t *testing.T) {
	t.Parallel()
	server := blobtest.StartServer(t)
	proxy := startBetween(t, server)
	abortable := true
	proxy.refuse = func(r *http.Request) int {
		if r.URL.Query().Get("partNumber") == "2" || r.Method == http.MethodDelete && !abortable {
			return http.StatusForbidden
		}
		return 0
	}
	store := proxy.store(t, server)
	content, want := random(t, 20<<20)
	put := func() {
		t.Helper()
		if _, _, err := store.Put(t.Context(), bytes.NewReader(content)); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "AccessDenied (HTTP status 403)") {
			t.Fatalf("put: %v", err)
		}
		if _, err := store.Stat(t.Context(), want); !fault.Is(err, fault.NotFound) {
			t.Fatalf("stat: %v", err)
		}
	}
	put()
	if left := uploads(t, server); len(left) != 0 || proxy.count("DELETE ") != 1 {
		t.Fatalf("left %v after %d aborts", left, proxy.count("DELETE "))
	}

	abortable = false
	put()
	abortable = true
	sweep := func() {
		t.Helper()
		if err := store.EachIdle(t.Context(), time.Now().Add(time.Hour), func(string) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	sweep()
	if left := uploads(t, server); len(left) != 1 {
		t.Fatalf("a sweep removed an upload that may be under way: %v", left)
	}
	age(t, uploads(t, server), 25*time.Hour)
	sweep()
	if left := uploads(t, server); len(left) != 0 {
		t.Errorf("left after the sweep: %v", left)
	}
}

// TestS3Retries: each request is repeated while the server is busy, also if it refuses a content that it did not read, but not forever.
func TestS3Retries(t *testing.T) {
	t.Parallel()
	server := blobtest.StartServer(t)
	proxy := startBetween(t, server)
	refused := map[string]int{}
	proxy.refuse = func(r *http.Request) int {
		request := r.Method + r.URL.RawQuery
		if refused[request]++; refused[request] <= 2 {
			return http.StatusServiceUnavailable
		}
		return 0
	}
	store := proxy.store(t, server)
	content, _ := random(t, 3<<20)
	digest, _, err := store.Put(t.Context(), bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	if proxy.count("PUT ") != 3 {
		t.Errorf("%d requests to put", proxy.count("PUT "))
	}
	wantContent(t, store, digest, content)
	if err := store.Delete(t.Context(), digest); err != nil {
		t.Fatal(err)
	}

	proxy.mu.Lock()
	proxy.seen, proxy.refuse = nil, func(*http.Request) int { return http.StatusServiceUnavailable }
	proxy.mu.Unlock()
	if _, err := store.Stat(t.Context(), digest); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "503") {
		t.Errorf("stat: %v", err)
	}
	if proxy.count("GET ") != 4 {
		t.Errorf("%d requests to a server that stays busy", proxy.count("GET "))
	}
}

// TestS3WrongChecksum: a server that reports another checksum than that of the content has damaged it: the content is not there
// afterwards. TestS3Damage shows that a damaged object is not read.
func TestS3WrongChecksum(t *testing.T) {
	t.Parallel()
	server := blobtest.StartServer(t)
	const header = "X-Amz-Checksum-Sha256"
	other := "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0="
	small, _ := random(t, 1000)
	long, _ := random(t, 20<<20)

	for name, one := range map[string]struct {
		content []byte
		tamper  func(r *http.Request, answer *http.Response)
	}{
		"one request": {small, func(r *http.Request, answer *http.Response) {
			if r.Method == http.MethodPut && answer.Header.Get(header) != "" {
				answer.Header.Set(header, other)
			}
		}},
		"a part": {long, func(r *http.Request, answer *http.Response) {
			if r.URL.Query().Get("partNumber") == "2" && answer.Header.Get(header) != "" {
				answer.Header.Set(header, other)
			}
		}},
		"all parts": {long, func(r *http.Request, answer *http.Response) {
			if r.Method == http.MethodPost && r.URL.Query().Get("uploadId") != "" {
				said, _ := io.ReadAll(answer.Body)
				before, after, _ := bytes.Cut(said, []byte("<ChecksumSHA256>"))
				changed := fmt.Sprintf("%s<ChecksumSHA256>%s%s", before, other, after[len(other):])
				answer.Body, answer.ContentLength = io.NopCloser(strings.NewReader(changed)), int64(len(changed))
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			proxy := startBetween(t, server)
			proxy.tamper = one.tamper
			store := proxy.store(t, server)
			digest, _, err := store.Put(t.Context(), bytes.NewReader(one.content))
			if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "checksums differ") {
				t.Fatalf("put: %v", err)
			}
			if _, err := store.Stat(t.Context(), digest); !fault.Is(err, fault.NotFound) {
				t.Errorf("stat: %v", err)
			}
		})
	}
}

// TestS3IgnoredRange: a server that sends an object from its beginning is not believed to send it from an offset.
func TestS3IgnoredRange(t *testing.T) {
	t.Parallel()
	server := blobtest.StartServer(t)
	proxy := startBetween(t, server)
	proxy.refuse = func(r *http.Request) int {
		r.Header.Del("Range")
		return 0
	}
	store := proxy.store(t, server)
	digest, err := store.PutBytes(t.Context(), []byte("content"))
	if err != nil {
		t.Fatal(err)
	}
	content, err := store.Open(t.Context(), digest)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = content.Close() }()
	if _, err := content.(io.Seeker).Seek(3, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if read, err := io.ReadAll(content); !fault.Is(err, fault.Unavailable) {
		t.Errorf("read %q, %v", read, err)
	}
}

// TestS3EndedContext: a list that is cut short is not a list without contents.
func TestS3EndedContext(t *testing.T) {
	t.Parallel()
	store := bucket(t, blobtest.StartServer(t), nil)
	digest, err := store.PutBytes(t.Context(), []byte("content"))
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, opened := store.Open(ended, digest)
	_, stat := store.Stat(ended, digest)
	listed := store.EachIdle(ended, time.Now().Add(time.Hour), func(string) error { return nil })
	for name, err := range map[string]error{"open": opened, "stat": stat, "list": listed} {
		if !fault.Is(err, fault.Unavailable) || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// lists answers requests for a list with the function.
func lists(t *testing.T, answer func(w http.ResponseWriter, r *http.Request)) *blob.S3 {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(answer))
	t.Cleanup(server.Close)
	return bucket(t, &blobtest.Server{Endpoint: strings.TrimPrefix(server.URL, "http://")}, nil)
}

func listed(digest string) string {
	return "<Contents><Key>" + digest[:2] + "/" + digest + ".1</Key><LastModified>2026-01-01T00:00:00Z</LastModified><Size>1</Size></Contents>"
}

// TestS3Lists: a server that repeats a page, or sends one without an end, is not listed forever.
func TestS3Lists(t *testing.T) {
	t.Parallel()
	_, digest := random(t, 1)
	for name, answer := range map[string]func(w http.ResponseWriter, r *http.Request){
		"a page again": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken>"+listed(digest)+"</ListBucketResult>")
		},
		"a page without an end": func(w http.ResponseWriter, r *http.Request) {
			_, err := io.WriteString(w, "<ListBucketResult>")
			for err == nil && r.Context().Err() == nil {
				_, err = io.WriteString(w, "<Other>"+strings.Repeat("x", 4096)+"</Other>")
			}
		},
		"no list": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "welcome") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := lists(t, answer)
			if err := store.EachIdle(t.Context(), time.Now(), func(string) error { return nil }); !fault.Is(err, fault.Unavailable) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestS3Hosts: the bucket is in the host name where servers expect it there, and where the settings say so.
func TestS3Hosts(t *testing.T) {
	t.Parallel()
	for _, one := range []struct{ endpoint, style, host, path string }{
		{"s3.eu-west-1.amazonaws.com", "", "files.s3.eu-west-1.amazonaws.com", "/"},
		{"s3.eu-west-1.amazonaws.com", blob.StylePath, "s3.eu-west-1.amazonaws.com", "/files/"},
		{"s3.dualstack.eu-west-1.amazonaws.com", "", "files.s3.dualstack.eu-west-1.amazonaws.com", "/"},
		{"s3.example.com", "", "s3.example.com", "/files/"},
		{"s3.example.com:8000", blob.StyleHost, "files.s3.example.com:8000", "/"},
		{"[2001:db8::1]", "", "[2001:db8::1]", "/files/"},
	} {
		t.Run(one.endpoint+" "+one.style, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var host, path, dialled string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				host, path = r.Host, r.URL.Path
				_, _ = io.WriteString(w, "<ListBucketResult></ListBucketResult>")
			}))
			defer server.Close()
			store := bucket(t, &blobtest.Server{Endpoint: one.endpoint}, func(o *blob.S3Options) {
				o.Style, o.Region = one.style, "eu-west-1"
				o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
					dialled = address
					return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
				}
			})
			_, digest := random(t, 1)
			if _, err := store.Stat(t.Context(), digest); !fault.Is(err, fault.NotFound) {
				t.Fatal(err)
			}
			port := ":80"
			if strings.HasSuffix(one.host, ":8000") {
				port = ""
			}
			if host != one.host || path != one.path || dialled != one.host+port {
				t.Errorf("asked %s for %s at %s", dialled, path, host)
			}
		})
	}
}

// TestS3Credentials finds keys in the settings, the environment, a shared file and the role of the machine, in this order.
func TestS3Credentials(t *testing.T) {
	server := blobtest.StartServer(t)
	file := filepath.Join(t.TempDir(), "credentials")
	if err := os.WriteFile(file, []byte("[other]\naws_access_key_id = wrong\naws_secret_access_key = wrong\n[inbox]\naws_access_key_id = "+
		blobtest.AccessKey+"\naws_secret_access_key = "+blobtest.SecretKey+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	var mu sync.Mutex
	var roles []string // addresses that were dialled for the role
	cloud := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/latest/api/token":
			_, _ = io.WriteString(w, "a token")
		case "/latest/meta-data/iam/security-credentials/":
			_, _ = io.WriteString(w, "the-role\n")
		case "/latest/meta-data/iam/security-credentials/the-role", "/container":
			if r.URL.Path != "/container" && r.Header.Get("X-aws-ec2-metadata-token") != "a token" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			_, _ = fmt.Fprintf(w, `{"Code":"Success","AccessKeyId":%q,"SecretAccessKey":%q,"Expiration":%q}`,
				blobtest.AccessKey, blobtest.SecretKey, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
		default:
			http.NotFound(w, r)
		}
	}))
	defer cloud.Close()
	dialRole := func(ctx context.Context, network, address string) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		roles = append(roles, address)
		return (&net.Dialer{}).DialContext(ctx, network, cloud.Listener.Addr().String())
	}

	good := map[string]string{"AWS_ACCESS_KEY_ID": blobtest.AccessKey, "AWS_SECRET_ACCESS_KEY": blobtest.SecretKey}
	wrong := map[string]string{"AWS_ACCESS_KEY_ID": "wrong", "AWS_SECRET_ACCESS_KEY": "wrong"}
	shared := map[string]string{"AWS_SHARED_CREDENTIALS_FILE": file, "AWS_PROFILE": "inbox"}
	for _, one := range []struct {
		name        string
		environment map[string]string
		keys        bool // in the settings
		noRole      bool
		role        string // address that was dialled
		want        string // in the error
	}{
		{name: "the settings before the environment", environment: wrong, keys: true},
		{name: "the environment", environment: good},
		{name: "a file", environment: shared},
		{name: "another profile of the file", environment: map[string]string{"AWS_SHARED_CREDENTIALS_FILE": file, "AWS_PROFILE": "other"}, want: "correct blob.access_key"},
		{name: "the role of a machine", role: "169.254.169.254:80"},
		{name: "the role of a container", environment: map[string]string{"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://127.0.0.1:1234/container"}, role: "127.0.0.1:1234"},
		{name: "the role of a task", environment: map[string]string{"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/container"}, role: "169.254.170.2:80"},
		{name: "no role is wanted", environment: map[string]string{"AWS_EC2_METADATA_DISABLED": "true"}, want: "no keys for the bucket"},
		{name: "no role can be asked", noRole: true, want: "AWS_ACCESS_KEY_ID"},
	} {
		t.Run(one.name, func(t *testing.T) {
			t.Setenv("HOME", t.TempDir())
			for _, name := range []string{
				"AWS_ACCESS_KEY_ID", "AWS_ACCESS_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_SECRET_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_CONFIG_FILE",
				"AWS_SHARED_CREDENTIALS_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
				"AWS_CONTAINER_AUTHORIZATION_TOKEN", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_EC2_METADATA_DISABLED",
			} {
				t.Setenv(name, one.environment[name])
			}
			roles = nil
			store := bucket(t, server, func(o *blob.S3Options) {
				if !one.keys {
					o.AccessKey, o.SecretKey = "", ""
				}
				if !one.noRole {
					o.DialRole = dialRole
				}
			})
			_, err := store.ID(t.Context())
			if one.want == "" && err != nil || one.want != "" && (!fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), one.want)) {
				t.Errorf("got %v, want %q", err, one.want)
			}
			for _, address := range roles {
				if address != one.role {
					t.Errorf("dialled %s", address)
				}
			}
			if one.role != "" && len(roles) == 0 {
				t.Error("the role was not asked for")
			}
			if one.role != "" && !slices.Contains(blob.RoleServices(), one.role) {
				t.Errorf("%s is not among %v", one.role, blob.RoleServices())
			}
		})
	}
}
