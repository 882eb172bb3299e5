package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	pb "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/internal/await"
	"inbox/internal/children"
)

// Where the clients of a proxy come from, and one that comes to the server itself. What they claim to be is no one's address.
const (
	proxyClient  = "127.0.0.9"
	stranger     = "127.0.0.66"
	claimed      = "203.0.113.7"
	proxiedHost  = "agents.example"
	largestOfA2A = 32 << 20 // a2a.max_request_bytes
)

// TestProxies runs the files of docs/ops in the real proxies, in front of a server with the settings of docs/ops/proxies.md.
func TestProxies(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*proxied) *exec.Cmd{"caddy": (*proxied).caddy, "nginx": (*proxied).nginx, "haproxy": (*proxied).haproxy} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ranWith(t, name, debianPackage(name))
			p := newProxied(t)
			p.startProxy(start(p))
			for what, client := range map[string]*http.Client{"HTTP/1.1": p.client(false), "HTTP/2": p.client(true)} {
				t.Run(what, func(t *testing.T) {
					p := p.in(t, client)
					p.mention()
					p.streams()
				})
			}
			p.bodies()
			p.unsent()
			p.grpc()
			p.addresses()
			p.closed()
		})
	}
}

// TestFrozenNodeLosesItsRequests: one of two nodes behind HAProxy stops without closing its connections. Requests that it has end, later ones
// go to the other node, and it gets requests again when it continues.
func TestFrozenNodeLosesItsRequests(t *testing.T) {
	t.Parallel()
	p := newTwoNodes(t)
	first := p.server
	sent := 0
	send := func() error {
		sent++
		_, err := p.peer().Send(t.Context(), load.SendBody(fmt.Sprint("frozen", sent), "hello", true))
		return err
	}

	eventually(t, "the first node gets messages", func() bool { return send() == nil && p.accepted() > 0 })
	if err := first.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}

	var requests sync.WaitGroup
	for range 10 { // the proxy takes turns, so that some go to the frozen node
		requests.Go(func() {
			response, err := p.http.Do(p.request(http.MethodGet, "/healthz", "", nil))
			if err == nil {
				_ = response.Body.Close()
			}
			if errors.Is(err, context.DeadlineExceeded) {
				t.Error("a request waited for the frozen node until its client gave up")
			}
		})
	}
	await.Done(t, requests.Wait, "the end of the requests")
	for range 20 {
		if err := send(); err != nil {
			t.Errorf("after the check of the proxy: %v", err)
		}
	}

	if err := first.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	before := p.accepted()
	eventually(t, "the first node gets messages again", func() bool { return send() == nil && p.accepted() > before })
}

// TestNodeThatStopsKeepsItsRequests: one of two nodes behind HAProxy is told to stop. It gets no new requests, and those that it has end as usual.
func TestNodeThatStopsKeepsItsRequests(t *testing.T) {
	t.Parallel()
	p := newTwoNodes(t)
	answers := make(chan error, 10)
	for i := range cap(answers) { // the proxy takes turns, so that the first node gets some
		name := fmt.Sprint("stop", i)
		go func() {
			_, err := p.peer().Send(t.Context(), load.SendBody(name, "wait "+name, false))
			answers <- err
		}()
		await.Receive(t, p.agent.gate(name).asked, "the agent to be asked")
	}
	if p.accepted() == 0 {
		t.Fatal("the first node has no request")
	}

	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the proxy sees that the node is not ready", func() bool { return strings.Contains(p.printed(), "Server inbox/node1") })
	before := p.accepted()
	for i := range 10 {
		if _, err := p.peer().Send(t.Context(), load.SendBody(fmt.Sprint("later", i), "hello", true)); err != nil {
			t.Errorf("a request after that: %v", err)
		}
	}
	if p.accepted() != before {
		t.Error("a node that stops gets new requests")
	}
	for i := range cap(answers) {
		close(p.agent.gate(fmt.Sprint("stop", i)).open)
	}
	for range cap(answers) {
		if err := await.Receive(t, answers, "the answers"); err != nil {
			t.Errorf("a request of before: %v", err)
		}
	}
}

