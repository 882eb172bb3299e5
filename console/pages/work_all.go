package pages

import (
	"context"
	"net/http"
	"slices"
	"time"

	"inbox/console/account"
	"inbox/exchange"
	"inbox/internal/markup"
	"inbox/operator"
)

// mostOfKind is how many rows of one kind stand among all the work.
const mostOfKind = 10

// workRow is one piece of work of any kind.
type workRow struct {
	ID, Href, Icon, Kind, Title, Subject, Excerpt, Channel, Agent string

	At   time.Time
	Acts []workAct
	Edit string // where its answer is corrected; empty = it has none
}

// workAct is a button of a row: a form with the id of the row.
type workAct struct{ Label, Action, Class string }

// allWorkView is the work of all kinds, the newest of each.
type allWorkView struct {
	workView

	Rows []workRow
	More bool // of a kind there is more than is shown
}

// allWork reads only the kinds of which something waits.
func (p *Pages) allWork(w http.ResponseWriter, r *http.Request, s account.Session) error {
	v := allWorkView{workView: p.workView(r, s, "")}
	rows := map[string]func(context.Context, int) ([]workRow, error){
		"held": p.heldWork, "approvals": p.approvalWork, "failed": p.failedWork, "deliveries": p.deliveryWork, "jobs": p.jobWork,
		"tools": p.toolWork, "demands": p.demandWork,
		"breakers": func(ctx context.Context, _ int) ([]workRow, error) { return breakerWork(ctx, v.Waiting.Breakers), nil },
	}
	for _, kind := range v.kinds(r.Context()) {
		read, waits := rows[kind.list]
		if !waits || kind.waiting == 0 {
			continue
		}
		found, err := read(r.Context(), mostOfKind)
		if err != nil {
			return err
		}
		v.More = v.More || kind.waiting > mostOfKind
		v.Rows = append(v.Rows, found...)
	}
	slices.SortStableFunc(v.Rows, func(a, b workRow) int { return b.At.Compare(a.At) })
	v.Rows = offered(v.Rows, s)
	return p.showWork(w, r, s, text(r.Context(), "Work"), allWorkPage(v))
}

// offered leaves out what the reader may not do.
func offered(rows []workRow, s account.Session) []workRow {
	for i := range rows {
		if s.Role < exchange.RoleWork {
			rows[i].Edit, rows[i].Acts = "", nil
		}
	}
	return rows
}

func (p *Pages) heldWork(ctx context.Context, most int) (rows []workRow, err error) {
	turns, err := p.Operator.Held.List(ctx, "", "", most)
	for i := range turns {
		row := turnWork(&turns[i])
		row.Icon, row.Kind, row.At = "hand", text(ctx, "Held"), turns[i].AcceptedAt
		row.Acts = []workAct{
			{text(ctx, "Release"), at("work", "held", "release"), "primary"},
			{text(ctx, "Drop"), at("work", "held", "drop"), "danger"},
		}
		rows = append(rows, row)
	}
	return rows, err
}

func (p *Pages) failedWork(ctx context.Context, most int) (rows []workRow, err error) {
	turns, err := p.Operator.Waiting.Failed(ctx, exchange.RetryFilter{}, "", most)
	for i := range turns {
		row := turnWork(&turns[i])
		row.Icon, row.Kind, row.At = "warning", text(ctx, "Failed"), turns[i].UpdatedAt
		row.Acts = []workAct{{text(ctx, "Run again"), at("work", "failed", "again"), ""}}
		rows = append(rows, row)
	}
	return rows, err
}

// turnWork is a row about a message.
func turnWork(turn *exchange.TurnRecord) workRow {
	subject, words := apart(turn.Message.Surface, markup.PlainText(turn.Message.Parts))
	return workRow{
		ID: turn.ID, Href: turnPath(turn), Title: senderName(turn.Message.Sender), Subject: subject, Excerpt: excerpt(words), Channel: turn.Channel, Agent: turn.Agent,
	}
}

