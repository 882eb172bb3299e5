package e2e

import (
	"strings"
	"testing"

	"inbox/engine/store/storetest"
)

// TestOutageOfTheDatabaseIsAFewLines: PostgreSQL is killed under load and comes back. The log says when that began and when it ended, and nothing for
// each message and job that met it.
func TestOutageOfTheDatabaseIsAFewLines(t *testing.T) {
	cluster := storetest.NewCluster(t)
	const name = "outage_of_the_database" // files are beside the data of servers, under the name of their database
	cluster.Ask("CREATE DATABASE " + name)
	database := strings.Replace(storetest.URL(cluster), "/postgres?", "/"+name+"?", 1)
	removeFilesOf(t, database)
	w := newStorm(t, database)
	const senders = 30
	w.begin(senders)
	eventually(t, "the server takes messages", func() bool { return w.acknowledged.Load() > 10*senders })
	before := w.s.Log()

	cluster.Stop()
	refused := w.retries.Load()
	eventually(t, "each sender was refused 100 times", func() bool { return w.retries.Load() > refused+100*senders })
	cluster.Start()
	eventually(t, "the log says that the database is back", func() bool { return strings.Contains(w.s.Log(), "the database is available again") })
	w.finish()
	w.judge()

	lines := strings.Split(strings.TrimSpace(strings.TrimPrefix(w.s.Log(), before)), "\n")
	// On a machine without a processor to spare, statements time out before the kill, and the line of the begin is among those before.
	if len(lines) > 5 || !strings.Contains(w.s.Log(), "the database is not available") {
		t.Errorf("the log has %d lines for an outage in which %d attempts failed, want one for its begin and one for its end:\n%s", len(lines), w.retries.Load()-refused, strings.Join(lines[:min(len(lines), 20)], "\n"))
	}
}
