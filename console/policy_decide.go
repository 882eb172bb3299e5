package console

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/a-h/templ"

	"inbox/internal/catalog"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/internal/openid"
	"inbox/policypart"
)

const (
	maxDecisionBytes = 64 << 10
	paymentHeader    = "X-PAYMENT" // x402, version 1: base64 of the payment payload
)

// decision is what a reader sent: exactly one of the fields is set.
type decision struct {
	Decision string          `json:"decision,omitempty"` // grant or decline
	Login    string          `json:"login,omitempty"`    // name of a login service
	Payment  json.RawMessage `json:"payment,omitempty"`  // x402 payment payload

	// Beside the decision about an approval: its code, and what the page showed.
	Code  string `json:"code,omitempty"`
	Shown string `json:"shown,omitempty"`

	// Of the last page of a login, beside Decision. Only its form has them: a program cannot decide for the person who reads it.
	Attempt string `json:"-"`
	Proof   string `json:"-"`
}

// post takes a decision from the page's form, from JSON, or a payment from the x402 header.
func (p *PolicyPages) post(w http.ResponseWriter, r *http.Request) {
	guard(w)
	state, err := token(r)
	if err == nil {
		err = p.ownSite(r)
	}

	var made decision
	if err == nil {
		made, err = readDecision(r)
	}
	if err != nil {
		p.fail(w, r, Demand{}, err)
		return
	}

	switch {
	case made.Payment != nil:
		demand, err := p.demands.Pay(r.Context(), state, made.Payment)
		p.settled(w, r, p.completed(demand, state), err)
	case made.Login != "":
		p.beginLogin(w, r, state, made.Login)
	case made.Proof != "":
		p.confirmLogin(w, r, state, made)
	case made.Code != "" && (made.Decision == "grant" || made.Decision == "decline"):
		demand, err := p.demands.DecideApproval(r.Context(), state, made.Decision == "grant", made.Code, made.Shown)
		p.settled(w, r, p.completed(demand, state), err)
	case made.Decision == "grant" || made.Decision == "decline":
		demand, err := p.demands.Decide(r.Context(), state, made.Decision == "grant")
		p.settled(w, r, p.completed(demand, state), err)
	default:
		p.undecided(w, r, state)
	}
}

// settled shows what a decision led to.
func (p *PolicyPages) settled(w http.ResponseWriter, r *http.Request, demand Demand, err error) {
	switch {
	case err != nil:
		p.fail(w, r, demand, err)
	case wantsJSON(r):
		writeState(w, http.StatusOK, demand)
	default:
		p.page(w, r, http.StatusOK, demand, "")
	}
}

// undecided answers a post without a decision: machines that only ask for the terms of a payment get them.
func (p *PolicyPages) undecided(w http.ResponseWriter, r *http.Request, state string) {
	demand, err := p.demands.Show(r.Context(), state)
	demand = p.completed(demand, state)
	switch {
	case err != nil:
		p.fail(w, r, demand, err)
	case wantsJSON(r):
		p.document(w, demand, "nothing was decided; send a decision, a login or a payment")
	case demand.Open:
		p.page(w, r, http.StatusBadRequest, demand, text(catalog.ForReader(r).Context(), "Nothing was chosen yet. Use one of the buttons."))
	default:
		p.page(w, r, showStatus(demand), demand, "")
	}
}

func readDecision(r *http.Request) (made decision, err error) {
	if header := r.Header.Get(paymentHeader); header != "" {
		made.Payment, err = readPayment(header)
		return made, err
	}

	body, err := httpserver.ReadBody(r, maxDecisionBytes)
	if err != nil || len(body) == 0 {
		return made, err
	}

	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch kind {
	case "application/x-www-form-urlencoded":
		return readForm(string(body))
	case "application/json":
		if err := json.Unmarshal(body, &made); err != nil {
			return made, fault.Wrap(fault.Malformed, `write {"decision":"grant"}, {"decision":"decline"}, {"login":"…"} or {"payment":{…}}`, err)
		}
		return made.only()
	}

	return made, fault.New(fault.Unsupported, "send a form (application/x-www-form-urlencoded) or application/json")
}

