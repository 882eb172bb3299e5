package operator

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"inbox/adapters/email"
	"inbox/identity"
	"inbox/internal/fault"
)

// ports looks whether the names of the web server lead to listeners: that of public_url, and with http.tls = "acme" that to which
// the certificate authority comes.
func (d *doctor) ports(ctx context.Context) {
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
func (d *doctor) port(ctx context.Context, host, port, remedy string) {
	name := "port " + port + " of " + host
	addresses, err := d.resolver.LookupIPAddr(ctx, host+".")
	if err != nil {
		d.say(name, email.FindingFail, fault.InWords(err), "publish an A record of "+host+" with the public address of this machine")
		return
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
func (d *doctor) outgoingAddress(ctx context.Context) {
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

func (d *doctor) leavesFrom(ctx context.Context, address netip.Addr) {
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

// proxy looks whether clients behind a reverse proxy can be told apart.
func (d *doctor) proxy() {
	switch {
	case d.config.BehindUnknownProxy():
		d.say("http.trusted_proxies", email.FindingWarn, "public_url is reached from outside, http.listen is not, and no proxy is named: all clients count as one",
			"name the proxy in http.trusted_proxies, and let it send X-Forwarded-For")
	case len(d.config.HTTP.TrustedProxies) > 0 && d.config.HTTP.TLS != "off":
		d.say("http.trusted_proxies", email.FindingOK, "named, and http.tls is "+d.config.HTTP.TLS, "")
	}
}

// ownMail writes a mail, signs it with the real keys and judges it as a recipient would who gets it from the addresses of the
// server. Nothing is sent.
func (d *doctor) ownMail(ctx context.Context, published *email.Published) {
	if d.config.Mail.Mode == email.ModeCapture {
		return
	}
	from := "postmaster"
	if len(d.config.Agents) > 0 {
		from = d.config.Agents[0].Name
	}
	addresses, _ := d.resolver.LookupIPAddr(ctx, identity.HostOf(d.config.SMTP.Hostname)+".")
	for _, one := range email.JudgeOwnMail(ctx, d.resolver, *published, from, addresses) {
		d.say(one.Name, one.Status, one.Detail, one.Remedy)
	}
}
