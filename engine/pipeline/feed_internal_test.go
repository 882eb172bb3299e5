package pipeline

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"unicode/utf8"

	"inbox/exchange"
	"inbox/normalized"
)

func TestFollowersShareWhatOneRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newBroker()
		_, stop := h.watch("t")
		defer stop()
		var reads atomic.Int64
		release := make(chan struct{})
		read := func(ctx context.Context, r *reading) {
			reads.Add(1)
			select {
			case <-release:
				r.events = []exchange.Event{{Seq: 1}}
			case <-ctx.Done():
				r.err = ctx.Err()
			}
		}
		leaving, leave := context.WithCancel(t.Context())
		go func() { _, _ = h.shared(leaving, "t", 0, nil, read) }()
		synctest.Wait()
		leave() // the reading goes on without who began it
		var group sync.WaitGroup
		for range 1000 {
			group.Go(func() {
				if found, err := h.shared(t.Context(), "t", 0, nil, read); err != nil || len(found.events) != 1 {
					t.Errorf("%+v, %v", found, err)
				}
			})
		}
		synctest.Wait()
		close(release)
		group.Wait()
		if reads.Load() != 1 {
			t.Errorf("%d readings", reads.Load())
		}
		found, _ := h.shared(t.Context(), "t", 0, nil, read)
		if again, _ := h.shared(t.Context(), "t", 0, found, read); again == found || reads.Load() != 2 {
			t.Errorf("who fears that an announcement was lost gets the same: %d readings", reads.Load())
		}
		h.notify("t")
		if _, _ = h.shared(t.Context(), "t", 0, nil, read); reads.Load() != 3 {
			t.Errorf("after a change: %d readings", reads.Load())
		}
		for at := range place(10 * maxShared) {
			_, _ = h.shared(t.Context(), "t", at, nil, read)
		}
		if kept := len(h.watchers["t"].read); kept > maxShared {
			t.Errorf("%d readings are kept", kept)
		}
	})
}

func TestFailedReadingsAreNotKept(t *testing.T) {
	h := newBroker()
	_, stop := h.watch("t")
	failure := errors.New("down")
	if _, err := h.shared(t.Context(), "t", theTurn, nil, func(_ context.Context, r *reading) { r.err = failure }); !errors.Is(err, failure) {
		t.Error(err)
	}
	if _, err := h.shared(t.Context(), "t", theTurn, nil, func(context.Context, *reading) {}); err != nil {
		t.Errorf("the failure stays: %v", err)
	}
	stop()
	if len(h.watchers) != 0 {
		t.Error("what was read stays after the last follower")
	}
}

func TestLongTextsAreSeveralEvents(t *testing.T) {
	long := strings.Repeat("é", maxDeltaText)
	part := normalized.Text(long)
	joined := ""
	cut := cutTexts([]normalized.Delta{
		{Kind: normalized.DeltaText, Text: "short "}, {Kind: normalized.DeltaText, Text: "x" + long}, {Kind: normalized.DeltaPartBegin, Part: &part},
	})
	for _, delta := range cut {
		if len(delta.Text) > maxDeltaText || !utf8.ValidString(delta.Text) {
			t.Errorf("a text of %d bytes", len(delta.Text))
		}
		joined += delta.Text
	}
	if joined != "short x"+long || cut[len(cut)-1].Part != &part {
		t.Errorf("%d events with %d bytes", len(cut), len(joined))
	}
}
