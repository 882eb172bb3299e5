package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"inbox/e2e/load"
	"inbox/e2e/postfix"
	"inbox/internal/await"
	"inbox/internal/children"
	"inbox/internal/peer"
)

// The hosts of a small internet: public addresses, which exist in network namespaces of the test alone.
const (
	internetNames     = "45.80.0.53"
	internetSocial    = "45.80.0.20"
	internetMail      = "45.80.0.25"
	internetAuthority = "45.80.0.99"
	internetDatabase  = "45.80.0.5"
	internetNetwork   = "/24"

	socialHost = "social.example"
	mailDomain = "sender.example"
)

// Variables of the process that lives inside.
const (
	insideInternet = "INBOX_TEST_INTERNET" // directory for what comes in from outside
	databaseSocket = "database.socket"
	databaseFile   = "database.url"
)

// onInternet runs a test in a process with a network and a resolv.conf of its own, where the well-known ports are free and names and
// addresses are those of the world. It needs the rights of root, as Postfix does.
func onInternet(t *testing.T, database string, test func(*internet)) {
	t.Helper()
	if directory := os.Getenv(insideInternet); directory != "" {
		test(openInternet(t, directory))
		return
	}

	t.Parallel()
	if os.Geteuid() != 0 {
		t.Fatal("network namespaces are made by root only; run this as root")
	}
	binary, err := built()
	if err != nil {
		t.Fatal(err)
	}
	authority, err := builtPebble()
	if err != nil {
		t.Fatal(err)
	}

	directory := t.TempDir()
	for name, program := range map[string]string{"inbox": binary, "pebble": authority} {
		if err := os.Symlink(program, filepath.Join(directory, name)); err != nil {
			t.Fatal(err)
		}
	}
	if database != "" {
		bringDatabase(t, directory, database)
	}

	var output bytes.Buffer
	pattern := "^" + strings.ReplaceAll(t.Name(), "/", "$/^") + "$"
	inside := exec.Command(os.Args[0], "-test.run", pattern, "-test.v", "-test.timeout", "8m")
	inside.Env = append(os.Environ(), insideInternet+"="+directory)
	inside.Stdout, inside.Stderr = &output, &output
	inside.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	if err := children.Start(inside); err != nil {
		t.Fatalf("start a process with a network of its own: %v", err)
	}
	err = inside.Wait()
	if testing.Verbose() || err != nil {
		t.Logf("%s", output.String())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// bringDatabase makes PostgreSQL reachable from inside, by a socket in the file system.
func bringDatabase(t *testing.T, directory, database string) {
	t.Helper()
	place, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", filepath.Join(directory, databaseSocket))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go relay(listener, "tcp", place.Host)

	place.Host = net.JoinHostPort(internetDatabase, "5432")
	if err := os.WriteFile(filepath.Join(directory, databaseFile), []byte(place.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// relay copies between each connection and one of its own until the listener is closed.
func relay(listener net.Listener, network, address string) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial(network, address)
		if err != nil {
			_ = client.Close()
			continue
		}
		for _, pair := range [][2]net.Conn{{client, server}, {server, client}} {
			go func() {
				_, _ = io.Copy(pair[0], pair[1])
				_ = pair[0].Close()
			}()
		}
	}
}

// internet is a name server, a certificate authority, a server of the fediverse and one of mail, and machines for servers of ours.
type internet struct {
	t         *testing.T
	directory string
	database  string // URL; empty = SQLite
	names     *load.Names
	trusted   *load.Authority // whose certificates the world has
	authority *pebble
	bundle    string // file with the roots that everybody trusts

	social  *peer.Fediverse
	told    *requests // what servers of ours have asked and told it
	postfix *postfix.Postfix
	mailKey load.MailDomain
}

func openInternet(t *testing.T, directory string) *internet {
	t.Helper()
	built = func() (string, error) { return filepath.Join(directory, "inbox"), nil }
	builtPebble = func() (string, error) { return filepath.Join(directory, "pebble"), nil }
	w := &internet{t: t, directory: directory}
	w.cover("/etc", "/usr/local", "/var/lib")
	w.connect()
	w.openNames()
	w.trusted = newAuthority(t, "Authority of the world")
	return w
}

// run runs a program of the machine that has to succeed.
func (w *internet) run(program string, arguments ...string) {
	w.t.Helper()
	if output, err := exec.CommandContext(context.WithoutCancel(w.t.Context()), program, arguments...).CombinedOutput(); err != nil {
		w.t.Fatalf("%s %s: %v\n%s", program, strings.Join(arguments, " "), err, output)
	}
}

// cover lays a file system in memory over directories of the machine: what the test writes there is gone with its processes.
func (w *internet) cover(directories ...string) {
	w.t.Helper()
	memory := w.t.TempDir()
	w.run("mount", "-t", "tmpfs", "tmpfs", memory)
	for i, directory := range directories {
		upper, work := fmt.Sprintf("%s/upper%d", memory, i), fmt.Sprintf("%s/work%d", memory, i)
		w.run("mkdir", upper, work)
		w.run("mount", "-t", "overlay", "overlay", "-o", "lowerdir="+directory+",upperdir="+upper+",workdir="+work, directory)
	}
	w.t.Cleanup(func() {
		for _, place := range append(directories, memory) {
			w.run("umount", "--lazy", place)
		}
	})
}

// connect makes the bridge to which all machines are connected, and the addresses of the world.
func (w *internet) connect() {
	w.t.Helper()
	w.run("ip", "link", "set", "lo", "up")
	// With an address of its own: a bridge without one takes the lowest of its ports, so that each new machine may change it, and those that
	// have learned the old one are unheard until they ask again, half a minute later.
	w.run("ip", "link", "add", "world", "address", "02:00:45:80:00:01", "type", "bridge")
	w.run("ip", "link", "set", "world", "up")
	for _, address := range []string{internetNames, internetSocial, internetMail, internetAuthority, internetDatabase} {
		w.run("ip", "address", "add", address+internetNetwork, "dev", "world")
	}

	socket := filepath.Join(w.directory, databaseSocket)
	if place, err := os.ReadFile(filepath.Join(w.directory, databaseFile)); err == nil {
		listener, err := net.Listen("tcp", net.JoinHostPort(internetDatabase, "5432"))
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { _ = listener.Close() })
		go relay(listener, "unix", socket)
		w.database = string(place)
	}
}

// openNames starts the name server that everybody asks.
func (w *internet) openNames() {
	w.t.Helper()
	names, err := load.NewNames()
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(names.Close)
	w.names = names
	if err := names.ServeAt(internetNames); err != nil {
		w.t.Fatal(err)
	}

	file := filepath.Join(w.t.TempDir(), "resolv.conf")
	if err := os.WriteFile(file, []byte("nameserver "+internetNames+"\n"), 0o644); err != nil {
		w.t.Fatal(err)
	}
	w.run("mount", "--bind", file, "/etc/resolv.conf")
	w.publish(
		"%s. 60 IN A "+internetSocial, socialHost, "%s. 60 IN A "+internetAuthority, authorityName,
		"%s. 60 IN MX 10 mx.sender.example.", mailDomain, "mx.%s. 60 IN A "+internetMail, mailDomain,
	)
}

// publish writes records: pairs of a form and its value.
func (w *internet) publish(pairs ...string) {
	w.t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if err := w.names.Set(fmt.Sprintf(pairs[i], pairs[i+1])); err != nil {
			w.t.Fatal(err)
		}
	}
}

// publishPrinted writes the records that `inbox dns --json` printed.
func (w *internet) publishPrinted(document string) {
	w.t.Helper()
	var records []struct{ Name, Type, Value string }
	if err := decodeList(document, &records); err != nil || len(records) == 0 {
		w.t.Fatalf("records: %v\n%s", err, document)
	}
	for _, record := range records {
		name := strings.TrimSuffix(record.Name, ".") + "."
		switch record.Type {
		case "TXT":
			w.names.SetTXT(name, record.Value)
		case "A", "AAAA", "PTR":
		default:
			w.publish("%s", fmt.Sprintf("%s 60 IN %s %s", name, record.Type, record.Value))
		}
	}
}

// openAuthority starts the certificate authority, and tells the world of its root.
func (w *internet) openAuthority(life time.Duration) {
	w.t.Helper()
	w.authority = startAuthority(w.t, w.trusted, authoritySettings{
		listen: net.JoinHostPort(internetAuthority, "443"), managed: net.JoinHostPort(internetAuthority, "15000"),
		names: net.JoinHostPort(internetNames, "53"), plainHTTP: 80, https: 443, life: life,
	})

	w.trust(w.authority.root()...)
}

// trust makes the authority of the world, and others, those that every program of the world believes.
func (w *internet) trust(others ...byte) {
	w.t.Helper()
	own, err := os.ReadFile(w.trusted.File)
	if err != nil {
		w.t.Fatal(err)
	}
	w.bundle = "/etc/ssl/world.pem" // for every user, as those of the system are
	if err := os.WriteFile(w.bundle, append(own, others...), 0o644); err != nil {
		w.t.Fatal(err)
	}
	w.t.Setenv("SSL_CERT_FILE", w.bundle) // before this process trusts anyone
}

// openSocial starts a server of the fediverse behind a proxy that has its certificate.
func (w *internet) openSocial() {
	w.t.Helper()
	var err error
	if w.social, err = peer.NewFediverse(peer.FediverseOptions{Host: socialHost}); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = w.social.Close() })

	certificate, key := issue(w.t, w.trusted, socialHost)
	listener, err := net.Listen("tcp", net.JoinHostPort(internetSocial, "443"))
	if err != nil {
		w.t.Fatal(err)
	}
	w.told = &requests{next: httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: w.social.Listen()})}
	server := &http.Server{Handler: w.told, ReadHeaderTimeout: patience}
	w.t.Cleanup(func() { _ = server.Close() })
	go func() { _ = server.ServeTLS(listener, certificate, key) }()
}

