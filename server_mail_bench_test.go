package inbox

import (
	"fmt"
	"net"
	"net/textproto"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"inbox/e2e/load"
)

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

func startAcceptingMail(b *testing.B, resolver string) *Server {
	b.Helper()
	directory := b.TempDir()
	file := filepath.Join(directory, "inbox.toml")
	text := `domain = "inbox.test"
public_url = "http://inbox.test:8080"
data_dir = "` + filepath.Join(directory, "data") + `"
[federation]
allow_private = true
[http]
listen = "127.0.0.1:0"
[smtp]
listen = "127.0.0.1:0"
[dns]
resolver = "` + resolver + `"
[log]
level = "error"
[[agents]]
name = "busy"
kind = "pull"
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	return startServerFrom(b, file)
}
