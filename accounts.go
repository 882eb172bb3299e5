package inbox

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"time"

	"inbox/adapters/chat"
	"inbox/console/account"
	"inbox/console/pages"
	"inbox/exchange"
	"inbox/internal/httpserver"
	"inbox/internal/openid"
	"inbox/operator"
)

// signInRates bound attempts to sign in at the console from one address. Tokens cannot be guessed; what is bounded are the look-ups.
var signInRates = []httpserver.Rate{{Requests: 20, Window: time.Minute}, {Requests: 200, Window: time.Hour}}

// newConsole makes the operator's pages and what lets operators in.
func (w *web) newConsole() (*pages.Pages, error) {
	var channels []string
	for module := range w.channels.All() {
		channels = append(channels, module.Name)
	}
	say := func(ctx context.Context, agent string, by exchange.Token, words, key string) (string, error) {
		return w.chat.Say(ctx, agent, by, chat.OperatorChat{Message: words, Continue: true, RunID: key})
	}
	readiness := sync.OnceValue(func() *httpserver.Readiness { return httpserver.NewReadiness(w.readiness()) })
	return pages.New(pages.Options{
		Operator: w.operatorHere(), Domain: w.config.Domain, Channels: channels, Version: Version, Say: say, Logger: w.logger,
		Health: func(ctx context.Context) []httpserver.Detail { return readiness().Look(ctx) },
	}, w.newAccounts)
}

// newAccounts makes what lets operators into the console, with the pages that it draws.
func (m *modules) newAccounts(drawn account.Pages) (*account.Accounts, error) {
	base, err := url.Parse(m.config.ConsoleURL())
	if err != nil {
		return nil, fmt.Errorf("admin.url: %w", err)
	}

	options := account.Options{
		Sessions: m.store, Tokens: m.tokens, Audit: m.store, Pages: drawn,
		Rules:    func() exchange.ConsoleRules { return operator.Rules(m.now().config) },
		Lifetime: m.config.Admin.SessionLifetime, URL: base,
		Pace: httpserver.NewClientLimiter(signInRates, m.networks()), Logger: m.logger,
	}

	if oidc := m.config.Admin.OIDC; oidc.Issuer != "" {
		_, client, err := m.trustingOperator(oidc.Issuer)
		if err != nil {
			return nil, fmt.Errorf("admin.oidc.issuer: %w", err)
		}
		options.Service, err = openid.New(openid.Options{
			Name: oidc.Name, Issuer: oidc.Issuer, ClientID: oidc.ClientID, ClientSecret: oidc.ClientSecret.Reveal(),
			RedirectURL: base.String() + account.ReturnPath, Scopes: oidc.Scopes, GroupsClaim: oidc.GroupsClaim, HTTP: client,
		})
		if err != nil {
			return nil, err
		}
	}

	return account.New(options)
}

// runTokens writes when tokens were used last.
func (r *resources) runTokens(ctx context.Context) error {
	return r.tokens.Run(ctx, r.store, func(err error) {
		r.logger.WarnContext(ctx, "when tokens were used last is written later", "error", err)
	})
}
