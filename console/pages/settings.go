package pages

import (
	"context"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/a-h/templ"

	"inbox/console/account"
	"inbox/exchange"
	"inbox/internal/design"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/operator"
	"inbox/operator/doctor"
)

func (p *Pages) settingsRoutes() []httpserver.Route {
	return append(p.settingsPages(),
		p.act(exchange.RoleAdmin, at("settings", "pause"), true, p.pauseAll),
		p.act(exchange.RoleAdmin, at("settings", "resume"), false, p.resumeAll),
		p.act(exchange.RoleAdmin, at("settings", "reload"), true, p.reload),

		p.act(exchange.RoleWork, at("settings", "doctor"), false, p.examine),
		p.act(exchange.RoleWork, at("settings", "dns"), false, p.lookUpRecords),

		p.act(exchange.RoleAdmin, at("settings", "lists", "add"), false, p.addEntry),
		p.act(exchange.RoleAdmin, at("settings", "lists", "remove"), false, p.removeEntry),

		p.act(exchange.RoleAdmin, at("settings", "notices", "test"), false, p.testNotices),
		p.act(exchange.RoleRead, at("settings", "sessions", "end"), false, p.endSession),
	)
}

// settingsView is what every part of the settings has.
type settingsView struct {
	Part string // its name
	CSRF string
	Role exchange.Role
}

func partOf(s account.Session, part string) settingsView {
	return settingsView{Part: part, CSRF: s.CSRF, Role: s.Role}
}

// mayWork reports whether the reader may do everyday work, and administers whether everything.
func (v settingsView) mayWork() bool     { return v.Role >= exchange.RoleWork }
func (v settingsView) administers() bool { return v.Role >= exchange.RoleAdmin }

// maxReason bounds what an operator writes about a decision, in bytes.
const maxReason = 500

func reasonOf(r *http.Request) (string, error) {
	reason := strings.TrimSpace(r.PostFormValue("reason"))
	if len(reason) > maxReason || !utf8.ValidString(reason) {
		return "", fault.InField("reason", "must be at most 500 bytes of text")
	}
	return reason, nil
}

// serverView is the server as a whole.
type serverView struct {
	settingsView

	Version, Domain string
	Paused          *exchange.ListEntry
	Resting         []exchange.ListEntry // agents that rest by their name
	Health          []httpserver.Detail
	Node            bool // it can be reloaded here
}

func (p *Pages) settings(r *http.Request, s account.Session) (templ.Component, error) {
	ctx := r.Context()
	v := serverView{settingsView: partOf(s, "server"), Version: p.Version, Domain: p.Domain, Node: p.Operator.Node != nil}
	resting, err := p.Operator.Pauses.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, one := range resting {
		if one.Kind == exchange.TargetAll {
			v.Paused = &one
			continue
		}
		v.Resting = append(v.Resting, one)
	}
	if p.Health != nil {
		v.Health = p.Health(ctx)
	}
	return serverPage(v), nil
}

func (p *Pages) pauseAll(w http.ResponseWriter, r *http.Request, _ account.Session) error {
	reason, err := reasonOf(r)
	if err != nil {
		return err
	}
	if _, err := p.Operator.Pauses.BeginAll(r.Context(), reason); err != nil {
		return err
	}
	return p.done(w, r, at("settings"), text(r.Context(), "All agents rest: messages are accepted and wait."))
}

func (p *Pages) resumeAll(w http.ResponseWriter, r *http.Request, _ account.Session) error {
	if err := p.Operator.Pauses.EndAll(r.Context()); err != nil {
		return err
	}
	return p.done(w, r, at("settings"), text(r.Context(), "The agents work again."))
}

func (p *Pages) reload(w http.ResponseWriter, r *http.Request, _ account.Session) error {
	ctx := r.Context()
	if p.Operator.Node == nil {
		return fault.New(fault.Unavailable, "no running server is available")
	}
	found, err := p.Operator.Node.Reload(ctx)
	if err != nil {
		return err
	}
	words := text(ctx, "The configuration was read; nothing in it had changed.")
	if len(found.Changed) > 0 {
		words = text(ctx, "The configuration was read. In force now: {names}.", "names", strings.Join(found.Changed, ", "))
	}
	if len(found.UnchangedUntilRestart) > 0 {
		words += " " + text(ctx, "Only after a restart: {names}.", "names", strings.Join(found.UnchangedUntilRestart, ", "))
	}
	return p.done(w, r, at("settings"), words)
}

// doctorView is what the last round of the doctor found.
type doctorView struct {
	settingsView
	doctor.Examination
}

func (p *Pages) doctor(r *http.Request, s account.Session) (templ.Component, error) {
	v := doctorView{partOf(s, "doctor"), p.Operator.Examinations.Last()}
	return doctorPage(v), nil
}

