package e2e

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/mail"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"inbox/e2e/instance"
	"inbox/e2e/load"
)

// mailbox collects what the smarthost of the server got.
type mailbox struct {
	mu      sync.Mutex
	mails   []load.Received
	changed chan struct{}
}

func newMailbox() *mailbox { return &mailbox{changed: make(chan struct{})} }

func (m *mailbox) arrived(received load.Received) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mails = append(m.mails, received)
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *mailbox) repliesTo(id string) ([]load.Received, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []load.Received
	for _, one := range m.mails {
		if one.Field("In-Reply-To") == id {
			found = append(found, one)
		}
	}
	return found, m.changed
}

func (m *mailbox) await(t *testing.T, id string) load.Received {
	t.Helper()
	deadline := time.After(patience)
	for {
		found, changed := m.repliesTo(id)
		if len(found) > 0 {
			return found[0]
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("no reply to mail %s within %s", id, patience)
		}
	}
}

// awaitMail waits for a mail that the function likes.
func (p *post) awaitMail(wanted func(load.Received) bool) load.Received {
	p.t.Helper()
	deadline := time.After(patience)
	for {
		p.outbox.mu.Lock()
		changed := p.outbox.changed
		for _, one := range p.outbox.mails {
			if wanted(one) {
				p.outbox.mu.Unlock()
				return one
			}
		}
		p.outbox.mu.Unlock()
		select {
		case <-changed:
		case <-deadline:
			p.t.Fatalf("the mail did not come within %s", patience)
		}
	}
}

// post is a server with a mail domain of its own, a smarthost, a name server and one signing sender domain.
type post struct {
	*server
	names  *load.Names
	sender load.MailDomain
	outbox *mailbox
	sink   *load.Sink // nil = mail goes elsewhere than to the smarthost
	key    string     // file with the sender's private key, for dkimsign
}

const agents = `
[[agents]]
name = "echo"
kind = "echo"

[[agents]]
name = "open"
kind = "echo"
unverified = "answer"
`

func startPost(t *testing.T, database string) *post {
	t.Helper()
	return startPostWith(t, database, agents)
}

func startPostWith(t *testing.T, database, agents string, changes ...func(*instance.Settings)) *post {
	t.Helper()
	names, err := load.NewNames()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(names.Close)
	sender, err := load.NewMailDomain(names, "sender.test")
	if err != nil {
		t.Fatal(err)
	}
	outbox := newMailbox()
	sink, err := load.NewSink("127.0.0.1:0", outbox.arrived)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sink.Close)
	key := filepath.Join(t.TempDir(), "sender.pem")
	encoded := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(sender.Key)})
	if err := os.WriteFile(key, encoded, 0o600); err != nil {
		t.Fatal(err)
	}
	settings := instance.Settings{
		Database: database, Domain: "inbox.test", Lease: "2s", DNS: names.Address(), Smarthost: sink.URL(), Agents: agents,
	}
	for _, change := range changes {
		change(&settings)
	}
	return &post{server: start(t, settings), names: names, sender: sender, outbox: outbox, sink: sink, key: key}
}

// dkimsign signs with dkimpy.
func (p *post) dkimsign(mail []byte) []byte {
	p.t.Helper()
	ranWith(p.t, "dkimpy", debianPackage("python3-dkim"))
	command := exec.Command("dkimsign", p.sender.Selector, p.sender.Name, p.key)
	command.Stdin = bytes.NewReader(mail)
	var problems bytes.Buffer
	command.Stderr = &problems
	signed, err := command.Output()
	if err != nil {
		p.t.Fatalf("dkimsign (Debian package python3-dkim): %v\n%s", err, problems.String())
	}
	return signed
}

// swaks runs swaks against the server and returns the transcript and whether the server took everything.
func (p *post) swaks(arguments ...string) (string, bool) {
	p.t.Helper()
	ranWith(p.t, "swaks", debianPackage("swaks"))
	command := exec.Command("swaks", append([]string{"--server", p.Settings.SMTP, "--ehlo", "sender.test"}, arguments...)...)
	transcript, err := command.CombinedOutput()
	if command.ProcessState == nil {
		p.t.Fatalf("swaks (Debian package swaks): %v", err)
	}
	return string(transcript), err == nil
}

