package chat

import (
	"strings"
	"testing"

	"inbox/internal/fault"
)

var nodeKey = []byte(strings.Repeat("k", 32))

const random = "5e3f7a54-0a2c-4d5b-8e2e-0d3f8a9f1c11"

func TestGuestSessions(t *testing.T) {
	first, err := guestSession(nodeKey, "")
	if err != nil || !isGuestSession(first) {
		t.Fatal(first, err)
	}
	if again, err := guestSession(nodeKey, first); again != first || err != nil {
		t.Error(again, err)
	}
	if own, err := guestSession(nodeKey, random); own != random || err != nil {
		t.Error(own, err)
	}
	repeated, _ := guestSession(nodeKey, "", random)
	again, _ := guestSession(nodeKey, "", "", random)
	if repeated != again || !isGuestSession(repeated) {
		t.Errorf("a repeat gets %q, then %q", repeated, again)
	}
	if elsewhere, _ := guestSession([]byte(strings.Repeat("o", 32)), "", random); elsewhere == repeated {
		t.Error("who sees the id of the first run, as its agent does, knows the session")
	}
	// What others can guess opens nothing, and makes nothing that they could find again.
	for _, guessable := range []string{"1", "default", "guest-", "guest-AAAA", "6ba7b810-9dad-11d1-80b4-00c04fd430c8", strings.ToUpper("guest-" + random)} {
		one, err := guestSession(nodeKey, guessable, "r1")
		another, bad := guestSession(nodeKey, guessable, "r1")
		if err != nil || bad != nil || one == guessable || one == another || !isGuestSession(one) {
			t.Errorf("%q gives %q and %q, %v", guessable, one, another, err)
		}
	}
	minted, _ := owner{"echo", "ada"}.session("")
	if _, err := guestSession(nodeKey, minted); !fault.Is(err, fault.NotFound) {
		t.Errorf("a guest with the session of a token: %v", err)
	}
}

func TestSessionsOfTokens(t *testing.T) {
	ada, bob, elsewhere := owner{"echo", "ada"}, owner{"echo", "bob"}, owner{"other", "ada"}
	minted, err := ada.session("")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := ada.session(minted); again != minted || err != nil {
		t.Error(again, err)
	}
	guest, _ := guestSession(nodeKey, "")
	for _, foreign := range []struct {
		owner   owner
		session string
	}{{bob, minted}, {elsewhere, minted}, {ada, guest}} {
		if _, err := foreign.owner.session(foreign.session); !fault.Is(err, fault.NotFound) {
			t.Errorf("%v with %q: %v", foreign.owner, foreign.session, err)
		}
	}
	threads := map[string]bool{}
	for _, owned := range []owner{ada, bob, elsewhere} {
		threads[owned.conversation("mine").ID()] = true
	}
	if len(threads) != 3 {
		t.Errorf("one name of three owners makes %d threads", len(threads))
	}
}
