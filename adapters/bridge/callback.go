package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/adapters/bridge/contract"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/webhooksignature"
)

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
func (a *Adapter) callConnector(ctx context.Context, r route, item contract.Item, delivery exchange.Delivery) (exchange.DeliveryReceipt, error) {
	connector, known := a.connectors[r.Connector]
	if !known {
		return exchange.DeliveryReceipt{}, fault.GiveUp("the connector is not configured any more", nil)
	}
	detail, err := call(ctx, connector.Web, connector.CallbackURL, connector.Secrets, item, delivery.Attempt)
	return exchange.DeliveryReceipt{Detail: detail}, err
}

// Callback makes one attempt to bring an item of a queue to its client's callback. Whatever comes of it the item stays:
// the client acknowledges what it has. Errors are classed by fault.RetryIn and fault.GiveUp.
func (a *Adapter) Callback(ctx context.Context, job exchange.BridgeCallback, attempt int) error {
	item, found, err := a.options.Queue.Item(ctx, job.Client, job.Item)
	if err != nil || !found { // acknowledged meanwhile
		return err
	}
	client, sealed, found, err := a.options.Queue.ClientSecret(ctx, job.Client)
	if err != nil || !found || client.CallbackURL == "" {
		return err
	}
	secret, err := a.options.Sealer.Open(ctx, sealed, callbackPurpose(client.ID))
	if err != nil {
		return fault.RetryIn(0, "the secret of the callback cannot be opened on this node", err)
	}
	_, err = call(ctx, a.options.Web, client.CallbackURL, []string{string(secret)}, item, attempt)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if _, kept := a.bridge.Attempted(ctx, job.Client, job.Item, err == nil); kept != nil {
		a.log.WarnContext(ctx, "the status of a queue item could not be written", "item", job.Item, "error", kept)
	}
	return err
}

// callbackPurpose binds a sealed secret to its client.
func callbackPurpose(client string) string { return "bridge callback\x00" + client }

func call(ctx context.Context, web WebClient, address string, secrets []string, item contract.Item, attempt int) (detail string, err error) {
	body, err := json.Marshal(item.Value())
	if err != nil {
		return "", fault.GiveUp("the item is no JSON", err)
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
	return "", fault.RetryIn(retryAfter(response.Header), fmt.Sprintf("the callback says %s", response.Status), nil)
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
