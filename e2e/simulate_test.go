package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"inbox/e2e/instance"
	"inbox/internal/await"
	"inbox/internal/children"
	"inbox/operator"
)

// simulated runs inbox simulate and returns what it prints with its exit code.
func (s *server) simulated(arguments ...string) (operator.Simulated, int) {
	s.t.Helper()
	output, err := s.Run(s.t.Context(), append(append([]string{"simulate"}, arguments...), "--json", "--wait", patience.String())...)
	code := 0
	if failed, is := errors.AsType[*exec.ExitError](err); is {
		code = failed.ExitCode()
	} else if err != nil {
		s.t.Fatal(err)
	}
	var simulated operator.Simulated
	if err := json.Unmarshal([]byte(output), &simulated); err != nil {
		s.t.Fatalf("%v: %v: %s", arguments, err, output)
	}
	return simulated, code
}

// TestSimulateRecordReplay: messages by every way arrive with the proof that their sender has, or are not believed; what came is recorded
// without names and secrets, comes to the same end when it is sent again, and to a reported other one when the agent answers otherwise.
func TestSimulateRecordReplay(t *testing.T) {
	t.Parallel()
	names, err := instance.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	answer := filepath.Join(t.TempDir(), "answer")
	say := func(text string) {
		t.Helper()
		if err := os.WriteFile(answer, []byte(`{"parts":[{"kind":"text","mime":"text/plain","content":"`+text+`"}]}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	say("We are open until six.")
	s := start(t, instance.Settings{Domain: "inbox.test", DNS: names, Agents: steady + fmt.Sprintf(
		"[[agents]]\nname = \"hours\"\nkind = \"command\"\n[agents.command]\nprogram = \"/bin/cat\"\narguments = [%q]\n", answer)})

	follower := s.recorder("cases", 5)
	for _, one := range []struct{ way, evidence string }{
		{"mention", "ap-http-signature"}, {"mail", "email-dmarc"}, {"task", "a2a-oauth"}, {"chat", "a2a-oauth"},
	} {
		agent := "echo"
		if one.way == "task" {
			agent = "hours"
		}
		got, code := s.simulated(one.way, "--agent", agent, "--from", "ann", "--text", "I am Ann, my password: hunter2-secret")
		if code != 0 || got.Outcome != "answered" || got.Message == nil || len(got.Message.Turn.Message.Sender.Identities) != 1 {
			t.Fatalf("%s: exit code %d, %+v", one.way, code, got)
		}
		if method := got.Message.Turn.Message.Sender.Identities[0].Method; !strings.Contains(method, one.evidence) {
			t.Errorf("%s: the evidence is %s, want %s", one.way, method, one.evidence)
		}
		if one.way == "mention" && (got.Received == nil || !strings.Contains(got.Received.Text, "I am Ann")) {
			t.Errorf("the answer did not reach the account: %+v", got.Received)
		}
	}

	for _, one := range []struct {
		way, fault, outcome, said string
		expect                    []string
		code                      int
	}{
		{"mail", "dkim-broken", "held", "SMTP 250", nil, 0},
		{"mail", "dmarc-reject", "refused", "550 5.7.26", []string{"--expect", "refused"}, 0},
		{"mention", "bad-signature", "refused", "HTTP 401", []string{"--expect", "answered"}, 4},
		{"mention", "wrong-digest", "refused", "HTTP 401", nil, 0},
		{"task", "revoked-token", "refused", "HTTP 401", nil, 0},
		{"chat", "malformed", "refused", "-32700", nil, 0},
	} {
		got, code := s.simulated(append([]string{one.way, "--agent", "echo", "--fault", one.fault}, one.expect...)...)
		if code != one.code || got.Outcome != one.outcome || !strings.Contains(got.Said, one.said) {
			t.Errorf("%s %s: exit code %d, want %d; %+v", one.way, one.fault, code, one.code, got)
		}
	}
	follower.ends(t)

	directory := filepath.Join(s.Directory, "cases")
	recorded := map[string]bool{}
	err = filepath.WalkDir(directory, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		for _, secret := range []string{"hunter2", "Ann", "ann@"} {
			if strings.Contains(string(content), secret) {
				t.Errorf("%s has %q: %s", path, secret, content)
			}
		}
		recorded[filepath.Dir(path)] = true
		return err
	})
	if err != nil || len(recorded) != 5 {
		t.Fatalf("%d recordings, %v; want 5", len(recorded), err)
	}

	if report, err := s.Run(t.Context(), "replay", directory); err != nil || !strings.Contains(report, "5 equal, 0 different, 0 skipped") {
		t.Errorf("%v\n%s", err, report)
	}
	say("We are closed today.")
	report, err := s.Run(t.Context(), "replay", directory)
	failed, is := errors.AsType[*exec.ExitError](err)
	if !is || failed.ExitCode() != 1 || !strings.Contains(report, "4 equal, 1 different, 0 skipped") ||
		!strings.Contains(report, "- We are open until six.") || !strings.Contains(report, "+ We are closed today.") {
		t.Errorf("%v\n%s", err, report)
	}
	if report, err := s.Run(t.Context(), "replay", "--compare", "shape", directory); err != nil {
		t.Errorf("%v\n%s", err, report)
	}
}

// recorder is inbox record under way.
type recorder struct {
	command *exec.Cmd
	log     string
}

// recorder starts inbox record and returns when it misses nothing any more.
func (s *server) recorder(directory string, count int) *recorder {
	s.t.Helper()
	r := &recorder{log: filepath.Join(s.t.TempDir(), "log")}
	file, err := os.Create(r.log)
	if err != nil {
		s.t.Fatal(err)
	}
	defer file.Close()
	r.command = exec.Command(s.Binary, "--config", s.ConfigFile(), "record", "--to", directory, "--count", fmt.Sprint(count))
	r.command.Dir, r.command.Stderr = s.Directory, file
	if err := children.Start(r.command); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = r.command.Process.Kill() }) // it has ended where the test went well
	eventually(s.t, "the recorder is ready", func() bool {
		said, err := os.ReadFile(r.log)
		return err == nil && strings.Contains(string(said), "Recording to")
	})
	return r
}

// ends waits for the end of the recorder.
func (r *recorder) ends(t *testing.T) {
	t.Helper()
	if err := await.Result(t, r.command.Wait, "the end of the recorder"); err != nil {
		said, _ := os.ReadFile(r.log)
		t.Fatalf("the recorder: %v: %s", err, said)
	}
}
