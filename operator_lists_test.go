package inbox

import (
	"testing"

	"inbox/engine/delivery"
	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
)

// TestStatedAddressIsNoWayAroundTheLists: a blocked sender gets no answer, whatever address they state: neither one of ours, as our own
// messages have, nor that of someone else, who may be written to.
func TestStatedAddressIsNoWayAroundTheLists(t *testing.T) {
	lists := newLists(&Config{Domain: "inbox.test"}, nil)
	for kind, target := range map[string]string{exchange.TargetActor: "https://evil.test/users/eve", exchange.TargetAddress: "@victim@far.test"} {
		lists.Note(exchange.ListEntry{ID: kind, List: exchange.ListBlock, Kind: kind, Target: target, Effect: exchange.EffectRefuse}, false)
	}

	sender := func(subject, method, stated string) normalized.Sender {
		return normalized.Sender{Address: identity.Stated(stated), Identities: []identity.Evidence{identity.Transport(identity.TransportProof{
			Domain: "inbox.test", Subject: subject, Method: method, Addressed: identity.AddressedLocal, Recipient: "@echo@inbox.test",
		})}}
	}
	for name, c := range map[string]struct {
		sender  normalized.Sender
		address string
		refused bool
	}{
		"under our domain":      {sender("https://evil.test/users/eve", identity.MethodActivityPubSignature, "@echo@inbox.test"), "https://evil.test/inbox", true},
		"our own message":       {sender("acct:echo@inbox.test", identity.MethodLocalAgent, "@echo@inbox.test"), "ann@far.test", false},
		"own, to a blocked one": {sender("acct:echo@inbox.test", identity.MethodLocalAgent, "@victim@far.test"), "victim@far.test", true},
		"a sender as any other": {sender("mailto:ann@far.test", identity.MethodEmailDMARC, "@ann@far.test"), "ann@far.test", false},
		"the name of a victim":  {sender("mailto:ann@far.test", identity.MethodEmailDMARC, "@ann@far.test"), "victim@far.test", true},
	} {
		why := lists.refusedDelivery(delivery.Record{Key: "far.test", Address: c.address}, exchange.Reply{Message: normalized.Message{Sender: c.sender}})
		if (why != "") != c.refused {
			t.Errorf("%s: %q", name, why)
		}
	}
}
