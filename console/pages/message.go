package pages

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"inbox/console/account"
	"inbox/exchange"
	"inbox/internal/design"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/internal/markup"
	"inbox/normalized"
	"inbox/operator"
)

func (p *Pages) messageRoutes() []httpserver.Route {
	return []httpserver.Route{
		p.page(exchange.RoleRead, at("messages")+"/{turn}", p.message),
		p.page(exchange.RoleRead, at("messages")+"/{turn}/original", p.original),
		p.page(exchange.RoleRead, at("messages")+"/{turn}/raw", p.raw),
		p.page(exchange.RoleRead, at("find"), p.find),
		p.act(exchange.RoleWork, at("messages")+"/{turn}/retry", false, p.retryMessage),
	}
}

// messageView is one message from the bytes that came in to the last attempt to deliver its answer.
type messageView struct {
	operator.Shown

	Checks    []check // what the channel checked, as it stands in the claims of the sender
	Decisions []exchange.AuditRecord
	Steps     []step
	Trace     string
	Acts      turnView
}

// check is one thing that was looked at before someone was believed.
type check struct{ Name, Value string }

// step is one row of the timeline for people.
type step struct {
	At     time.Time
	Kind   string // as it is stored
	Colour string
	Title  string
	Detail string
}

func (p *Pages) message(w http.ResponseWriter, r *http.Request, s account.Session) error {
	v, err := p.readMessage(r.Context(), httpserver.Param(r, "turn"))
	if err != nil {
		return err
	}
	if err := p.readActs(r, s, &v); err != nil {
		return err
	}
	p.markRead(r, s, v.Turn)
	title := text(r.Context(), "Message of {sender}", "sender", design.VisibleLine(v.Turn.Message.Sender.Address.String()))
	return p.show(w, r, s, view{Title: title, Section: sectionInbox}, messagePage(v))
}

// readActs reads what can be done about the message.
func (p *Pages) readActs(r *http.Request, s account.Session, v *messageView) error {
	ctx, turn := r.Context(), v.Turn
	v.Acts = turnView{
		TurnRecord: turn, CSRF: s.CSRF, Path: at("messages", turn.ID), MayWork: s.Role >= exchange.RoleWork, MayAdmin: s.Role >= exchange.RoleAdmin,
		Revises: p.Operator.Answers.Revises(turn.Channel), Editing: r.URL.Query().Get("edit") != "", Targets: blockTargets(ctx, turn.Message.Sender),
	}
	asks, err := p.approvalsOf(ctx, turn.Agent, []exchange.TurnRecord{turn})
	if err != nil {
		return err
	}
	v.Acts.Approval = asks[turn.ID]
	entry, err := p.blockedBy(ctx, v.Acts.Targets)
	v.Acts.Blocked = entry != nil
	return err
}

func (p *Pages) readMessage(ctx context.Context, id string) (v messageView, err error) {
	if v.Shown, err = p.Operator.Messages.Show(ctx, id); err != nil {
		return v, err
	}
	if v.Decisions, err = p.Operator.Audit.Records(ctx, exchange.AuditFilter{TurnID: v.Turn.ID, Limit: pageSize}); err != nil {
		return v, err
	}
	v.Checks = checks(v.Turn)
	v.Steps = steps(ctx, v.Events)
	v.Trace = traceID(v.Turn.Trace)
	return v, nil
}

// find shows the message to which an id of any kind leads.
func (p *Pages) find(w http.ResponseWriter, r *http.Request, s account.Session) error {
	shown, err := p.Operator.Messages.Show(r.Context(), strings.TrimSpace(r.URL.Query().Get("id")))
	if err != nil {
		return err
	}
	http.Redirect(w, r, at("messages", shown.Turn.ID), http.StatusSeeOther)
	return nil
}

func (p *Pages) retryMessage(w http.ResponseWriter, r *http.Request, s account.Session) error {
	turn := httpserver.Param(r, "turn")
	if err := p.Operator.Messages.Retry(r.Context(), turn, s.By()); err != nil {
		return err
	}
	return p.done(w, r, back(r, at("messages", turn)), text(r.Context(), "The agent runs on the message again."))
}

// original lets the browser keep a message as it came.
func (p *Pages) original(w http.ResponseWriter, r *http.Request, _ account.Session) error {
	id := httpserver.Param(r, "turn")
	found, err := p.Operator.Messages.Original(r.Context(), id)
	if err != nil {
		return err
	}
	defer func() { _ = found.Content.Close() }()

	store(w, id+found.Suffix(), found.Content)
	return nil
}

// store lets the browser store a content. It never shows it: it is a stranger's.
func store(w http.ResponseWriter, name string, content io.Reader) {
	header := w.Header()
	header.Set("Content-Type", "application/octet-stream")
	header.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	header.Set("X-Content-Type-Options", "nosniff")
	_, _ = io.Copy(w, content) // the reader went away: nothing to do
}

// waitsTitle says why a message has no run now.
func waitsTitle(ctx context.Context, waits *operator.Waits) string {
	if waits.Since.IsZero() {
		return text(ctx, "The message waits for its next attempt.")
	}
	return text(ctx, "What answers for the agent is down: the message waits.")
}