// newTwoNodes starts two nodes of one database behind HAProxy. The first one is the server of the result; its clients have time until it stops.
func newTwoNodes(t *testing.T) *proxied {
	t.Helper()
	ranWith(t, "haproxy", debianPackage("haproxy"))
	database := emptyPostgres(t)
	p := &proxied{t: t, agent: newPromptedAgent(t, "helper"), roots: x509.NewCertPool()}
	p.plain, p.https, p.server80, p.rpcs, p.other80, p.otherRPCs = freeAddress(t), freeAddress(t), freeAddress(t), freeAddress(t), freeAddress(t), freeAddress(t)
	p.http = p.client(false) // which repeats no message by itself
	settings := instance.Settings{Database: database, HTTP: p.server80, Domain: proxiedHost, Agents: p.agent.table, Drain: "1h"}
	p.server = start(t, settings)
	settings.HTTP = p.other80
	other := start(t, settings)
	t.Cleanup(func() { _ = errors.Join(p.Kill(), other.Kill()) }) // they would wait for their clients
	p.token = p.peerToken("world")
	p.startProxy(p.haproxy())
	return p
}

// peer is a client of A2A that comes through the proxy.
func (p *proxied) peer() load.A2APeer {
	return load.A2APeer{URL: "https://" + proxiedHost + "/a2a/helper", Token: p.token, Client: p.http}
}

// accepted is how many messages the node has taken.
func (p *proxied) accepted() int { return strings.Count(p.Log(), "message accepted") }

// proxied is a server behind a proxy.
type proxied struct {
	*server
	t         *testing.T
	directory string // of the proxy, which belongs to its user
	roots     *x509.CertPool
	agent     *promptedAgent
	community *fediverse
	token     string
	http      *http.Client

	plain, https          string // where the proxy listens
	server80, admin, rpcs string // where the server does
	other80, otherRPCs    string // where the second node is, which is down unless a test starts it
}

func (p *proxied) in(t *testing.T, client *http.Client) *proxied {
	other, community := *p, *p.community
	community.t = t
	other.t, other.http, other.community = t, client, &community
	return &other
}

var settingsOfPage = regexp.MustCompile("(?s)```toml\n(.*?)```")

// newProxied starts a server with the settings that the page has, on free ports.
func newProxied(t *testing.T) *proxied {
	t.Helper()
	p := &proxied{t: t, agent: newPromptedAgent(t, "helper"), community: startFediverse(t, 1), roots: x509.NewCertPool()}
	p.plain, p.https, p.server80, p.admin, p.rpcs = freeAddress(t), freeAddress(t), freeAddress(t), freeAddress(t), freeAddress(t)
	p.other80, p.otherRPCs = freeAddress(t), freeAddress(t)

	page, err := os.ReadFile(filepath.Join("..", "docs", "ops", "proxies.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := settingsOfPage.FindSubmatch(page)
	if block == nil {
		t.Fatal("docs/ops/proxies.md has no settings")
	}
	s := newServer(t, instance.Settings{HTTP: p.server80, Agents: p.agent.table})
	storeKeys(t, s.Instance)
	settings := fmt.Sprintf("data_dir = %q\ndrain = \"0s\"\n%s\n[log]\naccess = true\n[smtp]\nlisten = \"off\"\n[federation]\nallow_private = true\n%s",
		filepath.Join(s.Directory, "data"), p.replaced(string(block[1])), p.agent.table)
	if err := os.WriteFile(s.ConfigFile(), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	s.start()
	t.Cleanup(s.stop)
	p.server, p.token = s, s.peerToken("world")
	p.http = p.client(true)
	return p
}

// replaced puts the test's ports into a text of docs/ops. Each of them has to be there.
func (p *proxied) replaced(text string, pairs ...string) string {
	p.t.Helper()
	pairs = append(pairs, "127.0.0.1:8080", p.server80, "127.0.0.1:8082", p.rpcs)
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			p.t.Errorf("%q is not in\n%s", pairs[i], text)
		}
	}
	return strings.NewReplacer(append(pairs, "127.0.0.1:8081", p.admin)...).Replace(text)
}

// guide is a file of docs/ops with the test's ports, in the directory of the proxy.
func (p *proxied) guide(name string, pairs ...string) string {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "docs", "ops", name))
	if err != nil {
		p.t.Fatal(err)
	}
	return p.write(name, p.replaced(string(text), append(pairs, "10.0.0.12:8080", p.other80, "10.0.0.12:8082", p.otherRPCs)...))
}

