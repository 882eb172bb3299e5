package delivery

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/normalized"
)

// maxEdit bounds the text of an edited answer in bytes.
const maxEdit = 1 << 20

// Delete takes an answer back: it leaves the history, every destination that has it is told, and those that do not have it
// yet get nothing. NotFound when there is no such answer, Conflict when it was deleted before, Unsupported when the way by which
// it left cannot take anything back. By names who does it, for the timeline.
func (s *Service) Delete(ctx context.Context, replyID, by string) error {
	return s.revise(ctx, replyID, exchange.ActionDelete, func(reply exchange.Reply) (exchange.Reply, exchange.Event, error) {
		reply.DeletedAt = time.Now().UTC().Truncate(time.Microsecond)
		reply.Response.Parts, reply.Response.Metadata, reply.Response.Error = nil, nil, nil
		event, err := revised(exchange.EventReplyDeleted, 0, by)
		return reply, event, err
	})
}

// Edit replaces the text of an answer, and every destination that has it is told; files and links stay. MIME is that of the text;
// empty = as before, markdown where there was none. Errors are those of Delete, and Malformed for an empty or too long
// text.
func (s *Service) Edit(ctx context.Context, replyID, by, text, mime string) error {
	switch {
	case strings.TrimSpace(text) == "":
		return fault.InField("text", "must not be empty; to withdraw the answer, delete it")
	case len(text) > maxEdit:
		return fault.InField("text", "is longer than 1 MiB")
	}
	if mime != "" {
		canonical, known := normalized.TextMIME(mime)
		if !known {
			return fault.InField("mime", "must be text/plain, text/markdown or text/html")
		}
		mime = canonical
	}
	return s.revise(ctx, replyID, exchange.ActionUpdate, func(reply exchange.Reply) (exchange.Reply, exchange.Event, error) {
		reply.EditedAt = time.Now().UTC().Truncate(time.Microsecond)
		reply.Revision++
		reply.Response.Parts = rewritten(reply.Response.Parts, text, mime)
		if reviser, able := s.options.Channels.Reviser(reply.Channel); able {
			reply.Posts = reviser.PostsOf(reply)
		}
		event, err := revised(exchange.EventReplyEdited, reply.Revision, by)
		return reply, event, err
	})
}

// rewritten puts the text in the place of the first text part and leaves the other text parts out.
func rewritten(parts []normalized.Part, text, mime string) []normalized.Part {
	made := normalized.Part{Kind: normalized.PartText, MIME: mime, Content: text}
	var kept []normalized.Part
	done := false
	for _, part := range parts {
		switch {
		case part.Kind != normalized.PartText:
			kept = append(kept, part)
		case !done:
			if made.MIME == "" {
				made.MIME = part.MIME
			}
			kept, done = append(kept, made), true
		}
	}

	if !done {
		kept = append([]normalized.Part{made}, kept...)
	}

	for i := range kept {
		if kept[i].Kind == normalized.PartText && kept[i].MIME == "" {
			kept[i].MIME = normalized.MIMEMarkdown
		}
	}

	return kept
}

func revised(kind string, revision int, by string) (exchange.Event, error) {
	body, err := json.Marshal(struct {
		Revision int    `json:"revision,omitempty"`
		By       string `json:"by,omitempty"`
	}{revision, by})
	if err != nil {
		return exchange.Event{}, fmt.Errorf("encode event: %w", err)
	}
	return exchange.Event{Kind: kind, Body: body, At: time.Now()}, nil
}

// revise stores the change and the job that tells of it in one transaction.
func (s *Service) revise(
	ctx context.Context, replyID, action string, change func(exchange.Reply) (exchange.Reply, exchange.Event, error),
) error {
	reply, nativeID, err := s.options.Store.Reply(ctx, replyID)
	if err != nil {
		return err
	}
	if err := s.changeable(reply, nativeID); err != nil {
		return err
	}

	after, event, err := change(reply)
	if err != nil {
		return err
	}

	job, err := spread{Reply: reply.ID, Action: action, Revision: after.Revision}.job()
	if err != nil {
		return err
	}

	return s.options.Store.InTx(ctx, func(tx Tx) error {
		done, err := tx.ReviseReply(ctx, after, reply.Revision, event)
		if err != nil {
			return err
		}
		if !done {
			return fault.New(fault.Conflict, "the answer was changed meanwhile; look at it and try again")
		}
		return tx.Enqueue(ctx, job)
	})
}

