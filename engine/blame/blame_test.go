package blame_test

import (
	"fmt"
	"testing"

	"inbox/engine/blame"
)

func TestCauses(t *testing.T) {
	forged := func(network, domain string) blame.Cause {
		return blame.Cause{Sender: "mailto:x@" + domain, Network: network, Domain: domain}
	}
	proven := func(account, sender string) blame.Cause { return blame.Cause{Sender: sender, Account: account} }

	for name, test := range map[string]struct {
		causes []blame.Cause
		want   int
	}{
		"none":                                   {nil, 0},
		"one sender, again and again":            {[]blame.Cause{proven("a.example", "a"), proven("a.example", "a")}, 1},
		"people of one domain":                   {[]blame.Cause{proven("a.example", "a"), proven("a.example", "b")}, 1},
		"people of two domains":                  {[]blame.Cause{proven("a.example", "a"), proven("b.example", "a")}, 2},
		"invented domains from one network":      {[]blame.Cause{forged("n1", "a"), forged("n1", "b"), forged("n1", "c")}, 1},
		"one invented domain from many networks": {[]blame.Cause{forged("n1", "a"), forged("n2", "a"), forged("n3", "a")}, 1},
		"two strangers":                          {[]blame.Cause{forged("n1", "a"), forged("n2", "b")}, 2},
		"a stranger and a person":                {[]blame.Cause{forged("n1", "a"), proven("a", "a")}, 2},
	} {
		var tally blame.Tally
		for _, one := range test.causes {
			tally.Add(one)
		}
		if got := tally.Causes(); got != test.want {
			t.Errorf("%s: %d causes, want %d", name, got, test.want)
		}
	}
}

// TestTallyIsBounded: a flood of senders costs bounded memory, and then no one is said not to have failed.
func TestTallyIsBounded(t *testing.T) {
	var tally blame.Tally
	tally.Add(blame.Cause{Sender: "first", Account: "a"})
	if !tally.Includes("first") || tally.Includes("second") {
		t.Error("the tally does not know who failed")
	}
	for i := range 3 * blame.MaxKept {
		tally.Add(blame.Cause{Sender: fmt.Sprint(i), Network: fmt.Sprint(i), Domain: fmt.Sprint(i)})
	}
	if got := tally.Causes(); got > blame.MaxKept+1 || !tally.Includes("never seen") {
		t.Errorf("%d causes are kept", got)
	}
}

// TestShares: who failed less has a smaller share, however many names the others have.
func TestShares(t *testing.T) {
	var tally blame.Tally
	for i := range 5 {
		tally.Add(blame.Cause{Sender: fmt.Sprint("forged", i), Network: fmt.Sprint("network", i), Domain: fmt.Sprint("domain", i)})
		tally.Add(blame.Cause{Sender: fmt.Sprint("mallory", i), Account: "evil.example"})
	}
	honest := blame.Cause{Sender: "ana", Account: "good.example"}
	tally.Add(honest)
	for name, other := range map[string]blame.Cause{
		"another forged sender":      {Sender: "new", Network: "new", Domain: "new"},
		"another one of that domain": {Sender: "new", Account: "evil.example"},
	} {
		if tally.ShareOf(honest).Compare(tally.ShareOf(other)) >= 0 {
			t.Errorf("%s is asked before who failed once", name)
		}
	}
	if fresh := (blame.Cause{Sender: "bob", Account: "new.example"}); tally.ShareOf(fresh).Compare(tally.ShareOf(honest)) >= 0 {
		t.Error("who never failed is not asked before who failed once")
	}
}
