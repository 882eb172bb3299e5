package message

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/net/html/charset"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/ianaindex"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/traditionalchinese"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/encoding/unicode/utf32"
)

// Decode makes UTF-8. Labels mean what they mean to browsers and mail programs (WHATWG Encoding Standard, section 4.2): iso-8859-1 and
// us-ascii are windows-1252. A missing, unknown or wrong charset never loses text.
func Decode(raw []byte, label string) string {
	name := charsetName(label)
	switch name {
	case "", "ascii", "usascii":
		return undeclared(raw)
	case "utf8", "unicode11utf8", "unicode20utf8", "xunicode20utf8", "utf8mb4", "xutf8", "xutf8j":
		if utf8.Valid(raw) {
			return string(bytes.TrimPrefix(raw, utf8Mark))
		}
		return strings.ToValidUTF8(string(raw), "\uFFFD")
	case "utf7", "unicode11utf7", "csunicode11utf7", "cputf7", "xunicode11utf7":
		return decodeUTF7(raw)
	case "iso2022kr", "csiso2022kr":
		return decodeISO2022KR(raw)
	case "utf16", "ucs2", "unicode", "iso10646ucs2", "csunicode":
		return decodeUTF16(raw)
	}

	found := encodingOf(label, name)
	if found == nil {
		return UTF8(raw)
	}
	text, err := found.NewDecoder().Bytes(raw)
	if err != nil {
		return UTF8(raw)
	}
	return strings.ToValidUTF8(string(text), "\uFFFD")
}

var utf8Mark = []byte("\xef\xbb\xbf")

// maxCharsetName bounds a label; the longest one that is registered has 45 bytes.
const maxCharsetName = 64

// charsetName returns a label without case and without the punctuation that programs write differently.
func charsetName(label string) string {
	if len(label) > maxCharsetName {
		return "unknown"
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		}
		return -1
	}, label)
}

// encodingOf finds the encoding of a label; nil = it is not known.
func encodingOf(label, name string) encoding.Encoding {
	if own, known := namedEncodings[name]; known {
		return own
	}

	// Names that end in the number of a code page: cp932, ms949, x-windows-874, ibm850.
	for _, prefix := range []string{"cp", "ms", "xcp", "xms", "ibm", "xibm", "win", "windows", "xwindows", "oem", "codepage", "csibm", "dos", "ansi"} {
		if page, is := strings.CutPrefix(name, prefix); is {
			if own, known := codePages[page]; known {
				return own
			}
		}
	}

	label = strings.ToLower(strings.Trim(label, " \t\"'"))
	if found, err := htmlindex.Get(label); err == nil && usable(found) {
		return found
	}
	if found, err := ianaindex.MIME.Encoding(label); err == nil && usable(found) {
		return found
	}
	return namedEncodings["iso"+name] // "8859-1"
}

// usable leaves out what is no charset of texts: WHATWG maps some labels to an encoding that has one letter, and one to private letters.
func usable(found encoding.Encoding) bool {
	return found != nil && found != encoding.Replacement && found != charmap.XUserDefined
}

