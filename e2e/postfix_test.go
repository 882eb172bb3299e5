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
	"slices"
	"strings"
	"testing"
	"time"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/e2e/postfix"
	"inbox/exchange"
)

const ann = "ann@sender.example"

func question(from, id string) load.Mail {
	return load.Mail{From: "Ann Sender <" + from + ">", To: "echo@inbox.example", MessageID: id, Subject: "A question", Body: "Dear agent,\nwhat is this?"}
}

// TestPostfix talks with a real mail system in both directions, under TLS that both sides check.
func TestPostfix(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		w := newTown(t, database)
		w.part(t, "question and answer stay in one thread", (*town).converse)
		w.part(t, "what is refused comes back to its author", (*town).refuse)
		w.part(t, "a mailbox that is not there is not written to again", (*town).missMailbox)
		w.part(t, "a mailbox that is found missing later is not written to again", (*town).missMailboxLater)
		w.part(t, "MTA-STS is enforced", (*town).enforce)
		w.part(t, "Postfix is down for a while", (*town).outlastPostfix)
		w.part(t, "the server is down for a while", (*town).outlastServer)
	})
}

func (w *town) part(t *testing.T, name string, run func(*town)) {
	t.Run(name, func(t *testing.T) {
		outer := w.t
		w.t = t
		defer func() { w.t = outer }()
		run(w)
	})
}

func (w *town) converse() {
	const first, second = "first@sender.example", "second@sender.example"
	w.hand(ann, "echo@inbox.example", question(ann, first))
	answer := w.awaitAnswer(ann, first)
	if got := answer.Header.Get("References"); got != "<"+first+">" {
		w.t.Errorf("References is %q", got)
	}
	if got := answer.Header.Get("Authentication-Results"); !strings.Contains(got, "dkim=pass") || !strings.Contains(got, "header.d=inbox.example") {
		w.t.Errorf("OpenDKIM says %q", got)
	}
	w.dkimverify(answer.Raw)
	w.checkProof(first)
	if sent := w.awaitDeliveries("delivered", 1); !strings.HasPrefix(sent[0].Reason, "mx.sender.example[127.0.0.1] TLS 1.3: 2.0.0 Ok: queued as ") {
		w.t.Errorf("the operator reads %q", sent[0].Reason)
	}
	if !strings.Contains(w.postfix.Log(), "Verified TLS connection established to mx.inbox.example[127.0.0.1]") {
		w.t.Error("Postfix did not verify our certificate")
	}

	again := question(ann, second)
	again.Subject = answer.Header.Get("Subject")
	again.Extra = map[string]string{"In-Reply-To": "<" + answer.Field("Message-ID") + ">", "References": "<" + first + "> <" + answer.Field("Message-ID") + ">"}
	again.Body = "Größere Füße: 🦶"
	w.hand(ann, "echo@inbox.example", again)
	last := w.awaitAnswer(ann, second)
	if got, want := strings.Fields(last.Header.Get("References")), []string{first, answer.Field("Message-ID"), second}; fmt.Sprint(got) != fmt.Sprintf("[<%s> <%s> <%s>]", want[0], want[1], want[2]) {
		w.t.Errorf("References of the second answer: %v", got)
	}
	if !strings.Contains(plain(bytes.ReplaceAll(last.Raw, []byte("\n"), []byte("\r\n"))), again.Body) {
		w.t.Errorf("the echo lost the text:\n%s", last.Raw)
	}
	w.dkimverify(last.Raw)
	threads, err := w.Column(w.t.Context(), "SELECT DISTINCT thread_id FROM turns WHERE native_id IN ($1, $2)", first, second)
	if err != nil || len(threads) != 1 {
		w.t.Errorf("both questions are in threads %v (%v); want one", threads, err)
	}
}

