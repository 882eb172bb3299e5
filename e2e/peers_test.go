package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"inbox/e2e/instance"
	"inbox/internal/await"
	"inbox/internal/children"
)

// node starts a script of e2e/peers with its standard input and output as pipes. It ends with the test.
func node(t *testing.T, script string, arguments ...string) (io.WriteCloser, *bufio.Reader) {
	t.Helper()
	return nodeWith(t, nil, script, arguments...)
}

// nodeWith is node with further variables of the environment.
func nodeWith(t *testing.T, environment []string, script string, arguments ...string) (io.WriteCloser, *bufio.Reader) {
	t.Helper()
	root, err := instance.Root()
	if err != nil {
		t.Fatal(err)
	}
	peers := filepath.Join(root, "e2e", "peers")
	used := scripts[filepath.Dir(script)]
	if _, err := os.Stat(filepath.Join(peers, used.installed, "node_modules")); err != nil {
		t.Fatalf("Node packages of e2e/peers are missing; run scripts/install-test-dependencies (%v)", err)
	}
	ranWith(t, used.peer, npmPackage(used.installed, used.npm))
	command := exec.Command(nodeProgram(peers), append([]string{filepath.Join(peers, script)}, arguments...)...)
	command.Env = append(os.Environ(), environment...)
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
	if err := children.Start(command); err != nil {
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
	line := await.Result(t, func() []byte {
		line, _ := reader.ReadBytes('\n')
		return line
	}, "the answer of the peer")
	if err := json.Unmarshal(line, value); err != nil {
		t.Fatalf("parse answer of the peer %q: %v", line, err)
	}
}

// fediversePeer is a server of others on a host of the network, which does what it is told on its control port.
type fediversePeer struct {
	t       *testing.T
	network *secureNetwork
	Control string `json:"control"`
	Actor   string `json:"actor"`
}

// startFediversePeer starts a script with the flags of its host.
func startFediversePeer(t *testing.T, peer any, at host, script string, arguments ...string) {
	t.Helper()
	_, output := nodeWith(t, openSecureNetwork(t).environment(), script, append(at.arguments(), arguments...)...)
	readJSON(t, output, peer)
}

// fedify is a Fedify server.
type fedify struct {
	fediversePeer

	Handle string `json:"handle"`
}

func startFedify(t *testing.T) *fedify {
	t.Helper()
	n := openSecureNetwork(t)
	peer := &fedify{fediversePeer: fediversePeer{t: t, network: n}}
	startFediversePeer(t, peer, n.host(t, "fedify"), "fedify/server.mjs", "--keys", filepath.Join(t.TempDir(), "keys.json"))
	return peer
}

// in returns the same peer to a subtest, which then owns its failures.
func (f *fedify) in(t *testing.T) *fedify {
	other := *f
	other.t = t
	return &other
}

// tryPost returns the error of the peer's software.
func (f *fediversePeer) tryPost(path string, body, result any) error {
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
		return fmt.Errorf("%s: %s", path, answer)
	}
	return json.Unmarshal(answer, result)
}

func (f *fediversePeer) post(path string, body, result any) {
	f.t.Helper()
	if err := f.tryPost(path, body, result); err != nil {
		f.t.Fatal(err)
	}
}

// sent is what the peer sent.
type sent struct {
	Activity, Note, Actor string
	Status                int    // of a forwarded activity
	Reason                string // what the server said
}

func (f *fedify) mention(to, visibility, content string) sent {
	f.t.Helper()
	return f.command("/mention", errand{To: to, Visibility: visibility, Content: content})
}

// errand is what a person at the peer does with a note; empty members leave the choice to the peer.
type errand struct {
	To         string   `json:"to"`
	From       string   `json:"from,omitempty"` // alice proves what she sends, bob does not
	Visibility string   `json:"visibility,omitempty"`
	Content    string   `json:"content,omitempty"`
	Scheme     string   `json:"scheme,omitempty"`  // of the first signature
	Inboxes    []string `json:"inboxes,omitempty"` // personal or shared, in order
	InReplyTo  string   `json:"inReplyTo,omitempty"`
	Note       string   `json:"note,omitempty"` // to change or delete
	By         string   `json:"by,omitempty"`   // who signs a forwarded activity
}