// namedEncodings are names, as charsetName writes them, that mails have and the tables of x/text lack, or read otherwise than mail programs.
var namedEncodings = map[string]encoding.Encoding{
	"iso88591": charmap.Windows1252, "latin1": charmap.Windows1252, "isolatin1": charmap.Windows1252, "ansi": charmap.Windows1252, "xansi": charmap.Windows1252, "ansix31101983": charmap.Windows1252,
	"iso88592": charmap.ISO8859_2, "iso88593": charmap.ISO8859_3, "iso88594": charmap.ISO8859_4, "iso88595": charmap.ISO8859_5, "iso88596": charmap.ISO8859_6, "iso88597": charmap.ISO8859_7,
	"iso88598": charmap.ISO8859_8, "iso88598i": charmap.ISO8859_8, "iso88598e": charmap.ISO8859_8, "iso88599": charmap.Windows1254, "iso885910": charmap.ISO8859_10,
	"iso885911": charmap.Windows874, "tis620": charmap.Windows874, "iso885913": charmap.ISO8859_13, "iso885914": charmap.ISO8859_14, "iso885915": charmap.ISO8859_15, "latin9": charmap.ISO8859_15, "latin0": charmap.ISO8859_15,
	"iso885916": charmap.ISO8859_16, "koi8r": charmap.KOI8R, "koi8": charmap.KOI8R, "koi": charmap.KOI8R, "koi8u": charmap.KOI8U, "koi8ru": charmap.KOI8U,
	"mac": charmap.Macintosh, "macintosh": charmap.Macintosh, "macroman": charmap.Macintosh, "xmacroman": charmap.Macintosh, "xmac": charmap.Macintosh,
	"xmaccyrillic": charmap.MacintoshCyrillic, "maccyrillic": charmap.MacintoshCyrillic, "xmacukrainian": charmap.MacintoshCyrillic,
	"shiftjis": japanese.ShiftJIS, "sjis": japanese.ShiftJIS, "xsjis": japanese.ShiftJIS, "mskanji": japanese.ShiftJIS, "windows31j": japanese.ShiftJIS,
	"eucjp": japanese.EUCJP, "xeucjp": japanese.EUCJP, "ujis": japanese.EUCJP, "eucjpms": japanese.EUCJP,
	"iso2022jp": japanese.ISO2022JP, "iso2022jp1": japanese.ISO2022JP, "iso2022jp2": japanese.ISO2022JP, "iso2022jp3": japanese.ISO2022JP, "iso2022jpms": japanese.ISO2022JP, "iso2022jp2004": japanese.ISO2022JP, "jis": japanese.ISO2022JP,
	"euckr": korean.EUCKR, "uhc": korean.EUCKR, "xwindows949": korean.EUCKR, "ksc5601": korean.EUCKR, "ksc56011987": korean.EUCKR, "ksc56011989": korean.EUCKR, "ksx1001": korean.EUCKR, "korean": korean.EUCKR,
	"gb2312": simplifiedchinese.GB18030, "gb231280": simplifiedchinese.GB18030, "gbk": simplifiedchinese.GB18030, "xgbk": simplifiedchinese.GB18030, "gb18030": simplifiedchinese.GB18030, "euccn": simplifiedchinese.GB18030, "eucgb2312": simplifiedchinese.GB18030,
	"chinese": simplifiedchinese.GB18030, "hzgb2312": simplifiedchinese.HZGB2312, "hz": simplifiedchinese.HZGB2312,
	"big5": traditionalchinese.Big5, "big5hkscs": traditionalchinese.Big5, "big5eten": traditionalchinese.Big5, "xbig5": traditionalchinese.Big5, "cnbig5": traditionalchinese.Big5, "xxbig5": traditionalchinese.Big5,
	"utf16le": unicode.UTF16(unicode.LittleEndian, unicode.UseBOM), "utf16be": unicode.UTF16(unicode.BigEndian, unicode.UseBOM), "ucs2le": unicode.UTF16(unicode.LittleEndian, unicode.UseBOM), "ucs2be": unicode.UTF16(unicode.BigEndian, unicode.UseBOM),
	"utf32": utf32.UTF32(utf32.BigEndian, utf32.UseBOM), "utf32le": utf32.UTF32(utf32.LittleEndian, utf32.UseBOM), "utf32be": utf32.UTF32(utf32.BigEndian, utf32.UseBOM), "ucs4": utf32.UTF32(utf32.BigEndian, utf32.UseBOM),
}

// codePages are encodings by the numbers that Microsoft and IBM gave them.
var codePages = map[string]encoding.Encoding{
	"437": charmap.CodePage437, "850": charmap.CodePage850, "852": charmap.CodePage852, "855": charmap.CodePage855, "858": charmap.CodePage858, "00858": charmap.CodePage858, "860": charmap.CodePage860, "862": charmap.CodePage862,
	"863": charmap.CodePage863, "865": charmap.CodePage865, "866": charmap.CodePage866, "874": charmap.Windows874, "932": japanese.ShiftJIS, "943": japanese.ShiftJIS, "936": simplifiedchinese.GB18030,
	"949": korean.EUCKR, "950": traditionalchinese.Big5, "1250": charmap.Windows1250, "1251": charmap.Windows1251, "1252": charmap.Windows1252, "1253": charmap.Windows1253, "1254": charmap.Windows1254, "1255": charmap.Windows1255,
	"1256": charmap.Windows1256, "1257": charmap.Windows1257, "1258": charmap.Windows1258, "1200": unicode.UTF16(unicode.LittleEndian, unicode.UseBOM), "1201": unicode.UTF16(unicode.BigEndian, unicode.UseBOM),
	"10000": charmap.Macintosh, "10007": charmap.MacintoshCyrillic, "20127": charmap.Windows1252, "20866": charmap.KOI8R, "21866": charmap.KOI8U, "28591": charmap.Windows1252, "28592": charmap.ISO8859_2,
	"28605": charmap.ISO8859_15, "50220": japanese.ISO2022JP, "50221": japanese.ISO2022JP, "51932": japanese.EUCJP, "51949": korean.EUCKR, "54936": simplifiedchinese.GB18030, "65001": unicode.UTF8,
}

// undeclared reads a text without a charset. Japanese and Korean programs of old shift with escape sequences and say nothing about it.
func undeclared(raw []byte) string {
	if bytes.IndexByte(raw, 0x1b) >= 0 {
		switch {
		case bytes.Contains(raw, koreanMark):
			return decodeISO2022KR(raw)
		case bytes.Contains(raw, []byte("\x1b$B")), bytes.Contains(raw, []byte("\x1b$@")):
			if text, err := japanese.ISO2022JP.NewDecoder().Bytes(raw); err == nil {
				return string(text)
			}
		}
	}
	return UTF8(raw)
}

