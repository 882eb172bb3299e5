// Package public is what everyone sees of the agents in a browser: the front page, a page for each agent with the ways to reach it, its
// public notes as a feed, and the way to follow it from another server. It decides nothing, sets no cookie and watches no one.
package public

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/a-h/templ"

	"inbox/exchange"
	"inbox/internal/catalog"
	"inbox/internal/design"
	"inbox/internal/httpserver"
)

//go:generate go tool -modfile=../../tools/thirdparty/go.mod templ generate -path . -log-level warn

// Options configure the pages. Agents, PublicURL, Domain and Federation are required.
type Options struct {
	Agents    exchange.Directory
	PublicURL string // scheme, host and port under which browsers reach the pages
	Domain    string // of the agents' addresses

	Mail     func(exchange.AgentProfile) string                                 // an agent's mail address, "" where email is off; nil = it is off
	Chat     func(agent string) bool                                            // whether guests may talk to an agent in the browser; nil = no agent
	Picture  func(agent string) string                                          // https address of an agent's picture, "" = it is drawn; nil = all are
	Notes    func(ctx context.Context, agent string, limit int) ([]Note, error) // newest public notes, newest first; nil = there are none
	Hidden   func(agent string) bool                                            // whether an agent stands in no list and no search engine; nil = none
	Handling func(agent string) Handling                                        // what becomes of what people write; nil = nothing is told
	Operator []Field                                                            // who operates the server

	Federation func() Federation // how the server deals with other servers
}

// Note is something that an agent said in public.
type Note struct {
	Address   string // of the note's own page
	Published time.Time
	Summary   string // content warning, as text
	Text      string
	HTML      string // sanitized, for feeds
}

// Handling is what becomes of what people write to an agent.
type Handling struct {
	Messages, Files time.Duration // how long they are kept; 0 = for ever
	ShowsTools      bool          // answers show which tools were called
	Privacy         string        // address of the operator's own words
}

// Field is one line about who operates the server. Href is its link; empty = plain text.
type Field struct{ Name, Value, Href string }

// Pages serves the public pages.
type Pages struct {
	options Options
	base    string
}

// NewPages makes the pages.
func NewPages(options Options) *Pages {
	if options.Mail == nil {
		options.Mail = func(exchange.AgentProfile) string { return "" }
	}
	if options.Chat == nil {
		options.Chat = func(string) bool { return false }
	}
	if options.Hidden == nil {
		options.Hidden = func(string) bool { return false }
	}
	if options.Picture == nil {
		options.Picture = func(string) string { return "" }
	}
	if options.Notes == nil {
		options.Notes = func(context.Context, string, int) ([]Note, error) { return nil, nil }
	}

	return &Pages{options: options, base: strings.TrimSuffix(options.PublicURL, "/")}
}

// ProfilePattern is the route of an agent's page.
const ProfilePattern = "/@{agent}"

// Routes are the front page, the page for administrators of other servers and, for each agent, its page, its feed and the way to follow it.
func (p *Pages) Routes() []httpserver.Route {
	const get = http.MethodGet
	return []httpserver.Route{
		{Method: get, Pattern: "/", Handler: http.HandlerFunc(p.front)},
		{Method: get, Pattern: FederationPath, Handler: http.HandlerFunc(p.federation)},
		{Method: get, Pattern: ProfilePattern, Handler: http.HandlerFunc(p.profile)},
		{Method: get, Pattern: ProfilePattern + "/feed", Handler: http.HandlerFunc(p.feed)},
		{Method: get, Pattern: ProfilePattern + "/follow", Handler: http.HandlerFunc(p.follow)},
	}
}

// keep lets browsers and caches have a page for a minute, and ask afterwards whether it is still the same.
const keep = "public, max-age=60"

const notesOnProfile = 5

func (p *Pages) front(w http.ResponseWriter, r *http.Request) {
	r = catalog.ForReader(r)
	head := p.head(r, p.options.Domain, "/")
	head.Description, head.OpenGraph.Type = text(r.Context(), "Agents that can be written to from the fediverse, by mail and by other agents."), "website"
	head.OpenGraph.Image = design.Picture{
		Address: p.base + design.Address("mark.png"), Alt: text(r.Context(), "A figure above a tray for what comes in"), Size: design.PictureSize,
	}
	send(w, r, frontPage(head, p.agents(), p.options.Operator), design.Answer{Status: http.StatusOK, Keep: keep})
}

