package outbound

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"strings"
	"testing"
	"time"

	"inbox/adapters/email/emailtest"
	"inbox/internal/fault"
	"inbox/internal/safehttp"
)

// chainFor makes an authority and a certificate of it for a name.
func chainFor(t *testing.T, name string, ends time.Time) (chain tls.Certificate, leaf, authority *x509.Certificate) {
	t.Helper()
	issue := func(template, parent *x509.Certificate, by *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if by == nil {
			parent, by = template, key
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return parsed, key
	}
	begin := ends.Add(-48 * time.Hour)
	authority, authorityKey := issue(&x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: begin, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}, nil, nil)
	leaf, key := issue(&x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotBefore: begin, NotAfter: ends,
	}, authority, authorityKey)
	return tls.Certificate{Certificate: [][]byte{leaf.Raw, authority.Raw}, PrivateKey: key}, leaf, authority
}

func sum256(data []byte) []byte { sum := sha256.Sum256(data); return sum[:] }
func sum512(data []byte) []byte { sum := sha512.Sum512(data); return sum[:] }

func TestDANE(t *testing.T) {
	good, leaf, authority := chainFor(t, "mail.test", time.Now().Add(time.Hour))
	old, oldLeaf, oldAuthority := chainFor(t, "mail.test", time.Now().Add(-time.Hour))
	other, otherLeaf, otherAuthority := chainFor(t, "elsewhere.test", time.Now().Add(time.Hour))
	const delivered, deferred = "", "4.7.10"
	for name, c := range map[string]struct {
		serve   *tls.Certificate // nil = no STARTTLS
		publish func(*emailtest.NameServer)
		want    string // part of the reason why it waits; empty = delivered
		how     string // part of the operator's line
	}{
		"no records":              {&good, func(*emailtest.NameServer) {}, delivered, "TLS 1.3:"},
		"no records, no TLS":      {nil, func(*emailtest.NameServer) {}, delivered, "without TLS"},
		"the certificate":         {&good, func(n *emailtest.NameServer) { n.Demand("mail.test", 3, 0, 0, leaf.Raw) }, delivered, "(DANE)"},
		"its key":                 {&good, func(n *emailtest.NameServer) { n.Demand("mail.test", 3, 1, 1, sum256(leaf.RawSubjectPublicKeyInfo)) }, delivered, "(DANE)"},
		"its key by SHA-512":      {&good, func(n *emailtest.NameServer) { n.Demand("mail.test", 3, 1, 2, sum512(leaf.RawSubjectPublicKeyInfo)) }, delivered, "(DANE)"},
		"a key that ended":        {&old, func(n *emailtest.NameServer) { n.Demand("mail.test", 3, 0, 1, sum256(oldLeaf.Raw)) }, delivered, "(DANE)"},
		"a key with another name": {&other, func(n *emailtest.NameServer) { n.Demand("mail.test", 3, 0, 1, sum256(otherLeaf.Raw)) }, delivered, "(DANE)"},
		"another key":             {&good, func(n *emailtest.NameServer) { n.Demand("mail.test", 3, 0, 1, sum256(otherLeaf.Raw)) }, deferred, ""},
		"one of two keys": {&good, func(n *emailtest.NameServer) {
			n.Demand("mail.test", 3, 0, 1, sum256(otherLeaf.Raw))
			n.Demand("mail.test", 3, 0, 1, sum256(leaf.Raw))
		}, delivered, "(DANE)"},
		"the authority": {&good, func(n *emailtest.NameServer) { n.Demand("mail.test", 2, 0, 1, sum256(authority.Raw)) }, delivered, "(DANE)"},
		"the authority's key": {&good, func(n *emailtest.NameServer) {
			n.Demand("mail.test", 2, 1, 1, sum256(authority.RawSubjectPublicKeyInfo))
		}, delivered, "(DANE)"},
		"the authority itself":        {&tls.Certificate{Certificate: good.Certificate[:1], PrivateKey: good.PrivateKey}, func(n *emailtest.NameServer) { n.Demand("mail.test", 2, 0, 0, authority.Raw) }, delivered, "(DANE)"},
		"the authority, an old one":   {&old, func(n *emailtest.NameServer) { n.Demand("mail.test", 2, 0, 1, sum256(oldAuthority.Raw)) }, deferred, ""},
		"the authority, another name": {&other, func(n *emailtest.NameServer) { n.Demand("mail.test", 2, 0, 1, sum256(otherAuthority.Raw)) }, deferred, ""},
		"another authority":           {&good, func(n *emailtest.NameServer) { n.Demand("mail.test", 2, 0, 1, sum256(otherAuthority.Raw)) }, deferred, ""},
		"records, but no TLS":         {nil, func(n *emailtest.NameServer) { n.Demand("mail.test", 3, 0, 1, sum256(leaf.Raw)) }, "no STARTTLS", ""},
		"only records of other uses": {&other, func(n *emailtest.NameServer) {
			n.Demand("mail.test", 1, 0, 1, sum256(leaf.Raw))
			n.Demand("mail.test", 3, 0, 1, []byte("short"))
		}, delivered, "(DANE)"},
		"useless records, no TLS": {nil, func(n *emailtest.NameServer) { n.Demand("mail.test", 0, 0, 1, sum256(leaf.Raw)) }, "no STARTTLS", ""},
		"nothing is proven": {&good, func(n *emailtest.NameServer) {
			n.Demand("mail.test", 3, 0, 1, sum256(otherLeaf.Raw))
			n.With(func() { n.Validates = false })
		}, delivered, "TLS 1.3:"},
		"the MX record is not": {&good, func(n *emailtest.NameServer) {
			n.Demand("mail.test", 3, 0, 1, sum256(otherLeaf.Raw))
			n.With(func() { n.Unsigned["sender.test."] = true })
		}, delivered, "TLS 1.3:"},
		"the address is not": {&good, func(n *emailtest.NameServer) {
			n.Demand("mail.test", 3, 0, 1, sum256(otherLeaf.Raw))
			n.With(func() { n.Unsigned["mail.test."] = true })
		}, delivered, "TLS 1.3:"},
		"the record is not": {&good, func(n *emailtest.NameServer) {
			n.Demand("mail.test", 3, 0, 1, sum256(otherLeaf.Raw))
			n.With(func() { n.Unsigned["_25._tcp.mail.test."] = true })
		}, delivered, "TLS 1.3:"},
		"somebody hides the record": {&good, func(n *emailtest.NameServer) { n.Break("_25._tcp.mail.test") }, "4.4.3", ""},
		"before the policy of MTA-STS": {&good, func(n *emailtest.NameServer) {
			n.Demand("mail.test", 3, 0, 1, sum256(leaf.Raw))
			n.Text("_mta-sts.sender.test", "v=STSv1; id=1")
		}, delivered, "(DANE)"},
		"the policy where none is": {&good, func(n *emailtest.NameServer) { n.Text("_mta-sts.sender.test", "v=STSv1; id=1") }, "certificate", ""},
		"the policy names other servers": {&good, func(n *emailtest.NameServer) {
			n.Demand("mail.test", 3, 0, 1, sum256(leaf.Raw))
			n.Text("_mta-sts.sender.test", "v=STSv1; id=elsewhere")
		}, delivered, "(DANE)"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			secure, err := safehttp.NewSecureResolver(w.names.Address)
			if err != nil {
				t.Fatal(err)
			}
			w.secureDNS = secure
			var config *tls.Config
			if c.serve != nil {
				config = &tls.Config{Certificates: []tls.Certificate{*c.serve}}
			}
			k := emailtest.StartSink(t, false, config, "")
			w.names.MX("sender.test", "10 mail.test")
			w.host("mail.test", "192.0.2.1", k)
			w.names.Mu.Lock()
			w.names.Validates, w.names.Unsigned = true, map[string]bool{}
			w.names.Mu.Unlock()
			c.publish(w.names)
			w.desk.publish("sender.test", enforced)
			if strings.Contains(name, "other servers") {
				w.desk.publish("sender.test", strings.ReplaceAll(enforced, "mail.test", "elsewhere.test"))
			}
			detail, err := w.try()
			_, _, mails := k.Counts()
			if c.want == "" {
				if err != nil || mails != 1 || !strings.Contains(detail, c.how) || c.how != "(DANE)" && strings.Contains(detail, "DANE") {
					t.Errorf("%d mails, %q, %v", mails, detail, err)
				}
				return
			}
			if err == nil || fault.Of(err).Permanent || !strings.Contains(fault.Of(err).Public, c.want) || mails != 0 {
				t.Errorf("%v with %d mails; want %q, to be repeated", err, mails, c.want)
			}
		})
	}
}

func TestOnlyResolversOfThisMachineAreBelieved(t *testing.T) {
	for address, want := range map[string]bool{"127.0.0.1:53": true, "[::1]:5353": true, "192.0.2.1:53": false, "localhost:53": false, "": false, "8.8.8.8:53": false} {
		if _, err := safehttp.NewSecureResolver(address); (err == nil) != want {
			t.Errorf("%s: %v", address, err)
		}
	}
}