func readForm(body string) (made decision, err error) {
	form, err := url.ParseQuery(body)
	if err != nil {
		return made, fault.Wrap(fault.Malformed, "the form cannot be read", err)
	}

	made = decision{
		Decision: form.Get("decision"), Login: form.Get("login"), Code: form.Get("code"), Shown: form.Get("shown"),
		Attempt: form.Get("attempt"), Proof: form.Get("proof"),
	}
	// The form has one field for the payload and two buttons: the field counts only with its own button.
	if made.Decision == "pay" {
		made.Decision = ""
		made.Payment, err = readPayment(form.Get("payment"))
	}
	if err != nil {
		return made, err
	}

	return made.only()
}

// only refuses a message that wants two things at once.
func (d decision) only() (decision, error) {
	count := 0
	for _, given := range []bool{d.Decision != "", d.Login != "", d.Payment != nil} {
		if given {
			count++
		}
	}

	if count > 1 {
		return d, fault.New(fault.Malformed, "send one of decision, login and payment")
	}
	return d, nil
}

// readPayment takes the payload as JSON or as base64 of it, as the x402 header has it.
func readPayment(text string) (json.RawMessage, error) {
	text = strings.TrimSpace(text)
	payload := []byte(text)
	if !strings.HasPrefix(text, "{") {
		decoded, err := decodeBase64(text)
		if err != nil {
			return nil, fault.InField("payment", "must be an x402 payment payload: JSON, or base64 of it")
		}
		payload = decoded
	}
	if len(payload) > maxDecisionBytes || !json.Valid(payload) || !strings.HasPrefix(strings.TrimSpace(string(payload)), "{") {
		return nil, fault.InField("payment", "must be an x402 payment payload: a JSON object, or base64 of it")
	}
	return payload, nil
}

func decodeBase64(text string) ([]byte, error) {
	text = strings.TrimRight(text, "=")
	if decoded, err := base64.RawStdEncoding.DecodeString(text); err == nil {
		return decoded, nil
	}
	return base64.RawURLEncoding.DecodeString(text)
}

// component returns the page that shows the demand: an approver reads something else than the asker of a demand, and so does the person who
// logged in for the asker.
func (v policyPage) component() templ.Component {
	if v.LoggedIn != nil {
		return loggedInPage(v)
	}
	if v.Purpose == policypart.PurposeApproval {
		return approvalPage(v)
	}
	return demandPage(v)
}

// Details is what would be done, as text.
func (v policyPage) Details() string {
	if len(v.Preview) == 0 {
		return ""
	}
	var text string
	if json.Unmarshal(v.Preview, &text) == nil {
		return text
	}
	return indented(v.Preview)
}

// approvalOutcome returns the words for an approval that cannot be decided any more.
func approvalOutcome(ctx context.Context, d Demand) (state, detail string) {
	switch {
	case d.Outcome == policypart.OutcomeGranted && d.Draft != "":
		return text(ctx, "Approved"), text(ctx, "The answer is sent. You can close this page.")
	case d.Outcome == policypart.OutcomeGranted:
		return text(ctx, "Approved"), text(ctx, "The agent goes on. You can close this page.")
	case d.Outcome == policypart.OutcomeDenied:
		return text(ctx, "Denied"), text(ctx, "Nothing is done or sent. You can close this page.")
	case d.Status == policypart.StatusExpired:
		return text(ctx, "This approval has expired"), text(ctx, "No one decided in time, so nothing was done. The asker is told.")
	case d.Status == policypart.StatusDropped:
		return text(ctx, "This is no longer needed"), text(ctx, "The asker wrote again in the meantime, or withdrew the message.")
	}
	return text(ctx, "This was decided already"), text(ctx, "An approval is decided once.")
}

const (
	loginCookie  = "inbox-login-" // and the name of the attempt: tabs that log in at a time do not know each other
	loginSeconds = 10 * 60
)

