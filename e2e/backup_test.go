package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inbox"
	"inbox/e2e/instance"
	"inbox/internal/blob/blobtest"
)

// drillSenders write while a backup runs, and while a server is moved.
const drillSenders = 45

// TestBackupIsDrilled: a backup is written while peers of all protocols write, the server is killed, and another one is made of the
// backup in an empty place, on the same database or the other one, at the same addresses. Every message that was acknowledged before the
// moment of the backup has its reply, and none has two with different ids: who answered it twice used the same one. What the old server
// took after that moment is lost with it, and peers repeat what it had not taken.
func TestBackupIsDrilled(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, from, to string }{
		{"sqlite to sqlite", "sqlite", "sqlite"}, {"sqlite to postgres", "sqlite", "postgres"}, {"postgres to sqlite", "postgres", "sqlite"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newStorm(t, databaseOf(t, c.from))
			w.large = true
			w.begin(drillSenders)
			w.progress()

			directory := filepath.Join(t.TempDir(), "backups")
			w.s.inbox("backup", directory)
			w.progress()
			before := w.ledger.Taken() // before the moment of the second backup
			w.s.inbox("backup", directory, "--keep", "1", "--json")
			w.progress()
			if err := w.s.Kill(); err != nil {
				t.Fatal(err)
			}
			w.era.Add(1)

			old := w.s
			next := restored(t, old, directory, databaseOf(t, c.to))
			w.progress()
			w.finish()
			w.s = next
			w.judgeRestored(before)
		})
	}
}

func databaseOf(t *testing.T, kind string) string {
	if kind == "postgres" {
		return emptyPostgres(t)
	}
	return ""
}

// restored makes and starts a server of the newest backup in an empty directory, at the addresses of the old one.
func restored(t *testing.T, old *server, directory, database string) *server {
	t.Helper()
	settings := old.Settings
	settings.Database = database
	next := &server{Instance: &instance.Instance{Settings: settings, Directory: t.TempDir(), Binary: old.Binary}, t: t}

	if said := next.inbox("verify", directory); !strings.Contains(said, "is intact") {
		t.Fatalf("the backup is not intact: %s", said)
	}
	arguments := []string{"restore", directory, "--json", "--data-dir", filepath.Join(next.Directory, "data"), "--database-url", "sqlite"}
	if database != "" {
		arguments[len(arguments)-1] = database
	}
	t.Logf("restored: %s", next.inbox(arguments...))
	if _, err := next.Run(t.Context(), "restore", directory); err == nil {
		t.Error("a second restore puts rows into a database that is in use")
	}

	var reports []struct {
		Uncertain []struct{ Kind, ID string }
	}
	if err := decodeList(next.inbox("restore", "--report", "--json"), &reports); err != nil || len(reports) != 1 {
		t.Fatalf("%d reports, %v", len(reports), err)
	}
	next.start()
	t.Cleanup(func() {
		if next.Alive() {
			next.stop()
		}
		if t.Failed() {
			t.Logf("log of the restored server:\n%s", tail(next.Log(), 16<<10))
		}
	})
	return next
}

// judgeRestored compares what was acknowledged before the moment of a backup, and by the restored server, with what came back. What the old
// server took between that moment and its end may have no reply, and never two.
func (w *storm) judgeRestored(before map[string]bool) {
	t := w.t
	t.Helper()
	if !w.drained(3 * patience) {
		t.Errorf("the server still has work: %v", w.s.rows())
	}

	lost := func(id string) bool { return w.eras[id] == 0 && !before[id] }
	for id, taskID := range w.tasks {
		if !lost(id) {
			w.heard(id, w.awaitTask(taskID))
		}
	}
	complete, excused, repeats := 0, 0, 0
	for id := range w.ledger.Taken() {
		replies, again := w.ledger.Replies(id)
		repeats += again
		switch {
		case replies > 1:
			t.Errorf("%s has %d replies with different ids", id, replies)
		case replies == 0 && !lost(id):
			t.Errorf("%s was acknowledged and has no reply; before the backup: %t", id, before[id])
		case replies == 0:
			excused++
		default:
			complete++
		}
	}
	total := w.ledger.Count("")
	t.Logf("%d acknowledged before the backup, %d replies, %d recognisable repeats, %d without reply that only the old server knew", len(before), complete, repeats, excused)
	if len(before) == 0 || total.Unasked > 0 || total.Doubled > 0 {
		t.Errorf("%s: %v", total, total.Examples)
	}
	for _, refusal := range w.refusals {
		t.Error(refusal)
	}
}

