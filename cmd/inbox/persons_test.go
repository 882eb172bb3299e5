package main

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"inbox"
	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/identity"
	"inbox/inboxtest"
	"inbox/internal/fault"
	"inbox/normalized"
	"inbox/operator"
)

const domainsFile = `domain = "first.example"
public_url = "http://first.example"

[[domains]]
name = "second.example"

[[domains]]
name = "third.example"

[[agents]]
name = "helper"
kind = "echo"

[[agents]]
name = "helper"
kind = "echo"
domain = "second.example"

[[agents]]
name = "helper"
kind = "echo"
domain = "third.example"
`

// domainsIn makes the directory of a server with three domains, and of a fourth that is no longer in its settings, the working directory.
func domainsIn(t *testing.T, database string) *inbox.Config {
	t.Helper()
	data := t.TempDir()
	t.Chdir(t.TempDir())
	for name, value := range map[string]string{
		"DATA_DIR": data, "DATABASE_URL": database, "LOG_LEVEL": "error", "HTTP_LISTEN": "127.0.0.1:0", "HTTP_TLS": "off", "SMTP_LISTEN": "off", "FEDERATION_ALLOW_PRIVATE": "true",
	} {
		t.Setenv("INBOX_"+name, value)
	}
	if err := os.WriteFile(defaultFile, []byte(domainsFile), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(data, "domains", "fourth.example"), 0o700); err != nil {
		t.Fatal(err)
	}
	config, err := inbox.LoadConfig(defaultFile, os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// storeOf opens the database of a domain beside the server.
func storeOf(t *testing.T, config *inbox.Config) *store.Store {
	t.Helper()
	if err := os.MkdirAll(config.DataDir, 0o700); err != nil {
		t.Fatal(err)
	}
	rows, err := store.Open(t.Context(), store.Options{URL: config.DatabaseURL.Reveal(), DataDir: config.DataDir})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// annWrote stores a message of Ann at a domain and returns its id.
func annWrote(t *testing.T, config *inbox.Config) string { return annWroteAt(t, config, time.Now()) }

func annWroteAt(t *testing.T, config *inbox.Config, at time.Time) string {
	t.Helper()
	id := uuid.Must(uuid.NewV7())
	binary.BigEndian.PutUint64(id[:], uint64(at.UnixMilli())<<16|uint64(binary.BigEndian.Uint16(id[6:])))
	rows := storeOf(t, config)
	turn := exchange.TurnRecord{
		ID: id.String(), Agent: "helper", Principal: config.Domain + " mailto:ann@a.test", ThreadID: "c-" + uuid.NewString(), State: exchange.StateAnswered,
		Channel: normalized.ViaEmail, AcceptedAt: at, UpdatedAt: at, Message: normalized.Message{
			ID: uuid.NewString(), ReceivedVia: normalized.ViaEmail, ReceivedAt: identity.At(at), Parts: []normalized.Part{normalized.Text("hello " + config.Domain)},
			Sender: normalized.Sender{
				Address:    identity.Stated("@ann@a.test"),
				Identities: []identity.Evidence{{Issuer: config.Domain, Subject: "mailto:ann@a.test", Method: identity.MethodEmailDMARC}},
			},
		},
	}
	if err := rows.InTx(t.Context(), func(tx *store.Tx) error {
		_, _, err := tx.InsertTurn(t.Context(), turn, pipeline.Original{})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := rows.Close(); err != nil {
		t.Fatal(err)
	}
	return turn.ID
}

// textOf returns what is stored of a message.
func textOf(t *testing.T, config *inbox.Config, id string) string {
	t.Helper()
	rows := storeOf(t, config)
	defer rows.Close()
	return textIn(t, rows, id)
}

func textIn(t *testing.T, rows *store.Store, id string) string {
	t.Helper()
	turn, err := rows.Turn(t.Context(), id)
	if fault.Is(err, fault.NotFound) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, part := range turn.Message.Parts {
		text.WriteString(part.Content)
	}
	return text.String()
}

// runs executes a command and returns its standard output and its standard error.
func runs(t *testing.T, words ...string) (out, told string, err error) {
	t.Helper()
	var output, errput bytes.Buffer
	root := newRoot()
	root.SetArgs(words)
	root.SetOut(&output)
	root.SetErr(&errput)
	err = root.ExecuteContext(t.Context())
	return output.String(), errput.String(), err
}

func decoded[T any](t *testing.T, text string) (value T) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	if err := decoder.Decode(&value); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	if _, err := decoder.Token(); err != io.EOF {
		t.Fatalf("more than one document:\n%s", text)
	}
	return value
}

func filesIn(t *testing.T, archive string) (names []string) {
	t.Helper()
	opened, err := zip.NewReader(strings.NewReader(archive), int64(len(archive)))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range opened.File {
		names = append(names, file.Name)
	}
	return names
}

func fileIn(t *testing.T, archive, name string) string {
	t.Helper()
	opened, err := zip.NewReader(strings.NewReader(archive), int64(len(archive)))
	if err != nil {
		t.Fatal(err)
	}
	content, err := fs.ReadFile(opened, name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func eachDatabase(t *testing.T, test func(t *testing.T, config *inbox.Config)) {
	for name, database := range map[string]func(testing.TB) string{"sqlite": func(testing.TB) string { return "sqlite" }, "postgres": storetest.Postgres} {
		t.Run(name, func(t *testing.T) { test(t, domainsIn(t, database(t))) })
	}
}

// TestPersonAtSeveralDomains: a person wrote to agents of two domains. Commands and the operator API look at all domains, name the one that is no longer in the
// settings, and return one document.
func TestPersonAtSeveralDomains(t *testing.T) {
	eachDatabase(t, func(t *testing.T, config *inbox.Config) {
		second := config.Hosted[0]
		at := map[string]string{config.Domain: annWrote(t, config), second.Domain: annWrote(t, second)}
		server := inboxtest.New(t, defaultFile, os.Environ()...).Serve()
		token, err := os.ReadFile(filepath.Join(config.DataDir, "admin-token"))
		if err != nil {
			t.Fatal(err)
		}
		call := func(method, path, body string) string {
			t.Helper()
			status, _, text := server.Read(method, path, strings.TrimSpace(string(token)), body)
			if status != http.StatusOK {
				t.Fatalf("%s %s: %d %s", method, path, status, text)
			}
			return text
		}

		fromCommand, _, err := runs(t, "erase", "ann@a.test", "--dry-run", "--json")
		if err != nil {
			t.Fatal(err)
		}
		for by, text := range map[string]string{
			"command": fromCommand, "preview": call("GET", "/api/v1/people/preview?person=ann@a.test", ""), "erase": call("POST", "/api/v1/people/erase", `{"person":"ann@a.test","dry_run":true}`),
		} {
			found := decoded[operator.OfPerson](t, text)
			if len(found.Items) != 3 || found.Items[0].Domain != config.Domain || found.Items[0].Preview.Messages != 1 || found.Items[1].Domain != second.Domain || found.Items[1].Preview.Messages != 1 ||
				len(found.LeftOut) != 1 || found.LeftOut[0].Domain != "fourth.example" {
				t.Errorf("%s finds %s", by, text)
			}
		}

		archive, told, err := runs(t, "export", "ann@a.test")
		if err != nil || !strings.Contains(told, "fourth.example") {
			t.Fatalf("%v\n%s", err, told)
		}
		for by, text := range map[string]string{"command": archive, "API": call("GET", "/api/v1/people/export?person=ann@a.test", "")} {
			names := filesIn(t, text)
			for _, want := range []string{"person.json", "index.html", "first.example/messages/" + at[config.Domain] + ".json", "second.example/messages/" + at[second.Domain] + ".json", "second.example/index.html"} {
				if !slices.Contains(names, want) {
					t.Errorf("the archive of the %s has not %s but %v", by, want, names)
				}
			}
		}

		begun := decoded[operator.OfPerson](t, call("POST", "/api/v1/people/erase", `{"person":"ann@a.test"}`))
		for i, one := range []*inbox.Config{config, second} {
			if begun.Items[i].Receipt == nil || begun.Items[i].Domain != one.Domain {
				t.Fatalf("the erasure is %+v", begun)
			}
			receipt := decoded[operator.DomainReceipt](t, call("GET", "/api/v1/erasures/"+begun.Items[i].Receipt.ID, ""))
			if receipt.Domain != one.Domain || receipt.ID != begun.Items[i].Receipt.ID {
				t.Errorf("the receipt is %+v", receipt)
			}
		}
		if list := decoded[exchange.List[operator.DomainReceipt]](t, call("GET", "/api/v1/erasures", "")); len(list.Items) != 3 || list.Items[0].Domain != "third.example" {
			t.Errorf("receipts: %+v", list)
		}

		text, _, err := runs(t, "erase", "ann@a.test", "--yes", "--json", "--wait", "1m")
		if err != nil {
			t.Fatal(err)
		}
		if done := decoded[operator.OfPerson](t, text); len(done.Items) != 3 || done.Items[1].Receipt == nil || done.Items[1].Receipt.EndedAt.IsZero() {
			t.Errorf("the command says %s", text)
		}
		for _, one := range []*inbox.Config{config, second} {
			if left := textOf(t, one, at[one.Domain]); left != "" {
				t.Errorf("at %s is left %q", one.Domain, left)
			}
		}
	})
}

// TestDomainThatFailsDoesNotStopTheOthers: the database of the second of three domains cannot be opened. The person is exported and erased at the others, and the command fails and
// names the second.
func TestDomainThatFailsDoesNotStopTheOthers(t *testing.T) {
	eachDatabase(t, func(t *testing.T, config *inbox.Config) {
		first, third := annWrote(t, config), annWrote(t, config.Hosted[1])
		if err := os.WriteFile(config.Hosted[0].DataDir, []byte("not a directory"), 0o600); err != nil {
			t.Fatal(err)
		}
		failed := func(err error, text, told string) {
			t.Helper()
			if err == nil || !strings.Contains(err.Error(), "second.example: data_dir") {
				t.Errorf("the error is %v\n%s\n%s", err, text, told)
			}
		}

		text, told, err := runs(t, "erase", "ann@a.test", "--dry-run")
		failed(err, text, told)
		if strings.Count(text, "1 messages are of this person") != 2 {
			t.Errorf("the command prints\n%s", text)
		}

		out := filepath.Join(t.TempDir(), "ann.zip")
		text, told, err = runs(t, "export", "ann@a.test", "--out", out, "--json")
		failed(err, text, told)
		if made := decoded[operator.PersonExport](t, text); made.Messages != 2 || made.Items[1].Error == "" || made.Items[2].Directory != "third.example" {
			t.Errorf("the export says %s", text)
		}
		archive, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		if names := filesIn(t, string(archive)); !slices.Contains(names, "third.example/messages/"+third+".json") || !slices.Contains(names, "person.json") {
			t.Errorf("the archive has %v", names)
		}
		for _, name := range []string{"person.json", "index.html"} { // the person reads them
			text := fileIn(t, string(archive), name)
			if !strings.Contains(text, "second.example") || !strings.Contains(text, "fourth.example") || strings.Contains(text, config.DataDir) || strings.Contains(text, "data_dir") {
				t.Errorf("%s does not name the missing domains, or says more than that they are missing: %s", name, text)
			}
		}

		text, told, err = runs(t, "erase", "ann@a.test", "--yes", "--json")
		failed(err, text, told)
		done := decoded[operator.OfPerson](t, text)
		if len(done.Items) != 3 || done.Items[1].Receipt != nil || done.Items[1].Error == "" || done.Items[2].Receipt.EndedAt.IsZero() {
			t.Errorf("the erasure says %s", text)
		}
		text, told, err = runs(t, "erase", "--list", "--json")
		failed(err, text, told)
		if listed := decoded[exchange.List[operator.DomainReceipt]](t, text); len(listed.Items) != 2 || strings.Count(err.Error(), "second.example: data_dir") != 1 {
			t.Errorf("the receipts are %s, and the error is %v", text, err)
		}
		for one, id := range map[*inbox.Config]string{config: first, config.Hosted[1]: third} {
			if left := textOf(t, one, id); left != "" {
				t.Errorf("at %s is left %q", one.Domain, left)
			}
		}
	})
}
