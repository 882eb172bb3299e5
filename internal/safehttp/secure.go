package safehttp

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"
)

const (
	secureTimeout = 5 * time.Second
	secureSize    = 1232 // bytes that a UDP answer may have without being cut on its way
)

// SecureResolver asks a validating resolver what DNSSEC proves (RFC 4035). It believes the resolver's word, the AD bit, and
// therefore only one on this machine: on any network the bit could be written by anyone (RFC 7672, section 2.2.1).
type SecureResolver struct{ address string }

// TLSA says which certificates a server has (RFC 6698, section 2).
type TLSA struct {
	Usage, Selector, Matching uint8
	Data                      []byte
}

// NewSecureResolver makes a resolver that asks at an address of this machine, "127.0.0.1:53" or the like.
func NewSecureResolver(address string) (*SecureResolver, error) {
	endpoint, err := netip.ParseAddrPort(address)
	if err != nil || !endpoint.Addr().Unmap().IsLoopback() {
		return nil, fmt.Errorf("%q is no resolver on this machine: what it says about DNSSEC could be forged on its way", address)
	}
	return &SecureResolver{address}, nil
}

// Validates reports whether the resolver proves what it says: the root of the DNS is signed.
func (r *SecureResolver) Validates(ctx context.Context) (bool, error) {
	answer, err := r.ask(ctx, ".", dns.TypeSOA)
	return err == nil && answer.AuthenticatedData, err
}

// SecureMX reports whether the answer about a domain's mail servers is proven, also where it has none.
func (r *SecureResolver) SecureMX(ctx context.Context, domain string) (bool, error) {
	answer, err := r.ask(ctx, domain, dns.TypeMX)
	return err == nil && answer.AuthenticatedData, err
}

// SecureHost reports whether the addresses of a host are proven, and under which name they stand at the end of its aliases.
func (r *SecureResolver) SecureHost(ctx context.Context, host string) (name string, secure bool, err error) {
	for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA} {
		answer, err := r.ask(ctx, host, kind)
		if err != nil {
			return "", false, err
		}
		for _, record := range answer.Answer {
			if record.Header().Rrtype == kind {
				return strings.ToLower(strings.TrimSuffix(record.Header().Name, ".")), answer.AuthenticatedData, nil
			}
		}
	}
	return host, false, nil
}

// LookupTLSA returns the records of a name. secure reports whether the answer is proven, also where it has none; records are
// given only then.
func (r *SecureResolver) LookupTLSA(ctx context.Context, name string) (records []TLSA, secure bool, err error) {
	answer, err := r.ask(ctx, name, dns.TypeTLSA)
	if err != nil || !answer.AuthenticatedData {
		return nil, false, err
	}

	for _, record := range answer.Answer {
		if one, is := record.(*dns.TLSA); is {
			data, err := hex.DecodeString(one.Certificate)
			if err != nil {
				return nil, true, fmt.Errorf("TLSA record of %s: %w", name, err)
			}
			records = append(records, TLSA{Usage: one.Usage, Selector: one.Selector, Matching: one.MatchingType, Data: data})
		}
	}

	return records, true, nil
}

// ask returns an answer that is one: an unknown name is, a resolver that found a forgery (SERVFAIL) sends none.
func (r *SecureResolver) ask(ctx context.Context, name string, kind uint16) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, secureTimeout)
	defer cancel()
	query := new(dns.Msg).SetQuestion(dns.Fqdn(strings.ToLower(name)), kind)
	query.AuthenticatedData = true
	query.SetEdns0(secureSize, true)
	answer, _, err := (&dns.Client{UDPSize: secureSize}).ExchangeContext(ctx, query, r.address)
	if err == nil && answer.Truncated {
		answer, _, err = (&dns.Client{Net: "tcp"}).ExchangeContext(ctx, query, r.address)
	}
	switch {
	case err != nil:
		return nil, &net.DNSError{Err: err.Error(), Name: name, Server: r.address, IsTemporary: true, IsTimeout: errors.Is(err, context.DeadlineExceeded)}
	case answer.Rcode != dns.RcodeSuccess && answer.Rcode != dns.RcodeNameError:
		return nil, &net.DNSError{Err: dns.RcodeToString[answer.Rcode], Name: name, Server: r.address, IsTemporary: true}
	}

	return answer, nil
}