func (p *Pages) examine(w http.ResponseWriter, r *http.Request, _ account.Session) error {
	found, err := p.Operator.Examinations.Run(r.Context())
	if err != nil {
		return err
	}
	failed := 0
	for _, one := range found.Findings {
		if one.Failed() {
			failed++
		}
	}
	words := text(r.Context(), "The doctor found nothing that fails.")
	if failed > 0 {
		words = count(r.Context(), failed, "The doctor found one thing that fails.", "The doctor found {n} things that fail.")
	}
	return p.done(w, r, settingPath("doctor"), words)
}

// findingKind is the colour of a finding.
func findingKind(status string) string {
	switch status {
	case "ok":
		return design.OK
	case "warn":
		return design.Warn
	}
	return design.Bad
}

func findingName(ctx context.Context, status string) string {
	switch status {
	case "ok":
		return text(ctx, "good")
	case "warn":
		return text(ctx, "look at it")
	}
	return text(ctx, "fails")
}

// dnsView are records to publish.
type dnsView struct {
	settingsView

	Records []doctor.LookedRecord // without a state before the first look
	At      time.Time             // of the look; zero = there was none
}

func (p *Pages) dns(r *http.Request, s account.Session) (templ.Component, error) {
	records, err := p.Operator.Doctor.DNSRecords(r.Context())
	if err != nil {
		return nil, err
	}
	v := dnsView{settingsView: partOf(s, "dns")}
	last := p.Operator.RecordLooks.Last()
	for _, one := range records {
		looked := doctor.LookedRecord{DNSRecord: one}
		for _, seen := range last.Records {
			if seen.DNSRecord == one {
				looked = seen
			}
		}
		v.Records = append(v.Records, looked)
	}
	v.At = last.At
	return dnsPage(v), nil
}

func (p *Pages) lookUpRecords(w http.ResponseWriter, r *http.Request, _ account.Session) error {
	found, err := p.Operator.RecordLooks.Run(r.Context())
	if err != nil {
		return err
	}
	wrong := 0
	for _, one := range found.Records {
		if one.State != doctor.RecordRight {
			wrong++
		}
	}
	words := text(r.Context(), "The world sees all records as they should be.")
	if wrong > 0 {
		words = count(r.Context(), wrong, "One record is not as it should be.", "{n} records are not as they should be.")
	}
	return p.done(w, r, settingPath("dns"), words)
}

// recordState is a word for what is in the place of a record.
func recordState(ctx context.Context, state string) (kind, word string) {
	switch state {
	case doctor.RecordRight:
		return design.OK, text(ctx, "Right")
	case doctor.RecordMissing:
		return design.Warn, text(ctx, "Missing")
	case doctor.RecordDiffers:
		return design.Bad, text(ctx, "Differs")
	}
	return design.Warn, text(ctx, "Not known")
}

func (p *Pages) configuration(r *http.Request, s account.Session) (templ.Component, error) {
	document, err := p.Operator.Settings()
	if err != nil {
		return nil, err
	}
	return configurationPage(partOf(s, "configuration"), document), nil
}

// listsView is one of the lists of senders and hosts.
type listsView struct {
	settingsView

	List    string
	Target  string // exact, of the search
	Entries []exchange.ListEntry
	Next    string
}

func (p *Pages) lists(r *http.Request, s account.Session) (templ.Component, error) {
	asked := r.URL.Query()
	v := listsView{settingsView: partOf(s, "lists"), List: exchange.ListBlock, Target: strings.TrimSpace(asked.Get("target"))}
	switch list := asked.Get("list"); list {
	case "", exchange.ListBlock:
	case exchange.ListAllow, exchange.ListStop:
		v.List = list
	default:
		return nil, fault.InField("list", `must be "block", "allow" or "stop"`)
	}

	found, err := p.Operator.Lists.Entries(r.Context(), exchange.ListFilter{List: v.List, Target: v.Target, Before: asked.Get("before"), Limit: pageSize + 1})
	if err != nil {
		return nil, err
	}
	var next string
	v.Entries, next = exchange.NextPage(found, pageSize, func(e exchange.ListEntry) string { return e.ID })
	if next != "" {
		v.Next = query(r, "before", next)
	}
	return listsPage(v), nil
}

// listName is a list in the reader's language.
func listName(ctx context.Context, list string) string {
	switch list {
	case exchange.ListAllow:
		return text(ctx, "Let in")
	case exchange.ListStop:
		return text(ctx, "Told an agent to stop")
	}
	return text(ctx, "Kept out")
}

func listPath(list string) string { return at("settings", "senders") + "?" + values("list", list) }

func (p *Pages) addEntry(w http.ResponseWriter, r *http.Request, s account.Session) error {
	ctx := r.Context()
	reason, err := reasonOf(r)
	if err != nil {
		return err
	}
	added, cancelled, err := p.Operator.Lists.Add(ctx, exchange.ListEntry{
		List: r.PostFormValue("list"), Target: strings.TrimSpace(r.PostFormValue("target")), Effect: r.PostFormValue("effect"), Reason: reason, Source: s.By(),
	})
	if err != nil {
		return err
	}
	words := text(ctx, "{target} is on the list.", "target", added.Target)
	if cancelled > 0 {
		words += " " + count(ctx, cancelled, "One message was cancelled.", "{n} messages were cancelled.")
	}
	return p.done(w, r, listPath(added.List), words)
}