// Revises reports whether answers of a channel can be changed or withdrawn at all once they were sent.
func (s *Service) Revises(channel string) bool {
	_, able := s.options.Channels.Reviser(channel)
	return able
}

// Changeable reports by its error why an answer cannot be changed: the errors of Delete. nil = Edit and Delete may be tried.
func (s *Service) Changeable(ctx context.Context, replyID string) error {
	reply, nativeID, err := s.options.Store.Reply(ctx, replyID)
	if err != nil {
		return err
	}
	return s.changeable(reply, nativeID)
}

func (s *Service) changeable(reply exchange.Reply, nativeID string) error {
	if !reply.DeletedAt.IsZero() {
		return fault.New(fault.Conflict, "the answer was withdrawn before")
	}
	if reply.Notice != 0 {
		return fault.New(fault.Unsupported, "this is a question back or an acknowledgement, not an answer; it cannot be changed")
	}

	reviser, able := s.options.Channels.Reviser(reply.Channel)
	if !able {
		return fault.Newf(fault.Unsupported, "an answer by %s cannot be changed or withdrawn once it was sent: that channel has no such operation", reply.Channel)
	}
	return reviser.Revisable(reply, nativeID)
}

// SpreadKind is the queue kind of jobs that make deliveries of one reply to many, one piece at a time: to followers, or
// to everybody who has to hear of an edit or a deletion.
const SpreadKind = "delivery.spread"

// piece bounds the deliveries of one transaction, so that no other transaction waits long.
const piece = 100

// spread is the payload of such a job.
type spread struct {
	Reply    string `json:"reply"`
	Action   string `json:"action,omitempty"`
	Revision int    `json:"revision,omitempty"`
	After    string `json:"after,omitempty"` // where the next piece begins
}

func (s spread) job() (queue.NewJob, error) {
	payload, err := json.Marshal(s)
	if err != nil {
		return queue.NewJob{}, fmt.Errorf("encode spread: %w", err)
	}
	return queue.NewJob{ID: newID(), Kind: SpreadKind, Partition: s.Reply, Payload: string(payload)}, nil
}

// SpreadJob is the job that delivers a reply to the destinations beyond its plan.
func SpreadJob(replyID string) (queue.NewJob, error) { return spread{Reply: replyID}.job() }

// Spread makes the next deliveries of a reply. They, the job for the rest and the end of this one are one transaction.
func (s *Service) Spread(ctx context.Context, job queue.Job) error {
	var at spread
	if err := json.Unmarshal([]byte(job.Payload), &at); err != nil {
		return queue.GiveUp("the stored job cannot be read", err)
	}

	reply, nativeID, err := s.options.Store.Reply(ctx, at.Reply)
	if fault.Is(err, fault.NotFound) {
		return queue.GiveUp("the reply is gone", err)
	}
	if err != nil {
		return queue.RetryAfter(time.Second, err)
	}

	made, err := s.piece(ctx, at, reply, nativeID)
	if err != nil {
		return queue.RetryAfter(time.Second, err)
	}

	err = s.options.Store.InTx(ctx, func(tx Tx) error { return made.store(ctx, tx, job, reply) })
	if err != nil {
		return err
	}

	return queue.ErrSettled
}

// prepared is one piece, ready for its transaction.
type prepared struct {
	records []Record
	before  []Record // the deliveries of the reply that the records follow; nil for the reply itself
	rest    *spread
}

