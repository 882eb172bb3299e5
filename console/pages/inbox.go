package pages

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"inbox/console/account"
	"inbox/exchange"
	"inbox/internal/design"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/internal/markup"
	"inbox/operator"
)

func (p *Pages) inboxRoutes() []httpserver.Route {
	return []httpserver.Route{
		p.page(exchange.RoleRead, at("inbox"), p.inbox),
		p.page(exchange.RoleRead, at("inbox", "rows"), p.inboxRows),
		p.act(exchange.RoleRead, at("inbox", "read"), false, p.markAllRead),
	}
}

// inboxFilter is what the inbox is narrowed to, as it stands in the form.
type inboxFilter struct {
	Agent, Channel, Sender, State, Since, Text string
}

// any reports whether something is left out.
func (f inboxFilter) any() bool { return f != inboxFilter{} }

// inboxView is a page of conversations, or with a text of messages.
type inboxView struct {
	Filter   inboxFilter
	Agents   []string
	Channels []string
	Rows     []inboxRow
	Waiting  []inboxRow // what waits for the operator, above the rest; only on the first page of all
	Unread   []inboxRow // what the operator did not read, above what they did; there, too
	Older    bool       // there are messages that were not looked at for unread ones
	Newest   string     // id of the newest message, up to which all can be marked as read
	CSRF     string
	Next     string
	After    string // cursor behind the newest message
	Live     string // address of the stream that says when more came; empty = the page stays as it is
}

// inboxRow is one conversation by its newest message, or one message.
type inboxRow struct {
	Href, Sender, Name, Channel, Agent, State, Reason, Excerpt string

	At       time.Time
	Messages int
	More     bool // there are more messages than are counted
	Holder   string
	Unread   bool
}

func (p *Pages) inbox(w http.ResponseWriter, r *http.Request, s account.Session) error {
	v, err := p.readInbox(r, s)
	if err != nil {
		return err
	}
	return p.show(w, r, s, view{Title: text(r.Context(), "Inbox"), Section: sectionInbox, Scripts: []string{"sse.js"}}, inboxPage(v))
}

// inboxRows is the list alone, for the script of a page that is open.
func (p *Pages) inboxRows(w http.ResponseWriter, r *http.Request, s account.Session) error {
	v, err := p.readInbox(r, s)
	if err != nil {
		return err
	}
	return p.fragment(w, r, inboxList(v))
}

func (p *Pages) readInbox(r *http.Request, s account.Session) (v inboxView, err error) {
	ctx, query := r.Context(), r.URL.Query()
	v.Filter = inboxFilter{
		Agent: query.Get("agent"), Channel: query.Get("channel"), Sender: strings.TrimSpace(query.Get("sender")),
		State: query.Get("state"), Since: query.Get("since"), Text: strings.TrimSpace(query.Get("text")),
	}
	filter := exchange.ArrivalFilter{
		Agent: v.Filter.Agent, Channel: v.Filter.Channel, Sender: v.Filter.Sender, Text: v.Filter.Text, Before: query.Get("before"), Limit: pageSize,
	}
	if v.Filter.State != "" {
		if !slices.Contains(exchange.States(), v.Filter.State) {
			return v, fault.InField("state", "must be one of "+strings.Join(exchange.States(), ", "))
		}
		filter.States = []string{v.Filter.State}
	}
	if v.Filter.Since != "" {
		if filter.Since, err = operator.Moment("since", v.Filter.Since, time.Now()); err != nil {
			return v, err
		}
	}

	if v.After, err = p.Operator.Arrivals.Newest(ctx); err != nil {
		return v, err
	}
	if v.Agents, err = p.agentNames(ctx); err != nil {
		return v, err
	}
	v.Channels = p.Channels

	var next string
	if v.Filter.Text != "" {
		page, err := p.Operator.Arrivals.Page(ctx, filter)
		if err != nil {
			return v, err
		}
		for i := range page.Turns {
			v.Rows = append(v.Rows, messageRow(&page.Turns[i]))
		}
		next = page.Next
	} else {
		var found []operator.Conversation
		if found, next, err = p.Operator.Arrivals.Conversations(ctx, filter, s.Owner); err != nil {
			return v, err
		}
		v.Rows = conversationRows(found)
	}

	if next != "" {
		v.Next = inboxPath(r, "before", next)
	}
	if filter.Before == "" && !v.Filter.any() {
		if v.Waiting, err = p.waitingRows(ctx); err != nil {
			return v, err
		}
		if err = p.unreadRows(ctx, s, &v); err != nil {
			return v, err
		}
		v.Live = at("live") + "?after=" + v.After
	}
	return v, nil
}

