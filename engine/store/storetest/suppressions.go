package storetest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
)

// Suppressions are the addresses that take no mail.
type Suppressions interface {
	MailFailed(ctx context.Context, failure exchange.MailFailure) (bool, error)
	Suppressed(ctx context.Context, addresses []string) ([]exchange.Suppression, error)
	Suppressions(ctx context.Context, filter exchange.SuppressionFilter) ([]exchange.Suppression, error)
	Unsuppress(ctx context.Context, address string) (bool, error)
	Wrote(ctx context.Context, channel, address string, after time.Time) (bool, error)
	EndSuppressions(ctx context.Context, channel string) ([]string, error)
}

var suppressionCases = map[string]func(*testing.T, *probe){
	"one hard failure":                  suppressedAtOnce,
	"five soft failures":                suppressedLater,
	"old failures":                      failuresEnd,
	"pages and removal":                 suppressionPages,
	"counted once a delivery":           failuresOfOneDelivery,
	"what others say counts once a day": hearsay,
	"ended by messages":                 suppressionsEnd,
}

// suppressionsEnd with a message of the channel that its sender proved, and that came later. Of one that is open a list learns when it ends.
func suppressionsEnd(t *testing.T, p *probe) {
	began := p.now
	for name, row := range map[string]struct {
		change       func(*exchange.TurnRecord)
		wrote, ended bool
	}{
		"proven": {func(*exchange.TurnRecord) {}, true, true},
		"written as Name": {func(turn *exchange.TurnRecord) {
			turn.Message.Sender.Address = identity.Stated("@Written-As-Name@X.Test")
		}, true, true},
		"silent": {func(turn *exchange.TurnRecord) { turn.State = exchange.StateSilent }, true, true},
		"open":   {func(turn *exchange.TurnRecord) { turn.State = exchange.StateHeld }, true, false},
		"unproven": {func(turn *exchange.TurnRecord) {
			turn.Principal = normalized.Unproven + turn.Message.Sender.Address.String()
		}, false, false},
		"by another way": {func(turn *exchange.TurnRecord) { turn.Channel = "activitypub" }, false, false},
		"of before":      {func(turn *exchange.TurnRecord) { turn.AcceptedAt = began.Add(-time.Second) }, false, false},
		"of another":     {func(turn *exchange.TurnRecord) { turn.Message.Sender.Address = identity.Stated("@other@x.test") }, false, false},
	} {
		address := strings.ReplaceAll(strings.ToLower(name), " ", "-") + "@x.test"
		p.failure(address, exchange.FailureHard, "d", began)
		turn := p.message(name)
		turn.Principal, turn.Message.Sender.Address, turn.State = "inbox.example mailto:"+address, identity.Stated("@"+address), exchange.StateAnswered
		row.change(&turn)
		p.insert(turn)
		wrote, err := p.Suppressions.Wrote(t.Context(), normalized.ViaEmail, address, began)
		p.ok(err)
		if wrote != row.wrote {
			t.Errorf("%s: wrote %v", name, wrote)
		}
	}

	want := []string{"proven@x.test", "silent@x.test", "written-as-name@x.test"}
	for range 2 {
		ended, err := p.Suppressions.EndSuppressions(t.Context(), normalized.ViaEmail)
		p.ok(err)
		p.same(want, ended)
		left, err := p.Suppressions.Suppressed(t.Context(), []string{"proven@x.test", "silent@x.test", "written-as-name@x.test", "unproven@x.test"})
		p.ok(err)
		if len(left) != 1 {
			t.Errorf("%v are left", left)
		}
		want = nil
	}
}

func (p *probe) failure(address, kind, delivery string, at time.Time) bool {
	p.Helper()
	suppressed, err := p.Suppressions.MailFailed(p.Context(), exchange.MailFailure{
		Address: address, Kind: kind, Reason: "550 5.1.1 no\x00body", DeliveryID: delivery, At: at,
	})
	p.ok(err)
	return suppressed
}

