package console

import (
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/operator"
)

// mailRoutes are the calls about mail for the operator and about what other servers report.
func (a *API) mailRoutes() []httpserver.Route {
	return []httpserver.Route{
		a.route(http.MethodGet, "/api/v1/mail", a.listMail),
		a.route(http.MethodGet, "/api/v1/mail/reports", a.listMailReports),
		a.route(http.MethodGet, "/api/v1/mail/reports/summary", a.sumMailReports),
		a.route(http.MethodGet, "/api/v1/mail/{mail}", a.mail),
		a.route(http.MethodGet, "/api/v1/mail/{mail}/raw", a.rawMail),
		a.route(http.MethodPost, "/api/v1/mail/{mail}/forward", a.forwardMail),
	}
}

// listMail takes kind, mailbox, sender, text, since, until, before and limit.
func (a *API) listMail(_ http.ResponseWriter, r *http.Request) (any, error) {
	query := r.URL.Query()
	filter := exchange.MailFilter{
		Kind: query.Get("kind"), Mailbox: query.Get("mailbox"), Sender: query.Get("sender"), Text: query.Get("text"), Before: query.Get("before"),
	}
	var err error
	if filter.Since, err = queryTime(query, "since"); err != nil {
		return nil, err
	}
	if filter.Until, err = queryTime(query, "until"); err != nil {
		return nil, err
	}

	return page(r, exchange.MailCursor, func(limit int) ([]exchange.Mail, error) {
		filter.Limit = limit
		return a.operator.Mail.List(r.Context(), filter)
	})
}

// queryTime reads an age or a time that may be left out.
func queryTime(query url.Values, name string) (time.Time, error) {
	text := query.Get(name)
	if text == "" {
		return time.Time{}, nil
	}
	at, err := operator.SinceTime(text, time.Now())
	if err != nil {
		return at, fault.InField(name, `must be an age such as "2h" or a time such as "2026-05-01T12:00:00Z"`)
	}
	return at, nil
}

func (a *API) mail(_ http.ResponseWriter, r *http.Request) (any, error) {
	return a.operator.Mail.Show(r.Context(), httpserver.Param(r, "mail"))
}

// rawMail answers with the bytes of a mail. A browser must not show them: a stranger wrote them.
func (a *API) rawMail(w http.ResponseWriter, r *http.Request) (any, error) {
	bytes, err := a.operator.Mail.Raw(r.Context(), httpserver.Param(r, "mail"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = bytes.Close() }()

	w.Header().Set("Content-Type", "message/rfc822")
	w.Header().Set("Content-Disposition", `attachment; filename="mail.eml"`)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = io.Copy(w, bytes) // the connection is gone; no one can be told
	return written{}, nil
}

// forwardBody says to whom a mail is sent on.
type forwardBody struct {
	To string `json:"to"`
}

const maxForwardBytes = 4 << 10

// forwardMail takes {"to": "…"}.
func (a *API) forwardMail(w http.ResponseWriter, r *http.Request) (any, error) {
	var wanted forwardBody
	if err := readOptional(w, r, maxForwardBytes, &wanted, `send {"to":"me@example.org"}`); err != nil {
		return nil, err
	}
	return a.operator.Mail.Forward(r.Context(), httpserver.Param(r, "mail"), wanted.To)
}

// reportFilter reads kind, result, source, since and unproven.
func reportFilter(query url.Values) (filter exchange.ReportFilter, err error) {
	filter = exchange.ReportFilter{Kind: query.Get("kind"), Result: query.Get("result"), Source: query.Get("source"), Before: query.Get("before")}
	if text := query.Get("unproven"); text != "" {
		if filter.Unproven, err = strconv.ParseBool(text); err != nil {
			return filter, fault.InField("unproven", "must be true or false")
		}
	}
	filter.Since, err = queryTime(query, "since")
	return filter, err
}

func (a *API) listMailReports(_ http.ResponseWriter, r *http.Request) (any, error) {
	filter, err := reportFilter(r.URL.Query())
	if err != nil {
		return nil, err
	}
	return page(r, exchange.ReportCursor, func(limit int) ([]exchange.StoredReportRow, error) {
		filter.Limit = limit
		return a.operator.Mail.Reports(r.Context(), filter)
	})
}

// sumMailReports has one page: the largest sums.
func (a *API) sumMailReports(_ http.ResponseWriter, r *http.Request) (any, error) {
	filter, err := reportFilter(r.URL.Query())
	if err != nil {
		return nil, err
	}
	filter.Before = ""
	if filter.Limit, err = limit(r); err != nil {
		return nil, err
	}
	return whole(a.operator.Mail.SumReports(r.Context(), filter))
}
