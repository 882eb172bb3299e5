package message

import (
	"io"
	"strings"
	"testing"

	gomessage "github.com/emersion/go-message"
	_ "github.com/emersion/go-message/charset"
)

// TestDamagedMailsAreReadAsFarAsTheyGo is the reason why what go-message reads is read here once more: it fails when the
// library learns to keep what stands in mails with these faults, all of which programs write.
func TestDamagedMailsAreReadAsFarAsTheyGo(t *testing.T) {
	for name, c := range map[string]struct {
		head, body, want string
		lost             bool // by the library
	}{
		"base64 that is cut":            {"Content-Transfer-Encoding: base64", "aGVsbG8gd29ybG", "hello worl", true},
		"base64 in two pieces":          {"Content-Transfer-Encoding: base64", "aGVsbG8g\r\nd29ybGQ=\r\n-- \r\n", "hello world", true},
		"an encoding that is not known": {"Content-Transfer-Encoding: 7-bit", "hello", "hello", false},
		"a charset that is not known":   {"Content-Type: text/plain; charset=klingon", "hello", "hello", false},
		"a part whose header is broken": {"Content-Type: multipart/mixed; boundary=x", "--x\r\nno field\r\n\r\nhello\r\n--x--\r\n", "no field\r\n\r\nhello", true},
		"a multipart without its end":   {"Content-Type: multipart/mixed; boundary=x", "--x\r\n\r\nhello", "hello", true},
		"no delimiter at all":           {"Content-Type: multipart/mixed; boundary=x", "hello", "hello", true},
	} {
		t.Run(name, func(t *testing.T) {
			raw := c.head + "\r\n\r\n" + c.body
			fields, body, err := Split([]byte(raw))
			if err != nil {
				t.Fatal(err)
			}
			root, err := new(Parser).Parse(fields, body, 0)
			if err != nil {
				t.Fatal(err)
			}
			if len(root.Children) > 0 {
				root = root.Children[0]
			}
			if got := strings.TrimRight(Decode(root.Decode(), root.Params["charset"]), "\r\n"); got != c.want {
				t.Errorf("%q; want %q", got, c.want)
			}
			if theirs := readByLibrary(raw); c.lost && theirs == c.want {
				t.Errorf("the library reads %q now", theirs)
			}
		})
	}
}

// readByLibrary returns the first text that the library reads, or its error.
func readByLibrary(raw string) string {
	entity, err := gomessage.Read(strings.NewReader(raw))
	if err != nil {
		return "error: " + err.Error()
	}
	if parts := entity.MultipartReader(); parts != nil {
		if entity, err = parts.NextPart(); err != nil {
			return "error: " + err.Error()
		}
	}
	text, err := io.ReadAll(entity.Body)
	if err != nil {
		return "error: " + err.Error()
	}
	return strings.TrimRight(string(text), "\r\n")
}

// TestLibraryLosesWhatFieldsSay is why fields are read here: each value is one that programs write, and go-message makes less of it.
func TestLibraryLosesWhatFieldsSay(t *testing.T) {
	subject := func(h gomessage.Header) string {
		text, err := h.Text("Subject")
		return said(text, err)
	}
	parameter := func(name string) func(gomessage.Header) string {
		return func(h gomessage.Header) string {
			_, params, err := h.ContentDisposition()
			return said(params[name], err)
		}
	}
	ours := func(h Header) string { return h.Decoded("Subject") }
	ourParameter := func(name string) func(Header) string {
		return func(h Header) string {
			_, params := MediaType(h.Get("Content-Disposition"), "")
			return params[name]
		}
	}

	for name, c := range map[string]struct {
		field, want string
		ours        func(Header) string
		theirs      func(gomessage.Header) string
	}{
		"a letter that is cut between two words":  {"Subject: =?gb2312?b?xOO6?= =?gb2312?b?ww==?=", "你好", ours, subject},
		"a word of an unknown charset":            {"Subject: =?klingon?q?hello?= =?utf-8?q?gr=C3=BCn?=", "hellogrün", ours, subject},
		"a word with base64 that is cut":          {"Subject: =?utf-8?b?aGVsbG8?=", "hello", ours, subject},
		"8-bit letters without a charset":         {"Subject: gr\xfcn", "grün", ours, subject},
		"a file name with blanks, without quotes": {"Content-Disposition: attachment; filename=a file.txt", "a file.txt", ourParameter("filename"), parameter("filename")},
		"a file name with brackets":               {"Content-Disposition: attachment; filename=a[1].txt", "a[1].txt", ourParameter("filename"), parameter("filename")},
		"a parameter that is there twice":         {"Content-Disposition: attachment; filename=a.txt; filename=b.txt", "a.txt", ourParameter("filename"), parameter("filename")},
		"a name in another charset (RFC 2231)":    {"Content-Disposition: attachment; filename*=iso-8859-1''gr%FCn.txt", "grün.txt", ourParameter("filename"), parameter("filename")},
	} {
		t.Run(name, func(t *testing.T) {
			fields, _, err := Split([]byte(c.field + "\r\n\r\n"))
			if err != nil {
				t.Fatal(err)
			}
			if got := c.ours(fields); got != c.want {
				t.Errorf("%q; want %q", got, c.want)
			}
			entity, err := gomessage.Read(strings.NewReader(c.field + "\r\n\r\n"))
			if err != nil && entity == nil {
				return
			}
			if theirs := c.theirs(entity.Header); theirs == c.want {
				t.Errorf("the library reads %q now", theirs)
			}
		})
	}
}

// TestLibraryDropsFieldsAboveABadLine is why headers are split here: a report brings back mails that are damaged or cut.
func TestLibraryDropsFieldsAboveABadLine(t *testing.T) {
	const damaged = "Subject: hello\r\nMessage-ID: <a@b.test>\r\nno field\r\nTo: c@b.test\r\n\r\n"
	if got := SplitDamaged([]byte(damaged)).Get("Subject"); got != "hello" {
		t.Errorf("%q", got)
	}
	if entity, err := gomessage.Read(strings.NewReader(damaged)); err == nil && entity.Header.Get("Subject") == "hello" {
		t.Error("the library keeps the others now")
	}
}

// TestLibraryWritesFieldsThatReadOtherwise is why words are encoded here: go-message takes an encoded word in a text for one of its
// own, so its readers read something else.
func TestLibraryWritesFieldsThatReadOtherwise(t *testing.T) {
	const text = "how to write =?utf-8?q?x?="
	var h gomessage.Header
	h.SetText("Subject", text)
	if theirs := h.Get("Subject"); DecodeWords(theirs) == text {
		t.Errorf("the library writes %q now", theirs)
	}
	if got := DecodeWords(EncodeWords(text)); got != text {
		t.Errorf("%q", got)
	}
}

func said(text string, err error) string {
	if err != nil {
		return text + " error: " + err.Error()
	}
	return text
}
