package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/engine/notice"
	"inbox/exchange"
	"inbox/internal/webhooksignature"
)

const noticeSecret = "the secret of the operator's webhook"

// hearing is an operator with a mailbox, an account of the fediverse and a webhook. While its gate is shut nothing is answered.
type hearing struct {
	t    *testing.T
	mu   sync.Mutex
	gate chan struct{}
	// got are the ids under which a recipient recognises a repeat, with what came, by way.
	got map[string][]arrivedNotice
}

type arrivedNotice struct{ id, text string }

func (h *hearing) heard(way, id, text string) {
	h.mu.Lock()
	h.got[way] = append(h.got[way], arrivedNotice{id, text})
	gate := h.gate
	h.mu.Unlock()
	if gate != nil {
		<-gate
	}
}

// shut lets the operator take everything and answer nothing; the returned function ends that.
func (h *hearing) shut() (open func()) {
	gate := make(chan struct{})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gate = gate
	open = sync.OnceFunc(func() {
		h.mu.Lock()
		h.gate = nil
		h.mu.Unlock()
		close(gate)
	})
	h.t.Cleanup(open)
	return open
}

// of returns what came with a word in it, by way: how often each id came.
func (h *hearing) of(word string) map[string]map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	found := map[string]map[string]int{}
	for way, all := range h.got {
		for _, one := range all {
			if !strings.Contains(one.text, word) {
				continue
			}
			if found[way] == nil {
				found[way] = map[string]int{}
			}
			found[way][one.id]++
		}
	}
	return found
}

// everywhere waits until something with a word came by all three ways, each so often.
func (h *hearing) everywhere(word string, times int) {
	h.t.Helper()
	eventually(h.t, fmt.Sprintf("%q came by three ways %d times", word, times), func() bool {
		found := h.of(word)
		for _, way := range []string{"mail", "fediverse", "webhook"} {
			sum := 0
			for _, count := range found[way] {
				sum += count
			}
			if sum < times {
				return false
			}
		}
		return true
	})
}

// once demands that all that came with a word is one message for a recipient, whatever the number of copies.
func (h *hearing) once(word string) {
	h.t.Helper()
	for way, ids := range h.of(word) {
		if len(ids) != 1 {
			h.t.Errorf("%q by %s came as %v; want one id", word, way, ids)
		}
	}
}

func (h *hearing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if !webhooksignature.Verify(noticeSecret, body, r.Header.Get(webhooksignature.Header), webhooksignature.Form{}) {
		h.t.Errorf("the signature of the webhook is not good: %s", body)
	}
	h.heard("webhook", r.Header.Get("Idempotency-Key"), string(body))
	w.WriteHeader(http.StatusNoContent)
}

// startHearing starts a server whose agent fails for good, and an operator who is told.
func startHearing(t *testing.T, database string) (*post, *hearing) {
	h := &hearing{t: t, got: map[string][]arrivedNotice{}}
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) }))
	t.Cleanup(agent.Close)
	webhook := httptest.NewServer(h)
	t.Cleanup(webhook.Close)
	community := newCommunity(t, 1, func(a load.Arrival) { h.heard("fediverse", a.ID, string(a.Body)) })
	sink, err := load.NewSink("127.0.0.1:0", func(m load.Received) {
		if strings.Contains(strings.Join(m.To, " "), "me@elsewhere.test") {
			h.heard("mail", m.Field("Message-ID"), m.Header.Get("Subject")+"\n"+plain(m.Raw))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sink.Close)

	table := fmt.Sprintf("[[agents]]\nname = \"shop\"\nkind = \"webhook\"\n[agents.webhook]\nurl = %q\nsecret = %q\n", agent.URL, webhookSecret)
	account := "@" + community.Persons[0].Name + "@" + strings.TrimPrefix(community.Origin, "http://")
	p := startPostWith(t, database, table, func(s *instance.Settings) {
		s.Smarthost = sink.URL()
		s.More = fmt.Sprintf("[operator]\nnotify = [\"mailto:me@elsewhere.test\", %q, %q]\nnotify_secret = %q\n", account, webhook.URL+"/hook", noticeSecret)
	})
	return p, h
}

// TestOperatorIsToldWhateverDies: a burst of failures is told by mail, on the fediverse and to a webhook with a good signature. The server
// is killed between the failures and the notice, and while all three recipients have it and have not said so: each has one message. The
// digest has the numbers of the rows.
func TestOperatorIsToldWhateverDies(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		p, h := startHearing(t, database)
		if said := p.inbox("notices", "test"); strings.Count(said, "delivered") != 2 || !strings.Contains(said, "sent") || strings.Contains(said, "/hook") {
			t.Errorf("the test says:\n%s", said)
		}
		h.everywhere("a test", 1)

		open := h.shut()
		for i := range notice.Burst {
			id := fmt.Sprintf("m%d@sender.test", i)
			p.bring(p.sender, "ann@sender.test", load.Mail{To: "shop@inbox.test", MessageID: id, Subject: "Hello", Body: "hello"})
		}
		failed := func() string {
			count, err := p.Column(t.Context(), "SELECT CAST(COUNT(*) AS TEXT) FROM turns WHERE state = 'failed'")
			if err != nil {
				t.Fatal(err)
			}
			return count[0]
		}
		eventually(t, "all messages failed", func() bool { return failed() == strconv.Itoa(notice.Burst) })
		p.killed() // the notice is made, or is not

		const burst = "Many turns of shop fail"
		h.everywhere(burst, 1)
		if err := p.Kill(); err != nil { // they have it, and the server does not know
			t.Fatal(err)
		}
		open()
		p.start()
		h.everywhere(burst, 2)
		eventually(t, "the server knows that all have it", func() bool { return strings.Count(p.inbox("notices", "list"), "delivered") == 4 })
		h.once(burst)

		db, err := p.Writable()
		if err != nil {
			t.Fatal(err)
		}
		day := fmt.Sprint(25 * time.Hour.Microseconds())
		if _, err := db.ExecContext(t.Context(), "UPDATE notice_state SET digest_at = digest_at - "+day); err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		digest := failed() + " turns failed"
		h.everywhere(digest, 1)
		h.once(digest)
		for way, ids := range h.of("a test") {
			if len(ids) != 1 {
				t.Errorf("the test by %s came as %v", way, ids)
			}
		}

		var view struct {
			exchange.List[exchange.Notice]
			Pending struct{ Counted []exchange.NoticeTally }
		}
		if err := json.Unmarshal([]byte(p.inbox("notices", "list", "--json")), &view); err != nil {
			t.Fatal(err)
		}
		if len(view.Items) != 3 || view.Items[0].Phase != exchange.NoticeDigest || len(view.Items[0].Ways) != 3 || len(view.Pending.Counted) != 0 {
			t.Errorf("the list has %+v", view)
		}
		for _, found := range []string{"notices to mailto:me@elsewhere.test", "notices to @person0@", "notices to http://127.0.0.1:"} {
			if said, _ := p.Run(t.Context(), "doctor"); !strings.Contains(said, found) {
				t.Errorf("the doctor does not look at %s:\n%s", found, said)
			}
		}
	})
}
