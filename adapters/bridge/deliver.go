package bridge

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/adapters/bridge/contract"
	"inbox/exchange"
	"inbox/internal/clip"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/internal/safehttp"
	"inbox/internal/webhooksignature"
	"inbox/normalized"
)

// outbox brings answers to queues and callbacks.
type outbox struct {
	*site
	bridge contract.Bridge
}

// queueID is the id of an answer in the queue: made of the reply's, which is final before the first attempt, so that a
// repeat after a crash is no second item.
func queueID(replyID string) string { return "bridge_" + replyID }

// queueHost names a queue in the form of a host, which destinations are compared by; there is none of that name.
func queueHost(client string) string {
	const longestLabel = 63
	if len(client) > longestLabel {
		client = hashOf(client)[:32]
	}
	return client + ".bridge.invalid"
}

// Plan decides where an answer goes. It is the way that the question brought: a repeat of the plan returns the same.
func (o *outbox) Plan(_ context.Context, reply exchange.Reply) (exchange.Plan, error) {
	r := readRoute(reply.Route)
	switch r.Way {
	case wayQueue:
		return exchange.Plan{NativeID: queueID(reply.ID), Destinations: []exchange.Destination{{
			Key: queueHost(r.Client), Address: "bridge://" + r.Client,
		}}}, nil
	case wayCallback:
		connector := o.connector(r.Connector)
		if connector == nil || connector.CallbackURL == "" {
			return exchange.Plan{}, fmt.Errorf("connector %s has no callback_url any more", r.Connector)
		}
		address, err := url.Parse(connector.CallbackURL)
		if err != nil {
			return exchange.Plan{}, fmt.Errorf("callback of connector %s: %w", r.Connector, err)
		}
		return exchange.Plan{NativeID: queueID(reply.ID), Destinations: []exchange.Destination{{Key: address.Host, Address: connector.CallbackURL}}}, nil
	}

	return exchange.Plan{}, nil // the caller waits for it, or asks again
}

// Deliver puts an answer into the queue of its client, or calls a connector's callback.
func (o *outbox) Deliver(ctx context.Context, delivery exchange.Delivery) (exchange.DeliveryReceipt, error) {
	r := readRoute(delivery.Reply.Route)
	item, err := o.itemOf(delivery.Reply, r)
	if err != nil {
		return exchange.DeliveryReceipt{}, fault.GiveUp("the answer makes no item: "+err.Error(), err)
	}
	if r.Way == wayCallback {
		return o.callConnector(ctx, r, item, delivery)
	}
	if err := o.options.Queue.Offer(ctx, item); err != nil {
		return exchange.DeliveryReceipt{}, fault.RetryIn(0, "the queue of the client takes nothing: "+err.Error(), err)
	}
	return exchange.DeliveryReceipt{Detail: "queued as " + item.ID}, nil
}

// itemOf writes an answer in the form of section 6.4.
func (o *outbox) itemOf(reply exchange.Reply, r route) (contract.Item, error) {
	response := o.addressed(reply)
	content := textOf(response, r.plainly(o.options.Present))
	if content == "" {
		content = "(The answer has no text.)"
	}
	if len(content) > contract.MaxContentBytes {
		content = clip.Bytes(content, contract.MaxContentBytes-64) + "\n\n(The answer was longer and is cut here.)"
	}

	client := r.Client
	if client == "" {
		client = r.Connector
	}

	return contract.NormalizeItem(map[string]any{
		"queue_id": queueID(reply.ID), "client_id": client, "connector_id": r.Connector, "agent": reply.Agent, "session_id": r.Session,
		"role": "assistant", "content": content, "completed": reply.Response.Status == "" || reply.Response.Status == normalized.StatusCompleted,
		"created_at": stamp(reply.CreatedAt), "metadata": o.about(reply, r),
	})
}

// about tells to what an item is the answer.
func (o *outbox) about(reply exchange.Reply, r route) map[string]any {
	metadata := map[string]any{"run_id": reply.TurnID, "agent": reply.Agent}
	for name, value := range map[string]string{
		"external_provider": r.Provider, "external_conversation_id": r.Conversation, "external_message_id": r.ExternalID,
		"sender_id": r.Person, "room_kind": r.Room, "status": cmp.Or(reply.Response.Stopped(), reply.Response.Status),
	} {
		if value != "" {
			metadata[name] = value
		}
	}

	maps.Copy(metadata, forWhom(reply, r))
	if policy := reply.Response.Policy(); policy != nil {
		metadata["demand"] = plainJSON(o.options.Present(*policy))
	}

	if parts := partsOf(o.addressed(reply), o.options.Present); parts != nil {
		if encoded := plainJSON(parts); encoded != nil {
			metadata["parts"] = encoded
		}
	}

	if _, citations := normalized.Cited(reply.Response.Parts); len(citations) > 0 {
		if encoded := plainJSON(citations); encoded != nil {
			metadata["citations"] = encoded
		}
	}

	return metadata
}

// maxPartsBytes bounds the parts beside the text of an item.
const maxPartsBytes = 512 << 10

// plainJSON brings a value into maps and lists; nil where it is too large.
func plainJSON(value any) (plain any) {
	encoded, err := json.Marshal(value)
	if err != nil || len(encoded) > maxPartsBytes || json.Unmarshal(encoded, &plain) != nil {
		return nil
	}
	return plain
}

