package notice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/internal/webhooksignature"
)

// retries are the waits between attempts to bring a notice on its way: about a day. A mail or a post that is on its way has the schedule
// of its channel from then on.
var retries = []time.Duration{
	2 * time.Second, 10 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour, 8 * time.Hour, 8 * time.Hour,
}

const (
	webhookLimit = 15 * time.Second // of one request
	webhookBytes = 4 << 10          // of its answer that are read
)

// Send is the queue handler of JobKind: it brings a notice on its way to one address.
func (s *Service) Send(ctx context.Context, job queue.Job) error {
	var payload wayJob
	if err := json.Unmarshal([]byte(job.Payload), &payload); err != nil {
		return nil //nolint:nilerr // none of ours; nothing is to be told
	}
	notice, way, err := s.options.Store.NoticeWay(ctx, payload.Way)
	switch {
	case fault.Is(err, fault.NotFound):
		return nil // it was so old that it is gone
	case err != nil:
		return queue.RetryAfter(time.Second, err)
	case way.State != exchange.NoticePending:
		return nil
	}

	settings := s.options.Current()
	address, known := settings.address(way.Address)
	if !known {
		return s.settle(ctx, job, way, exchange.NoticeFailed, "the address is not in operator.notify any more", Address{})
	}
	if address.URL != "" {
		err = s.post(ctx, notice, address, settings.Secret)
		if err == nil {
			return s.settle(ctx, job, way, exchange.NoticeSent, "", address)
		}
	} else {
		letter := Letter{Way: way, To: address.Person, Subject: notice.Title, Text: notice.Text}
		if address.way() == wayFediverse { // a post has no subject
			letter.Text = notice.Title + "\n\n" + notice.Text
		}
		err = s.options.Begin(ctx, job, letter)
	}

	switch {
	case err == nil, errors.Is(err, queue.ErrSettled):
		ways.WithLabelValues(address.way(), "sent").Inc()
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return s.failed(ctx, job, way, address, err)
}

// failed tries again what may pass. What does not is in the log, on the way's row, and nowhere else.
func (s *Service) failed(ctx context.Context, job queue.Job, way exchange.NoticeWay, address Address, cause error) error {
	f := fault.Of(cause)
	if !f.Permanent && job.Attempt <= len(retries) {
		ways.WithLabelValues(address.way(), "retry").Inc()
		return queue.RetryAfter(max(retries[job.Attempt-1], f.RetryAfter), cause)
	}

	s.options.Logger.ErrorContext(ctx, "the operator cannot be told: correct operator.notify, and try it with: inbox notices test",
		"address", way.Address, "notice", way.NoticeID, "error", cause)
	return s.settle(ctx, job, way, exchange.NoticeFailed, Excerpt(fault.InWords(cause), maxReason), address)
}

func (s *Service) settle(ctx context.Context, job queue.Job, way exchange.NoticeWay, state, reason string, address Address) error {
	way.State, way.Reason, way.UpdatedAt = state, reason, s.options.Now()
	err := s.options.Store.InTx(ctx, func(tx Tx) error {
		if err := tx.SettleJob(ctx, job.Lease, queue.Outcome{Kind: queue.Done}); err != nil {
			return err
		}
		return tx.SettleNotice(ctx, way)
	})
	if err != nil {
		return err
	}
	if address.Label != "" {
		ways.WithLabelValues(address.way(), state).Inc()
	}
	return queue.ErrSettled
}

// post hands a notice to a webhook. The bytes and the Idempotency-Key are the same in every attempt.
func (s *Service) post(ctx context.Context, notice exchange.Notice, address Address, secret string) error {
	ctx, cancel := context.WithTimeout(ctx, webhookLimit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address.URL, strings.NewReader(notice.Body))
	if err != nil {
		return fault.GiveUp("the address of the webhook cannot be used", err)
	}
	request.Close = true // notices are rare: no connection waits for the next one
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", notice.ID)
	request.Header.Set(webhooksignature.Header, webhooksignature.Sign(secret, []byte(notice.Body)))

	response, err := s.options.Client(address.URL).Do(request)
	if failed, is := errors.AsType[*url.Error](err); is {
		err = failed.Err // without the address, which may be secret
	}
	if err != nil {
		return fault.RetryIn(0, "the webhook cannot be reached", err)
	}
	defer func() { _ = response.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, webhookBytes)) // so that the connection can be used again

	status := fmt.Sprintf("the webhook answered %d", response.StatusCode)
	switch code := response.StatusCode; {
	case code/100 == 2:
		return nil
	case code == http.StatusRequestTimeout, code == http.StatusTooManyRequests, code >= http.StatusInternalServerError:
		wait, _ := strconv.Atoi(response.Header.Get("Retry-After"))
		return fault.RetryIn(time.Duration(min(max(wait, 0), 3600))*time.Second, status, errors.New(status))
	}
	return fault.GiveUp(status, errors.New(status))
}
