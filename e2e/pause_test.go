package e2e

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"inbox/e2e/load"
)

// readiness is what /readyz says.
func (s *server) readiness() (int, string) {
	s.t.Helper()
	response, err := http.Get(s.URL() + "/readyz")
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// TestPauseOfAll: messages are accepted and wait, also over a restart, until all agents work again.
func TestPauseOfAll(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		p := startPostWith(t, database, steady)
		peer := p.a2aPeer("echo", "ann")
		p.inbox("pause", "--all", "--reason", "the model is wrong")
		paused := func() bool {
			status, body := p.readiness()
			return status == http.StatusOK && strings.Contains(body, `"agents":"paused"`)
		}
		eventually(t, "the node is ready and says that its agents are paused", paused)
		if !strings.Contains(p.Log(), "all agents are paused") {
			t.Error("the log does not say that all agents are paused")
		}
		if list := p.inbox("agents", "list"); !strings.Contains(list, "all paused since") {
			t.Errorf("agents list says\n%s", list)
		}

		task, err := peer.Send(t.Context(), load.SendBody("waits", "are you there", true))
		if err != nil {
			t.Fatalf("a message is not accepted: %v", err)
		}
		if refusal := p.put(load.Mail{From: "ann@sender.test", To: "echo@inbox.test", MessageID: "waits@sender.test", Subject: "Hello", Body: "hello"}); refusal != "" {
			t.Fatalf("a mail is refused: %s", refusal)
		}

		p.stop()
		p.start()
		eventually(t, "the pause holds after a restart", paused)
		if now, err := peer.Get(t.Context(), task.ID); err != nil || now.Status.State == completed {
			t.Errorf("during the pause: %v %+v", err, now.Status)
		}
		if replies, _ := p.outbox.repliesTo("waits@sender.test"); len(replies) != 0 {
			t.Error("a mail was answered during the pause")
		}

		if status, _ := p.operatorCall(http.MethodDelete, "/api/v1/pause", ""); status != http.StatusNoContent {
			t.Errorf("the end of the pause is answered %d", status)
		}
		awaitTask(t, peer, task.ID, completed)
		p.outbox.await(t, "waits@sender.test")
		if _, err := p.Run(t.Context(), "resume", "--all"); err == nil || !strings.Contains(err.Error(), "not paused all together") {
			t.Errorf("a second end says: %v", err)
		}
	})
}
