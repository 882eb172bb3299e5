package agenttest

import (
	"strings"
	"time"

	"inbox/agents"
	"inbox/identity"
	"inbox/normalized"
)

// Turn makes the first attempt of a turn of the agent echo.
func Turn(id string, message normalized.Message) agents.Turn {
	turn := agents.Turn{ID: "turn " + id, Attempt: 1, Agent: "echo", Message: message}
	if last := len(message.History) - 1; last >= 0 {
		turn.HistoryCacheBreakpointAfter = &last
	}
	return turn
}

// Messages returns valid messages of every form that an agent has to expect, each with an id of its own.
func Messages() map[string]normalized.Message {
	short, long := "Hello *you* & <all>", strings.Repeat("Grüße an alle, ", 5000)
	picture := normalized.Part{
		Kind: normalized.PartFile, MIME: "image/png", Name: "map.png", Alt: "a map of the island",
		BytesRef: normalized.Inline([]byte("not a picture")),
	}

	link := normalized.Part{Kind: normalized.PartLink, URL: "https://example.org/a?b=c", Title: "An example"}
	artifact := normalized.Part{
		Kind: normalized.PartArtifact, MIME: "application/json", ID: "a1", Name: "result",
		BytesRef: normalized.Stored(strings.Repeat("0123456789abcdef", 4)),
	}

	parts := map[string][]normalized.Part{
		"text":        {normalized.Text(short)},
		"markdown":    {normalized.Markdown("# Title\n\n- *one*\n- `two`\n\n```go\nfunc main() {}\n```")},
		"html":        {{Kind: normalized.PartText, MIME: normalized.MIMEHTML, Content: "<p>Hello <b>you</b></p>"}},
		"long text":   {normalized.Text(long)},
		"one word":    {normalized.Text(strings.Repeat("ß", 5000))},
		"several":     {normalized.Text("first"), normalized.Markdown("*second*"), normalized.Text("third")},
		"file only":   {picture},
		"everything":  {normalized.Text(short), picture, link, artifact},
		"empty":       {},
		"white space": {normalized.Text(" \n\t ")},
	}

	messages := make(map[string]normalized.Message, len(parts)+1)
	for name, content := range parts {
		messages[name] = message(name, content)
	}

	later := message("with history", []normalized.Part{normalized.Text("and now?")})
	later.History = history(later)
	messages["with history"] = later
	return messages
}

func message(name string, parts []normalized.Part) normalized.Message {
	return normalized.Message{
		ID: "https://peer.example/messages/" + strings.ReplaceAll(name, " ", "-"), ThreadID: "https://peer.example/threads/1",
		Sender: normalized.Sender{
			Address: identity.Stated("@alice@peer.example"), DisplayName: "Alice", AuthMethod: normalized.AuthActivityPubSignature, Verified: true,
			Identities: []identity.Evidence{{
				Subject: "https://peer.example/users/alice", Issuer: "inbox.example", Method: identity.MethodActivityPubSignature,
				Assurance: identity.AssuranceAddress, Audience: identity.Audience{"@echo@inbox.example"}, IssuedAt: moment(0),
				Proof: identity.Proof{Type: identity.ProofTransport, VerifiedBy: "inbox.example", Addressed: identity.AddressedRequest},
			}},
		},
		Recipient: "@echo@inbox.example", Parts: parts, ReceivedVia: normalized.ViaActivityPub, ReceivedAt: moment(0),
		RecipientCapabilities: normalized.RecipientCapabilities{MentionRelay: normalized.MentionRelay{
			Kind: normalized.RelayAddressing, EnvelopeFields: []string{"to", "cc"}, AlsoInline: true,
		}},
		Raw: normalized.Raw{Ref: "sha256:" + strings.Repeat("0123456789abcdef", 4), MediaType: "application/activity+json"},
	}
}

func history(current normalized.Message) []normalized.HistoricalMessage {
	agent := normalized.Sender{Address: identity.Stated(current.Recipient), AuthMethod: normalized.AuthNone}
	return []normalized.HistoricalMessage{
		{Role: normalized.RoleUser, Sender: current.Sender, Parts: []normalized.Part{normalized.Text("one")}, Timestamp: moment(-2)},
		{Role: normalized.RoleAssistant, Sender: agent, Parts: []normalized.Part{normalized.Text("two")}, Timestamp: moment(-1)},
	}
}

func moment(minutes int) identity.Time {
	return identity.At(time.Date(2026, 11, 21, 12, minutes, 0, 0, time.UTC))
}
