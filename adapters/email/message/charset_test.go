package message

import (
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/text/encoding/htmlindex"
	"pgregory.net/rapid"
)

// TestCharsets: mail programs write labels that no registry has, and mean by registered ones what browsers mean.
func TestCharsets(t *testing.T) {
	for _, row := range []struct{ label, raw, want string }{
		{"iso-8859-1", "\x80 \x93a\x94 \x96", "€ “a” –"}, {"ISO8859-1", "\x80", "€"}, {"latin1", "\x80", "€"}, {"l1", "\x80", "€"}, {"us-ascii", "\x80", "€"}, {"ansi_x3.4-1968", "\x80", "€"}, {"8859-1", "\x80", "€"}, {"iso_8859-1:1987", "\x80", "€"},
		{"ascii", "\x80", "€"}, {"ansi", "\x80", "€"}, {"iso-8859-9", "\x80\xfe", "€ş"}, {"iso-8859-11", "\xa1", "ก"}, {"tis-620", "\xa1", "ก"}, {"iso-8859-15", "\xa4", "€"}, {"iso-8859-8-i", "\xe0", "א"}, {"latin-9", "\xa4", "€"},
		{"windows-1252", "\x80", "€"}, {"cp1252", "\x80", "€"}, {"CP-1252", "\x80", "€"}, {"x-cp1251", "\xcf", "П"}, {"win-1251", "\xcf", "П"}, {"windows1251", "\xcf", "П"}, {"cp_1250", "\xe8", "č"},
		{"cp437", "\x84", "ä"}, {"ibm850", "\x84", "ä"}, {"cp850", "\x84", "ä"}, {"cp866", "\x8f", "П"}, {"dos-866", "\x8f", "П"}, {"koi8-r", "\xf0", "П"}, {"koi8r", "\xf0", "П"}, {"koi8-ru", "\xf0", "П"}, {"x-mac-roman", "\x8a", "ä"}, {"macintosh", "\x8a", "ä"}, {"x-mac-cyrillic", "\x8f", "П"},
		{"ms949", "\xc7\xd1", "한"}, {"cp949", "\xc7\xd1", "한"}, {"windows-949", "\xc7\xd1", "한"}, {"x-windows-949", "\xc7\xd1", "한"}, {"uhc", "\xc7\xd1", "한"}, {"ks_c_5601-1987", "\xc7\xd1", "한"}, {"ksc5601", "\xc7\xd1", "한"}, {"euc_kr", "\xc7\xd1", "한"}, {"euckr", "\xc7\xd1", "한"},
		{"iso-2022-kr", "\x1b$)C\r\nHi \x0eGQ\x0f!", "\r\nHi 한!"}, {"iso-2022-kr", "\x0eGQ\r\nok", "한\r\nok"}, {"ISO2022-KR", "\xc7\xd1", "한"}, {"csiso2022kr", "\x0eGQ", "한"},
		{"utf-7", "Hi +ZeVnLA-", "Hi 日本"}, {"UTF7", "1 +- 2 +AKM-3 +2D3eAA", "1 + 2 £3 😀"}, {"unicode-1-1-utf-7", "+AOQ-", "ä"}, {"utf-7", "a + b +x+ +AA", "a + b +x+ +AA"}, {"utf-7", "+ADw-script+AD4-", "<script>"},
		{"shift_jis", "\x82\xb1", "こ"}, {"cp932", "\x87\x40", "①"}, {"ms932", "\x82\xb1", "こ"}, {"windows-31j", "\x82\xb1", "こ"}, {"x-sjis", "\x82\xb1", "こ"}, {"sjis", "\x82\xb1", "こ"}, {"euc-jp", "\xa4\xb3", "こ"}, {"eucjp", "\xa4\xb3", "こ"}, {"cp51932", "\xa4\xb3", "こ"},
		{"iso-2022-jp", "\x1b$B$3\x1b(B", "こ"}, {"iso-2022-jp-ms", "\x1b$B$3\x1b(B", "こ"}, {"cp50220", "\x1b$B$3\x1b(B", "こ"}, {"jis", "\x1b$B$3\x1b(B", "こ"}, {"", "\x1b$B$3\x1b(B", "こ"}, {"us-ascii", "\x1b$@$3\x1b(J", "こ"}, {"", "\x1b$)C\x0eGQ\x0f", "한"},
		{"gb2312", "\xc4\xe3", "你"}, {"gbk", "\xc4\xe3", "你"}, {"cp936", "\xc4\xe3", "你"}, {"ms936", "\xc4\xe3", "你"}, {"gb_2312-80", "\xc4\xe3", "你"}, {"euc-cn", "\xc4\xe3", "你"}, {"x-gbk", "\xc4\xe3", "你"}, {"gb18030", "\x81\x30\x84\x36", "¥"}, {"hz-gb-2312", "~{Dc~}", "你"},
		{"big5", "\xa7A", "你"}, {"cp950", "\xa7A", "你"}, {"big5-hkscs", "\xa7A", "你"}, {"x-x-big5", "\xa7A", "你"},
		{"utf8", "ä", "ä"}, {"utf_8", "ä", "ä"}, {"UTF-8", "\xef\xbb\xbfä", "ä"}, {"cp65001", "ä", "ä"}, {"unicode-1-1-utf-8", "ä", "ä"}, {`"utf-8"`, "ä", "ä"}, {" utf-8 ", "ä", "ä"}, {"utf8mb4", "ä", "ä"},
		{"utf-16", "\xff\xfeH\x00i\x00", "Hi"}, {"utf-16", "H\x00i\x00", "Hi"}, {"utf-16", "\x00H\x00i", "Hi"}, {"utf-16le", "H\x00i\x00", "Hi"}, {"utf-16be", "\x00H\x00i", "Hi"}, {"ucs-2", "\x00H\x00i", "Hi"}, {"unicode", "\x00H\x00i", "Hi"}, {"utf-32", "\x00\x00\x00H", "H"}, {"utf-32le", "H\x00\x00\x00", "H"},
		{"x-unknown", "Gr\xfc\xdfe", "Grüße"}, {"unknown-8bit", "Grüße", "Grüße"}, {"x-user-defined", "Gr\xfc\xdfe", "Grüße"}, {"iso-2022-cn", "Hi", "Hi"}, {"", "Gr\xfc\xdfe", "Grüße"}, {"binary", "\x80", "€"}, {strings.Repeat("x", 1000), "\x80", "€"},
	} {
		if got := Decode([]byte(row.raw), row.label); got != row.want {
			t.Errorf("%.40q %q: %q; want %q", row.label, row.raw, got, row.want)
		}
	}
	if got := DecodeWords("=?iso-8859-1?Q?20_=80?= =?ms949?B?x9E=?="); got != "20 €한" {
		t.Errorf("a subject: %q", got)
	}
}

