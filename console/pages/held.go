package pages

import (
	"cmp"
	"context"
	"net/http"
	"strings"

	"inbox/console/account"
	"inbox/engine/admission"
	"inbox/exchange"
	"inbox/internal/design"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/normalized"
	"inbox/operator"
)

func (p *Pages) heldRoutes() []httpserver.Route {
	return []httpserver.Route{
		p.page(exchange.RoleRead, at("work", "held")+"/{turn}", p.heldMessage),
		p.act(exchange.RoleWork, at("work", "held", "release"), false, p.release),
		p.act(exchange.RoleWork, at("work", "held", "drop"), false, p.drop),
		p.act(exchange.RoleWork, at("work", "held", "restore"), false, p.restoreHeld),
		p.act(exchange.RoleAdmin, at("work", "held")+"/{turn}/allow", false, p.allow),
		p.act(exchange.RoleAdmin, at("work", "held")+"/{turn}/block", false, p.block),
	}
}

// heldView is a page of messages that wait for the operator, or of those that were dropped and can be restored.
type heldView struct {
	workView

	Dropped bool
	Rows    []exchange.TurnRecord
}

// action is where the form of the page goes.
func (v heldView) action() string {
	if v.Dropped {
		return at("work", "held", "restore")
	}
	return at("work", "held", "release")
}

func (v heldView) heading(ctx context.Context) string {
	if v.Dropped {
		return text(ctx, "Dropped messages")
	}
	return text(ctx, "Held messages")
}

func (v heldView) why(ctx context.Context) string {
	if v.Dropped {
		return text(ctx, "Why it was dropped")
	}
	return text(ctx, "Why it is held")
}

// until heads the column that says how long a message stays in the list.
func (v heldView) until(ctx context.Context) string {
	if v.Dropped {
		return text(ctx, "Content expires")
	}
	return text(ctx, "Dropped by itself")
}

// of is the page of one message in the list.
func (v heldView) of(turn exchange.TurnRecord) string {
	if v.Dropped {
		return at("messages", turn.ID)
	}
	return at("work", "held", turn.ID)
}

func (p *Pages) held(w http.ResponseWriter, r *http.Request, s account.Session) error {
	v := heldView{workView: p.workView(r, s, "held"), Dropped: r.URL.Query().Get("dropped") == "true"}
	read := p.Operator.Held.List
	if v.Dropped {
		read = p.Operator.Held.Dropped
	}
	turns, err := read(r.Context(), r.URL.Query().Get("agent"), r.URL.Query().Get("before"), pageSize+1)
	if err != nil {
		return err
	}
	var next string
	if v.Rows, next = exchange.NextPage(turns, pageSize, exchange.TurnCursor); next != "" {
		v.Next = query(r, "before", next, "select", "")
	}
	return p.showWork(w, r, s, v.heading(r.Context()), heldPage(v))
}

// heldMessageView is one of them, with what an entry on a list would do.
type heldMessageView struct {
	workView

	Turn exchange.TurnRecord
	// Allow are the targets that an entry on the allow list may have for the sender, the narrowest first; empty = none would help.
	Allow []listTarget
	Block []listTarget
	// Unproven says that no entry helps because nothing proves the sender.
	Unproven bool
	// Closed is why the rules of the agent keep the sender out even then; empty = they do not.
	Closed string
}

// listTarget is what an entry on a list may name.
type listTarget struct{ Value, Covers string }

func (p *Pages) heldMessage(w http.ResponseWriter, r *http.Request, s account.Session) error {
	ctx := r.Context()
	turn, err := p.Operator.Messages.Turn(ctx, httpserver.Param(r, "turn"))
	if err != nil {
		return err
	}
	if turn.State != exchange.StateHeld {
		return p.done(w, r, at("messages", turn.ID), text(ctx, "The message is not held any more."))
	}

	sender := turn.Message.Sender
	v := heldMessageView{workView: p.workView(r, s, "held"), Turn: turn, Unproven: len(sender.Identities) == 0, Block: blockTargets(ctx, sender)}
	if !v.Unproven {
		v.Allow = allowTargets(ctx, sender)
		proof := &sender.Identities[0]
		if speaker := sender.Speaker(); speaker != nil {
			proof = speaker
		}
		answer, err := p.Operator.Agents.Access(operator.AccessQuestion{
			Agent: turn.Agent, Address: sender.Address.String(), Issuer: proof.Issuer, Method: proof.Method, Subject: proof.Subject, Assurance: proof.Assurance,
		})
		switch {
		case fault.Is(err, fault.NotFound), fault.Is(err, fault.Malformed): // the agent left the settings, or the proof is of a kind that they do not know
		case err != nil:
			return err
		case answer.Outcome == admission.Denied:
			v.Closed = answer.Reason
		}
	}
	return p.showWork(w, r, s, text(ctx, "Held message of {sender}", "sender", design.VisibleLine(sender.Address.String())), heldMessagePage(v))
}

// blockTargets are what a blocking entry may name to mean a sender: the address as it is stated, and the domain that it is at.
func blockTargets(ctx context.Context, sender normalized.Sender) []listTarget {
	address, err := sender.Address.Parse()
	if err != nil {
		return nil
	}
	return targets(ctx, address.String(), address.Domain)
}

