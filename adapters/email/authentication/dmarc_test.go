package authentication

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestParseDMARC(t *testing.T) {
	for text, want := range map[string]struct {
		ok     bool
		policy string
	}{
		"v=DMARC1; p=reject":                            {true, "reject"},
		"v=DMARC1;p=Reject":                             {true, "reject"},
		" V = DMARC1 ; P = quarantine ;":                {true, "quarantine"},
		"v=dmarc1; p=reject":                            {false, ""},
		"p=none; v=DMARC1":                              {false, ""},
		"v=DMARC1":                                      {true, ""},
		"v=DMARC1; p=nonsense":                          {true, ""},
		"v=DMARC1; p=none; p=reject":                    {true, "none"},
		"v=DMARC1; pct=0; ri=1; rf=afrf; x=y; p=reject": {true, "reject"},
		"v=DMARC1x; p=reject":                           {false, ""},
		"v=spf1 -all":                                   {false, ""},
		"":                                              {false, ""},
	} {
		got, ok := parseDMARC(text)
		if ok != want.ok || got.policy != want.policy {
			t.Errorf("%q: %+v %v; want %+v", text, got, ok, want)
		}
	}
}

func TestPolicyFor(t *testing.T) {
	for _, c := range []struct {
		text                   string
		inherited, nonexistent bool
		want                   string
		ok                     bool
	}{
		{"v=DMARC1; p=reject", false, false, "reject", true},
		{"v=DMARC1; p=reject", true, true, "reject", true},
		{"v=DMARC1; p=reject; sp=quarantine", true, false, "quarantine", true},
		{"v=DMARC1; p=reject; sp=quarantine; np=none", true, true, "none", true},
		{"v=DMARC1; p=reject; sp=quarantine; np=none", true, false, "quarantine", true},
		{"v=DMARC1; p=reject; t=y", false, false, "quarantine", true},
		{"v=DMARC1; p=quarantine; t=Y", false, false, "none", true},
		{"v=DMARC1; p=bogus; rua=mailto:x@y.test", false, false, "none", true},
		{"v=DMARC1; p=bogus; rua=https://y.test", false, false, "none", false},
		{"v=DMARC1", false, false, "none", false},
		{"v=DMARC1; sp=reject", true, false, "none", false},
		{"v=DMARC1; sp=reject; rua=mailto:x@y.test", true, false, "none", true},
		{"v=DMARC1; p=reject; sp=bogus", false, false, "none", false},
		{"v=DMARC1; p=reject; sp=bogus; rua=mailto:x@y.test", true, false, "none", true},
		{"v=DMARC1; p=reject; np=", true, true, "none", false},
	} {
		record, _ := parseDMARC(c.text)
		if got, ok := record.policyFor(c.inherited, c.nonexistent); got != c.want || ok != c.ok {
			t.Errorf("%s %v %v: %s %v; want %s %v", c.text, c.inherited, c.nonexistent, got, ok, c.want, c.ok)
		}
	}
}

func TestWalkNames(t *testing.T) {
	want := []string{"a.b.c.d.e.f.g.h.i.test", "d.e.f.g.h.i.test", "e.f.g.h.i.test", "f.g.h.i.test", "g.h.i.test", "h.i.test", "i.test", "test"}
	if diff := cmp.Diff(want, walkNames("a.b.c.d.e.f.g.h.i.test")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"mail.example.com", "example.com", "com"}, walkNames("mail.example.com")); diff != "" {
		t.Error(diff)
	}
	rapid.Check(t, func(t *rapid.T) {
		labels := rapid.SliceOfN(rapid.StringMatching(`[a-z]{1,5}`), 1, 40).Draw(t, "labels")
		if names := walkNames(strings.Join(labels, ".")); len(names) > 8 || names[len(names)-1] != labels[len(labels)-1] {
			t.Fatalf("%v", names)
		}
	})
}

func TestOrganizational(t *testing.T) {
	found := func(pairs ...string) (list []foundRecord) {
		for i := 0; i < len(pairs); i += 2 {
			record, _ := parseDMARC("v=DMARC1; p=none; psd=" + pairs[i+1])
			list = append(list, foundRecord{pairs[i], record})
		}
		return list
	}
	for _, c := range []struct {
		start string
		found []foundRecord
		want  string
	}{
		{"a.example.com", nil, "a.example.com"},
		{"a.example.com", found("a.example.com", "u", "example.com", "u"), "example.com"},
		{"a.example.com", found("example.com", "n"), "example.com"},
		{"a.b.example.co.uk", found("co.uk", "y"), "example.co.uk"},
		{"a.b.example.co.uk", found("example.co.uk", "u", "co.uk", "y"), "example.co.uk"},
		{"co.uk", found("co.uk", "y"), "co.uk"},
		{"example.co.uk", found("co.uk", "y"), "example.co.uk"},
		// A registry without psd=y: its customers are strangers to each other all the same.
		{"mail.bank.co.uk", found("co.uk", "u"), "bank.co.uk"},
		{"evil.co.uk", found("co.uk", "u"), "evil.co.uk"},
		{"a.one.github.io", found("github.io", "u"), "one.github.io"},
		{"github.io", found("github.io", "u"), "github.io"},
		{"mail.example.com", found("com", "u"), "example.com"},
		{"mail.office.corp", found("corp", "u"), "corp"},
		{"a.one.github.io", found("github.io", "n"), "github.io"}, // it says that it is one organization
	} {
		if got := organizational(c.start, c.found); got != c.want {
			t.Errorf("%s: %s; want %s", c.start, got, c.want)
		}
	}
}

func TestSameRegistered(t *testing.T) {
	for pair, want := range map[string]bool{
		"mail.example.co.uk,example.co.uk": true, "a.example.com,b.example.com": true, "example.com,example.com": true, "Example.COM.,mail.example.com": true,
		"a.co.uk,b.co.uk": false, "one.github.io,two.github.io": false, "com,com": true, "com,example.com": false, "evil.test,good.test": false,
	} {
		a, b, _ := strings.Cut(pair, ",")
		if got := SameRegistered(a, b); got != want {
			t.Errorf("%s: %v", pair, got)
		}
	}
}

func FuzzDMARCRecord(f *testing.F) {
	f.Add("v=DMARC1; p=reject; sp=none; np=quarantine; adkim=s; aspf=r; psd=n; t=y; rua=mailto:a@b.test!10m")
	f.Add("v=DMARC1;;;=;p")
	f.Fuzz(func(t *testing.T, text string) {
		record, ok := parseDMARC(text)
		if !ok {
			return
		}
		for _, inherited := range []bool{true, false} {
			switch policy, _ := record.policyFor(inherited, inherited); policy {
			case PolicyNone, PolicyQuarantine, PolicyReject:
			default:
				t.Errorf("policy %q from %q", policy, text)
			}
		}
	})
}
