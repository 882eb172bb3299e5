package delivery

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
)

// maxEdit bounds the text of an edited answer in bytes.
const maxEdit = 1 << 20

// Delete takes an answer back: it leaves the history, everybody who has it is told, and whoever has not got it yet gets
// nothing. NotFound when there is no such answer, Conflict when it was deleted before, Unsupported when the way by which
// it left cannot take anything back. By names who does it, for the timeline.
func (s *Service) Delete(ctx context.Context, replyID, by string) error {
	return s.revise(ctx, replyID, exchange.ActionDelete, func(reply exchange.Reply) (exchange.Reply, exchange.Event, error) {
		reply.DeletedAt = time.Now().UTC().Truncate(time.Microsecond)
		reply.Response.Parts, reply.Response.Metadata, reply.Response.Error = nil, nil, nil
		event, err := revised(exchange.EventReplyDeleted, 0, by)
		return reply, event, err
	})
}

// Edit replaces the text of an answer, and everybody who has it is told; files and links stay. MIME is that of the text;
// empty = as before, markdown where there was none. Errors are those of Delete, and Malformed for an empty or too long
// text.
func (s *Service) Edit(ctx context.Context, replyID, by, text, mime string) error {
	switch {
	case strings.TrimSpace(text) == "":
		return fault.InField("text", "must not be empty; to take the answer back, delete it")
	case len(text) > maxEdit:
		return fault.InField("text", "is longer than 1 MiB")
	case mime != "" && mime != normalized.MIMEPlain && mime != normalized.MIMEMarkdown && mime != normalized.MIMEHTML:
		return fault.InField("mime", "must be text/plain, text/markdown or text/html")
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
			return fault.New(fault.Conflict, "the answer was changed by somebody else just now; look at it and try again")
		}
		return tx.Enqueue(ctx, job)
	})
}

func (s *Service) changeable(reply exchange.Reply, nativeID string) error {
	if !reply.DeletedAt.IsZero() {
		return fault.New(fault.Conflict, "the answer was taken back before")
	}
	if reply.Notice != 0 {
		return fault.New(fault.Unsupported, "this is a question back or an acknowledgement, not an answer; it cannot be changed")
	}
	reviser, able := s.options.Channels.Reviser(reply.Channel)
	if !able {
		return fault.Newf(fault.Unsupported, "an answer by %s cannot be changed or taken back once it was given: that way knows no such thing", reply.Channel)
	}
	return reviser.Revisable(reply, nativeID)
}
