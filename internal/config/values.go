package config

import (
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"strconv"
	"strings"
)

// Size is a number of bytes. In the file it is a number or a string with a unit: "25MiB", "64KiB", "1GB".
type Size int64

var units = []struct {
	suffix string
	bytes  int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

// ParseSize reads a number of bytes with an optional unit: B, KB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB
// (powers of 1024). Negative and fractional sizes are refused.
func ParseSize(text string) (Size, error) {
	digits, factor := strings.TrimSpace(text), int64(1)
	for _, unit := range units {
		if cut, ok := cutSuffixFold(digits, unit.suffix); ok {
			digits, factor = strings.TrimSpace(cut), unit.bytes
			break
		}
	}
	number, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || number < 0 || number > math.MaxInt64/factor {
		return 0, fmt.Errorf("%q is not a size", text)
	}
	return Size(number * factor), nil
}

func cutSuffixFold(text, suffix string) (string, bool) {
	if len(text) < len(suffix) || !strings.EqualFold(text[len(text)-len(suffix):], suffix) {
		return text, false
	}
	return text[:len(text)-len(suffix)], true
}

// String returns the size in the largest unit that needs no fraction, in the form that ParseSize reads.
func (s Size) String() string {
	for i := 3; i >= 0; i-- {
		if s > 0 && int64(s)%units[i].bytes == 0 {
			return strconv.FormatInt(int64(s)/units[i].bytes, 10) + units[i].suffix
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

const redacted = "[redacted]"

// Secret is a value that never shows itself: printing, logging and encoding it give "[redacted]".
type Secret string

// Reveal returns the secret itself, for the one place that needs it.
func (s Secret) Reveal() string { return string(s) }

// String returns "[redacted]", or nothing for an empty secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// GoString keeps %#v from showing the secret.
func (s Secret) GoString() string { return strconv.Quote(s.String()) }

// MarshalText keeps encoders from showing the secret.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue keeps slog from showing the secret.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// SecretURL is an address that may carry a user name and a password; it shows itself without the password.
type SecretURL string

// Reveal returns the address with its password, for the one place that needs it.
func (u SecretURL) Reveal() string { return string(u) }

// String returns the address with the password replaced.
func (u SecretURL) String() string {
	parsed, err := url.Parse(string(u))
	if err != nil {
		return redacted
	}
	hidePasswordParameters(parsed)
	return parsed.Redacted()
}

// hidePasswordParameters serves postgres://…?password=… and s3://…?secret_key=….
func hidePasswordParameters(u *url.URL) {
	query := u.Query()
	changed := false
	for name := range query {
		lower := strings.ToLower(name)
		if strings.Contains(lower, "pass") || strings.Contains(lower, "secret") || strings.Contains(lower, "key") {
			query.Set(name, "xxxxx")
			changed = true
		}
	}
	if changed {
		u.RawQuery = query.Encode()
	}
}

// GoString keeps %#v from showing the password.
func (u SecretURL) GoString() string { return strconv.Quote(u.String()) }

// MarshalText keeps encoders from showing the password.
func (u SecretURL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// LogValue keeps slog from showing the password.
func (u SecretURL) LogValue() slog.Value { return slog.StringValue(u.String()) }
