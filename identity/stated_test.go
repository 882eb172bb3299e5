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
