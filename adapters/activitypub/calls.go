package activitypub

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/notetext"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/clip"
)

// mentions reads the Mention tags of a note, those of our agents wherever they stand among them.
func (n *notes) mentions(note document.Object) document.Mentions {
	return document.ReadMentions(note, func(mention document.Mention) bool {
		_, found := n.mentioned(mention)
		return found
	})
}

// mentioned finds the agent of a Mention tag by its href, or by the full address in its name if it has no href.
func (n *notes) mentioned(mention document.Mention) (exchange.AgentProfile, bool) {
	if mention.Href != "" {
		return n.agentOf(mention.Href)
	}
	return n.agentAt(mention.Name)
}

// agentAt returns the agent with a whole address, such as @agent@domain.
func (n *notes) agentAt(name string) (exchange.AgentProfile, bool) {
	if strings.Count(name, "@") != 2 {
		return exchange.AgentProfile{}, false
	}
	address, err := identity.ParseAddress(name)
	if err != nil || !n.hosts[address.Domain] {
		return exchange.AgentProfile{}, false
	}
	return n.options.Directory.Agent(address.Local)
}

// calls reports whether a note that came to the agent's own inbox, and names no agent by an address, names it by name: in a Mention
// tag, by its whole address in the text, or by its bare name where the text begins. Small programs send such notes, and people type
// the name where no program completes it.
func (n *notes) calls(q *inboundNote, agent exchange.AgentProfile) bool {
	for _, mention := range q.mentions {
		user, host, _ := strings.Cut(strings.TrimPrefix(mention.Name, "@"), "@")
		named, whole := n.agentAt(mention.Name)
		switch {
		case whole && named.Name == agent.Name:
			return true
		case host == "" && strings.EqualFold(user, agent.Name) && (mention.Href == "" || n.isOurs(mention.Href)):
			return true
		}
	}

	text := notetext.Plain(q.content(), notetext.Reader{Address: agent.Address, Mentions: q.mentions, IsUs: func(string) bool { return false }})
	return n.addresses(text, agent) || notetext.BeginsWithName(text, agent.Name)
}

// addresses reports whether a text has the agent's whole address among its words.
func (n *notes) addresses(text string, agent exchange.AgentProfile) bool {
	for at := 0; ; {
		next := strings.IndexByte(text[at:], '@')
		if next < 0 {
			return false
		}
		at += next
		end := min(at+len(agent.Address), len(text))
		if strings.EqualFold(text[at:end], agent.Address) && beginsMention(text[:at]) && endsMention(text[end:]) {
			return true
		}
		at++
	}
}

// Why an activity that was acknowledged did not become a message.
const (
	droppedNotNamed = "names no agent"
	droppedEmpty    = "says nothing"
	droppedKind     = "no kind of object that is answered"
	droppedVote     = "vote in a poll"
	droppedOld      = "too old"
	droppedRefused  = "refused by the rules"
)

// type: Create, Update. reason: names no agent, says nothing, no kind of object that is answered, vote in a poll, too old, refused by the rules
var drops = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_activitypub_dropped_total", Help: "Activities that were acknowledged and handed to no agent, by type and reason.",
}, []string{"type", "reason"})

// codeDropped is the audit code of activities that reached an agent's own inbox and were dropped.
const codeDropped = "dropped:activitypub"

const (
	maxDropRecords = 10 // of one host in dropPeriod; the metric counts all
	dropPeriod     = time.Hour
)

// countDropped tells the operator of an activity that was acknowledged and did not become a message. Drops from an
// agent's own inbox also get an audit record, because their sender meant the agent. Most of what reaches the shared inbox is for no one here.
func (b *inbox) countDropped(ctx context.Context, in *incoming) {
	if in.dropped == "" {
		return
	}
	drops.WithLabelValues(countedType(in.kind), in.dropped).Inc()
	if in.agent == "" || in.dropped != droppedNotNamed && in.dropped != droppedEmpty || b.dropRecords.count(document.HostOf(in.actor), b.now()) > 0 {
		return // a vote is counted by its own server, and a refusal by a rule has its own record
	}

	err := b.options.Records.Audit(ctx, exchange.AuditRecord{
		At: b.now(), Agent: in.agent, Code: codeDropped, Principal: b.principal(in.actor),
		Detail: clip.Bytes(in.dropped+" ("+in.id+")", 1000),
	})
	if err != nil {
		slog.WarnContext(ctx, "an activity that was not answered could not be written down", "activity", clip.Bytes(in.id, 256), "error", err)
	}
}
