package twopersons

import (
	"strings"
	"testing"

	"inbox/agents"
	"inbox/identity"
	"inbox/normalized"
	"inbox/policypart"
)

// TestEachKindOfFaultIsReported: what an agent is given and may not be given ends a run with its fault.
func TestEachKindOfFaultIsReported(t *testing.T) {
	for fault, given := range map[string]func(l *ledger, message *normalized.Message){
		"has the word of a message by ann": func(l *ledger, message *normalized.Message) {
			message.Parts = []normalized.Part{normalized.Text(l.word(&person{name: "ann1"}).text), normalized.Text(l.word(l.addresses["eve@eve.test"]).text)}
		},
		"addressed to somebody else": func(_ *ledger, message *normalized.Message) { message.Sender.Verified = true },
		"is given the link of a demand": func(_ *ledger, message *normalized.Message) {
			message.Parts = append(message.Parts, normalized.Text("http://127.0.0.1:1/policy/abc"))
		},
		"nobody who may decide granted it": func(_ *ledger, message *normalized.Message) {
			message.PolicyResolution = &policypart.Resolution{Outcome: policypart.OutcomeGranted}
		},
		"stand under the name of ann": func(l *ledger, message *normalized.Message) {
			said := l.word(l.addresses["eve@eve.test"])
			message.History = []normalized.HistoricalMessage{{
				Role: normalized.RoleUser, Sender: normalized.Sender{Address: identity.Stated("@ann@ann.test")}, Parts: []normalized.Part{normalized.Text(said.text)},
			}}
		},
	} {
		t.Run(fault, func(t *testing.T) {
			l := newLedger()
			eve := &person{name: "eve1"}
			l.addresses["eve@eve.test"], l.addresses["ann@ann.test"] = eve, &person{name: "ann1"}
			document := agents.Document{Message: normalized.Message{Surface: new(normalized.Surface), Parts: []normalized.Part{normalized.Text(l.word(eve).text)}}}
			given(l, &document.Message)
			a := agent{ledger: l}
			a.run(document, textOf(document.Message.Parts))
			if found := l.found(); !strings.Contains(found, fault) {
				t.Errorf("found %q", found)
			}
		})
	}
}
