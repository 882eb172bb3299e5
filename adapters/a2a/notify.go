package a2a

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/exchange"
	"inbox/internal/fault"
)

var webhooks = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_a2a_webhooks_total",
	Help: "Requests to webhooks of tasks, by outcome (sent, refused, failed, gone).",
}, []string{"outcome"})

const (
	webhookTimeout  = 15 * time.Second
	maxWebhookReply = 4 << 10
)

// Headers with the token of a webhook: 0.3 says the first, the Go SDK sends the second.
var tokenHeaders = []string{"X-A2A-Notification-Token", "A2A-Notification-Token"}

// Notify tells a webhook of one change of its task: the work begins, results, a new status; growing text is not sent.
// At least once: after a failure everything of the change is sent again. Its errors are classed by fault.RetryIn and
// fault.GiveUp. After the last attempt the webhook is forgotten: its receiver was away for long.
func (a *Adapter) Notify(ctx context.Context, job exchange.WatchJob, last bool) error {
	watch, found, err := a.options.Push.Watches.Watch(ctx, job.WatchID)
	if err != nil || !found {
		return err
	}
	err = a.notify(ctx, watch, job)
	if err != nil && ctx.Err() == nil && (last || fault.Of(err).Permanent) {
		webhooks.WithLabelValues("gone").Inc()
		if forgotten := a.options.Push.Watches.DeleteWatch(ctx, watch.ID); forgotten != nil {
			return fault.RetryIn(0, "our own store did not answer", forgotten)
		}
	}
	return err
}

func (a *Adapter) notify(ctx context.Context, watch exchange.Watch, job exchange.WatchJob) error {
	var hook webhook
	if err := json.Unmarshal(watch.Data, &hook); err != nil {
		return fault.GiveUp("the stored webhook cannot be read", err)
	}
	t, err := a.load(ctx, owner{watch.Agent, watch.Principal}, a2a.TaskID(watch.Reference))
	if err != nil {
		return fault.RetryIn(0, "the task of the webhook cannot be read", err)
	}
	events, err := a.changesOf(ctx, t, job)
	if err != nil || len(events) == 0 {
		return err
	}
	bodies, err := a.webhookBodies(ctx, t, hook, events)
	if err != nil {
		return err
	}
	secret, err := a.secretOf(ctx, watch, hook)
	if err != nil {
		return err
	}
	confirmed := true
	if hook.Scheme != "" && secret.Credentials != "" {
		if confirmed, err = a.confirmed(ctx, watch, hook); err != nil {
			return err
		}
	}
	for _, body := range bodies {
		if !confirmed {
			if err := a.firstCall(ctx, watch, hook, secret, body); err != nil {
				return err
			}
			confirmed = true
			continue
		}
		if err := a.callWebhook(ctx, hook, secret, body); err != nil {
			return err
		}
	}
	return nil
}

// changesOf returns the events of one change; none when the task has gone on since, because a later job tells that.
func (a *Adapter) changesOf(ctx context.Context, t *task, job exchange.WatchJob) ([]a2a.Event, error) {
	at := slices.IndexFunc(t.turns, func(turn exchange.TurnRecord) bool { return turn.ID == job.TurnID })
	if at < 0 {
		return nil, nil
	}
	turn, info := t.turns[at], t.info()
	if job.State == exchange.StateRunning {
		working := a2a.TaskStatus{State: a2a.TaskStateWorking, Timestamp: stamp(job.At)}
		return []a2a.Event{&a2a.TaskStatusUpdateEvent{TaskID: info.TaskID, ContextID: info.ContextID, Status: working}}, nil
	}
	superseded := at < len(t.turns)-1 && turn.State != exchange.StateAnswered
	if turn.State != job.State || superseded || !exchange.Settled(turn.State) || stateOf(turn) == a2a.TaskStateWorking {
		return nil, nil
	}
	t.turns = t.turns[:at+1]
	artifacts, err := a.artifacts(ctx, turn, nil)
	if err != nil {
		return nil, err
	}
	var events []a2a.Event
	for _, artifact := range artifacts {
		events = append(events, &a2a.TaskArtifactUpdateEvent{TaskID: info.TaskID, ContextID: info.ContextID, Artifact: artifact, LastChunk: true})
	}
	status, err := a.status(ctx, t)
	return append(events, &a2a.TaskStatusUpdateEvent{TaskID: info.TaskID, ContextID: info.ContextID, Status: status}), err
}

// webhookBodies writes the events: one StreamResponse each in 1.0, the bare task in 0.3.
func (a *Adapter) webhookBodies(ctx context.Context, t *task, hook webhook, events []a2a.Event) ([][]byte, error) {
	if hook.Version == version03 {
		rendered, err := a.render(ctx, t, view{artifacts: true})
		if err != nil {
			return nil, err
		}
		if update, is := events[0].(*a2a.TaskStatusUpdateEvent); is {
			rendered.Status = update.Status
		}
		body, err := json.Marshal(a2av0.FromV1Task(rendered))
		return [][]byte{inMilliseconds(body)}, err
	}
	bodies := make([][]byte, len(events))
	for i, event := range events {
		body, err := json.Marshal(a2a.StreamResponse{Event: event})
		if err != nil {
			return nil, fmt.Errorf("write event for a webhook: %w", err)
		}
		bodies[i] = inMilliseconds(body)
	}
	return bodies, nil
}

func (a *Adapter) secretOf(ctx context.Context, watch exchange.Watch, hook webhook) (secret webhookSecret, err error) {
	if hook.Secret == "" {
		return secret, nil
	}
	plain, err := a.options.Push.Sealer.Open(ctx, hook.Secret, purposeOf(watch))
	if err != nil {
		return secret, fault.RetryIn(0, "the credentials of the webhook cannot be opened on this node", err)
	}
	return secret, json.Unmarshal(plain, &secret)
}

func (a *Adapter) callWebhook(ctx context.Context, hook webhook, secret webhookSecret, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, webhookTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, hook.URL, bytes.NewReader(body))
	if err != nil {
		return fault.GiveUp("the address of the webhook cannot be called", err)
	}
	request.Header.Set("Content-Type", "application/a2a+json")
	if hook.Version == version03 {
		request.Header.Set("Content-Type", mimeJSON)
	}
	request.Header.Set(a2a.SvcParamVersion, hook.Version)
	if hook.Scheme != "" && secret.Credentials != "" {
		request.Header.Set("Authorization", hook.Scheme+" "+secret.Credentials)
	}
	if secret.Token != "" {
		for _, name := range tokenHeaders {
			request.Header.Set(name, secret.Token)
		}
	}
	response, err := a.options.Push.Web.Do(request)
	if err != nil {
		webhooks.WithLabelValues("failed").Inc()
		return fault.RetryIn(0, "the webhook does not answer", err)
	}
	defer func() { _ = response.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxWebhookReply))
	return webhookAnswer(response)
}

// webhookAnswer reads the status: who says 410 wants no more, a redirect is not followed.
func webhookAnswer(response *http.Response) error {
	switch status := response.StatusCode; {
	case status/100 == 2:
		webhooks.WithLabelValues("sent").Inc()
		return nil
	case status == http.StatusGone:
		return fault.GiveUp("the webhook says 410", nil)
	default:
		webhooks.WithLabelValues("refused").Inc()
		return fault.RetryIn(retryAfter(response.Header), "the webhook says "+response.Status, answeredWith(status))
	}
}