func (p *proxied) write(name, text string) string {
	p.t.Helper()
	file := filepath.Join(p.directory, name)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		p.t.Fatal(err)
	}
	return file
}

// prepare makes the directory of a proxy that runs as the user nobody.
func (p *proxied) prepare() {
	p.t.Helper()
	var err error
	if p.directory, err = os.MkdirTemp("", "inbox-proxy-"); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = os.RemoveAll(p.directory) })
	p.give(p.directory)
}

// give lets the user of the proxy have a file.
func (p *proxied) give(file string) {
	p.t.Helper()
	if os.Geteuid() != 0 {
		return // everything is that of the one who runs the test
	}
	if err := os.Chown(file, nobody, nobody); err != nil {
		p.t.Fatal(err)
	}
}

// certificate issues one for the server's name: the chain, the key, and both in one file.
func (p *proxied) certificate() (chain, key, both string) {
	p.t.Helper()
	authority := newAuthority(p.t, "Authority of "+p.t.Name()[strings.LastIndexByte(p.t.Name(), '/')+1:])
	p.trust(authority.File)
	chainFile, keyFile := issue(p.t, authority, proxiedHost)
	var texts [2]string
	for i, file := range []string{chainFile, keyFile} {
		text, err := os.ReadFile(file)
		if err != nil {
			p.t.Fatal(err)
		}
		texts[i] = string(text)
	}
	return p.write("chain.pem", texts[0]), p.write("key.pem", texts[1]), p.write("both.pem", texts[0]+texts[1])
}

func (p *proxied) trust(file string) {
	p.t.Helper()
	root, err := os.ReadFile(file)
	if err != nil || !p.roots.AppendCertsFromPEM(root) {
		p.t.Fatalf("read the root of the proxy's certificate: %v", err)
	}
}

// caddy gets its certificate from an authority of its own in the place of one on the internet.
func (p *proxied) caddy() *exec.Cmd {
	p.prepare()
	site := p.guide("Caddyfile")
	_, plain, _ := net.SplitHostPort(p.plain)
	_, https, _ := net.SplitHostPort(p.https)
	main := p.write("main", fmt.Sprintf("{\n\tadmin off\n\tlocal_certs\n\tskip_install_trust\n\tdefault_bind 127.0.0.1\n\thttp_port %s\n\thttps_port %s\n\tstorage file_system %s/storage\n}\nimport %s\n",
		plain, https, p.directory, site))
	return exec.Command("caddy", "run", "--adapter", "caddyfile", "--config", main)
}

func (p *proxied) nginx() *exec.Cmd {
	p.prepare()
	chain, key, _ := p.certificate()
	site := p.guide("nginx.conf", "listen 80", "listen "+p.plain, "listen 443", "listen "+p.https, "    listen [::]:80;\n", "", "    listen [::]:443 ssl http2;\n", "",
		"/etc/letsencrypt/live/agents.example/fullchain.pem", chain, "/etc/letsencrypt/live/agents.example/privkey.pem", key)
	temporary := ""
	for _, one := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		temporary += fmt.Sprintf("%s_temp_path %s/%[1]s;\n", one, p.directory)
	}
	// access_log is that of Debian's file, into which the site is included. One process ends whole.
	main := p.write("main", fmt.Sprintf("daemon off;\nmaster_process off;\npid %s/pid;\nevents {}\nhttp {\n%saccess_log /dev/stderr;\ninclude %s;\n}\n", p.directory, temporary, site))
	return exec.Command("nginx", "-p", p.directory, "-e", "stderr", "-c", main)
}

func (p *proxied) haproxy() *exec.Cmd {
	p.prepare()
	_, _, both := p.certificate()
	site := p.guide("haproxy.cfg", ":80,[::]:80 v6only", p.plain, ":443,[::]:443 v6only", p.https, "/etc/haproxy/certs/agents.example.pem", both)
	// What stands in Debian's file before.
	main := p.write("main", "global\n    log stdout format raw local0\ndefaults\n    log global\n    mode http\n    option httplog\n")
	return exec.Command("haproxy", "-db", "-f", main, "-f", site)
}

