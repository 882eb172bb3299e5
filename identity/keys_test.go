package identity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"inbox/internal/await"
)

// bubble runs a test with its own clock and a fresh bench.
func bubble(t *testing.T, change func(*ValidatorOptions), test func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newBench(t, change)) })
}

func (b *bench) fresh(t testing.TB) json.RawMessage {
	t.Helper()
	return signed(t, unsigned(), b.host, time.Now())
}

// wants fails unless one piece of fresh evidence has this outcome ("" = believed) after so many fetches.
func (b *bench) wants(t *testing.T, code string, fetches int) {
	t.Helper()
	got := ""
	if validation := b.validate(t, b.fresh(t)); len(validation.Rejected) > 0 {
		got = validation.Rejected[0].Code
	}
	if got != code || b.shelf.count() != fetches {
		t.Fatalf("outcome %q after %d fetches, want %q after %d", got, b.shelf.count(), code, fetches)
	}
}

func after(t *testing.T, d time.Duration) {
	t.Helper()
	<-time.After(d)
}

func TestDocumentIsKeptTenMinutes(t *testing.T) {
	bubble(t, nil, func(t *testing.T, b *bench) {
		b.wants(t, "", 1)
		after(t, keepDocument-time.Second)
		b.wants(t, "", 1)
		after(t, time.Second)
		b.wants(t, "", 2)
	})
}

func TestFailureIsKeptOneMinute(t *testing.T) {
	bubble(t, nil, func(t *testing.T, b *bench) {
		delete(b.shelf.documents, cardURL)
		b.wants(t, CodeKeyFetchFailed, 1)
		b.publish()
		after(t, keepFailure-time.Second)
		b.wants(t, CodeKeyFetchFailed, 1)
		after(t, time.Second)
		b.wants(t, "", 2)
	})
}

func TestRotation(t *testing.T) {
	bubble(t, nil, func(t *testing.T, b *bench) {
		b.wants(t, "", 1)
		old := b.host
		b.host = mustKey(t, connector)
		previous := old.Public()
		previous.NotAfter = time.Now().Add(time.Hour)
		b.shelf.publish(cardURL, ConnectorCard(connector, nil, []PublicKey{b.host.Public()}, []PublicKey{previous}))
		b.wants(t, "", 2) // the new key causes one refresh
		next := b.host
		b.host = old
		b.wants(t, "", 2) // the previous key is still good
		after(t, time.Hour)
		b.wants(t, CodeKeyRetired, 3)
		b.host = next
		b.wants(t, "", 3)
	})
}

func TestUnknownKeyRefreshesOnceInHalfAMinute(t *testing.T) {
	bubble(t, nil, func(t *testing.T, b *bench) {
		known := b.host
		b.wants(t, "", 1)
		b.host = mustKey(t, connector)
		b.wants(t, CodeUnknownKey, 2)
		b.wants(t, CodeUnknownKey, 2)
		after(t, refreshPause-time.Second)
		b.wants(t, CodeUnknownKey, 2)
		after(t, time.Second)
		b.wants(t, CodeUnknownKey, 3)
		b.host = known
		b.wants(t, "", 3)
	})
}

// A document that was fetched for this very evidence is not fetched again because it lacks the key.
func TestFirstFetchIsNotRefreshed(t *testing.T) {
	bubble(t, nil, func(t *testing.T, b *bench) {
		b.host = mustKey(t, connector)
		b.wants(t, CodeUnknownKey, 1)
	})
}

func TestFailedRefreshKeepsKnownKeys(t *testing.T) {
	bubble(t, nil, func(t *testing.T, b *bench) {
		known := b.host
		b.wants(t, "", 1)
		b.host = mustKey(t, connector)
		delete(b.shelf.documents, cardURL)
		b.wants(t, CodeKeyFetchFailed, 2)
		b.host = known
		b.wants(t, "", 2)
		after(t, keepDocument)
		b.wants(t, CodeKeyFetchFailed, 3) // but not for longer than the document was good
	})
}

func TestSingleFlight(t *testing.T) {
	bubble(t, nil, func(t *testing.T, b *bench) {
		open := make(chan struct{})
		b.shelf.before = func(context.Context, string) error { <-open; return nil }
		b.together(t, 20, func() { close(open) })
		if b.shelf.count() != 1 {
			t.Errorf("%d fetches for the first evidence", b.shelf.count())
		}
		b.host = mustKey(t, connector)
		b.publish()
		open = make(chan struct{})
		b.together(t, 20, func() { close(open) })
		if b.shelf.count() != 2 {
			t.Errorf("%d fetches after a new key", b.shelf.count())
		}
	})
}

