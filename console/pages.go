// Package console is what people see in a browser, and what operators call: the agents' public pages, the pages on
// which people answer what an agent asks back, and the operator API. It renders on the server, needs no script, holds
// no state and decides nothing itself.
package console

import (
	"bytes"
	"net/http"
	"strings"

	"github.com/a-h/templ"

	"inbox/exchange"
	"inbox/internal/httpserver"
	"inbox/policypart"
)

//go:generate go tool -modfile=../tools/go.mod templ generate -path . -log-level warn

// Pages serves the public pages.
type Pages struct {
	agents    exchange.Directory
	publicURL string
	mail      func(exchange.AgentProfile) string
	chat      func(agent string) bool // nil = there is none
	operator  []Field
}

// Field is one line about who operates the server. Href is its link; empty = plain text.
type Field struct{ Name, Value, Href string }

// NewPages makes the pages. mail returns an agent's mail address, "" where email is off; operator stands on each profile.
func NewPages(agents exchange.Directory, publicURL string, mail func(exchange.AgentProfile) string, operator ...Field) *Pages {
	return &Pages{agents: agents, publicURL: publicURL, mail: mail, operator: operator}
}

// WithChat shows on the pages of agents for which chat returns true where they can be talked to in the browser.
func (p *Pages) WithChat(chat func(agent string) bool) *Pages {
	p.chat = chat
	return p
}

// ProfilePattern is the route of an agent's page.
const ProfilePattern = "/@{agent}"

// Routes are the page of the host, with its agents, and one page per agent.
func (p *Pages) Routes() []httpserver.Route {
	return []httpserver.Route{
		{Method: http.MethodGet, Pattern: "/", Handler: http.HandlerFunc(p.host)},
		{Method: http.MethodGet, Pattern: ProfilePattern, Handler: http.HandlerFunc(p.profile)},
	}
}

func (p *Pages) host(w http.ResponseWriter, r *http.Request) {
	writePage(w, r, http.StatusOK, hostPage(p.agents.Agents()), "'none'")
}

// view is one agent with its ways in.
type view struct {
	exchange.AgentProfile
	Mail, Card string
	Chat       bool // there is a chat for guests
	Operator   []Field
}

func (p *Pages) profile(w http.ResponseWriter, r *http.Request) {
	agent, known := p.agents.Agent(httpserver.Param(r, "agent"))
	if !known {
		writePage(w, r, http.StatusNotFound, missingPage(), "'none'")
		return
	}
	writePage(w, r, http.StatusOK, agentPage(view{
		AgentProfile: agent, Mail: p.mail(agent), Card: p.publicURL + "/a2a/" + agent.Name + "/.well-known/agent-card.json",
		Operator: p.operator, Chat: p.chat != nil && p.chat(agent.Name),
	}), "'none'")
}

// writePage renders a page whole before it begins the response. formAction says where its forms may lead (Content Security Policy 3,
// section 6.4.1).
func writePage(w http.ResponseWriter, r *http.Request, status int, content templ.Component, formAction string) {
	var page bytes.Buffer
	if err := content.Render(r.Context(), &page); err != nil {
		httpserver.WriteFault(w, err)
		return
	}

	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Security-Policy",
		"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action "+formAction+"; frame-ancestors 'none'")
	header.Set("X-Content-Type-Options", "nosniff")
	if header.Get("Referrer-Policy") == "" {
		header.Set("Referrer-Policy", "no-referrer")
	}
	w.WriteHeader(status)
	_, _ = w.Write(page.Bytes()) // the reader went away: nothing to do
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
