package doctor

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"inbox/adapters/email"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/internal/safehttp"
)

// ports looks whether the names of the web server lead to listeners: that of public_url, and with http.tls = "acme" that to which
// the certificate authority comes.
func (d *examiner) ports(ctx context.Context) {
	if d.config.HTTP.TLS == "acme" && d.config.ACME.HTTPListen != "" {
		d.listener(ctx, "acme.http_listen", d.config.ACME.HTTPListen, false)
	}
	if d.local() {
		return
	}

	if public, err := url.Parse(d.config.PublicURL); err == nil && public.Scheme == "https" && public.Port() == "" { // discovery asks other ports
		d.port(ctx, d.config.PublicHost(), "443", "let it lead to http.listen")
	}
	if d.config.HTTP.TLS == "acme" && d.config.ACME.HTTPListen != "" {
		d.port(ctx, d.config.PublicHost(), "80", "let it lead to acme.http_listen")
	}
	if d.config.SMTP.Listen != "" && d.config.Mail.Mode == email.ModeMX {
		d.outgoingAddress(ctx)
	}
}

// port dials every address of a name. A failure is a warning: some networks cannot reach themselves from inside.
func (d *examiner) port(ctx context.Context, host, port, remedy string) {
	name := "port " + port + " of " + host
	addresses, err := d.resolver.LookupIPAddr(ctx, host+".")
	if err != nil {
		d.say(name, email.FindingFail, fault.InWords(err), "publish an A record of "+host+" with the public address of this machine")
		return
	}

	if !slices.ContainsFunc(addresses, func(one net.IPAddr) bool { return one.IP.To4() != nil }) {
		d.say("IPv4 of "+host, email.FindingWarn, "it has IPv6 addresses only: servers without IPv6, among them much of the fediverse, do not reach it",
			"publish an A record, too; a provider's proxy or NAT64 gateway may have the address")
	}
	for _, address := range addresses {
		place := net.JoinHostPort(address.String(), port)
		if _, err := d.dial(ctx, place, false); err != nil {
			d.say(name, email.FindingWarn, fault.InWords(err), remedy+" and open it in the firewall; some networks cannot reach themselves that way, then try from another one")
			return
		}
	}
	d.say(name, email.FindingOK, "reached", "")
}

// rootServers are addresses to which the kernel is asked for a way; nothing is sent to them.
var rootServers = []string{"198.41.0.4:53", "[2001:503:ba3e::2:30]:53"}

// outgoingAddress looks whether the address from which mail leaves belongs to smtp.hostname, and leads back to it.
func (d *examiner) outgoingAddress(ctx context.Context) {
	for _, server := range rootServers {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "udp", server)
		if err != nil {
			continue // no such network here
		}
		local, _ := netip.ParseAddrPort(conn.LocalAddr().String())
		_ = conn.Close()
		if address := local.Addr().Unmap(); IsPublic(address) {
			d.leavesFrom(ctx, address)
		}
	}
}

func (d *examiner) leavesFrom(ctx context.Context, address netip.Addr) {
	host, name := d.config.SMTP.Hostname, "mail leaves from "+address.String()
	belongs := false
	published, _ := d.resolver.LookupIPAddr(ctx, host+".")
	for _, one := range published {
		found, _ := netip.AddrFromSlice(one.IP)
		belongs = belongs || found.Unmap() == address
	}
	if !belongs {
		d.say(name, email.FindingWarn, "which is no address of "+host+": recipients see another machine, and SPF may fail", "publish it as an address of "+host)
		return
	}

	names, err := d.resolver.LookupAddr(ctx, address.String())
	for _, one := range names {
		if strings.EqualFold(strings.TrimSuffix(one, "."), host) {
			d.say(name, email.FindingOK, "reverse DNS is "+host, "")
			return
		}
	}
	detail := "its reverse DNS is " + strings.Join(names, ", ")
	if len(names) == 0 {
		detail = "it has no reverse DNS"
		if err != nil {
			detail += ": " + fault.InWords(err)
		}
	}
	d.say(name, email.FindingWarn, detail, "ask your provider to set it to "+host)
}

