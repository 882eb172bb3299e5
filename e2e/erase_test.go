package e2e

import (
	"bytes"
	"compress/gzip"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/engine/store"
	"inbox/operator"
)

const (
	marker      = "zyxmarkerwvu" // what the person says everywhere
	otherMarker = "abcothersdef" // what another person says in the same thread and stays
)

// markedCell is a place in the database that has a text.
type markedCell struct{ table, column string }

// cellsWith looks through all columns of all tables of the server's database.
func cellsWith(t *testing.T, s *server, text string) (found []markedCell) {
	t.Helper()
	database, err := s.Writable()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = database.Close() }()
	query := `SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'`
	if s.Settings.Database != "" {
		query = `SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'`
	}
	tables, err := s.Column(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		found = append(found, cellsOf(t, database, table, text)...)
	}
	return found
}

func cellsOf(t *testing.T, database *sql.DB, table, text string) (found []markedCell) {
	t.Helper()
	rows, err := database.QueryContext(t.Context(), `SELECT * FROM "`+table+`"`) //nolint:unqueryvet // every column is looked at
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		values, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		for i, value := range values {
			if raw, is := value.([]byte); is {
				value = string(raw)
			}
			if strings.Contains(strings.ToLower(fmt.Sprint(value)), text) {
				found = append(found, markedCell{table, columns[i]})
			}
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}

// filesWith looks through the bytes of all files below directories, also of those that are gzipped.
func filesWith(t *testing.T, text string, directories ...string) (found []string) {
	t.Helper()
	for _, directory := range directories {
		err := filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if reader, err := gzip.NewReader(bytes.NewReader(content)); err == nil {
				if plain, err := io.ReadAll(reader); err == nil {
					content = append(content, plain...)
				}
			}
			if bytes.Contains(bytes.ToLower(content), []byte(text)) {
				found = append(found, path)
			}
			return nil
		})
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	return found
}

// dataOf are the directories in which a server keeps everything.
func dataOf(s *server) []string {
	list := []string{filepath.Join(s.Directory, "data")}
	if files, is := strings.CutPrefix(s.Settings.Files, "file://"); is {
		list = append(list, files)
	}
	return list
}

// eventuallyLong is eventually for what waits on purpose: files are deleted a minute after they were last put.
func eventuallyLong(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(4 * time.Minute); !condition(); <-ticker.C {
		if time.Now().After(deadline) {
			t.Fatalf("did not happen within 4 minutes: %s", what)
		}
	}
}

