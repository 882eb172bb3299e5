package a2a

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/internal/webtoken"
)

var webhooks = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_a2a_webhooks_total",
	Help: "Requests to webhooks of tasks, by outcome (sent, refused, failed, gone).",
}, []string{"outcome"})

// notifier tells webhooks what becomes of their tasks.
type notifier struct{ *tasks }

const (
	webhookTimeout  = 15 * time.Second
	maxWebhookReply = 4 << 10
)

// Headers with the token of a webhook: 0.3 says the first, the Go SDK sends the second.
var tokenHeaders = []string{"X-A2A-Notification-Token", "A2A-Notification-Token"}

func (n *notifier) runNotification(ctx context.Context, job queue.Job) error {
	var change exchange.WatchJob
	if err := json.Unmarshal([]byte(job.Payload), &change); err != nil {
		return queue.GiveUp("the payload cannot be read", err)
	}
	return queue.Classed(ctx, n.Notify(ctx, change, job.Attempt > len(webhookSchedule)))
}

// Notify tells a webhook of one change of its task: the work begins, results, a new status; growing text is not sent.
// At least once: after a failure everything of the change is sent again. Its errors are classed by fault.RetryIn and
// fault.GiveUp. After the last attempt the webhook is forgotten: its receiver was away for long.
func (n *notifier) Notify(ctx context.Context, job exchange.WatchJob, last bool) error {
	watch, found, err := n.options.Push.Watches.Watch(ctx, job.WatchID)
	if err != nil || !found {
		return err
	}

	err = n.notify(ctx, watch, job)
	if err != nil && ctx.Err() == nil && (last || fault.Of(err).Permanent) {
		webhooks.WithLabelValues("gone").Inc()
		if forgotten := n.options.Push.Watches.DeleteWatch(ctx, watch.ID); forgotten != nil {
			return fault.RetryIn(0, "our own store did not answer", forgotten)
		}
	}
	return err
}

func (n *notifier) notify(ctx context.Context, watch exchange.Watch, job exchange.WatchJob) error {
	var hook webhook
	if err := json.Unmarshal(watch.Data, &hook); err != nil {
		return fault.GiveUp("the stored webhook cannot be read", err)
	}

	t, err := n.load(ctx, owner{watch.Agent, watch.Principal}, a2a.TaskID(watch.Reference))
	if err != nil {
		return fault.RetryIn(0, "the task of the webhook cannot be read", err)
	}

	events, err := n.changesOf(ctx, t, job)
	if err != nil || len(events) == 0 {
		return err
	}

	bodies, err := n.webhookBodies(ctx, t, hook, events)
	if err != nil {
		return err
	}

	secret, err := n.secretOf(ctx, watch, hook)
	if err != nil {
		return err
	}

	confirmed, err := n.confirmed(ctx, watch, hook, secret)
	if err != nil {
		return err
	}

	for _, body := range bodies {
		one := notification{hook: hook, secret: secret, task: watch.Reference, body: body}
		if confirmed {
			err = n.callWebhook(ctx, one)
		} else {
			err = n.firstCall(ctx, watch, one)
		}
		if err != nil {
			return err
		}
		confirmed = true
	}

	return nil
}

// notification is one request to a webhook.
type notification struct {
	hook   webhook
	secret webhookSecret
	task   string
	body   []byte

	withheld bool // the owner's credentials are not in secret: the host has not confirmed
}

// hasCredentials reports whether the owner of the webhook chose its Authorization.
func hasCredentials(hook webhook, secret webhookSecret) bool {
	return hook.Scheme != "" && secret.Credentials != ""
}

// changesOf returns the events of one change; none when the task has gone on since, because a later job tells that.
func (n *notifier) changesOf(ctx context.Context, t *task, job exchange.WatchJob) ([]a2a.Event, error) {
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
	artifacts, err := n.artifacts(ctx, turn, nil)
	if err != nil {
		return nil, err
	}

	var events []a2a.Event
	for _, artifact := range artifacts {
		events = append(events, &a2a.TaskArtifactUpdateEvent{TaskID: info.TaskID, ContextID: info.ContextID, Artifact: artifact, LastChunk: true})
	}

	status, err := n.status(ctx, t)
	return append(events, &a2a.TaskStatusUpdateEvent{
		TaskID: info.TaskID, ContextID: info.ContextID, Status: status, Metadata: updateMetadata(turn),
	}), err
}

