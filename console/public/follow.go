package public

import (
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"golang.org/x/net/idna"

	"inbox/internal/catalog"
	"inbox/internal/design"
	"inbox/internal/httpserver"
)

// followAction lets the form of a profile lead to the reader's own server: browsers apply the rule to redirects, too.
const followAction = "'self' https:"

const maxServerName = 300

// follow leads a reader to their own server, which asks there whether they want to follow the agent. The address is always that
// server's page for it (/authorize_interaction, as Mastodon and others have it) with this agent, so that it leads to nothing else. A
// link of another site does not lead on by itself: it shows where it would lead.
func (p *Pages) follow(w http.ResponseWriter, r *http.Request) {
	r = catalog.ForReader(r)
	agent, known := p.options.Agents.Agent(httpserver.Param(r, "agent"))
	if !known {
		p.missing(w, r)
		return
	}

	asked := r.URL.Query().Get("server")
	server, valid := serverName(asked)
	target := ""
	if valid {
		target = "https://" + server + "/authorize_interaction?uri=" + url.QueryEscape(p.base+"/agents/"+agent.Name)
	}

	w.Header().Set("Cache-Control", "no-store")
	if valid && r.Header.Get("Sec-Fetch-Site") == "same-origin" {
		w.Header().Set("Referrer-Policy", "no-referrer")
		w.Header().Set("Location", target)
		w.WriteHeader(http.StatusSeeOther)
		return
	}

	status := http.StatusOK
	if !valid && asked != "" {
		status = http.StatusBadRequest
	}
	head := p.head(r, text(r.Context(), "Follow {agent}", "agent", agent.Address), "/@"+url.PathEscape(agent.Name))
	head.Robots = "noindex"
	send(w, r, followPage(head, p.view(agent), asked, server, target), design.Answer{Status: status, FormAction: followAction})
}

// serverName reads the name of a server: a host, an address of a person there, or the address of a page. It has to be a name of the
// public web: no port, no number.
func serverName(words string) (host string, valid bool) {
	words = strings.TrimSpace(words)
	if len(words) > maxServerName {
		return "", false
	}
	if scheme, rest, found := strings.Cut(words, "://"); found {
		if !strings.EqualFold(scheme, "https") && !strings.EqualFold(scheme, "http") {
			return "", false
		}
		words = rest
	}
	words, _, _ = strings.Cut(words, "/")
	words = words[strings.LastIndexByte(words, '@')+1:]

	host, err := idna.Lookup.ToASCII(strings.TrimSuffix(words, "."))
	if err != nil || !strings.Contains(host, ".") || strings.Contains(host, "..") || strings.ContainsAny(host, ":?#%\\ ") {
		return "", false
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return "", false
	}
	last := host[strings.LastIndexByte(host, '.')+1:]
	if strings.Trim(last, "0123456789") == "" { // browsers read 1.2 as an address (URL standard, section 3.5)
		return "", false
	}
	return host, true
}
