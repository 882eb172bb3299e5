package message

import (
	"fmt"
	"net/mail"
	"time"
)

// maxDateText bounds what is read as a date.
const maxDateText = 200

// usualDate is the form that mail programs write.
const usualDate = "Mon, 2 Jan 2006 15:04:05 -0700"

// Date reads the content of a Date field (RFC 5322, section 3.3) as net/mail does. net/mail tries twenty-four forms without a day of the week
// before it comes to the usual one, and makes an error for each: a third of all allocations of accepting a mail.
func Date(text string) (time.Time, error) {
	if len(text) > maxDateText {
		return time.Time{}, fmt.Errorf("a date of %d bytes, more than %d", len(text), maxDateText)
	}
	if date, err := time.Parse(usualDate, text); err == nil {
		return date, nil
	}
	return mail.ParseDate(text)
}
