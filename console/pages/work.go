package pages

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/a-h/templ"

	"inbox/console/account"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/operator"
)

func (p *Pages) workRoutes() []httpserver.Route {
	return slices.Concat(
		[]httpserver.Route{p.page(exchange.RoleRead, at("work"), p.firstWork)},
		p.heldRoutes(),
		p.approvalRoutes(),
		p.failedRoutes(),
		p.deliveryRoutes(),
		p.toolRequestRoutes(),
		p.demandRoutes(),
		p.mailboxRoutes(),
		p.restRoutes(),
	)
}

// workView is what stands around every list of the work.
type workView struct {
	Tab               string // last part of its address
	Waiting           operator.Overview
	CSRF, Path        string
	MayWork, MayAdmin bool
	Selected          bool   // all rows are ticked
	SelectAll         string // address of the same page with all rows ticked
	Next              string
}

func (p *Pages) workView(r *http.Request, s account.Session, tab string) workView {
	return workView{
		Tab: tab, Waiting: p.work.current(r.Context(), p.Operator.Waiting), CSRF: s.CSRF, Path: r.URL.RequestURI(),
		MayWork: s.Role >= exchange.RoleWork, MayAdmin: s.Role >= exchange.RoleAdmin,
		Selected: r.URL.Query().Get("select") == "all", SelectAll: query(r, "select", "all"),
	}
}

// workTab is one list of the work.
type workTab struct {
	path, label string
	waiting     int64
}

func (v workView) tabs(ctx context.Context) []workTab {
	return []workTab{
		{"held", text(ctx, "Held"), v.Waiting.Held},
		{"approvals", text(ctx, "Approvals"), v.Waiting.Approvals},
		{"failed", text(ctx, "Failed turns"), v.Waiting.Failed},
		{"deliveries", text(ctx, "Dead deliveries"), v.Waiting.Deliveries},
		{"jobs", text(ctx, "Dead jobs"), v.Waiting.Jobs},
		{"tools", text(ctx, "Tool requests"), v.Waiting.Tools},
		{"demands", text(ctx, "Demands"), v.Waiting.Demands},
		{"mailbox", text(ctx, "Mailbox"), 0},
		{"reports", text(ctx, "Reports about mail"), 0},
		{"suppressed", text(ctx, "Suppressed addresses"), 0},
		{"breakers", text(ctx, "Breakers"), int64(len(v.Waiting.Breakers))},
	}
}

// firstWork leads to the first list on which something waits for a decision.
func (p *Pages) firstWork(w http.ResponseWriter, r *http.Request, s account.Session) error {
	to := "held"
	for _, tab := range p.workView(r, s, "").tabs(r.Context())[:5] {
		if tab.waiting > 0 {
			to = tab.path
			break
		}
	}
	http.Redirect(w, r, at("work", to), http.StatusSeeOther)
	return nil
}

func (p *Pages) showWork(w http.ResponseWriter, r *http.Request, s account.Session, title string, content templ.Component) error {
	return p.show(w, r, s, view{Title: title, Section: sectionWork, Wide: true}, content)
}

// several is what became of an act on several rows.
type several struct {
	done, left int
	why        string // of the first that was left
}

// each does an act for every row that a form names, at most a page of them. What one row refuses does not keep the others from it. The
// audit trail has every row before it is touched.
func (p *Pages) each(r *http.Request, s account.Session, list, act string, do func(ctx context.Context, id string) error) (several, error) {
	if err := r.ParseForm(); err != nil {
		return several{}, fault.Wrap(fault.Malformed, "the form cannot be read", err)
	}
	ids := r.PostForm["id"]
	if len(ids) == 0 {
		return several{}, fault.New(fault.Malformed, text(r.Context(), "Nothing was chosen. Go back and tick at least one row."))
	}
	if len(ids) > pageSize {
		return several{}, fault.InField("id", "names more rows than a page has")
	}

	var all several
	for _, id := range ids {
		record := exchange.OperatorAct(s.By(), http.MethodPost, at("work", list)+"/{id}/"+act, at("work", list, id, act))
		if err := p.Operator.Audit.Record(r.Context(), record); err != nil {
			return all, err
		}
		err := do(r.Context(), id)
		switch found := fault.Of(err); {
		case err == nil:
			all.done++
		case found.Kind == fault.Unavailable || found.Kind == fault.Internal:
			return all, err
		default:
			if all.left++; all.why == "" {
				all.why = sentence(r.Context(), found.Public)
			}
		}
	}
	return all, nil
}

// and adds to words about what was done what was not.
func (s several) and(ctx context.Context, words string) string {
	if s.left == 0 {
		return words
	}
	return words + " " + count(ctx, s.left, "{n} was left: {why}.", "{n} were left: {why}.", "why", strings.TrimSuffix(s.why, "."))
}

// workFilter is what a list of failures is narrowed to, as it stands in the form.
type workFilter struct{ Agent, Channel, Since string }

func (f workFilter) any() bool { return f != workFilter{} }

func readWorkFilter(read func(string) string) (f workFilter, filter exchange.RetryFilter, err error) {
	f = workFilter{read("agent"), read("channel"), strings.TrimSpace(read("since"))}
	filter = exchange.RetryFilter{Agent: f.Agent, Channel: f.Channel}
	if f.Since != "" {
		filter.Since, err = operator.Moment("since", f.Since, time.Now())
	}
	return f, filter, err
}

// ticked is the state of the box of a row.
type ticked struct {
	ID, Label string
	On        bool
}

// plainText writes what a form sent with the line ends of the server.
func plainText(words string) string { return strings.ReplaceAll(words, "\r\n", "\n") }
