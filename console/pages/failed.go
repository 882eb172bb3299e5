package pages

import (
	"context"
	"net/http"
	"time"

	"inbox/console/account"
	"inbox/exchange"
	"inbox/internal/httpserver"
	"inbox/internal/markup"
	"inbox/operator"
)

func (p *Pages) failedRoutes() []httpserver.Route {
	failed, jobs := at("work", "failed"), at("work", "jobs")
	return []httpserver.Route{
		p.page(exchange.RoleRead, failed+"/retry", p.previewRetry("failed")),
		p.act(exchange.RoleWork, failed+"/retry", false, p.retryAll("failed")),
		p.act(exchange.RoleWork, failed+"/again", false, p.retryTurns),
		p.page(exchange.RoleRead, jobs+"/retry", p.previewRetry("jobs")),
		p.act(exchange.RoleWork, jobs+"/retry", false, p.retryAll("jobs")),
		p.act(exchange.RoleWork, jobs+"/again", false, p.retryJobs),
		p.act(exchange.RoleWork, jobs+"/remove", false, p.removeJobs),
	}
}

// failureRow is something that was given up: a run, a delivery or a job.
type failureRow struct {
	ID, Href, What, Subject, Excerpt, Channel, Agent, Words string

	At    time.Time
	Tries int
	Turn  string // the message that it belongs to; empty = none
}

// failuresView is a page of what was given up.
type failuresView struct {
	workView

	Filter   workFilter
	Agents   []string
	Channels []string
	Rows     []failureRow
}

// failures reads what the three lists have in common.
func (p *Pages) failures(r *http.Request, s account.Session, tab string) (v failuresView, filter exchange.RetryFilter, err error) {
	v = failuresView{workView: p.workView(r, s, tab), Channels: p.Channels}
	if v.Filter, filter, err = readWorkFilter(r.URL.Query().Get); err != nil {
		return v, filter, err
	}
	v.Agents, err = p.agentNames(r.Context())
	return v, filter, err
}

func (v *failuresView) next(r *http.Request, cursor string) {
	if cursor != "" {
		v.Next = query(r, "before", cursor, "select", "")
	}
}

// filtered is an address with the filter of the list.
func (v failuresView) filtered(path string) string {
	return path + "?" + values("agent", v.Filter.Agent, "channel", v.Filter.Channel, "since", v.Filter.Since)
}

func (p *Pages) failedTurns(w http.ResponseWriter, r *http.Request, s account.Session) error {
	v, filter, err := p.failures(r, s, "failed")
	if err != nil {
		return err
	}
	turns, err := p.Operator.Waiting.Failed(r.Context(), filter, r.URL.Query().Get("before"), pageSize+1)
	if err != nil {
		return err
	}
	turns, next := exchange.NextPage(turns, pageSize, exchange.TurnCursor)
	v.next(r, next)
	for i := range turns {
		turn := &turns[i]
		subject, words := apart(turn.Message.Surface, markup.PlainText(turn.Message.Parts))
		v.Rows = append(v.Rows, failureRow{
			ID: turn.ID, Href: turnPath(turn), What: turn.Message.Sender.Address.String(), Subject: subject, Excerpt: excerpt(words),
			Channel: turn.Channel, Agent: turn.Agent, Words: turn.Reason, At: turn.UpdatedAt, Tries: turn.Attempt, Turn: turn.ID,
		})
	}
	return p.showWork(w, r, s, text(r.Context(), "Failed turns"), failedPageOf(v))
}

func (p *Pages) deadJobs(w http.ResponseWriter, r *http.Request, s account.Session) error {
	v, filter, err := p.failures(r, s, "jobs")
	if err != nil {
		return err
	}
	jobs, err := p.Operator.Jobs.List(r.Context(), filter, r.URL.Query().Get("before"), pageSize+1)
	if err != nil {
		return err
	}
	jobs, next := exchange.NextPage(jobs, pageSize, func(job operator.DeadJob) string { return job.ID })
	v.next(r, next)
	for i := range jobs {
		job := &jobs[i]
		v.Rows = append(v.Rows, failureRow{
			ID: job.ID, What: job.Kind, Excerpt: job.ID, Channel: job.Channel, Agent: job.Agent, Words: job.Reason, At: job.UpdatedAt, Tries: job.Attempt, Turn: job.TurnID,
		})
	}
	return p.showWork(w, r, s, text(r.Context(), "Dead jobs"), deadJobsPage(v))
}

func (p *Pages) retryTurns(w http.ResponseWriter, r *http.Request, s account.Session) error {
	return p.again(w, r, s, "failed", func(ctx context.Context, id string) error { return p.Operator.Messages.Retry(ctx, id, s.By()) })
}