// startProxy runs it as a user without rights and waits until it listens.
func (p *proxied) startProxy(command *exec.Cmd) {
	p.t.Helper()
	if found, err := exec.LookPath("/usr/sbin/" + command.Args[0]); err == nil {
		command.Path, command.Err = found, nil // where a user's PATH does not lead
	}
	command.Dir, command.Env = p.directory, []string{"HOME=" + p.directory, "PATH=/usr/sbin:/usr/bin"}
	log, err := os.Create(filepath.Join(p.directory, "log"))
	if err != nil {
		p.t.Fatal(err)
	}
	defer log.Close()
	command.Stdout, command.Stderr = log, log
	if os.Geteuid() == 0 {
		entries, err := os.ReadDir(p.directory)
		if err != nil {
			p.t.Fatal(err)
		}
		for _, entry := range entries {
			p.give(filepath.Join(p.directory, entry.Name()))
		}
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	if err := children.Start(command); err != nil {
		p.t.Fatalf("start %s (a Debian package; scripts/install-test-dependencies): %v", command.Args[0], err)
	}
	ended := make(chan struct{})
	go func() {
		_ = command.Wait()
		close(ended)
	}()
	p.t.Cleanup(func() {
		_ = command.Process.Kill()
		<-ended
		if p.t.Failed() {
			p.t.Logf("the proxy printed:\n%s\nlog of the server:\n%s", tail(p.printed(), 8<<10), tail(p.Log(), 16<<10))
		}
	})
	eventually(p.t, "the proxy listens", func() bool {
		select {
		case <-ended:
			p.t.Fatalf("the proxy ended:\n%s", p.printed())
		default:
		}
		connection, err := net.Dial("tcp", p.https)
		if err == nil {
			_ = connection.Close()
		}
		return err == nil
	})
	if command.Args[0] == "caddy" {
		root := filepath.Join(p.directory, "storage", "pki", "authorities", "local", "root.crt")
		eventually(p.t, "the certificate of Caddy", func() bool { _, err := os.Stat(root); return err == nil })
		p.trust(root)
		eventually(p.t, "Caddy shows its certificate", func() bool {
			connection, err := tls.Dial("tcp", p.https, &tls.Config{ServerName: proxiedHost, RootCAs: p.roots})
			if err == nil {
				_ = connection.Close()
			}
			return err == nil
		})
	}
}

// printed is all that the proxy wrote.
func (p *proxied) printed() string {
	text, err := os.ReadFile(filepath.Join(p.directory, "log"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// dial leads the names of the world to the proxy.
func (p *proxied) dial(ctx context.Context, network, address string) (net.Conn, error) {
	switch _, port, _ := net.SplitHostPort(address); port {
	case "443":
		address = p.https
	case "80":
		address = p.plain
	}
	return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(proxyClient)}}).DialContext(ctx, network, address)
}

// client is one of the world, which comes through the proxy.
func (p *proxied) client(second bool) *http.Client {
	var protocols http.Protocols
	protocols.SetHTTP1(!second)
	protocols.SetHTTP2(second)
	transport := &http.Transport{DialContext: p.dial, TLSClientConfig: &tls.Config{RootCAs: p.roots}, Protocols: &protocols}
	p.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// ask sends a request through the proxy and returns the answer whole.
func (p *proxied) ask(method, path, body string, header map[string]string) (*http.Response, string) {
	p.t.Helper()
	response, err := p.http.Do(p.request(method, path, body, header))
	if err != nil {
		p.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatalf("%s %s: %v", method, path, err)
	}
	return response, string(content)
}

func (p *proxied) request(method, path, body string, header map[string]string) *http.Request {
	p.t.Helper()
	request, err := http.NewRequest(method, "https://"+proxiedHost+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+p.token)
	request.Header.Set("Content-Type", "application/json")
	for name, value := range header {
		request.Header.Set(name, value)
	}
	return request
}

// mention: what the fediverse signs (host, path with query, digest) arrives as it was sent, and a body that was changed does not pass.
func (p *proxied) mention() {
	p.t.Helper()
	person := p.community.Persons[0]
	actor := "https://" + proxiedHost + "/agents/helper"
	for path, want := range map[string]int{"/inbox": 202, "/inbox?a=%2F%7E&b=c+d": 202} {
		mention := person.Mention(actor, p.t.Name()+path, "hello through a proxy")
		request := delivery(p.t, person, actor+path, mention, load.Signature{})
		if got := p.status(request); got != want {
			p.t.Fatalf("a signed mention to %s is answered %d, want %d", path, got, want)
		}
		if reply := p.community.reply(mention); !strings.Contains(reply, "hello through a proxy") {
			p.t.Errorf("the reply is %s", reply)
		}
	}

	forged := delivery(p.t, person, actor+"/inbox", person.Mention(actor, p.t.Name()+"forged", "obey"), load.Signature{})
	forged.Host = "other.example"
	if got := p.status(forged); got == http.StatusAccepted {
		p.t.Error("a mention that was signed for another host is accepted")
	}
}

func (p *proxied) status(request *http.Request) int {
	p.t.Helper()
	response, err := p.http.Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// streams: the beginning of an answer is read while the agent holds its end back.
func (p *proxied) streams() {
	p.t.Helper()
	for what, test := range map[string]struct{ path, body string }{
		"A2A":  {"/a2a/helper", `{"jsonrpc":"2.0","id":1,"method":"SendStreamingMessage","params":{"message":{"messageId":%q,"role":"ROLE_USER","parts":[{"text":"slowly %[1]s"}]}}}`},
		"chat": {"/v1/chat/completions", `{"model":"helper","stream":true,"messages":[{"role":"user","content":"slowly %s"}]}`},
	} {
		gate := what + strings.NewReplacer("/", "-", ".", "-").Replace(p.t.Name())
		body := fmt.Sprintf(strings.Replace(test.body, "%s", "%[1]s", 1), gate)
		response, err := p.http.Do(p.request(http.MethodPost, test.path, body, map[string]string{"A2A-Version": "1.0"}))
		if err != nil {
			p.t.Fatalf("%s: %v", what, err)
		}
		lines := bufio.NewReader(response.Body)
		until := func(text string) {
			p.t.Helper()
			await.Done(p.t, func() {
				for line := ""; !strings.Contains(line, text); {
					if line, err = lines.ReadString('\n'); err != nil {
						p.t.Errorf("the stream of %s ends before %q: %v", what, text, err)
						return
					}
				}
			}, text+" in the stream of "+what)
		}
		until("The beginning")
		close(p.agent.gate(gate).open)
		until("and the end")
		_ = response.Body.Close()
	}
}

// bodies: the largest request passes, and one byte more is refused by the server, in its form.
func (p *proxied) bodies() {
	p.t.Helper()
	const ask = `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":%q,"role":"ROLE_USER","parts":[{"text":"large"}]},"configuration":{"returnImmediately":true}}}`
	for _, size := range []int{largestOfA2A, largestOfA2A + 1} {
		body := fmt.Sprintf(ask, fmt.Sprint("large", size))
		body += strings.Repeat(" ", size-len(body))
		response, answer := p.ask(http.MethodPost, "/a2a/helper", body, map[string]string{"A2A-Version": "1.0"})
		want := map[int]int{largestOfA2A: http.StatusOK, largestOfA2A + 1: http.StatusRequestEntityTooLarge}[size]
		if response.StatusCode != want || !json.Valid([]byte(answer)) || response.Header.Get("X-Request-Id") == "" {
			p.t.Errorf("a request of %d bytes is answered %d %v %.200s, want %d", size, response.StatusCode, response.Header, answer, want)
		}
	}
}

// unsent: a body reaches the server as it arrives, so that it can refuse the request before. A proxy that gathers bodies would wait for it.
func (p *proxied) unsent() {
	p.t.Helper()
	body, sender := io.Pipe()
	request := p.request(http.MethodPost, "/nowhere", "", nil)
	request.Body, request.ContentLength = body, 1<<20
	response, err := p.http.Do(request)
	_ = sender.Close()
	if err != nil {
		p.t.Fatalf("a request whose body is not sent: %v", err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusNotFound || response.Header.Get("X-Request-Id") == "" {
		p.t.Errorf("a request whose body is not sent is answered %d %v", response.StatusCode, response.Header)
	}
}

// grpc: the binding of A2A that has a listener of its own is at the same name.
func (p *proxied) grpc() {
	p.t.Helper()
	connection, err := grpc.NewClient("passthrough:///"+proxiedHost+":443", grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: p.roots, ServerName: proxiedHost})),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return p.dial(ctx, "tcp", address) }))
	if err != nil {
		p.t.Fatal(err)
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(p.t.Context(), "authorization", "Bearer "+p.token, "a2a-version", "1.0"), patience)
	defer cancel()
	stream, err := pb.NewA2AServiceClient(connection).SendStreamingMessage(ctx, &pb.SendMessageRequest{
		Tenant: "helper", Message: &pb.Message{MessageId: "grpc", Role: pb.Role_ROLE_USER, Parts: []*pb.Part{{Content: &pb.Part_Text{Text: "slowly grpc"}}}},
	})
	if err != nil {
		p.t.Fatal(err)
	}
	said := ""
	until := func(text string) {
		p.t.Helper()
		for !strings.Contains(said, text) {
			event, err := stream.Recv()
			if err != nil {
				p.t.Fatalf("the stream of gRPC ends before %q: %v", text, err)
			}
			said += event.String()
		}
	}
	until("The beginning")
	close(p.agent.gate("grpc").open)
	until("and the end")
}