// proxy looks whether clients behind a reverse proxy can be told apart: the settings first, then by requests of its own to public_url,
// of which the server counts those that a proxy has passed on which is not named.
func (d *examiner) proxy(ctx context.Context) {
	const name, remedy = "http.trusted_proxies", "name the proxy in http.trusted_proxies, and let it send X-Forwarded-For"
	if d.config.BehindUnknownProxy() {
		d.say(name, email.FindingWarn, "public_url is reached from outside, http.listen is not, and no proxy is named: all clients count as one", remedy)
		return
	}
	if d.local() {
		return
	}

	before, known := d.untrustedForwards(ctx)
	if !known {
		return // the server does not run, or shows no metrics; other lines say so
	}
	for range ownRequests {
		response, err := d.client.Get(ctx, strings.TrimSuffix(d.config.PublicURL, "/")+"/healthz", safehttp.GetOptions{MaxBytes: longestPage})
		if err != nil {
			return
		}
		_ = response.Body.Close()
	}

	after, known := d.untrustedForwards(ctx)
	switch {
	case known && after-before >= ownRequests:
		d.say(name, email.FindingWarn, "requests to public_url come through a proxy that is not named: all its clients count as one", remedy)
	case known && len(d.config.HTTP.TrustedProxies) > 0:
		d.say(name, email.FindingOK, "requests to public_url come through none that is not named", "")
	}
}

// ownRequests are made to public_url, so that a stranger's header alone does not look like a proxy.
const ownRequests = 3

const forwardsMetric = "inbox_http_untrusted_forwards_total "

// untrustedForwards reads a counter of the running server, with the operator's first token.
func (d *examiner) untrustedForwards(ctx context.Context) (count int, known bool) {
	token, err := os.ReadFile(d.doctor.TokenFile)
	if err != nil {
		return 0, false
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	client, base := d.doctor.Running()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/metrics", http.NoBody)
	if err != nil {
		return 0, false
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	response, err := client.Do(request)
	if err != nil {
		return 0, false
	}
	defer func() { _ = response.Body.Close() }()

	text, err := io.ReadAll(io.LimitReader(response.Body, longestMetrics))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		if value, is := strings.CutPrefix(line, forwardsMetric); is {
			number, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return int(number), err == nil
		}
	}
	return 0, false
}

// longestMetrics bounds what is read of the server's metrics.
const longestMetrics = 8 << 20

// itself looks whether public_url leads to this server and to no other: its key document has a key of this database.
func (d *examiner) itself(ctx context.Context) {
	name := strings.TrimSuffix(d.config.PublicURL, "/") + "/.well-known/jwks.json"
	response, err := d.client.Get(ctx, name, safehttp.GetOptions{MaxBytes: longestPage})
	if err != nil {
		d.say(name, email.FindingFail, fault.InWords(err), "start the server, and let public_url lead to http.listen")
		return
	}
	text, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil || response.StatusCode != http.StatusOK {
		d.say(name, email.FindingFail, response.Status, "let the web server of this name pass the path on to http.listen")
		return
	}

	keys, err := d.doctor.Keys(ctx)
	if err != nil {
		return // of the secret key, which has a line of its own
	}
	for _, key := range keys {
		if strings.Contains(string(text), `"`+key+`"`) {
			d.say(name, email.FindingOK, "it has a key of this server", "")
			return
		}
	}
	d.say(name, email.FindingFail, "another server answers: none of its keys is of this database", "let public_url lead to http.listen of this server")
}

// ownMail writes a mail, signs it with the real keys and judges it as a recipient would who gets it from the addresses of the
// server. Nothing is sent.
func (d *examiner) ownMail(ctx context.Context, published *email.Published) {
	if d.config.Mail.Mode == email.ModeCapture {
		return
	}
	addresses, _ := d.resolver.LookupIPAddr(ctx, identity.HostOf(d.config.SMTP.Hostname)+".")
	for _, one := range email.JudgeOwnMail(ctx, d.resolver, *published, d.author(), addresses) {
		d.say(one.Name, one.Status, one.Detail, one.Remedy)
	}
}

// author is the name before the @ of the doctor's own mail.
func (d *examiner) author() string {
	if len(d.config.Agents) == 0 {
		return "postmaster"
	}
	return d.config.Agents[0].Name
}
