package pages

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"inbox/console/account"
	"inbox/exchange"
	"inbox/internal/design"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/normalized"
	"inbox/operator"
	"inbox/operator/lookup"
)

func (p *Pages) threadRoutes() []httpserver.Route {
	return []httpserver.Route{
		p.page(exchange.RoleRead, at("thread"), p.thread),
		p.page(exchange.RoleRead, at("person"), p.person),
		p.page(exchange.RoleAdmin, at("person", "data"), p.personData),
	}
}

// threadView is the page of a conversation: the list of conversations, the messages with the oldest first, and the context of the selected one.
type threadView struct {
	Agent, ID string
	Sender    normalized.Sender // of the newest message
	Principal string
	Channel   string
	Turns     []exchange.TurnRecord
	Older     string
	Writing   takeoverView
	CSRF      string
	MayWork   bool
	MayAdmin  bool
	Path      string

	List    inboxView
	Chosen  exchange.TurnRecord // the message that the context is about
	Edit    string              // id of the message whose answer is corrected here; empty = none
	Asks    map[string]string   // approvals that messages wait for, by message
	Blocked *exchange.ListEntry // the entry by which the sender is blocked
	Targets []listTarget        // what an entry on the block list may name
	About   blockable           // the sender of the chosen message, who is another one in a conversation of several people
	Readers operator.Readers    // of the conversation
	Sent    []operator.Delivery // of the chosen message
	Revises bool                // answers of the channel can be changed after they were sent
}

func (p *Pages) thread(w http.ResponseWriter, r *http.Request, s account.Session) error {
	ctx, asked := r.Context(), r.URL.Query()
	agent, id := asked.Get("agent"), asked.Get("id")
	if agent == "" || id == "" {
		return fault.InField("id", "and agent name a conversation; one of them is missing")
	}
	turns, err := p.Operator.Arrivals.Thread(ctx, agent, id, asked.Get("before"), pageSize)
	if err != nil {
		return err
	}
	if len(turns) == 0 {
		return fault.New(fault.NotFound, text(ctx, "There is no such conversation, or it was removed."))
	}

	newest := turns[0]
	v := threadView{
		Agent: agent, ID: id, Sender: newest.Message.Sender, Principal: newest.Principal, Channel: newest.Channel,
		CSRF: s.CSRF, MayWork: s.Role >= exchange.RoleWork, MayAdmin: s.Role >= exchange.RoleAdmin, Path: r.URL.RequestURI(),
		Chosen: newest, Edit: asked.Get("edit"), Revises: p.Operator.Answers.Revises(newest.Channel),
	}
	if chosen := cmp.Or(v.Edit, asked.Get("turn")); chosen != "" {
		at := slices.IndexFunc(turns, func(turn exchange.TurnRecord) bool { return turn.ID == chosen })
		if at < 0 { // it is on an older page of the conversation; its own page has the same buttons
			http.Redirect(w, r, messagePath(chosen, v.Edit != ""), http.StatusSeeOther)
			return nil
		}
		v.Chosen = turns[at]
	}
	if len(turns) == pageSize {
		v.Older = query(r, "before", exchange.TurnCursor(turns[len(turns)-1]))
	}
	for i := range turns {
		v.Turns = append(v.Turns, turns[len(turns)-1-i])
	}
	p.markRead(r, s, newest)
	if err := p.readContext(r, s, &v); err != nil {
		return err
	}
	title := text(ctx, "Conversation with {sender}", "sender", design.VisibleLine(v.Sender.Address.String()))
	return p.show(w, r, s, view{Title: title, Section: sectionInbox, Scripts: []string{"sse.js"}, Panes: true}, threadPage(v))
}

// readContext reads the panes beside a conversation: the list, the operator who has it, and the context of the selected message. Each is one bounded query.
func (p *Pages) readContext(r *http.Request, s account.Session, v *threadView) (err error) {
	ctx := r.Context()
	if v.List, err = p.readBeside(r, s, openConversation{v.Agent, v.ID}); err != nil {
		return err
	}
	if v.Writing, err = p.takeoverOf(ctx, s, v.Agent, v.ID); err != nil {
		return err
	}
	if v.Readers, err = p.Operator.Arrivals.Readers(ctx, lookup.ConversationID{ID: v.ID, Agent: v.Agent, Whole: true}); err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	if v.Sent, err = p.Operator.Deliveries.List(ctx, operator.DeliveryFilter{TurnID: v.Chosen.ID, Limit: pageSize}); err != nil {
		return err
	}
	if v.Asks, err = p.approvalsOf(ctx, v.Agent, v.Turns); err != nil {
		return err
	}
	v.Targets = blockTargets(ctx, v.Sender)
	if v.Blocked, err = p.blockedBy(ctx, v.Targets); err != nil {
		return err
	}
	v.About.Targets = blockTargets(ctx, v.Chosen.Message.Sender)
	v.About.Blocked, err = p.blockedBy(ctx, v.About.Targets)
	return err
}

// blockable is whether a sender is blocked, or what an entry on the block list may name.
type blockable struct {
	Blocked *exchange.ListEntry
	Targets []listTarget
}

