package email

import (
	"context"
	"fmt"
	"strings"
	"time"

	"inbox/adapters/email/message"
	"inbox/adapters/email/outbound"
	"inbox/exchange"
)

// Relays may replace the Message-ID and say the new one in their answer to the mail: Amazon SES says "250 Ok 0100…" and sends
// <0100…@email.amazonses.com> or <0100…@REGION.amazonses.com>. A recipient knows only that id, so it is kept until no one answers any more.

const (
	relayedNamespace = "email/relayed"      // the local part of a relay's id → the Message-ID of our mail
	relayedLife      = 180 * 24 * time.Hour // how long an answer may take
	maxRelayedTried  = 3                    // ids of one mail that are looked up
	minRelayedToken  = 20                   // bytes of an id without brackets and domain; ids of queues are shorter
)

// relayedID returns the local part of the id that an answer to a mail states; empty = it states none. An id stands in angle brackets, has a
// domain, or is the one long word behind "Ok". Ids of queues ("queued as 4XYZ") name no mail.
func relayedID(answer string) string {
	if _, rest, opened := strings.Cut(answer, "<"); opened {
		id, _, closed := strings.Cut(rest, ">")
		if local, _, found := strings.Cut(id, "@"); closed && found {
			return plainRelayed(local)
		}
	}

	words := strings.Fields(answer)
	for _, word := range words {
		if local, domain, found := strings.Cut(strings.Trim(word, ".,;[]"), "@"); found && domain != "" {
			return plainRelayed(local)
		}
	}
	if last := len(words) - 1; last >= 1 && len(words[last]) >= minRelayedToken && strings.EqualFold(strings.Trim(words[last-1], ".,:"), "ok") {
		return plainRelayed(words[last])
	}
	return ""
}

// plainRelayed returns a local part that an id may have; empty = it is none.
func plainRelayed(local string) string {
	if len(local) < 8 || len(local) > 255 || strings.ContainsFunc(local, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune(`<>@"`, r) }) {
		return ""
	}
	return local
}

// rememberRelayed keeps the id under which a relay sent a mail on. It is written before the delivery counts as done: a process that dies between
// sends the mail again and learns the id of that one. The first mail keeps an id: a server that repeats one it has seen would take the answers away
// from their conversation.
func (o *outbox) rememberRelayed(ctx context.Context, delivery exchange.Delivery, result outbound.Outcome) {
	local := relayedID(result.Text)
	if own, _ := ReplyIDOf(delivery.NativeID); local == "" || own == "" || local == own {
		return
	}
	if _, _, err := o.options.State.PutIfAbsent(ctx, relayedNamespace, local, []byte(delivery.NativeID), o.now().Add(relayedLife)); err != nil {
		o.log.WarnContext(ctx, "the id that a relay gave to a mail could not be stored; answers to it may begin a new conversation", "reply", delivery.Reply.ID, "error", err)
	}
}

// relayed returns our Message-IDs of mails that a relay sent under one of the ids.
func (i *inbox) relayed(ctx context.Context, ids []string) (own []string, err error) {
	if i.options.Mode == ModeCapture || i.options.Mode == "" {
		return nil, nil
	}
	for _, id := range ids[:min(len(ids), maxRelayedTried)] {
		local, domain := ReplyIDOf(id)
		if plainRelayed(local) == "" || strings.EqualFold(domain, i.domain) {
			continue
		}
		value, found, err := i.options.State.Get(ctx, relayedNamespace, local)
		if err != nil {
			return nil, fmt.Errorf("find the mail that a relay sent as %s: %w", message.Clean(id, 100), err)
		}
		if found {
			own = append(own, string(value))
		}
	}
	return own, nil
}