// TestServerIsMovedUnderLoad: a server on SQLite is moved to PostgreSQL while peers of all protocols write. Everything that was ever
// acknowledged has exactly one reply, the old database is refused, and the configuration names the new one.
func TestServerIsMovedUnderLoad(t *testing.T) {
	t.Parallel()
	w := newStorm(t, "")
	w.large = true
	w.begin(drillSenders)
	w.progress()

	database := emptyPostgres(t)
	secret := filepath.Join(t.TempDir(), "database-url") // not in the list of processes
	if err := os.WriteFile(secret, []byte(database+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	said := w.s.inbox("migrate", "--to-file", secret, "--json")
	t.Logf("moved: %s", said)
	if w.s.Alive() {
		t.Error("the old server still runs")
	}
	configuration, err := os.ReadFile(w.s.ConfigFile())
	if err != nil || !strings.Contains(string(configuration), database) {
		t.Errorf("the configuration does not name the new database: %v\n%s", err, configuration)
	}
	if _, err := w.s.Run(t.Context(), "migrate", "--to", database); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("it is moved once more: %v", err)
	}
	onOld := &instance.Instance{Settings: w.s.Settings, Directory: t.TempDir(), Binary: w.s.Binary}
	text := strings.Replace(string(configuration), database, "sqlite", 1)
	if err := os.WriteFile(onOld.ConfigFile(), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := onOld.Run(ctx, "serve"); err == nil || !strings.Contains(err.Error(), "was moved to") {
		t.Errorf("a start on the old database: %v", err)
	}

	w.s.start()
	w.progress()
	w.finish()
	w.s.Settings.Database = database // its rows are there
	w.judge()
	w.allAnswered(int(w.acknowledged.Load()))
	if _, found := w.s.rows()["goose_db_version"]; !found || !slices.Contains(strings.Fields(w.s.inbox("ready")), "ready") {
		t.Error("the server is not on its new database")
	}
}

// backupDomains are the second domain of a server.
const backupDomains = `
[[domains]]
name = "second.test"
public_url = "http://second.test"

[[agents]]
name = "helper"
kind = "echo"
domain = "second.test"
`

// bucketKeys are written where files are in a bucket, and nowhere else.
var bucketKeys = fmt.Sprintf("\n[blob]\naccess_key = %q\nsecret_key = %q\n", blobtest.AccessKey, blobtest.SecretKey)

// restoredAgents are the agents of both domains.
var restoredAgents = map[string]string{"first.test": "echo", "second.test": "helper"}

// TestBackupOfSeveralDomains: a server of two domains with files in a bucket is made again on the other database with files in a directory, and the other
// way round. Each domain has its own keys, tokens, messages and files again, knows what it was told before, and answers.
func TestBackupOfSeveralDomains(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, from, to string
		bucket         bool // files are in the bucket first, and in a directory afterwards
	}{{"sqlite to postgres", "sqlite", "postgres", true}, {"postgres to sqlite", "postgres", "sqlite", false}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			bucket, files := blobtest.StartServer(t), "file://"+filepath.Join(t.TempDir(), "files")
			inBucket := bucket.URL("of/inbox")
			settings := instance.Settings{Database: databaseOf(t, c.from), Domain: "first.test", Files: files, More: backupDomains}
			other := inBucket
			if c.bucket {
				settings.Files, settings.More, other = inBucket, backupDomains+bucketKeys, files
			}
			s := start(t, settings)

			large := strings.Repeat("a large message ", 6000) // its original is a file
			tokens, tasks := map[string]string{}, map[string]string{}
			for domain, agent := range restoredAgents {
				tokens[domain] = lastLine(s.inbox("tokens", "create", "--domain", domain, "--agent", agent, "peer"))
				tasks[domain] = s.asked(domain, tokens[domain], "before", large)
			}
			public := s.published()
			directory := filepath.Join(t.TempDir(), "backups")
			s.inbox("backup", directory)
			if said := s.inbox("verify", directory); !strings.Contains(said, "is intact") {
				t.Fatal(said)
			}
			s.stop()

			next := elsewhere(t, s, databaseOf(t, c.to), other)
			var report inbox.RestoreReport
			if err := json.Unmarshal([]byte(next.inbox("restore", directory, "--json")), &report); err != nil || len(report.Domains) != 2 {
				t.Fatalf("%+v, %v", report, err)
			}
			for _, one := range report.Domains {
				if one.Contents == 0 {
					t.Errorf("no file of %s was restored", one.Domain)
				}
			}
			next.start()
			t.Cleanup(next.stop)

			if diff := cmp.Diff(public, next.published()); diff != "" {
				t.Errorf("the domains publish something else (-before +after):\n%s", diff)
			}
			for domain := range restoredAgents {
				if again := next.asked(domain, tokens[domain], "before", large); again != tasks[domain] {
					t.Errorf("%s does not know the message of before: task %s, was %s", domain, again, tasks[domain])
				}
				next.asked(domain, tokens[domain], "after", "hello after the restore")
			}
		})
	}
}