var callbacks = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_bridge_callbacks_total",
	Help: "Calls of callbacks of bridges and connectors, by outcome (sent, refused, failed).",
}, []string{"outcome"})

const (
	callbackTimeout  = 15 * time.Second
	maxCallbackReply = 4 << 10

	// SignatureHeader carries "sha256=" and the hexadecimal HMAC-SHA256 of the raw body, on requests in and out. While a
	// secret is being changed it may list several with commas between them.
	SignatureHeader = "X-Inbox-Signature"
	// DeliveryHeader carries the id of the item: who has seen it has seen the request.
	DeliveryHeader = "X-Inbox-Delivery"
)

// callConnector sends an answer to the callback that the operator wrote.
func (o *outbox) callConnector(ctx context.Context, r route, item contract.Item, delivery exchange.Delivery) (exchange.DeliveryReceipt, error) {
	connector := o.connector(r.Connector)
	if connector == nil {
		return exchange.DeliveryReceipt{}, fault.GiveUp("the connector is not configured any more", nil)
	}
	detail, err := call(ctx, connector.Web, connector.CallbackURL, connector.Secrets, item, delivery.Attempt)
	return exchange.DeliveryReceipt{Detail: detail}, err
}

// runCallback is the job of a callback.
func (o *outbox) runCallback(ctx context.Context, job queue.Job) error {
	var item exchange.BridgeCallback
	if err := json.Unmarshal([]byte(job.Payload), &item); err != nil {
		return queue.GiveUp("the payload cannot be read", err)
	}
	return queue.Classed(ctx, o.callback(ctx, item, job.Attempt))
}

// callback makes one attempt to bring an item of a queue to its client's callback. Whatever comes of it the item stays:
// the client acknowledges what it has. Errors are classed by fault.RetryIn and fault.GiveUp.
func (o *outbox) callback(ctx context.Context, job exchange.BridgeCallback, attempt int) error {
	item, found, err := o.options.Queue.Item(ctx, job.Client, job.Item)
	if err != nil || !found { // acknowledged meanwhile
		return err
	}

	client, sealed, found, err := o.options.Queue.ClientSecret(ctx, job.Client)
	if err != nil || !found || client.CallbackURL == "" {
		return err
	}

	secret, err := o.options.Sealer.Open(ctx, sealed, callbackPurpose(client.ID))
	if err != nil {
		return fault.RetryIn(0, "the secret of the callback cannot be opened on this node", err)
	}

	_, err = call(ctx, o.options.Web, client.CallbackURL, []string{string(secret)}, item, attempt)
	if ctx.Err() != nil {
		return ctx.Err()
	}

	if _, kept := o.bridge.Attempted(ctx, job.Client, job.Item, err == nil); kept != nil {
		o.options.Logger.WarnContext(ctx, "the status of a queue item could not be written", "item", job.Item, "error", kept)
	}

	return err
}

// callbackPurpose binds a sealed secret to its client.
func callbackPurpose(client string) string { return "bridge callback\x00" + client }

func call(ctx context.Context, web exchange.WebClient, address string, secrets []string, item contract.Item, attempt int) (detail string, err error) {
	body, err := json.Marshal(item.Value())
	if err != nil {
		return "", fault.GiveUp("the item is not JSON", err)
	}

	ctx, cancel := context.WithTimeout(ctx, callbackTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return "", fault.GiveUp("the callback cannot be called", err)
	}

	request.Header.Set("Content-Type", mimeJSON)
	request.Header.Set(DeliveryHeader, item.ID)
	request.Header.Set("X-Inbox-Attempt", strconv.Itoa(attempt))
	request.Header.Set(SignatureHeader, signatures(secrets, body))
	response, err := web.Do(request)
	if err != nil {
		callbacks.WithLabelValues("failed").Inc()
		if !safehttp.Unconnected(err) {
			err = exchange.WithReach(err, exchange.ReachSession)
		}
		return "", fault.RetryIn(0, "the callback does not answer", err)
	}
	defer func() { _ = response.Body.Close() }()

	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxCallbackReply))
	return callbackAnswer(response)
}

// signatures signs with every secret, the newest first: receivers that changed theirs and those that did not both verify.
func signatures(secrets []string, body []byte) string {
	list := make([]string, 0, len(secrets))
	for _, secret := range secrets {
		if secret != "" {
			list = append(list, webhooksignature.Sign(secret, body))
		}
	}
	return strings.Join(list, ", ")
}

func callbackAnswer(response *http.Response) (detail string, err error) {
	switch status := response.StatusCode; {
	case status/100 == 2:
		callbacks.WithLabelValues("sent").Inc()
		return response.Status, nil
	case status == http.StatusGone:
		callbacks.WithLabelValues("refused").Inc()
		return "", fault.GiveUp("the callback says 410", nil)
	}

	callbacks.WithLabelValues("refused").Inc()
	cause := exchange.WithReach(errors.New("status "+response.Status), exchange.ReachOfStatus(response.StatusCode))
	return "", fault.RetryIn(retryAfter(response.Header), "the callback says "+response.Status, cause)
}

// maxRetryAfter bounds how long a callback may put us off.
const maxRetryAfter = time.Hour

func retryAfter(header http.Header) time.Duration {
	seconds, err := strconv.Atoi(header.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, maxRetryAfter)
}