func (s *Service) piece(ctx context.Context, at spread, reply exchange.Reply, nativeID string) (prepared, error) {
	if at.Action != exchange.ActionSend {
		return s.told(ctx, at, reply)
	}

	channel, able := s.options.Channels.Channel(reply.Channel).(exchange.Spreader)
	if !able || !reply.DeletedAt.IsZero() {
		return prepared{}, nil
	}

	destinations, next, err := channel.Spread(ctx, reply, at.After)
	if err != nil {
		return prepared{}, err
	}

	var made prepared
	for _, one := range destinations {
		if s.Dead(ctx, reply.Channel, one.Key) {
			continue
		}
		made.records = append(made.records, newRecord(reply, nativeID, one))
	}

	if next != "" {
		at.After = next
		made.rest = &at
	}

	return made, nil
}

// told are those who have the reply, or may have it.
func (s *Service) told(ctx context.Context, at spread, reply exchange.Reply) (prepared, error) {
	before, err := s.options.Store.Sendings(ctx, reply, at.After, piece)
	if err != nil {
		return prepared{}, err
	}

	made := prepared{before: before}
	if len(before) == piece {
		at.After = before[piece-1].ID
		made.rest = &at
	}

	slices.SortFunc(before, func(a, b Record) int { // as RemoveJob demands
		return cmp.Or(cmp.Compare(a.kind(), b.kind()),
			cmp.Compare(Partition(a.Key, a.Agent, reply.Message.ThreadID), Partition(b.Key, b.Agent, reply.Message.ThreadID)))
	})
	for _, old := range before {
		record := newRecord(reply, old.NativeID, exchange.Destination{Key: old.Key, Address: old.Address, Data: old.Data})
		record.Action, record.Revision, record.Bulk = at.Action, at.Revision, old.Bulk
		made.records = append(made.records, record)
	}

	return made, nil
}

func newRecord(reply exchange.Reply, nativeID string, to exchange.Destination) Record {
	now := time.Now().UTC().Truncate(time.Microsecond)
	return Record{
		ID: newID(), TurnID: reply.TurnID, ReplyID: reply.ID, Agent: reply.Agent, Channel: reply.Channel,
		NativeID: nativeID, Key: to.Key, Address: to.Address, Data: to.Data, Bulk: true,
		State: StatePending, CreatedAt: now, UpdatedAt: now,
	}
}

func (p prepared) store(ctx context.Context, tx Tx, job queue.Job, reply exchange.Reply) error {
	for i, record := range p.records {
		if p.before != nil {
			needed, err := mustHear(ctx, tx, p.before[i], record.Action, reply.Message.ThreadID)
			if err != nil {
				return err
			}
			if !needed {
				continue
			}
		}

		if err := tx.InsertDelivery(ctx, record); err != nil {
			return err
		}
		if err := tx.Enqueue(ctx, FirstJob(record, reply.Message.ThreadID)); err != nil {
			return err
		}
	}

	if p.rest != nil {
		rest, err := p.rest.job()
		if err != nil {
			return err
		}
		if err := tx.Enqueue(ctx, rest); err != nil {
			return err
		}
	}

	return tx.SettleJob(ctx, job.Lease, queue.Outcome{Kind: queue.Done})
}

// takenBack is the reason of deliveries that end because their reply was deleted.
const takenBack = "the answer was withdrawn"

// mustHear reports whether a destination has to hear of the change. A deletion also ends what is still on its way there:
// where no attempt was begun, there is nothing to delete.
func mustHear(ctx context.Context, tx Tx, sent Record, action, threadID string) (bool, error) {
	switch sent.State {
	case StateDelivered:
		return true, nil
	case StateDead:
		return false, nil
	case StateCancelled:
		return sent.Attempt > 0, nil
	}

	if action != exchange.ActionDelete {
		return true, nil
	}

	moved, err := tx.MoveDelivery(ctx, cancelled(sent, takenBack, unfinished...))
	if err != nil || !moved {
		return true, err
	}

	waited, err := tx.RemoveJob(ctx, sent.kind(), Partition(sent.Key, sent.Agent, threadID), sent.ID)
	return !waited || sent.Attempt > 0, err
}
