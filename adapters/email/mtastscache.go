package email

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"inbox/adapters/email/dns"
	"inbox/internal/bounded"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/sync/singleflight"
)

var metricPolicies = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_email_sts_fetches_total", Help: "Fetches of MTA-STS policies by result (fetched, failed)."}, []string{"result"})

const (
	stsNamespace    = "email/mta-sts"
	policyTimeout   = 60 * time.Second // RFC 8461, section 3.3
	policyRetry     = 5 * time.Minute  // after a fetch that failed
	policyFresh     = 24 * time.Hour   // a policy is fetched again after that, whatever its id
	maxPolicyStates = 10_000
)

// PolicyFetcher gets the policy file of a domain (RFC 8461, section 3.3): HTTPS with a valid certificate, no redirects, at
// most limit bytes. The error says that there is no usable file.
type PolicyFetcher interface {
	FetchPolicy(ctx context.Context, domain string, limit int64) (text []byte, err error)
}

// stsPolicies finds the policies of domains. They are kept in State for as long as they say, so that neither a restart nor
// somebody who hides the records can take the protection away.
type stsPolicies struct {
	dns     *dns.Resolver
	state   State
	fetcher PolicyFetcher // nil = policies are not asked for
	now     func() time.Time
	log     *slog.Logger
	flights singleflight.Group

	mu      sync.Mutex
	failed  map[string]time.Time // fetches that need not be tried again yet
	doubted map[string]time.Time // policies that were asked for again because no server fits them
}

// keptPolicy is a policy in State.
type keptPolicy struct {
	ID      string    `json:"id"`
	Text    string    `json:"text"`
	Fetched time.Time `json:"fetched"`
}

func newSTSPolicies(dns *dns.Resolver, state State, fetcher PolicyFetcher, now func() time.Time, log *slog.Logger) *stsPolicies {
	return &stsPolicies{dns: dns, state: state, fetcher: fetcher, now: now, log: log, failed: map[string]time.Time{}, doubted: map[string]time.Time{}}
}

// find gives the policy of a domain; the zero policy when it has none.
func (p *stsPolicies) find(ctx context.Context, domain string) stsPolicy {
	if p.fetcher == nil {
		return stsPolicy{}
	}
	found, err, _ := p.flights.Do(domain, func() (any, error) { return p.current(ctx, domain), nil })
	policy, _ := found.(stsPolicy)
	if err != nil {
		return stsPolicy{}
	}
	return policy
}

func (p *stsPolicies) current(ctx context.Context, domain string) stsPolicy {
	kept, known := p.kept(ctx, domain)
	records, err := p.dns.LookupTXT(ctx, "_mta-sts."+domain)
	id := policyID(records)
	switch {
	case known != nil && (err != nil || id == "" || id == kept.ID && p.now().Sub(kept.Fetched) < policyFresh):
		return *known // a record that is gone takes nothing back before the policy ends
	case id == "", p.justFailed(domain):
		return orNone(known)
	}
	fetched, err := p.fetch(ctx, domain, id)
	if err != nil {
		p.note(domain)
		p.log.Info("an MTA-STS policy could not be fetched", "domain", domain, "kept", known != nil, "error", err)
		return orNone(known)
	}
	return fetched
}

func orNone(policy *stsPolicy) stsPolicy {
	if policy == nil {
		return stsPolicy{}
	}
	return *policy
}

// kept gives the policy in State, while it is valid.
func (p *stsPolicies) kept(ctx context.Context, domain string) (keptPolicy, *stsPolicy) {
	var kept keptPolicy
	value, found, err := p.state.Get(ctx, stsNamespace, domain)
	if err != nil || !found || json.Unmarshal(value, &kept) != nil {
		return keptPolicy{}, nil
	}
	policy, err := parsePolicy([]byte(kept.Text))
	if err != nil || p.now().After(kept.Fetched.Add(policy.maxAge)) {
		return keptPolicy{}, nil
	}
	return kept, &policy
}

func (p *stsPolicies) fetch(ctx context.Context, domain, id string) (stsPolicy, error) {
	asking, cancel := context.WithTimeout(ctx, policyTimeout)
	defer cancel()
	text, err := p.fetcher.FetchPolicy(asking, domain, maxPolicyBytes)
	if err == nil {
		var policy stsPolicy
		if policy, err = parsePolicy(text); err == nil {
			metricPolicies.WithLabelValues("fetched").Inc()
			if err := p.keep(ctx, domain, keptPolicy{ID: id, Text: string(text), Fetched: p.now()}, policy.maxAge); err != nil {
				p.log.Warn("an MTA-STS policy holds for this attempt only: it could not be kept", "domain", domain, "error", err)
			}
			return policy, nil
		}
	}
	metricPolicies.WithLabelValues("failed").Inc()
	return stsPolicy{}, err
}

func (p *stsPolicies) keep(ctx context.Context, domain string, kept keptPolicy, age time.Duration) error {
	value, err := json.Marshal(kept)
	if err != nil {
		return fmt.Errorf("encode policy: %w", err)
	}
	if err := p.state.Put(ctx, stsNamespace, domain, value, p.now().Add(max(age, time.Second))); err != nil {
		return fmt.Errorf("store policy: %w", err)
	}
	return nil
}

func (p *stsPolicies) note(domain string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	remember(p.failed, domain, p.now())
}

func (p *stsPolicies) justFailed(domain string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, found := p.failed[domain]
	return found && p.now().Sub(at) < policyRetry
}

func remember(times map[string]time.Time, domain string, now time.Time) {
	if len(times) >= maxPolicyStates {
		bounded.MakeRoom(times, func(at time.Time) bool { return now.Sub(at) > policyRetry })
	}
	times[domain] = now
}

// doubt makes the next attempt ask for the policy again, once in a while: its domain may have changed its servers first.
func (p *stsPolicies) doubt(ctx context.Context, domain string) {
	p.mu.Lock()
	at, before := p.doubted[domain]
	again := !before || p.now().Sub(at) >= policyRetry
	if again {
		remember(p.doubted, domain, p.now())
	}
	p.mu.Unlock()
	if !again {
		return
	}
	kept, known := p.kept(ctx, domain)
	if known == nil {
		return
	}
	kept.ID = ""
	if err := p.keep(ctx, domain, kept, kept.Fetched.Add(known.maxAge).Sub(p.now())); err != nil && ctx.Err() == nil {
		p.log.Warn("an MTA-STS policy could not be marked for another look", "domain", domain, "error", err)
	}
}
