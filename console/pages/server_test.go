package pages_test

import (
	"net/http"
	"strings"
	"testing"

	"inbox/exchange"
	"inbox/inboxtest"
)

// TestServerPages: nodes, limits, backlog and certificates are there for every reader; a message is simulated by who may work.
func TestServerPages(t *testing.T) {
	t.Parallel()
	s := inboxtest.Start(t)
	reader, worker := overviewSignIn(s, exchange.RoleRead), overviewSignIn(s, exchange.RoleWork)
	reader.get("/console/settings/nodes", "Last sign", `data-label="Runs since"`)
	reader.get("/console/settings/limits", "limits.held_messages", "all senders together")
	reader.get("/console/settings/backlog", "By kind", "Destinations that wait longest")
	reader.get("/console/settings/certificates", "http.tls is off")
	if page := reader.get("/console/settings/dns"); strings.Contains(page, "Look them up") {
		t.Error("who only reads is offered a look at the DNS")
	}
	if status, _ := reader.post("/console/agents/echo/simulate", "way", "task", "text", "hello"); status != http.StatusForbidden {
		t.Errorf("who only reads writes to an agent: %d", status)
	}

	worker.get("/console/agents/echo", "Write as a stranger would", `value="task wrong-token"`)
	status, page := worker.post("/console/agents/echo/simulate", "way", "task", "from", "carol", "text", "Is anybody there?")
	if status != http.StatusOK || !strings.Contains(page, "simulated-carol wrote: answered.") || !strings.Contains(page, "Is anybody there?") {
		t.Errorf("%d: %s", status, page)
	}
	if status, page := worker.post("/console/agents/echo/simulate", "way", "task", "text", "hello", "fault", "task wrong-token"); status != http.StatusOK || !strings.Contains(page, "wrote: refused. The server said: ") {
		t.Errorf("%d: %s", status, page)
	}
	if status, _ := worker.post("/console/agents/echo/simulate", "way", "chat", "text", "hello", "fault", "task wrong-token"); status != http.StatusBadRequest {
		t.Errorf("a fault of another network: %d", status)
	}
}
