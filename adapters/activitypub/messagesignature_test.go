package activitypub

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// message turns a delivery into one signed by RFC 9421, written apart from the code under test.
type message struct {
	*delivery
	r          *rig
	components string
	parameters string
	digest     string
}

func (r *rig) message(d *delivery) *message {
	sum := sha256.Sum256(d.body)
	return &message{
		delivery: d, r: r, components: `"@method" "@target-uri" "@authority" "host" "date" "content-digest"`,
		parameters: fmt.Sprintf(`;alg="rsa-v1_5-sha256";keyid="%s";created=%d`, d.keyID, time.Now().Unix()),
		digest:     "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":",
	}
}

func (m *message) sign() *delivery {
	m.header.Set("Content-Digest", m.digest)
	var base strings.Builder
	for name := range strings.FieldsSeq(m.components) {
		value := m.header.Get(strings.Trim(name, `"`))
		path, query, _ := strings.Cut(m.path, "?")
		switch name {
		case `"@method"`:
			value = m.method
		case `"@target-uri"`:
			value = m.r.base + m.path
		case `"@authority"`, `"host"`:
			value = m.r.domain
		case `"@path"`:
			value = path
		case `"@query"`:
			value = "?" + query
		}
		base.WriteString(name + ": " + value + "\n")
	}
	list := "(" + m.components + ")" + m.parameters
	base.WriteString(`"@signature-params": ` + list)
	sum := sha256.Sum256([]byte(base.String()))
	signature, err := rsa.SignPKCS1v15(rand.Reader, m.key, crypto.SHA256, sum[:])
	if err != nil {
		panic(err)
	}
	m.header.Set("Signature-Input", "sig1="+list)
	m.header.Set("Signature", "sig1=:"+base64.StdEncoding.EncodeToString(signature)+":")
	return m.delivery
}