// DecodeHTML reads HTML whose part names no charset: a byte order mark or the document says it (WHATWG HTML, section 13.2.3.2).
func DecodeHTML(raw []byte) string {
	if !utf8.Valid(raw) {
		if _, name, _ := charset.DetermineEncoding(raw, "text/html"); name != "windows-1252" {
			return Decode(raw, name)
		}
	}
	return undeclared(raw)
}

// UTF8 reads 8-bit text without a declared charset: UTF-8 when it is valid, else Windows-1252.
func UTF8(raw []byte) string {
	if utf8.Valid(raw) {
		return string(raw)
	}
	decoded, err := charmap.Windows1252.NewDecoder().Bytes(raw)
	if err != nil {
		return strings.ToValidUTF8(string(raw), "\uFFFD")
	}
	return string(decoded)
}

// decodeUTF16 reads UTF-16 with or without a byte order mark. Without one the order is big-endian (RFC 2781, section 4.3), unless the zeros
// of Latin letters show that it is the other.
func decodeUTF16(raw []byte) string {
	order := unicode.BigEndian
	zeros := [2]int{}
	for i, c := range raw[:min(len(raw), 4096)] {
		if c == 0 {
			zeros[i%2]++
		}
	}
	if zeros[1] > zeros[0] {
		order = unicode.LittleEndian
	}
	text, err := unicode.UTF16(order, unicode.UseBOM).NewDecoder().Bytes(raw)
	if err != nil {
		return UTF8(raw)
	}
	return strings.ToValidUTF8(string(text), "\uFFFD")
}

// utf7Alphabet is modified base64 (RFC 2152).
var utf7Alphabet = base64.RawStdEncoding

// decodeUTF7 reads UTF-7 (RFC 2152). Browsers refuse it because it hides markup from their filters; here a text is decoded before anything
// judges it. What is not well formed stays as it stands.
func decodeUTF7(raw []byte) string {
	var out strings.Builder
	out.Grow(len(raw))
	for len(raw) > 0 {
		plus := bytes.IndexByte(raw, '+')
		if plus < 0 {
			plus = len(raw)
		}
		out.WriteString(UTF8(raw[:plus]))
		if raw = raw[plus:]; len(raw) == 0 {
			break
		}

		end := 1
		for end < len(raw) && base64Letter(raw[end]) {
			end++
		}
		switch units, ok := utf7Units(raw[1:end]); {
		case end == 1 && len(raw) > 1 && raw[1] == '-': // "+-" is a plus sign
			out.WriteByte('+')
			end++
		case end == 1 || !ok:
			out.Write(raw[:end])
		default:
			out.WriteString(string(utf16.Decode(units)))
			if end < len(raw) && raw[end] == '-' {
				end++
			}
		}
		raw = raw[end:]
	}
	return out.String()
}

// utf7Units decodes one run of modified base64 to UTF-16. The bits that are left over must be zeros.
func utf7Units(run []byte) (units []uint16, ok bool) {
	data := make([]byte, utf7Alphabet.DecodedLen(len(run)))
	n, err := utf7Alphabet.Decode(data, run)
	if data = data[:n]; err != nil || n < 2 || n%2 == 1 && data[n-1] != 0 {
		return nil, false
	}
	for i := 0; i+1 < n; i += 2 {
		units = append(units, uint16(data[i])<<8|uint16(data[i+1]))
	}
	return units, true
}

func base64Letter(c byte) bool {
	return c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '+' || c == '/'
}

// koreanMark designates KS X 1001 at the start of a text (RFC 1557).
var koreanMark = []byte("\x1b$)C")

// decodeISO2022KR reads ISO-2022-KR (RFC 1557): between shift-out and shift-in it is EUC-KR without the high bit. A line end shifts in.
func decodeISO2022KR(raw []byte) string {
	if slices.ContainsFunc(raw, func(c byte) bool { return c >= 0x80 }) { // mislabelled: it is EUC-KR as it stands
		return Decode(raw, "euc-kr")
	}

	raw = bytes.ReplaceAll(raw, koreanMark, nil)
	wide := make([]byte, 0, len(raw))
	shifted := false
	for _, c := range raw {
		switch {
		case c == 0x0e:
			shifted = true
		case c == 0x0f:
			shifted = false
		case c == '\n':
			shifted = false
			wide = append(wide, c)
		case shifted && c > ' ' && c < 0x7f:
			wide = append(wide, c|0x80)
		default:
			wide = append(wide, c)
		}
	}
	return Decode(wide, "euc-kr")
}
