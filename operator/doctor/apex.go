package doctor

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"inbox/adapters/email"
	"inbox/identity"
	"inbox/internal/config"
	"inbox/internal/fault"
	"inbox/internal/safehttp"
)

// Apex is what the DNS says about a domain before this server has records there.
type Apex struct {
	Web  []string `json:"web"`  // addresses of the domain that are not those of this machine
	Mail []string `json:"mail"` // mail servers of the domain
	// Reason says why the DNS did not answer; empty = it answered.
	Reason string `json:"reason,omitempty"`
}

// LookAtApex looks up who serves the web site and the mail of a domain. Own are the addresses of this machine.
func LookAtApex(ctx context.Context, resolver lookups, domain string, own []netip.Addr) Apex {
	apex, name := Apex{Web: []string{}, Mail: []string{}}, strings.TrimSuffix(identity.HostOf(domain), ".")+"."
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	addresses, err := resolver.LookupIPAddr(ctx, name)
	for _, one := range addresses {
		address, _ := netip.AddrFromSlice(one.IP)
		if address = address.Unmap(); !slices.Contains(own, address) {
			apex.Web = append(apex.Web, address.String())
		}
	}
	servers, failure := resolver.LookupMX(ctx, name)
	for _, one := range servers {
		if one.Host != "." { // the domain takes no mail (RFC 7505)
			apex.Mail = append(apex.Mail, strings.TrimSuffix(one.Host, "."))
		}
	}
	if unknownName(err) {
		err = nil
	}
	if unknownName(failure) {
		failure = nil
	}
	if err := errors.Join(err, failure); err != nil {
		apex.Reason = fault.InWords(err)
	}
	return apex
}

// ApexResolver returns what looks names up as the settings say.
func ApexResolver(address string) *safehttp.Resolver { return safehttp.NewResolver(address) }

// RedirectedPaths are the paths that the web server of a domain redirects to this server. Others ask the domain for them.
var RedirectedPaths = []string{"/.well-known/webfinger", "/.well-known/host-meta", "/.well-known/nodeinfo"}

// Redirect is what to write into the settings of one web server.
type Redirect struct {
	Server string `json:"server"`
	Text   string `json:"text"`
}

// Redirects say how the web server of the domain redirects the paths by which others find its agents; none where this server is there itself.
func Redirects(c *config.Config) []Redirect {
	if c.Apex != config.ApexElsewhere {
		return []Redirect{}
	}
	names := make([]string, len(RedirectedPaths))
	paths := make([]string, len(RedirectedPaths))
	for i, path := range RedirectedPaths {
		names[i], paths[i] = strings.TrimPrefix(path, "/.well-known/"), "Path(`"+path+"`)"
	}
	fill := strings.NewReplacer(
		"{domain}", identity.HostOf(c.Domain), "{pattern}", strings.ReplaceAll(identity.HostOf(c.Domain), ".", `\.`), "{base}", strings.TrimSuffix(c.PublicURL, "/"),
		"{names}", strings.Join(names, "|"), "{list}", strings.Join(RedirectedPaths, " "), "{paths}", strings.Join(paths, " || "),
	)
	return []Redirect{
		{"nginx", fill.Replace("# inside the server block of {domain}\nlocation ~ ^/\\.well-known/({names})$ {\n    return 301 {base}$request_uri;\n}")},
		{"Caddy", fill.Replace("# inside the block of {domain}\n@inbox path {list}\nredir @inbox {base}{uri} permanent")},
		{"Traefik", fill.Replace(`# dynamic configuration
http:
  middlewares:
    inbox:
      redirectRegex:
        regex: "^https://{pattern}(/.*)$"
        replacement: "{base}${1}"
        permanent: true
  routers:
    inbox:
      rule: "Host(` + "`{domain}`" + `) && ({paths})"
      priority: 1000
      tls: {}
      middlewares: [inbox]
      service: noop@internal`)},
		{"Apache", fill.Replace("# inside the virtual host of {domain}\nRedirectMatch 301 \"^/\\.well-known/({names})$\" \"{base}/.well-known/$1\"")},
	}
}

// apex looks whether the web server of the domain redirects to this server.
func (d *examiner) apex(ctx context.Context) {
	if d.config.Apex != config.ApexElsewhere || len(d.config.Agents) == 0 {
		return
	}
	base := strings.TrimSuffix(d.config.PublicURL, "/")
	for _, path := range RedirectedPaths {
		address := "https://" + d.config.Domain + path
		if path == RedirectedPaths[0] {
			address += "?resource=" + url.QueryEscape("acct:"+d.config.Agents[0].Name+"@"+d.config.Domain)
		}
		d.redirect(ctx, address, base, path == RedirectedPaths[0])
	}
}

// redirect follows one redirect of the domain. Without that of WebFinger no one finds an agent; few ask for the others.
func (d *examiner) redirect(ctx context.Context, address, base string, needed bool) {
	name, _, _ := strings.Cut(address, "?")
	status, remedy := email.FindingWarn, "let the web server of "+d.config.Domain+" redirect the path to "+base+"; inbox dns prints how"
	if needed {
		status = email.FindingFail
	}

	response, err := d.client.Get(ctx, address, safehttp.GetOptions{MaxBytes: longestPage})
	if err != nil {
		d.say(name, status, fault.InWords(err), remedy)
		return
	}
	_ = response.Body.Close()
	at := response.Request.URL
	switch found := at.Scheme + "://" + at.Host; {
	case !strings.EqualFold(found, base):
		d.say(name, status, "no redirect to this server: "+found+" answers "+response.Status, remedy)
	case response.StatusCode != http.StatusOK && response.StatusCode != http.StatusBadRequest: // without a resource
		d.say(name, status, "is redirected to "+found+", which answers "+response.Status, "let the redirect keep path and query; inbox dns prints how")
	default:
		d.say(name, email.FindingOK, "is redirected to "+found, "")
	}
}

// listensAlone says that a certificate authority cannot come to a listener that no other machine reaches.
func (d *examiner) listensAlone() {
	if d.config.HTTP.TLS != "acme" {
		return
	}
	for key, listen := range map[string]string{"http.listen": d.config.HTTP.Listen, "acme.http_listen": d.config.ACME.HTTPListen} {
		place, err := netip.ParseAddrPort(listen)
		if (err == nil && place.Addr().IsLoopback() || strings.HasPrefix(listen, "localhost:")) && d.config.ACME.DNS.Provider == "" {
			d.say(key, email.FindingWarn, listen+` is reached from this machine only, and http.tls = "acme" waits there for the certificate authority`,
				`listen on ":443"; behind a proxy that has the certificate, write tls = "off"`)
		}
	}
}
