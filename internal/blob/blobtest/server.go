package blobtest

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"inbox/internal/await"
	"inbox/internal/children"
)

// Bucket is the one that a Server has.
const Bucket = "files"

// Keys of every Server.
const (
	AccessKey = "an-access-key"
	SecretKey = "a-secret-key-of-tests"
)

// Server is a server that speaks the S3 protocol: Versity's gateway over a directory, on loopback.
type Server struct {
	Endpoint  string // host:port, without TLS
	Directory string // of the bucket: its objects are files below it
}

// gateway builds the program once for all; go keeps it with what it has built.
var gateway = sync.OnceValues(func() (string, error) {
	module, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}

	build := exec.Command("go", "tool", "-n", "versitygw")
	build.Dir = filepath.Join(filepath.Dir(string(bytes.TrimSpace(module))), "e2e", "peers", "versitygw")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // once, whatever the tests are built with
	var said bytes.Buffer
	build.Stderr = &said
	path, err := build.Output()
	if err != nil {
		return "", fmt.Errorf("build versitygw: %w\n%s", err, said.String())
	}
	return strings.TrimSpace(string(path)), nil
})

// StartServer runs a server with an empty bucket until the test ends.
func StartServer(tb testing.TB) *Server {
	tb.Helper()
	program, err := gateway()
	if err != nil {
		tb.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	endpoint := listener.Addr().String()
	if err := listener.Close(); err != nil {
		tb.Fatal(err)
	}

	root, notes := tb.TempDir(), tb.TempDir()
	directory := filepath.Join(root, Bucket)
	if err := os.Mkdir(directory, 0o700); err != nil {
		tb.Fatal(err)
	}

	var said bytes.Buffer
	command := exec.Command(program, "--quiet", "--port", endpoint, "--health", "/health", "posix", "--sidecar", notes, root)
	command.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+AccessKey, "ROOT_SECRET_KEY="+SecretKey)
	command.Stdout, command.Stderr = &said, &said
	if err := children.Start(command); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		if tb.Failed() {
			tb.Logf("versitygw said: %s", said.String())
		}
	})

	client := http.Client{Timeout: time.Second}
	await.Until(tb, "the S3 server answers", func() bool {
		answer, err := client.Get("http://" + endpoint + "/health")
		if err != nil {
			return false
		}
		return answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
	})
	return &Server{Endpoint: endpoint, Directory: directory}
}

// URL is the setting blob_url with a prefix in the bucket.
func (s *Server) URL(prefix string) string {
	return "s3://" + Bucket + "/" + prefix + "?" + url.Values{"endpoint": {"http://" + s.Endpoint}}.Encode()
}
