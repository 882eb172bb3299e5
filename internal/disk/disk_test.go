package disk

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

func TestGuardLooksOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left, asked, broken := uint64(100), 0, error(nil)
		guard := NewGuard(Options{Directory: "x", Keep: 50, Logger: slog.New(slog.DiscardHandler), Space: func(string) (uint64, uint64, error) {
			asked++
			return left, 1000, broken
		}})
		for range 1000 {
			if guard.Full() {
				t.Fatal("full at once")
			}
		}
		left = 49
		if guard.Full() || asked != 1 {
			t.Fatalf("asked %d times within a second", asked)
		}
		<-time.After(time.Second)
		if !guard.Full() {
			t.Fatal("not full")
		}
		broken = errors.New("no such directory")
		<-time.After(time.Second)
		if guard.Full() {
			t.Fatal("what nobody knows does not stop a server")
		}
		broken, left = nil, 50
		<-time.After(time.Second)
		if guard.Full() {
			t.Fatal("still full")
		}
	})
}

func TestUsualBound(t *testing.T) {
	for total, want := range map[uint64]int64{1000: 50, 20 << 30: 1 << 30, 10 << 40: 1 << 30} {
		guard := NewGuard(Options{Keep: -1, Space: func(string) (uint64, uint64, error) { return total, total, nil }})
		if _, bound, err := guard.Look(); err != nil || bound != want {
			t.Errorf("of %d bytes %d are kept (%v), want %d", total, bound, err, want)
		}
	}
}

func TestRealDisk(t *testing.T) {
	left, _, err := NewGuard(Options{Directory: t.TempDir(), Keep: -1}).Look()
	if err != nil || left <= 0 {
		t.Errorf("%d bytes free, %v", left, err)
	}
	if _, _, err := NewGuard(Options{Directory: t.TempDir() + "/none", Keep: -1}).Look(); err == nil {
		t.Error("a missing directory has free space")
	}
	var none *Guard
	if none.Full() || NewGuard(Options{}).Full() {
		t.Error("a guard that is off is full")
	}
}

// TestGuardCountsWhatIsLetIn: a small disk was overrun between two looks.
func TestGuardCountsWhatIsLetIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left, asked := int64(1000), 0
		guard := NewGuard(Options{Directory: "x", Keep: 500, Logger: slog.New(slog.DiscardHandler), Space: func(string) (uint64, uint64, error) {
			asked++
			return uint64(left), 10_000, nil
		}})
		admitted := 0
		for range 1000 { // all within one second
			if guard.Full() {
				break
			}
			guard.Admit(100)
			left -= 100
			admitted++
		}
		if admitted != 6 || left != 400 || asked != 2 {
			t.Errorf("%d were let in, %d bytes are left, the disk was asked %d times", admitted, left, asked)
		}
		left = 1000 // what was let in took no room in the end
		<-time.After(time.Second)
		if guard.Full() {
			t.Error("still full")
		}
		guard.Admit(400)
		asked = 0
		for range 100 {
			if guard.Full() {
				t.Fatal("full although the disk has room")
			}
		}
		if asked != 0 {
			t.Errorf("the disk was asked %d times", asked)
		}
		(*Guard)(nil).Admit(1)
	})
}

// TestDiskWithoutInodes: a disk on which no file can be made is full, whatever bytes it has. It was ready, and refused each message with a file.
func TestDiskWithoutInodes(t *testing.T) {
	for name, row := range map[string]struct {
		free, total uint64
		full        bool
	}{
		"none left": {0, 1_000_000, true}, "below the bound": {9_999, 1_000_000, true}, "at the bound": {10_000, 1_000_000, false},
		"a small one": {4, 100, true}, "a small one with room": {5, 100, false}, "without a bound": {0, 0, false},
	} {
		for _, keep := range []int64{-1, 1} {
			guard := NewGuard(Options{
				Keep: keep, Logger: slog.New(slog.DiscardHandler),
				Space: func(string) (uint64, uint64, error) { return 1 << 40, 1 << 40, nil },
				Files: func(string) (uint64, uint64, error) { return row.free, row.total, nil },
			})
			if guard.Full() != row.full {
				t.Errorf("%s: full %v", name, !row.full)
			}
		}
	}
}
