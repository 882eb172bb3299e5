package demand

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/markup"
	"inbox/normalized"
	"inbox/policypart"
)

// ShownKey is the member of the data of a question to an approver: the digest of what it shows.
const ShownKey = "dev.mentionable.shown"

// What an approver is told of what may be long; the page has the rest.
const (
	toldPreview  = 2 << 10
	toldDraft    = 6 << 10
	toldSummary  = 2 << 10
	toldQuestion = 300
)

// Told is what an approver gets to read: who asks for what, how to answer, until when, and the address of the page, which
// is a secret of the approvers once it is presented.
func (a *approvals) Told(i policypart.Issuance) normalized.Response {
	kept, expires := notesOf(i), identity.At(i.ExpiresAt)
	title := kept.AgentAddress + " asks for your approval"
	if replies(i) {
		title = kept.AgentAddress + " has an answer that waits for your approval"
	}

	part := policypart.Part{
		Data: withData(nil, ShownKey, shownOf(i)),
		Kind: policypart.ConsentRequired, Code: i.Part.Code, Title: title, Message: strings.Join(toldLines(i, kept), "\n"),
		URL: a.secrets.page(i.ID).String(), ActionLabel: "Or decide on the page", ExpiresAt: &expires,
	}

	return normalized.Response{
		Visibility: normalized.VisibilityDirect, Status: normalized.StatusInputRequired,
		Parts: []normalized.Part{{Kind: normalized.PartPolicy, Policy: &part}},
	}
}

func toldLines(i policypart.Issuance, kept notes) []string {
	var lines []string
	if kept.Draft != nil {
		lines = append(lines, "The answer:", indented(beginning(seen(draftText(kept.Draft.Response)), toldDraft)))
	} else {
		asked := i.Part.Approval()
		documented := len(asked.Preview)+len(asked.ApplyInput) > 0
		if !documented {
			lines = append(lines, "What: "+beginning(oneLine(seen(asked.Summary)), toldSummary))
		}
		if asked.Tool != "" {
			lines = append(lines, "Tool: "+beginning(oneLine(seen(asked.Tool)), toldQuestion))
		}
		for _, one := range []struct {
			name  string
			value json.RawMessage
		}{{"Details:", asked.Preview}, {"What the tool gets:", asked.ApplyInput}} {
			if len(one.value) > 0 {
				lines = append(lines, one.name, indented(beginning(document(one.value), toldPreview)))
			}
		}
		if documented { // behind the call, so that no sentence of an agent stands for it
			lines = append(lines, "The agent says: “"+beginning(oneLine(seen(asked.Summary)), toldQuestion)+"”")
		}
	}

	lines = append(lines, "Asked by: "+seen(askerOf(i, kept)))
	if kept.Question != "" {
		lines = append(lines, "The message begins: “"+beginning(oneLine(seen(kept.Question)), toldQuestion)+"”")
	}

	if !shownWhole(i, kept) {
		return append(lines, fmt.Sprintf("This message does not show all of it. Read all of it on the page, and approve it there with the code %s; "+
			"the word approve is not taken in a message. To deny it, answer with the one word deny. %s", codeOf(i), toAgentHint))
	}
	return append(lines, fmt.Sprintf("Answer this message with the one word approve or deny. "+
		"Anywhere else, and on the page, add the code: approve %s. %s", codeOf(i), toAgentHint))
}

// askerOf names the asker for an approver, who decides by it: an address that nothing proves may be anyone's.
func askerOf(i policypart.Issuance, kept notes) string {
	if len(i.Asker) == 0 {
		return kept.Address.String() + " (unverified)"
	}
	return kept.Address.String()
}

// indented keeps quoted lines apart from ours, so that no quoted line passes for one of them.
func indented(text string) string { return "| " + strings.ReplaceAll(text, "\n", "\n| ") }

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// jsonText writes JSON for people: a text as it is, anything else indented.
func jsonText(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	var out bytes.Buffer
	if json.Indent(&out, value, "", "  ") != nil {
		return string(value)
	}
	return out.String()
}

// draftText writes an answer as text, with the names of what else is in it.
func draftText(response normalized.Response) string {
	parts := slices.Clone(response.Parts)
	for i := range parts { // with the addresses of links
		if parts[i].Kind == normalized.PartText && parts[i].MIME == normalized.MIMEHTML {
			words, _ := markup.FromHTML(parts[i].Content).Text(markup.Plain, 0)
			parts[i] = normalized.Text(words)
		}
	}
	text := normalized.PlainText(parts)
	if others := slices.Concat(response.To, response.Cc); len(others) > 0 { // first, so that no text hides it
		text = "[also to " + strings.Join(others, ", ") + "]\n" + text
	}
	return strings.TrimSpace(text)
}

// decidedAbout is the document of an approval for a page that shows one: what would be done, and what the tool gets where both are told.
func decidedAbout(asked policypart.Approval) json.RawMessage {
	switch {
	case len(asked.ApplyInput) == 0:
		return arranged(asked.Preview)
	case len(asked.Preview) == 0:
		return arranged(asked.ApplyInput)
	}
	return arranged(json.RawMessage(jsonOf(map[string]json.RawMessage{"preview": asked.Preview, "apply_input": asked.ApplyInput})))
}

// showApproval fills in the page of an approver.
func showApproval(view *View, i policypart.Issuance, kept notes) {
	asked := i.Part.Approval()
	view.Tool, view.Preview, view.Question = seen(asked.Tool), decidedAbout(asked), kept.Question
	view.Asker, view.Locale = askerOf(i, kept), "" // the reader is not the asker
	if kept.Draft != nil {
		view.Draft = seen(draftText(kept.Draft.Response))
	} else {
		view.Summary = seen(asked.Summary)
	}
	view.Reason, view.Shown = decidedOf(i.Resolution).Reason, shownOf(i)
}

// listed returns an approval as operators see it.
func listed(i policypart.Issuance, now time.Time) exchange.Approval {
	kept, asked, d := notesOf(i), i.Part.Approval(), decidedOf(i.Resolution)
	shown := exchange.Approval{
		ID: i.ID, Code: codeOf(i), Kind: exchange.ApprovalAction, Status: statusOf(i, now), Agent: i.Agent, TurnID: i.TurnID,
		ThreadID: i.ThreadID, Asker: kept.Address.String(), Principal: i.Principal, Via: i.Via, Question: kept.Question,
		ActionID: asked.ActionID, Tool: seen(asked.Tool), Summary: seen(asked.Summary), Preview: arranged(asked.Preview), ApplyInput: arranged(asked.ApplyInput),
		Digest: shownOf(i), DecidedBy: d.DecidedBy, Reason: d.Reason, IssuedAt: i.IssuedAt, ExpiresAt: i.ExpiresAt, UpdatedAt: i.UpdatedAt,
	}

	if kept.Draft != nil {
		shown.Kind, shown.Draft, shown.EditedBy = exchange.ApprovalReply, &kept.Draft.Response, kept.Draft.EditedBy
		shown.Summary = beginning(oneLine(draftText(kept.Draft.Response)), toldQuestion)
	}
	return shown
}

func statusOf(i policypart.Issuance, now time.Time) string {
	switch i.Status {
	case policypart.StatusResolved:
		return exchange.ApprovalApproved
	case policypart.StatusDenied:
		return exchange.ApprovalDenied
	case policypart.StatusDropped:
		return exchange.ApprovalDropped
	}

	if refusal := i.CheckOpen(now); refusal != nil && refusal.Code == policypart.CodeExpired {
		return exchange.ApprovalExpired
	}
	return exchange.ApprovalOpen
}
