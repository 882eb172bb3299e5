package demand

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/lookalike"
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
// is a secret of the approvers once it is presented. Every message about the same text is the one that was stored with the demand, which says
// whether the word counts.
func (a *approvals) Told(i policypart.Issuance) normalized.Response {
	kept, expires := notesOf(i), identity.At(i.ExpiresAt)
	title := kept.AgentAddress + " asks for your approval"
	if replies(i) {
		title = kept.AgentAddress + " has an answer that waits for your approval"
	}
	if kept.Told == "" { // an older version stored none, and may have sent something else
		kept.Told, _ = telling(i, kept)
		kept.Told += "\n" + pageAlone(kept)
	}

	part := policypart.Part{
		Data: withData(nil, ShownKey, shownOf(i)),
		Kind: policypart.ConsentRequired, Code: i.Part.Code, Title: title, Message: kept.Told,
		URL: a.secrets.page(i.ID).String(), ActionLabel: "Or decide on the page", ExpiresAt: &expires,
	}

	return normalized.Response{
		Visibility: normalized.VisibilityDirect, Status: normalized.StatusInputRequired,
		Parts: []normalized.Part{{Kind: normalized.PartPolicy, Policy: &part}},
	}
}

// noteTelling stores the message to the approvers with the demand, and whether it shows all of what is decided: only then the word counts.
// Later versions and settings change neither.
func noteTelling(i policypart.Issuance, kept *notes) {
	kept.Told, kept.Whole = telling(i, *kept)
	if !kept.Whole {
		kept.Told += "\n" + pageAlone(*kept)
		return
	}
	kept.Told += fmt.Sprintf("\nAnswer this message with the one word approve or deny. "+
		"Anywhere else, and on the page, add the code: approve %s. %s", kept.Code, toAgentHint)
}

func pageAlone(kept notes) string {
	return fmt.Sprintf("This message does not show all of it. Read all of it on the page, and approve it there with the code %s; "+
		"the word approve is not taken in a message. To deny it, answer with the one word deny. %s", kept.Code, toAgentHint)
}

