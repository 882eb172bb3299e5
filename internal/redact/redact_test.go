package redact_test

import (
	"encoding/base64"
	"encoding/json"
	"html"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"inbox/internal/redact"
)

const token = "AbCdEfGhIjKlMnOpQrStUvWxYz0123456789-_abcde"

func redactor() *redact.Redactor {
	return redact.New(
		[]string{"inbox.test:8443", "xn--bcher-kva.example", "mail.inbox.test"},
		redact.Key{Path: "/policy/", Length: 43}, redact.Key{Path: "/v1/files/"}, redact.Key{Path: "/media/", Query: "key"}, redact.Key{Tag: 26},
		redact.Key{Near: "approve", Pattern: regexp.MustCompile(`(?i)\bapprove[ \t]+#?([0-9][0-9a-z]{5})\b`)},
	)
}

func TestKeysAreHidden(t *testing.T) {
	r := redactor()
	link := "https://inbox.test/policy/" + token
	for name, text := range map[string]string{
		"plain":              "Decide: " + link,
		"at the end":         "See " + link + ".",
		"http":               "http://inbox.test/policy/" + token,
		"port":               "https://inbox.test:443/policy/" + token,
		"case of the host":   "HTTPS://INBOX.Test/policy/" + token,
		"final dot":          "https://inbox.test./policy/" + token,
		"userinfo":           "https://someone@inbox.test/policy/" + token,
		"no scheme":          "inbox.test/policy/" + token,
		"no host":            "/policy/" + token,
		"query and fragment": link + "?utm_source=mail#top",
		"two slashes":        "https://inbox.test//policy/" + token,
		"brackets":           "<" + link + ">",
		"markdown":           "[Decide](" + link + ")",
		"markdown title":     `[Decide](` + link + ` "the page")`,
		"markdown reference": "[1]: " + link,
		"bold":               "**" + link + "**",
		"html":               `<a href="` + link + `">Decide</a>`,
		"html entities":      `<a href="https&#58;&#x2F;&sol;inbox.test&#47;policy&#47;` + token + `">`,
		"no semicolons":      `<a href="https&#58//inbox.test&#x2Fpolicy&#47` + token + `">`,
		"old entity":         "https://inbox.test/policy/&shy" + token,
		"quoted":             "> > " + link,
		"broken line":        "> https://inbox.test/policy/" + token[:20] + "\n> " + token[20:] + "\n> Bye",
		"broken before":      "https://inbox.test/\npolicy/" + token,
		"word break tag":     "https://inbox.test/policy/" + token[:20] + "<wbr>" + token[20:],
		"percent":            "https%3A%2F%2Finbox.test%2Fpolicy%2F" + token,
		"percent twice":      "https%253A%252F%252Finbox.test%252Fpolicy%252F" + token,
		"percent letters":    "https://inbox.test/%70olicy/" + token,
		"safelinks":          "https://eur01.safelinks.protection.outlook.com/?url=" + url.QueryEscape(link) + "&data=05%7C02&reserved=0",
		"safelinks in html":  html.EscapeString("https://eur01.safelinks.protection.outlook.com/?url=" + url.QueryEscape(link) + "&data=05"),
		"urldefense":         "https://urldefense.com/v3/__" + link + "__;!!Abc!def$",
		"redirector":         "https://www.google.com/url?q=" + link + "&sa=D",
		"zero width":         "https://inbox.test/pol\u200bicy/" + token[:10] + "\u200c" + token[10:],
		"soft hyphen":        "https://in\u00adbox.test/policy/" + token,
		"json":               `{"url":"https:\/\/inbox.test\/policy\/` + token + `"}`,
		"json unicode":       `https:\u002f\u002finbox.test\u002fpolicy\u002f` + token,
		"unicode host":       "https://bücher.example/policy/" + token,
		"punycode host":      "https://XN--bcher-kva.example/policy/" + token,
		"shortened":          "https://inbox.test/policy/" + token[:30] + "…",
		"a file":             "https://inbox.test/v1/files/c2VhbGVkLWNvbnRlbnQ",
		"a file with a key":  "https://inbox.test/media/0123/map.png?reply=1&key=" + token,
		"key in entities":    "https://inbox.test/media/0123/map.png?reply=1&amp;key=" + token,
		"a tagged mailbox":   "From: Shop <shop+tabcdefghijklmnopqrstuvwxyz234567@mail.inbox.test>",
		"a mailbox, encoded": "mailto:shop%2Btabcdefghijklmnopqrstuvwxyz234567%40mail.inbox.test?subject=stop",
		"its return path":    "bounce+abcdefghijklmnopqrstuvwxyz@inbox.test",
		"defanged":           "hxxps[:]//inbox[.]test/policy/" + token,
		"defanged in words":  "hxxps://inbox(dot)test[/]policy/" + token,
		"defanged mailbox":   "shop+tabcdefghijklmnopqrstuvwxyz234567@mail[.]inbox[.]test",
		"among odd letters":  "\u212a " + link + " \u023a\u023a", // whose lower case is shorter, and longer
		"broken everywhere":  "https://inb\nox.test/pol\nicy/" + token,
		"a code":             "Answer approve 7k3mq2.",
		"a code in upper":    "APPROVE #7K3MQ2",
	} {
		got := r.Text(text)
		if strings.Contains(got, token[:12]) || strings.Contains(got, token[len(token)-12:]) || !strings.Contains(got, " removed]") {
			t.Errorf("%s: %q", name, got)
		}
		if again := r.Text(got); again != got {
			t.Errorf("%s: hidden twice: %q", name, again)
		}
		if !r.Holds([]byte(text)) {
			t.Errorf("%s: not found in bytes", name)
		}
	}
}