func (p *Pages) approvalWork(ctx context.Context, most int) (rows []workRow, err error) {
	found, err := p.Operator.Approvals.Approvals(ctx, exchange.ApprovalFilter{Limit: most})
	for i := range found {
		one := &found[i]
		row := workRow{
			ID: one.ID, Href: at("work", "approvals", one.ID), Icon: "check", Kind: text(ctx, "Approval"), Title: one.Asker, Excerpt: excerpt(one.Summary), Agent: one.Agent, At: one.IssuedAt,
		}
		if one.Draft != nil {
			row.Excerpt, row.Edit = excerpt(one.DraftText), row.Href+"?edit=1#text"
		}
		rows = append(rows, row)
	}
	return rows, err
}

func (p *Pages) deliveryWork(ctx context.Context, most int) (rows []workRow, err error) {
	found, err := p.Operator.Deliveries.List(ctx, operator.DeliveryFilter{State: operator.DeliveryDead, Limit: most})
	for i := range found {
		one := &found[i]
		rows = append(rows, workRow{
			ID: one.ID, Href: at("work", "deliveries", one.ID), Icon: "send", Kind: text(ctx, "Not delivered"), Title: one.Address, Excerpt: excerpt(one.Reason), Channel: one.Channel,
			Agent: one.Agent, At: one.UpdatedAt,
			Acts: []workAct{
				{text(ctx, "Try again"), at("work", "deliveries", "again"), ""}, {text(ctx, "Give up"), at("work", "deliveries", "drop"), "danger"},
			},
		})
	}
	return rows, err
}

func (p *Pages) jobWork(ctx context.Context, most int) (rows []workRow, err error) {
	found, err := p.Operator.Jobs.List(ctx, exchange.RetryFilter{}, "", most)
	for i := range found {
		one := &found[i]
		row := workRow{
			ID: one.ID, Href: workPath("jobs"), Icon: "task", Kind: text(ctx, "Dead job"), Title: one.Kind, Excerpt: excerpt(one.Reason), Channel: one.Channel, Agent: one.Agent, At: one.UpdatedAt,
			Acts: []workAct{{text(ctx, "Run again"), at("work", "jobs", "again"), ""}},
		}
		if one.TurnID != "" {
			row.Href = at("messages", one.TurnID)
		}
		rows = append(rows, row)
	}
	return rows, err
}

func (p *Pages) toolWork(ctx context.Context, most int) (rows []workRow, err error) {
	found, err := p.Operator.Tools.Requests(ctx, exchange.ToolRequestFilter{Limit: most})
	for i := range found {
		one := &found[i]
		rows = append(rows, workRow{
			ID: one.ID, Href: at("work", "tools", one.ID), Icon: "key", Kind: text(ctx, "Tool request"), Title: one.ToolName, Agent: one.Agent, At: one.CreatedAt,
		})
	}
	return rows, err
}

func (p *Pages) demandWork(ctx context.Context, most int) (rows []workRow, err error) {
	found, err := p.Operator.Demands.List(ctx, "", "", most)
	for i := range found {
		one := &found[i]
		rows = append(rows, workRow{
			ID: one.ID, Href: at("messages", one.TurnID), Icon: "key", Kind: demandKind(ctx, *one), Title: one.Asker, Excerpt: excerpt(one.Title + " " + one.Message), Agent: one.Agent, At: one.IssuedAt,
		})
	}
	return rows, err
}

func breakerWork(ctx context.Context, open []operator.Breaker) (rows []workRow) {
	for _, one := range open[:min(len(open), mostOfKind)] {
		rows = append(rows, workRow{
			ID: one.Target, Href: workPath("breakers"), Icon: "pause", Kind: text(ctx, "Breaker"), Title: one.Target, Excerpt: excerpt(one.Reason), Channel: one.Channel, At: one.Since,
			Acts: []workAct{{text(ctx, "Try at once"), at("work", "breakers", "close"), ""}},
		})
	}
	return rows
}