// TestWrittenTextsAreRead: what an encoder of a known charset writes is what is read.
func TestWrittenTextsAreRead(t *testing.T) {
	for label, text := range map[string]string{
		"windows-1252": "Grüße – 20 €", "koi8-r": "Привет", "iso-2022-jp": "日本 abc 日本", "shift_jis": "日本ア", "euc-kr": "한국어", "gb18030": "你好😀", "big5": "你好", "windows-1256": "مرحبا",
		"windows-1255": "שלום", "windows-874": "สวัสดี", "iso-8859-7": "Καλημέρα", "windows-1258": "Chao", "macintosh": "Café",
	} {
		found, err := htmlindex.Get(label)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := found.NewEncoder().Bytes([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := Decode(raw, label); got != text {
			t.Errorf("%s: %q; want %q", label, got, text)
		}
	}
}

func TestUTF7RoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[a-z +\-äß日本😀]{0,40}`).Draw(t, "text")
		if got := Decode([]byte(encodeUTF7(text)), "utf-7"); got != text {
			t.Fatalf("%q became %q", text, got)
		}
	})
}

// encodeUTF7 writes every letter but those of ASCII in modified base64.
func encodeUTF7(text string) string {
	var out strings.Builder
	for _, r := range text {
		switch {
		case r == '+':
			out.WriteString("+-")
		case r < utf8.RuneSelf:
			out.WriteRune(r)
		default:
			var wide []byte
			for _, unit := range utf16.Encode([]rune{r}) {
				wide = append(wide, byte(unit>>8), byte(unit))
			}
			out.WriteString("+" + utf7Alphabet.EncodeToString(wide) + "-")
		}
	}
	return out.String()
}

func FuzzCharset(f *testing.F) {
	f.Add([]byte("Hi +ZeVnLA-"), "utf-7")
	f.Add([]byte("\x1b$)C\x0eGQ"), "iso-2022-kr")
	f.Add([]byte("\x00H"), "utf-16")
	f.Fuzz(func(t *testing.T, raw []byte, label string) {
		if got := Decode(raw, label); !utf8.ValidString(got) || len(got) > 4*len(raw)+8 {
			t.Errorf("%q by %q: %q", raw, label, got)
		}
	})
}
