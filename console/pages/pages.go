// Package pages is the operator's console below /console: what came in, what waits, and what an operator can do about it. It
// renders on the server and works without scripts; it holds no state of messages and decides nothing itself: everything that it
// shows or does is in package operator.
package pages

import (
	"bytes"
	"context"
	"embed"
	"log/slog"
	"net/http"
	"slices"

	"github.com/a-h/templ"

	"inbox/console/account"
	"inbox/exchange"
	"inbox/internal/catalog"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/operator"
)

//go:generate go tool -modfile=../../tools/thirdparty/go.mod templ generate -path . -log-level warn

//go:embed de/*.json
var translations embed.FS

var texts = catalog.New(translations)

// text is a text of the console in the reader's language.
func text(ctx context.Context, english string, pairs ...any) string {
	return texts.Text(ctx, english, pairs...)
}

// count is a text with a number in it.
func count(ctx context.Context, n int, one, several string, pairs ...any) string {
	return texts.Count(ctx, n, one, several, pairs...)
}

// Root is the address of the console.
const Root = "/console"

// Options are what the console works with; all are required.
type Options struct {
	Operator *operator.Operator
	Domain   string
	Channels []string // names of all channels by which messages come
	Version  string   // of the program
	// Health returns what was found of each condition of readiness, in some seconds.
	Health func(ctx context.Context) []httpserver.Detail
	// Say hands an agent a message of an operator and returns the id of its turn; the same key again is the same message.
	Say    func(ctx context.Context, agent string, by exchange.Token, words, key string) (turn string, err error)
	Logger *slog.Logger
}

// Pages serves the console.
type Pages struct {
	Options

	accounts *account.Accounts
	work     workCounts
	kept     keptCounts
	unread   unreadCounts
	live     live
}

// New makes the console. accounts says who may use it; it draws its own pages with what it is given.
func New(o Options, accounts func(account.Pages) (*account.Accounts, error)) (*Pages, error) {
	p := &Pages{Options: o, live: live{arrivals: o.Operator.Arrivals}}
	var err error
	p.accounts, err = accounts(accountPages{p})
	return p, err
}

// Routes are all pages of the console and what is done on them.
func (p *Pages) Routes() []httpserver.Route {
	return slices.Concat(
		p.accounts.Routes(),
		p.agentRoutes(),
		p.overviewRoutes(),
		p.settingsRoutes(),
		p.inboxRoutes(),
		p.threadRoutes(), p.readersRoutes(), p.actRoutes(),
		p.takeoverRoutes(),
		p.messageRoutes(),
		p.workRoutes(),
		[]httpserver.Route{p.liveRoute(), p.languageRoute()},
	)
}

// handler answers one request of a person who is signed in. Its error is shown as a page.
type handler func(w http.ResponseWriter, r *http.Request, s account.Session) error

// page is a route that shows something.
func (p *Pages) page(role exchange.Role, pattern string, show handler) httpserver.Route {
	return httpserver.Route{Method: http.MethodGet, Pattern: pattern, Handler: p.accounts.Page(role, p.handle(show))}
}

// act is a route that does something. A dangerous act needs a fresh proof of who the operator is.
func (p *Pages) act(role exchange.Role, pattern string, dangerous bool, do handler) httpserver.Route {
	return httpserver.Route{Method: http.MethodPost, Pattern: pattern, Handler: p.accounts.Act(role, dangerous, p.handle(do))}
}

func (p *Pages) handle(do handler) account.Handler {
	return func(w http.ResponseWriter, r *http.Request, s account.Session) {
		r = catalog.ForReader(r)
		if err := do(w, r, s); err != nil && r.Context().Err() == nil {
			p.failed(w, r, s, err)
		}
	}
}

// failed shows an error by what the operator may know of it; the cause of an unexpected one is in the log.
func (p *Pages) failed(w http.ResponseWriter, r *http.Request, s account.Session, err error) {
	found := fault.Of(err)
	status := httpserver.Status(found.Kind)
	if status >= http.StatusInternalServerError {
		p.Logger.ErrorContext(r.Context(), "a page of the console failed", "path", r.URL.Path, "error", err)
	}
	p.write(w, r, s, status, view{Title: text(r.Context(), "That did not work")}, failedPage(faultWords(r.Context(), err)))
}

// view is what the frame around a page needs to know.
type view struct {
	Title   string
	Section string   // the entry of the navigation that is current
	Scripts []string // assets besides those of every page
	Wide    bool     // the page uses the whole width
	Panes   bool     // the page stands in panes beside each other
}

// show writes a page.
func (p *Pages) show(w http.ResponseWriter, r *http.Request, s account.Session, v view, content templ.Component) error {
	p.write(w, r, s, http.StatusOK, v, content)
	return nil
}

func (p *Pages) write(w http.ResponseWriter, r *http.Request, s account.Session, status int, v view, content templ.Component) {
	ctx := templ.WithChildren(r.Context(), content)
	shell := shellView{
		view: v, Name: s.Name, Role: s.Role, CSRF: s.CSRF, Domain: p.Domain, Done: takeDone(w, r),
		Work: p.work.current(r.Context(), p.Operator.Waiting), Path: r.URL.RequestURI(),
		Unread: p.unread.current(r.Context(), s.Owner, p.Operator.Arrivals),
	}
	p.render(w, r.WithContext(ctx), status, shellPage(shell))
}

// render writes a whole document, once it is complete.
func (p *Pages) render(w http.ResponseWriter, r *http.Request, status int, document templ.Component) {
	var page bytes.Buffer
	if err := document.Render(r.Context(), &page); err != nil {
		httpserver.WriteFault(w, err)
		return
	}
	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Cache-Control", "no-store")
	header.Set("Vary", "Accept-Language, Cookie")
	protect(header, p.accounts.FormOrigin())
	w.WriteHeader(status)
	_, _ = w.Write(page.Bytes()) // the reader went away: nothing to do
}

// fragment writes a part of a page, for a script that puts it in its place.
func (p *Pages) fragment(w http.ResponseWriter, r *http.Request, part templ.Component) error {
	p.render(w, r, http.StatusOK, part)
	return nil
}
