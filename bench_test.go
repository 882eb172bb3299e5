package inbox_test

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"inbox/e2e/load"
	"inbox/inboxtest"
	"inbox/internal/telemetry/telemetrytest"
)

const persons = 50

// signedNote is the delivery of a note that mentions an agent.
type signedNote struct {
	agent  string
	header http.Header
	body   []byte
}

func signNotes(tb testing.TB, community *load.Community, agent string, count int) []signedNote {
	tb.Helper()
	notes := make([]signedNote, count)
	var group errgroup.Group
	group.SetLimit(runtime.NumCPU())
	for i := range notes {
		group.Go(func() error {
			person := community.Persons[i%persons]
			actor := "http://inbox.test:8080/agents/" + agent
			mention := person.Mention(actor, fmt.Sprint(i), "a question of some ordinary length")
			request, err := person.Delivery(actor+"/inbox", mention.Body, load.Signature{})
			if err == nil {
				notes[i] = signedNote{agent: agent, header: request.Header, body: mention.Body}
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		tb.Fatal(err)
	}
	return notes
}

func (n signedNote) deliver(tb testing.TB, handler http.Handler) {
	request := httptest.NewRequest(http.MethodPost, "/agents/"+n.agent+"/inbox", bytes.NewReader(n.body))
	request.Host, request.Header = "inbox.test:8080", n.header
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	if recorder.Code != http.StatusAccepted {
		tb.Errorf("status %d: %s", recorder.Code, recorder.Body)
	}
}

// BenchmarkAccept is a signed note of a known person through the whole server except for the socket, committed and
// synced on SQLite. The agent fetches its work and never does, so nothing but accepting happens. Run it for profiles:
// go test -bench Accept -benchtime 4000x -cpuprofile cpu.out
//
// With traces: INBOX_BENCH_SAMPLE=0 records none of the messages, 1 all of them.
func BenchmarkAccept(b *testing.B) {
	community, err := load.NewCommunity("127.0.0.1:0", persons, func(load.Arrival) {})
	if err != nil {
		b.Fatal(err)
	}
	defer community.Close()
	handler := startAccepting(b)
	notes := signNotes(b, community, "busy", persons+b.N)
	for _, note := range notes[:persons] {
		note.deliver(b, handler)
	}
	var next atomic.Int64
	next.Store(persons)
	b.SetParallelism(16)
	b.ReportAllocs()
	b.ResetTimer()
	used := processorTime()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			notes[next.Add(1)-1].deliver(b, handler)
		}
	})
	b.StopTimer()
	b.ReportMetric(float64((processorTime()-used).Microseconds())/float64(b.N), "cpu-µs/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "accepts/s")
}

// processorTime is what the process has used of processors: on a machine that others use too it says more than the clock.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func startAccepting(tb testing.TB, settings ...string) http.Handler {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "inbox.toml")
	text := `domain = "inbox.test:8080"
[federation]
allow_private = true
[[agents]]
name = "busy"
kind = "pull"
[[agents]]
name = "echo"
kind = "echo"
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	settings = append(settings, "INBOX_PUBLIC_URL=http://inbox.test:8080")
	if share := os.Getenv("INBOX_BENCH_SAMPLE"); share != "" {
		settings = append(settings, "INBOX_TELEMETRY_SAMPLE="+share, "INBOX_TELEMETRY_OTLP_ENDPOINT="+telemetrytest.Start(tb).URL)
	}
	return inboxtest.New(tb, file, settings...).Serve().Handler()
}

const (
	mailDomains = 10
	mailBytes   = 10 << 10
)

// BenchmarkAcceptMail is a DKIM-signed mail of 10 KiB through the whole server over loopback, committed and synced on
// SQLite, with a peer that costs little. Run it for profiles:
// go test -run - -bench AcceptMail -benchtime 3000x -cpuprofile cpu.out
func BenchmarkAcceptMail(b *testing.B) {
	names, err := load.NewNames()
	if err != nil {
		b.Fatal(err)
	}
	defer names.Close()
	server := startAcceptingMail(b, names.Address())
	transactions := signMails(b, names, mailDomains+b.N)
	var next atomic.Int64
	first := newMailPeer(b, server.MailAddr())
	for range mailDomains {
		first.bring(b, transactions[next.Add(1)-1])
	}
	_ = first.Close()
	b.SetParallelism(10)
	b.ReportAllocs()
	b.ResetTimer()
	used := processorTime()
	b.RunParallel(func(pb *testing.PB) {
		peer := newMailPeer(b, server.MailAddr())
		defer func() { _ = peer.Close() }()
		for pb.Next() {
			peer.bring(b, transactions[next.Add(1)-1])
		}
	})
	b.StopTimer()
	b.ReportMetric(float64((processorTime()-used).Microseconds())/float64(b.N), "cpu-µs/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "accepts/s")
}

func signMails(tb testing.TB, names *load.Names, count int) []string {
	tb.Helper()
	var domains []load.MailDomain
	for i := range mailDomains {
		domain, err := load.NewMailDomain(names, fmt.Sprintf("domain%d.test", i))
		if err != nil {
			tb.Fatal(err)
		}
		domains = append(domains, domain)
	}
	transactions := make([]string, count)
	var group errgroup.Group
	group.SetLimit(runtime.NumCPU())
	for i := range transactions {
		group.Go(func() (err error) { transactions[i], err = mailTransaction(domains[i%mailDomains], i); return err })
	}
	if err := group.Wait(); err != nil {
		tb.Fatal(err)
	}
	return transactions
}

// mailTransaction is what a peer says to bring one mail: the commands in one piece, then the mail.
func mailTransaction(domain load.MailDomain, i int) (string, error) {
	const line = "This is one line of an ordinary mail with an ordinary length.\n"
	from := fmt.Sprintf("person%d@%s", i%persons, domain.Name)
	mail, err := domain.Sign(load.Mail{
		From: from, To: "busy@inbox.test", MessageID: fmt.Sprintf("m%d@%s", i, domain.Name), Subject: fmt.Sprintf("Question %d", i),
		Body: strings.Repeat(line, mailBytes/len(line)),
	}.Bytes())
	return "MAIL FROM:<" + from + ">\r\nRCPT TO:<busy@inbox.test>\r\nDATA\r\n" + "\x00" + string(mail) + ".\r\n", err
}

type mailPeer struct{ *textproto.Conn }

func newMailPeer(tb testing.TB, address string) mailPeer {
	tb.Helper()
	inner, err := net.Dial("tcp", address)
	if err != nil {
		tb.Fatal(err)
	}
	peer := mailPeer{textproto.NewConn(inner)}
	peer.expect(tb, 220)
	peer.say(tb, "EHLO load.test\r\n")
	peer.expect(tb, 250)
	return peer
}

func (p mailPeer) say(tb testing.TB, text string) {
	_, _ = p.W.WriteString(text)
	if err := p.W.Flush(); err != nil {
		tb.Error(err)
	}
}

func (p mailPeer) expect(tb testing.TB, code int) {
	if _, text, err := p.ReadResponse(code); err != nil {
		tb.Errorf("%v %s", err, text)
	}
}

func (p mailPeer) bring(tb testing.TB, transaction string) {
	commands, mail, _ := strings.Cut(transaction, "\x00")
	p.say(tb, commands)
	for _, code := range []int{250, 250, 354} {
		p.expect(tb, code)
	}
	p.say(tb, mail)
	p.expect(tb, 250)
}

func startAcceptingMail(tb testing.TB, resolver string, settings ...string) *inboxtest.Server {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "inbox.toml")
	text := `domain = "inbox.test"
[federation]
allow_private = true
[dns]
resolver = "` + resolver + `"
[[agents]]
name = "busy"
kind = "pull"
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	return inboxtest.New(tb, file, append(settings, "INBOX_PUBLIC_URL=http://inbox.test:8080", "INBOX_SMTP_LISTEN=127.0.0.1:0")...).Serve()
}

