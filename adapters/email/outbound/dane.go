package outbound

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/internal/safehttp"
)

var metricDANE = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_email_dane_total", Help: "Looks at the TLSA records of mail servers by result (none, demanded, unreachable)."}, []string{"result"})

// SecureDNS asks a validating resolver on this machine; *safehttp.SecureResolver is one.
type SecureDNS interface {
	SecureMX(ctx context.Context, domain string) (bool, error)
	SecureHost(ctx context.Context, host string) (name string, secure bool, err error)
	LookupTLSA(ctx context.Context, name string) (records []safehttp.TLSA, secure bool, err error)
}

// Fields of a TLSA record that mean something for mail (RFC 7672, section 3.1).
const (
	daneTA        = 2 // the certificate of an authority that the chain must lead to
	daneEE        = 3 // the server's own certificate
	selectCert    = 0
	selectKey     = 1
	matchExact    = 0
	matchSHA256   = 1
	matchSHA512   = 2
	maxTLSARecord = 50
)

// danePolicy is what the TLSA records of a server demand. Without a usable record TLS alone is demanded (RFC 7672, section
// 2.2).
type danePolicy struct {
	records []safehttp.TLSA // those that are usable
	names   []string        // that the certificate of an authority may vouch for
}

// daneOf returns what a mail server demands; nil = nothing. An error means that it must not be reached now: an attacker may be
// hiding its records (RFC 7672, section 2.1.2).
func (m *Direct) daneOf(ctx context.Context, domain, host string) (*danePolicy, error) {
	if m.secureDNS == nil {
		return nil, nil
	}

	policy, err := m.lookUpDANE(ctx, domain, host)
	switch {
	case err != nil:
		metricDANE.WithLabelValues("unreachable").Inc()
		return nil, &setupError{fmt.Errorf("%s: the TLSA records cannot be looked up (4.4.3): %w", host, err)}
	case policy == nil:
		metricDANE.WithLabelValues("none").Inc()
	default:
		metricDANE.WithLabelValues("demanded").Inc()
	}

	return policy, nil
}

// lookUpDANE goes from the domain to the server as RFC 7672, section 2.2, does: each step must be proven for the next one to
// mean anything.
func (m *Direct) lookUpDANE(ctx context.Context, domain, host string) (*danePolicy, error) {
	if secure, err := m.secureDNS.SecureMX(ctx, domain); err != nil || !secure {
		return nil, err
	}

	target, secure, err := m.secureDNS.SecureHost(ctx, host)
	if err != nil || !secure {
		return nil, err
	}

	bases := []string{target}
	if !strings.EqualFold(target, host) {
		bases = append(bases, host)
	}

	for _, base := range bases {
		records, secure, err := m.secureDNS.LookupTLSA(ctx, "_"+strconv.Itoa(m.port)+"._tcp."+base)
		switch {
		case err != nil:
			return nil, err
		case secure && len(records) > 0:
			return &danePolicy{records: usable(records), names: []string{base, host, domain}}, nil
		}
	}

	return nil, nil
}

func usable(records []safehttp.TLSA) (list []safehttp.TLSA) {
	for _, one := range records[:min(len(records), maxTLSARecord)] {
		length := map[uint8]int{matchSHA256: sha256.Size, matchSHA512: sha512.Size, matchExact: len(one.Data)}
		if (one.Usage == daneTA || one.Usage == daneEE) && one.Selector <= selectKey && one.Matching <= matchSHA512 &&
			len(one.Data) > 0 && len(one.Data) == length[one.Matching] {
			list = append(list, one)
		}
	}
	return list
}

// check compares the certificates of a session with the records.
func (p *danePolicy) check(state tls.ConnectionState) error {
	if len(p.records) == 0 {
		return nil // encrypted is all that can be asked for
	}

	if len(state.PeerCertificates) == 0 {
		return errors.New("no certificate")
	}

	for _, one := range p.records {
		if one.Usage == daneEE && matches(one, state.PeerCertificates[0]) {
			return nil // neither names nor dates count (RFC 7671, section 5.1)
		}
		if one.Usage == daneTA && p.vouched(one, state.PeerCertificates) {
			return nil
		}
	}

	return errors.New("the certificate is none of those that its TLSA records name (4.7.10)")
}

// vouched reports whether the chain leads to the authority of a record, for one of the names.
func (p *danePolicy) vouched(record safehttp.TLSA, chain []*x509.Certificate) bool {
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	known := false
	for _, one := range chain {
		if matches(record, one) {
			roots.AddCert(one)
			known = true
		}
		between.AddCert(one)
	}

	if record.Selector == selectCert && record.Matching == matchExact && !known {
		if one, err := x509.ParseCertificate(record.Data); err == nil {
			roots.AddCert(one)
			known = true
		}
	}

	if !known {
		return false
	}

	for _, name := range p.names {
		if _, err := chain[0].Verify(x509.VerifyOptions{DNSName: name, Roots: roots, Intermediates: between}); err == nil {
			return true
		}
	}

	return false
}

func matches(record safehttp.TLSA, certificate *x509.Certificate) bool {
	content := certificate.Raw
	if record.Selector == selectKey {
		content = certificate.RawSubjectPublicKeyInfo
	}

	switch record.Matching {
	case matchSHA256:
		sum := sha256.Sum256(content)
		content = sum[:]
	case matchSHA512:
		sum := sha512.Sum512(content)
		content = sum[:]
	}

	return bytes.Equal(content, record.Data)
}
