package email

import (
	"time"

	"inbox/exchange"
)

var _ exchange.Acknowledger = (*Adapter)(nil)

// minAckAfter is how old a mail is at least before it is acknowledged: nobody expects the answer to a mail within
// seconds, so a second mail then would be noise.
const minAckAfter = time.Minute

// AckAfter gives the time that the operator wants, but at least a minute.
func (a *Adapter) AckAfter(wanted time.Duration) time.Duration { return max(wanted, minAckAfter) }
