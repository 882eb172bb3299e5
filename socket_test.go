package inbox_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"inbox/inboxtest"
	"inbox/internal/await"
)

// TestHTTPAtASocket: the server listens at a socket that a dead process left behind, asks itself there, and an operator tries an agent there.
func TestHTTPAtASocket(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	path := filepath.Join(directory, "http.sock")
	left, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	left.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := left.Close(); err != nil {
		t.Fatal(err)
	}

	server := inboxtest.New(t, "", "INBOX_HTTP_LISTEN=unix:"+path, "INBOX_AGENTS_0_NAME=echo", "INBOX_AGENTS_0_KIND=echo")
	server.Serve()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("%v %v", info, err)
	}

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
	read := func(path string) string {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost"+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	await.Until(t, "the server asks itself", func() bool { return strings.Contains(read("/readyz"), `"self-probe":"ok"`) })
	if tried, err := server.Operator().TryAgent(t.Context(), "echo", "hello", await.Patience); err != nil || !tried.Answered {
		t.Errorf("%+v %v", tried.Turn.State, err)
	}
}
