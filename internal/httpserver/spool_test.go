package httpserver_test

import (
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

// TestSpoolBody: a body goes into a file without a name, within its limit; what goes wrong is the sender's where the sender caused it.
func TestSpoolBody(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	spool := func(body io.Reader) (string, error) {
		file, err := httpserver.SpoolBody(httptest.NewRequestWithContext(t.Context(), "POST", "/", body), directory, 10)
		if left, listed := os.ReadDir(directory); listed != nil || len(left) > 0 {
			t.Errorf("the directory has %v, %v", left, listed)
		}
		if err != nil {
			return "", err
		}
		defer file.Close()
		content, err := io.ReadAll(file)
		return string(content), err
	}

	if content, err := spool(strings.NewReader("0123456789")); err != nil || content != "0123456789" {
		t.Errorf("%q, %v", content, err)
	}
	for name, body := range map[string]io.Reader{"announced": strings.NewReader("0123456789A"), "not announced": iotest.OneByteReader(strings.NewReader("0123456789A"))} {
		if _, err := spool(body); !fault.Is(err, fault.TooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := spool(io.MultiReader(strings.NewReader("012"), iotest.ErrReader(errors.New("cut")))); !fault.Is(err, fault.Malformed) {
		t.Errorf("a body that was cut: %v", err)
	}
	if _, err := httpserver.SpoolBody(httptest.NewRequestWithContext(t.Context(), "POST", "/", strings.NewReader("x")), directory+"/missing", 10); !fault.Is(err, fault.Unavailable) {
		t.Errorf("without a directory: %v", err)
	}
}
