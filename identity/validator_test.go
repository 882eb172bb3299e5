package identity

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSignedIsBelieved(t *testing.T) {
	b := newBench(t, nil)
	for _, key := range []SigningKey{b.host, b.did} {
		belief := b.believe(t, signed(t, unsigned(), key, time.Now()))
		if len(belief.Rejected) != 0 || len(belief.Evidence) != 1 {
			t.Fatalf("%s: %+v", key, belief.Rejected)
		}
		got := belief.Evidence[0]
		if got.Issuer != key.Issuer || got.Subject != slackUser || got.Method != slackWay || string(got.Extra["x_new"]) != "[1,\"\u2028\"]" {
			t.Error(cmp.Diff(unsigned(), got))
		}
	}
	if b.shelf.count() != 2 {
		t.Errorf("%d fetches", b.shelf.count())
	}
}
