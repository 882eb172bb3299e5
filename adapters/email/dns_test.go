package email

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"inbox/adapters/email/emailtest"
	"inbox/internal/safehttp"
)

// lifeAfter asks the name server about a name and gives how long the answer is believed.
func (s *setup) lifeAfter(name string) time.Duration {
	s.t.Helper()
	ctx, life := safehttp.WithLifetime(s.t.Context())
	_, err := s.adapter.options.Resolver.LookupTXT(ctx, absolute(name))
	return lifeOf(err, life)
}

func TestAnswersLiveAsTheySay(t *testing.T) {
	s := start(t, nil)
	s.names.Break("broken.test")
	for seconds, want := range map[uint32]time.Duration{0: minFoundLife, 30: 30 * time.Second, 600: 10 * time.Minute, 1 << 30: maxFoundLife} {
		s.names.With(func() { s.names.TTL = seconds })
		s.names.Text("life.test", "x")
		if got := s.lifeAfter("life.test"); got != want {
			t.Errorf("%d seconds: %s; want %s", seconds, got, want)
		}
	}
	for seconds, want := range map[uint32]time.Duration{1: minNotFoundLife, 60: time.Minute, 1 << 30: maxNotFoundLife} {
		s.names.With(func() { s.names.Negative = &seconds })
		if got := s.lifeAfter("nothing.test"); got != want {
			t.Errorf("nothing for %d seconds: %s; want %s", seconds, got, want)
		}
	}
	s.names.With(func() { s.names.Negative = nil })
	if got := s.lifeAfter("nothing.test"); got != notFoundLife {
		t.Errorf("nothing: %s", got)
	}
	if got := s.lifeAfter("broken.test"); got != troubleLife {
		t.Errorf("trouble: %s", got)
	}
}

func TestRememberedAnswersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked lookups[int]
		count := 0
		ask := func(context.Context, string) (int, error) { count++; return count, nil }
		for i, wait := range []time.Duration{0, foundLife - time.Second, 2 * time.Second} {
			<-time.After(wait)
			got, err := asked.get(t.Context(), "a.test.", ask)
			if want := max(1, i); err != nil || got != want {
				t.Errorf("after %s: %d, %v; want %d", wait, got, err, want)
			}
		}
		trouble := errors.New("no answer")
		_, err := asked.get(t.Context(), "b.test.", func(context.Context, string) (int, error) {
			return 0, &net.DNSError{IsTemporary: true, Err: trouble.Error()}
		})
		if err == nil {
			t.Error("trouble was lost")
		}
	})
}

// TestNamesThatExist tells an empty name from one that is not there: np= is about the second alone.
func TestNamesThatExist(t *testing.T) {
	s := start(t, nil)
	s.names.Text("_dmarc.plain.test", "v=DMARC1; p=none; sp=none; np=reject")
	s.names.Text("x.between.plain.test", "here")
	s.names.With(func() { s.names.Empty = map[string]bool{dns.Fqdn("between.plain.test"): true} })
	w := s.greet()
	w.send("ann@plain.test", []string{"echo@inbox.test"}, emailtest.Letter("x", "From: ann@between.plain.test", "Message-ID: <1@x.test>"), "250")
	w.send("ann@plain.test", []string{"echo@inbox.test"}, emailtest.Letter("x", "From: ann@nothing.plain.test", "Message-ID: <2@x.test>"), "550 5.7.26")
}
