package pages

import (
	"context"
	"io"
	"net/http"
	"strings"
	"time"

	"inbox/console/account"
	"inbox/exchange"
	"inbox/internal/design"
	"inbox/internal/httpserver"
	"inbox/operator"
)

func (p *Pages) mailboxRoutes() []httpserver.Route {
	list := at("work", "mailbox")
	return []httpserver.Route{
		p.page(exchange.RoleRead, list+"/{mail}", p.mail),
		p.page(exchange.RoleRead, list+"/{mail}/raw", p.rawMail),
		p.act(exchange.RoleWork, list+"/{mail}/forward", false, p.forwardMail),
	}
}

// mailboxView is a page of mail that is kept for the operator.
type mailboxView struct {
	workView

	Kind, Sender, Text, Since string
	Rows                      []exchange.Mail
}

func (v mailboxView) filtered() bool { return v.Kind+v.Sender+v.Text+v.Since != "" }

func (p *Pages) mailbox(w http.ResponseWriter, r *http.Request, s account.Session) error {
	asked := r.URL.Query()
	v := mailboxView{
		workView: p.workView(r, s, "mailbox"), Kind: asked.Get("kind"), Sender: strings.TrimSpace(asked.Get("sender")),
		Text: strings.TrimSpace(asked.Get("text")), Since: strings.TrimSpace(asked.Get("since")),
	}
	filter := exchange.MailFilter{Kind: v.Kind, Sender: v.Sender, Text: v.Text, Before: asked.Get("before"), Limit: pageSize + 1}
	var err error
	if v.Since != "" {
		if filter.Since, err = operator.Moment("since", v.Since, time.Now()); err != nil {
			return err
		}
	}
	found, err := p.Operator.Mail.List(r.Context(), filter)
	if err != nil {
		return err
	}
	var next string
	if v.Rows, next = exchange.NextPage(found, pageSize, exchange.MailCursor); next != "" {
		v.Next = query(r, "before", next)
	}
	return p.showWork(w, r, s, text(r.Context(), "Mailbox of the operator"), mailboxPage(v))
}

// mailView is one mail, its text alone.
type mailView struct {
	workView
	exchange.Mail

	Checks []check
}

func (p *Pages) mail(w http.ResponseWriter, r *http.Request, s account.Session) error {
	v := mailView{workView: p.workView(r, s, "mailbox")}
	var err error
	if v.Mail, err = p.Operator.Mail.Show(r.Context(), httpserver.Param(r, "mail")); err != nil {
		return err
	}
	v.Checks = claims("", v.Evidence)
	return p.showWork(w, r, s, text(r.Context(), "Mail from {who}", "who", design.VisibleLine(v.From)), mailPage(v))
}

// rawMail lets the browser keep a mail as it came. It never shows it: it is a stranger's.
func (p *Pages) rawMail(w http.ResponseWriter, r *http.Request, _ account.Session) error {
	content, err := p.Operator.Mail.Raw(r.Context(), httpserver.Param(r, "mail"))
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }()

	header := w.Header()
	header.Set("Content-Type", "application/octet-stream")
	header.Set("Content-Disposition", `attachment; filename="mail.eml"`)
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	header.Set("X-Content-Type-Options", "nosniff")
	_, _ = io.Copy(w, content) // the reader went away: nothing to do
	return nil
}

func (p *Pages) forwardMail(w http.ResponseWriter, r *http.Request, _ account.Session) error {
	id := httpserver.Param(r, "mail")
	forward, err := p.Operator.Mail.Forward(r.Context(), id, strings.TrimSpace(r.PostFormValue("to")))
	if err != nil {
		return err
	}
	return p.done(w, r, at("work", "mailbox", id), text(r.Context(), "The mail is sent on to {who}.", "who", forward.To))
}

// mailReportsView are reports of other servers about DMARC and TLS.
type mailReportsView struct {
	workView

	Kind, Since string
	Unproven    bool
	Sums        []exchange.ReportSum
	Rows        []exchange.StoredReportRow
}

func (p *Pages) mailReports(w http.ResponseWriter, r *http.Request, s account.Session) error {
	asked := r.URL.Query()
	v := mailReportsView{workView: p.workView(r, s, "reports"), Kind: asked.Get("kind"), Since: asked.Get("since"), Unproven: asked.Get("unproven") != ""}
	filter := exchange.ReportFilter{Kind: v.Kind, Unproven: v.Unproven, Before: asked.Get("before"), Limit: pageSize + 1}
	if v.Since == "" {
		v.Since = "720h" // what is added up is bounded
	}
	var err error
	if filter.Since, err = operator.Moment("since", v.Since, time.Now()); err != nil {
		return err
	}
	found, err := p.Operator.Mail.Reports(r.Context(), filter)
	if err != nil {
		return err
	}
	var next string
	if v.Rows, next = exchange.NextPage(found, pageSize, exchange.ReportCursor); next != "" {
		v.Next = query(r, "before", next)
	}
	if filter.Before == "" {
		filter.Limit = mostSums
		if v.Sums, err = p.Operator.Mail.SumReports(r.Context(), filter); err != nil {
			return err
		}
	}
	return p.showWork(w, r, s, text(r.Context(), "Reports about mail"), mailReportsPage(v))
}

// mostSums is how many sums stand above the lines.
const mostSums = 20

func mailKindName(ctx context.Context, kind string) string {
	switch kind {
	case exchange.MailOrdinary:
		return text(ctx, "Mail")
	case exchange.MailDMARC:
		return text(ctx, "DMARC report")
	case exchange.MailTLS:
		return text(ctx, "TLS report")
	case exchange.MailCaptured:
		return text(ctx, "Captured answer")
	}
	return kind
}

// resultColour is the colour of the result of a line of a report.
func resultColour(result string) string {
	switch result {
	case "pass", "success":
		return design.OK
	}
	return design.Bad
}