// requests keeps what comes before it hands it on.
type requests struct {
	next http.Handler

	mu   sync.Mutex
	kept []string // heads and bodies, as on the wire
}

func (r *requests) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	text, err := httputil.DumpRequest(request, true)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	r.kept = append(r.kept, string(text))
	r.mu.Unlock()
	r.next.ServeHTTP(w, request)
}

func (r *requests) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.kept)
}

// openMail starts a Postfix with the mailbox ann@sender.example. It brings mail only to servers whose certificate it believes.
func (w *internet) openMail() {
	w.t.Helper()
	key, err := load.NewKey()
	if err != nil {
		w.t.Fatal(err)
	}
	w.mailKey = load.MailDomain{Name: mailDomain, Selector: "load", Key: key}
	w.names.SetTXT(w.mailKey.Record())
	w.names.SetTXT(mailDomain, "v=spf1 ip4:"+internetMail+" -all")
	w.names.SetTXT("_dmarc."+mailDomain, "v=DMARC1; p=reject")

	directory, err := postfix.NewDirectory("")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = os.RemoveAll(directory) })
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	milter, err := postfix.StartMilter(ctx, directory, postfix.MilterSettings{
		Address: "127.0.0.1:8891", Resolver: internetNames, Signs: mailDomain, Selector: w.mailKey.Selector, Key: key,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(milter.Stop)

	boxes := filepath.Join(directory, "mail")
	if err := os.Mkdir(boxes, 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Chown(boxes, nobody, nobody); err != nil {
		w.t.Fatal(err)
	}
	table := filepath.Join(directory, "mailboxes")
	if err := os.WriteFile(table, []byte("ann@"+mailDomain+" ann/\n"), 0o644); err != nil {
		w.t.Fatal(err)
	}

	certificate, private := issue(w.t, w.trusted, "mx."+mailDomain)
	const listener = " inet n - n - - smtpd"
	w.postfix, err = postfix.New(directory, postfix.Settings{
		Hostname: "mx." + mailDomain, Resolver: internetNames,
		Main: []string{
			"inet_interfaces = 127.0.0.1, " + internetMail,
			"smtp_bind_address = " + internetMail,
			"virtual_mailbox_domains = " + mailDomain,
			"virtual_mailbox_base = " + boxes,
			"virtual_mailbox_maps = texthash:" + table,
			fmt.Sprintf("virtual_uid_maps = static:%d", nobody),
			fmt.Sprintf("virtual_gid_maps = static:%d", nobody),
			"smtp_tls_security_level = verify", // by the name in the MX record, as MTA-STS does
			"smtp_tls_servername = hostname",   // likewise (RFC 8461, section 4.1)
			"smtp_tls_CAfile = " + w.bundle,
			"smtp_tls_loglevel = 1",
			"smtpd_tls_security_level = may",
			"smtpd_tls_cert_file = " + certificate,
			"smtpd_tls_key_file = " + private,
			"mynetworks = 127.0.0.0/8",
			"smtpd_relay_restrictions = permit_mynetworks, reject_unauth_destination",
			"smtpd_milters = inet:" + milter.Address,
			"milter_default_action = tempfail",
			"queue_run_delay = 1s",
			"minimal_backoff_time = 1s",
			"maximal_backoff_time = 2s",
		},
		Services: []string{
			"127.0.0.1:587" + listener + " -o milter_macro_daemon_name=ORIGINATING",
			internetMail + ":25" + listener,
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.postfix.Start(ctx); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := w.postfix.Stop(); err != nil {
			w.t.Error(err)
		}
		if w.t.Failed() {
			w.t.Logf("log of Postfix:\n%s", tail(w.postfix.Log(), 16<<10))
		}
	})
}

// letters are the mails in ann's mailbox.
func (w *internet) letters() []load.Received {
	w.t.Helper()
	return readMailbox(w.t, filepath.Join(w.postfix.Directory, "mail", "ann", "new"))
}

// machine is a host of the operator, in a namespace of its own.
type machine struct {
	w         *internet
	directory string
	address   string
	id        string   // of the process that holds the namespace
	world     []string // variables that every program of the world has
	variables []string // those of commands
}

// newMachine connects a machine to the world.
func (w *internet) newMachine(address string) *machine {
	w.t.Helper()
	holder := exec.Command("sleep", "infinity")
	holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := children.Start(holder); err != nil {
		w.t.Fatalf("make a network namespace: %v", err)
	}
	w.t.Cleanup(func() {
		_ = holder.Process.Kill()
		_ = holder.Wait()
	})

	m := &machine{w: w, directory: w.t.TempDir(), address: address, id: strconv.Itoa(holder.Process.Pid)}
	link := "to" + address[strings.LastIndexByte(address, '.')+1:]
	w.run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", m.id)
	w.run("ip", "link", "set", link, "master", "world", "up")
	for _, command := range []string{"link set lo up", "address add " + address + internetNetwork + " dev eth0", "link set eth0 up"} {
		w.run("nsenter", append([]string{"-t", m.id, "-n", "ip"}, strings.Fields(command)...)...)
	}

	m.variables = append(os.Environ(), "PATH="+w.directory+":"+os.Getenv("PATH"), "SSL_CERT_FILE="+w.bundle, "CURL_CA_BUNDLE="+w.bundle)
	if w.authority != nil {
		m.variables = append(m.variables, "INBOX_ACME_DIRECTORY="+w.authority.directory)
	}
	if w.database != "" {
		w.run("mkdir", "-p", "-m", "777", "/var/lib/inbox-files") // that nodes share
		m.variables = append(m.variables, "INBOX_DATABASE_URL="+w.database, "INBOX_ACME_CHECK_EVERY=1s", "INBOX_BLOB_URL=file:///var/lib/inbox-files")
	}
	m.world = slices.Clone(m.variables)
	return m
}

// command is a script for the shell of the machine.
func (m *machine) command(ctx context.Context, script string) *exec.Cmd {
	command := exec.CommandContext(ctx, "nsenter", "-t", m.id, "-n", "bash", "-euc", script)
	command.Dir, command.Env = m.directory, m.variables
	return command
}

// sh runs a script that has to succeed, and returns what it printed.
func (m *machine) sh(script string) string {
	m.w.t.Helper()
	ctx, cancel := context.WithTimeout(m.w.t.Context(), 90*time.Second)
	defer cancel()
	var output, problems bytes.Buffer
	command := m.command(ctx, script)
	command.Stdout, command.Stderr = &output, &problems
	if err := command.Run(); err != nil {
		m.w.t.Fatalf("%s\n%v\n%s%s", script, err, output.String(), problems.String())
	}
	return output.String()
}

// fails runs a script that has to fail, with words on standard error.
func (m *machine) fails(script, words string) {
	m.w.t.Helper()
	ctx, cancel := context.WithTimeout(m.w.t.Context(), patience)
	defer cancel()
	if output, err := m.command(ctx, script).CombinedOutput(); err == nil || !strings.Contains(string(output), words) {
		m.w.t.Errorf("%s: %v\n%s\nwant a failure that says %q", script, err, output, words)
	}
}

// launched is a program that goes on beside the test.
type launched struct {
	script string
	file   string
	ended  chan struct{} // closed when the program is gone

	process *os.Process
}

// log is what the program has printed so far.
func (l *launched) log() string {
	text, err := os.ReadFile(l.file)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// stop ends the program and waits until it is gone.
func (l *launched) stop(t *testing.T) {
	t.Helper()
	if err := l.process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	await.Receive(t, l.ended, "the end of "+l.script)
}

func (l *launched) alive() bool {
	select {
	case <-l.ended:
		return false
	default:
		return true
	}
}

// background starts a script that goes on until the test ends.
func (m *machine) background(script string) *launched {
	m.w.t.Helper()
	file, err := os.CreateTemp(m.w.t.TempDir(), "background-*.log")
	if err != nil {
		m.w.t.Fatal(err)
	}
	command := m.command(context.WithoutCancel(m.w.t.Context()), script)
	command.Stdout, command.Stderr = file, file
	if err := children.Start(command); err != nil {
		m.w.t.Fatal(err)
	}

	l := &launched{script: script, file: file.Name(), ended: make(chan struct{}), process: command.Process}
	go func() {
		_ = command.Wait()
		close(l.ended)
	}()
	m.w.t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		again := time.AfterFunc(time.Second, func() { _ = command.Process.Signal(syscall.SIGTERM) }) // the second ends it at once
		stopped := time.AfterFunc(30*time.Second, func() { _ = command.Process.Kill() })
		<-l.ended
		again.Stop()
		stopped.Stop()
		_ = file.Close()
		if m.w.t.Failed() {
			m.w.t.Logf("%s printed:\n%s", script, tail(l.log(), 32<<10))
		}
	})
	return l
}

// shows waits until a machine has a name's certificate of the authority, and returns its number.
func (m *machine) shows(name string) (serial string) {
	m.w.t.Helper()
	roots := m.w.authority.issuedBy()
	await.Until(m.w.t, "certificate of "+name+" at "+m.address, func() bool {
		serial = presented(net.JoinHostPort(m.address, "443"), name, roots)
		return serial != ""
	})
	return serial
}