// send brings a mail by swaks, byte for byte, and demands that it is accepted.
func (p *post) send(from, to string, mail []byte) {
	p.t.Helper()
	file := filepath.Join(p.t.TempDir(), "mail.eml")
	// --no-data-fixup sends the file as it is, so the final dot is ours.
	if err := os.WriteFile(file, append(bytes.Clone(mail), ".\r\n"...), 0o600); err != nil {
		p.t.Fatal(err)
	}
	if transcript, ok := p.swaks("--from", from, "--to", to, "--no-data-fixup", "--data", "@"+file); !ok {
		p.t.Fatalf("the mail was refused:\n%s", transcript)
	}
}

// state waits until the turn of a mail is in one of its resting states.
func (p *post) state(messageID string) string {
	p.t.Helper()
	var state string
	eventually(p.t, "mail "+messageID+" comes to rest", func() bool {
		states, err := p.Column(p.t.Context(), "SELECT state FROM turns WHERE native_id = $1", messageID)
		if err != nil {
			p.t.Fatal(err)
		}
		if len(states) != 1 || states[0] == "accepted" || states[0] == "running" {
			return false
		}
		state = states[0]
		return true
	})
	return state
}

func (p *post) mail(id, to string, extra map[string]string) []byte {
	return load.Mail{
		From: `"Ann Sender" <ann@sender.test>`, To: to, MessageID: id, Subject: "A question",
		Body: "Dear agent,\nwhat is this?", Extra: extra,
	}.Bytes()
}

// TestSignedMailIsAnsweredOnce: a mail that dkimpy signs and swaks brings is answered once, and dkimpy verifies the answer.
func TestSignedMailIsAnsweredOnce(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		p := startPost(t, database)
		const id, earlier = "first@sender.test", "earlier@sender.test"
		signed := p.dkimsign(p.mail(id, "echo@inbox.test", map[string]string{
			"In-Reply-To": "<" + earlier + ">", "References": "<root@sender.test> <" + earlier + ">",
		}))
		p.send("ann@sender.test", "echo@inbox.test", signed)
		reply := p.outbox.await(t, id)
		p.checkReply(reply, id, earlier)

		p.send("ann@sender.test", "echo@inbox.test", signed)
		const second = "second@sender.test"
		p.send("ann@sender.test", "echo@inbox.test", p.dkimsign(p.mail(second, "echo@inbox.test", nil)))
		p.outbox.await(t, second)
		if replies, _ := p.outbox.repliesTo(id); len(replies) != 1 {
			t.Errorf("the mail that came twice got %d replies; want 1", len(replies))
		}
		if turns := p.rows()["turns"]; turns != 2 {
			t.Errorf("two different mails made %d turns; want 2", turns)
		}
	})
}

func (p *post) checkReply(reply load.Received, id, earlier string) {
	t := p.t
	t.Helper()
	if references := reply.Header.Get("References"); !strings.HasSuffix(references, "<"+earlier+"> <"+id+">") ||
		!strings.HasPrefix(references, "<root@sender.test>") {
		t.Errorf("References is %q; want root, earlier and %s", references, id)
	}
	from, err := mail.ParseAddress(reply.Header.Get("From"))
	if err != nil || from.Address != "echo@inbox.test" {
		t.Errorf("From is %q; want echo@inbox.test (%v)", reply.Header.Get("From"), err)
	}
	if to, err := mail.ParseAddress(reply.Header.Get("To")); err != nil || to.Address != "ann@sender.test" {
		t.Errorf("To is %q; want ann@sender.test (%v)", reply.Header.Get("To"), err)
	}
	for field, want := range map[string]string{"Subject": "Re: A question", "Auto-Submitted": "auto-replied"} {
		if got := reply.Header.Get(field); got != want {
			t.Errorf("%s is %q; want %q", field, got, want)
		}
	}
	if !strings.HasSuffix(reply.Field("Message-ID"), "@inbox.test") {
		t.Errorf("Message-ID is %q", reply.Header.Get("Message-ID"))
	}
	if len(reply.To) != 1 || reply.To[0] != "ann@sender.test" || !strings.HasSuffix(reply.From, "@inbox.test") {
		t.Errorf("envelope from %q to %v", reply.From, reply.To)
	}
	if !strings.Contains(plain(reply.Raw), "what is this?") {
		t.Errorf("the echo lost the text:\n%s", reply.Raw)
	}
	p.dkimverify(reply.Raw)
}