// together has n callers ask at once and wants all of them served when release has been called.
func (b *bench) together(t *testing.T, n int, release func()) {
	t.Helper()
	var waiting sync.WaitGroup
	for range n {
		piece := b.fresh(t)
		waiting.Go(func() {
			if validation := b.validate(t, piece); len(validation.Evidence) != 1 {
				t.Error(validation.Rejected)
			}
		})
	}
	synctest.Wait()
	release()
	waiting.Wait()
}

// A refresh that hangs holds up only those who need it, and those for ten seconds.
func TestSlowRefresh(t *testing.T) {
	bubble(t, nil, func(t *testing.T, b *bench) {
		b.wants(t, "", 1)
		known := b.host
		b.shelf.before = func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }
		b.host = mustKey(t, connector)
		stranger, begun := b.fresh(t), time.Now()
		var waiting sync.WaitGroup
		waiting.Go(func() {
			if got := codes(b.validate(t, stranger)); !slices.Equal(got, []string{CodeKeyFetchFailed}) || time.Since(begun) != fetchTimeout {
				t.Error(got, time.Since(begun))
			}
		})
		synctest.Wait()
		b.host = known
		b.wants(t, "", 2)
		if time.Since(begun) != 0 {
			t.Error("a known key had to wait")
		}
		waiting.Wait()
	})
}

// The fetch belongs to no one: the one who began it may leave, and the others are served.
func TestCallerLeaves(t *testing.T) {
	bubble(t, nil, func(t *testing.T, b *bench) {
		open := make(chan struct{})
		b.shelf.before = func(ctx context.Context, _ string) error { <-open; return ctx.Err() }
		ctx, leave := context.WithCancel(t.Context())
		piece := b.fresh(t)
		left := make(chan Validation)
		go func() {
			left <- b.validator.Validate(ctx, Offered{Evidence: []json.RawMessage{piece}}, Recipient{Address: agentHere})
		}()
		synctest.Wait()
		leave()
		if got := codes(<-left); !slices.Equal(got, []string{CodeKeyFetchFailed}) {
			t.Error(got)
		}
		b.together(t, 3, func() { close(open) })
		if b.shelf.count() != 1 {
			t.Errorf("%d fetches", b.shelf.count())
		}
	})
}

func TestIssuersAreBounded(t *testing.T) {
	const many = maxKeptIssuers + 40
	var issuers []TrustedIssuer
	for i := range many {
		issuers = append(issuers, trusted(fmt.Sprintf("c%d.test", i)))
	}
	bubble(t, func(o *ValidatorOptions) { o.Trust = issuers }, func(t *testing.T, b *bench) {
		for i := range many {
			key := mustKey(t, fmt.Sprintf("c%d.test", i))
			if got := codes(b.validate(t, signed(t, unsigned(), key, time.Now()))); !slices.Equal(got, []string{CodeKeyFetchFailed}) {
				t.Fatal(got)
			}
		}
		if kept := len(b.validator.keys.issuers); kept != maxKeptIssuers {
			t.Errorf("%d issuers kept", kept)
		}
	})
}

func TestExpiryIsCheckedAgain(t *testing.T) {
	bubble(t, nil, func(t *testing.T, b *bench) {
		b.shelf.before = func(context.Context, string) error { after(t, 5*time.Second); return nil }
		e := unsigned()
		end := At(time.Now().Add(time.Second))
		e.ExpiresAt = &end
		piece := signed(t, e, b.host, time.Now())
		after(t, time.Second+clockSkew-2*time.Second)
		if got := codes(b.validate(t, piece)); !slices.Equal(got, []string{CodeExpired}) {
			t.Error(got)
		}
	})
}

func TestTrustIsCheckedAgain(t *testing.T) {
	ending := func(o *ValidatorOptions) {
		o.Trust = []TrustedIssuer{trusted(connector)}
		o.Trust[0].Expires = time.Now().Add(3 * time.Second)
	}
	bubble(t, ending, func(t *testing.T, b *bench) {
		b.used.hook = func() { after(t, 5*time.Second) }
		if got := codes(b.validate(t, b.fresh(t))); !slices.Equal(got, []string{CodeUntrustedIssuer}) {
			t.Error(got)
		}
	})
}

// A key stays remembered until the evidence would be refused for its age.
func TestReplayIsKeptUntilExpiry(t *testing.T) {
	bubble(t, nil, func(t *testing.T, b *bench) {
		piece := b.fresh(t)
		b.validate(t, piece)
		for _, until := range b.used.seen {
			if want := time.Now().Add(attestationLife + clockSkew); !until.Equal(want) {
				t.Errorf("until %v, want %v", until, want)
			}
		}
		after(t, attestationLife+clockSkew-time.Millisecond)
		if got := codes(b.validate(t, piece)); !slices.Equal(got, []string{CodeReplayed}) {
			t.Error(got)
		}
		after(t, time.Millisecond)
		if got := codes(b.validate(t, piece)); !slices.Equal(got, []string{CodeExpired}) {
			t.Error(got)
		}
	})
}