func (f *fedify) command(path string, what errand) sent {
	f.t.Helper()
	var result sent
	f.post(path, what, &result)
	return result
}

// behave changes how the peer receives: the scheme that it refuses, and whether a GET must be signed.
func (f *fedify) behave(refuse string, secure bool) {
	f.t.Helper()
	var now struct{}
	f.post("/behave", map[string]any{"refuse": refuse, "secure": secure}, &now)
}

// arrived is one activity that reached the peer, with the verdict of the peer's verifier.
type arrived struct {
	Verified bool
	Accepted bool // by Fedify: handed to the application; by activitypub.bot: queued for it
	Key      string
	Owner    string
	Scheme   string // of the signature: rfc9421, draft-cavage, none
	Proof    string // what Fedify says of the proof inside: absent, valid, invalid
	Status   int
	Path     string
	Headers  map[string]string
	Activity json.RawMessage
	Reason   json.RawMessage

	Told, Object string // instead of an arrival: what activitypub.bot told its account, and of which note
}

func (f *fediversePeer) received(after int) []arrived {
	f.t.Helper()
	var list []arrived
	f.get(fmt.Sprintf("/received?after=%d&wait=1000", after), &list)
	return list
}

func (f *fediversePeer) get(path string, result any) {
	f.t.Helper()
	response, err := http.Get(f.Control + path)
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if err := json.NewDecoder(response.Body).Decode(result); err != nil {
		f.t.Fatal(err)
	}
}

// await waits for an arrival that the function likes.
func (f *fediversePeer) await(what string, wanted func(arrived) bool) arrived {
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
	f.t.Fatalf("nothing arrived at the peer within %s: %s", patience, what)
	return arrived{}
}

// Signature schemes, as the peers and the evidence call them.
const (
	draftCavage = "draft-cavage"
	rfc9421     = "rfc9421"
)

// schemeGate stands before the server, as a proxy does, and refuses signatures of one scheme on its behalf: a server
// that takes both never makes a peer knock twice.
type schemeGate struct {
	refuse atomic.Value // string; empty = nothing
	proxy  *httputil.ReverseProxy
}

// behindGate puts a server of ours behind a gate, which has the server's host and certificate.
func behindGate(t *testing.T, n *secureNetwork, settings instance.Settings) (*schemeGate, instance.Settings) {
	t.Helper()
	settings = n.settings(t, settings)
	listener, err := net.Listen("tcp", settings.HTTP)
	if err != nil {
		t.Fatal(err)
	}
	settings.HTTP = freeAddress(t)

	behind := n.transport.Clone()
	behind.DialContext = nil // an address, not a name of the network
	behind.TLSClientConfig.ServerName = settings.Public
	gate := &schemeGate{proxy: &httputil.ReverseProxy{
		ErrorLog:  log.New(io.Discard, "", 0), // while the server is not up yet
		Transport: behind,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "https", Host: settings.HTTP})
			r.Out.Host = r.In.Host // signed, and what the server must be called by
		},
	}}
	gate.refuse.Store("")
	front := &http.Server{Handler: gate, ReadHeaderTimeout: patience}
	t.Cleanup(func() { _ = front.Close() })
	go func() { _ = front.ServeTLS(listener, settings.CertFile, settings.KeyFile) }()
	return gate, settings
}

func (g *schemeGate) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	if request.Method == http.MethodPost && schemeOf(request.Header) == g.refuse.Load() {
		http.Error(writer, "this scheme is not known here", http.StatusUnauthorized)
		return
	}
	g.proxy.ServeHTTP(writer, request)
}

func schemeOf(header http.Header) string {
	switch {
	case header.Get("Signature-Input") != "":
		return rfc9421
	case header.Get("Signature") != "":
		return draftCavage
	}
	return "none"
}
