package exchange

import (
	"errors"
	"net/http"
)

// Reach says how far a failed attempt to deliver came: a destination that many share pays only for what it did itself.
type Reach int

// The zero value is that of an error without a Reach.
const (
	ReachNone      Reach = iota // there was no session, or the destination says that it takes nothing now
	ReachSession                // the session broke off, or a gateway failed: this message, its recipient or the destination may be the cause
	ReachRecipient              // the destination answered for this message or its recipient: it works
	ReachOurs                   // nothing left this server, whose own store or keys failed: that says nothing of the destination
)

// ReachOfStatus is how far a request came that was answered with a status: a server that fails, or is busy, may do so for all or for this one.
func ReachOfStatus(status int) Reach {
	if status == http.StatusTooManyRequests || status >= http.StatusInternalServerError {
		return ReachSession
	}
	return ReachRecipient
}

type reached struct {
	error
	reach Reach
}

func (r reached) Unwrap() error { return r.error }

// WithReach notes how far an attempt came that failed with err; nil stays nil.
func WithReach(err error, reach Reach) error {
	if err == nil {
		return nil
	}
	return reached{err, reach}
}

// ReachOf returns how far an attempt came that failed with err.
func ReachOf(err error) Reach {
	known, _ := errors.AsType[reached](err)
	return known.reach
}
