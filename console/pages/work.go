package pages

import (
	"context"
	"maps"
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
		[]httpserver.Route{p.page(exchange.RoleRead, at("work"), p.workList)},
		p.formerLists(),
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

// workLists are the filters of the work, each with its page. An address below /console/work was that of a list before there was only one.
func (p *Pages) workLists() map[string]handler {
	return map[string]handler{
		"held": p.held, "approvals": p.approvals, "failed": p.failedTurns, "deliveries": p.deadDeliveries, "jobs": p.deadJobs, "tools": p.toolRequests,
		"demands": p.demands, "breakers": p.breakers, "mailbox": p.mailbox, "reports": p.mailReports, "suppressed": p.suppressed,
	}
}

// workList shows the work, narrowed to one kind where the address names it.
func (p *Pages) workList(w http.ResponseWriter, r *http.Request, s account.Session) error {
	list := r.URL.Query().Get("list")
	if list == "" {
		return p.allWork(w, r, s)
	}
	show, known := p.workLists()[list]
	if !known {
		return fault.InField("list", "must be one of "+strings.Join(slices.Sorted(maps.Keys(p.workLists())), ", "))
	}
	return show(w, r, s)
}

// formerLists leads the addresses of the lists that became filters to the filter, with their query.
func (p *Pages) formerLists() (routes []httpserver.Route) {
	for list := range p.workLists() {
		routes = append(routes, p.page(exchange.RoleRead, at("work", list), func(w http.ResponseWriter, r *http.Request, _ account.Session) error {
			query := r.URL.Query()
			query.Set("list", list)
			moved(w, r, at("work")+"?"+query.Encode())
			return nil
		}))
	}
	return routes
}

// moved leads from an address of an earlier version to where the page is now.
func moved(w http.ResponseWriter, r *http.Request, to string) {
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, r, to, http.StatusPermanentRedirect) //nolint:gosec // a path of the console
}

// workPath is the work narrowed to one kind; empty = all of it.
func workPath(list string) string {
	if list == "" {
		return at("work")
	}
	return at("work") + "?" + values("list", list)
}

// workView is the frame of every list of work: filters, counts and paging.
type workView struct {
	Tab               string // the kind to which the list is narrowed; empty = all
	Waiting           operator.Overview
	Kept              keptWork
	CSRF, Path        string
	MayWork, MayAdmin bool
	Selected          bool   // all rows are ticked
	SelectAll         string // address of the same page with all rows ticked
	Next              string
}

func (p *Pages) workView(r *http.Request, s account.Session, tab string) workView {
	return workView{
		Tab: tab, Waiting: p.work.current(r.Context(), p.Operator.Waiting), Kept: p.kept.current(r.Context(), p.Operator), CSRF: s.CSRF, Path: r.URL.RequestURI(),
		MayWork: s.Role >= exchange.RoleWork, MayAdmin: s.Role >= exchange.RoleAdmin,
		Selected: r.URL.Query().Get("select") == "all", SelectAll: query(r, "select", "all"),
	}
}

// workKind is one filter of the work.
type workKind struct {
	list, label string
	waiting     int64
	kept        bool // there is something that waits for nothing
}

func (v workView) kinds(ctx context.Context) []workKind {
	return []workKind{
		{list: "held", label: text(ctx, "Held"), waiting: v.Waiting.Held},
		{list: "approvals", label: text(ctx, "Approvals"), waiting: v.Waiting.Approvals},
		{list: "failed", label: text(ctx, "Failed turns"), waiting: v.Waiting.Failed},
		{list: "deliveries", label: text(ctx, "Dead deliveries"), waiting: v.Waiting.Deliveries},
		{list: "jobs", label: text(ctx, "Dead jobs"), waiting: v.Waiting.Jobs},
		{list: "tools", label: text(ctx, "Tool requests"), waiting: v.Waiting.Tools},
		{list: "demands", label: text(ctx, "Demands"), waiting: v.Waiting.Demands},
		{list: "breakers", label: text(ctx, "Breakers"), waiting: int64(len(v.Waiting.Breakers))},
		{list: "mailbox", label: text(ctx, "Mailbox"), kept: v.Kept.Mail},
		{list: "reports", label: text(ctx, "Reports about mail"), kept: v.Kept.Reports},
		{list: "suppressed", label: text(ctx, "Suppressed addresses"), kept: v.Kept.Suppressed},
	}
}

// filters are the kinds of which there is something, and the one that is chosen.
func (v workView) filters(ctx context.Context) (shown []workKind) {
	all := workKind{label: text(ctx, "All")}
	for _, one := range v.kinds(ctx) {
		all.waiting += one.waiting
		if one.waiting > 0 || one.kept || one.list == v.Tab {
			shown = append(shown, one)
		}
	}
	return slices.Insert(shown, 0, all)
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
