package inbox_test

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"net/url"
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

type signedNote struct {
	header http.Header
	body   []byte
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
	target := &url.URL{Scheme: "http", Host: "inbox.test:8080", Path: "/agents/busy/inbox"}
	sign := func(i int) (signedNote, error) {
		person := community.Persons[i%persons]
		actor := "http://inbox.test:8080/agents/busy"
		mention := person.Mention(actor, fmt.Sprint(i), "a question of some ordinary length")
		request, err := person.Delivery(actor+"/inbox", mention.Body, load.Signature{})
		if err != nil {
			return signedNote{}, err
		}
		return signedNote{header: request.Header, body: mention.Body}, nil
	}
	notes := make([]signedNote, persons+b.N)
	var group errgroup.Group
	group.SetLimit(runtime.NumCPU())
	for i := range notes {
		group.Go(func() (err error) { notes[i], err = sign(i); return err })
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
	serve := func(note signedNote) {
		request := httptest.NewRequest(http.MethodPost, target.Path, bytes.NewReader(note.body))
		request.Host, request.Header = target.Host, note.header
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, request)
		if recorder.Code != http.StatusAccepted {
			b.Errorf("status %d: %s", recorder.Code, recorder.Body)
		}
	}
	for _, note := range notes[:persons] {
		serve(note)
	}
	var next atomic.Int64
	next.Store(persons)
	b.SetParallelism(16)
	b.ReportAllocs()
	b.ResetTimer()
	used := processorTime()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			serve(notes[next.Add(1)-1])
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

func startAccepting(b *testing.B) http.Handler {
	b.Helper()
	file := filepath.Join(b.TempDir(), "inbox.toml")
	text := `domain = "inbox.test:8080"
[federation]
allow_private = true
[[agents]]
name = "busy"
kind = "pull"
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	settings := []string{"INBOX_PUBLIC_URL=http://inbox.test:8080"}
	if share := os.Getenv("INBOX_BENCH_SAMPLE"); share != "" {
		settings = append(settings, "INBOX_TELEMETRY_SAMPLE="+share, "INBOX_TELEMETRY_OTLP_ENDPOINT="+telemetrytest.Start(b).URL)
	}
	return inboxtest.New(b, file, settings...).Serve().Handler()
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
	var domains []load.MailDomain
	for i := range mailDomains {
		domain, err := load.NewMailDomain(names, fmt.Sprintf("domain%d.test", i))
		if err != nil {
			b.Fatal(err)
		}
		domains = append(domains, domain)
	}
	server := startAcceptingMail(b, names.Address())
	transactions := make([]string, mailDomains+b.N)
	var group errgroup.Group
	group.SetLimit(runtime.NumCPU())
	for i := range transactions {
		group.Go(func() (err error) { transactions[i], err = mailTransaction(domains[i%mailDomains], i); return err })
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
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

func newMailPeer(b *testing.B, address string) mailPeer {
	b.Helper()
	inner, err := net.Dial("tcp", address)
	if err != nil {
		b.Fatal(err)
	}
	peer := mailPeer{textproto.NewConn(inner)}
	peer.expect(b, 220)
	peer.say(b, "EHLO load.test\r\n")
	peer.expect(b, 250)
	return peer
}

func (p mailPeer) say(b *testing.B, text string) {
	_, _ = p.W.WriteString(text)
	if err := p.W.Flush(); err != nil {
		b.Error(err)
	}
}

func (p mailPeer) expect(b *testing.B, code int) {
	if _, text, err := p.ReadResponse(code); err != nil {
		b.Errorf("%v %s", err, text)
	}
}

func (p mailPeer) bring(b *testing.B, transaction string) {
	commands, mail, _ := strings.Cut(transaction, "\x00")
	p.say(b, commands)
	for _, code := range []int{250, 250, 354} {
		p.expect(b, code)
	}
	p.say(b, mail)
	p.expect(b, 250)
}

func startAcceptingMail(b *testing.B, resolver string) *inboxtest.Server {
	b.Helper()
	file := filepath.Join(b.TempDir(), "inbox.toml")
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
		b.Fatal(err)
	}
	return inboxtest.New(b, file, "INBOX_PUBLIC_URL=http://inbox.test:8080", "INBOX_SMTP_LISTEN=127.0.0.1:0").Serve()
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
			body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m%d","role":"ROLE_USER","parts":[{"text":"hello"}]}}}`, sent.Add(1))
			request := httptest.NewRequest(http.MethodPost, "/a2a/echo", strings.NewReader(body))
			request.Header.Set("Authorization", "Bearer "+token)
			request.Header.Set("Content-Type", "application/json")
			request.Header.Set("A2A-Version", "1.0")
			recorder := httptest.NewRecorder()
			handler.ServeHTTP(recorder, request)
			if recorder.Code != http.StatusOK || !strings.Contains(recorder.Body.String(), "TASK_STATE_COMPLETED") {
				b.Errorf("status %d: %s", recorder.Code, recorder.Body)
				return
			}
		}
	})
	b.StopTimer()
	b.ReportMetric(float64((processorTime()-used).Microseconds())/float64(b.N), "cpu-µs/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "sends/s")
}