func TestTheRestStays(t *testing.T) {
	r := redactor()
	for text, want := range map[string]string{
		"See https://inbox.test/policy/" + token + ". Thanks, Ann": "See [link removed]. Thanks, Ann",
		"[Decide](https://inbox.test/policy/" + token + ") or not": "[Decide]([link removed]) or not",
		"approve 7k3mq2 or deny":                                   "approve [code removed] or deny",
	} {
		if got := r.Text(text); got != want {
			t.Errorf("%q\n got %q\nwant %q", text, got, want)
		}
	}

	for _, text := range []string{
		"", "nothing", "https://inbox.test/", "https://inbox.test/policy/", "https://inbox.test/@shop", "https://inbox.test/policy",
		"https://other.test/policy/" + token, "https://inbox.test.evil.test/policy/" + token, "https://notinbox.test/policy/" + token,
		"https://inbox.test/media/0123/map.png?reply=1", "the policy/procedure of 2026", "shop@inbox.test", "shop+order-4711@inbox.test",
		"ann+abcdefghijklmnopqrstuvwxyz234567@other.test", "100 % of it & more \\ even", "approve it", "approve friday", "see /policy/about",
		"caf\xe9 \xff\xfe",
	} {
		if got := r.Text(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
	if got := r.Text("https://other.test/policy/" + token + "x"); !strings.Contains(got, "other.test") {
		t.Errorf("an address of another server became %q", got)
	}
	if zero := new(redact.Redactor); zero.Text("https://inbox.test/policy/"+token) == "" || zero.Holds([]byte("/policy/"+token)) {
		t.Error("the zero value hides something")
	}
}

func TestTypedCodeStays(t *testing.T) {
	text := "approve 7k3mq2\n\n> approve 7k3mq2\n> https://inbox.test/policy/" + token
	if got := redactor().Links(text); got != "approve 7k3mq2\n\n> approve [code removed]\n> [link removed]" {
		t.Errorf("%q", got)
	}
}

func TestJSONStaysJSON(t *testing.T) {
	r := redactor()
	for _, document := range []string{
		`{"a":["https:\/\/inbox.test\/policy\/` + token + `",1.50,null],"https://inbox.test/v1/files/abc":"x\ny"}`,
		`"https:\u002F\u002Finbox.test/policy/` + token + `\nnext"`,
	} {
		got := r.JSON(json.RawMessage(document), r.Text)
		if !json.Valid(got) || strings.Contains(string(got), token) {
			t.Errorf("%s", got)
		}
	}
	same := json.RawMessage(`{"b": 1.50,  "a":"https://inbox.test/"}`)
	if got := r.JSON(same, r.Text); string(got) != string(same) {
		t.Errorf("%s", got)
	}
}

func TestHoldsReadsMails(t *testing.T) {
	r := redactor()
	link := "https://inbox.test/policy/" + token
	encoded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("Text before. ", 9) + link + "\r\nText after."))
	var lines strings.Builder
	for len(encoded) > 76 {
		lines.WriteString(encoded[:76] + "\r\n")
		encoded = encoded[76:]
	}
	lines.WriteString(encoded + "\r\n")
	for name, mail := range map[string]string{
		"quoted-printable": "Content-Transfer-Encoding: quoted-printable\r\n\r\n<a href=3D\"https://inbox.test/pol=\r\nicy/" + token[:20] + "=\r\n" + token[20:] + "\">",
		"base64":           "Content-Transfer-Encoding: base64\r\n\r\n" + lines.String() + "\r\n--b--",
	} {
		if !r.Holds([]byte(mail)) {
			t.Errorf("%s is not read", name)
		}
	}
	if r.Holds([]byte("Content-Transfer-Encoding: base64\r\n\r\n" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("other text ", 20))))) {
		t.Error("another mail holds a key")
	}
}

