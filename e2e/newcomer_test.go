package e2e

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/engine/store/storetest"
	"inbox/internal/await"
	"inbox/internal/children"
)

// demoLimit is what a newcomer is asked to wait at most.
const demoLimit = 10 * time.Second

func TestDemoShowsThreeVerifiedConversations(t *testing.T) {
	binary, err := built()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	directory := t.TempDir()
	command := exec.CommandContext(ctx, binary, "demo")
	command.Dir = directory
	started := time.Now()
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("demo: %v\n%s", err, output)
	}
	if elapsed := time.Since(started); elapsed > demoLimit {
		t.Errorf("demo took %s; want less than %s", elapsed, demoLimit)
	}
	for _, want := range []string{"Fediverse", "Email", "A2A", "@echo@"} {
		if !bytes.Contains(output, []byte(want)) {
			t.Errorf("demo does not tell of %q:\n%s", want, output)
		}
	}
	if left, err := os.ReadDir(directory); err != nil || len(left) > 0 {
		t.Errorf("demo left %v behind (%v)", left, err)
	}
}

// TestServeWithoutConfiguration is `make run` on a fresh machine, on free ports.
func TestServeWithoutConfiguration(t *testing.T) {
	binary, err := built()
	if err != nil {
		t.Fatal(err)
	}
	address, err := instance.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	command := exec.Command(binary, "serve")
	command.Dir = directory
	command.Env = append(os.Environ(), "INBOX_HTTP_LISTEN="+address, "INBOX_SMTP_LISTEN=127.0.0.1:0")
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	if err := children.Start(command); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	eventually(t, "the server is ready", func() bool { return answersOK("http://" + address + "/readyz") })
	if !answersOK("http://" + address + "/agents/echo") {
		t.Error("there is no agent echo")
	}
	if _, err := os.Stat(filepath.Join(directory, "inbox-data")); err != nil {
		t.Error(err)
	}
	if err := command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the server ended with %v", err)
		}
	case <-time.After(patience):
		t.Error(errors.Join(errors.New("the server did not end"), command.Process.Kill()))
	}
	for _, want := range []string{"development", "@echo@", address} {
		if !strings.Contains(strings.ToLower(output.String()), want) {
			t.Errorf("the server does not tell of %q:\n%s", want, output.String())
		}
	}
}

func answersOK(url string) bool {
	response, err := (&http.Client{Timeout: 5 * time.Second}).Get(url)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

func TestEmbeddedExampleDemandsConsentAndAnswers(t *testing.T) {
	t.Parallel()
	s := newServer(t, instance.Settings{}) // its configuration and command line serve the example, too
	binary := filepath.Join(t.TempDir(), "embedded")
	build := exec.Command("go", "build", "-o", binary, ".")
	build.Dir = filepath.Join(examplesDirectory(t), "embedded")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the example: %v\n%s", err, output)
	}
	token := s.peerToken("ann")
	program := exec.Command(binary)
	program.Env = append(os.Environ(), "INBOX_CONFIG="+s.ConfigFile())
	var problems bytes.Buffer
	program.Stderr = &problems
	output, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := children.Start(program); err != nil {
		t.Fatal(err)
	}
	if line := firstLine(t, output, "the example to listen"); !strings.HasPrefix(line, "listening on ") {
		t.Fatalf("the example says %q\n%s", line, problems.String())
	}
	peer := load.A2APeer{URL: s.URL() + "/a2a/gardener", Token: token, Client: &http.Client{Timeout: patience}}
	task, err := peer.Send(t.Context(), load.SendBody("message-1", "it is hot today", false))
	if err != nil {
		t.Fatal(err)
	}
	grant(t, findLink(t, texts(task)))
	task = awaitTask(t, peer, task.ID, completed)
	if text := texts(task); !strings.Contains(text, "The plants are watered.") {
		t.Errorf("the task says %q", text)
	}
	if err := program.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := await.Result(t, program.Wait, "the end of the example"); err != nil {
		t.Errorf("the example ended with %v\n%s", err, problems.String())
	}
}

// TestDescriptionOfTheAPI validates the OpenAPI document with another's validator, compiles a typed client of it, and
// holds all that the client and the server say to each other to the document.
func TestDescriptionOfTheAPI(t *testing.T) {
	t.Parallel()
	const secret = "a secret that only the tests know"
	settings := startChatModel(t).agents()
	settings.More = "[[connectors]]\nname = \"slack\"\nsecret = \"" + secret + "\"\nagents = [\"echo\"]\n"
	s := start(t, settings)
	operator, err := os.ReadFile(filepath.Join(s.Directory, "data", "admin-token"))
	if err != nil {
		t.Fatal(err)
	}
	_, output := node(t, "openapi/check.mjs", s.URL(), lastLine(s.inbox("tokens", "create", "typed")), lastLine(s.inbox("tokens", "create", "--bridge", "relay")),
		strings.TrimSpace(string(operator)), secret, filepath.Join(t.TempDir(), "client"))
	var seen struct {
		Problems                      string
		Version, Reply, Code          string
		State, Completed, Registered  string
		Status, Answered, Relayed     string
		Paths, Held, Called, Sessions int
		Acked                         int
		Created, Deleted              bool
		Said, Models, Events          []string
		Lines, Wrong                  []string
	}
	readJSON(t, output, &seen)
	if seen.Problems != "" {
		t.Fatalf("the document is not right: %s", seen.Problems)
	}
	for _, wrong := range seen.Wrong {
		t.Error(wrong)
	}
	if seen.Version != "3.1" || seen.Paths < 40 || seen.Called < 20 {
		t.Errorf("version %s, %d paths, %d operations called", seen.Version, seen.Paths, seen.Called)
	}
	if seen.Reply != "typed hello" || strings.Join(seen.Said, "|") != "user: typed hello|assistant: typed hello" || seen.State != "completed" || seen.Code != "not_found" || seen.Held != 0 {
		t.Errorf("the client saw %+v", seen)
	}
	if seen.Completed != "typed completion" || !slices.Contains(seen.Models, "echo") {
		t.Errorf("completion %q of %q", seen.Completed, seen.Models)
	}
	if seen.Registered != "matrix" || seen.Acked != 1 || seen.Status != "completed" || !slices.Contains(seen.Events, "run_finished") || seen.Relayed != "typed connector" {
		t.Errorf("bridge and connector: %+v", seen)
	}
	if seen.Answered != "typed session" || !seen.Created || !seen.Deleted || seen.Sessions < 2 || strings.Join(seen.Lines, "|") != "user: typed session|assistant: typed session" {
		t.Errorf("sessions: %+v", seen)
	}
}

