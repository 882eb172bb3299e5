package console

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/policypart"
)

// PolicyOptions configure the pages of demands. Demands, Agents and PublicURL are required.
type PolicyOptions struct {
	Demands   Demands
	Agents    exchange.Directory
	PublicURL string                             // scheme, host and port under which browsers reach the pages
	Mail      func(exchange.AgentProfile) string // an agent's mail address, or "" where email is off; may be nil
}

// PolicyPages shows what agents ask back and takes the decisions (message contract, section 9). GET and HEAD never
// change anything, because mail scanners follow links; the holder of the address may decide, because it carries the secret.
type PolicyPages struct {
	demands   Demands
	agents    exchange.Directory
	publicURL string
	mail      func(exchange.AgentProfile) string
}

// NewPolicyPages makes the pages.
func NewPolicyPages(options PolicyOptions) *PolicyPages {
	if options.Mail == nil {
		options.Mail = func(exchange.AgentProfile) string { return "" }
	}
	return &PolicyPages{
		demands: options.Demands, agents: options.Agents, publicURL: strings.TrimSuffix(options.PublicURL, "/"), mail: options.Mail,
	}
}

const callbackPath = "/policy/login/callback"

// Routes are the address of a demand and the way back from a login service.
func (p *PolicyPages) Routes() []httpserver.Route {
	return []httpserver.Route{
		{Method: http.MethodGet, Pattern: "/policy/{token}", Handler: http.HandlerFunc(p.show)},
		{Method: http.MethodPost, Pattern: "/policy/{token}", Handler: http.HandlerFunc(p.post)},
		{Method: http.MethodGet, Pattern: callbackPath, Handler: http.HandlerFunc(p.callback)},
		// Unlike elsewhere HEAD is not a GET here: coming back from a login decides something.
		{Method: http.MethodHead, Pattern: callbackPath, Handler: http.HandlerFunc(p.callbackHead)},
	}
}

// isState is the form of every token: base64url of 32 bytes.
var isState = regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`).MatchString

var errNoDemand = fault.New(fault.NotFound, "there is nothing at this address; check that the link is complete")

func token(r *http.Request) (string, error) {
	text := httpserver.Param(r, "token")
	if !isState(text) {
		return "", errNoDemand
	}
	return text, nil
}

func (p *PolicyPages) show(w http.ResponseWriter, r *http.Request) {
	guard(w)
	state, err := token(r)
	if err != nil {
		p.fail(w, r, Demand{}, err)
		return
	}
	demand, err := p.demands.Show(r.Context(), state)
	demand = p.completed(demand, state)
	switch {
	case err != nil:
		p.fail(w, r, demand, err)
	case wantsJSON(r):
		p.document(w, demand, "")
	default:
		p.page(w, r, showStatus(demand), demand, "")
	}
}

// completed fills in what the request knows as well.
func (p *PolicyPages) completed(demand Demand, state string) Demand {
	demand.Token = orElse(demand.Token, state)
	if profile, known := p.agents.Agent(demand.Agent); known {
		demand.AgentAddress = orElse(demand.AgentAddress, profile.Address)
	}
	return demand
}

// showStatus says 410 for what cannot be decided any more, so that machines need not read the page.
func showStatus(d Demand) int {
	if d.Open || d.Status == policypart.StatusClaimed {
		return http.StatusOK
	}
	return http.StatusGone
}

// guard keeps the secret of the address out of caches, search engines and the logs of the sites that a reader visits next.
func guard(w http.ResponseWriter) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("X-Robots-Tag", "noindex, nofollow")
	header.Add("Vary", "Accept, Accept-Language")
}

// wantsJSON reports whether the reader is a program: it asks for JSON and not for a page, or it offers a payment.
func wantsJSON(r *http.Request) bool {
	accept := strings.ToLower(r.Header.Get("Accept"))
	return r.Header.Get(paymentHeader) != "" || strings.Contains(accept, "json") && !strings.Contains(accept, "text/html")
}

var errForeign = fault.New(fault.Forbidden, "decisions are taken on the page itself, not from another site; open the link and decide there")

// ownSite refuses posts that another site makes a browser send. The secret in the path is what protects a demand; this
// is the second lock. A page without referrer sends "Origin: null", so Sec-Fetch-Site is asked first (Fetch standard).
func (p *PolicyPages) ownSite(r *http.Request) error {
	switch site := r.Header.Get("Sec-Fetch-Site"); site {
	case "same-origin", "none":
		return nil
	case "":
	default:
		return errForeign
	}
	origin := r.Header.Get("Origin")
	if origin == "" || origin == "null" || strings.EqualFold(origin, p.publicURL) || sameHost(origin, r.Host) {
		return nil
	}
	return errForeign
}

// sameHost serves a server that is also reached by another name than its public one.
func sameHost(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, host)
}