// elsewhere is a server with the configuration of another one, at its addresses, with another database and another place of files.
func elsewhere(t *testing.T, old *server, database, files string) *server {
	t.Helper()
	text, err := os.ReadFile(old.ConfigFile())
	if err != nil {
		t.Fatal(err)
	}
	settings := old.Settings
	settings.Database, settings.Files = database, files
	next := &server{Instance: &instance.Instance{Settings: settings, Directory: t.TempDir(), Binary: old.Binary}, t: t}
	moved := regexp.MustCompile(`(?m)^(data_dir|database_url|secret_key_file|blob_url) = .*\n`).ReplaceAllString(string(text), "")
	moved = strings.Replace(moved, bucketKeys, "", 1)
	if strings.HasPrefix(files, "s3://") {
		moved += bucketKeys
	}
	if database == "" {
		database = "sqlite"
	}
	moved = fmt.Sprintf("data_dir = %q\ndatabase_url = %q\nblob_url = %q\n", filepath.Join(next.Directory, "data"), database, files) + moved
	if err := os.WriteFile(next.ConfigFile(), []byte(moved), 0o600); err != nil {
		t.Fatal(err)
	}
	return next
}

// published are the keys and records of both domains, as others read them.
func (s *server) published() map[string]string {
	s.t.Helper()
	found := map[string]string{"records": s.inbox("dns", "--json")}
	for domain, agent := range restoredAgents {
		for _, path := range []string{"/agents/" + agent, "/.well-known/jwks.json", "/.well-known/webfinger?resource=acct:" + agent + "@" + domain} {
			status, body := s.ofDomain(domain, http.MethodGet, path, "", "")
			if status != http.StatusOK {
				s.t.Fatalf("%s of %s: %d %s", path, domain, status, body)
			}
			found[domain+path] = body
		}
	}
	return found
}

// ofDomain makes a request to a domain of the server.
func (s *server) ofDomain(domain, method, path, token, body string) (status int, answer string) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, "http://"+s.Settings.HTTP+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	request.Host = domain
	if domain == s.Settings.Domain {
		request.Host = s.Settings.HTTP
	}
	request.Header.Set("Accept", "application/activity+json, application/json;q=0.9")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("A2A-Version", "1.0")
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return response.StatusCode, string(content)
}

// asked sends a message to the agent of a domain, which has to be answered, and returns the id of its task.
func (s *server) asked(domain, token, id, text string) string {
	s.t.Helper()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":%q,"role":"ROLE_USER","parts":[{"text":%q}]}}}`, id, text)
	status, answer := s.ofDomain(domain, http.MethodPost, "/a2a/"+restoredAgents[domain], token, body)
	var result struct {
		Result struct {
			Task struct {
				ID     string
				Status struct{ State string }
			}
		}
	}
	if err := json.Unmarshal([]byte(answer), &result); err != nil || status != http.StatusOK || result.Result.Task.Status.State != completed {
		s.t.Fatalf("%s answers %d %s, %v", domain, status, tail(answer, 500), err)
	}
	return result.Result.Task.ID
}