// webhookBodies writes the events: one StreamResponse each in 1.0, the bare task in 0.3.
func (n *notifier) webhookBodies(ctx context.Context, t *task, hook webhook, events []a2a.Event) ([][]byte, error) {
	if hook.Version == version03 {
		rendered, err := n.render(ctx, t, view{artifacts: true})
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

func (n *notifier) secretOf(ctx context.Context, watch exchange.Watch, hook webhook) (secret webhookSecret, err error) {
	if hook.Secret == "" {
		return secret, nil
	}
	plain, err := n.options.Push.Sealer.Open(ctx, hook.Secret, purposeOf(watch))
	if err != nil {
		return secret, fault.RetryIn(0, "the credentials of the webhook cannot be opened on this node", err)
	}
	return secret, json.Unmarshal(plain, &secret)
}

// The owner of a task chooses address and credentials of its webhook. No host is shown credentials that a stranger chose
// before it confirmed that it wants them (decisions 0064 and 0194): it echoes a token, takes a notification without credentials,
// or asks for them with 401 or 403. A confirmation holds for one agent, one principal and one address without its query.
const (
	confirmSpace    = "a2a.webhook"
	confirmLifetime = exchange.WatchLife
	validationParam = "validationToken" // as receivers of the A2A samples read it
	confirmLimit    = 5 * time.Second
)

// confirmed reports whether a notification may carry the credentials of its webhook: it has none, the operator trusts its host, or the receiver has confirmed.
// A host that did not is asked, so that a receiver which answers gets them with its first notification.
func (n *notifier) confirmed(ctx context.Context, watch exchange.Watch, hook webhook, secret webhookSecret) (bool, error) {
	if !hasCredentials(hook, secret) {
		return true, nil
	}

	address, err := url.Parse(hook.URL)
	if err != nil {
		return false, fault.GiveUp("the address of the webhook cannot be called", err)
	}
	if named := n.options.Push.Named; named != nil && named(address) {
		return true, nil
	}

	_, found, err := n.options.Claims.Get(ctx, confirmSpace, confirmKey(watch, address))
	if err != nil {
		return false, fault.RetryIn(0, "our own store did not answer", err)
	}
	if found {
		return true, nil
	}

	if echoed, err := n.handshake(ctx, address); err != nil || !echoed {
		return false, nil //nolint:nilerr // the first notification tells more
	}
	return true, n.confirm(ctx, watch, hook)
}

func confirmKey(watch exchange.Watch, address *url.URL) string {
	bare := url.URL{Scheme: address.Scheme, Host: strings.ToLower(address.Host), Path: address.Path, RawPath: address.RawPath}
	sum := sha256.Sum256([]byte(strings.Join([]string{watch.Agent, watch.Principal, bare.String()}, "\x00")))
	return hex.EncodeToString(sum[:])
}

// firstCall sends a notification without credentials to a webhook that has not confirmed. If the receiver accepts it or asks for credentials,
// the webhook counts as confirmed and the same notification follows with credentials, which every notification must carry (A2A 1.0,
// section 4.3.3). A 2xx does not end it, because some receivers answer 200 and ignore notifications without credentials. The first call
// carries the webhook's token: receivers recognize their notifications by it, and no server accepts it as a login.
func (n *notifier) firstCall(ctx context.Context, watch exchange.Watch, one notification) error {
	bare := one
	bare.secret.Credentials, bare.withheld = "", true
	if called := n.callWebhook(ctx, bare); called != nil && !asksForCredentials(called) {
		return called
	}
	if err := n.confirm(ctx, watch, one.hook); err != nil {
		return err
	}
	return n.callWebhook(ctx, one)
}

// asksForCredentials reports whether a webhook refused a notification for its lack of credentials. Many frameworks answer 403 to a request
// without Authorization.
func asksForCredentials(called error) bool {
	status, answered := errors.AsType[answeredWith](called)
	return answered && (status == http.StatusUnauthorized || status == http.StatusForbidden)
}

// answeredWith is the status of a webhook that took no notification.
type answeredWith int

func (s answeredWith) Error() string { return "the webhook answered " + strconv.Itoa(int(s)) }

// handshake asks the webhook to echo a token, without credentials and without anything of the task.
func (n *notifier) handshake(ctx context.Context, webhook *url.URL) (echoed bool, err error) {
	token := rand.Text()
	address, query := *webhook, webhook.Query()
	query.Set(validationParam, token)
	address.RawQuery = query.Encode()
	ctx, cancel := context.WithTimeout(ctx, confirmLimit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return false, err
	}

	response, err := n.options.Push.Web.Do(request)
	if err != nil {
		return false, err
	}
	defer func() { _ = response.Body.Close() }()

	body, err := io.ReadAll(io.LimitReader(response.Body, maxWebhookReply))
	if err != nil {
		return false, err
	}

	return response.StatusCode/100 == 2 && strings.Trim(strings.TrimSpace(string(body)), `"`) == token, nil
}

// confirm remembers a confirmation as long as a webhook lives.
func (n *notifier) confirm(ctx context.Context, watch exchange.Watch, hook webhook) error {
	address, err := url.Parse(hook.URL)
	if err != nil {
		return fault.GiveUp("the address of the webhook cannot be called", err)
	}
	at := time.Now()
	if _, _, err := n.options.Claims.PutIfAbsent(ctx, confirmSpace, confirmKey(watch, address), []byte(at.UTC().Format(time.RFC3339)), at.Add(confirmLifetime)); err != nil {
		return fault.RetryIn(0, "our own store did not answer", err)
	}
	return nil
}

func (n *notifier) callWebhook(ctx context.Context, one notification) error {
	ctx, cancel := context.WithTimeout(ctx, webhookTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, one.hook.URL, bytes.NewReader(one.body))
	if err != nil {
		return fault.GiveUp("the address of the webhook cannot be called", err)
	}

	request.Header.Set("Content-Type", "application/a2a+json")
	if one.hook.Version == version03 {
		request.Header.Set("Content-Type", mimeJSON)
	}

	request.Header.Set(a2a.SvcParamVersion, one.hook.Version)
	if err := n.authenticate(ctx, request.Header, one); err != nil {
		return err
	}

	response, err := n.options.Push.Web.Do(request)
	if err != nil {
		webhooks.WithLabelValues("failed").Inc()
		return fault.RetryIn(0, "the webhook does not answer", err)
	}
	defer func() { _ = response.Body.Close() }()

	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxWebhookReply))
	return webhookAnswer(response)
}