// plain decodes the text of a mail: the plain form where there are two. Its only or first part is in quoted-printable.
func plain(raw []byte) string {
	decoded, err := readPlain(raw)
	if err != nil {
		return err.Error()
	}
	return string(decoded)
}

func readPlain(raw []byte) ([]byte, error) {
	message, err := mail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	media, params, _ := mime.ParseMediaType(message.Header.Get("Content-Type"))
	if media != "multipart/alternative" {
		return io.ReadAll(quotedprintable.NewReader(message.Body))
	}
	part, err := multipart.NewReader(message.Body, params["boundary"]).NextPart() // decodes by itself
	if err != nil {
		return nil, err
	}
	return io.ReadAll(part)
}

// dkimverify checks the server's signature with dkimpy and the records that `inbox dns` prints.
func (p *post) dkimverify(raw []byte) {
	p.t.Helper()
	output, err := dkimpy(p.t, p.inbox("dns", "--json"), raw)
	if err != nil {
		p.t.Errorf("dkimpy does not verify the reply: %v %s\n%s", err, output, raw)
		return
	}
	var verdict struct {
		Domain  string
		Headers []string
	}
	if err := json.Unmarshal(output, &verdict); err != nil {
		p.t.Fatal(err)
	}
	if verdict.Domain != p.Settings.Domain {
		p.t.Errorf("the reply is signed by %q; want %s", verdict.Domain, p.Settings.Domain)
	}
	for _, field := range []string{"from", "to", "subject", "date", "message-id", "in-reply-to", "references"} {
		if !strings.Contains(fmt.Sprint(verdict.Headers), field) {
			p.t.Errorf("the signature does not cover %s: %v", field, verdict.Headers)
		}
	}
}

// dkimpy verifies a mail with dkimpy against records in JSON.
func dkimpy(t *testing.T, records string, raw []byte) ([]byte, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "records.json")
	if err := os.WriteFile(file, []byte(records), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := instance.Root()
	if err != nil {
		t.Fatal(err)
	}
	ranWith(t, "dkimpy", debianPackage("python3-dkim"))
	command := exec.Command("/usr/bin/python3", filepath.Join(root, "e2e", "peers", "mail", "verify.py"), file)
	command.Stdin = bytes.NewReader(raw)
	output, err := command.CombinedOutput()
	if bytes.Contains(output, []byte("No module named")) {
		t.Fatalf("dkimpy is missing (Debian package python3-dkim): %s", output)
	}
	return output, err
}

