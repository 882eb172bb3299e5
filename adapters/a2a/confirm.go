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
	"strconv"
	"strings"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
)

// The owner of a task chooses address and credentials of its webhook. No host is shown credentials that a stranger chose
// before it confirmed that it takes notifications (decision 0064): it takes one without credentials, asks for them with 401,
// or echoes a token. A confirmation holds for one agent, one principal and one address without its query.
const (
	confirmSpace    = "a2a.webhook"
	confirmLifetime = exchange.WatchLife
	validationParam = "validationToken" // as receivers of the A2A samples read it
	confirmLimit    = 5 * time.Second
)

// answeredWith is the status of a webhook that took no notification.
type answeredWith int

func (s answeredWith) Error() string { return "the webhook answered " + strconv.Itoa(int(s)) }

func confirmKey(watch exchange.Watch, address *url.URL) string {
	bare := url.URL{Scheme: address.Scheme, Host: strings.ToLower(address.Host), Path: address.Path, RawPath: address.RawPath}
	sum := sha256.Sum256([]byte(strings.Join([]string{watch.Agent, watch.Principal, bare.String()}, "\x00")))
	return hex.EncodeToString(sum[:])
}

// confirmed reports whether the credentials of a webhook may be shown: the operator named its host, or it confirmed before.
func (a *Adapter) confirmed(ctx context.Context, watch exchange.Watch, hook webhook) (bool, error) {
	address, err := url.Parse(hook.URL)
	if err != nil {
		return false, fault.GiveUp("the address of the webhook cannot be called", err)
	}
	if named := a.options.Push.Named; named != nil && named(address) {
		return true, nil
	}
	_, found, err := a.options.Claims.Get(ctx, confirmSpace, confirmKey(watch, address))
	if err != nil {
		return false, fault.RetryIn(0, "our own store did not answer", err)
	}
	return found, nil
}

// handshake asks the webhook to echo a token, without credentials and without anything of the task.
func (a *Adapter) handshake(ctx context.Context, webhookURL string) (echoed bool, err error) {
	address, err := url.Parse(webhookURL)
	if err != nil {
		return false, err
	}
	token := rand.Text()
	query := address.Query()
	query.Set(validationParam, token)
	address.RawQuery = query.Encode()
	ctx, cancel := context.WithTimeout(ctx, confirmLimit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return false, err
	}
	response, err := a.options.Push.Web.Do(request)
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

// firstCall sends a notification without credentials to a webhook that has not confirmed. One that takes it has; one that asks
// for credentials, or refuses and then echoes a token, has too, and gets the notification again. The token of the webhook goes
// with it: receivers know their own notifications by it (X-A2A-Notification-Token), and no server takes its headers for a login.
func (a *Adapter) firstCall(ctx context.Context, watch exchange.Watch, hook webhook, secret webhookSecret, body []byte) error {
	called := a.callWebhook(ctx, hook, webhookSecret{Token: secret.Token}, body)
	if called != nil {
		status, answered := errors.AsType[answeredWith](called)
		if !answered || fault.Of(called).Permanent {
			return called
		}
		if status != http.StatusUnauthorized {
			if status/100 != 4 || status == http.StatusTooManyRequests { // it is not there now
				return called
			}
			if echoed, err := a.handshake(ctx, hook.URL); err != nil || !echoed {
				return called
			}
		}
	}
	if err := a.confirm(ctx, watch, hook); err != nil || called == nil {
		return err
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