// TestWrongConfigurationIsOneClearSentence starts the server with things that cannot work.
func TestWrongConfigurationIsOneClearSentence(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	nobody, err := instance.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	// Below a file there is no directory for any user: permissions would not stop root.
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	living := start(t, instance.Settings{})

	cases := map[string]struct {
		settings instance.Settings
		change   func(string) string // of the configuration file
		want     []string            // all of them in the sentence
	}{
		"unknown key": {
			settings: instance.Settings{More: "[mailbox]\ncolour = \"blue\"\n"},
			want:     []string{"mailbox", "inbox.toml:"},
		},
		"unknown key in a known table": {
			settings: instance.Settings{More: "[dns]\nresolvers = \"127.0.0.1:53\"\n"},
			want:     []string{"dns.resolvers", "inbox.toml:"},
		},
		"broken file": {
			settings: instance.Settings{More: "[dns\n"},
			want:     []string{"inbox.toml:"},
		},
		"impossible value": {
			settings: instance.Settings{},
			change:   func(text string) string { return strings.Replace(text, "[mail]\n", "[mail]\nmode = \"fax\"\n", 1) },
			want:     []string{"inbox.toml:", "mail.mode", "fax"},
		},
		"HTTP port in use": {
			settings: instance.Settings{HTTP: taken.Addr().String()},
			want:     []string{taken.Addr().String(), "http.listen"},
		},
		"SMTP port in use": {
			settings: instance.Settings{SMTP: taken.Addr().String()},
			want:     []string{taken.Addr().String(), "smtp.listen"},
		},
		"unwritable data directory": {
			settings: instance.Settings{},
			change:   func(text string) string { return inDataDir(text, file+"/data") },
			want:     []string{"data_dir", file},
		},
		"data directory of another server": {
			settings: instance.Settings{},
			change:   func(text string) string { return inDataDir(text, filepath.Join(living.Directory, "data")) },
			want:     []string{"data_dir", "another inbox serves"},
		},
		"unreachable PostgreSQL": {
			settings: instance.Settings{Database: "postgres://inbox:hidden@" + nobody + "/inbox"},
			want:     []string{"database_url", nobody, "check database_url"},
		},
		"PgBouncer that shares sessions": {
			settings: instance.Settings{Database: storetest.PgBouncer(t, emptyPostgres(t), "pool_mode = transaction")},
			want:     []string{"database_url", "PgBouncer", "pool_mode = session"},
		},
		"PgBouncer without room": {
			settings: instance.Settings{Database: storetest.PgBouncer(t, emptyPostgres(t), "max_client_conn = 0")},
			want:     []string{"database_url", "max_client_conn", "database.connections"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, c.settings)
			if c.change != nil {
				rewrite(t, s.ConfigFile(), c.change)
			}
			code, output := s.failToServe()
			if code != 1 {
				t.Errorf("exit code %d; want 1", code)
			}
			checkSentence(t, output, c.want)
		})
	}
}

func rewrite(t *testing.T, file string, change func(string) string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(change(string(text))), 0o600); err != nil {
		t.Fatal(err)
	}
}

// failToServe runs a server that should end by itself.
func (s *server) failToServe() (int, string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer cancel()
	command := exec.CommandContext(ctx, s.Binary, "--config", s.ConfigFile(), "serve")
	command.Dir = s.Directory
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	if err := children.Start(command); err != nil {
		s.t.Fatal(err)
	}
	err := command.Wait()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		s.t.Fatal(err)
	}
	if ctx.Err() != nil {
		s.t.Errorf("the server did not end by itself; it printed:\n%s", output.String())
	}
	return command.ProcessState.ExitCode(), output.String()
}

func checkSentence(t *testing.T, output string, want []string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(output), "\n")
	sentence := lines[len(lines)-1]
	if !strings.HasPrefix(sentence, "inbox: ") || len(sentence) > 500 {
		t.Errorf("the last line is no clear sentence: %q", sentence)
	}
	for _, one := range want {
		if !strings.Contains(sentence, one) {
			t.Errorf("the sentence does not name %q: %q", one, sentence)
		}
	}
	for _, never := range []string{"panic", "goroutine ", ".go:", "hidden"} {
		if strings.Contains(output, never) {
			t.Errorf("the output has %q:\n%s", never, output)
		}
	}
	if len(lines) > 1 {
		t.Errorf("more than one line:\n%s", output)
	}
}

func inDataDir(text, directory string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "data_dir") {
			lines[i] = `data_dir = "` + directory + `"`
		}
	}
	return strings.Join(lines, "\n")
}
