package a2a

import (
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
	"strconv"
	"strings"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/exchange"
	"inbox/internal/fault"
)

// Watches keeps the webhooks of tasks and makes a durable job of every change that they are to be told of.
type Watches interface {
	PutWatch(ctx context.Context, watch exchange.Watch) error
	Watches(ctx context.Context, agent, principal, reference string) ([]exchange.Watch, error)
	Watch(ctx context.Context, id string) (exchange.Watch, bool, error)
	DeleteWatch(ctx context.Context, id string) error
}

// Push is what webhooks need; all of it or nothing.
type Push struct {
	Watches Watches
	Sealer  exchange.Sealer
	Web     exchange.WebClient
	Named   func(u *url.URL) bool // optional: whether the operator named the host, which then needs not confirm; nil = none
}

// Limits of a webhook as a client registers it.
const (
	maxWebhookURL   = 2048
	maxWebhookName  = 128
	maxWebhookToken = 4096 // token and credentials each
)

// webhook is what is stored of a webhook; the secret is sealed.
type webhook struct {
	URL     string `json:"url"`
	Version string `json:"version"` // of the protocol in which it was registered and is told
	Scheme  string `json:"scheme,omitempty"`
	Secret  string `json:"secret,omitempty"`
}

type webhookSecret struct {
	Token       string `json:"token,omitempty"`
	Credentials string `json:"credentials,omitempty"`
}

func noPush() *problem {
	return newProblem(a2a.ErrPushNotificationNotSupported, "push notifications are not offered; stream or poll the task")
}

// CreateTaskPushConfig registers a webhook for a task of the caller, or replaces the one with the same id.
func (h *handler) CreateTaskPushConfig(ctx context.Context, config *a2a.PushConfig) (*a2a.PushConfig, error) {
	return pushed(ctx, h, "CreateTaskPushNotificationConfig", config.TaskID, func(c *call) (*a2a.PushConfig, error) {
		watch, err := h.watch(ctx, c, config.TaskID, config)
		if err != nil {
			return nil, err
		}
		if err := h.options.Push.Watches.PutWatch(ctx, watch); err != nil {
			return nil, err
		}
		return publicConfig(watch)
	})
}

// GetTaskPushConfig returns a webhook without its secrets. Clients of 0.3 may leave the id out: they get the first.
func (h *handler) GetTaskPushConfig(ctx context.Context, req *a2a.GetTaskPushConfigRequest) (*a2a.PushConfig, error) {
	return pushed(ctx, h, "GetTaskPushNotificationConfig", req.TaskID, func(c *call) (*a2a.PushConfig, error) {
		watches, err := h.watchesOf(ctx, c, req.TaskID)
		if err != nil {
			return nil, err
		}
		for _, watch := range watches {
			if watch.Name == req.ID || req.ID == "" && c.old {
				return publicConfig(watch)
			}
		}
		return nil, newProblem(a2a.ErrTaskNotFound, "push notification configuration not found")
	})
}

// ListTaskPushConfigs returns all webhooks of a task, of which there are few: there is one page.
func (h *handler) ListTaskPushConfigs(ctx context.Context, req *a2a.ListTaskPushConfigRequest) (*a2a.ListTaskPushConfigResponse, error) {
	return pushed(ctx, h, "ListTaskPushNotificationConfigs", req.TaskID, func(c *call) (*a2a.ListTaskPushConfigResponse, error) {
		watches, err := h.watchesOf(ctx, c, req.TaskID)
		response := &a2a.ListTaskPushConfigResponse{Configs: make([]*a2a.PushConfig, 0, len(watches))}
		for _, watch := range watches {
			config, err := publicConfig(watch)
			if err != nil {
				return nil, err
			}
			response.Configs = append(response.Configs, config)
		}
		return response, err
	})
}

// DeleteTaskPushConfig removes a webhook; one that is not there is removed already.
func (h *handler) DeleteTaskPushConfig(ctx context.Context, req *a2a.DeleteTaskPushConfigRequest) error {
	_, err := pushed(ctx, h, "DeleteTaskPushNotificationConfig", req.TaskID, func(c *call) (*a2a.PushConfig, error) {
		watches, err := h.watchesOf(ctx, c, req.TaskID)
		for _, watch := range watches {
			if err == nil && watch.Name == req.ID {
				err = h.options.Push.Watches.DeleteWatch(ctx, watch.ID)
			}
		}
		return nil, err
	})
	return err
}

