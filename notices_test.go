package inbox_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"inbox/exchange"
	"inbox/inboxtest"
	"inbox/internal/await"
	"inbox/operator"
)

// TestNodeTellsOfItself: the disk of a real server is full by its settings, and its mail listener is another program: both last, and the
// digest has nothing of them. A reload changes who is told.
func TestNodeTellsOfItself(t *testing.T) {
	t.Parallel()
	got := make(chan string, 16)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.URL.Path
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(hook.Close)
	file := filepath.Join(t.TempDir(), "inbox.toml")
	write := func(lines string) {
		t.Helper()
		text := reloadable + "[limits]\nfree_disk = \"1000000GiB\"\n[operator]\nnotify_secret = \"0123456789abcdef\"\n" + lines
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	write("")
	s := inboxtest.New(t, file, "INBOX_SMTP_LISTEN=127.0.0.1:0")
	stranger := listen(t)
	go func() {
		for {
			conn, err := stranger.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("554 go away\r\n"))
			_ = conn.Close()
		}
	}()
	s.Inherit(oneSocket{"smtp", elsewhere{listen(t), stranger.Addr()}})
	s.Serve()

	admin, _, err := s.Operator().Tokens.CreateAdmin(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	var view struct{ Pending operator.PendingNotices }
	await.Until(t, "disk and probe are noted", func() bool {
		status, _, body := s.Read("GET", "/api/v1/notices", admin, "")
		if status != http.StatusOK {
			t.Fatalf("%d %s", status, body)
		}
		if err := json.Unmarshal([]byte(body), &view); err != nil {
			t.Fatal(err)
		}
		return len(view.Pending.Lasting) == 2
	})
	for i, want := range []struct{ kind, subject, reason string }{
		{exchange.NoticeDisk, "full, ", "make some where data_dir is"}, {exchange.NoticeProbe, " ", "554 go away"},
	} {
		one := view.Pending.Lasting[i]
		if one.Kind != want.kind || !strings.Contains(one.Subject, want.subject) || !strings.Contains(one.Reason, want.reason) || one.State != exchange.ConditionOpen {
			t.Errorf("what lasts is %+v, want %v", one, want)
		}
	}

	if status, _, body := s.Read("POST", "/api/v1/notices/test", admin, ""); status != http.StatusConflict {
		t.Errorf("without an address a test is answered %d %s", status, body)
	}
	for _, path := range []string{"/first", "/second"} {
		write("notify = [\"" + hook.URL + path + "\"]\n")
		if answer, err := s.Reload(t.Context()); err != nil || strings.Join(answer.Changed, " ") != "operator.notify" {
			t.Fatalf("changed %v, %v", answer.Changed, err)
		}
		var told exchange.Notice
		if status, _, body := s.Read("POST", "/api/v1/notices/test", admin, ""); status != http.StatusOK || json.Unmarshal([]byte(body), &told) != nil {
			t.Fatalf("%d %s", status, body)
		}
		if told, err = s.Operator().Notices.Outcome(t.Context(), told.ID, time.Minute); err != nil || !operator.Reached(told.Ways[0]) {
			t.Fatalf("%+v %v", told, err)
		}
		if at := await.Receive(t, got, "the webhook is called"); at != path {
			t.Errorf("%s was called, want %s", at, path)
		}
	}
}
