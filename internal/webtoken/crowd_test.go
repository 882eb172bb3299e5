package webtoken

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"inbox/identity"
	"inbox/internal/admission"
	"inbox/internal/await"
	"inbox/internal/fault"
)

var (
	forger = admission.SourceOf(netip.MustParseAddr("192.0.2.2"))
	honest = admission.SourceOf(netip.MustParseAddr("198.51.100.3"))
)

// TestForgersDoNotKeepNewKeysOut: a kid that no one has caused the one look at an issuer's keys in a minute; the issuer,
// who has a new key since, was refused.
func TestForgersDoNotKeepNewKeysOut(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	keys := map[string]publicKey{"old": {}}
	sets := newKeySets(func() time.Time { return now }, func(context.Context, string) (map[string]publicKey, error) { return keys, nil }, 10)
	find := func(source admission.Source, kid string) (bool, error) {
		_, found, err := sets.find(t.Context(), source, "peer.test", kid)
		return found, err
	}
	if found, err := find(honest, "old"); !found || err != nil {
		t.Fatalf("the first key: %v, %v", found, err)
	}
	for i := range 5 {
		if found, err := find(forger, fmt.Sprint("invented", i)); found || err != nil {
			t.Errorf("an invented key: %v, %v", found, err)
		}
	}
	keys = map[string]publicKey{"old": {}, "new": {}}
	if found, err := find(honest, "new"); !found || err != nil {
		t.Errorf("the new key: %v, %v", found, err)
	}
	for i := range identity.MaxLooks { // many networks together
		_, _ = find(admission.SourceOf(netip.AddrFrom4([4]byte{10, byte(i), 0, 1})), "invented")
	}
	if _, err := find(admission.SourceOf(netip.MustParseAddr("203.0.113.9")), "newest"); !fault.Is(err, fault.Unavailable) || fault.Of(err).RetryAfter <= 0 {
		t.Errorf("in doubt: %v, want Unavailable with a time", err)
	}
}

// TestSlowIssuersDoNotShutOutOthers: sixteen slow issuers made every token of an unknown peer invalid.
func TestSlowIssuersDoNotShutOutOthers(t *testing.T) {
	release := make(chan struct{})
	letGo := sync.OnceFunc(func() { close(release) })
	defer letGo()
	begun := make(chan struct{}, maxFetches)
	sets := newKeySets(time.Now, func(ctx context.Context, issuer string) (map[string]publicKey, error) {
		if issuer == "honest.test" {
			return map[string]publicKey{"k": {}}, nil
		}
		begun <- struct{}{}
		<-release
		return nil, errors.New("404")
	}, 1000)
	var waiting sync.WaitGroup
	for i := range 30 {
		waiting.Go(func() { _, _, _ = sets.find(t.Context(), forger, fmt.Sprint("slow", i, ".test"), "k") })
	}
	for range maxFetches / 16 {
		await.Receive(t, begun, "the fetches of slow issuers")
	}
	if _, found, err := sets.find(t.Context(), honest, "honest.test", "k"); !found || err != nil {
		t.Errorf("an honest peer: %v, %v", found, err)
	}
	letGo()
	await.Done(t, waiting.Wait, "the answers about all slow issuers")
}

// TestPeersThatDoNotAnswer: in doubt a token is not refused.
func TestPeersThatDoNotAnswer(t *testing.T) {
	sets := newKeySets(time.Now, func(context.Context, string) (map[string]publicKey, error) { return nil, context.DeadlineExceeded }, 10)
	for range 2 { // the second time from memory
		if _, _, err := sets.find(t.Context(), honest, "peer.test", "k"); !fault.Is(err, fault.Unavailable) || !errors.Is(err, ErrLater) {
			t.Errorf("%v, want Unavailable", err)
		}
	}
}

// TestAnInventedKeyCostsOneLook: one token with an invented kid kept the new key of the issuer out for a minute, for everyone in the
// network of whoever sent it.
func TestAnInventedKeyCostsOneLook(t *testing.T) {
	now, fetches := time.Unix(1_800_000_000, 0), 0
	keys := map[string]publicKey{"old": {}}
	sets := newKeySets(func() time.Time { return now }, func(context.Context, string) (map[string]publicKey, error) {
		fetches++
		return keys, nil
	}, 10)
	find := func(kid string) bool {
		_, found, err := sets.find(t.Context(), forger, "peer.test", kid)
		if err != nil {
			t.Errorf("%s: %v", kid, err)
		}
		return found
	}

	if !find("old") || find("invented") || find("invented") || fetches != 2 {
		t.Fatalf("%d fetches before the rotation", fetches)
	}
	keys = map[string]publicKey{"old": {}, "new": {}}
	if !find("new") || fetches != 3 {
		t.Errorf("the new key was not found, with %d fetches", fetches)
	}
	for i := range 100 {
		find(fmt.Sprint("more", i))
	}
	if fetches != 1+identity.MaxLooksOne {
		t.Errorf("%d fetches for one network", fetches)
	}
	now = now.Add(RefreshPause)
	keys = map[string]publicKey{"newest": {}}
	if !find("newest") {
		t.Error("a minute later the network has no look")
	}
}
