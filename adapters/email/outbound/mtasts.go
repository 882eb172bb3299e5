package outbound

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/sync/singleflight"

	"inbox/adapters/email/dns"
)

// Modes of an MTA-STS policy (RFC 8461, section 5).
const (
	PolicyNone    = "none"
	PolicyTesting = "testing"
	PolicyEnforce = "enforce"
)

const (
	maxPolicyBytes = 64 << 10
	maxPolicyHosts = 200
	maxPolicyAge   = 365 * 24 * time.Hour // RFC 8461, section 3.2
	maxPolicyID    = 32

	lettersAndDigits = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
)

// stsPolicy is how a domain wants to be reached. The zero value demands nothing.
type stsPolicy struct {
	mode   string
	hosts  []string // lower-case names; a leading "*." matches one label
	maxAge time.Duration
	dane   *danePolicy // of one server, in the place of the domain's policy; nil = none
}

func (p stsPolicy) enforced() bool { return p.mode == PolicyEnforce }

// demandsTLS reports whether nothing may be sent in the clear.
func (p stsPolicy) demandsTLS() bool { return p.enforced() || p.dane != nil }

// names reports whether the policy lists a mail server (RFC 8461, section 4.1).
func (p stsPolicy) names(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	_, parent, _ := strings.Cut(host, ".")
	for _, pattern := range p.hosts {
		if suffix, wild := strings.CutPrefix(pattern, "*."); wild && parent != "" && suffix == parent || pattern == host {
			return true
		}
	}
	return false
}

var errPolicy = errors.New("not an MTA-STS policy")

// parsePolicy reads a policy file (RFC 8461, section 3.2). Of a duplicate field the first counts; unknown fields are of no
// meaning. The parser of mox gives a whole policy up for an empty line at its end, an unknown field without a value, and a
// max_age over 31 bits (TestPoliciesAsServersWriteThem); its client fetches past safehttp.
func parsePolicy(text []byte) (stsPolicy, error) {
	if len(text) > maxPolicyBytes {
		return stsPolicy{}, fmt.Errorf("%w: larger than 64 KiB", errPolicy)
	}

	policy := stsPolicy{maxAge: -1}
	version := ""
	for line := range strings.SplitSeq(string(text), "\n") {
		name, value, found := strings.Cut(strings.Trim(line, " \t\r"), ":")
		value = strings.Trim(value, " \t")
		switch {
		case !found && name == "":
		case !found:
			return stsPolicy{}, fmt.Errorf("%w: a line is no field", errPolicy)
		case name == "version" && version == "":
			version = value
		case name == "mode" && policy.mode == "":
			policy.mode = value
		case name == "max_age" && policy.maxAge < 0:
			seconds, err := strconv.ParseUint(value, 10, 40)
			if err != nil || len(value) > 10 {
				return stsPolicy{}, fmt.Errorf("%w: max_age is no number of seconds", errPolicy)
			}
			policy.maxAge = time.Duration(min(seconds, uint64(maxPolicyAge/time.Second))) * time.Second

		case name == "mx" && len(policy.hosts) < maxPolicyHosts:
			if !policyHost(value) {
				return stsPolicy{}, fmt.Errorf("%w: mx is no host name", errPolicy)
			}
			policy.hosts = append(policy.hosts, strings.ToLower(value))
		}
	}

	switch {
	case version != "STSv1":
		return stsPolicy{}, fmt.Errorf("%w: version is not STSv1", errPolicy)
	case policy.maxAge < 0:
		return stsPolicy{}, fmt.Errorf("%w: no max_age", errPolicy)
	case policy.mode != PolicyNone && policy.mode != PolicyTesting && policy.mode != PolicyEnforce:
		return stsPolicy{}, fmt.Errorf("%w: mode is unknown", errPolicy)
	case policy.mode != PolicyNone && len(policy.hosts) == 0:
		return stsPolicy{}, fmt.Errorf("%w: no mx", errPolicy)
	}

	return policy, nil
}

func policyHost(text string) bool {
	name := strings.TrimPrefix(text, "*.")
	if name == "" || len(name) > 253 || strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".") || strings.Contains(name, "..") {
		return false
	}

	return strings.Trim(name, lettersAndDigits+"-._") == ""
}

// PolicyID reads the TXT records at _mta-sts.<domain>; empty = the domain announces no policy (RFC 8461, section 3.1).
func PolicyID(records []string) string {
	found := ""
	for _, text := range records {
		version, rest, _ := strings.Cut(text, ";")
		if strings.TrimSpace(version) != "v=STSv1" {
			continue
		}

		if found != "" {
			return "" // several records count as none
		}

		if found = dns.Tags(rest)["id"]; !plainID(found) {
			return ""
		}
	}

	return found
}