func (p *Pages) removeEntry(w http.ResponseWriter, r *http.Request, _ account.Session) error {
	entry := exchange.ListEntry{List: r.PostFormValue("list"), Target: r.PostFormValue("target"), Agent: r.PostFormValue("agent")}
	switch entry.List {
	case exchange.ListBlock, exchange.ListAllow, exchange.ListStop:
	default:
		return fault.InField("list", `must be "block", "allow" or "stop"`)
	}
	if err := p.Operator.Lists.Remove(r.Context(), entry); err != nil {
		return err
	}
	return p.done(w, r, listPath(entry.List), text(r.Context(), "{target} is off the list.", "target", entry.Target))
}

// noticesView is what the operator was told, and what waits for the next digest.
type noticesView struct {
	settingsView

	Notices []exchange.Notice
	Pending operator.PendingNotices
	Next    string
}

func (p *Pages) notices(r *http.Request, s account.Session) (templ.Component, error) {
	ctx := r.Context()
	v := noticesView{settingsView: partOf(s, "notices")}
	found, err := p.Operator.Notices.List(ctx, r.URL.Query().Get("before"), pageSize+1)
	if err != nil {
		return nil, err
	}
	var next string
	v.Notices, next = exchange.NextPage(found, pageSize, func(n exchange.Notice) string { return n.ID })
	if next != "" {
		v.Next = query(r, "before", next)
	}
	if v.Pending, err = p.Operator.Notices.Pending(ctx); err != nil {
		return nil, err
	}
	return noticesPage(v), nil
}

func (p *Pages) testNotices(w http.ResponseWriter, r *http.Request, _ account.Session) error {
	if _, err := p.Operator.Notices.Test(r.Context()); err != nil {
		return err
	}
	return p.done(w, r, settingPath("notices"), text(r.Context(), "A test goes to every address. The list shows the results."))
}

// auditView is the trail of what operators did and of decisions about trust.
type auditView struct {
	settingsView

	Code, Agent, Turn string
	Agents            []string
	Records           []exchange.AuditRecord
	Next              string
}

func (p *Pages) audit(r *http.Request, s account.Session) (_ templ.Component, err error) {
	ctx, asked := r.Context(), r.URL.Query()
	v := auditView{
		settingsView: partOf(s, "audit"), Code: strings.TrimSpace(asked.Get("code")), Agent: asked.Get("agent"), Turn: strings.TrimSpace(asked.Get("turn")),
	}
	if v.Agents, err = p.agentNames(ctx); err != nil {
		return nil, err
	}
	found, err := p.Operator.Audit.Records(ctx, exchange.AuditFilter{
		Code: v.Code, Agent: v.Agent, TurnID: v.Turn, Before: asked.Get("before"), Limit: pageSize + 1,
	})
	if err != nil {
		return nil, err
	}
	var next string
	v.Records, next = exchange.NextPage(found, pageSize, func(a exchange.AuditRecord) string { return a.ID })
	if next != "" {
		v.Next = query(r, "before", next)
	}
	return auditPage(v), nil
}

// sessionsView are browsers that are signed in: the reader's own, for admins all.
type sessionsView struct {
	settingsView

	Own  string // id of this browser's session
	Rows []operator.SignedIn
	Next string
}

func (p *Pages) sessions(r *http.Request, s account.Session) (templ.Component, error) {
	v := sessionsView{settingsView: partOf(s, "sessions"), Own: s.ID}
	found, err := p.Operator.Sessions.List(r.Context(), exchange.ConsoleSessionFilter{
		Owner: ownerFor(s), Before: r.URL.Query().Get("before"), Limit: pageSize + 1,
	})
	if err != nil {
		return nil, err
	}
	var next string
	v.Rows, next = exchange.NextPage(found, pageSize, func(one operator.SignedIn) string { return one.ID })
	if next != "" {
		v.Next = query(r, "before", next)
	}
	return sessionsPage(v), nil
}

// ownerFor is whose sessions an operator may see and end.
func ownerFor(s account.Session) exchange.SessionOwner {
	if s.Role >= exchange.RoleAdmin {
		return exchange.SessionOwner{}
	}
	return s.Owner
}

func (p *Pages) endSession(w http.ResponseWriter, r *http.Request, s account.Session) error {
	if err := p.Operator.Sessions.End(r.Context(), r.PostFormValue("session"), ownerFor(s)); err != nil {
		return err
	}
	return p.done(w, r, settingPath("sessions"), text(r.Context(), "The browser is signed out."))
}