func (p *Pages) retryJobs(w http.ResponseWriter, r *http.Request, s account.Session) error {
	return p.again(w, r, s, "jobs", p.Operator.Jobs.Retry)
}

// again runs what was chosen once more.
func (p *Pages) again(w http.ResponseWriter, r *http.Request, s account.Session, tab string, retry func(context.Context, string) error) error {
	all, err := p.each(r, s, tab, "retry", retry)
	if err != nil {
		return err
	}
	return p.done(w, r, back(r, workPath(tab)), all.and(r.Context(), ranWords(r.Context(), tab, all.done)))
}

func ranWords(ctx context.Context, tab string, n int) string {
	switch tab {
	case "failed":
		return count(ctx, n, "{n} message runs again.", "{n} messages run again.")
	case "deliveries":
		return count(ctx, n, "{n} delivery is tried again.", "{n} deliveries are tried again.")
	}
	return count(ctx, n, "{n} job runs again.", "{n} jobs run again.")
}

func (p *Pages) removeJobs(w http.ResponseWriter, r *http.Request, s account.Session) error {
	all, err := p.each(r, s, "jobs", "remove", p.Operator.Jobs.Remove)
	if err != nil {
		return err
	}
	words := count(r.Context(), all.done, "{n} job was forgotten.", "{n} jobs were forgotten.")
	return p.done(w, r, back(r, workPath("jobs")), all.and(r.Context(), words))
}

// mostPreviewed is how many of the newest are examined before they run again: each costs a look at its answer.
const mostPreviewed = 100

// retryView says what would run again before it does.
type retryView struct {
	workView

	Filter  workFilter // with the instant since when, so that what was shown is what runs
	Would   int
	Skipped int
	More    bool               // there are older ones, which were not examined
	Rows    []exchange.Retried // the first of them
}

// retried does what the filter of a list selects, or with dryRun only says it.
func (p *Pages) retried(ctx context.Context, tab string, filter exchange.RetryFilter, by string, dryRun bool) (exchange.RetriedWork, error) {
	switch tab {
	case "deliveries":
		return p.Operator.Deliveries.RetryDead(ctx, filter, dryRun)
	case "jobs":
		return p.Operator.Jobs.RetryDead(ctx, filter, dryRun)
	}

	turns, err := p.Operator.Messages.RetryFailed(ctx, filter, by, dryRun)
	work := exchange.RetriedWork{Retried: turns.Retried, Skipped: turns.Skipped, More: turns.More}
	for _, one := range turns.Turns {
		work.Work = append(work.Work, exchange.Retried{
			ID: one.ID, TurnID: one.ID, Agent: one.Agent, What: one.Sender.String(), FailedAt: one.FailedAt, Failure: one.Failure, Skipped: one.Skipped,
		})
	}
	return work, err
}

func (p *Pages) previewRetry(tab string) handler {
	return func(w http.ResponseWriter, r *http.Request, s account.Session) error {
		asked, filter, err := readWorkFilter(r.URL.Query().Get)
		if err != nil {
			return err
		}
		filter.Limit = mostPreviewed
		work, err := p.retried(r.Context(), tab, filter, s.By(), true)
		if err != nil {
			return err
		}
		v := retryView{
			workView: p.workView(r, s, tab), Filter: asked, Would: work.Retried, Skipped: work.Skipped, More: work.More,
			Rows: work.Work[:min(len(work.Work), pageSize)],
		}
		if !filter.Since.IsZero() {
			v.Filter.Since = filter.Since.UTC().Format(time.RFC3339Nano)
		}
		return p.showWork(w, r, s, text(r.Context(), "What would run again"), retryPage(v))
	}
}

func (p *Pages) retryAll(tab string) handler {
	return func(w http.ResponseWriter, r *http.Request, s account.Session) error {
		_, filter, err := readWorkFilter(r.PostFormValue)
		if err != nil {
			return err
		}
		work, err := p.retried(r.Context(), tab, filter, s.By(), false)
		if err != nil {
			return err
		}
		words := ranWords(r.Context(), tab, work.Retried)
		if work.Skipped > 0 {
			words += " " + count(r.Context(), work.Skipped, "{n} was left.", "{n} were left.")
		}
		if work.More {
			words += " " + text(r.Context(), "There are more: do it once more.")
		}
		return p.done(w, r, workPath(tab), words)
	}
}

func wouldWords(ctx context.Context, tab string, n int) string {
	switch tab {
	case "failed":
		return count(ctx, n, "{n} message would run again.", "{n} messages would run again.")
	case "deliveries":
		return count(ctx, n, "{n} delivery would be tried again.", "{n} deliveries would be tried again.")
	}
	return count(ctx, n, "{n} job would run again.", "{n} jobs would run again.")
}
