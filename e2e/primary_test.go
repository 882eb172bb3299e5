package e2e

import (
	"database/sql"
	"fmt"
	"net/http"
	"testing"
	"time"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/engine/store"
	"inbox/engine/store/storetest"
)

// TestNoTurnOnAFormerPrimary: a standby is promoted while the former primary is gone, or frozen. Whatever its nodes accept afterwards is on
// the new primary alone, also when the former one takes writes again and a node restarts.
func TestNoTurnOnAFormerPrimary(t *testing.T) {
	for name, leave := range map[string]struct{ away, back func(*storetest.Cluster) }{
		"stopped and started": {(*storetest.Cluster).Stop, (*storetest.Cluster).Start},
		"frozen and woken":    {(*storetest.Cluster).Freeze, (*storetest.Cluster).Thaw},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			former := storetest.NewCluster(t)
			opened, err := store.Open(t.Context(), store.Options{URL: storetest.URL(former)})
			if err != nil {
				t.Fatal(err)
			}
			if err := opened.Close(); err != nil {
				t.Fatal(err)
			}
			standby := former.Standby()
			first := start(t, instance.Settings{Database: storetest.URL(former, standby), Files: "file://" + t.TempDir()})
			second := secondNode(t, first)
			token := first.peerToken("ann")

			sent := 0
			var acknowledged []string // of what was sent since the promotion
			accepts := func(node *server) bool {
				sent++
				id := fmt.Sprintf("message %d", sent)
				peer := load.A2APeer{URL: "http://" + node.Settings.HTTP + "/a2a/echo", Token: token, Client: &http.Client{Timeout: 5 * time.Second}}
				if _, err := peer.Send(t.Context(), load.SendBody(id, "hello", true)); err != nil {
					return false
				}
				acknowledged = append(acknowledged, id)
				return true
			}
			both := func(what string) {
				t.Helper()
				for range 10 {
					for _, node := range []*server{first, second} {
						eventually(t, "a message is accepted "+what, func() bool { return accepts(node) })
					}
				}
			}

			both("before")
			leave.away(former)
			standby.Promote()
			acknowledged = nil
			promoted := time.Now()
			both("by the new primary")
			t.Logf("both nodes accept messages %s after the promotion", time.Since(promoted).Round(time.Millisecond))
			leave.back(former)
			both("while the former primary is back")
			second.stop()
			second.start()
			both("after a restart")

			at := func(server *storetest.Cluster, id string) (rows int) {
				t.Helper()
				database, err := sql.Open("pgx", storetest.URL(server))
				if err != nil {
					t.Fatal(err)
				}
				defer database.Close()
				if err := database.QueryRowContext(t.Context(), "SELECT count(*) FROM turns WHERE native_id = $1", id).Scan(&rows); err != nil {
					t.Fatal(err)
				}
				return rows
			}
			for _, id := range acknowledged {
				if there, stale := at(standby, id), at(former, id); there != 1 || stale != 0 {
					t.Errorf("%s: %d turns on the new primary and %d on the former one", id, there, stale)
				}
			}
		})
	}
}