// BenchmarkA2AEcho is a blocking A2A send to the echo agent through every layer but the socket.
func BenchmarkA2AEcho(b *testing.B) {
	server := inboxtest.Start(b)
	token, _, err := server.Operator().Tokens.Create(b.Context(), "bench", "")
	if err != nil {
		b.Fatal(err)
	}
	handler := server.Handler()
	var sent atomic.Int64
	b.SetParallelism(32)
	b.ReportAllocs()
	b.ResetTimer()
	used := processorTime()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			sendTask(b, handler, token, sent.Add(1))
		}
	})
	b.StopTimer()
	b.ReportMetric(float64((processorTime()-used).Microseconds())/float64(b.N), "cpu-µs/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "sends/s")
}

// sendTask sends a message to the echo agent and waits for its answer.
func sendTask(tb testing.TB, handler http.Handler, token string, number int64) {
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m%d","role":"ROLE_USER","parts":[{"text":"hello"}]}}}`, number)
	request := httptest.NewRequest(http.MethodPost, "/a2a/echo", strings.NewReader(body))
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("A2A-Version", "1.0")
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	if recorder.Code != http.StatusOK || !strings.Contains(recorder.Body.String(), "TASK_STATE_COMPLETED") {
		tb.Errorf("status %d: %s", recorder.Code, recorder.Body)
	}
}
