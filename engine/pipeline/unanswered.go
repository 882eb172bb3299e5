package pipeline

import (
	"context"
	"time"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/normalized"
)

// Usage is a number of messages and what they take on the disk: used, or allowed.
type Usage struct{ Messages, Bytes int64 }

// Quotas bound the messages that get no answer by themselves: those that are held for the operator and those that are
// never answered. They cost the sender nothing, and no one else would bound them. The zero value bounds nothing.
type Quotas struct {
	Sender     Usage // of one network of senders without proof, or of one domain of proven ones
	All        Usage
	Kept       int64 // percent of All that senders without proof do not use
	HeldFor    time.Duration
	SilentFor  time.Duration // how long the content of a message is kept that is never answered
	GuestBytes int64         // the largest message of a sender without proof, files included; 0 = no bound
}

// Unanswered is a message that gets no answer by itself, and the quotas that it has to fit into.
type Unanswered struct {
	TurnID     string
	Account    string // a network or a domain; empty = only All counts
	Bytes      int64
	Ends       time.Time // when its content goes
	Quota, All Usage
}

// Fits reports whether the message may be added to what is used of its account, or of all together.
func (u Unanswered) Fits(used Usage, ofAll bool) bool {
	most := u.Quota
	if ofAll {
		most = u.All
	}
	return used.Messages < most.Messages && used.Bytes+u.Bytes <= most.Bytes
}

// UnansweredTx is what a transaction does about such messages. What leaves hold, and what is erased, gives its room back.
type UnansweredTx interface {
	// HasRoom reports whether a message fits, without taking its room.
	HasRoom(ctx context.Context, u Unanswered) (bool, error)
	// KeepUnanswered takes the room of a message. Where it does not fit the transaction has to be undone.
	KeepUnanswered(ctx context.Context, u Unanswered) (fits bool, err error)
}

// unanswered is the entry of a turn in the quotas; false = it does not count.
func (s *Service) unanswered(turn exchange.TurnRecord, bytes int64) (Unanswered, bool) {
	q := s.options.Quotas
	u := Unanswered{TurnID: turn.ID, Account: turn.Network, Bytes: bytes, Quota: q.Sender, All: q.All}
	if q.All == (Usage{}) {
		return u, false
	}
	switch turn.State {
	case exchange.StateHeld:
		u.Ends = turn.AcceptedAt.Add(q.HeldFor)
	case exchange.StateSilent:
		u.Ends = turn.AcceptedAt.Add(q.SilentFor)
	default:
		return u, false
	}
	if len(turn.Message.Sender.Identities) == 0 {
		u.All.Messages -= u.All.Messages * q.Kept / 100
		u.All.Bytes -= u.All.Bytes * q.Kept / 100
	} else if address, err := identity.ParseAddress(turn.Message.Sender.Address); err == nil {
		u.Account = "domain " + identity.RegistrableDomain(address.Domain)
	}
	return u, true
}

// errNoRoom refuses a message that would wait here, or lie here unanswered, with too many others.
func errNoRoom() error {
	return &fault.Fault{Kind: fault.RateLimited, Public: "too many messages wait here unanswered; try again later", RetryAfter: time.Hour}
}

// storedBytes is what a message takes on the disk, as far as its parts say.
func storedBytes(in exchange.Inbound) int64 {
	size := int64(len(in.Original))
	for i := range in.Message.Parts {
		part := &in.Message.Parts[i]
		size += int64(len(part.Content))
		switch {
		case part.BytesRef == nil:
		case part.BytesRef.Kind == normalized.BytesInline:
			size += int64(len(part.BytesRef.DataBase64))
		default:
			size += max(part.Size, 0)
		}
	}
	return size
}

// smallEnough refuses what a sender without proof may not send because of its size.
func (s *Service) smallEnough(in exchange.Inbound) error {
	most := s.options.Quotas.GuestBytes
	if most <= 0 || len(in.Message.Sender.Identities) > 0 || storedBytes(in) <= most {
		return nil
	}
	return fault.Newf(fault.TooLarge, "a message whose sender proves nothing may have %d bytes", most)
}
