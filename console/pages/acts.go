package pages

import (
	"net/http"
	"strings"

	"inbox/console/account"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/normalized"
)

// actRoutes are what can be done where a message stands: correct its answer, block its sender.
func (p *Pages) actRoutes() []httpserver.Route {
	return []httpserver.Route{
		p.act(exchange.RoleWork, at("messages")+"/{turn}/compare", false, p.compareAnswer),
		p.act(exchange.RoleWork, at("messages")+"/{turn}/correct", false, p.correctAnswer),
		p.act(exchange.RoleAdmin, at("messages")+"/{turn}/block", false, p.blockSender),
		p.act(exchange.RoleAdmin, at("messages")+"/{turn}/unblock", false, p.unblockSender),
	}
}

// turnView is a message with what can be done about it.
type turnView struct {
	exchange.TurnRecord

	CSRF, Path        string
	MayWork, MayAdmin bool
	Revises           bool   // its answer can be changed after it was sent
	Editing           bool   // the form for that is open
	Approval          string // for which it waits; empty = for none
	Blocked           bool
	Targets           []listTarget
	Subject           string // as it stands above the message; empty = there is none, or it is that of the message before
}

// correctable reports whether the answer has words that can be changed.
func (v turnView) correctable() bool {
	return v.MayWork && v.Revises && v.State == exchange.StateAnswered && v.Response != nil && !v.Response.Silent && writtenText(v.Response.Parts) != ""
}

// editPath is the same page with the form to correct the answer.
func (v turnView) editPath() string {
	return threadPath(v.Agent, v.ThreadID) + "&" + values("edit", v.ID) + "#text"
}

func (v threadView) turnView(turn exchange.TurnRecord) turnView {
	return turnView{
		TurnRecord: turn, CSRF: v.CSRF, Path: threadPath(v.Agent, v.ID) + "&" + values("turn", turn.ID), MayWork: v.MayWork, MayAdmin: v.MayAdmin, Revises: v.Revises,
		Editing: v.Edit == turn.ID, Approval: v.Asks[turn.ID], Blocked: v.Blocked != nil, Targets: v.Targets,
	}
}

// shown are the messages of the page. One that answers under the subject of the message before says it once.
func (v threadView) shown() (list []turnView) {
	before := ""
	for _, turn := range v.Turns {
		one := v.turnView(turn)
		subject := subjectOf(turn.Message)
		if before == "" || !strings.HasSuffix(strings.ToLower(subject), strings.ToLower(before)) {
			one.Subject, before = subject, subject
		}
		list = append(list, one)
	}
	return list
}

// messagePath is the page of a message, with the form to correct its answer or without.
func messagePath(turn string, edit bool) string {
	if edit {
		return at("messages", turn) + "?" + values("edit", turn) + "#text"
	}
	return at("messages", turn)
}

// comparedAnswer reads what an operator wants an answer to say that was sent.
func (p *Pages) comparedAnswer(r *http.Request, s account.Session) (v compareView, err error) {
	turn, err := p.Operator.Messages.Turn(r.Context(), httpserver.Param(r, "turn"))
	if err != nil {
		return v, err
	}
	if turn.Response == nil || turn.Response.Silent {
		return v, fault.New(fault.Conflict, text(r.Context(), "The message has no answer that could be corrected."))
	}
	before := writtenText(turn.Response.Parts)
	return compareView{
		workView: p.workView(r, s, ""), Title: text(r.Context(), "Conversation"), Back: back(r, turnPath(&turn)), Before: before, After: plainText(r.PostFormValue("text")),
		Was: fingerprint(before), Action: at("messages", turn.ID, "correct"), Send: text(r.Context(), "Save and tell everyone who has it"),
	}, nil
}

func (p *Pages) compareAnswer(w http.ResponseWriter, r *http.Request, s account.Session) error {
	v, err := p.comparedAnswer(r, s)
	if err != nil {
		return err
	}
	return p.showWork(w, r, s, v.Title, comparePage(v))
}

// correctAnswer edits a sent answer and notifies its receivers. If the text changed after the form was rendered, it shows a comparison first.
func (p *Pages) correctAnswer(w http.ResponseWriter, r *http.Request, s account.Session) error {
	v, err := p.comparedAnswer(r, s)
	if err != nil {
		return err
	}
	if v.Stale = r.PostFormValue("was") != v.Was; v.Stale {
		return p.showWork(w, r, s, v.Title, comparePage(v))
	}
	if v.Before == v.After {
		return p.done(w, r, v.Back, text(r.Context(), "The text is the same as before."))
	}
	if err := p.Operator.Answers.Edit(r.Context(), httpserver.Param(r, "turn"), s.By(), v.After, ""); err != nil {
		return err
	}
	return p.done(w, r, v.Back, text(r.Context(), "The answer was corrected. Everyone who has it is told."))
}

// blockSender puts the sender of a message on the block list. A held message of the sender is dropped with the others that wait.
func (p *Pages) blockSender(w http.ResponseWriter, r *http.Request, s account.Session) error {
	turn, entry, err := p.listed(r, s, exchange.ListBlock)
	if err != nil {
		return err
	}
	return p.done(w, r, back(r, turnPath(&turn)), text(r.Context(), "{target} is blocked now.", "target", entry.Target))
}

// unblockSender takes the entry off the block list again that names the sender of a message.
func (p *Pages) unblockSender(w http.ResponseWriter, r *http.Request, _ account.Session) error {
	ctx := r.Context()
	turn, err := p.Operator.Messages.Turn(ctx, httpserver.Param(r, "turn"))
	if err != nil {
		return err
	}
	entry, err := p.blockedBy(ctx, blockTargets(ctx, turn.Message.Sender))
	if err != nil {
		return err
	}
	if entry == nil {
		return fault.New(fault.Conflict, text(ctx, "No entry on the block list names this sender."))
	}
	if err := p.Operator.Lists.Remove(ctx, *entry); err != nil {
		return err
	}
	return p.done(w, r, back(r, turnPath(&turn)), text(ctx, "{target} is off the list.", "target", entry.Target))
}

// saidParts are the parts of a message without its subject, which stands above them.
func saidParts(message normalized.Message) []normalized.Part {
	_, parts := apartParts(&message)
	return parts
}

func subjectOf(message normalized.Message) string {
	subject, _ := apartParts(&message)
	return subject
}