// pushed does an operation on the webhooks of a task, for its owner alone.
func pushed[T any](ctx context.Context, h *handler, operation string, id a2a.TaskID, do func(*call) (*T, error)) (*T, error) {
	c, err := h.enter(ctx, operation)
	if err != nil {
		return nil, err
	}
	if h.options.Push.Watches == nil {
		return nil, h.fail(c, noPush())
	}
	if _, err := h.load(ctx, c.owner, id); err != nil {
		return nil, h.fail(c, err)
	}
	result, err := do(c)
	if err != nil {
		return nil, h.fail(c, err)
	}
	return result, nil
}

func (h *handler) watchesOf(ctx context.Context, c *call, id a2a.TaskID) ([]exchange.Watch, error) {
	return h.options.Push.Watches.Watches(ctx, c.owner.agent, c.owner.principal, string(id))
}

// watch checks a webhook and seals its secrets.
func (h *handler) watch(ctx context.Context, c *call, id a2a.TaskID, config *a2a.PushConfig) (exchange.Watch, error) {
	if h.options.Push.Watches == nil {
		return exchange.Watch{}, noPush()
	}
	if err := h.checkWebhook(ctx, config); err != nil {
		return exchange.Watch{}, err
	}
	watch := exchange.Watch{
		ID: newID(), Agent: c.owner.agent, Principal: c.owner.principal, Reference: string(id), Name: config.ID, CreatedAt: time.Now().UTC(),
	}
	if watch.Name == "" {
		watch.Name = watch.ID
	}
	hook := webhook{URL: config.URL, Version: version1}
	if c.old {
		hook.Version = version03
	}
	secret := webhookSecret{Token: config.Token}
	if config.Auth != nil {
		hook.Scheme, secret.Credentials = config.Auth.Scheme, config.Auth.Credentials
	}
	return watch, h.seal(ctx, &watch, hook, secret)
}

func (h *handler) seal(ctx context.Context, watch *exchange.Watch, hook webhook, secret webhookSecret) error {
	plain, err := json.Marshal(secret)
	if err != nil {
		return err
	}
	if secret != (webhookSecret{}) {
		if hook.Secret, err = h.options.Push.Sealer.Seal(ctx, plain, purposeOf(*watch)); err != nil {
			return err
		}
	}
	watch.Data, err = json.Marshal(hook) //nolint:gosec // the secret in it is sealed
	return err
}

// purposeOf binds a sealed secret to its webhook, so that it cannot be moved to another row.
func purposeOf(watch exchange.Watch) string {
	return strings.Join([]string{"a2a webhook", watch.Agent, watch.Principal, watch.Reference, watch.Name}, "\x00")
}

// checkWebhook refuses what must never be requested or written into a header.
func (h *handler) checkWebhook(ctx context.Context, config *a2a.PushConfig) error {
	address, err := url.Parse(config.URL)
	switch {
	case config.URL == "":
		return inField("url", "is needed")
	case len(config.URL) > maxWebhookURL || err != nil || address.User != nil || address.Fragment != "":
		return inField("url", "is no address that we can call")
	case len(config.ID) > maxWebhookName || !printable(config.ID):
		return inField("id", "is too long or has characters that do not print")
	case strings.ContainsAny(config.ID, `/\`) || config.ID == "." || config.ID == "..":
		return inField("id", "must be one segment of a path: HTTP+JSON could not address it")
	case len(config.Token) > maxWebhookToken || !printable(config.Token):
		return inField("token", "is too long or has characters that cannot stand in a header")
	}
	if err := h.options.Push.Web.CheckTarget(ctx, address); err != nil {
		return inField("url", "must be a public https address, or one that the operator of this server allows")
	}
	if auth := config.Auth; auth != nil {
		if auth.Scheme == "" || strings.ContainsAny(auth.Scheme, " \t") || len(auth.Scheme) > maxWebhookName || !printable(auth.Scheme) {
			return inField("authentication.scheme", "is needed, one word such as Bearer")
		}
		if len(auth.Credentials) > maxWebhookToken || !printable(auth.Credentials) {
			return inField("authentication.credentials", "are too long or have characters that cannot stand in a header")
		}
	}
	return nil
}

// printable reports whether a text may stand in a header: a line end in it would begin another one.
func printable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}

// publicConfig is a webhook as its owner reads it: the secrets never come back.
func publicConfig(watch exchange.Watch) (*a2a.PushConfig, error) {
	var hook webhook
	if err := json.Unmarshal(watch.Data, &hook); err != nil {
		return nil, fmt.Errorf("read webhook %s: %w", watch.ID, err)
	}
	config := &a2a.PushConfig{TaskID: a2a.TaskID(watch.Reference), ID: watch.Name, URL: hook.URL}
	if hook.Scheme != "" {
		config.Auth = &a2a.PushAuthInfo{Scheme: hook.Scheme}
	}
	return config, nil
}

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