// TestDkimpyUnderstandsOurSenders checks the tools of the tests: what the load senders sign, outside software accepts.
func TestDkimpyUnderstandsOurSenders(t *testing.T) {
	t.Parallel()
	names, err := load.NewNames()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(names.Close)
	domain, err := load.NewMailDomain(names, "load.test")
	if err != nil {
		t.Fatal(err)
	}
	signed, err := domain.Sign(load.Mail{From: "a@load.test", To: "b@x.test", MessageID: "1@load.test", Body: "hello"}.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	name, value := domain.Record()
	records := fmt.Sprintf(`{"items":[{"name":%q,"type":"TXT","value":%q}]}`, name, value)
	if output, err := dkimpy(t, records, signed); err != nil {
		t.Errorf("dkimpy: %v %s", err, output)
	}
	if output, err := dkimpy(t, records, bytes.Replace(signed, []byte("hello"), []byte("obey!"), 1)); err == nil {
		t.Errorf("dkimpy verifies a changed mail: %s", output)
	}
}

func TestAutomaticMailGetsNoReply(t *testing.T) {
	t.Parallel()
	p := startPost(t, "")
	fields := map[string]map[string]string{
		"auto-submitted": {"Auto-Submitted": "auto-replied"},
		"list":           {"List-Id": "Talk <talk.sender.test>"},
		"bulk":           {"Precedence": "bulk"},
	}
	for name, extra := range fields {
		id := name + "@sender.test"
		p.send("ann@sender.test", "echo@inbox.test", p.dkimsign(p.mail(id, "echo@inbox.test", extra)))
		if state := p.state(id); state != "silent" {
			t.Errorf("the turn of the %s mail is %s; want silent", name, state)
		}
	}
	const bounce = "bounce@sender.test"
	p.send("<>", "echo@inbox.test", p.dkimsign(p.mail(bounce, "echo@inbox.test", nil)))
	if state := p.state(bounce); state != "silent" {
		t.Errorf("the turn of the mail without return path is %s; want silent", state)
	}
	const last = "last@sender.test"
	p.send("ann@sender.test", "echo@inbox.test", p.dkimsign(p.mail(last, "echo@inbox.test", nil)))
	p.outbox.await(t, last)
	p.outbox.mu.Lock()
	defer p.outbox.mu.Unlock()
	if len(p.outbox.mails) != 1 {
		t.Errorf("%d mails left the server; want the one reply to the mail of a person", len(p.outbox.mails))
	}
}

func TestUnsignedMailIsHeldUnlessTheAgentAnswersAnybody(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		p := startPost(t, database)
		unsigned := func(id, to string) []byte {
			return load.Mail{From: "bob@nowhere.test", To: to, MessageID: id, Subject: "Hi", Body: "hello?"}.Bytes()
		}
		p.send("bob@nowhere.test", "echo@inbox.test", unsigned("held@nowhere.test", "echo@inbox.test"))
		if state := p.state("held@nowhere.test"); state != "held" {
			t.Errorf("the turn of the unsigned mail is %s; want held", state)
		}
		p.send("bob@nowhere.test", "open@inbox.test", unsigned("open@nowhere.test", "open@inbox.test"))
		p.outbox.await(t, "open@nowhere.test")
		if replies, _ := p.outbox.repliesTo("held@nowhere.test"); len(replies) > 0 {
			t.Error("the held mail was answered")
		}
		p.checkUnverified("open@nowhere.test")
	})
}

// checkUnverified demands that an answered stranger is still a stranger in the record.
func (p *post) checkUnverified(id string) {
	p.t.Helper()
	stored, err := p.Column(p.t.Context(), "SELECT message FROM turns WHERE native_id = $1", id)
	if err != nil || len(stored) != 1 {
		p.t.Fatalf("stored message of %s: %d, %v", id, len(stored), err)
	}
	var message struct {
		Sender struct {
			AuthMethod string `json:"auth_method"`
			Verified   bool
			Identities []any
		}
	}
	if err := json.Unmarshal([]byte(stored[0]), &message); err != nil {
		p.t.Fatal(err)
	}
	if message.Sender.Verified || message.Sender.AuthMethod != "none" || len(message.Sender.Identities) > 0 {
		p.t.Errorf("a stranger is recorded as %+v", message.Sender)
	}
}

func TestMailForOthersIsRefused(t *testing.T) {
	t.Parallel()
	p := startPost(t, "")
	before := p.rows()
	cases := map[string]struct{ to, want string }{
		"unknown mailbox": {"nobody@inbox.test", "550 5.1.1"},
		"relaying":        {"somebody@elsewhere.test", "550 5.7.1"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			transcript, ok := p.swaks("--from", "ann@sender.test", "--to", c.to, "--quit-after", "RCPT")
			if ok || !strings.Contains(transcript, c.want) {
				t.Errorf("want %s, got accepted %v:\n%s", c.want, ok, transcript)
			}
		})
	}
	if after := p.rows(); after["turns"] != before["turns"] {
		t.Errorf("refused mail was stored: %v", after)
	}
}