// addresses: the server counts by the client of the proxy, which cannot choose its address; who comes to the server itself is not believed.
func (p *proxied) addresses() {
	p.t.Helper()
	forged := map[string]string{"X-Forwarded-For": claimed, "Forwarded": "for=" + claimed, "X-Real-Ip": claimed}
	p.ask(http.MethodGet, "/agents/helper", "", forged)

	request, err := http.NewRequest(http.MethodGet, "http://"+p.server80+"/agents/helper", http.NoBody)
	if err != nil {
		p.t.Fatal(err)
	}
	for name, value := range forged {
		request.Header.Set(name, value)
	}
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(stranger)}}
	direct := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
	response, err := direct.Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	_ = response.Body.Close()

	seen := map[string]bool{}
	for line := range strings.Lines(p.Log()) {
		// The test asks for /readyz and the server itself for WebFinger, both without the proxy.
		if strings.Contains(line, "msg=request") && !strings.Contains(line, "route=/readyz") && !strings.Contains(line, "route=/.well-known/webfinger") {
			_, client, _ := strings.Cut(line, "client=")
			seen[strings.Fields(client)[0]] = true
		}
	}
	if len(seen) != 2 || !seen[proxyClient] || !seen[stranger] {
		p.t.Errorf("the server saw the clients %v, want %s and %s", seen, proxyClient, stranger)
	}
}