func suppressedAtOnce(t *testing.T, p *probe) {
	for _, kind := range []string{exchange.FailureHard, exchange.FailureComplaint} {
		address := kind + "@x.test"
		if !p.failure(address, kind, "d1", p.now) || p.failure(address, kind, "d2", p.now.Add(time.Hour)) {
			t.Errorf("%s: want the first failure to suppress, and only the first", kind)
		}
		found, err := p.Suppressions.Suppressed(t.Context(), []string{"other@x.test", address})
		p.ok(err)
		p.same([]exchange.Suppression{{Address: address, Kind: kind, Reason: found[0].Reason, DeliveryID: "d1", CreatedAt: p.now}}, found)
	}

	none, err := p.Suppressions.Suppressed(t.Context(), nil)
	p.ok(err)

	if len(none) != 0 {
		t.Errorf("no one was asked for: %v", none)
	}
}

func suppressedLater(t *testing.T, p *probe) {
	for i := range exchange.MaxSoftFailures {
		last := i == exchange.MaxSoftFailures-1
		if got := p.failure("a@x.test", exchange.FailureSoft, fmt.Sprint(i), p.now.Add(time.Duration(i)*24*time.Hour)); got != last {
			t.Errorf("failure %d: suppressed %v", i+1, got)
		}
	}
}

func failuresEnd(t *testing.T, p *probe) {
	for i := range 2 * exchange.MaxSoftFailures {
		at := p.now.Add(time.Duration(i) * exchange.SoftFailureWindow / 4)
		if p.failure("a@x.test", exchange.FailureSoft, fmt.Sprint(i), at) {
			t.Errorf("failure %d suppresses, but only four are within seven days", i+1)
		}
	}
}

func failuresOfOneDelivery(t *testing.T, p *probe) {
	for range 2 * exchange.MaxSoftFailures {
		if p.failure("a@x.test", exchange.FailureSoft, "d1", p.now) {
			t.Error("the same report again suppresses")
		}
	}
}

func hearsay(t *testing.T, p *probe) {
	report := func(address string, at time.Time) bool {
		suppressed, err := p.Suppressions.MailFailed(t.Context(), exchange.MailFailure{
			Address: address, Kind: exchange.FailureSoft, DeliveryID: newID(), Hearsay: true, At: at,
		})
		p.ok(err)
		return suppressed
	}

	for range 2 * exchange.MaxSoftFailures {
		if report("a@x.test", p.now) {
			t.Fatal("reports of one day suppress")
		}
	}
	for i := range exchange.MaxSoftFailures {
		last := i == exchange.MaxSoftFailures-1
		if got := report("b@x.test", p.now.Add(time.Duration(i)*24*time.Hour)); got != last {
			t.Errorf("day %d: suppressed %v", i+1, got)
		}
	}
}

func suppressionPages(t *testing.T, p *probe) {
	for _, name := range []string{"c", "a", "b"} {
		p.failure(name+"@x.test", exchange.FailureHard, "d", p.now)
	}

	first, err := p.Suppressions.Suppressions(t.Context(), exchange.SuppressionFilter{Limit: 2})
	p.ok(err)
	rest, err := p.Suppressions.Suppressions(t.Context(), exchange.SuppressionFilter{Limit: 2, After: first[1].Address})
	p.ok(err)
	var names []string
	for _, one := range append(first, rest...) {
		names = append(names, one.Address)
	}

	p.same([]string{"a@x.test", "b@x.test", "c@x.test"}, names)
	soft, err := p.Suppressions.Suppressions(t.Context(), exchange.SuppressionFilter{Kind: exchange.FailureSoft})
	p.ok(err)

	if len(soft) != 0 {
		t.Errorf("soft: %v", soft)
	}

	for i, want := range []bool{true, false} {
		lifted, err := p.Suppressions.Unsuppress(t.Context(), "b@x.test")
		p.ok(err)
		if lifted != want {
			t.Errorf("removal %d: %v", i+1, lifted)
		}
	}

	if !p.failure("b@x.test", exchange.FailureHard, "d", p.now) {
		t.Error("a lifted address is not suppressed again")
	}
}