func TestReplayOfCopiesAtOnce(t *testing.T) {
	b := newBench(t, nil)
	piece := b.fresh(t)
	var waiting sync.WaitGroup
	believed := make(chan int, 20)
	for range 20 {
		waiting.Go(func() { believed <- len(b.validate(t, piece).Evidence) })
	}
	await.Done(t, waiting.Wait, "what is believed of all copies")
	close(believed)
	total := 0
	for n := range believed {
		total += n
	}
	if total != 1 {
		t.Errorf("believed %d times", total)
	}
}

func TestDelegation(t *testing.T) {
	entry := trusted(connector)
	entry.AllowDelegated, entry.Methods = true, []string{MethodLocalAgent}
	b := newBench(t, func(o *ValidatorOptions) { o.Trust = append(o.Trust, entry) })
	e := unsigned()
	e.OnBehalfOf = []string{"acct:alice@a.test"}
	if got := codes(b.validate(t, signed(t, e, b.host, time.Now()))); !slices.Equal(got, []string{CodeDelegation}) {
		t.Error("an entry that does not cover the method allowed delegation:", got)
	}
	e.Method = MethodLocalAgent
	validation := b.validate(t, signed(t, e, b.host, time.Now()))
	if len(validation.Evidence) != 1 || !slices.Equal(validation.Evidence[0].OnBehalfOf, e.OnBehalfOf) {
		t.Errorf("%+v", validation)
	}
}

func TestDevelopmentIssuer(t *testing.T) {
	const issuer = "127.0.0.1:8081"
	for allow, url := range map[bool]string{true: "http://127.0.0.1:8081/.well-known/adapter-card", false: "https://127.0.0.1:8081/.well-known/adapter-card"} {
		b := newBench(t, func(o *ValidatorOptions) { o.Trust, o.AllowHTTP = []TrustedIssuer{trusted("http://" + issuer)}, allow })
		b.host = mustKey(t, issuer)
		b.shelf.publish(url, ConnectorCard(issuer, nil, []PublicKey{b.host.Public()}, nil))
		if validation := b.validate(t, b.fresh(t)); len(validation.Evidence) != 1 || validation.Evidence[0].Issuer != issuer {
			t.Errorf("%+v", validation)
		}
	}
}

func TestCardURLIsAnAudience(t *testing.T) {
	b := newBench(t, nil)
	e := unsigned()
	e.Audience = Audience{"https://else.test/", cardHere}
	if validation := b.validate(t, signed(t, e, b.host, time.Now())); len(validation.Evidence) != 1 {
		t.Error(validation.Rejected)
	}
	piece := signed(t, unsigned(), b.host, time.Now())
	if validation := b.validator.Validate(t.Context(), Offered{Evidence: []json.RawMessage{piece}}, Recipient{}); len(validation.Evidence) != 0 {
		t.Error("believed for nobody")
	}
}

// The issuer may write its name in another way; what is kept has one form, so that a person stays the same.
func TestIssuerBecomesCanonical(t *testing.T) {
	b := newBench(t, nil)
	key := b.host
	key.Issuer = "https://Connector.TEST/"
	validation := b.validate(t, signed(t, unsigned(), key, time.Now()))
	if len(validation.Evidence) != 1 || validation.Evidence[0].Issuer != connector {
		t.Errorf("%+v", validation)
	}
}

func TestNewValidatorRefuses(t *testing.T) {
	good := ValidatorOptions{Documents: &shelf{}, Replays: &usedUp{}}
	for name, change := range map[string]func(*ValidatorOptions){
		"no documents": func(o *ValidatorOptions) { o.Documents = nil },
		"no replays":   func(o *ValidatorOptions) { o.Replays = nil },
		"bad trust":    func(o *ValidatorOptions) { o.Trust = []TrustedIssuer{{Issuer: connector}} },
		"bad issuer":   func(o *ValidatorOptions) { o.OwnIssuer = "a b" },
	} {
		options := good
		change(&options)
		if _, err := NewValidator(options); err == nil {
			t.Error(name)
		}
	}
	if _, err := NewValidator(ValidatorOptions{Documents: &shelf{}, Replays: &usedUp{}, Trust: []TrustedIssuer{{Issuer: connector}}}); !errors.Is(err, errNothingTrusted) {
		t.Error(err)
	}
}
