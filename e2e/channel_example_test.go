package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"inbox/e2e/instance"
	"inbox/internal/await"
	"inbox/internal/children"
)

// TestOneChannelMore runs the example of a channel for another network: added by one package, it stores before it acknowledges,
// recognises a repeat, and brings the answer to the asker, across a lost connection and a killed server.
func TestOneChannelMore(t *testing.T) {
	t.Parallel()
	s := newServer(t, instance.Settings{}) // its configuration and command line serve the example, too
	token := s.peerToken("ann")
	binary := filepath.Join(t.TempDir(), "channel")
	build := exec.Command("go", "build", "-o", binary, ".")
	build.Dir = filepath.Join(examplesDirectory(t), "channel")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the example: %v\n%s", err, output)
	}
	address, program := startChannel(t, binary, s.ConfigFile())

	t.Run("who shows no token is not heard", func(t *testing.T) {
		for _, line := range []string{`SAY m1 echo "hello"`, "HELLO inbox_nonsense", "HELLO"} {
			stranger := dialLines(t, address)
			stranger.write(line)
			if got := stranger.read(); !strings.HasPrefix(got, "- ") {
				t.Errorf("%s is answered with %q", line, got)
			}
			stranger.ends()
		}
	})

	ann := dialLines(t, address)
	ann.say("HELLO "+token, "+ HELLO @ann@")
	ann.say(`SAY m0 nobody "hello"`, `- SAY m0 "`)
	ann.say(`SAY m0 echo hello`, `- SAY m0 "`)
	ann.say(`SAY m1 echo "hello \"there\""`, "+ SAY m1")
	first := strings.Fields(ann.read()) // ANSWER id m1 …
	if len(first) < 4 || first[0] != "ANSWER" || first[2] != "m1" {
		t.Fatalf("the answer is %q", first)
	}
	ann.close() // without GOT

	again := dialLines(t, address)
	again.say("HELLO "+token, "+ HELLO @ann@")
	again.say(`SAY m1 echo "hello \"there\""`, "+ SAY m1") // its client does not know whether it was taken
	line := again.read()
	if want := "ANSWER " + first[1] + " m1 "; !strings.HasPrefix(line, want) {
		t.Fatalf("the answer comes again as %q, want %s…", line, want)
	}
	var text string
	if err := json.Unmarshal([]byte(strings.SplitN(line, " ", 4)[3]), &text); err != nil || !strings.Contains(text, `hello "there"`) {
		t.Errorf("the answer says %q, %v", text, err)
	}
	again.write("GOT " + first[1])

	again.say(`SAY m2 echo "and now?"`, "+ SAY m2")
	if err := program.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = await.Result(t, program.Wait, "the end of the killed example") // it says how it was killed
	again.close()
	address, _ = startChannel(t, binary, s.ConfigFile())
	back := dialLines(t, address)
	back.say("HELLO "+token, "+ HELLO @ann@")
	second := strings.Fields(back.read())
	if len(second) >= 4 && second[1] == first[1] { // the server died before it wrote down that m1 was taken; the id says which it is
		back.write("GOT " + second[1])
		second = strings.Fields(back.read())
	}
	if len(second) < 4 || second[0] != "ANSWER" || second[2] != "m2" {
		t.Fatalf("after the crash comes %q, want the answer to m2", second)
	}
	back.write("GOT " + second[1])
	back.write("BYE")
	if got := back.read(); !strings.HasPrefix(got, "- BYE") {
		t.Errorf("after m2 comes %q", got)
	}
}

func startChannel(t *testing.T, binary, config string) (address string, program *exec.Cmd) {
	t.Helper()
	program = exec.Command(binary)
	program.Env = append(os.Environ(), "INBOX_CONFIG="+config, "LINE_LISTEN=127.0.0.1:0")
	var problems bytes.Buffer
	program.Stderr = &problems
	output, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := children.Start(program); err != nil {
		t.Fatal(err)
	}
	line := firstLine(t, output, "the example to listen")
	address, is := strings.CutPrefix(line, "listening on ")
	if !is {
		t.Fatalf("the example says %q\n%s", line, problems.String())
	}
	return strings.TrimSpace(address), program
}

// lineClient is a client of the example.
type lineClient struct {
	t          *testing.T
	connection net.Conn
	reader     *bufio.Reader
}

func dialLines(t *testing.T, address string) *lineClient {
	t.Helper()
	connection, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	if err := connection.SetDeadline(time.Now().Add(2 * patience)); err != nil {
		t.Fatal(err)
	}
	return &lineClient{t, connection, bufio.NewReader(connection)}
}

func (l *lineClient) write(line string) {
	l.t.Helper()
	if _, err := l.connection.Write([]byte(line + "\n")); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lineClient) read() string {
	l.t.Helper()
	line, err := l.reader.ReadString('\n')
	if err != nil {
		l.t.Fatalf("read a line: %v, after %q", err, line)
	}
	return strings.TrimSpace(line)
}

func (l *lineClient) say(line, want string) {
	l.t.Helper()
	l.write(line)
	if got := l.read(); !strings.HasPrefix(got, want) {
		l.t.Fatalf("%s is answered with %q, want %s…", line, got, want)
	}
}

func (l *lineClient) close() { _ = l.connection.Close() }

// ends demands that the server closes the connection.
func (l *lineClient) ends() {
	l.t.Helper()
	if line, err := l.reader.ReadString('\n'); err == nil {
		l.t.Errorf("the connection goes on with %q", line)
	}
}
