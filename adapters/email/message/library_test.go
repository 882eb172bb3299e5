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
