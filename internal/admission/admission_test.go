package admission

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func at(address string) Source { return SourceOf(netip.MustParseAddr(address)) }

func TestSources(t *testing.T) {
	for address, want := range map[string][2]string{
		"192.0.2.7": {"192.0.2.7/32", "192.0.2.0/24"}, "::ffff:192.0.2.7": {"192.0.2.7/32", "192.0.2.0/24"},
		"2001:db8:1:2::3": {"2001:db8:1:2::/64", "2001:db8:1::/48"}, "fe80::1%eth0": {"fe80::/64", "fe80::/48"},
	} {
		if got := at(address); got.String() != want[0] || got.Wide() != want[1] {
			t.Errorf("%s: %v", address, got)
		}
	}
	if SourceOf(netip.Addr{}).Known() || SourceOf(netip.Addr{}).String() != "" {
		t.Error("no address is a source")
	}
}

// TestOneSourceNeverTakesAllSlots: whatever one network asks for, another one gets a slot at once.
func TestOneSourceNeverTakesAllSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewSemaphore(SemaphoreOptions{Total: 16, PerSource: 2, PerHost: 4, PerPair: 1, Patience: 5 * time.Second, Waiting: 64})
		taken := 0
		for i := range 100 {
			go func() {
				if _, err := p.Enter(t.Context(), at("192.0.2.2"), fmt.Sprint("host", i)); err == nil {
					taken++
				}
			}()
			synctest.Wait()
		}
		if taken != 2 {
			t.Errorf("one network has %d slots, want 2", taken)
		}
		leave, err := p.Enter(t.Context(), at("198.51.100.3"), "host0")
		if err != nil {
			t.Fatal(err)
		}
		leave()
		leave() // once is enough
		began := time.Now()
		if _, err := p.Enter(t.Context(), at("192.0.2.2"), "host"); !errors.Is(err, ErrFull) || time.Since(began) > 5*time.Second {
			t.Errorf("beyond its slots: %v after %v", err, time.Since(began))
		}
		<-time.After(5 * time.Second) // those that wait give up
		synctest.Wait()
	})
}

// TestPlacesAreGivenInFairOrder: who holds nothing comes before who holds much, whenever it came.
func TestPlacesAreGivenInFairOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewSemaphore(SemaphoreOptions{Total: 2, PerSource: 2, PerHost: 10, PerPair: 10, Patience: time.Minute, Waiting: 64})
		first, _ := p.Enter(t.Context(), at("192.0.2.2"), "a")
		second, _ := p.Enter(t.Context(), at("192.0.2.2"), "a")
		var order []string
		for _, source := range []string{"192.0.2.2", "192.0.2.2", "198.51.100.3"} {
			go func() {
				leave, err := p.Enter(t.Context(), at(source), "a")
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, source)
				leave()
			}()
			synctest.Wait()
		}
		first()
		synctest.Wait()
		second()
		synctest.Wait()
		if len(order) != 3 || order[0] != "198.51.100.3" {
			t.Errorf("order %v", order)
		}
	})
}

// TestPlacesAreGivenBack: after any order of events nothing is counted any more.
func TestPlacesAreGivenBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := NewSemaphore(SemaphoreOptions{Total: 4, PerSource: 2, PerHost: 3, PerPair: 1, Patience: time.Nanosecond, Waiting: 8})
		var held []func()
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			if len(held) > 0 && rapid.Bool().Draw(t, "leave") {
				held[0]()
				held = held[1:]
				continue
			}
			source := Source{}
			if n := rapid.IntRange(0, 3).Draw(t, "source"); n > 0 {
				source = SourceOf(netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}))
			}
			if leave, err := p.Enter(context.Background(), source, rapid.SampledFrom([]string{"a", "b"}).Draw(t, "host")); err == nil {
				held = append(held, leave)
			}
			if p.used > 4 || p.used != len(held) {
				t.Fatalf("%d slots are counted, %d held", p.used, len(held))
			}
		}
		for _, leave := range held {
			leave()
		}
		if p.used != 0 || len(p.sources)+len(p.hosts)+len(p.pairs)+len(p.waiting)+len(p.waits) != 0 {
			t.Fatalf("left over: %+v", p)
		}
	})
}

// TestBytesAreShared: no order of events lets one network have more than its share, or callers without proof what is kept for
// the others; and all of it comes back.
func TestBytesAreShared(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := NewBytes(8000, 10)
		type hold struct {
			source Source
			n      int64
		}
		var held []hold
		without, by := int64(0), map[Source]int64{}
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			h := hold{SourceOf(netip.AddrFrom4([4]byte{10, byte(rapid.IntRange(0, 9).Draw(t, "wide")), 0, 1})), rapid.Int64Range(1, 1500).Draw(t, "n")}
			if b.Take(h.source, false, h.n) {
				held = append(held, h)
				without += h.n
				by[h.source] += h.n
			}
			if without > 6000 || by[h.source] > 1000 {
				t.Fatalf("%d bytes without proof, %d of one network", without, by[h.source])
			}
		}
		if !b.Take(at("203.0.113.1"), true, 2000) {
			t.Fatal("nothing is left for a caller with proof")
		}
		b.Give(at("203.0.113.1"), 2000)
		for _, h := range held {
			b.Give(h.source, h.n)
		}
		if b.Used() != 0 || len(b.from) != 0 {
			t.Fatalf("left over: %+v", b)
		}
	})
}
