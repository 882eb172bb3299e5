package activitypub

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/notetext"
	"inbox/exchange"
	"inbox/internal/clip"
)

// type: Like, EmojiReact, Dislike, Announce. change: made, undone
var reactionCount = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_activitypub_reactions_total", Help: "Reactions to the agents' notes, by type and whether they were made or undone.",
}, []string{"type", "change"})

const (
	reactionNamespace   = "activitypub.reaction." // + reply id: hash of type, emoji and actor → reactionRow
	reactionIDNamespace = "activitypub.reactionid"
	reactionLife        = 180 * 24 * time.Hour
	// maxReactions bounds the reactions to one note that are on the timeline; more of them are only counted.
	maxReactions = 200
)

// interactions are what others do about the agents' notes: reactions, requests to quote or answer them, reports.
type interactions struct {
	*site
	verifier *verifier
}

// reactionTypes ask for nothing: they never start a turn.
var reactionTypes = []string{"Like", "EmojiReact", "Dislike", "Announce"}

// reactionRow is one reaction to one of our notes.
type reactionRow struct {
	Reply    string            `json:"reply"`
	Turn     string            `json:"turn"`
	Reaction exchange.Reaction `json:"reaction"`
	ID       string            `json:"id,omitempty"` // of the first activity that made it
}

func (r reactionRow) key() string {
	sum := sha256.Sum256([]byte(r.Reaction.Type + "\n" + r.Reaction.Content + "\n" + r.Reaction.Actor))
	return hex.EncodeToString(sum[:])
}

// reaction reads what an activity, or the one that it undoes, says about one of our notes. found is false where it is
// about anything else.
func (i *interactions) reaction(ctx context.Context, activity document.Object, actor string) (row reactionRow, found bool, err error) {
	reply, found, err := i.replyAt(ctx, document.Reference(activity["object"]))
	if err != nil || !found {
		return row, false, err
	}

	content := document.Text(activity, "content")
	if content == "" {
		content = document.Text(activity, "_misskey_reaction")
	}

	return reactionRow{Reply: reply.ID, Turn: reply.TurnID, Reaction: exchange.Reaction{
		Type: document.TypeAmong(activity, reactionTypes...), Actor: actor, Content: notetext.Visible(content, 64),
	}}, true, nil
}

// react puts a reaction to one of our notes on its timeline, once for each actor and emoji.
func (i *interactions) react(ctx context.Context, in *incoming) (string, error) {
	row, found, err := i.reaction(ctx, in.activity, in.actor)
	if err != nil || !found {
		return outcomeIgnored, err
	}

	count, err := i.options.State.Count(ctx, reactionNamespace+row.Reply)
	if err != nil {
		return "", unavailable(err)
	}

	reactionCount.WithLabelValues(row.Reaction.Type, "made").Inc()
	if count >= maxReactions {
		return outcomeDone, nil
	}

	row.ID = in.id
	value, err := json.Marshal(row)
	if err != nil {
		return "", unavailable(err)
	}

	expires := i.now().Add(reactionLife)
	current, inserted, err := i.options.State.PutIfAbsent(ctx, reactionNamespace+row.Reply, row.key(), value, expires)
	if err != nil {
		return "", unavailable(err)
	}
	if !inserted {
		if unfinished, err := i.unfinished(ctx, in, current); err != nil || !unfinished {
			return outcomeDuplicate, err
		}
	}

	if err := i.options.Timeline.React(ctx, row.Turn, row.Reaction, false); err != nil || in.id == "" {
		return outcomeOf(err)
	}
	return outcomeOf(i.options.State.Put(ctx, reactionIDNamespace, activityKey(in.id, in.actor), value, expires))
}

// unfinished reports whether a reaction is kept whose activity comes again because it was not acknowledged: its id is written down last.
func (i *interactions) unfinished(ctx context.Context, in *incoming, current []byte) (bool, error) {
	var first reactionRow
	if err := json.Unmarshal(current, &first); err != nil || first.ID == "" || first.ID != in.id {
		return false, nil //nolint:nilerr // a row of another version is a reaction that was kept
	}
	_, recorded, err := i.options.State.Get(ctx, reactionIDNamespace, activityKey(in.id, in.actor))
	if err != nil {
		return false, unavailable(err)
	}
	return !recorded, nil
}