// TestEncodingsNest: whatever order of encodings programs apply, the token does not come through.
func TestEncodingsNest(t *testing.T) {
	r := redactor()
	encodings := []func(string) string{url.QueryEscape, html.EscapeString, func(s string) string { return strings.ReplaceAll(s, "/", "&#47;") }, func(s string) string {
		body, _ := json.Marshal(s)
		return strings.Trim(string(body), `"`)
	}}
	rapid.Check(t, func(t *rapid.T) {
		text := "https://inbox.test/policy/" + token
		for _, n := range rapid.SliceOfN(rapid.IntRange(0, len(encodings)-1), 0, 3).Draw(t, "encodings") {
			text = "https://gateway.test/?u=" + encodings[n](text) + "&x=1"
		}
		before, after := rapid.StringMatching(`[a-z ]{0,8}`).Draw(t, "before"), rapid.StringMatching(` [a-z ]{0,8}`).Draw(t, "after")
		if got := r.Text(before + text + after); strings.Contains(got, token) || !strings.HasSuffix(got, after) {
			t.Fatalf("%q\nbecame %q", text, got)
		}
	})
}

func FuzzText(f *testing.F) {
	for _, text := range []string{"https://inbox.test/policy/" + token, "%5C%26#37;&amp;\\u0025\\", "a+b@inbox.test", "<wbr>\r\n> =\n", "\xff%ff\u200b@"} {
		f.Add(text)
	}
	r := redactor()
	f.Fuzz(func(t *testing.T, text string) {
		got := r.Text(text)
		if strings.Contains(got, "https://inbox.test/policy/"+token) {
			t.Errorf("%q came through as %q", text, got)
		}
		_ = r.Links(text)
		_ = r.Holds([]byte(text))
		if body, err := json.Marshal(text); err == nil && !json.Valid(r.JSON(body, r.Text)) {
			t.Errorf("%q is not JSON any more", text)
		}
	})
}

func BenchmarkText(b *testing.B) {
	r := redactor()
	text := strings.Repeat("An ordinary line of a mail, with 100 % of nothing & a link https://example.org/a?b=c.\n", 100)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		r.Text(text)
	}
}