// inboxPath is query for the page, also where its rows alone were asked for.
func inboxPath(r *http.Request, pairs ...string) string {
	return strings.Replace(query(r, pairs...), at("inbox", "rows"), at("inbox"), 1)
}

// unreadRows moves what the operator did not read above the rest.
func (p *Pages) unreadRows(ctx context.Context, s account.Session, v *inboxView) (err error) {
	v.CSRF = s.CSRF
	if v.Newest, err = p.Operator.Arrivals.NewestMessage(ctx); err != nil {
		return err
	}
	found, count, err := p.Operator.Arrivals.Unread(ctx, exchange.ArrivalFilter{Limit: mostUnread}, s.Owner)
	if err != nil {
		return err
	}

	p.unread.remember(s.Owner, count) // the number beside the navigation is that of the list
	v.Unread, v.Older = conversationRows(found), count.Older
	above := map[string]bool{}
	for _, one := range v.Unread {
		above[one.Href] = true
	}
	v.Rows = slices.DeleteFunc(v.Rows, func(one inboxRow) bool { return above[one.Href] })
	return nil
}

func conversationRows(found []operator.Conversation) (rows []inboxRow) {
	for _, one := range found {
		rows = append(rows, inboxRow{
			Href: threadPath(one.Agent, one.ThreadID), Sender: one.Sender, Channel: one.Channel, Agent: one.Agent, State: one.State,
			Excerpt: one.Excerpt, At: one.At, Messages: one.Messages, More: one.More, Holder: operatorName(one.Holder), Unread: one.Unread,
		})
	}
	return rows
}

// mostWaiting is how many messages stand above the others because they wait.
const mostWaiting = 5

// waitingRows are the newest messages that an operator has to decide about.
func (p *Pages) waitingRows(ctx context.Context) (rows []inboxRow, err error) {
	turns, err := p.Operator.Waiting.Messages(ctx, mostWaiting)
	for i := range turns {
		rows = append(rows, messageRow(&turns[i]))
	}
	return rows, err
}

// maxExcerpt bounds what a row shows of a message, in bytes.
const maxExcerpt = 240

func messageRow(turn *exchange.TurnRecord) inboxRow {
	return inboxRow{
		Href: at("messages", turn.ID), Sender: turn.Message.Sender.Address.String(), Name: turn.Message.Sender.DisplayName, Channel: turn.Channel,
		Agent: turn.Agent, State: turn.State, Reason: turn.Reason, Excerpt: excerpt(markup.PlainText(turn.Message.Parts)), At: turn.AcceptedAt,
	}
}

func (p *Pages) agentNames(ctx context.Context) (names []string, err error) {
	agents, err := p.Operator.Agents.List(ctx, operator.AgentFilter{})
	for i := range agents {
		names = append(names, agents[i].Name)
	}
	return names, err
}

// stateKind is the colour of a state.
func stateKind(state string) string {
	switch state {
	case exchange.StateAnswered:
		return design.OK
	case exchange.StateFailed:
		return design.Bad
	case exchange.StateHeld, exchange.StateWaiting:
		return design.Warn
	case exchange.StateRunning, exchange.StateAccepted:
		return design.Info
	}
	return design.Plain
}

// stateName is a state in the reader's language.
func stateName(ctx context.Context, state string) string {
	switch state {
	case exchange.StateAccepted:
		return text(ctx, "Accepted")
	case exchange.StateRunning:
		return text(ctx, "Running")
	case exchange.StateAnswered:
		return text(ctx, "Answered")
	case exchange.StateRefused:
		return text(ctx, "Refused")
	case exchange.StateFailed:
		return text(ctx, "Failed")
	case exchange.StateWaiting:
		return text(ctx, "Waiting")
	case exchange.StateSilent:
		return text(ctx, "Silent")
	case exchange.StateHeld:
		return text(ctx, "Held")
	case exchange.StateCancelled:
		return text(ctx, "Cancelled")
	}
	return state
}
