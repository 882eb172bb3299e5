package pages

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/a-h/templ"

	"inbox/console/account"
	"inbox/internal/design"
	"inbox/operator"
)

func (p *Pages) certificates(r *http.Request, s account.Session) (templ.Component, error) {
	found, err := p.Operator.Certificates(r.Context())
	if err != nil {
		return nil, err
	}
	return certificatesPage(partOf(s, "certificates"), found), nil
}

// certificateSoon is how long before its end a certificate is worth a look: an authority's is renewed a month before.
const certificateSoon = 14 * 24 * time.Hour

// certificateState is a word for whether others accept a certificate.
func certificateState(ctx context.Context, one operator.Certificate) (kind, word string) {
	switch {
	case one.Problem != "":
		return design.Bad, text(ctx, "Not accepted")
	case one.Renewal != "":
		return design.Warn, text(ctx, "Renewal fails")
	case time.Until(one.Until) < certificateSoon:
		return design.Warn, text(ctx, "Ends soon")
	}
	return design.OK, text(ctx, "Good")
}

func (p *Pages) limits(r *http.Request, s account.Session) (templ.Component, error) {
	found, err := p.Operator.Limits(r.Context())
	if err != nil {
		return nil, err
	}
	return limitsPage(partOf(s, "limits"), found), nil
}

// payerName says who is counted, and hears that there are too many.
func payerName(ctx context.Context, payer string) string {
	switch payer {
	case operator.PayerSender:
		return text(ctx, "each sender; without proof their network")
	case operator.PayerDomain:
		return text(ctx, "each domain; without proof the network")
	case operator.PayerGuests:
		return text(ctx, "all senders without proof")
	case operator.PayerThread:
		return text(ctx, "each conversation")
	case operator.PayerAgent:
		return text(ctx, "each agent")
	}
	return text(ctx, "all senders together")
}

// limitName says what a limit bounds.
func limitName(ctx context.Context, key string) string {
	switch key {
	case "limits.sender", "limits.host", "limits.thread", "limits.agent", "limits.total":
		return text(ctx, "Messages in a time")
	case "limits.mail_thread", "limits.mail_sender":
		return text(ctx, "Answers by mail in a time")
	case "limits.same_messages":
		return text(ctx, "Messages in a row that say the same")
	case "limits.mail_pace":
		return text(ctx, "A mail that comes sooner was written by a program")
	case "limits.sender_runs_per_day", "limits.agent_runs_per_day":
		return text(ctx, "Runs of an agent in a day")
	case "limits.sender_cost_per_day", "limits.agent_cost_per_day":
		return text(ctx, "What answers of an agent may cost in a day")
	case "limits.guest_max_bytes":
		return text(ctx, "Largest message without proof")
	case "limits.guest_bytes_per_day", "limits.all_guest_bytes_per_day":
		return text(ctx, "Room for messages without proof in a day")
	case "limits.held_per_sender", "limits.held_messages":
		return text(ctx, "Messages that wait unanswered")
	case "limits.held_bytes_per_sender", "limits.held_bytes":
		return text(ctx, "Room for messages that wait unanswered")
	case "limits.held_for":
		return text(ctx, "How long a message is held")
	case "limits.mailbox_messages":
		return text(ctx, "Mail for the operator")
	case "smtp.max_message_bytes":
		return text(ctx, "Largest mail")
	case "http.max_body_bytes":
		return text(ctx, "Largest request")
	}
	return key
}

// limitUse is how much of a limit is used, in words.
func limitUse(one operator.Limit) string {
	if !one.Known {
		return "–"
	}
	used := strconv.FormatInt(one.Used, 10)
	if one.Most > 0 {
		used += " / " + strconv.FormatInt(one.Most, 10) + " (" + strconv.FormatInt(one.Used*100/one.Most, 10) + " %)"
	}
	return used
}

func (p *Pages) nodes(r *http.Request, s account.Session) (templ.Component, error) {
	found, err := p.Operator.Nodes.List(r.Context())
	if err != nil {
		return nil, err
	}
	return nodesPage(partOf(s, "nodes"), found, time.Now()), nil
}

func (p *Pages) backlog(r *http.Request, s account.Session) (templ.Component, error) {
	found, err := p.Operator.Jobs.Backlog(r.Context())
	if err != nil {
		return nil, err
	}
	return backlogPage(partOf(s, "backlog"), found), nil
}