func (p *Pages) agents() []view {
	var list []view
	for _, agent := range p.options.Agents.Agents() {
		if !p.options.Hidden(agent.Name) {
			list = append(list, p.view(agent))
		}
	}
	return list
}

// head is what every page has.
func (p *Pages) head(r *http.Request, title, path string) design.Head {
	return design.Head{
		Title: title, Lang: catalog.Language(r.Context()), Class: "public", Canonical: p.base + path,
		OpenGraph: design.OpenGraph{Site: p.options.Domain},
	}
}

// view is one agent with its ways in.
type view struct {
	exchange.AgentProfile
	Label         string // its name as people know it
	Mail, Card    string
	Address, Page string // its page as a path, and with the host
	Picture       string
	Chat          bool // there is a chat for guests
	Notes         []Note
	Handling      *Handling
	Operator      []Field
	QR            code
}

func (p *Pages) view(agent exchange.AgentProfile) view {
	label := agent.DisplayName
	if strings.TrimSpace(label) == "" {
		label = agent.Name
	}

	return view{
		AgentProfile: agent, Label: label, Mail: p.options.Mail(agent), Card: p.base + "/a2a/" + agent.Name + "/.well-known/agent-card.json",
		Address: "/@" + url.PathEscape(agent.Name), Page: p.base + "/@" + url.PathEscape(agent.Name),
		Picture: https(p.options.Picture(agent.Name)), Chat: p.options.Chat(agent.Name), Operator: p.options.Operator,
	}
}

func (p *Pages) profile(w http.ResponseWriter, r *http.Request) {
	r = catalog.ForReader(r)
	agent, known := p.options.Agents.Agent(httpserver.Param(r, "agent"))
	if !known {
		p.missing(w, r)
		return
	}

	shown := p.view(agent)
	notes, err := p.options.Notes(r.Context(), agent.Name, notesOnProfile)
	if err != nil {
		httpserver.WriteFault(w, err)
		return
	}
	shown.Notes = notes
	if p.options.Handling != nil {
		handling := p.options.Handling(agent.Name)
		shown.Handling = &handling
	}
	if shown.QR, err = encode(shown.Page); err != nil {
		httpserver.WriteFault(w, err)
		return
	}

	head := p.head(r, shown.Label+" ("+agent.Address+")", shown.Address)
	head.Description, head.OpenGraph.Type = firstLine(agent.Summary), "profile"
	head.OpenGraph.Image = design.Picture{Address: shown.Picture, Alt: text(r.Context(), "Picture of {agent}", "agent", shown.Label)}
	if shown.Picture == "" {
		head.OpenGraph.Image.Address, head.OpenGraph.Image.Size = p.base+design.AvatarAddress(agent.Name, agent.Address), design.PictureSize
	}
	if p.options.Hidden(agent.Name) {
		head.Robots = "noindex"
	}
	head.Links = []design.Link{
		{Rel: "alternate", Type: "application/atom+xml", Href: shown.Address + "/feed", Title: shown.Label},
		{Rel: "alternate", Type: "application/activity+json", Href: p.base + "/agents/" + url.PathEscape(agent.Name), Title: agent.Address},
	}
	send(w, r, profilePage(head, shown), design.Answer{Status: http.StatusOK, Keep: keep, FormAction: followAction, Images: origin(shown.Picture)})
}

func (p *Pages) missing(w http.ResponseWriter, r *http.Request) {
	head := p.head(r, text(r.Context(), "No account has that name"), "/")
	head.Canonical, head.Robots = "", "noindex"
	send(w, r, missingPage(head), design.Answer{Status: http.StatusNotFound})
}

func send(w http.ResponseWriter, r *http.Request, page templ.Component, answer design.Answer) {
	if err := design.Send(w, r, page, answer); err != nil {
		httpserver.WriteFault(w, err)
	}
}

// https returns an address if it is one of https, and nothing otherwise.
func https(address string) string {
	if u, err := url.Parse(address); err != nil || u.Scheme != "https" || u.Host == "" {
		return ""
	}
	return address
}

// origin returns scheme and host of an address that https returned.
func origin(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || strings.ContainsAny(u.Host, " ;,'\"") {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// firstLine is what other sites show of an agent.
func firstLine(summary string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(summary), "\n")
	return strings.TrimSpace(line)
}

// days returns a period in whole days, at least one.
func days(period time.Duration) int { return max(1, int(period/(24*time.Hour))) }
