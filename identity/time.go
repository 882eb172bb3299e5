package identity

import (
	"encoding/json"
	"errors"
	"time"
)

const timeFormat = "2006-01-02T15:04:05.000Z"

// Now gives the current instant, cut to milliseconds as the contract writes it.
func Now() Time { return At(time.Now()) }

// At cuts an instant to UTC milliseconds.
func At(t time.Time) Time { return Time{t.UTC().Truncate(time.Millisecond)} }

// MarshalJSON writes 2006-01-02T15:04:05.000Z.
func (t Time) MarshalJSON() ([]byte, error) {
	return []byte(`"` + t.UTC().Format(timeFormat) + `"`), nil
}

// UnmarshalJSON reads RFC 3339 with any offset and converts to UTC; a time without zone is refused.
func (t *Time) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return errors.New("time must be a string")
	}
	parsed, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return errors.New("time must be ISO 8601 with a zone, such as 2026-11-21T12:00:00.000Z")
	}
	*t = At(parsed)
	return nil
}

// MarshalJSON writes one audience as a string and several as a list.
func (a Audience) MarshalJSON() ([]byte, error) {
	if len(a) == 1 {
		return json.Marshal(a[0])
	}
	return json.Marshal([]string(a))
}

// UnmarshalJSON reads a string or a list of strings.
func (a *Audience) UnmarshalJSON(data []byte) error {
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
