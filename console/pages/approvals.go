package pages

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"inbox/agents"
	"inbox/console/account"
	"inbox/exchange"
	"inbox/internal/design"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/normalized"
)

func (p *Pages) approvalRoutes() []httpserver.Route {
	one := at("work", "approvals") + "/{approval}"
	return []httpserver.Route{
		p.page(exchange.RoleRead, one, p.approval),
		p.page(exchange.RoleRead, one+"/files/{file}", p.heldFile),
		p.act(exchange.RoleWork, one+"/approve", false, p.approve),
		p.act(exchange.RoleWork, one+"/deny", false, p.deny),
		p.act(exchange.RoleWork, one+"/compare", false, p.compareReply),
		p.act(exchange.RoleWork, one+"/edit", false, p.editReply),
	}
}

// approvalsView is a page of approvals.
type approvalsView struct {
	workView

	All  bool // also those that were decided
	Rows []exchange.Approval
}

func (p *Pages) approvals(w http.ResponseWriter, r *http.Request, s account.Session) error {
	v := approvalsView{workView: p.workView(r, s, "approvals"), All: r.URL.Query().Get("status") == "all"}
	found, err := p.Operator.Approvals.Approvals(r.Context(), exchange.ApprovalFilter{
		Agent: r.URL.Query().Get("agent"), All: v.All, Before: r.URL.Query().Get("before"), Limit: pageSize + 1,
	})
	if err != nil {
		return err
	}
	var next string
	if v.Rows, next = exchange.NextPage(found, pageSize, func(a exchange.Approval) string { return a.ID }); next != "" {
		v.Next = query(r, "before", next)
	}
	return p.showWork(w, r, s, text(r.Context(), "Approvals"), approvalsPage(v))
}

// approvalView is one approval with the message from which it comes.
type approvalView struct {
	workView
	exchange.Approval

	Turn    exchange.TurnRecord // its zero value = the message is gone
	Editing bool                // the reader came to correct the answer
}

func (v approvalView) open() bool { return v.Status == exchange.ApprovalOpen }

func (p *Pages) approval(w http.ResponseWriter, r *http.Request, s account.Session) error {
	v := approvalView{workView: p.workView(r, s, "approvals"), Editing: r.URL.Query().Get("edit") != ""}
	var err error
	if v.Approval, err = p.Operator.Approvals.Approval(r.Context(), httpserver.Param(r, "approval")); err != nil {
		return err
	}
	if v.Turn, err = p.Operator.Messages.Turn(r.Context(), v.TurnID); err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	return p.showWork(w, r, s, text(r.Context(), "Approval {code}", "code", v.Code), approvalPage(v))
}

// heldFile lets the browser keep a file of an answer that is held back.
func (p *Pages) heldFile(w http.ResponseWriter, r *http.Request, _ account.Session) error {
	place, err := strconv.Atoi(httpserver.Param(r, "file"))
	if err != nil {
		return fault.Wrap(fault.NotFound, "the answer has no such file here", err)
	}
	file, content, err := p.Operator.HeldFiles.Open(r.Context(), httpserver.Param(r, "approval"), place)
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }() // it was only read

	store(w, cmp.Or(agents.FileName(file.Name), "file"), content)
	return nil
}

func (p *Pages) approve(w http.ResponseWriter, r *http.Request, s account.Session) error {
	one, err := p.Operator.Approvals.Approve(r.Context(), httpserver.Param(r, "approval"), r.PostFormValue("shown"), s.By())
	if err != nil {
		return err
	}
	return p.done(w, r, back(r, workPath("approvals")), approvedWords(r.Context(), one))
}

func approvedWords(ctx context.Context, one exchange.Approval) string {
	if one.Kind == exchange.ApprovalReply {
		return text(ctx, "The answer is on its way to {who}.", "who", design.VisibleLine(one.Asker))
	}
	return text(ctx, "Approved. {agent} goes on.", "agent", one.Agent)
}

func (p *Pages) deny(w http.ResponseWriter, r *http.Request, s account.Session) error {
	reason, err := reasonOf(r)
	if err != nil {
		return err
	}
	if _, err := p.Operator.Approvals.Deny(r.Context(), httpserver.Param(r, "approval"), s.By(), reason); err != nil {
		return err
	}
	return p.done(w, r, back(r, workPath("approvals")), text(r.Context(), "Declined. Nothing is done, and a held answer is not sent."))
}

