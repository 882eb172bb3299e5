package dns

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"inbox/adapters/email/emailtest"
	"inbox/internal/safehttp"
)

func TestAnswersLiveAsTheySay(t *testing.T) {
	names := emailtest.StartNames(t)
	source := safehttp.NewResolver(names.Address)
	lifeAfter := func(name string) time.Duration {
		ctx, life := safehttp.WithLifetime(t.Context())
		_, err := source.LookupTXT(ctx, Absolute(name))
		return lifeOf(err, life)
	}

	names.Break("broken.test")
	for seconds, want := range map[uint32]time.Duration{0: minFoundLife, 30: 30 * time.Second, 600: 10 * time.Minute, 1 << 30: maxFoundLife} {
		names.With(func() { names.TTL = seconds })
		names.Text("life.test", "x")
		if got := lifeAfter("life.test"); got != want {
			t.Errorf("%d seconds: %s; want %s", seconds, got, want)
		}
	}

	for seconds, want := range map[uint32]time.Duration{1: minNotFoundLife, 60: time.Minute, 1 << 30: maxNotFoundLife} {
		names.With(func() { names.Negative = &seconds })
		if got := lifeAfter("nothing.test"); got != want {
			t.Errorf("nothing for %d seconds: %s; want %s", seconds, got, want)
		}
	}

	names.With(func() { names.Negative = nil })
	if got := lifeAfter("nothing.test"); got != notFoundLife {
		t.Errorf("nothing: %s", got)
	}

	if got := lifeAfter("broken.test"); got != troubleLife {
		t.Errorf("trouble: %s", got)
	}
}

func TestRememberedAnswersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked Answers[int]
		count := 0
		ask := func(context.Context, string) (int, error) { count++; return count, nil }
		for i, wait := range []time.Duration{0, foundLife - time.Second, 2 * time.Second} {
			<-time.After(wait)
			got, err := asked.Get(t.Context(), "a.test.", ask)
			if want := max(1, i); err != nil || got != want {
				t.Errorf("after %s: %d, %v; want %d", wait, got, err, want)
			}
		}

		trouble := errors.New("no answer")
		_, err := asked.Get(t.Context(), "b.test.", func(context.Context, string) (int, error) {
			return 0, &net.DNSError{IsTemporary: true, Err: trouble.Error()}
		})

		if err == nil {
			t.Error("trouble was lost")
		}
	})
}

func FuzzTags(f *testing.F) {
	f.Add("v=DKIM1; k=rsa; p=AB\r\n\t CD ; ; =x; p=EF")
	f.Add("v=STSv1;id=1;")
	f.Fuzz(func(t *testing.T, text string) {
		tags, size := Tags(text), 0
		for name, value := range tags {
			size += len(name) + len(value)
			if strings.ContainsAny(value, "; \t\r\n") || strings.Contains(name, ";") {
				t.Errorf("%q: %q = %q", text, name, value)
			}
		}
		if size > len(text) || RepeatsTag(text) && len(tags) == 0 {
			t.Errorf("%q: %v", text, tags)
		}
	})
}
