package a2a

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
)

// The owner of a task chooses address and credentials of its webhook. No host is shown credentials that a stranger chose
// before it confirmed that it takes notifications (decision 0064): it echoes a token, asks for credentials with 401, or
// takes a notification without them. A confirmation holds for one agent, one principal and one address without its query.
const (
	confirmSpace    = "a2a.webhook"
	confirmLifetime = exchange.WatchLife
	validationParam = "validationToken" // as receivers of the A2A samples read it
	confirmLimit    = 5 * time.Second
)

// errAsksForCredentials is a webhook's answer 401.
var errAsksForCredentials = errors.New("the webhook asks for credentials")

func confirmKey(watch exchange.Watch, address *url.URL) string {
	bare := url.URL{Scheme: address.Scheme, Host: strings.ToLower(address.Host), Path: address.Path, RawPath: address.RawPath}
	sum := sha256.Sum256([]byte(strings.Join([]string{watch.Agent, watch.Principal, bare.String()}, "\x00")))
	return hex.EncodeToString(sum[:])
}

// confirmed reports whether the credentials of a webhook may be shown: the operator named its host, it confirmed before, or it
// confirms now.
func (a *Adapter) confirmed(ctx context.Context, watch exchange.Watch, hook webhook) (bool, error) {
	address, err := url.Parse(hook.URL)
	if err != nil {
		return false, fault.GiveUp("the address of the webhook cannot be called", err)
	}
	if named := a.options.Push.Named; named != nil && named(address) {
		return true, nil
	}
	_, found, err := a.options.Claims.Get(ctx, confirmSpace, confirmKey(watch, address))
	switch {
	case err != nil:
		return false, fault.RetryIn(0, "our own store did not answer", err)
	case found:
		return true, nil
	}
	echoed, err := a.handshake(ctx, *address)
	if err != nil || !echoed {
		return false, err
	}
	return true, a.confirm(ctx, watch, hook)
}

// handshake asks the webhook to echo a token, without credentials and without anything of the task.
func (a *Adapter) handshake(ctx context.Context, address url.URL) (echoed bool, err error) {
	token := rand.Text()
	query := address.Query()
	query.Set(validationParam, token)
	address.RawQuery = query.Encode()
	ctx, cancel := context.WithTimeout(ctx, confirmLimit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return false, fault.GiveUp("the address of the webhook cannot be called", err)
	}
	response, err := a.options.Push.Web.Do(request)
	if err != nil {
		webhooks.WithLabelValues("failed").Inc()
		return false, fault.RetryIn(0, "the webhook does not answer", err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxWebhookReply))
	if err != nil {
		return false, nil //nolint:nilerr // no echo; the first notification decides
	}
	return response.StatusCode/100 == 2 && strings.Trim(strings.TrimSpace(string(body)), `"`) == token, nil
}

// firstCall sends a notification without credentials to a webhook that has not confirmed. One that takes it, or asks for
// credentials, has; the latter gets the notification again.
func (a *Adapter) firstCall(ctx context.Context, watch exchange.Watch, hook webhook, secret webhookSecret, body []byte) error {
	called := a.callWebhook(ctx, hook, webhookSecret{}, body)
	if called != nil && !errors.Is(called, errAsksForCredentials) {
		return called
	}
	if err := a.confirm(ctx, watch, hook); err != nil {
		return err
	}
	if called == nil {
		return nil
	}
	return a.callWebhook(ctx, hook, secret, body)
}

// confirm remembers a confirmation as long as a webhook lives.
func (a *Adapter) confirm(ctx context.Context, watch exchange.Watch, hook webhook) error {
	address, err := url.Parse(hook.URL)
	if err != nil {
		return fault.GiveUp("the address of the webhook cannot be called", err)
	}
	at := time.Now()
	if _, _, err := a.options.Claims.PutIfAbsent(ctx, confirmSpace, confirmKey(watch, address), []byte(at.UTC().Format(time.RFC3339)), at.Add(confirmLifetime)); err != nil {
		return fault.RetryIn(0, "our own store did not answer", err)
	}
	return nil
}
