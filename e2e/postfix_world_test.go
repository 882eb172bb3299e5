package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/mail"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/e2e/postfix"
)

// town is a server that brings its mail to the servers of the recipients, and a Postfix with the mailboxes of four domains,
// all of which demand TLS by MTA-STS. OpenDKIM signs what their people write and checks what they get. One name server
// has the records of all; those of inbox.example are what `inbox dns` prints.
type town struct {
	*post
	postfix    *postfix.Postfix
	submission string // where people hand in their mail
}

// The four domains lie on one Postfix, behind an address each, because the port is the same for all.
var districts = []struct{ domain, address, about string }{
	{"sender.example", "127.0.0.1", "everything is right"},
	{"astray.example", "127.0.0.2", "the certificate names another host"},
	{"foreign.example", "127.0.0.3", "nobody believes who issued the certificate"},
	{"clear.example", "127.0.0.4", "there is no TLS"},
}

func newTown(t *testing.T, database string) *town {
	t.Helper()
	names, err := load.NewNames()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(names.Close)
	well, err := names.Well()
	if err != nil {
		t.Fatal(err)
	}
	key, err := load.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	sender := load.MailDomain{Name: "sender.example", Selector: "load", Key: key}
	authority := newAuthority(t, "trusted")
	port := freePort(t)
	certificate, private := issue(t, authority, "mx.inbox.example", "inbox.example")
	settings := instance.Settings{
		Database: database, Domain: "inbox.example", Hostname: "mx.inbox.example", Lease: "2s", DNS: names.Address(), MXPort: port, Agents: agents,
		CertFile: certificate, KeyFile: private, Authority: authority.File, STSPort: servePolicies(t, authority),
	}
	w := &town{post: &post{server: start(t, settings), names: names, sender: sender}}
	w.publish()
	w.settle(authority, well, port)
	return w
}

func newAuthority(t *testing.T, name string) *load.Authority {
	t.Helper()
	authority, err := load.NewAuthority(t.TempDir(), name)
	if err != nil {
		t.Fatal(err)
	}
	return authority
}

func issue(t *testing.T, authority *load.Authority, hosts ...string) (certificate, key string) {
	t.Helper()
	certificate, key, err := authority.Issue(hosts...)
	if err != nil {
		t.Fatal(err)
	}
	return certificate, key
}

func freePort(t *testing.T) int {
	t.Helper()
	return portOf(t, freeAddress(t))
}

func portOf(t *testing.T, address string) int {
	t.Helper()
	resolved, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return resolved.Port
}

// servePolicies serves the MTA-STS policies of all districts and returns the port.
func servePolicies(t *testing.T, authority *load.Authority) int {
	t.Helper()
	var hosts []string
	for _, d := range districts {
		hosts = append(hosts, "mta-sts."+d.domain)
	}
	certificate, err := authority.Certificate(hosts...)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.Host)
		if r.URL.Path != "/.well-known/mta-sts.txt" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/plain")
		_, _ = fmt.Fprintf(w, "version: STSv1\r\nmode: enforce\r\nmx: %s\r\nmax_age: 86400\r\n", "mx."+strings.TrimPrefix(host, "mta-sts."))
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return portOf(t, listener.Addr().String())
}

// publish writes all records.
func (w *town) publish() {
	w.t.Helper()
	set := func(form string, values ...any) {
		w.t.Helper()
		if err := w.names.Set(fmt.Sprintf(form, values...)); err != nil {
			w.t.Fatal(err)
		}
	}
	for _, d := range districts {
		domain := load.MailDomain{Name: d.domain, Selector: w.sender.Selector, Key: w.sender.Key}
		w.names.SetTXT(domain.Record())
		w.names.SetTXT(d.domain, "v=spf1 ip4:127.0.0.1 -all")
		w.names.SetTXT("_dmarc."+d.domain, "v=DMARC1; p=reject")
		w.names.SetTXT("_mta-sts."+d.domain, "v=STSv1; id=20260101;")
		set("%s. 60 IN MX 10 mx.%s.", d.domain, d.domain)
		set("mx.%s. 60 IN A %s", d.domain, d.address)
		set("mta-sts.%s. 60 IN A 127.0.0.1", d.domain)
	}
	w.names.SetTXT("_dmarc.bank.example", "v=DMARC1; p=reject")
	set("bank.example. 60 IN A 127.0.0.1")
	set("mx.inbox.example. 60 IN A 127.0.0.1")
	var printed []struct{ Name, Type, Value string }
	if err := json.Unmarshal([]byte(w.inbox("dns", "--json")), &printed); err != nil {
		w.t.Fatal(err)
	}
	for _, record := range printed {
		switch record.Type {
		case "TXT":
			w.names.SetTXT(record.Name, record.Value)
		case "MX":
			set("%s. 60 IN MX %s", strings.TrimSuffix(record.Name, "."), record.Value)
		}
	}
}

// Mailboxes of sender.example beside ann's; mail to late is taken and comes back afterwards.
const virtualAliases = "late@sender.example gone@sender.example\n"