// beginLogin sends the browser to the login service. The cookie binds the way back to this browser, so that no one can
// finish a login that another person began.
func (p *PolicyPages) beginLogin(w http.ResponseWriter, r *http.Request, state, login string) {
	redirect, attempt, binding, err := p.demands.BeginLogin(r.Context(), state, login)
	if err != nil {
		p.fail(w, r, Demand{}, err)
		return
	}
	http.SetCookie(w, p.cookie(attempt, binding, loginSeconds))
	w.Header().Set("Location", redirect)
	w.WriteHeader(http.StatusSeeOther)
}

// cookie is Lax and not Strict, because the login service brings the browser back from another site. The prefix keeps other hosts of
// the domain from setting it (RFC 6265bis, section 4.1.3.2).
func (p *PolicyPages) cookie(attempt, value string, seconds int) *http.Cookie {
	return &http.Cookie{ //nolint:gosec // not Secure on plain http, where a browser would drop it: development only
		Name: p.cookieName(attempt), Value: value, Path: "/", MaxAge: seconds, HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: p.secure(),
	}
}

func (p *PolicyPages) secure() bool { return strings.HasPrefix(p.publicURL, "https://") }

func (p *PolicyPages) cookieName(attempt string) string {
	if p.secure() {
		return "__Host-" + loginCookie + attempt
	}
	return loginCookie + attempt
}

// binding returns the secret of an attempt's cookie; empty without one.
func (p *PolicyPages) binding(r *http.Request, attempt string) string {
	found := r.CookiesNamed(p.cookieName(attempt))
	if len(found) != 1 {
		return ""
	}
	return found[0].Value
}

// callback is where a login service sends the browser back (OpenID Connect Core section 3.1.2.5). Unlike other GETs it
// may decide something, but only with the cookie of the browser that began the login: a scanner does not have it. The cookie stays
// until the demand is decided, for the last page.
func (p *PolicyPages) callback(w http.ResponseWriter, r *http.Request) {
	guard(w)
	back, err := openid.ReadReturn(r.URL.Query())
	attempt := openid.AttemptName(back.State)
	binding := p.binding(r, attempt)
	if err == nil && binding == "" {
		err = fault.New(fault.Forbidden, "this browser did not begin a login here, or it took too long; open the link of the message again")
	}
	if err != nil {
		p.fail(w, r, Demand{}, err)
		return
	}

	demand, err := p.demands.FinishLogin(r.Context(), back, binding)
	if err != nil || demand.LoggedIn == nil {
		http.SetCookie(w, p.cookie(attempt, "", -1))
	} else { // the last page has its own time
		http.SetCookie(w, p.cookie(attempt, binding, loginSeconds))
	}
	if err == nil && demand.LoggedIn != nil && wantsJSON(r) {
		httpserver.WriteError(w, http.StatusForbidden, httpserver.ErrorDetail{
			Code: policypart.CodePrincipal, Message: "the login is not proven to be the sender's, so a person has to confirm it on the page; open the link in a browser",
		})
		return
	}
	p.settled(w, r, p.completed(demand, ""), err)
}

// confirmLogin takes the decision of the last page of a login.
func (p *PolicyPages) confirmLogin(w http.ResponseWriter, r *http.Request, state string, made decision) {
	if made.Decision != "grant" && made.Decision != "decline" {
		p.undecided(w, r, state)
		return
	}
	demand, err := p.demands.ConfirmLogin(r.Context(), state, made.Proof, p.binding(r, made.Attempt), made.Decision == "grant")
	if err == nil {
		http.SetCookie(w, p.cookie(made.Attempt, "", -1))
	}
	p.settled(w, r, p.completed(demand, state), err)
}

func (p *PolicyPages) callbackHead(w http.ResponseWriter, _ *http.Request) {
	guard(w)
	w.Header().Set("Allow", http.MethodGet)
	httpserver.WriteError(w, http.StatusMethodNotAllowed, httpserver.ErrorDetail{Code: "method_not_allowed", Message: "this address takes GET"})
}