// unreact takes a reaction back: the one with the id, else the one that is told again. Only its own actor can.
func (i *interactions) unreact(ctx context.Context, in *incoming, inner document.Object, id string) (string, error) {
	row, found, err := i.reactionByID(ctx, in.actor, id)
	if err == nil && !found && inner != nil {
		row, found, err = i.reaction(ctx, inner, in.actor)
	}
	if err != nil || !found {
		return outcomeIgnored, err
	}

	_, known, err := i.options.State.Get(ctx, reactionNamespace+row.Reply, row.key())
	switch {
	case err != nil:
		return "", unavailable(err)
	case !known:
		return outcomeIgnored, nil
	}

	if err := i.options.Timeline.React(ctx, row.Turn, row.Reaction, true); err != nil {
		return "", unavailable(err)
	}
	reactionCount.WithLabelValues(row.Reaction.Type, "undone").Inc()
	return outcomeOf(i.options.State.Delete(ctx, reactionNamespace+row.Reply, row.key()))
}

func (i *interactions) reactionByID(ctx context.Context, actor, id string) (row reactionRow, found bool, err error) {
	if id == "" {
		return row, false, nil
	}
	value, found, err := i.recorded(ctx, reactionIDNamespace, id, actor)
	if err != nil {
		return row, false, unavailable(err)
	}
	return row, found && json.Unmarshal(value, &row) == nil && row.Reaction.Actor == actor, nil
}

var reports = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_activitypub_reports_total", Help: "Reports (Flag) of other servers about our agents or their notes.",
}, []string{"agent"})

// codeReport is the code of the audit record that an operator finds a report by.
const codeReport = "report:activitypub"

// maxReported is how many agents one report is written down for.
const maxReported = 16

// flag keeps a report for the operator, one record for each agent that it is about. The reporter is usually the other
// server's own actor, so that no one learns who complained.
func (i *interactions) flag(ctx context.Context, in *incoming) (string, error) {
	objects := document.References(in.activity["object"])
	about, err := i.reported(ctx, objects)
	if err != nil || len(about) == 0 {
		return outcomeIgnored, err
	}

	comment := reason(in.activity)

	for _, record := range about {
		record.At, record.Code, record.Principal = i.now(), codeReport, i.principal(in.actor)
		record.Detail = clip.Bytes(comment+" ("+strings.Join(objects, " ")+")", 1000)
		if err := i.options.Records.Audit(ctx, record); err != nil {
			return "", unavailable(err)
		}
		reports.WithLabelValues(record.Agent).Inc()
	}

	return outcomeDone, nil
}

// reason is what a reporter says: in content as Mastodon writes it, in summary as Lemmy and Mbin do. One text in both counts once.
func reason(flag document.Object) string {
	var said []string
	for _, name := range []string{"content", "summary"} {
		if text := notetext.Visible(document.Translated(flag, name), 500); text != "" && !slices.Contains(said, text) {
			said = append(said, text)
		}
	}
	if len(said) == 0 {
		return "no comment"
	}
	return strings.Join(said, " · ")
}

// reported finds our agents among the objects, and the turn of the first note of each.
func (i *interactions) reported(ctx context.Context, objects []string) ([]exchange.AuditRecord, error) {
	var about []exchange.AuditRecord
	at := func(agent string) *exchange.AuditRecord {
		for at := range about {
			if about[at].Agent == agent {
				return &about[at]
			}
		}

		if len(about) == maxReported {
			return new(exchange.AuditRecord)
		}
		about = append(about, exchange.AuditRecord{Agent: agent})
		return &about[len(about)-1]
	}
	for _, iri := range objects {
		if agent, found := i.agentOf(iri); found {
			at(agent.Name)
			continue
		}

		reply, found, err := i.replyAt(ctx, iri)
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}

		if record := at(reply.Agent); record.TurnID == "" {
			record.TurnID = reply.TurnID
		}
	}

	return about, nil
}
