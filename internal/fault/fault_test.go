package fault_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"inbox/internal/fault"
)

func TestOfFindsTheFaultBelowWraps(t *testing.T) {
	inner := fault.RetryIn(3*time.Second, "come again", io.ErrUnexpectedEOF)
	err := fmt.Errorf("store reply: %w", inner)
	found := fault.Of(err)
	if found != inner || !fault.Is(err, fault.Unavailable) || fault.Is(err, fault.NotFound) || found.Permanent {
		t.Fatalf("found %+v", found)
	}
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal("the private cause cannot be reached")
	}
}

func TestErrorWithoutFaultIsInternalAndNeutral(t *testing.T) {
	found := fault.Of(errors.New("dial 10.0.0.1: refused"))
	if found.Kind != fault.Internal || strings.Contains(found.Public, "10.0.0.1") || !strings.Contains(found.Error(), "10.0.0.1") {
		t.Fatalf("public %q, private %q", found.Public, found.Error())
	}
}

func TestTexts(t *testing.T) {
	for want, f := range map[string]*fault.Fault{
		"sender.address: must be @user@domain": fault.InField("sender.address", "must be @user@domain"),
		"no agent @a@b here":                   fault.Newf(fault.NotFound, "no agent %s here", "@a@b"),
		"550 no such user: EOF":                fault.GiveUp("550 no such user", io.EOF),
		"cannot read: EOF":                     fault.Wrap(fault.Internal, "cannot read", io.EOF),
		"The body is not JSON: EOF":            fault.Wrap(fault.Malformed, "The body is not JSON.", io.EOF),
	} {
		if f.Error() != want {
			t.Errorf("%q, want %q", f.Error(), want)
		}
	}
	if !fault.GiveUp("no", nil).Permanent {
		t.Error("giving up is not permanent")
	}
}

// TestOurOwnDatabaseIsNeverFinal: a reply could not be written because the database was away for a moment, and was given up.
func TestOurOwnDatabaseIsNeverFinal(t *testing.T) {
	for name, c := range map[string]struct {
		cause     error
		permanent bool
	}{
		"nothing":              {nil, true},
		"something else":       {errors.New("no such key"), true},
		"a peer that is away":  {fault.RetryIn(time.Second, "busy", nil), true},
		"our database":         {fault.Wrap(fault.Unavailable, "later", fault.ErrStore), false},
		"our database, deeper": {fmt.Errorf("load key: %w", fault.GiveUp("cannot be signed", fault.ErrStore)), false},
	} {
		if f := fault.GiveUp("cannot be sent", c.cause); f.Permanent != c.permanent {
			t.Errorf("%s: permanent %v", name, f.Permanent)
		}
	}
}
