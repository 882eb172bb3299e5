package a2a

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/exchange"
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
	Named   func(u *url.URL) bool // optional: whether the host needs not confirm, because the operator named it; nil = none
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

func noPush() *problem {
	return newProblem(a2a.ErrPushNotificationNotSupported, "push notifications are not offered; stream or poll the task")
}

func (h *handler) watchesOf(ctx context.Context, c *call, id a2a.TaskID) ([]exchange.Watch, error) {
	return h.options.Push.Watches.Watches(ctx, c.owner.agent, c.owner.caller, string(id))
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
		ID: newID(), Agent: c.owner.agent, Principal: c.owner.caller, Reference: string(id), Name: config.ID, CreatedAt: time.Now().UTC(),
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
		return inField("token", "is too long or has characters that a header cannot have")
	}

	if err := h.options.Push.Web.CheckTarget(ctx, address); err != nil {
		return inField("url", "must be a public https address, or one that the operator of this server allows")
	}

	if auth := config.Auth; auth != nil {
		if auth.Scheme == "" || strings.ContainsAny(auth.Scheme, " \t") || len(auth.Scheme) > maxWebhookName || !printable(auth.Scheme) {
			return inField("authentication.scheme", "is needed, one word such as Bearer")
		}
		if len(auth.Credentials) > maxWebhookToken || !printable(auth.Credentials) {
			return inField("authentication.credentials", "are too long or have characters that a header cannot have")
		}
	}

	return nil
}

// printable reports whether a text may stand in a header: a line end in it would begin another one.
func printable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
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