// approvalsOf finds the open approvals for which messages wait.
func (p *Pages) approvalsOf(ctx context.Context, agent string, turns []exchange.TurnRecord) (map[string]string, error) {
	waits := func(turn exchange.TurnRecord) bool { return turn.State == exchange.StateWaiting }
	if !slices.ContainsFunc(turns, waits) {
		return nil, nil
	}
	open, err := p.Operator.Approvals.Approvals(ctx, exchange.ApprovalFilter{Agent: agent, Limit: 500})
	asks := map[string]string{}
	for i := range open {
		asks[open[i].TurnID] = open[i].ID
	}
	return asks, err
}

// blockedBy returns the entry of the block list that names a sender, or nil.
func (p *Pages) blockedBy(ctx context.Context, targets []listTarget) (*exchange.ListEntry, error) {
	for _, target := range targets {
		found, err := p.Operator.Lists.Entries(ctx, exchange.ListFilter{List: exchange.ListBlock, Target: target.Value, Limit: 1})
		if err != nil || len(found) > 0 {
			return first(found), err
		}
	}
	return nil, nil
}

func first(entries []exchange.ListEntry) *exchange.ListEntry {
	if len(entries) == 0 {
		return nil
	}
	return &entries[0]
}

// personView is someone by what is proven of them.
type personView struct {
	Who       string
	Addresses []exchange.PersonIdentity // both sides of links
	MayAdmin  bool
	Rows      []inboxRow
	Next      string
}

func (p *Pages) person(w http.ResponseWriter, r *http.Request, s account.Session) error {
	ctx, who := r.Context(), r.URL.Query().Get("who")
	if who == "" {
		return fault.InField("who", "is missing; it is an address or a principal")
	}
	v := personView{Who: who, MayAdmin: s.Role >= exchange.RoleAdmin}
	var err error
	if v.Addresses, err = p.Operator.People.Of(ctx, who); err != nil {
		return err
	}
	page, err := p.Operator.Arrivals.Page(ctx, exchange.ArrivalFilter{Sender: who, Before: r.URL.Query().Get("before"), Limit: pageSize})
	if err != nil {
		return err
	}
	for i := range page.Turns {
		v.Rows = append(v.Rows, messageRow(&page.Turns[i]))
	}
	if page.Next != "" {
		v.Next = query(r, "before", page.Next)
	}
	return p.show(w, r, s, view{Title: design.VisibleLine(who), Section: sectionInbox}, personPage(v))
}

// personDataView says who a name means for an export or an erasure, and why.
type personDataView struct {
	Who                      string
	Preview                  operator.ErasurePreview
	WithLinked, WithUnproven string // addresses of the page with what is left out
}

// personData reads all messages, as the export and the erasure do: it is a page that someone asks for.
func (p *Pages) personData(w http.ResponseWriter, r *http.Request, s account.Session) error {
	asked := r.URL.Query()
	name := operator.PersonName{Name: asked.Get("who"), Linked: asked.Get("linked") == "true", Unproven: asked.Get("unproven") == "true"}
	if name.Name == "" {
		return fault.InField("who", "is missing; it is an address or a principal")
	}
	preview, err := p.Operator.Erasures.Preview(r.Context(), name)
	if err != nil {
		return err
	}
	v := personDataView{Who: name.Name, Preview: preview, WithLinked: query(r, "linked", "true"), WithUnproven: query(r, "unproven", "true")}
	return p.show(w, r, s, view{Title: design.VisibleLine(name.Name), Section: sectionInbox}, personDataPage(v))
}

// because says why a principal belongs to a person.
func because(ctx context.Context, one operator.Belonging) string {
	switch one.Because {
	case operator.BecauseEvidence:
		return text(ctx, "{method} vouches for {address}", "method", one.Method, "address", design.VisibleLine(string(one.Address)))
	case operator.BecauseLink:
		return text(ctx, "Linked with {other} by consent for {agent} at {time}, for messages to {agent} only",
			"other", design.VisibleLine(one.With), "agent", one.Agent, "time", one.LinkedAt.UTC().Format(time.RFC3339))
	case operator.BecauseUnproven:
		return text(ctx, "States the address, and you count that as enough")
	}
	return text(ctx, "You named it")
}

// whyNot says why a principal that states an address does not belong to the person.
func whyNot(ctx context.Context, one operator.Statement) string {
	stated := design.VisibleLine(one.Address.String())
	switch one.Because {
	case operator.OtherSender:
		return text(ctx, "Is proven to be another sender, and states {address}", "address", stated)
	case operator.OtherCapitals:
		return text(ctx, "States {address}, which is another address: capital letters count", "address", stated)
	}
	return text(ctx, "States {address} without proof", "address", stated)
}

// turnPath is a message in its conversation.
func turnPath(turn *exchange.TurnRecord) string {
	return threadPath(turn.Agent, turn.ThreadID) + "&" + values("turn", turn.ID) + "#turn-" + turn.ID
}

// mostReaders is how many parties of a conversation stand beside it.
const mostReaders = 8
