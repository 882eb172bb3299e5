package console

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"

	"inbox/internal/fault"
	"inbox/policypart"
)

// policyPage is the page of one demand.
type policyPage struct {
	Demand
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
	view := policyPage{Demand: demand, Name: demand.Agent, Notice: notice}
	if profile, known := p.agents.Agent(demand.Agent); known {
		view.Name = orElse(profile.DisplayName, profile.Name)
		view.Mailto = mailto(p.mail(profile), demand.Word)
	}
	view.Title, view.Message, view.Lang = translate(demand.Part, append(languages(r.Header.Get("Accept-Language")), demand.Locale))
	view.State, view.Detail = outcome(demand)
	view.Payable = demand.Open && demand.Kind == policypart.PaymentRequired && len(demand.Accepts) > 0
	for _, accepted := range demand.Accepts {
		view.Requirements = append(view.Requirements, indented(accepted))
	}
	if view.Lang != "" {
		w.Header().Set("Content-Language", "en, "+view.Lang)
	}
	writePage(w, status, templateOf(demand), view, p.formAction(demand))
}

// formAction lets the forms lead back to the page. Browsers apply the rule to redirects too, and login services
// redirect from host to host, so a page with a login lets them lead anywhere that is as safe as the page itself.
func (p *PolicyPages) formAction(d Demand) string {
	switch {
	case len(d.Logins) == 0:
		return "'self'"
	case strings.HasPrefix(p.publicURL, "https://"):
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

// Clock returns a time as people read it.
func (policyPage) Clock(t time.Time) string { return t.UTC().Format("2 January 2006, 15:04 UTC") }

// Machine returns a time as browsers read it.
func (policyPage) Machine(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Link reports whether the page asks about a second address.
func (v policyPage) Link() bool { return v.Purpose == policypart.PurposeLink }

// Confirm reports whether the page is the other half of such a question.
func (v policyPage) Confirm() bool { return v.Purpose == policypart.PurposeLinkConfirm }

// outcome returns the words for a demand that cannot be decided any more; none while it is open.
func outcome(d Demand) (state, detail string) {
	switch {
	case d.Open:
		return "", ""
	case d.Purpose == policypart.PurposeApproval:
		return approvalOutcome(d)
	case d.Outcome == policypart.OutcomeGranted && d.Purpose == policypart.PurposeLinkConfirm:
		return "The addresses are linked", "From now on they count as one person here. You can close this page."
	case d.Outcome == policypart.OutcomeGranted:
		return "You agreed", "The agent goes on. Its answer comes the same way as your message; you need not write again. You can close this page."
	case d.Outcome == policypart.OutcomePaid:
		return "The payment was accepted", "The agent goes on. Money is taken only once the work is done; the answer comes the same way as your message."
	case d.Outcome == policypart.OutcomeDenied:
		return "You declined", "Nothing was done and nothing was charged. You can close this page."
	}
	switch d.Status {
	case policypart.StatusExpired:
		return "This request has expired", "Nothing was done. Write to the agent again if you still want an answer."
	case policypart.StatusClaimed:
		return "This request is being worked on", "Somebody has answered it already and the result is not there yet. Load the page again in a moment."
	case policypart.StatusDropped:
		return "Nobody waits for this any more", "You wrote again in the meantime, or the message was taken back. Look for a newer link."
	}
	return "This request was answered already", "A link works once. Write to the agent again if you need another one."
}

// failPage is a page that says only what went wrong.
type failPage struct{ Title, Detail string }

// fail answers with the public text of an error, on the page of the demand where there is one.
func (p *PolicyPages) fail(w http.ResponseWriter, r *http.Request, demand Demand, err error) {
	found := fault.Of(err)
	switch {
	case wantsJSON(r) || found.Kind == fault.Internal || found.Kind == fault.RateLimited || found.Kind == fault.Unavailable && demand.ID == "":
		p.failJSON(w, demand, err)
	case demand.ID != "":
		p.page(w, r, failStatus(found.Kind), demand, sentence(found))
	default:
		writePage(w, failStatus(found.Kind), "policy_fail.html", failPage{Title: failTitle(found.Kind), Detail: sentence(found)}, "'none'")
	}
}

func failTitle(kind fault.Kind) string {
	switch kind {
	case fault.NotFound:
		return "Nothing here"
	case fault.Gone:
		return "This link cannot be used any more"
	case fault.Conflict:
		return "Somebody else was faster"
	case fault.Forbidden, fault.Unauthenticated:
		return "This was not accepted"
	}
	return "This could not be read"
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
