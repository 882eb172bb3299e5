package inbox

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"inbox/identity"
	"inbox/internal/fault"
	"inbox/internal/telemetry"
)

// Times of the probe of the server by itself.
const (
	probeEvery = 15 * time.Second
	probeLimit = 5 * time.Second // of one way in
	probeBytes = 64 << 10
)

var metricSelfProbe = telemetry.NewLeast(prometheus.GaugeOpts{
	Name: "inbox_self_probe_ok", Help: "1 while this node, asked by itself at its own listeners, answers as it should, by way in (http, smtp).",
}, "way")

// selfProbe asks the listeners of this node as a stranger would: WebFinger of the first agent, and a session by SMTP without a mail. No
// agent runs and nothing leaves this machine. /readyz shows what was found last and never waits for it.
type selfProbe struct {
	*Server
	client *http.Client
	last   atomic.Pointer[probed]
}

// probed is the result of one probe.
type probed struct {
	at  time.Time
	err error
}

func newSelfProbe(s *Server) *selfProbe {
	return &selfProbe{Server: s, client: &http.Client{
		Timeout: probeLimit, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				if at := s.front.Addr(); at.Network() == "unix" {
					network, address = at.Network(), at.String()
				}
				return (&net.Dialer{}).DialContext(ctx, network, address)
			},
			// It speaks to itself at the address where it listens. What its certificate is worth, the check of certificates says.
			TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, ServerName: s.config.PublicHost()}, //nolint:gosec // see above
		},
	}}
}

// run probes until ctx ends.
func (p *selfProbe) run(ctx context.Context) {
	defer metricSelfProbe.Leave(p)
	ticker := time.NewTicker(probeEvery)
	defer ticker.Stop()

	for {
		found := p.probe(ctx)
		if ctx.Err() != nil {
			return
		}
		p.last.Store(&probed{time.Now(), found})
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// check tells what the last probe found. Before the first one nothing is wrong.
func (p *selfProbe) check(context.Context) error {
	last := p.last.Load()
	switch {
	case last == nil:
		return nil
	case last.err != nil:
		return fault.Wrap(fault.Unavailable, "at "+last.at.UTC().Format(time.RFC3339)+" this node did not answer itself by "+fault.Of(last.err).Public, last.err)
	case time.Since(last.at) > 2*(probeEvery+2*probeLimit):
		return fault.New(fault.Unavailable, "this node has not asked itself since "+last.at.UTC().Format(time.RFC3339))
	}
	return nil
}

func (p *selfProbe) probe(ctx context.Context) error {
	ways := []error{p.way(ctx, "http", p.askWeb)}
	if p.MailAddr() != "" {
		ways = append(ways, p.way(ctx, "smtp", p.askMail))
	}
	return errors.Join(ways...)
}

// way tries one way in. Its error says to everybody which way, and to the log why.
func (p *selfProbe) way(ctx context.Context, name string, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	if err := ask(ctx); err != nil {
		metricSelfProbe.Set(p, 0, name)
		return fault.Wrap(fault.Unavailable, name, err)
	}
	metricSelfProbe.Set(p, 1, name)
	return nil
}

// askWeb asks for WebFinger of the first agent, or without agents whether the server lives.
func (p *selfProbe) askWeb(ctx context.Context) error {
	base := url.URL{Scheme: "https", Host: dialled(p.front.Addr().String()), Path: "/healthz"}
	if p.config.HTTP.TLS == "off" {
		base.Scheme = "http"
	}
	if p.front.Addr().Network() == "unix" {
		base.Host = "localhost"
	}
	want := `"ok"`
	if all := p.registry.Agents(); len(all) > 0 {
		account := identity.Address{Local: all[0].Name, Domain: p.config.Domain}.Acct()
		base.Path, base.RawQuery, want = "/.well-known/webfinger", url.Values{"resource": {account}}.Encode(), p.config.PublicURL
	}

	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base.String(), http.NoBody)
	if err != nil {
		return err
	}
	request.Host = p.config.Domain
	response, err := p.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, probeBytes))
	switch {
	case err != nil:
		return err
	case response.StatusCode == http.StatusTooManyRequests:
		return nil // it answers; where loopback is not inside, others of its network may have used up the limit
	case response.StatusCode != http.StatusOK || !strings.Contains(string(text), want):
		return fmt.Errorf("%s is answered %s, without %s", base.Path, response.Status, want)
	}
	return nil
}

// askMail greets the mail listener and takes its leave.
func (p *selfProbe) askMail(ctx context.Context) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", dialled(p.MailAddr()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if end, bounded := ctx.Deadline(); bounded {
		_ = conn.SetDeadline(end)
	}

	reader := bufio.NewReader(io.LimitReader(conn, probeBytes))
	for _, step := range []struct{ say, want string }{{"", "220"}, {"EHLO localhost\r\n", "250"}, {"NOOP\r\n", "250"}, {"QUIT\r\n", "221"}} {
		if _, err := io.WriteString(conn, step.say); err != nil {
			return err
		}
		err := heardLine(reader, step.want)
		if errors.Is(err, errBusy) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("after %q: %w", strings.TrimSpace(step.say), err)
		}
	}
	return nil
}

// errBusy is the answer of a mail listener that takes no more sessions now: it works.
var errBusy = errors.New("the mail listener is busy")

// heardLine reads an answer of any number of lines.
func heardLine(reader *bufio.Reader, want string) error {
	for {
		line, err := reader.ReadString('\n')
		if err != nil {
			return err
		}
		if strings.HasPrefix(line, "421") {
			return errBusy
		}
		if !strings.HasPrefix(line, want) {
			return fmt.Errorf("the mail listener says %q", strings.TrimSpace(line))
		}
		if !strings.HasPrefix(line, want+"-") {
			return nil
		}
	}
}

// dialled is the address at which this machine reaches a listener.
func dialled(address string) string {
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		if ip != nil && ip.To4() == nil {
			return net.JoinHostPort("::1", port)
		}
		return net.JoinHostPort("127.0.0.1", port)
	}
	return address
}