// TestPersonIsErased: a person writes by mail with a file, to the operator, on the fediverse and by A2A, is answered, exported and erased, while the
// server is killed again and again. Nothing that the person said is left in the tables, in the files of the database, among stored files, in the log or
// in a new backup; another person in the same thread keeps everything; the fediverse heard that the answer is taken back. A server of a backup
// from before erases them again.
func TestPersonIsErased(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		files := filepath.Join(t.TempDir(), "files")
		p := startPostWith(t, database, "", func(s *instance.Settings) { s.Files = "file://" + files })
		deletions := make(chan string, 16)
		arrivals := make(chan load.Arrival, 64)
		var once sync.Mutex
		community := &fediverse{t: t, arrivals: arrivals, Community: newCommunity(t, 2, func(a load.Arrival) {
			once.Lock()
			defer once.Unlock()
			if a.Type == "Delete" {
				deletions <- string(a.Body)
				return
			}
			arrivals <- a
		})}

		content := bytes.Repeat([]byte("a file with "+marker+"\n"), 20_000) // large enough for the blob store
		p.send("ann@sender.test", "echo@inbox.test", p.mailWith(t, "file@sender.test", "echo@inbox.test", content))
		p.sendAs("echo", "words@sender.test", "By mail: "+marker)
		p.outbox.await(t, "words@sender.test")
		p.outbox.await(t, "file@sender.test")
		p.bring(p.sender, "ann@sender.test", load.Mail{To: "postmaster@inbox.test", MessageID: "complaint@sender.test", Subject: "To the operator", Body: "A complaint: " + marker})
		eventually(t, "the mail to the operator", func() bool { return len(p.kept("search", marker)) == 1 })
		mention, _ := community.ask(p.server, "echo", 0, "On the fediverse: "+marker)
		community.ask(p.server, "echo", 1, "Another person: "+otherMarker)
		ways := &a2aWays{server: p.server}
		token := p.peerToken("ann-program")
		body := fmt.Sprintf(`{"message":{"messageId":"m-1","role":"ROLE_USER","parts":[{"text":"By A2A: %s"}]}}`, marker)
		if status, answer := ways.post("/a2a/echo/rest/message:send", token, body); status != http.StatusOK || !strings.Contains(answer, marker) {
			t.Fatalf("%d %s", status, answer)
		}
		p.awaitIdle()
		if len(cellsWith(t, p.server, marker)) == 0 || len(filesWith(t, marker, files)) == 0 {
			t.Fatal("the marker is nowhere to begin with")
		}
		if database == "" && len(filesWith(t, marker, filepath.Join(p.Directory, "data"))) == 0 {
			t.Fatal("the marker is not in the files of the database to begin with")
		}

		backups := t.TempDir()
		before, after := filepath.Join(backups, "before"), filepath.Join(backups, "after")
		p.inbox("backup", before)
		if len(filesWith(t, marker, before)) < 2 {
			t.Fatal("the marker is not in a backup to begin with")
		}

		principals, err := p.Column(t.Context(), `SELECT DISTINCT principal FROM turns WHERE received_via = 'a2a'`)
		if err != nil || len(principals) != 1 {
			t.Fatalf("%v, %v", principals, err)
		}
		person := community.Persons[0].ID
		for name, want := range map[string]string{"ann@sender.test": "By mail: " + marker, person: "On the fediverse: " + marker, principals[0]: "By A2A: " + marker} {
			out := filepath.Join(t.TempDir(), "export")
			p.inbox("export", name, "--out", out)
			pages, err := filepath.Glob(filepath.Join(out, "*", "index.html"))
			if err != nil || len(pages) != 1 {
				t.Fatalf("the export has the pages %v of domains, %v", pages, err)
			}
			page, err := os.ReadFile(pages[0])
			if err != nil || !strings.Contains(string(page), want) || len(filesWith(t, otherMarker, out)) != 0 {
				t.Errorf("the export of %s: %v\n%s", name, err, page)
			}
			if strings.Contains(name, "@sender") && len(filesWith(t, "a file with "+marker, filepath.Join(filepath.Dir(pages[0]), "files"))) != 1 {
				t.Error("the export has not the file of the mail")
			}
		}

		for _, name := range []string{"ann@sender.test", person, principals[0]} {
			var previews, begun operator.OfPerson
			if err := json.Unmarshal([]byte(p.inbox("erase", name, "--dry-run", "--json")), &previews); err != nil || len(previews.Items) != 1 || previews.Items[0].Preview.Messages == 0 {
				t.Fatalf("%+v, %v", previews, err)
			}
			preview := previews.Items[0].Preview
			if err := json.Unmarshal([]byte(p.inbox("erase", name, "--yes", "--json", "--wait", "1ms")), &begun); err != nil || len(begun.Items) != 1 {
				t.Fatalf("%+v, %v", begun, err)
			}
			p.killed() // whatever stage it is in
			var receipt operator.Receipt
			eventuallyLong(t, "the erasure of "+name, func() bool {
				if err := json.Unmarshal([]byte(p.inbox("erase", "--receipt", begun.Items[0].Receipt.ID, "--json")), &receipt); err != nil {
					t.Fatal(err)
				}
				return receipt.Stage == "done"
			})
			if name == "ann@sender.test" && receipt.Counts["mails to the operator"] != 1 {
				t.Errorf("receipt %+v: the mail to the operator", receipt)
			}
			if receipt.Counts["messages"] != int64(preview.Messages) {
				t.Errorf("receipt %+v; the preview said %d messages", receipt, preview.Messages)
			}
		}

		select {
		case deletion := <-deletions:
			if !strings.Contains(deletion, "Tombstone") || !strings.Contains(deletion, "/o/") {
				t.Errorf("the fediverse got %s", deletion)
			}
		default:
			t.Errorf("the fediverse got no Delete for the answer to %s", mention.NoteID)
		}
		p.inbox("backup", after)
		for _, text := range []string{marker, "ann@sender.test", strings.ToLower(strings.TrimPrefix(person, "http://"))} {
			if cells := cellsWith(t, p.server, text); len(cells) != 0 {
				t.Errorf("%q is in %v", text, cells)
			}
			if found := filesWith(t, text, append(dataOf(p.server), after)...); len(found) != 0 {
				t.Errorf("%q is in the files %v", text, found)
			}
		}
		if strings.Contains(p.Log(), marker) {
			t.Error("the log has the words of a message")
		}
		if len(cellsWith(t, p.server, otherMarker)) == 0 {
			t.Error("another person lost what they said")
		}

		p.sendAs("echo", "words@sender.test", "once more")
		p.outbox.await(t, "words@sender.test")
		if output := p.inbox("usage"); !strings.Contains(output, "echo") || !strings.Contains(output, "files beside the database") || strings.Contains(output, "free for the next rows") && database != "" {
			t.Errorf("usage says %s", output)
		}

		p.inbox("erase", "--list", "--receipts", filepath.Join(before, operator.ReceiptsFile))
		p.stop()
		erasedAgain(t, restored(t, p.server, before, ""))
	})
}

// erasedAgain waits until a server of an older backup has erased once more, as far as its rows go: files that were put just now stay for a minute.
func erasedAgain(t *testing.T, next *server) {
	t.Helper()
	eventually(t, "the rows of three persons are erased again", func() bool {
		var receipts []operator.DomainReceipt
		if err := decodeList(next.inbox("erase", "--list", "--json"), &receipts); err != nil || len(receipts) != 3 {
			t.Fatalf("%+v, %v", receipts, err)
		}
		return !slices.ContainsFunc(receipts, func(one operator.DomainReceipt) bool {
			return !slices.Contains([]string{store.EraseContents, store.EraseClean, store.EraseDone}, one.Stage)
		})
	})
	if cells := cellsWith(t, next, marker); len(cells) != 0 {
		t.Errorf("the restored server has the marker in %v", cells)
	}
	if len(cellsWith(t, next, otherMarker)) == 0 {
		t.Error("the restored server has not what another person said")
	}
}
