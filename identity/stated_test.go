package identity

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"
)

func TestProven(t *testing.T) {
	for _, c := range []struct {
		evidence Evidence
		want     ProvenAddress
	}{
		{mail("Alice@A.test"), "@Alice@a.test"},
		{slack("acct:alice@a.test"), "@alice@a.test"},
		{slack("slack:T123/U456"), ""},
		{account("https://a.test/users/alice", "@alice@a.test"), "@alice@a.test"},
		{actor("https://a.test/users/alice"), ""},
		{Evidence{}, ""},
	} {
		got := c.evidence.Proven()
		if got != c.want || got != "" && !c.evidence.Vouches(string(got)) {
			t.Errorf("%s: %q, want %q", c.evidence.Subject, got, c.want)
		}
	}
}

// TestStatedAddressIsNoKey: what a sender states cannot be compared, and cannot be the key of a map.
func TestStatedAddressIsNoKey(t *testing.T) {
	if reflect.TypeFor[StatedAddress]().Comparable() {
		t.Error("stated addresses can be compared")
	}
	stated := Stated("@ANN@social.test")
	if text, err := json.Marshal(stated); err != nil || string(text) != `"@ANN@social.test"` {
		t.Errorf("%s, %v", text, err)
	}
	if !stated.Resembles("@ann@social.test") || stated.Resembles("@ann@elsewhere.test") || Stated("").Resembles("") {
		t.Error("what resembles an address")
	}
}

func TestBelieves(t *testing.T) {
	now := time.Now()
	entries := []TrustedIssuer{
		{Issuer: "https://chat.test/", Methods: []string{"m"}, Assurance: []string{"a"}, SubjectPrefixes: []string{"slack:"}, Expires: now.Add(time.Hour)},
	}
	for _, c := range []struct {
		issuer, method, subject string
		at                      time.Time
		want                    bool
	}{
		{"chat.test", "m", "slack:1", now, true},
		{"chat.test", "m", "slack:1", now.Add(time.Hour), false},
		{"chat.test", "other", "slack:1", now, false},
		{"chat.test", "m", "teams:1", now, false},
		{"elsewhere.test", "m", "slack:1", now, false},
		{"inbox.test", "any", "mailto:a@b.test", now, true},
		{"did:web:inbox.test", "any", "mailto:a@b.test", now, true},
		{"", "m", "slack:1", now, false},
	} {
		if got := Believes(entries, "inbox.test", c.issuer, c.method, c.subject, c.at); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestStatedAddress(t *testing.T) {
	var read StatedAddress
	if err := json.Unmarshal([]byte(`"@Echo@here.test"`), &read); err != nil || read.IsZero() || !(StatedAddress{}).IsZero() {
		t.Errorf("%s, %v", read, err)
	}
	for text, want := range map[string]bool{"echo@here.test": true, "acct:ECHO@here.test": true, "@echo@elsewhere.test": false, "": false} {
		if read.Names(text) != want {
			t.Errorf("names %q: %v", text, !want)
		}
	}
	if Stated("").Names("") || !read.LooksLike(Stated("@Echo@here.test")) || read.LooksLike(Stated("@echo@here.test")) {
		t.Error("what looks like the address")
	}
}

// TestDomain: the domain that answers for evidence follows from what is proven.
func TestDomain(t *testing.T) {
	for want, evidence := range map[string]Evidence{
		"a.test":      mail("alice@a.test"),
		"b.test:8443": actor("https://b.test:8443/users/alice"),
		"login.test":  {Subject: "https://login.test#4711", Issuer: "inbox.test"},
		"inbox.test":  {Subject: "token:1", Issuer: "inbox.test"},
		"corp.test":   {Subject: "slack:T1/U1", Issuer: "did:web:corp.test:people"},
		"chat.test":   {Subject: "slack:T1/U1", Issuer: "https://chat.test/"},
		"":            {Subject: "slack:T1/U1"},
	} {
		if got := evidence.Domain(); got != want {
			t.Errorf("%s of %s: %q, want %q", evidence.Subject, evidence.Issuer, got, want)
		}
	}
}

// TestRulesThatDenyNamePeople: a sender whom a rule may keep out by name has to be known before the rules are asked.
func TestRulesThatDenyNamePeople(t *testing.T) {
	policy := AccessPolicy{AccessPublic, []Rule{{Effect: EffectDeny, Address: "@eve@a.test"}, {Effect: EffectDeny, Address: "@*@b.test"}}}
	if !policy.NamesLocal("Eve") || policy.NamesLocal("alice") {
		t.Error("names of rules that deny")
	}
}