func plainID(id string) bool {
	return id != "" && len(id) <= maxPolicyID && strings.Trim(id, lettersAndDigits) == ""
}

// ownPolicyAge is how long others keep our policy: long enough to protect, short enough to move a server.
const ownPolicyAge = 7 * 24 * time.Hour

// PolicyFile returns the MTA-STS policy of a domain whose only mail server is hostname, and the id that its TXT record
// announces: it follows from the text, so that it changes whenever the policy does.
func PolicyFile(mode, hostname string) (text, id string) {
	text = "version: STSv1\r\nmode: " + mode + "\r\n"
	if mode != PolicyNone {
		text += "mx: " + hostname + "\r\n"
	}
	text += "max_age: " + strconv.Itoa(int(ownPolicyAge.Seconds())) + "\r\n"
	sum := sha256.Sum256([]byte(text))
	return text, hex.EncodeToString(sum[:8])
}

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
// most limit bytes. An error means that there is no usable file.
type PolicyFetcher interface {
	FetchPolicy(ctx context.Context, domain string, limit int64) (text []byte, err error)
}

// PolicyState keeps policies, shared by all nodes.
type PolicyState interface {
	Get(ctx context.Context, namespace, key string) (value []byte, found bool, err error)
	Put(ctx context.Context, namespace, key string, value []byte, expires time.Time) error
}

// policyCache finds the policies of domains. They are kept in State for as long as they say, so that neither a restart nor
// an attacker who hides the records can remove the protection.
type policyCache struct {
	dns     *dns.Resolver
	state   PolicyState
	fetcher PolicyFetcher // nil = policies are not asked for
	now     func() time.Time
	log     *slog.Logger
	flights singleflight.Group

	mu      sync.Mutex
	failed  *simplelru.LRU[string, time.Time] // fetches that need not be tried again yet
	doubted *simplelru.LRU[string, time.Time] // policies that were asked for again because no server fits them
}

// keptPolicy is a policy in State.
type keptPolicy struct {
	ID      string    `json:"id"`
	Text    string    `json:"text"`
	Fetched time.Time `json:"fetched"`
}

func newPolicyCache(dns *dns.Resolver, state PolicyState, fetcher PolicyFetcher, now func() time.Time, log *slog.Logger) *policyCache {
	failed, _ := simplelru.NewLRU[string, time.Time](maxPolicyStates, nil)
	doubted, _ := simplelru.NewLRU[string, time.Time](maxPolicyStates, nil)
	return &policyCache{dns: dns, state: state, fetcher: fetcher, now: now, log: log, failed: failed, doubted: doubted}
}

// find returns the policy of a domain; the zero policy when it has none.
func (p *policyCache) find(ctx context.Context, domain string) stsPolicy {
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

func (p *policyCache) current(ctx context.Context, domain string) stsPolicy {
	kept, known := p.kept(ctx, domain)
	records, err := p.dns.LookupTXT(ctx, "_mta-sts."+domain)
	id := PolicyID(records)
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

// kept returns the policy in State, while it is valid.
func (p *policyCache) kept(ctx context.Context, domain string) (keptPolicy, *stsPolicy) {
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

func (p *policyCache) fetch(ctx context.Context, domain, id string) (stsPolicy, error) {
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

func (p *policyCache) keep(ctx context.Context, domain string, kept keptPolicy, age time.Duration) error {
	value, err := json.Marshal(kept)
	if err != nil {
		return fmt.Errorf("encode policy: %w", err)
	}
	if err := p.state.Put(ctx, stsNamespace, domain, value, p.now().Add(max(age, time.Second))); err != nil {
		return fmt.Errorf("store policy: %w", err)
	}
	return nil
}

func (p *policyCache) note(domain string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed.Add(domain, p.now())
}

func (p *policyCache) justFailed(domain string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, found := p.failed.Get(domain)
	return found && p.now().Sub(at) < policyRetry
}

// doubt makes the next attempt ask for the policy again, once in a while: its domain may have changed its servers first.
func (p *policyCache) doubt(ctx context.Context, domain string) {
	p.mu.Lock()
	at, before := p.doubted.Get(domain)
	again := !before || p.now().Sub(at) >= policyRetry
	if again {
		p.doubted.Add(domain, p.now())
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
