package pages

import (
	"context"
	"net/http"
	"net/url"
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

// query writes the filter for the address of a conversation, beside which the list stays narrowed.
func (f inboxFilter) query() string {
	query := url.Values{}
	for name, value := range map[string]string{onlyAgent: f.Agent, "channel": f.Channel, "sender": f.Sender, "state": f.State, "since": f.Since, "text": f.Text} {
		if value != "" {
			query.Set(name, value)
		}
	}
	return query.Encode()
}

// onlyAgent is the filter by agent beside a conversation, whose own agent is "agent".
const onlyAgent = "only"

// inboxView is a page of conversations, or with a text of messages.
type inboxView struct {
	Filter   inboxFilter
	Agents   []string
	Channels []string
	Rows     []inboxRow
	Waiting  []workRow  // what waits for the operator, above the rest; only on the first page of all
	Unread   []inboxRow // what the operator did not read, above what they did; there, too
	Older    bool       // there are messages that were not looked at for unread ones
	Newest   string     // id of the newest message, up to which all can be marked as read
	CSRF     string
	Next     string
	After    string // cursor behind the newest message
	Live     string // address of the stream that says when more came; empty = the page stays as it is
	Reload   string // address of the rows alone
	Beside   bool   // the list stands beside a conversation
}

// inboxRow is one conversation by its newest message, or one message.
type inboxRow struct {
	ID, Href, Sender, Name, Channel, Agent, State, Reason, Subject, Excerpt string

	Edit     string // where its answer is corrected; empty = it cannot be
	Current  bool   // it is the conversation that is open
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
	return p.show(w, r, s, view{Title: text(r.Context(), "Inbox"), Section: sectionInbox, Scripts: []string{"sse.js"}, Panes: true}, inboxPage(v))
}

// inboxRows is the list alone, for the script of a page that is open.
func (p *Pages) inboxRows(w http.ResponseWriter, r *http.Request, s account.Session) error {
	read := p.readInbox
	if query := r.URL.Query(); query.Get("beside") != "" {
		read = func(r *http.Request, s account.Session) (inboxView, error) {
			return p.readBeside(r, s, openConversation{agent: query.Get("of"), thread: query.Get("beside")})
		}
	}
	v, err := read(r, s)
	if err != nil {
		return err
	}
	return p.fragment(w, r, inboxList(v))
}

func (p *Pages) readInbox(r *http.Request, s account.Session) (v inboxView, err error) {
	return p.readInboxOf(r, s, inboxFilterOf(r.URL.Query(), "agent"), openConversation{}, pageSize)
}

// openConversation identifies the conversation shown next to the list. The zero value means none.
type openConversation struct{ agent, thread string }

func inboxFilterOf(query url.Values, agent string) inboxFilter {
	return inboxFilter{
		Agent: query.Get(agent), Channel: query.Get("channel"), Sender: strings.TrimSpace(query.Get("sender")),
		State: query.Get("state"), Since: query.Get("since"), Text: strings.TrimSpace(query.Get("text")),
	}
}

// besideRows is how many conversations stand beside the one that is open.
const besideRows = 25

// readBeside reads the list beside a conversation.
func (p *Pages) readBeside(r *http.Request, s account.Session, open openConversation) (inboxView, error) {
	return p.readInboxOf(r, s, inboxFilterOf(r.URL.Query(), onlyAgent), open, besideRows)
}

func (p *Pages) readInboxOf(r *http.Request, s account.Session, asked inboxFilter, open openConversation, limit int) (v inboxView, err error) {
	ctx := r.Context()
	v.Filter, v.Beside = asked, open != openConversation{}
	before := ""
	if !v.Beside {
		before = r.URL.Query().Get("before") // beside a conversation it is that of the conversation
	}
	filter := exchange.ArrivalFilter{
		Agent: v.Filter.Agent, Channel: v.Filter.Channel, Sender: v.Filter.Sender, Text: v.Filter.Text, Before: before, Limit: limit,
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
		v.Rows = p.conversationRows(found, v.Filter, open, s.Role >= exchange.RoleWork)
	}

	switch {
	case next != "" && v.Beside:
		v.Next = at("inbox") + "?" + strings.Replace(v.Filter.query(), onlyAgent+"=", "agent=", 1) + "&" + values("before", next)
	case next != "":
		v.Next = inboxPath(r, "before", next)
	}
	if filter.Before == "" && !v.Filter.any() {
		if v.Waiting, err = p.waitingRows(ctx); err != nil {
			return v, err
		}
		v.Waiting = offered(v.Waiting, s)
		if err = p.unreadRows(ctx, s, &v, open); err != nil {
			return v, err
		}
		v.Live, v.Reload = at("live")+"?after="+v.After, at("inbox", "rows")
		if v.Beside {
			v.Reload += "?" + values("beside", open.thread, "of", open.agent)
		}
	}
	return v, nil
}

// inboxPath is query for the page, also where its rows alone were asked for.
func inboxPath(r *http.Request, pairs ...string) string {
	return strings.Replace(query(r, pairs...), at("inbox", "rows"), at("inbox"), 1)
}

// unreadRows moves what the operator did not read above the rest.
func (p *Pages) unreadRows(ctx context.Context, s account.Session, v *inboxView, open openConversation) (err error) {
	v.CSRF = s.CSRF
	if v.Newest, err = p.Operator.Arrivals.NewestMessage(ctx); err != nil {
		return err
	}
	found, count, err := p.Operator.Arrivals.Unread(ctx, exchange.ArrivalFilter{Limit: mostUnread}, s.Owner)
	if err != nil {
		return err
	}

	p.unread.remember(s.Owner, count) // the number beside the navigation is that of the list
	v.Unread, v.Older = p.conversationRows(found, v.Filter, open, s.Role >= exchange.RoleWork), count.Older
	above := map[string]bool{}
	for _, one := range v.Unread {
		above[one.Href] = true
	}
	v.Rows = slices.DeleteFunc(v.Rows, func(one inboxRow) bool { return above[one.Href] })
	return nil
}

func (p *Pages) conversationRows(found []operator.Conversation, filter inboxFilter, open openConversation, mayWork bool) (rows []inboxRow) {
	narrowed := filter.query()
	if narrowed != "" {
		narrowed = "&" + narrowed
	}
	for i := range found {
		one := &found[i]
		row := inboxRow{
			ID: one.TurnID, Sender: one.Sender, Channel: one.Channel, Agent: one.Agent, State: one.State, At: one.At, Messages: one.Messages, More: one.More,
			Holder: operatorName(one.Holder), Unread: one.Unread, Current: open == openConversation{one.Agent, one.ThreadID},
		}
		row.Subject, row.Excerpt = apart(one.Surface, one.Excerpt)
		row.Href = threadPath(one.Agent, one.ThreadID) + narrowed
		if mayWork && one.State == exchange.StateAnswered && p.Operator.Answers.Revises(one.Channel) {
			row.Edit = row.Href + "&" + values("edit", one.TurnID) + "#text"
		}
		if one.Messages > 1 {
			row.Href += "#turn-" + one.TurnID // the newest message is in sight
		}
		rows = append(rows, row)
	}
	return rows
}

// mostWaiting is how much work stands above the conversations.
const mostWaiting = 5

// waitingRows are the newest messages and answers about which an operator has to decide.
func (p *Pages) waitingRows(ctx context.Context) (rows []workRow, err error) {
	turns, err := p.Operator.Waiting.Messages(ctx, mostWaiting)
	if err != nil {
		return nil, err
	}
	for i := range turns {
		row := turnWork(&turns[i])
		row.Icon, row.Kind, row.At = "hand", stateName(ctx, turns[i].State), turns[i].UpdatedAt
		if turns[i].State == exchange.StateFailed {
			row.Icon = "warning"
		}
		rows = append(rows, row)
	}
	approvals, err := p.approvalWork(ctx, mostWaiting)
	rows = append(rows, approvals...)
	slices.SortStableFunc(rows, func(a, b workRow) int { return b.At.Compare(a.At) })
	return rows[:min(len(rows), mostWaiting)], err
}

// maxExcerpt bounds what a row shows of a message, in bytes.
const maxExcerpt = 240

func messageRow(turn *exchange.TurnRecord) inboxRow {
	subject, words := apart(turn.Message.Surface, markup.PlainText(turn.Message.Parts))
	return inboxRow{
		ID: turn.ID, Href: at("messages", turn.ID), Sender: turn.Message.Sender.Address.String(), Name: turn.Message.Sender.DisplayName, Channel: turn.Channel,
		Agent: turn.Agent, State: turn.State, Reason: turn.Reason, Subject: subject, Excerpt: excerpt(words), At: turn.AcceptedAt,
	}
}

// needsAttention reports whether a state is one that someone has to do something about. Rows have no mark for the others.
func needsAttention(state string) bool {
	switch state {
	case exchange.StateFailed, exchange.StateHeld, exchange.StateWaiting:
		return true
	}
	return false
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
