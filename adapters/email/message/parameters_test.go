package message

import (
	"strings"
	"testing"
)

func TestMediaType(t *testing.T) {
	for value, want := range map[string][2]string{
		"":                            {"text/plain", ""},
		"TEXT/HTML; Charset=UTF-8":    {"text/html", "UTF-8"},
		"text/html;charset=\"utf-8\"": {"text/html", "utf-8"},
		"text/html (c;omment); charset=x; charset=y": {"text/html", "x"},
		"text/html (comment); charset=(c) x":         {"text/html", "x"},
		"text/html; charset=x; charset=y":            {"text/html", "x"},
		"text/html; charset*=us-ascii'en'x":          {"text/html", "x"},
		"text/html; charset":                         {"text/html", ""},
		"text/html;;;":                               {"text/html", ""},
		"text":                                       {"text", ""},
		"a b/c":                                      {"application/octet-stream", ""},
		"/":                                          {"application/octet-stream", ""},
		"; charset=x":                                {"application/octet-stream", "x"},
		"text/html; charset*100=x; charset*-1=y":     {"text/html", ""},
		"text/html; charset*1=x; charset*3=y":        {"text/html", ""},
		"text/html charset=X":                        {"text/html", "X"},
		"text/html charset=x; charset=y":             {"text/html", "x"},
		"text/html, charset=x":                       {"text/html", "x"},
		"text / html; charset=x":                     {"text/html", "x"},
		"text/html:charset=x":                        {"text/html", "x"},
		"text/; charset=x":                           {"text/plain", "x"},
		"Multipart/*; charset=x":                     {"multipart/mixed", "x"},
		"text/html; charset=\"a\\\"b\\\\c\"":         {"text/html", `a"b\c`},
	} {
		media, params := MediaType(value, "text/plain")
		if media != want[0] || params["charset"] != want[1] {
			t.Errorf("%q: %q, %q; want %q", value, media, params["charset"], want)
		}
	}
}

func TestEncodedWords(t *testing.T) {
	for text, want := range map[string]string{
		"plain":                                  "plain",
		"=?utf-8?q?a_b?= =?utf-8?q?c?=":          "a bc",
		"=?utf-8?q?a?=  b =?utf-8?q?c?=":         "a  b c",
		"=?utf-8?B?w7w?=":                        "ü", // no padding
		"=?utf-8?Q?=C3?= =?utf-8?Q?=BC?=":        "ü", // cut inside of a letter
		"=?utf-8?Q?=C3?= =?iso-8859-1?Q?=BC?=":   "\ufffd¼",
		"=?utf-8*de-AT?Q?=C3=BC?=":               "ü",
		"=?utf-8?q?=?=":                          "=",
		"=?utf-8?q??=":                           "",
		"=?utf-8?x?a?=":                          "=?utf-8?x?a?=",
		"=?utf-8?q?open":                         "=?utf-8?q?open",
		"=? =?=?utf-8?q?a?=":                     "=? =?a",
		"=?unknown-8bit?Q?=FC?=":                 "ü",
		"=?utf-7?Q?+AGE-?=":                      "a",
		"x=?utf-8?q?a?=y":                        "xay",
		"=?utf-8?q?" + strings.Repeat("a", 5000): "=?utf-8?q?" + strings.Repeat("a", 5000),
		"=?iso-2022-jp?B?GyRCRnwbKEI=?=\t=?ISO-2022-JP?B?GyRCS1wbKEI=?=": "日本",
	} {
		if got := DecodeWords(text); got != want {
			t.Errorf("%q: %q; want %q", text, got, want)
		}
	}
}

func FuzzParameters(f *testing.F) {
	f.Add(`text/plain; name*0*=utf-8''%C3; name*1*=%BC; charset="a\"b`)
	f.Add(`attachment (x); filename==?utf-8?b?w7w?=; filename=a b (1).txt`)
	f.Fuzz(func(t *testing.T, text string) {
		media, params := MediaType(text, "text/plain")
		if media == "" || media != strings.ToLower(media) {
			t.Errorf("type %q", media)
		}
		for name, value := range params {
			if len(value) > 4*len(text)+4 || name == "" {
				t.Errorf("%q = %q", name, value)
			}
		}
		if decoded := DecodeWords(text); len(decoded) > 6*len(text) {
			t.Errorf("%d bytes of %d", len(decoded), len(text))
		}
	})
}
