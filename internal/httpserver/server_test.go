package httpserver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"inbox/internal/await"
	"inbox/internal/fault"
)

// running is a server on a free port of loopback; stop ends it and returns what Run returned.
type running struct {
	*Server
	url  string
	stop func() error
}

func start(t *testing.T, options Options) *running {
	t.Helper()
	options.Listen = "127.0.0.1:0"
	server := newServer(t, options)
	if err := server.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	stopped := false
	stop := func() error {
		stopped = true
		cancel()
		select { // also called beside the test, where nothing may end it
		case err := <-ended:
			return err
		case <-time.After(await.Patience):
			return errors.New("waited " + await.Patience.String() + " for the end of the server")
		}
	}
	t.Cleanup(func() {
		if !stopped {
			_ = stop()
		}
	})
	return &running{server, "http://" + server.Addr().String(), stop}
}

// client keeps no connections, so that a stopping server does not wait for them.
func client() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: await.Patience}
}

func fetch(t *testing.T, url string) (int, string) {
	t.Helper()
	response, err := client().Get(url)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func TestPortInUseNamesTheKey(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	address := listener.Addr().String()
	server := newServer(t, Options{Listen: address, Key: "admin.listen"})
	err = server.Run(t.Context())
	want := "admin.listen: " + address + " is in use by another program: stop that program or write another port"
	if err == nil || err.Error() != want || !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestBadAddressNamesTheKey(t *testing.T) {
	for _, address := range []string{"nonsense", "127.0.0.1:99999", "203.0.113.1:0"} {
		if err := newServer(t, Options{Listen: address}).Listen(); err == nil || !strings.HasPrefix(err.Error(), "http.listen: ") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken error
		server := newServer(t, Options{Checks: []Check{
			{Name: "store", Run: func(context.Context) error { return broken }},
			{Name: "queue", Run: func(context.Context) error { return nil }},
		}})
		expect := func(status int, body string) {
			t.Helper()
			got := ask(server.Handler(), "GET", "/readyz")
			if got.Code != status || strings.TrimSpace(got.Body.String()) != body {
				t.Errorf("%d %s, want %d %s", got.Code, got.Body.String(), status, body)
			}
		}
		expect(200, `{"ready":true,"checks":{"queue":"ok","store":"ok"}}`)
		broken = fault.Wrap(fault.Unavailable, "the database does not answer", errors.New("dial tcp 10.0.0.7: refused"))
		expect(200, `{"ready":true,"checks":{"queue":"ok","store":"ok"}}`) // the answer of this second
		<-time.After(checkEvery)
		expect(503, `{"ready":false,"checks":{"queue":"ok","store":"the database does not answer"}}`)
		broken = errors.New("dial tcp 10.0.0.7: refused")
		<-time.After(checkEvery)
		expect(503, `{"ready":false,"checks":{"queue":"ok","store":"not available"}}`)
		if got := ask(server.Handler(), "GET", "/healthz"); got.Code != 200 {
			t.Errorf("healthz: %d", got.Code)
		}
		server.Drain()
		expect(503, `{"ready":false,"reason":"the server is stopping"}`)
	})
}

// TestReadinessDoesNotHang: a condition that hangs is told in time, and is not asked again while it hangs.
func TestReadinessDoesNotHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		var asked atomic.Int32
		server := newServer(t, Options{Checks: []Check{
			{Name: "database", Run: func(context.Context) error {
				asked.Add(1)
				<-hang
				return nil
			}},
			{Name: "disk", Run: func(context.Context) error { return nil }},
		}})
		expect := func(status int, body string) {
			t.Helper()
			begun := time.Now()
			got := ask(server.Handler(), "GET", "/readyz")
			if got.Code != status || strings.TrimSpace(got.Body.String()) != body || time.Since(begun) > checkTimeout {
				t.Errorf("%d %s after %v, want %d %s", got.Code, got.Body.String(), time.Since(begun), status, body)
			}
			<-time.After(checkEvery)
		}
		for range 3 {
			expect(503, `{"ready":false,"checks":{"database":"no answer in time","disk":"ok"}}`)
		}
		if asked.Load() != 1 {
			t.Errorf("asked %d times", asked.Load())
		}
		close(hang)
		synctest.Wait()
		expect(200, `{"ready":true,"checks":{"database":"ok","disk":"ok"}}`)
		if asked.Load() != 2 {
			t.Errorf("asked %d times", asked.Load())
		}
	})
}

func TestGracefulStop(t *testing.T) {
	began, finish := make(chan struct{}), make(chan struct{})
	server := start(t, Options{Grace: time.Minute, Routes: []Route{
		{"GET", "/work", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			close(began)
			<-Stopping(r.Context())
			select {
			case <-finish:
			case <-r.Context().Done(): // cut off
			}
			_, _ = w.Write([]byte("done"))
		})},
	}})
	answered := make(chan string, 1)
	go func() {
		_, body := fetch(t, server.url+"/work")
		answered <- body
	}()
	await.Receive(t, began, "the request to be under way")
	ended := make(chan error, 1)
	go func() { ended <- server.stop() }()
	await.Receive(t, server.stopping, "the server to begin to stop")
	waitRefused(t, server.Addr().String())
	close(finish)
	if body := await.Receive(t, answered, "the answer"); body != "done" {
		t.Errorf("the request under way got %q", body)
	}
	if err := await.Receive(t, ended, "the end of the server"); err != nil {
		t.Errorf("run: %v", err)
	}
}