// editView is a form with the text of an answer.
type editView struct {
	Compare, Save string // addresses: what the text would change, and the act
	Send          string // label of the act
	CSRF          string
	Words, Hint   string
	Focus         bool
}

// compareView shows what an edit would change before anything is stored.
type compareView struct {
	workView

	Title, Back   string
	Before, After string
	Was           string // fingerprint of the text as it was compared
	Stale         bool   // someone else changed it meanwhile
	Action        string
	Send, Keep    string // labels of the buttons; an empty one has none
}

// fingerprint names a text.
func fingerprint(words string) string {
	sum := sha256.Sum256([]byte(words))
	return hex.EncodeToString(sum[:])
}

// writtenText is what of an answer can be edited: its texts.
func writtenText(list []normalized.Part) string {
	var texts []string
	for i := range list {
		if list[i].Kind == normalized.PartText {
			texts = append(texts, list[i].Content)
		}
	}
	return plainText(strings.Join(texts, "\n\n"))
}

// comparedReply reads what an operator wants an answer that is held back to say.
func (p *Pages) comparedReply(r *http.Request, s account.Session) (v compareView, err error) {
	one, err := p.Operator.Approvals.Approval(r.Context(), httpserver.Param(r, "approval"))
	switch {
	case err != nil:
		return v, err
	case one.Draft == nil:
		return v, fault.New(fault.Conflict, text(r.Context(), "This approval is about an action; it has no text to edit."))
	}
	before := writtenText(one.Draft.Parts)
	return compareView{
		workView: p.workView(r, s, "approvals"), Title: text(r.Context(), "Approval {code}", "code", one.Code), Back: at("work", "approvals", one.ID),
		Before: before, After: plainText(r.PostFormValue("text")), Was: fingerprint(before), Action: at("work", "approvals", one.ID, "edit"),
		Send: text(r.Context(), "Save and send"), Keep: text(r.Context(), "Save and decide later"),
	}, nil
}

func (p *Pages) compareReply(w http.ResponseWriter, r *http.Request, s account.Session) error {
	v, err := p.comparedReply(r, s)
	if err != nil {
		return err
	}
	return p.showWork(w, r, s, v.Title, comparePage(v))
}

// editReply stores the text that was compared, and sends it where the form says so. A text that changed since is compared again.
func (p *Pages) editReply(w http.ResponseWriter, r *http.Request, s account.Session) error {
	v, err := p.comparedReply(r, s)
	if err != nil {
		return err
	}
	if v.Stale = r.PostFormValue("was") != v.Was; v.Stale {
		return p.showWork(w, r, s, v.Title, comparePage(v))
	}

	ctx, id := r.Context(), httpserver.Param(r, "approval")
	edited, err := p.Operator.Approvals.EditReply(ctx, id, s.By(), v.After)
	if err != nil {
		return err
	}
	if r.PostFormValue("then") != "send" {
		return p.done(w, r, v.Back, text(ctx, "The text is saved. The answer still waits for a decision."))
	}
	one, err := p.Operator.Approvals.Approve(ctx, id, edited.Digest, s.By())
	if err != nil {
		return err
	}
	return p.done(w, r, back(r, workPath("approvals")), approvedWords(ctx, one))
}

// indentedJSON writes a document for people.
func indentedJSON(document json.RawMessage) string {
	var words string
	if json.Unmarshal(document, &words) == nil {
		return words
	}
	var out bytes.Buffer
	if json.Indent(&out, document, "", "  ") != nil {
		return string(document)
	}
	return out.String()
}

func approvalName(ctx context.Context, status string) string {
	switch status {
	case exchange.ApprovalOpen:
		return text(ctx, "Open")
	case exchange.ApprovalApproved:
		return text(ctx, "Approved")
	case exchange.ApprovalDenied:
		return text(ctx, "Declined")
	case exchange.ApprovalExpired:
		return text(ctx, "Expired")
	case exchange.ApprovalDropped:
		return text(ctx, "No longer needed")
	}
	return status
}

func approvalColour(status string) string {
	switch status {
	case exchange.ApprovalOpen:
		return design.Warn
	case exchange.ApprovalApproved:
		return design.OK
	case exchange.ApprovalDenied, exchange.ApprovalExpired:
		return design.Bad
	}
	return design.Plain
}
