package email

import (
	"strings"
	"testing"

	"inbox/adapters/email/message"
)

func TestMailLocale(t *testing.T) {
	for lines, want := range map[string]string{
		"":                        "",
		"Content-Language: de-CH": "de-CH",
		"Accept-Language: fr\r\nContent-Language: de":         "fr",
		"Accept-Language: *\r\nContent-Language: de":          "de",
		"Accept-Language: en;q=0.5, de-AT;Q=0.9, fr;q=0.9":    "de-AT",
		"Accept-Language: en ; q = 0, fr;q=0.1":               "fr",
		"Accept-Language: en;q=0":                             "",
		"Accept-Language: en;q=NaN, fr;q=2, de;q=-1, it;q=.1": "it",
		"Content-Language: i-default":                         "",
		"Content-Language: mi (Maori), en (English)":          "mi",
		"Content-Language: de\r\n\t, en":                      "de",
		"Content-Language: d\xc3\xa9, x\x00y, <b>":            "",
		"Content-Language: " + strings.Repeat("en,", 1000):    "",
		"Content-Language: " + strings.Repeat("a", 36):        "",
	} {
		fields, _, err := message.Split([]byte(lines + "\r\n\r\n"))
		if err != nil {
			t.Fatal(err)
		}
		if got := mailLocale(fields); got != want {
			t.Errorf("%.60q: %q, want %q", lines, got, want)
		}
	}
}

func FuzzBestLanguage(f *testing.F) {
	f.Add("de-AT, en;q=0.5")
	f.Add("*;q=0, i-default (x")
	f.Fuzz(func(t *testing.T, list string) {
		if got := bestLanguage(list); strings.ContainsAny(got, " \r\n,;<>") || len(got) > 35 {
			t.Errorf("%q: %q", list, got)
		}
	})
}