// waitRefused returns when nothing accepts connections any more.
func waitRefused(t *testing.T, address string) {
	t.Helper()
	await.Until(t, "nothing accepts connections any more", func() bool {
		connection, err := net.Dial("tcp", address)
		if err != nil {
			return true
		}
		_ = connection.Close()
		return false
	})
}

func TestStopCutsOffWhatDoesNotEnd(t *testing.T) {
	logger, out := logged(t)
	began := make(chan struct{})
	server := start(t, Options{Grace: time.Millisecond, Logger: logger, Routes: []Route{
		{"GET", "/stuck", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			close(began)
			<-r.Context().Done()
		})},
	}})
	cut := make(chan error, 1)
	go func() {
		response, err := client().Get(server.url + "/stuck")
		if err == nil {
			_ = response.Body.Close()
		}
		cut <- err
	}()
	await.Receive(t, began, "the request to be under way")
	if err := server.stop(); err != nil {
		t.Errorf("run: %v", err)
	}
	if err := await.Receive(t, cut, "the end of the request"); err == nil {
		t.Error("the stuck request was answered")
	}
	if !strings.Contains(out.String(), "cut off") {
		t.Errorf("log: %s", out.String())
	}
}

func TestHTTP2WithoutTLS(t *testing.T) {
	server := start(t, Options{Routes: []Route{{"GET", "/version", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(r.Proto))
	})}}})
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &protocols}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Get(server.url + "/version")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if string(body) != "HTTP/2.0" {
		t.Errorf("spoke %s", body)
	}
}

// A peer that sends its body byte by byte must not hold a handler for ever.
func TestSlowBodyIsCutOff(t *testing.T) {
	read := make(chan error, 1)
	server := start(t, Options{BodyTimeout: 20 * time.Millisecond, Routes: []Route{
		{"POST", "/in", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(r.Body)
			read <- err
		})},
	}})
	connection, err := net.Dial("tcp", server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	_, _ = connection.Write([]byte("POST /in HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf"))
	if err := await.Receive(t, read, "the end of the body"); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read: %v", err)
	}
}

// The time for the body is not the time for the answer: a blocking A2A send waits for its agent much longer.
func TestBodyTimeoutDoesNotEndALongAnswer(t *testing.T) {
	const bodyTimeout = 20 * time.Millisecond
	server := start(t, Options{BodyTimeout: bodyTimeout, Routes: []Route{
		{"POST", "/in", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadAll(r.Body)
			select {
			case <-r.Context().Done():
				w.WriteHeader(http.StatusTeapot)
			case <-time.After(5 * bodyTimeout):
			}
		})},
	}})
	response, err := client().Post(server.url+"/in", "text/plain", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("status %d", response.StatusCode)
	}
}

func TestHeaderLimit(t *testing.T) {
	server := start(t, Options{})
	request, _ := http.NewRequestWithContext(t.Context(), "GET", server.url+"/healthz", nil)
	request.Header.Set("X-Long", strings.Repeat("x", 2*maxHeaderBytes))
	response, err := client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status %d", response.StatusCode)
	}
}

func TestStreamsReachTheClientAtOnce(t *testing.T) {
	seen := make(chan struct{})
	server := start(t, Options{Routes: []Route{{"GET", "/stream", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("event\n"))
		w.(http.Flusher).Flush()
		<-seen
	})}}})
	defer close(seen)
	response, err := client().Get(server.url + "/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	part := make([]byte, 6)
	if _, err := io.ReadFull(response.Body, part); err != nil || string(part) != "event\n" {
		t.Errorf("%q, %v", part, err)
	}
}

func writePair(t *testing.T, dir string, serial int64) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), DNSNames: []string{"localhost"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: encoded},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

func TestTLSTakesRenewedCertificates(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := writePair(t, dir, 1)
	config, err := TLSConfig(certFile, keyFile, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	server := start(t, Options{TLS: config})
	serial := func() int64 {
		t.Helper()
		connection, err := tls.Dial("tcp", server.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Close()
		if got := connection.ConnectionState().NegotiatedProtocol; got != "h2" {
			t.Errorf("negotiated %q", got)
		}
		return connection.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	if got := serial(); got != 1 {
		t.Errorf("serial %d", got)
	}
	pair, err := newCertificate(certFile, keyFile, server.options.Logger)
	if err != nil {
		t.Fatal(err)
	}
	writePair(t, dir, 2)
	later := time.Now().Add(time.Minute)
	if err := os.Chtimes(certFile, later, later); err != nil {
		t.Fatal(err)
	}
	pair.checked = time.Time{}
	first := pair.current
	if renewed, err := pair.get(nil); err != nil || renewed == first {
		t.Errorf("the renewed certificate is not used: %v", err)
	}
	if err := os.WriteFile(certFile, []byte("half a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	pair.checked, pair.modified = time.Time{}, time.Time{}
	if kept, err := pair.get(nil); err != nil || kept == nil {
		t.Errorf("the old certificate was dropped: %v", err)
	}
}

func TestMissingCertificateNamesTheKeys(t *testing.T) {
	_, err := TLSConfig("/nowhere/cert.pem", "/nowhere/key.pem", slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "http.cert_file") || !strings.Contains(err.Error(), "/nowhere/cert.pem") {
		t.Errorf("got %v", err)
	}
}

func TestErrorsAreJSON(t *testing.T) {
	status, body := fetch(t, start(t, Options{}).url+"/nothing")
	var decoded ErrorBody
	if err := json.Unmarshal([]byte(body), &decoded); err != nil || status != 404 || decoded.Error.Code != "not_found" {
		t.Errorf("%d %s: %v", status, body, err)
	}
}
