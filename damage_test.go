package inbox_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"inbox/engine/store"
	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/inboxtest"
	"inbox/internal/await"
)

// TestDamagedDatabaseIsNotReady: a server whose table of turns is damaged, before it starts or while it runs, says so on /readyz and by a
// notice, although nothing else of it fails. It was ready, and refused every message.
func TestDamagedDatabaseIsNotReady(t *testing.T) {
	t.Parallel()
	for name, running := range map[string]bool{"before the start": false, "while the server runs": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := make(chan string, 64)
			hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				got <- string(body)
			}))
			t.Cleanup(hook.Close)

			directory := t.TempDir()
			storetest.Fill(t, directory, func(directory string) (io.Closer, error) {
				return store.Open(t.Context(), store.Options{DataDir: directory})
			})
			damage := func() { storetest.Damage(t, filepath.Join(directory, store.File), "turns") }
			if !running {
				damage()
			}
			s := inboxtest.Start(t, "INBOX_DATA_DIR="+directory, "INBOX_OPERATOR_NOTIFY="+hook.URL+"/hook", "INBOX_OPERATOR_NOTIFY_SECRET=0123456789abcdef")
			ready := func() (int, string) {
				status, _, body := s.Read("GET", "/readyz", "", "")
				return status, body
			}
			if running {
				if status, body := ready(); status != http.StatusOK {
					t.Fatalf("before: %d %s", status, body)
				}
				damage()
			}

			await.Until(t, "the server is not ready", func() bool {
				status, body := ready()
				return status == http.StatusServiceUnavailable && strings.Contains(body, `"database":"the database is damaged"`) &&
					strings.Contains(body, `"database pages":"the database is damaged"`)
			})
			for {
				body := await.Receive(t, got, "a notice of the damage")
				if strings.Contains(body, `"kind":"`+exchange.NoticeDatabase+`"`) && strings.Contains(body, "inbox restore") {
					break
				}
			}
			if status, body := ready(); status != http.StatusServiceUnavailable {
				t.Errorf("after other tables were written: %d %s", status, body)
			}
		})
	}
}