// authenticate writes the headers by which a receiver knows who sends: the owner's credentials and token, and our signature. Where the
// owner chose no credentials, the signature is also the Bearer token, as receivers of the A2A samples expect it.
func (n *notifier) authenticate(ctx context.Context, header http.Header, one notification) error {
	if one.secret.Token != "" {
		for _, name := range tokenHeaders {
			header.Set(name, one.secret.Token)
		}
	}

	signature, err := n.signature(ctx, one)
	if err != nil {
		return fault.RetryIn(0, "the notification cannot be signed", err)
	}
	if signature != "" {
		header.Set(SignatureHeader, signature)
	}

	switch scheme := one.hook.Scheme; {
	case hasCredentials(one.hook, one.secret):
		header.Set("Authorization", scheme+" "+one.secret.Credentials)
	case signature != "" && !one.withheld && (scheme == "" || strings.EqualFold(scheme, "Bearer")):
		header.Set("Authorization", "Bearer "+signature)
	}
	return nil
}

// SignatureHeader has the signature of a notification: a JWT with a digest of the body, by a key of our jwks.json (decision 0195).
const SignatureHeader = "X-Inbox-Notification-Signature"

// signature signs one attempt with the key in use; empty if the server has no keys.
func (n *notifier) signature(ctx context.Context, one notification) (string, error) {
	if n.options.CardKeys == nil {
		return "", nil
	}
	keys, err := n.options.CardKeys(ctx)
	if err != nil || len(keys) == 0 {
		return "", err
	}
	return webtoken.SignNotification(keys[0], webtoken.Notification{URL: one.hook.URL, Task: one.task, Body: one.body}, time.Now())
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
