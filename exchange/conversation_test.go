package exchange_test

import (
	"testing"

	"inbox/exchange"
)

// TestConversationNames: each part of a name counts by itself, and the id of a name stays what it is in databases.
func TestConversationNames(t *testing.T) {
	stored := exchange.ConversationID("email", "Echo", "inbox.test mailto:ann@x.example", "m1@x.example")
	if stored != "c-6rphpkepozgkez6elvjswkrfim" || !exchange.IsConversationID(stored) {
		t.Errorf("the id is %s", stored)
	}

	seen := map[string]exchange.ConversationName{}
	for _, name := range []exchange.ConversationName{
		{Channel: "a2a", Agent: "echo", Owner: "ann", Name: "talk"},
		{Channel: "chat", Agent: "echo", Owner: "ann", Name: "talk"},
		{Channel: "a2a", Agent: "other", Owner: "ann", Name: "talk"},
		{Channel: "a2a", Agent: "echo", Owner: "bob", Name: "talk"},
		{Channel: "a2a", Agent: "echo", Owner: "ann", Name: "talk2"},
		{Channel: "a2a", Agent: "echo", Owner: "ann", Name: "talk", Carrier: "token"},
		{Channel: "a2a", Agent: "echo", Owner: "ann", Name: "talk", Carrier: "another token"},
		{Channel: "a2a", Agent: "echo", Owner: "token", Name: "talk", Carrier: "ann"},
		{Channel: "a2a", Agent: "echo", Owner: "anntalk", Name: ""},
		{Channel: "a2a", Agent: "echo", Owner: "ann", Name: "talk\x05token"},
		{Channel: "a2a", Agent: "echo", Owner: "ann", Name: exchange.ConversationID("a2a", "echo", "ann", "talk")},
	} {
		if other, taken := seen[name.ID()]; taken {
			t.Errorf("%+v and %+v are one conversation", name, other)
		}
		seen[name.ID()] = name
	}
}

// TestMintedNamesAreTheirOwners: a name that was made up for one owner is none of another, and all others may be anybody's.
func TestMintedNamesAreTheirOwners(t *testing.T) {
	owner := exchange.ConversationOwner{Kind: "a2a context", Agent: "echo", Principal: "ann"}
	minted := owner.MintName()
	if again := owner.MintName(); again == minted || !exchange.IsMinted(minted) || !owner.MayName(minted) {
		t.Errorf("made up %s and %s", minted, again)
	}
	for _, other := range []exchange.ConversationOwner{
		{Kind: "chat session", Agent: "echo", Principal: "ann"}, {Kind: "a2a context", Agent: "other", Principal: "ann"}, {Kind: "a2a context", Agent: "echo", Principal: "bob"},
	} {
		if other.MayName(minted) {
			t.Errorf("%+v may use a name of %+v", other, owner)
		}
	}
	for _, free := range []string{"", "talk", minted + "0", minted[1:], "01a20969-0000-4000-8000-000000000000.0123456789abcdef"} {
		if !owner.MayName(free) || exchange.IsMinted(free) {
			t.Errorf("%q is none that was made up", free)
		}
	}
}