// maxRawShown bounds what a page shows of an original, in bytes; the download has all of it.
const maxRawShown = 64 << 10

// rawView is the beginning of a message as it came.
type rawView struct {
	TurnID, MediaType, Content string
	Cut                        bool
}

func (p *Pages) raw(w http.ResponseWriter, r *http.Request, s account.Session) error {
	id := httpserver.Param(r, "turn")
	found, err := p.Operator.Messages.Original(r.Context(), id)
	if err != nil {
		return err
	}
	defer func() { _ = found.Content.Close() }()

	content, err := io.ReadAll(io.LimitReader(found.Content, maxRawShown+1))
	if err != nil {
		return fault.Wrap(fault.Unavailable, "the original of the message cannot be read", err)
	}
	v := rawView{TurnID: id, MediaType: found.MediaType, Cut: len(content) > maxRawShown}
	content = content[:min(len(content), maxRawShown)]
	if indented := (bytes.Buffer{}); !v.Cut && json.Indent(&indented, content, "", "  ") == nil && indented.Len() <= maxRawShown {
		content = indented.Bytes()
	}
	v.Content = strings.ToValidUTF8(string(content), "�")
	return p.show(w, r, s, view{Title: text(r.Context(), "Message as it came"), Section: sectionInbox}, rawPage(v))
}

// checks reads what the channel wrote down about its checks: the members of the claims that are no objects of their own.
func checks(turn exchange.TurnRecord) (found []check) {
	sender := turn.Message.Sender
	if sender.KeyID != "" {
		found = append(found, check{"key", sender.KeyID})
	}
	for i := range sender.Identities {
		found = append(found, claims("", sender.Identities[i].Claims)...)
	}
	if len(sender.Identities) > 0 || sender.Profile == nil {
		return found
	}
	for _, name := range slices.Sorted(maps.Keys(sender.Profile.Extensions)) {
		found = append(found, claims("", sender.Profile.Extensions[name])...)
	}
	return found
}

// maxChecks bounds what is shown of claims that a peer may fill.
const maxChecks = 60

// claims writes an object as names and values, one line each; members of members have the path as their name.
func claims(path string, body json.RawMessage) (found []check) {
	var members map[string]json.RawMessage
	if json.Unmarshal(body, &members) != nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		value := members[name]
		if len(value) > 0 && value[0] == '{' {
			found = append(found, claims(path+name+".", value)...)
		} else {
			var plain string
			if json.Unmarshal(value, &plain) != nil {
				plain = string(value)
			}
			found = append(found, check{path + name, plain})
		}
		if len(found) >= maxChecks {
			return found[:maxChecks]
		}
	}
	return found
}

// traceID is the id of the trace in a traceparent (W3C Trace Context, section 3.2.2); empty where there is none.
func traceID(traceparent string) string {
	parts := strings.Split(traceparent, "-")
	if len(parts) < 4 {
		return ""
	}
	return parts[1]
}

// threadPath is the page of a conversation.
func threadPath(agent, thread string) string {
	return at("thread") + "?" + values("agent", agent, "id", thread)
}

// personPath is the page of someone, by any of their addresses or principals.
func personPath(who string) string { return at("person") + "?" + values("who", who) }

// senderName is how the page calls a sender: the name that they gave themselves, or the address.
func senderName(sender normalized.Sender) string {
	if sender.DisplayName != "" {
		return sender.DisplayName
	}
	return sender.Address.String()
}

func (v messageView) senderName() string { return senderName(v.Turn.Message.Sender) }

// deliveryKind is the colour of the state of a delivery.
func deliveryKind(state string) string {
	switch state {
	case operator.DeliveryDelivered:
		return design.OK
	case operator.DeliveryDead:
		return design.Bad
	case operator.DeliveryRetry:
		return design.Warn
	}
	return design.Plain
}

// size writes a number of bytes for people.
func size(bytes int64) string {
	switch {
	case bytes <= 0:
		return ""
	case bytes < 1<<10:
		return strconv.FormatInt(bytes, 10) + " B"
	case bytes < 1<<20:
		return strconv.FormatInt(bytes>>10, 10) + " KiB"
	}
	return strconv.FormatFloat(float64(bytes)/(1<<20), 'f', 1, 64) + " MiB"
}

// spoken are the parts of a message without the sources that it names.
func spoken(list []normalized.Part) []normalized.Part {
	list, _ = normalized.Cited(list)
	return list
}

// sources are the numbered lines of where a message comes from.
func sources(list []normalized.Part) string {
	_, citations := normalized.Cited(list)
	return normalized.Sources(citations)
}

// partText is what a part of an unusual kind says. One without words, such as a call of a tool, is shown as it is stored.
func partText(part normalized.Part) string {
	if words := markup.PlainText([]normalized.Part{part}); words != "" {
		return words
	}
	stored, err := json.MarshalIndent(part, "", "  ")
	if err != nil {
		return err.Error()
	}
	return string(stored)
}