func TestMessageSignatures(t *testing.T) {
	cases := []struct {
		name   string
		change func(*message)
		status int
		reason string
		fetch  bool // whether the key may be fetched
	}{
		{"Fedify", func(*message) {}, 202, "", true},
		{"Mastodon", func(m *message) { m.components = `"@method" "@target-uri" "content-digest"` }, 202, "", true},
		{"authority and path instead of target", func(m *message) { m.components = `"@method" "@authority" "@path" "content-digest"` }, 202, "", true},
		{"authority, path and query", func(m *message) {
			m.path, m.components = "/inbox?a=b", `"@method" "@authority" "@path" "@query" "content-digest"`
		}, 202, "", true},
		{"no algorithm", func(m *message) { m.parameters = strings.Replace(m.parameters, `;alg="rsa-v1_5-sha256"`, "", 1) }, 202, "", true},
		{"query not covered", func(m *message) {
			m.path, m.components = "/inbox?a=b", `"@method" "@authority" "@path" "content-digest"`
		}, 401, "@target-uri", false},
		{"digest not covered", func(m *message) { m.components = `"@method" "@target-uri"` }, 401, "content-digest", false},
		{"method not covered", func(m *message) { m.components = `"@target-uri" "content-digest"` }, 401, "@method", false},
		{"tampered body", func(m *message) { m.body = append(m.body, ' ') }, 401, "does not match", false},
		{"digest of another algorithm", func(m *message) { m.digest = "sha-512=:AAAA:" }, 401, "no sha-256", false},
		{"wrong key", func(m *message) { m.key = malloryKey() }, 401, "does not verify", true},
		{"no created", func(m *message) { m.parameters = fmt.Sprintf(`;keyid="%s"`, m.keyID) }, 401, "keyid and created", false},
		{"no keyid", func(m *message) { m.parameters = fmt.Sprintf(`;created=%d`, time.Now().Unix()) }, 401, "keyid and created", false},
		{"two days old", func(m *message) {
			m.parameters = fmt.Sprintf(`;keyid="%s";created=%d`, m.keyID, time.Now().Add(-48*time.Hour).Unix())
		}, 401, "too old", false},
		{"expires at no time", func(m *message) { m.parameters += ";expires=0" }, 401, "expires is not a time", false},
		{"expires as text", func(m *message) { m.parameters += `;expires="never"` }, 401, "expires is not a time", false},
		{"expired two hours ago", func(m *message) {
			now := time.Now()
			m.parameters = fmt.Sprintf(`;keyid="%s";created=%d;expires=%d`, m.keyID, now.Add(-3*time.Hour).Unix(), now.Add(-2*time.Hour).Unix())
		}, 401, "too old", false},
		{"expires in six hours", func(m *message) {
			m.parameters = fmt.Sprintf(`;created=%d;expires=%d;keyid="%s"`, time.Now().Unix(), time.Now().Add(6*time.Hour).Unix(), m.keyID)
		}, 202, "", true},
		{"nonce and tag (order kept)", func(m *message) {
			m.parameters = fmt.Sprintf(`;tag="fediverse";nonce="b3k2";keyid="%s";created=%d`, m.keyID, time.Now().Unix())
		}, 202, "", true},
		{"created in the future", func(m *message) {
			m.parameters = fmt.Sprintf(`;keyid="%s";created=%d`, m.keyID, time.Now().Add(2*time.Hour).Unix())
		}, 401, "future", false},
		{"created as text", func(m *message) { m.parameters = fmt.Sprintf(`;keyid="%s";created="now"`, m.keyID) }, 401, "keyid and created", false},
		{"keyid that is no address", func(m *message) { m.parameters = fmt.Sprintf(`;keyid="alice";created=%d`, time.Now().Unix()) }, 401, "not an address", false},
		{"sha-512 beside sha-256", func(m *message) { m.digest = "sha-512=:AAAA:, " + m.digest }, 202, "", true},
		{"wrong sha-256 after a right one", func(m *message) {
			m.digest += ", sha-256=:" + base64.StdEncoding.EncodeToString(make([]byte, 32)) + ":"
		}, 401, "does not match", false},
		{"content digest that is no dictionary", func(m *message) { m.digest = "SHA-256=abc" }, 401, "content-digest", false},
		{"content-length and content-type covered", func(m *message) {
			m.header.Set("Content-Length", strconv.Itoa(len(m.body)))
			m.components = `"@method" "@target-uri" "content-digest" "content-length" "content-type"`
		}, 202, "", true},
		{"binary-wrapped header", func(m *message) { m.components += ` "user-agent";bs` }, 401, "not supported", false},
		{"parameter of the query", func(m *message) { m.components += ` "@query-param";name="a"` }, 401, "not supported", false},
		{"upper-case header name", func(m *message) { m.components += ` "Date"` }, 401, "absent or unknown", false},
		{"RSA-PSS", func(m *message) { m.parameters += `;alg="rsa-pss-sha512"` }, 401, "not supported", false},
		{"Ed25519 named for an RSA key", func(m *message) {
			m.parameters = fmt.Sprintf(`;keyid="%s";created=%d;alg="ed25519"`, m.keyID, time.Now().Unix())
		}, 401, "does not fit", true},
		{"component of the request", func(m *message) { m.components += ` "date";req` }, 401, "not supported", false},
		{"status", func(m *message) { m.components += ` "@status"` }, 401, "absent or unknown", false},
		{"absent header", func(m *message) { m.components += ` "x-absent"` }, 401, "absent or unknown", false},
		{"repeated component", func(m *message) { m.components += ` "date"` }, 401, "not supported", false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			m := r.message(r.deliver(r.mentionNote("1", "hello")))
			c.change(m)
			r.want(m.sign(), c.status, c.reason)
			if fetched := r.remote.connections.Load() > 0; fetched != c.fetch {
				t.Errorf("key was fetched: %v, want %v", fetched, c.fetch)
			}
			if (len(r.engine.All()) == 1) != (c.status == 202) {
				t.Errorf("%d messages", len(r.engine.All()))
			}
		})
	}
}

// TestPresentSchemeIsJudgedAlone: a request with a broken RFC 9421 signature is not saved by a good draft one.
func TestPresentSchemeIsJudgedAlone(t *testing.T) {
	r := newRig(t)
	d := r.deliver(r.mentionNote("1", "hello")).sign()
	d.header.Set("Signature-Input", `sig1=("@method");keyid="x";created=1`)
	r.want(d, http.StatusUnauthorized, "")
}

func TestEvidenceNamesTheScheme(t *testing.T) {
	r := newRig(t)
	r.want(r.message(r.deliver(r.mentionNote("1", "hello"))).sign(), http.StatusAccepted, "")
	claims := string(r.engine.All()[0].Message.Sender.Identities[0].Claims)
	if !strings.Contains(claims, `"scheme":"rfc9421"`) || !strings.Contains(claims, `"address":"unchecked"`) {
		t.Errorf("claims %s", claims)
	}
}
