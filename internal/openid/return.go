package openid

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"

	"inbox/internal/fault"
)

// ErrTurnedBack is wrapped by the error of a login that its user, or the provider for them, did not go through with.
var ErrTurnedBack = errors.New("the login was not completed at its service")

// Return is what a provider's redirect brings back (RFC 6749, section 4.1.2; RFC 9207).
type Return struct {
	State string
	Code  string // empty beside an Error
	Error string // the provider's code when there is no login; empty otherwise

	issuer    string
	hasIssuer bool
}

// ReadReturn reads the query of a redirect. fault.Malformed when it is incomplete, or when a parameter is in it twice
// (RFC 6749, section 3.1).
func ReadReturn(query url.Values) (Return, error) {
	for _, name := range []string{"state", "code", "error", "iss"} {
		if len(query[name]) > 1 {
			return Return{}, fault.Newf(fault.Malformed, "the login service sent %s twice; begin the login again", name)
		}
	}

	back := Return{State: query.Get("state"), Code: query.Get("code"), Error: query.Get("error"), issuer: query.Get("iss"), hasIssuer: len(query["iss"]) > 0}
	if back.Error != "" {
		back.Code = "" // RFC 6749, section 4.1.2.1: never beside a code
	}
	if back.State == "" || back.Code == "" && back.Error == "" {
		return Return{}, fault.New(fault.Malformed, "the login service sent back an incomplete address; begin the login again")
	}
	return back, nil
}

// AttemptName names the attempt of a login by its state, so that the cookies of several attempts in one browser are apart.
func AttemptName(state string) string {
	const length = 16 // hex digits: a browser has few attempts
	sum := sha256.Sum256([]byte(state))
	return hex.EncodeToString(sum[:])[:length]
}

// check refuses what another provider sent back (RFC 9207, section 2.4), and a login that did not take place.
func (r Return) check(issuer string, always bool) error {
	switch {
	case r.hasIssuer && r.issuer != issuer:
		return rejected(fmt.Errorf("iss of the return is %q", r.issuer))
	case always && !r.hasIssuer:
		return rejected(errors.New("iss of the return is missing, which this provider always sends"))
	case r.Error == "server_error", r.Error == "temporarily_unavailable":
		return unreachable(fmt.Errorf("the provider says %s", r.Error))
	case r.Error != "":
		return rejected(fmt.Errorf("%w: %q", ErrTurnedBack, r.Error))
	case r.Code == "" || len(r.Code) > maxCodeBytes:
		return rejected(errors.New("no usable code"))
	}
	return nil
}
