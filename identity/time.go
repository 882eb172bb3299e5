package identity

import (
	"encoding/json"
	"errors"
	"strings"
	"time"
)

const timeFormat = "2006-01-02T15:04:05.000Z"

var errTime = errors.New("must be an ISO 8601 time with a zone, such as 2026-11-21T12:00:00.000Z")

// Now returns the current instant, cut to milliseconds as the contract writes it.
func Now() Time { return At(time.Now()) }

// At cuts an instant to UTC milliseconds.
func At(t time.Time) Time { return Time{t.UTC().Truncate(time.Millisecond)} }

// ParseTime reads RFC 3339 with any offset and converts to UTC milliseconds; a time without zone is refused, and so is
// one outside the years 0000–9999 in UTC, which could not be written again.
func ParseTime(text string) (Time, error) {
	const hourEnd = len("2026-11-21T12")
	if len(text) <= hourEnd || text[hourEnd] != ':' || strings.Contains(text, ",") { // package time reads more than RFC 3339
		return Time{}, errTime
	}
	parsed, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return Time{}, errTime
	}
	at := At(parsed)
	if year := at.Year(); year < 0 || year > 9999 {
		return Time{}, errTime
	}
	return at, nil
}

// AppendText appends 2006-01-02T15:04:05.000Z without quotes.
func (t Time) AppendText(dst []byte) ([]byte, error) {
	return t.UTC().AppendFormat(dst, timeFormat), nil
}

// MarshalJSON writes 2006-01-02T15:04:05.000Z.
func (t Time) MarshalJSON() ([]byte, error) {
	dst := make([]byte, 0, len(timeFormat)+2)
	dst = t.UTC().AppendFormat(append(dst, '"'), timeFormat)
	return append(dst, '"'), nil
}

// UnmarshalJSON reads what ParseTime reads; null leaves the time as it is.
func (t *Time) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return errTime
	}
	parsed, err := ParseTime(text)
	if err != nil {
		return err
	}
	*t = parsed
	return nil
}

// MarshalJSON writes one audience as a string and several as a list.
func (a Audience) MarshalJSON() ([]byte, error) {
	if len(a) == 1 {
		return json.Marshal(a[0])
	}
	return json.Marshal([]string(a))
}

// UnmarshalJSON reads a string or a list of strings; null leaves the audience as it is.
func (a *Audience) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	var one string
	if err := json.Unmarshal(data, &one); err == nil {
		*a = Audience{one}
		return nil
	}
	var many []string
	if err := json.Unmarshal(data, &many); err != nil {
		return errors.New("audience must be a string or a list of strings")
	}
	*a = many
	return nil
}
