package outbound

import (
	"strings"
	"testing"
	"time"
)

func FuzzPolicy(f *testing.F) {
	f.Add(enforced)
	f.Add("version: STSv1\r\nmode: none\r\nmax_age: 99999999999\r\n")
	f.Add("version:STSv1\nmode:enforce\nmx:*.\nmax_age:1")
	f.Fuzz(func(t *testing.T, text string) {
		policy, err := parsePolicy([]byte(text))
		if err != nil {
			return
		}
		if policy.maxAge < 0 || policy.maxAge > maxPolicyAge || policy.enforced() && len(policy.hosts) == 0 || len(policy.hosts) > maxPolicyHosts {
			t.Errorf("%+v", policy)
		}
		for _, host := range policy.hosts {
			if exact := strings.TrimPrefix(host, "*."); exact == host && !policy.names(strings.ToUpper(host)) {
				t.Errorf("%q does not name itself", host)
			}
		}
		if policy.names("") || policy.names("*") {
			t.Error("names nothing")
		}
	})
}

func TestOwnPolicyIsReadBack(t *testing.T) {
	text, id := PolicyFile(PolicyEnforce, "mx.inbox.test")
	policy, err := parsePolicy([]byte(text))
	if err != nil || !policy.enforced() || !policy.names("mx.inbox.test") {
		t.Errorf("%+v, %v", policy, err)
	}
	if _, other := PolicyFile(PolicyTesting, "mx.inbox.test"); other == id || !plainID(id) {
		t.Errorf("id %q does not follow the policy", id)
	}
}

// TestPoliciesAsServersWriteThem has forms that the grammar of RFC 8461, section 3.2, allows in spirit only, and that must not
// cost a domain its protection.
func TestPoliciesAsServersWriteThem(t *testing.T) {
	for name, text := range map[string]string{
		"by the book":              enforced,
		"with CRLF":                strings.ReplaceAll(enforced, "\n", "\r\n"),
		"without a last line end":  strings.TrimSuffix(enforced, "\n"),
		"an empty line at the end": enforced + "\n",
		"blanks around":            strings.ReplaceAll(enforced, "\n", " \t\n"),
		"in another order":         "max_age: 86400\nmx: *.good.test\nmx: MAIL.test\nmode: enforce\nversion: STSv1\n",
		"duplicates":               enforced + "mode: none\nmax_age: 1\nversion: STSv2\n",
		"forever":                  strings.Replace(enforced, "86400", "9999999999", 1),
		"an unknown field":         enforced + "next: \n",
	} {
		policy, err := parsePolicy([]byte(text))
		if err != nil || !policy.enforced() || !policy.names("mail.test") || !policy.names("a.good.test") || policy.maxAge < 24*time.Hour || policy.maxAge > maxPolicyAge {
			t.Errorf("%s: %+v, %v", name, policy, err)
		}
	}
}
