package console

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/a-h/templ"

	"inbox/engine/demand"
	"inbox/exchange"
	"inbox/internal/catalog"
	"inbox/internal/design"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/internal/openid"
	"inbox/normalized"
	"inbox/policypart"
)

//go:generate go tool -modfile=../tools/thirdparty/go.mod templ generate -f policy.templ -log-level warn

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

// Demand is what a reader of a demand's address may see of it.
type Demand = demand.View

// Demands is what agents ask back. A token is the secret in the address of one demand; its holder may decide.
// Errors of all methods: fault.NotFound (no such demand), fault.Gone (expired), fault.Conflict (answered already, maybe
// at this moment), fault.Malformed, fault.Forbidden and fault.Unauthenticated (a proof is bad), fault.Unavailable (a
// service that has to be asked is down). Beside an error about a demand that exists the demand is given, too.
type Demands interface {
	// Show changes nothing.
	Show(ctx context.Context, token string) (Demand, error)
	// Decide grants or declines.
	Decide(ctx context.Context, token string, grant bool) (Demand, error)
	// DecideApproval grants or denies an approval. Code stands in the message to the approvers beside the link, and shown is the
	// View.Shown of the page on which it was decided.
	DecideApproval(ctx context.Context, token string, grant bool, code, shown string) (Demand, error)
	// BeginLogin returns the address of the login service, and name and value of the cookie that binds the login to this browser.
	BeginLogin(ctx context.Context, token, login string) (redirect, attempt, binding string, err error)
	// FinishLogin takes what the login service sent back through the browser. A demand with LoggedIn is not decided: the browser gets
	// a last page for ConfirmLogin.
	FinishLogin(ctx context.Context, back openid.Return, binding string) (Demand, error)
	// ConfirmLogin takes the decision of the last page.
	ConfirmLogin(ctx context.Context, token, proof, binding string, grant bool) (Demand, error)
	// Pay offers an x402 payment payload.
	Pay(ctx context.Context, token string, payment json.RawMessage) (Demand, error)
}

// policyPage is the page of one demand.
type policyPage struct {
	Demand
	Site           string // the host under which people know the server
	Name           string // of the agent that asks, as people know it
	Title, Message string // in the reader's language where the agent wrote it
	Lang           string // of Title and Message; empty = not known
	State          string // heading and sentence of what became of the demand, while it is not open
	Detail         string
	Notice         string // what was wrong with the form
	Payable        bool
	Requirements   []string // x402, as text
	Mailto         string
}

// page answers a browser.
func (p *PolicyPages) page(w http.ResponseWriter, r *http.Request, status int, demand Demand, notice string) {
	r = catalog.ForReader(r)
	view := policyPage{Demand: demand, Site: p.site(), Name: demand.Agent, Notice: notice}
	if profile, known := p.agents.Agent(demand.Agent); known {
		view.Name = orElse(profile.DisplayName, profile.Name)
		view.Mailto = mailto(p.mail(profile), demand.Word)
	}

	view.Title, view.Message, view.Lang = translate(demand.Part, append(catalog.Accepted(r.Header.Get("Accept-Language")), demand.Locale))
	view.State, view.Detail = outcome(r.Context(), demand)
	view.Payable = demand.Open && demand.Kind == policypart.PaymentRequired && len(demand.Accepts) > 0

	for _, accepted := range demand.Accepts {
		view.Requirements = append(view.Requirements, indented(accepted))
	}

	if view.Lang != "" {
		w.Header().Set("Content-Language", bothLanguages(language(r.Context()), view.Lang))
	}

	send(w, r, status, view.component(), p.formAction(demand))
}

// bothLanguages are that of the page and that of the agent's words.
func bothLanguages(page, words string) string {
	if page == words {
		return page
	}
	return page + ", " + words
}

// site is the name over the pages.
func (p *PolicyPages) site() string {
	if u, err := url.Parse(p.publicURL); err == nil && u.Host != "" {
		return u.Host
	}
	return p.publicURL
}

func send(w http.ResponseWriter, r *http.Request, status int, page templ.Component, formAction string) {
	if err := design.Send(w, r, page, design.Answer{Status: status, FormAction: formAction}); err != nil {
		httpserver.WriteFault(w, err)
	}
}

// formAction lets the forms lead back to the page. Browsers apply the rule to redirects too, and login services
// redirect from host to host, so a page with a login lets them lead anywhere that is as safe as the page itself.
func (p *PolicyPages) formAction(d Demand) string {
	switch {
	case len(d.Logins) == 0 || d.LoggedIn != nil:
		return "'self'"
	case p.secure():
		return "'self' https:"
	}
	return "'self' https: http:"
}

func indented(document json.RawMessage) string {
	var text bytes.Buffer
	if err := json.Indent(&text, document, "", "  "); err != nil {
		return string(document)
	}
	return text.String()
}

// mailto returns a link that opens a mail with the word in it.
func mailto(address, word string) string {
	if address == "" || word == "" {
		return ""
	}
	return "mailto:" + url.PathEscape(address) + "?subject=" + url.PathEscape(word) + "&body=" + url.PathEscape(word)
}

// Link reports whether the page asks about a second address.
func (v policyPage) Link() bool { return v.Purpose == policypart.PurposeLink }

// Confirm reports whether the page is the other half of such a question.
func (v policyPage) Confirm() bool { return v.Purpose == policypart.PurposeLinkConfirm }

// Complete reports whether the page asks about the address that agreed to such a question.
func (v policyPage) Complete() bool { return v.Purpose == policypart.PurposeLinkComplete }

