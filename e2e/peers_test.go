package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"inbox/e2e/instance"
)

// node starts a script of e2e/peers with its standard input and output as pipes. It ends with the test.
func node(t *testing.T, script string, arguments ...string) (io.WriteCloser, *bufio.Reader) {
	t.Helper()
	root, err := instance.Root()
	if err != nil {
		t.Fatal(err)
	}
	peers := filepath.Join(root, "e2e", "peers")
	if _, err := os.Stat(filepath.Join(peers, "node_modules")); err != nil {
		t.Fatalf("the Node packages of e2e/peers are missing; run scripts/install-test-dependencies (%v)", err)
	}
	command := exec.Command(nodeProgram(peers), append([]string{filepath.Join(peers, script)}, arguments...)...)
	var problems bytes.Buffer
	command.Stderr = &problems
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatalf("start node (Debian package nodejs, or scripts/install-test-dependencies): %v", err)
	}
	t.Cleanup(func() {
		_ = input.Close() // the scripts end with their input
		finished := time.AfterFunc(10*time.Second, func() { _ = command.Process.Kill() })
		defer finished.Stop()
		_, _ = io.Copy(io.Discard, output)
		if err := command.Wait(); err != nil || t.Failed() {
			t.Logf("%s: %v\n%s", script, err, tail(problems.String(), 16<<10))
		}
	})
	return input, bufio.NewReader(output)
}

// nodeProgram prefers the Node that scripts/install-test-dependencies installs beside an old one.
func nodeProgram(peers string) string {
	installed, err := filepath.Glob(filepath.Join(peers, "node", "node_modules", "node-linux-*", "bin", "node"))
	if err == nil && len(installed) > 0 {
		return installed[0]
	}
	return "node"
}

// readJSON reads one line of JSON.
func readJSON(t *testing.T, reader *bufio.Reader, value any) {
	t.Helper()
	line, err := reader.ReadBytes('\n')
	if err != nil {
		t.Fatalf("read answer of the peer: %v", err)
	}
	if err := json.Unmarshal(line, value); err != nil {
		t.Fatalf("parse answer of the peer %q: %v", line, err)
	}
}

// fedify is a Fedify server with one person.
type fedify struct {
	t       *testing.T
	Origin  string `json:"origin"`
	Control string `json:"control"`
	Actor   string `json:"actor"`
	Handle  string `json:"handle"`
}

func startFedify(t *testing.T) *fedify {
	t.Helper()
	_, output := node(t, "fedify/server.mjs", "--keys", filepath.Join(t.TempDir(), "keys.json"))
	peer := &fedify{t: t}
	readJSON(t, output, peer)
	return peer
}

// tryPost gives the error of the peer's software.
func (f *fedify) tryPost(path string, body, result any) error {
	f.t.Helper()
	encoded, err := json.Marshal(body)
	if err != nil {
		return err
	}
	response, err := http.Post(f.Control+path, "application/json", bytes.NewReader(encoded))
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("fedify %s: %s", path, answer)
	}
	return json.Unmarshal(answer, result)
}

func (f *fedify) post(path string, body, result any) {
	f.t.Helper()
	if err := f.tryPost(path, body, result); err != nil {
		f.t.Fatal(err)
	}
}

// sent is what the peer sent.
type sent struct {
	Activity, Note, Actor string
}

func (f *fedify) mention(to, visibility, content string) sent {
	f.t.Helper()
	var result sent
	f.post("/mention", map[string]string{"to": to, "visibility": visibility, "content": content}, &result)
	return result
}

// arrived is one activity that reached the peer, with the verdict of Fedify's verifier.
type arrived struct {
	Verified bool
	Accepted bool // handed to the application by Fedify's inbox
	Key      string
	Owner    string
	Status   int
	Path     string
	Headers  map[string]string
	Activity json.RawMessage
	Reason   json.RawMessage
}

func (f *fedify) received(after int) []arrived {
	f.t.Helper()
	response, err := http.Get(fmt.Sprintf("%s/received?after=%d&wait=1000", f.Control, after))
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var list []arrived
	if err := json.NewDecoder(response.Body).Decode(&list); err != nil {
		f.t.Fatal(err)
	}
	return list
}

// await waits for an arrival that the function likes.
func (f *fedify) await(what string, wanted func(arrived) bool) arrived {
	f.t.Helper()
	deadline := time.Now().Add(patience)
	for seen := 0; time.Now().Before(deadline); {
		fresh := f.received(seen)
		seen += len(fresh)
		for _, one := range fresh {
			if wanted(one) {
				return one
			}
		}
	}
	f.t.Fatalf("nothing arrived at Fedify within %s: %s", patience, what)
	return arrived{}
}
