package e2e

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"inbox/e2e/instance"
	"inbox/internal/children"
)

// TestWrongConfigurationIsOneClearSentence starts the server with things that cannot work.
func TestWrongConfigurationIsOneClearSentence(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	nobody, err := instance.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	// Below a file there is no directory, whoever asks: permissions would not stop root.
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
			want:     []string{"database_url", nobody},
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