// allowTargets are what an entry that lets in may name to mean a sender: what is proven of who speaks. An address that is only stated
// would let its owner in, and not this sender.
func allowTargets(ctx context.Context, sender normalized.Sender) []listTarget {
	speaker := sender.Speaker()
	if speaker == nil {
		return nil
	}
	_, domain, _ := strings.Cut(speaker.Proven().Mail(), "@")
	return targets(ctx, string(speaker.Proven()), cmp.Or(domain, speaker.Domain()))
}

func targets(ctx context.Context, address, domain string) (list []listTarget) {
	if address != "" {
		list = append(list, listTarget{address, text(ctx, "only this sender, on all channels")})
	}
	if domain != "" {
		list = append(list, listTarget{domain, text(ctx, "everybody at this domain")})
	}
	return list
}

func (p *Pages) release(w http.ResponseWriter, r *http.Request, s account.Session) error {
	all, err := p.each(r, s, "held", "release", p.Operator.Held.Release)
	if err != nil {
		return err
	}
	words := count(r.Context(), all.done, "{n} message was released; its agent answers now.", "{n} messages were released; their agents answer now.")
	return p.done(w, r, back(r, workPath("held")), all.and(r.Context(), words))
}

func (p *Pages) drop(w http.ResponseWriter, r *http.Request, s account.Session) error {
	reason, err := reasonOf(r)
	if err != nil {
		return err
	}
	all, err := p.each(r, s, "held", "drop", func(ctx context.Context, id string) error {
		return p.Operator.Held.Drop(ctx, id, cmp.Or(reason, "dropped by the operator"))
	})
	if err != nil {
		return err
	}
	words := count(r.Context(), all.done, "{n} message was dropped.", "{n} messages were dropped.")
	return p.done(w, r, back(r, workPath("held")), all.and(r.Context(), words))
}

func (p *Pages) restoreHeld(w http.ResponseWriter, r *http.Request, s account.Session) error {
	all, err := p.each(r, s, "held", "restore", p.Operator.Held.Restore)
	if err != nil {
		return err
	}
	words := count(r.Context(), all.done, "{n} message is held again.", "{n} messages are held again.")
	return p.done(w, r, back(r, workPath("held")), all.and(r.Context(), words))
}

// listed puts the sender of a held message on a list. The form says by which of the sender's targets.
func (p *Pages) listed(r *http.Request, s account.Session, list string) (turn exchange.TurnRecord, entry exchange.ListEntry, err error) {
	ctx, target := r.Context(), r.PostFormValue("target")
	reason, err := reasonOf(r)
	if err != nil {
		return turn, entry, err
	}
	if turn, err = p.Operator.Messages.Turn(ctx, httpserver.Param(r, "turn")); err != nil {
		return turn, entry, err
	}
	targets := allowTargets
	if list == exchange.ListBlock {
		targets = blockTargets
	}
	for _, one := range targets(ctx, turn.Message.Sender) {
		if one.Value == target {
			entry, _, err = p.Operator.Lists.Add(ctx, exchange.ListEntry{List: list, Target: target, Reason: reason, Source: s.By()})
			return turn, entry, err
		}
	}
	return turn, entry, fault.InField("target", "must be the address or the domain of the sender")
}

func (p *Pages) allow(w http.ResponseWriter, r *http.Request, s account.Session) error {
	turn, err := p.Operator.Messages.Turn(r.Context(), httpserver.Param(r, "turn"))
	if err != nil {
		return err
	}
	if len(turn.Message.Sender.Identities) == 0 {
		return fault.New(fault.Conflict, text(r.Context(), "Nothing proves the sender, so an entry on the allow list would open nothing."))
	}
	turn, entry, err := p.listed(r, s, exchange.ListAllow)
	if err != nil {
		return err
	}
	if err := p.Operator.Held.Release(r.Context(), turn.ID); err != nil && !fault.Is(err, fault.Conflict) {
		return err
	}
	return p.done(w, r, back(r, workPath("held")), text(r.Context(), "{target} is on the allow list now, and the message was released.", "target", entry.Target))
}

func (p *Pages) block(w http.ResponseWriter, r *http.Request, s account.Session) error {
	turn, entry, err := p.listed(r, s, exchange.ListBlock)
	if err != nil {
		return err
	}
	// The entry may have cancelled it already.
	if err := p.Operator.Held.Drop(r.Context(), turn.ID, "blocked by the operator: "+entry.Target); err != nil && !fault.Is(err, fault.Conflict) {
		return err
	}
	return p.done(w, r, back(r, workPath("held")), text(r.Context(), "{target} is blocked now, and the message was dropped.", "target", entry.Target))
}

// excerpt is the beginning of a text.
func excerpt(words string) string {
	if len(words) > maxExcerpt {
		words = strings.ToValidUTF8(words[:maxExcerpt], "") + " …"
	}
	return words
}

func shownTurn(turn exchange.TurnRecord) operator.Shown { return operator.Shown{Turn: turn} }
