package email

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"inbox/adapters/email/authentication"
	"inbox/adapters/email/message"
	"inbox/adapters/email/outbound"
	"inbox/exchange"
	"inbox/internal/fault"
)

const (
	repeatNamespace   = "email/outgoing"
	progressNamespace = "email/progress"
	repeatLife        = authentication.SignatureEpoch // a kept mail ends before its signature does
)

// finishedMail is a signed mail.
type finishedMail struct {
	data []byte
	kept bool // it is in State already
}

// keptMail is a signed mail in State.
type keptMail struct {
	Data []byte `json:"data,omitempty"`
	Blob string `json:"blob,omitempty"` // where Data is when it is large
	Size int64  `json:"size"`
}

// finished gives the signed mail of a delivery: the one that was offered before, or a new one. All destinations of a reply
// get the same bytes.
func (a *Adapter) finished(ctx context.Context, delivery exchange.Delivery, notes route, people audience) (finishedMail, error) {
	if delivery.Attempt > 1 {
		if data, found, err := a.offeredBefore(ctx, delivery.Reply.ID); err != nil || found {
			return finishedMail{data, true}, err
		}
	}
	mail, err := a.render(ctx, delivery.Reply, notes, people)
	if err != nil {
		return finishedMail{}, err
	}
	signed, err := a.signer.Sign(mail, delivery.Reply.CreatedAt)
	if err != nil {
		return finishedMail{}, fault.GiveUp("the mail cannot be signed", err)
	}
	return finishedMail{data: signed}, nil
}

func (a *Adapter) offeredBefore(ctx context.Context, replyID string) ([]byte, bool, error) {
	value, found, err := a.options.State.Get(ctx, repeatNamespace, replyID)
	if err != nil || !found {
		return nil, false, err
	}
	var kept keptMail
	if err := json.Unmarshal(value, &kept); err != nil {
		return nil, false, fmt.Errorf("decode mail: %w", err)
	}
	if kept.Blob == "" {
		return kept.Data, true, nil
	}
	data, err := readBlob(ctx, a.options.Blobs, kept.Blob, kept.Size+1)
	if fault.Is(err, fault.NotFound) {
		return nil, false, nil
	}
	return data, err == nil, err
}

// keepForRepeat stores the bytes of a mail whose attempt will be repeated, so that neither another key nor another
// configuration changes them. It gives the error of the attempt back. Nothing is stored for a mail that is taken at once:
// written anew after a crash, it has the same bytes.
func (a *Adapter) keepForRepeat(ctx context.Context, delivery exchange.Delivery, mail finishedMail, cause error) error {
	if mail.kept || fault.Of(cause).Permanent || ctx.Err() != nil {
		return cause
	}
	kept := keptMail{Data: mail.data, Size: int64(len(mail.data))}
	if len(mail.data) > maxStateBytes {
		digest, _, err := a.options.Blobs.Put(ctx, bytes.NewReader(mail.data))
		if err != nil {
			a.log.WarnContext(ctx, "a mail could not be kept for its repeat and will be written anew", "reply", delivery.Reply.ID, "error", err)
			return cause
		}
		kept.Data, kept.Blob = nil, digest
	}
	value, err := json.Marshal(kept)
	if err == nil {
		_, _, err = a.options.State.PutIfAbsent(ctx, repeatNamespace, delivery.Reply.ID, value, a.now().Add(repeatLife))
	}
	if err != nil {
		a.log.WarnContext(ctx, "a mail could not be kept for its repeat and will be written anew", "reply", delivery.Reply.ID, "error", err)
	}
	return cause
}

// progress is who needs no further attempt of a delivery.
type progress struct {
	Done []string `json:"done"`
}

// open gives the recipients who are to be tried: not those who have the mail or refused it, and not those that are
// suppressed. left says who is missing. Nobody left is an error, unless somebody has the mail.
func (a *Adapter) open(ctx context.Context, delivery exchange.Delivery, all []string) (recipients []string, left string, err error) {
	var before progress
	if delivery.Attempt > 1 {
		value, found, err := a.options.State.Get(ctx, progressNamespace, delivery.ID)
		if err != nil {
			return nil, "", err
		}
		if found && json.Unmarshal(value, &before) != nil {
			before = progress{}
		}
	}
	recipients = slices.DeleteFunc(slices.Clone(all), func(address string) bool { return slices.Contains(before.Done, address) })
	suppressed, err := a.suppressed(ctx, recipients)
	if err != nil {
		return nil, "", err
	}
	for _, one := range suppressed {
		recipients = slices.DeleteFunc(recipients, func(address string) bool { return addressKey(address) == one.Address })
		left += "; not sent to " + one.Address + ", which is suppressed: " + one.Reason
	}
	if len(recipients) == 0 && len(before.Done) == 0 {
		return nil, "", fault.GiveUp(message.Clip("suppressed: "+suppressed[0].Address+": "+suppressed[0].Reason+" (lift it with: inbox mail suppressed remove "+suppressed[0].Address+")", 500), nil)
	}
	return recipients, left, nil
}

// partly notes who has the mail, so that only the others are tried again.
func (a *Adapter) partly(ctx context.Context, delivery exchange.Delivery, all []string, result outbound.Outcome) error {
	later := addressesOf(result.Later)
	done := progress{Done: slices.DeleteFunc(slices.Clone(all), func(address string) bool { return slices.Contains(later, address) })}
	value, err := json.Marshal(done)
	if err != nil {
		return fmt.Errorf("encode progress: %w", err)
	}
	if err := a.options.State.Put(ctx, progressNamespace, delivery.ID, value, a.now().Add(2*repeatLife)); err != nil {
		return fmt.Errorf("store progress: %w", err)
	}
	last := result.Later[len(result.Later)-1]
	return fault.RetryIn(0, message.Clip("taken for "+fmt.Sprint(len(done.Done))+" of "+fmt.Sprint(len(all))+"; "+last.Address+": "+last.Reason(), 480), last.Answer)
}

func addressesOf(list []outbound.Refusal) []string {
	addresses := make([]string, 0, len(list))
	for _, one := range list {
		addresses = append(addresses, one.Address)
	}
	return addresses
}