// checkProof demands that the record of a mail says all that Postfix and OpenDKIM proved.
func (w *town) checkProof(id string) {
	w.t.Helper()
	stored, err := w.Column(w.t.Context(), "SELECT message FROM turns WHERE native_id = $1", id)
	if err != nil || len(stored) != 1 {
		w.t.Fatalf("stored message of %s: %d, %v", id, len(stored), err)
	}
	var message struct {
		Sender struct {
			AuthMethod string `json:"auth_method"`
			Verified   bool
			Profile    struct {
				Extensions struct {
					Email struct {
						DKIM          []struct{ D, S, Result string }
						SPF, DMARC    struct{ Result, Domain string }
						IP, HELO, TLS string
						Addressed     bool
					}
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(stored[0]), &message); err != nil {
		w.t.Fatal(err)
	}
	proof := message.Sender.Profile.Extensions.Email
	got := fmt.Sprintln(message.Sender.AuthMethod, message.Sender.Verified, proof)
	want := "email-dmarc true {[{sender.example load pass}] {pass sender.example} {pass sender.example} 127.0.0.1 mx.sender.example TLS 1.3 true}\n"
	if got != want {
		w.t.Errorf("the record of the sender says\n%s; want\n%s", got, want)
	}
}

func (w *town) refuse() {
	unknown := question(ann, "unknown@sender.example")
	unknown.To = "nobody@inbox.example"
	w.hand(ann, unknown.To, unknown)
	spoofed := question("chief@bank.example", "spoofed@bank.example")
	w.hand(ann, spoofed.To, spoofed)
	w.awaitLetter(ann, "Undelivered Mail Returned to Sender", "<nobody@inbox.example>", "550 5.1.1")
	w.awaitLetter(ann, "Undelivered Mail Returned to Sender", "chief@bank.example", "550 5.7.26")
	turns, err := w.Column(w.t.Context(), "SELECT native_id FROM turns WHERE native_id IN ($1, $2)", unknown.MessageID, spoofed.MessageID)
	if err != nil || len(turns) > 0 {
		w.t.Errorf("refused mails were stored: %v (%v)", turns, err)
	}
}

func (w *town) missMailbox() {
	const stray = "stray@sender.example"
	w.hand(stray, "echo@inbox.example", question(stray, "stray-1@sender.example"))
	w.awaitSuppressed(stray)
	if dead := w.awaitDeliveries("dead", 1); !strings.Contains(dead[0].Reason, "5.1.1") {
		w.t.Errorf("the delivery is dead because of %q", dead[0].Reason)
	}
}

func (w *town) missMailboxLater() {
	const late = "late@sender.example"
	w.hand(late, "echo@inbox.example", question(late, "late-1@sender.example"))
	w.awaitSuppressed(late)
	if dead := w.awaitDeliveries("dead", 2); !strings.Contains(dead[0].Reason, "5.1.1") {
		w.t.Errorf("the delivery is dead because of %q", dead[0].Reason)
	}
	w.hand(late, "echo@inbox.example", question(late, "late-2@sender.example"))
	if dead := w.awaitDeliveries("dead", 3); !strings.Contains(dead[0].Reason, "5.1.1") { // a proven mail ended the suppression
		w.t.Errorf("the second answer: %q", dead[0].Reason)
	}
	w.awaitSuppressed(late)
}

func (w *town) awaitSuppressed(address string) {
	w.t.Helper()
	eventually(w.t, address+" is suppressed", func() bool {
		for _, one := range w.suppressed() {
			if one.Address == address && one.Kind == exchange.FailureHard {
				return true
			}
		}
		return false
	})
}

func (w *town) enforce() {
	for _, d := range districts[1:] {
		w.hand("ann@"+d.domain, "echo@inbox.example", question("ann@"+d.domain, "first@"+d.domain))
	}
	waiting := w.awaitDeliveries("retry", len(districts)-1)
	for _, want := range []string{"valid for mx.sender.example, not mx.astray.example", "signed by unknown authority", "offers no STARTTLS"} {
		if !slices.ContainsFunc(waiting, func(one sending) bool {
			return strings.Contains(one.Reason, want) && strings.Contains(one.Reason, "MTA-STS")
		}) {
			w.t.Errorf("no delivery waits because of MTA-STS and %q: %v", want, waiting)
		}
	}
	for _, d := range districts[1:] {
		if found := w.letters("ann@" + d.domain); len(found) > 0 {
			w.t.Errorf("%s got a mail although %s", d.domain, d.about)
		}
	}
}

func (w *town) outlastPostfix() {
	const id = "outage@sender.example"
	if err := w.postfix.Stop(); err != nil {
		w.t.Fatal(err)
	}
	signed, err := w.sender.Sign(question(ann, id).Bytes())
	if err != nil {
		w.t.Fatal(err)
	}
	bring(w.t, w.Settings.SMTP, ann, "echo@inbox.example", signed)
	eventually(w.t, "the answer waits for Postfix", func() bool {
		for _, one := range w.deliveries("retry") {
			if strings.HasPrefix(one.Reason, "sender.example: ") && strings.Contains(one.Reason, "refused") {
				return true
			}
		}
		return false
	})
	if err := w.postfix.Start(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	w.awaitAnswer(ann, id)
	w.answeredOnce(id)
}

func (w *town) outlastServer() {
	const id = "down@sender.example"
	if err := w.Kill(); err != nil {
		w.t.Fatal(err)
	}
	w.hand(ann, "echo@inbox.example", question(ann, id))
	eventually(w.t, "Postfix has tried in vain", func() bool {
		return strings.Contains(w.postfix.Log(), "Connection refused")
	})
	w.start()
	w.awaitAnswer(ann, id)
	w.answeredOnce(id)
}

// answeredOnce asks another question, whose answer comes after whatever else was to come.
func (w *town) answeredOnce(id string) {
	w.t.Helper()
	const another = "afterwards-"
	w.hand(ann, "echo@inbox.example", question(ann, another+id))
	w.awaitAnswer(ann, another+id)
	if found := w.answers(ann, id); len(found) != 1 {
		w.t.Errorf("%d answers to %s are in the mailbox; want 1", len(found), id)
	}
}

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
	ranWith(t, "Postfix", debianPackage("postfix"))
	ranWith(t, "OpenDKIM", debianPackage("opendkim"))
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
	if err := decodeList(w.inbox("dns", "--json"), &printed); err != nil {
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
	return readMailbox(w.t, filepath.Join(w.postfix.Directory, "mail", domain, local, "new"))
}

// readMailbox reads all mails of a directory.
func readMailbox(t *testing.T, directory string) []load.Received {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(directory, "*"))
	if err != nil {
		t.Fatal(err)
	}
	var found []load.Received
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		message, err := mail.ReadMessage(bytes.NewReader(raw))
		if err != nil {
			t.Fatalf("%v:\n%s", err, raw)
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