// settle starts Postfix and OpenDKIM.
func (w *town) settle(authority *load.Authority, well string, port int) {
	w.t.Helper()
	directory, err := postfix.NewDirectory("")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = os.RemoveAll(directory) })
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	milter, err := postfix.StartMilter(ctx, directory, postfix.MilterSettings{
		Address: freeAddress(w.t), Resolver: well, Signs: "sender.example,astray.example,foreign.example,clear.example", Selector: w.sender.Selector, Key: w.sender.Key,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(milter.Stop)
	w.submission = freeAddress(w.t)
	if w.postfix, err = postfix.New(directory, w.mailSystem(directory, authority, well, port, milter.Address)); err != nil {
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

const nobody = 65534

// mailSystem lays out the mailboxes and returns the settings.
func (w *town) mailSystem(directory string, authority *load.Authority, well string, port int, milter string) postfix.Settings {
	w.t.Helper()
	file := func(name, text string) string {
		path := filepath.Join(directory, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			w.t.Fatal(err)
		}
		return path
	}
	if err := os.Mkdir(filepath.Join(directory, "mail"), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Chown(filepath.Join(directory, "mail"), nobody, nobody); err != nil {
		w.t.Fatal(err)
	}
	certificate, key := issue(w.t, authority, "mx.sender.example")
	foreign, foreignKey := issue(w.t, newAuthority(w.t, "untrusted"), "mx.foreign.example")
	var domains, mailboxes []string
	for _, d := range districts {
		domains = append(domains, d.domain)
		mailboxes = append(mailboxes, "ann@"+d.domain+" "+d.domain+"/ann/\n")
	}
	_, inPort, _ := net.SplitHostPort(w.Settings.SMTP)
	listener := " inet n - n - - smtpd"
	mx := func(i int) string { return fmt.Sprintf("%s:%d%s", districts[i].address, port, listener) }
	return postfix.Settings{
		Hostname: "mx.sender.example", Resolver: well,
		Main: []string{
			"virtual_mailbox_domains = " + strings.Join(domains, " "),
			"virtual_mailbox_base = " + filepath.Join(directory, "mail"),
			"virtual_mailbox_maps = texthash:" + file("mailboxes", strings.Join(mailboxes, "")),
			"virtual_alias_maps = texthash:" + file("aliases", virtualAliases),
			fmt.Sprintf("virtual_uid_maps = static:%d", nobody),
			fmt.Sprintf("virtual_gid_maps = static:%d", nobody),
			// The MX records are looked up; only the port is not the one of the world.
			"transport_maps = texthash:" + file("transport", "inbox.example smtp:inbox.example:"+inPort+"\n"),
			"smtp_tls_security_level = secure",
			"smtp_tls_CAfile = " + authority.File,
			"smtp_tls_loglevel = 1",
			"smtpd_tls_security_level = may",
			"smtpd_tls_cert_file = " + certificate,
			"smtpd_tls_key_file = " + key,
			"smtpd_relay_restrictions = permit_mynetworks, reject",
			"smtpd_milters = inet:" + milter,
			"milter_default_action = tempfail",
			"queue_run_delay = 1s",
			"minimal_backoff_time = 1s",
			"maximal_backoff_time = 2s",
		},
		Services: []string{
			w.submission + listener + " -o milter_macro_daemon_name=ORIGINATING",
			mx(0), mx(1),
			mx(2) + " -o smtpd_tls_cert_file=" + foreign + " -o smtpd_tls_key_file=" + foreignKey,
			mx(3) + " -o smtpd_tls_security_level=none",
		},
	}
}

// hand hands a mail to Postfix, as a person's mail program does.
func (w *town) hand(from, to string, mail load.Mail) {
	w.t.Helper()
	bring(w.t, w.submission, from, to, mail.Bytes())
}

func bring(t *testing.T, address, from, to string, mail []byte) {
	t.Helper()
	connection, err := load.DialMail(address)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if err := connection.Send(from, to, mail); err != nil {
		t.Fatal(err)
	}
}

// letters are the mails in a mailbox.
func (w *town) letters(address string) []load.Received {
	w.t.Helper()
	local, domain, _ := strings.Cut(address, "@")
	files, err := filepath.Glob(filepath.Join(w.postfix.Directory, "mail", domain, local, "new", "*"))
	if err != nil {
		w.t.Fatal(err)
	}
	var found []load.Received
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			w.t.Fatal(err)
		}
		message, err := mail.ReadMessage(bytes.NewReader(raw))
		if err != nil {
			w.t.Fatalf("%v:\n%s", err, raw)
		}
		found = append(found, load.Received{Header: message.Header, Raw: raw})
	}
	return found
}

// answers are the mails in a mailbox that answer a question.
func (w *town) answers(address, id string) []load.Received {
	w.t.Helper()
	var found []load.Received
	for _, letter := range w.letters(address) {
		if letter.Field("In-Reply-To") == id {
			found = append(found, letter)
		}
	}
	return found
}

func (w *town) awaitAnswer(address, id string) (answer load.Received) {
	w.t.Helper()
	eventually(w.t, "the answer to "+id+" is in the mailbox of "+address, func() bool {
		found := w.answers(address, id)
		if len(found) > 0 {
			answer = found[0]
		}
		return len(found) > 0
	})
	return answer
}

// awaitLetter waits for a letter that has all the words.
func (w *town) awaitLetter(address string, words ...string) (letter load.Received) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("a letter with %q is in the mailbox of %s", words, address), func() bool {
		for _, letter = range w.letters(address) {
			complete := true
			for _, word := range words {
				complete = complete && bytes.Contains(letter.Raw, []byte(word))
			}
			if complete {
				return true
			}
		}
		return false
	})
	return letter
}