// networks are the names of the networks by which a message comes.
var networks = map[string]func(context.Context) string{
	normalized.ViaEmail:       func(ctx context.Context) string { return text(ctx, "Email") },
	normalized.ViaActivityPub: func(ctx context.Context) string { return text(ctx, "Fediverse") },
	normalized.ViaA2A:         func(ctx context.Context) string { return text(ctx, "A program that calls this server") },
}

// network names the network by which the message came and its answer leaves.
func (v policyPage) network(ctx context.Context) string {
	if name := networks[v.Via]; name != nil {
		return name(ctx)
	}
	return v.Via
}

// grantWords and declineWords are on the buttons of a demand that takes yes or no.
func (v policyPage) grantWords(ctx context.Context) string {
	switch {
	case v.Link():
		return text(ctx, "Yes, show me the word")
	case v.Confirm(), v.Complete():
		return text(ctx, "Yes, both are mine")
	}
	return text(ctx, "Allow")
}

func (v policyPage) declineWords(ctx context.Context) string {
	if v.Link() || v.Confirm() || v.Complete() {
		return text(ctx, "No")
	}
	return text(ctx, "Decline")
}

// outcome returns the words for a demand that cannot be decided any more; none while it is open.
func outcome(ctx context.Context, d Demand) (state, detail string) {
	switch {
	case d.Open:
		return "", ""
	case d.Purpose == policypart.PurposeApproval:
		return approvalOutcome(ctx, d)
	case d.Outcome == policypart.OutcomeGranted && d.Purpose == policypart.PurposeLink:
		return text(ctx, "You agreed"), text(ctx, "An address sent the word. The agent asks you about it in a new message: open the link there.")
	case d.Outcome == policypart.OutcomeGranted && d.Purpose == policypart.PurposeLinkConfirm:
		return text(ctx, "You agreed"), text(ctx, "The agent now asks at your other address. Open the link there: both count as one person once you have agreed there, too.")
	case d.Outcome == policypart.OutcomeGranted && d.Purpose == policypart.PurposeLinkComplete:
		return text(ctx, "The addresses are linked"), text(ctx, "From now on they count as one person for this agent. You can close this page.")
	case d.Outcome == policypart.OutcomeGranted:
		return text(ctx, "You agreed"), text(ctx, "The agent goes on. Its answer comes the same way as your message; you need not write again. You can close this page.")
	case d.Outcome == policypart.OutcomePaid:
		return text(ctx, "The payment was accepted"), text(ctx, "The agent goes on. Money is taken only once the work is done; the answer comes the same way as your message.")
	case d.Outcome == policypart.OutcomeDenied:
		return text(ctx, "You declined"), text(ctx, "Nothing was done and nothing was charged. You can close this page.")
	}

	switch d.Status {
	case policypart.StatusExpired:
		return text(ctx, "This request has expired"), text(ctx, "Nothing was done. Write to the agent again if you still want an answer.")
	case policypart.StatusClaimed:
		return text(ctx, "This request is being worked on"), text(ctx, "It is answered already, and the result is not there yet. Load the page again in a moment.")
	case policypart.StatusDropped:
		return text(ctx, "This is no longer needed"), text(ctx, "You wrote again in the meantime, or the message was withdrawn. Look for a newer link.")
	}

	return text(ctx, "This request was answered already"), text(ctx, "A link works once. Write to the agent again if you need another one.")
}

// fail answers with the public text of an error, on the page of the demand where there is one.
func (p *PolicyPages) fail(w http.ResponseWriter, r *http.Request, demand Demand, err error) {
	found := fault.Of(err)
	switch {
	case wantsJSON(r) || found.Kind == fault.Internal || found.Kind == fault.RateLimited || found.Kind == fault.Unavailable && demand.ID == "":
		p.failJSON(w, demand, err)
	case demand.ID != "":
		p.page(w, r, failStatus(found.Kind), demand, sentence(found))
	default:
		r = catalog.ForReader(r)
		send(w, r, failStatus(found.Kind), failedPage(p.site(), failTitle(r.Context(), found.Kind), sentence(found)), "")
	}
}

func failTitle(ctx context.Context, kind fault.Kind) string {
	switch kind {
	case fault.NotFound:
		return text(ctx, "Nothing here")
	case fault.Gone:
		return text(ctx, "This link cannot be used any more")
	case fault.Conflict:
		return text(ctx, "Another person was faster")
	case fault.Forbidden, fault.Unauthenticated:
		return text(ctx, "This was not accepted")
	}
	return text(ctx, "This could not be read")
}

func sentence(f *fault.Fault) string {
	text := f.Public
	if f.Field != "" {
		text = "The field " + f.Field + " " + text
	}
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// translate returns title and message in the first of the reader's languages that the agent wrote. A reader of English
// gets the agent's own words before a translation into a language that they like less.
func translate(part policypart.Part, wanted []string) (title, message, lang string) {
	for _, tag := range wanted {
		for short := tag; short != ""; short = parentTag(short) {
			for language, text := range part.MessageTranslations {
				if strings.EqualFold(language, short) && text.Message != "" {
					return orElse(text.Title, part.Title), text.Message, language
				}
			}
		}
		if base, _, _ := strings.Cut(strings.ToLower(tag), "-"); base == "en" {
			break
		}
	}
	return part.Title, part.Message, ""
}

func parentTag(tag string) string { return tag[:max(0, strings.LastIndexByte(tag, '-'))] }