// closed: the operator's routes are not at the name, plain HTTP leads to https, and no path is in the log of the proxy.
func (p *proxied) closed() {
	p.t.Helper()
	operator := map[string]string{"Authorization": "Bearer " + p.adminToken()}
	for path, want := range map[string]int{"/metrics": 404, "/api/v1/held": 404, "/healthz": 200} {
		if response, answer := p.ask(http.MethodGet, path, "", operator); response.StatusCode != want {
			p.t.Errorf("%s through the proxy: %d %.200s, want %d", path, response.StatusCode, answer, want)
		}
	}
	if !answersOK("http://" + p.admin + "/metrics") {
		p.t.Error("/metrics is not at admin.listen")
	}

	plain := &http.Client{Transport: &http.Transport{DialContext: p.dial}, CheckRedirect: p.http.CheckRedirect, Timeout: patience}
	response, err := plain.Get("http://" + proxiedHost + "/policy/secret-of-the-path?a=b")
	if err != nil {
		p.t.Fatal(err)
	}
	_ = response.Body.Close()
	plain.CloseIdleConnections()
	place, err := url.Parse(response.Header.Get("Location"))
	if err != nil || response.StatusCode != http.StatusPermanentRedirect || place.Scheme != "https" || place.Hostname() != proxiedHost || place.RequestURI() != "/policy/secret-of-the-path?a=b" {
		p.t.Errorf("plain HTTP is answered %d %s", response.StatusCode, place)
	}
	p.ask(http.MethodGet, "/policy/secret-of-the-path", "", nil)
	if strings.Contains(p.printed(), "secret-of-the-path") {
		p.t.Errorf("a path is in the log of the proxy:\n%s", p.printed())
	}
}