// telling writes what is decided, and reports whether that is all of it.
func telling(i policypart.Issuance, kept notes) (text string, whole bool) {
	var lines []string
	whole = true
	shown := func(name, text string, limit int) string { // of which nothing may be missing
		whole = whole && len(text) <= limit
		return name + beginning(text, limit)
	}

	asked := i.Part.Approval()
	documented := kept.Draft == nil && len(asked.Preview)+len(asked.ApplyInput) > 0
	if kept.Draft != nil {
		lines = append(lines, "The answer:", indented(shown("", lookalike.Visible(draftText(kept.Draft.Response)), toldDraft)))
	} else {
		if !documented {
			lines = append(lines, shown("What: ", oneLine(lookalike.Visible(asked.Summary)), toldSummary))
		}
		if asked.Tool != "" {
			lines = append(lines, shown("Tool: ", oneLine(lookalike.Visible(asked.Tool)), toldQuestion))
		}
		if len(asked.Preview) > 0 {
			lines = append(lines, "Details:", indented(shown("", document(asked.Preview), toldPreview)))
		}
		if len(asked.ApplyInput) > 0 {
			lines = append(lines, "What the tool gets:", indented(shown("", document(asked.ApplyInput), toldPreview)))
		}
	}
	if hosts := hostsOf(i, kept); len(hosts) > 0 {
		if len(hosts) > toldHosts {
			whole, hosts = false, append(slices.Clip(hosts[:toldHosts]), "and others, which the page lists")
		}
		lines = append(lines, "Hosts in letters beyond ASCII, as they are looked up:", indented(strings.Join(hosts, "\n")))
	}
	if documented { // behind the call, so that no sentence of an agent stands for it
		lines = append(lines, "The agent says: “"+beginning(oneLine(lookalike.Visible(asked.Summary)), toldQuestion)+"”")
	}

	lines = append(lines, "Asked by: "+lookalike.Visible(askerOf(i, kept)))
	if kept.Question != "" {
		lines = append(lines, "The message begins: “"+beginning(oneLine(lookalike.Visible(kept.Question)), toldQuestion)+"”")
	}
	return strings.Join(lines, "\n"), whole
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

// readersOf says who reads an answer that sets its visibility (message contract, section 5).
var readersOf = map[string]string{
	normalized.VisibilityPublic:    "everyone can read it, if everyone could read the message",
	normalized.VisibilityUnlisted:  "everyone can read it, if everyone could read the message, and no public list has it",
	normalized.VisibilityFollowers: "followers can read it, if they could read the message",
	normalized.VisibilityDirect:    "only the asker and those who are named can read it",
}

// draftText writes an answer as text: with the addresses of links, the facts of files, and all that has no words of its own.
func draftText(response normalized.Response) string {
	parts := slices.Clone(response.Parts)
	for i := range parts {
		part := &parts[i]
		switch part.Kind {
		case normalized.PartFile, normalized.PartArtifact:
			parts[i] = normalized.Text(fileText(part))
		case normalized.PartText, normalized.PartLink, normalized.PartPolicy:
		default:
			parts[i] = normalized.Text("Part of the kind " + part.Kind + ":\n" + document(json.RawMessage(jsonOf(part))))
		}
	}
	text := markup.PlainText(parts)
	if others := slices.Concat(response.To, response.Cc); len(others) > 0 { // first, so that no text hides it
		text = "[also to " + strings.Join(others, ", ") + "]\n" + text
	}
	if readers, set := readersOf[response.Visibility]; set {
		text = "[visibility " + response.Visibility + ": " + readers + "]\n" + text
	}
	return strings.TrimSpace(text)
}

// fileText names a file with its facts; data that is no file is shown.
func fileText(part *normalized.Part) string {
	if part.IsData() && part.BytesRef != nil {
		if content, err := part.BytesRef.Bytes(); err == nil {
			return strings.Join(slices.Concat([]string{strings.TrimSpace("Data "+oneLine(part.Name)) + ":"}, saidOf(part), []string{document(content)}), "\n")
		}
	}

	held := heldFile(part)
	facts := []string{cmp.Or(held.MIME, "unknown type")}
	if held.Size > 0 {
		facts = append(facts, fmt.Sprintf("%d bytes", held.Size))
	}
	if held.SHA256 != "" {
		facts = append(facts, "SHA-256 "+held.SHA256)
	}
	lines := []string{"Attachment: " + cmp.Or(oneLine(held.Name), "without a name") + " (" + strings.Join(facts, ", ") + ")"}
	lines = append(lines, saidOf(part)...)
	if held.URL != "" {
		lines = append(lines, held.URL)
	}
	return strings.Join(lines, "\n")
}

// saidOf is what an agent says of a file, each text in a line.
func saidOf(part *normalized.Part) (lines []string) {
	for _, text := range []string{oneLine(part.Alt), oneLine(part.Description)} {
		if text != "" {
			lines = append(lines, text)
		}
	}
	return lines
}

func heldFile(part *normalized.Part) exchange.HeldFile {
	held := exchange.HeldFile{Name: part.Name, MIME: part.MIME, Size: part.Size}
	if part.BytesRef == nil {
		return held
	}
	held.SHA256, held.URL = part.BytesRef.Digest, part.BytesRef.URL
	if content, err := part.BytesRef.Bytes(); err == nil { // inline
		held.Size, held.SHA256 = int64(len(content)), normalized.Digest(content)
	}
	return held
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
	view.Tool, view.Preview, view.Question = lookalike.Visible(asked.Tool), decidedAbout(asked), kept.Question
	view.Asker, view.Locale = askerOf(i, kept), "" // the reader is not the asker
	if kept.Draft != nil {
		view.Draft = lookalike.Visible(draftText(kept.Draft.Response))
	} else {
		view.Summary = lookalike.Visible(asked.Summary)
	}
	view.Reason, view.Shown, view.Hosts = decidedOf(i.Resolution).Reason, shownOf(i), hostsOf(i, kept)
}

// listed returns an approval as operators see it.
func listed(i policypart.Issuance, now time.Time) exchange.Approval {
	kept, asked, d := notesOf(i), i.Part.Approval(), decidedOf(i.Resolution)
	shown := exchange.Approval{
		ID: i.ID, Code: codeOf(i), Kind: exchange.ApprovalAction, Status: statusOf(i, now), Agent: i.Agent, TurnID: i.TurnID,
		ThreadID: i.ThreadID, Asker: kept.Address.String(), Principal: i.Principal, Via: i.Via, Question: kept.Question,
		ActionID: asked.ActionID, Tool: lookalike.Visible(asked.Tool), Summary: lookalike.Visible(asked.Summary), Preview: arranged(asked.Preview), ApplyInput: arranged(asked.ApplyInput),
		Hosts: hostsOf(i, kept), Digest: shownOf(i), DecidedBy: d.DecidedBy, Reason: d.Reason, IssuedAt: i.IssuedAt, ExpiresAt: i.ExpiresAt, UpdatedAt: i.UpdatedAt,
	}

	if kept.Draft != nil {
		shown.Kind, shown.Draft, shown.EditedBy = exchange.ApprovalReply, &kept.Draft.Response, kept.Draft.EditedBy
		text := lookalike.Visible(draftText(kept.Draft.Response))
		shown.DraftText, shown.Summary = text, beginning(oneLine(text), toldQuestion)
		for i := range kept.Draft.Response.Parts {
			if part := &kept.Draft.Response.Parts[i]; part.Kind == normalized.PartFile || part.Kind == normalized.PartArtifact {
				shown.Files = append(shown.Files, heldFile(part))
			}
		}
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
