package moderation

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"inbox/exchange"
)

// guest is a sender without proof who calls itself by a new name each time.
func guest(networks *Networks, address string, i int) Subject {
	return Subject{
		Principal: fmt.Sprint("inbox.test @guest-", i), Host: fmt.Sprint("forged", i, ".example"), Agent: "echo", Thread: fmt.Sprint("t", i),
		Networks: networks.Of(netip.MustParseAddr(address)), Opens: true, Bytes: 10,
	}
}

// TestSessionsOfOneAddressAreOneGuest: a new session is no new sender, and another address is not hurt.
func TestSessionsOfOneAddressAreOneGuest(t *testing.T) {
	networks := NewNetworks([]byte("key"))
	shared := newSums()
	meter := NewMeter(MeterOptions{
		Counters: shared, Sender: []exchange.Rate{{Amount: 30, Window: time.Hour}}, Host: []exchange.Rate{{Amount: 40, Window: time.Hour}}, Budgets: Budgets{SenderCost: 100},
		Now: func() time.Time { return time.Unix(1_700_000_000, 0) },
	})
	taken := func(addresses ...string) (count int) {
		for i := range 100 {
			if _, over := meter.take(t.Context(), guest(networks, addresses[i%len(addresses)], i)); !over {
				count++
			}
		}
		return count
	}
	for _, test := range []struct {
		address string
		want    int
	}{{"192.0.2.1", 30}, {"192.0.2.2", 30}, {"2001:db8::1", 30}, {"2001:db8::2", 0}, {"2001:db8:0:1::1", 30}, {"::ffff:192.0.2.1", 0}} {
		if got := taken(test.address); got != test.want {
			t.Errorf("%s was let in %d times, want %d", test.address, got, test.want)
		}
	}
	for _, test := range []struct {
		form string
		want int
	}{{"2001:db8:1:%x::1", 120 - 20}, {"2001:db9:%x::1", 100}} { // a /56 has 4 times the rate of a /64
		var addresses []string
		for i := range 100 {
			addresses = append(addresses, fmt.Sprintf(test.form, i))
		}
		if got := taken(addresses...); got != test.want {
			t.Errorf("%s was let in %d times, want %d", test.form, got, test.want)
		}
	}
	for i := range 200 {
		_, _ = meter.take(t.Context(), guest(networks, fmt.Sprintf("2001:db8:1:%x::2", i), i))
	}
	if _, over := meter.take(t.Context(), guest(networks, "2001:db8:1:ff::2", 0)); !over {
		t.Error("a /56 is not counted together")
	}

	other := guest(networks, "198.51.100.1", 1)
	meter.Spend(t.Context(), other, 100)
	other = guest(networks, "198.51.100.1", 2)
	if excess, over := meter.take(t.Context(), other); !over || excess.Limit != "sender_cost" {
		t.Errorf("another session has another budget: %+v", excess)
	}
	_ = meter.Flush(t.Context())
	for key := range shared.rows {
		if strings.Contains(key, "192.0.2") || strings.Contains(key, "2001:") {
			t.Errorf("a counter names an address: %s", key)
		}
	}
	if NewNetworks([]byte("other")).Of(netip.MustParseAddr("192.0.2.1"))[0] == networks.Of(netip.MustParseAddr("192.0.2.1"))[0] {
		t.Error("another key gives the same name")
	}
}

// TestNamesBelowOneDomainAreOneHost: a.evil.example, b.evil.example and so on share the limit of their domain.
func TestNamesBelowOneDomainAreOneHost(t *testing.T) {
	meter := NewMeter(MeterOptions{Counters: newSums(), Host: []exchange.Rate{{Amount: 5, Window: time.Hour}}})
	let := 0
	for i := range 20 {
		_, over := meter.take(t.Context(), Subject{Principal: fmt.Sprint("p", i), Host: fmt.Sprintf("h%d.evil.example", i), Agent: "echo", Proven: true})
		if !over {
			let++
		}
	}
	if let != 5 {
		t.Errorf("%d were let in, want 5", let)
	}
	for _, host := range []string{"a.co.uk", "b.co.uk", "a.github.io", "b.github.io", "192.0.2.1", "evil.example2"} {
		if excess, over := meter.take(t.Context(), Subject{Principal: host, Host: host, Agent: "echo", Proven: true}); over {
			t.Errorf("%s: %+v", host, excess)
		}
	}
}

// TestAPartIsKeptForSendersKnownBefore: strangers fill three quarters; who was answered before still gets through, also
// after a restart.
func TestAPartIsKeptForSendersKnownBefore(t *testing.T) {
	shared := newSums()
	options := MeterOptions{Counters: shared, Total: []exchange.Rate{{Amount: 20, Window: time.Hour}}, Agent: []exchange.Rate{{Amount: 20, Window: time.Hour}}, Kept: 25}
	first := NewMeter(options)
	known := alice
	known.Proven = true
	first.Remember(known)
	first.Remember(Subject{Principal: "a guest", Agent: "echo"})
	if err := first.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	meter := NewMeter(options)
	let := 0
	for i := range 40 {
		if _, over := meter.take(t.Context(), Subject{Principal: fmt.Sprint("stranger ", i), Agent: "echo", Proven: i%2 == 0}); !over {
			let++
		}
	}
	if let != 15 {
		t.Errorf("%d strangers were let in, want 15", let)
	}
	if excess, over := meter.take(t.Context(), Subject{Principal: "a guest", Agent: "echo"}); !over || excess.Personal {
		t.Errorf("a guest is known: %+v", excess)
	}
	for i := range 5 {
		if excess, over := meter.take(t.Context(), known); over {
			t.Fatalf("message %d of a known sender: %+v", i, excess)
		}
	}
	if _, over := meter.take(t.Context(), known); !over {
		t.Error("more than all were let in")
	}
}

// TestGuestBytesOfADay: what guests leave on the disk is bounded for a network and for all.
func TestGuestBytesOfADay(t *testing.T) {
	networks := NewNetworks([]byte("key"))
	meter := NewMeter(MeterOptions{Counters: newSums(), GuestBytes: GuestBytes{Network: 100, All: 250}})
	let := map[string]int{}
	for i := range 30 {
		for _, address := range []string{"192.0.2.1", "198.51.100.1", "203.0.113.1"} {
			if _, over := meter.take(t.Context(), guest(networks, address, i)); !over {
				let[address]++
			}
		}
	}
	if let["192.0.2.1"]+let["198.51.100.1"]+let["203.0.113.1"] != 25 || max(let["192.0.2.1"], let["198.51.100.1"]) > 10 {
		t.Errorf("%v", let)
	}
	proven := alice
	proven.Proven, proven.Bytes = true, 1000
	if _, over := meter.take(t.Context(), proven); over {
		t.Error("a proven sender is bounded")
	}
}
