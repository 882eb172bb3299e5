package e2e

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/engine/store/storetest"
)

// TestServerBehindPgBouncer: with two domains and few sessions, a server behind PgBouncer in session mode answers everyone, and opens no more
// sessions than database.connections allows.
func TestServerBehindPgBouncer(t *testing.T) {
	t.Parallel()
	ranWith(t, "PgBouncer", debianPackage("pgbouncer"))
	const connections, domains, besides = 4, 2, 2 // besides: to listen and to look for the primary
	database := emptyPostgres(t)
	s := start(t, instance.Settings{
		Database: storetest.PgBouncer(t, database, "pool_mode = session", "default_pool_size = 100"), Domain: "a.test",
		Agents: "[[agents]]\nname = \"echo\"\nkind = \"echo\"\n[[agents]]\nname = \"other\"\nkind = \"echo\"\ndomain = \"b.test\"\n",
		More:   fmt.Sprintf("[[domains]]\nname = \"b.test\"\n[database]\nconnections = %d\n", connections),
	})
	peer := load.A2APeer{URL: s.URL() + "/a2a/echo", Token: s.peerToken("world"), Client: http.DefaultClient}

	var senders sync.WaitGroup
	for i := range 60 {
		senders.Go(func() {
			if _, err := peer.Send(t.Context(), load.SendBody(fmt.Sprint("pooled", i), "hello", true)); err != nil {
				t.Error(err)
			}
		})
	}
	senders.Wait()

	counted, err := s.Column(t.Context(), "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
	if err != nil {
		t.Fatal(err)
	}
	if open, err := strconv.Atoi(strings.Join(counted, "")); err != nil || open > domains*(connections+besides) {
		t.Errorf("the server has %v sessions, %v; want at most %d", counted, err, domains*(connections+besides))
	}
}
