package demand

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/normalized"
	"inbox/policypart"
)

func linkPart() policypart.Part {
	return policypart.Part{Kind: policypart.ConsentRequired, Code: CodeLink, Title: "Same person?", Message: "Do you write from another address, too?"}
}

// agreed opens the first side's page and agrees; it returns the word.
func (b *bench) agreed(t *testing.T, turn exchange.TurnRecord) (policypart.Issuance, string) {
	t.Helper()
	issuance, token := b.park(t, turn, linkPart())
	if view, err := b.Show(t.Context(), token); err != nil || view.Word != "" || view.Purpose != policypart.PurposeLink {
		t.Fatalf("%+v %v", view, err)
	}
	for range 2 { // clicked twice
		view, err := b.Decide(t.Context(), token, true)
		if err != nil || len(view.Word) != len("link-0123456789abcdef") || !view.Open {
			t.Fatalf("%+v %v", view, err)
		}
	}
	view, err := b.Show(t.Context(), token)
	if err != nil || view.Word == "" {
		t.Fatalf("%+v %v", view, err)
	}
	if stored, _ := json.Marshal(b.row(issuance.ID)); strings.Contains(string(stored), view.Word) || issuance.CodeHash != policypart.HashState(view.Word) {
		t.Error("the word is stored, or its hash is not")
	}
	return issuance, view.Word
}

// sends lets a side send the word and agree; it returns the demand by which it did.
func (b *bench) sends(t *testing.T, turn exchange.TurnRecord) policypart.Issuance {
	t.Helper()
	part, answers, err := b.Challenge(t.Context(), turn)
	if err != nil || !answers {
		t.Fatalf("%v %v", answers, err)
	}
	confirm, token := b.park(t, turn, part)
	if view, err := b.Decide(t.Context(), token, true); err != nil || view.Outcome != policypart.OutcomeGranted {
		t.Fatalf("%+v %v", view, err)
	}
	return b.row(confirm.ID)
}

// isAsked runs the asker's turn again after a demand of it was settled; it returns the demand that asks about the other side.
func (b *bench) isAsked(t *testing.T, turn exchange.TurnRecord, after string) (policypart.Issuance, string) {
	t.Helper()
	turn = b.resumed(turn, after)
	if granted, err := b.Granted(t.Context(), turn); err != nil || !granted {
		t.Fatalf("the turn does not go on: %v %v", granted, err)
	}
	part, asks, err := b.Challenge(t.Context(), turn)
	if err != nil || !asks {
		t.Fatalf("%v %v", asks, err)
	}
	return b.park(t, turn, part)
}

func TestLinkTakesConsentOnBothSides(t *testing.T) {
	b := setup(t)
	asker, second := turnOf("1", "alice"), turnOf("2", "alice-at-work")
	first, word := b.agreed(t, asker)
	second.Message.Parts = []normalized.Part{normalized.Text("Hi,\nhere it is: " + strings.ToUpper(word) + ".")}
	part, answers, err := b.Challenge(t.Context(), second)
	if err != nil || !answers || !strings.Contains(part.Message, "mailto:alice ") || strings.Contains(part.Message, "people.test") {
		t.Fatalf("%+v %v %v", part, answers, err)
	}
	confirm := b.sends(t, second)
	if confirm.Purpose != policypart.PurposeLinkConfirm || confirm.Part.Data[LinkKey] != nil || confirm.CodeHash != "" {
		t.Errorf("%+v", confirm)
	}
	told, again := b.rows.endings[0], b.rows.endings[1]
	if len(b.rows.links) != 0 || told.State != exchange.StateAnswered || told.Response == nil || !again.Resume || again.Issuance.ID != first.ID {
		t.Fatalf("before the asker agreed to the address: %+v %+v %+v", b.rows.links, told, again)
	}

	last, token := b.isAsked(t, asker, first.ID)
	if last.Purpose != policypart.PurposeLinkComplete || last.Part.Data[LinkKey] != nil || !strings.Contains(last.Part.Message, "mailto:alice-at-work sent") {
		t.Errorf("%+v", last)
	}
	view, err := b.Decide(t.Context(), token, true)
	if err != nil || view.Outcome != policypart.OutcomeGranted {
		t.Fatalf("%+v %v", view, err)
	}
	resumed := b.rows.endings[len(b.rows.endings)-2]
	link := resumed.Link
	if link == nil || link.Agent != "a" || link.ID == "" || link.Sides[0].Principal != first.Principal || link.Sides[1].Subject != "mailto:alice-at-work" ||
		link.Sides[0].Address != "" || link.LinkedAt.IsZero() || !link.Until.IsZero() ||
		link.Digest != policypart.Digest(last.Part.Title, last.Part.Message, confirm.Part.Title, confirm.Part.Message) {
		t.Errorf("%+v", link)
	}
	if _, other, counts := link.With("b", first.Principal, b.clock); counts {
		t.Errorf("the link counts for another agent, with %+v", other)
	}
	if !resumed.Resume || resumed.Issuance.ID != last.ID || !strings.Contains(string(resumed.Issuance.Resolution.Data[LinkKey]), "alice-at-work") {
		t.Errorf("%+v", resumed)
	}
	b.wantAudit(t, "demand:granted", "identity:link_agreed", "demand:granted", "identity:linked")
	after := b.resumed(asker, last.ID)
	if _, asks, err := b.Challenge(t.Context(), after); asks || err != nil {
		t.Errorf("after the link the asker is asked again: %v %v", asks, err)
	}
	if _, answers, err := b.Challenge(t.Context(), second); answers || err != nil {
		t.Errorf("the word is good once: %v %v", answers, err)
	}
}

// TestWordInTheWrongHands: whoever has the word gets no link by it, and does not stop the address that it was meant for.
func TestWordInTheWrongHands(t *testing.T) {
	asker := turnOf("1", "alice")
	for name, decide := range map[string]func(b *bench, first policypart.Issuance, word string){
		"the asker says no": func(b *bench, first policypart.Issuance, word string) {
			b.sends(t, turnOf("2", "eve", word))
			last, token := b.isAsked(t, asker, first.ID)
			view, err := b.Decide(t.Context(), token, false)
			if ending := b.rows.lastEnding(t); err != nil || view.Outcome != policypart.OutcomeDenied || ending.State != exchange.StateRefused || len(b.rows.links) != 0 {
				t.Errorf("%+v %v %+v", view, err, ending)
			}
			if _, answers, err := b.Challenge(t.Context(), turnOf("3", "work", word)); answers || err != nil || b.row(last.ID).Status != policypart.StatusDenied {
				t.Errorf("the word outlives the link: %v %v", answers, err)
			}
		},
		"the right address sends it later": func(b *bench, first policypart.Issuance, word string) {
			b.sends(t, turnOf("2", "eve", word))
			about, token := b.isAsked(t, asker, first.ID)
			b.sends(t, turnOf("3", "work", word))
			b.sends(t, turnOf("4", "work", word)) // twice
			if view, err := b.Decide(t.Context(), token, false); err != nil || view.Outcome != policypart.OutcomeDenied || len(b.rows.links) != 0 {
				t.Errorf("%+v %v", view, err)
			}
			last, token := b.isAsked(t, asker, about.ID)
			if !strings.HasPrefix(last.Part.Message, "mailto:work sent") || len(notesOf(last).Sides) != 1 {
				t.Errorf("%s, %+v", last.Part.Message, notesOf(last))
			}
			if _, err := b.Decide(t.Context(), token, true); err != nil || len(b.rows.links) != 1 || b.rows.links[0].Sides[1].Subject != "mailto:work" {
				t.Errorf("%v %+v", err, b.rows.links)
			}
		},
		"the right address was asked before": func(b *bench, first policypart.Issuance, word string) {
			right := turnOf("3", "work", word)
			part, _, err := b.Challenge(t.Context(), right)
			if err != nil {
				t.Fatal(err)
			}
			_, token := b.park(t, right, part)
			b.sends(t, turnOf("2", "eve", word))
			about, question := b.isAsked(t, asker, first.ID)
			if _, err := b.Decide(t.Context(), token, true); err != nil || len(b.rows.links) != 0 {
				t.Errorf("the right address cannot agree: %v", err)
			}
			if _, err := b.Decide(t.Context(), question, false); err != nil {
				t.Error(err)
			}
			if last, _ := b.isAsked(t, asker, about.ID); !strings.HasPrefix(last.Part.Message, "mailto:work sent") {
				t.Error(last.Part.Message)
			}
		},
		"many send it": func(b *bench, first policypart.Issuance, word string) {
			b.sends(t, turnOf("2", "eve", word))
			b.isAsked(t, asker, first.ID)
			b.sends(t, turnOf("3", "mallory", word))
			b.sends(t, turnOf("4", "trudy", word))
			if _, answers, err := b.Challenge(t.Context(), turnOf("5", "carol", word)); answers || refusedBy(err) != policypart.CodeUsed {
				t.Errorf("%v %v", answers, err)
			}
		},
		"a refused address sends it again": func(b *bench, first policypart.Issuance, word string) {
			b.sends(t, turnOf("2", "eve", word))
			about, token := b.isAsked(t, asker, first.ID)
			again := turnOf("3", "eve", word)
			part, answers, err := b.Challenge(t.Context(), again)
			if err != nil || !answers {
				t.Fatalf("%v %v", answers, err)
			}
			_, waiting := b.park(t, again, part)
			b.sends(t, turnOf("4", "mallory", word))
			if _, err := b.Decide(t.Context(), token, false); err != nil {
				t.Fatal(err)
			}

			last, token := b.isAsked(t, asker, about.ID)
			if _, answers, err := b.Challenge(t.Context(), turnOf("5", "eve", word)); answers || refusedBy(err) != policypart.CodePrincipal {
				t.Errorf("%v %v", answers, err)
			}
			if _, err := b.Decide(t.Context(), waiting, true); refusedBy(err) != policypart.CodePrincipal {
				t.Errorf("%v", err)
			}
			if sides := notesOf(b.row(last.ID)).Sides; len(sides) != 1 {
				t.Errorf("the asker is asked about %+v", sides)
			}
			b.sends(t, turnOf("6", "work", word))
			if _, err := b.Decide(t.Context(), token, false); err != nil {
				t.Fatal(err)
			}
			about = last
			if last, _ = b.isAsked(t, asker, about.ID); !strings.HasPrefix(last.Part.Message, "mailto:work sent") || len(notesOf(last).Refused) != 2 {
				t.Errorf("%s, %+v", last.Part.Message, notesOf(last))
			}
		},
		"others read it": func(b *bench, _ policypart.Issuance, word string) {
			for name, others := range map[string]func(turn *exchange.TurnRecord){
				"open":  func(turn *exchange.TurnRecord) { turn.Audience.Open = true },
				"named": func(turn *exchange.TurnRecord) { turn.Audience.Parties = []string{"p"} },
				"posted": func(turn *exchange.TurnRecord) {
					turn.Message.Surface = &normalized.Surface{Visibility: normalized.VisibilityFollowers}
				},
				"Cc": func(turn *exchange.TurnRecord) {
					turn.Message.Surface = &normalized.Surface{To: []normalized.SurfaceRecipient{{Address: "@a@agents.test"}}, Cc: []normalized.SurfaceRecipient{{Address: "@eve@evil.test"}}}
				},
			} {
				turn := turnOf("2", "work", word)
				others(&turn)
				if _, answers, err := b.Challenge(t.Context(), turn); answers || !fault.Is(err, fault.Forbidden) || !strings.Contains(fault.Of(err).Public, "private message") {
					t.Errorf("%s: %v %v", name, answers, err)
				}
			}
			b.sends(t, turnOf("3", "work", word)) // it is still good
		},
		"the other side is erased": func(b *bench, first policypart.Issuance, word string) {
			confirm := b.sends(t, turnOf("2", "work", word))
			last, token := b.isAsked(t, asker, first.ID)
			delete(b.rows.demands, confirm.ID)
			if _, err := b.Decide(t.Context(), token, true); refusedBy(err) != policypart.CodeUnknown || len(b.rows.links) != 0 {
				t.Errorf("%v", err)
			}
			if _, asks, err := b.Challenge(t.Context(), b.resumed(asker, first.ID)); asks || !fault.Is(err, fault.Forbidden) {
				t.Errorf("%v %v, %s", asks, err, last.ID)
			}
		},
		"the other side takes its consent back": func(b *bench, first policypart.Issuance, word string) {
			b.sends(t, turnOf("2", "eve", word))
			about, token := b.isAsked(t, asker, first.ID)
			b.sends(t, turnOf("3", "work", word))
			for _, other := range []string{"alice", "mallory"} {
				if _, ended, err := b.Unlink(t.Context(), turnOf("4", other)); ended || err != nil {
					t.Errorf("%s: %v, %v", other, ended, err)
				}
			}
			for i, want := range []bool{true, false} {
				if sentence, ended, err := b.Unlink(t.Context(), turnOf("5", "eve")); ended != want || err != nil || want != strings.Contains(sentence, "took back") {
					t.Errorf("%d: %q, %v, %v", i, sentence, ended, err)
				}
			}
			if _, err := b.Decide(t.Context(), token, true); refusedBy(err) != policypart.CodeUnknown || len(b.rows.links) != 0 {
				t.Errorf("%v, %+v", err, b.rows.links)
			}
			if _, err := b.Decide(t.Context(), token, false); err != nil {
				t.Error(err)
			}

			last, token := b.isAsked(t, asker, about.ID) // about the address that still agrees
			b.rows.meanwhile = func() {
				if _, ended, err := b.Unlink(t.Context(), turnOf("6", "work")); !ended || err != nil {
					t.Errorf("%v, %v", ended, err)
				}
			}
			if _, err := b.Decide(t.Context(), token, true); err == nil || len(b.rows.links) != 0 {
				t.Errorf("%v, %+v, %s", err, b.rows.links, last.ID)
			}
		},
		"nothing is decided": func(b *bench, first policypart.Issuance, word string) {
			b.sends(t, turnOf("2", "work", word))
			_, token := b.isAsked(t, asker, first.ID)
			b.clock = b.clock.Add(25 * time.Hour)
			if _, err := b.Decide(t.Context(), token, true); refusedBy(err) != policypart.CodeExpired || len(b.rows.links) != 0 {
				t.Errorf("%v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			first, word := b.agreed(t, asker)
			decide(b, first, word)
		})
	}
}

// TestSidesAgreeAtTheSameMoment: each of them is asked about, be it that two agree at once, or one while the asker decides about another.
func TestSidesAgreeAtTheSameMoment(t *testing.T) {
	for _, deciding := range []bool{false, true} {
		b, asker := setup(t), turnOf("1", "alice")
		first, word := b.agreed(t, asker)
		b.sends(t, turnOf("2", "eve", word))
		about, question := b.isAsked(t, asker, first.ID)

		agreeing := func(turn exchange.TurnRecord) func() {
			part, answers, err := b.Challenge(t.Context(), turn)
			if err != nil || !answers {
				t.Fatalf("%v %v", answers, err)
			}
			_, token := b.park(t, turn, part)
			return func() {
				if view, err := b.Decide(t.Context(), token, true); err != nil || view.Outcome != policypart.OutcomeGranted {
					t.Errorf("%+v %v", view, err)
				}
			}
		}
		work, home := agreeing(turnOf("3", "work", word)), agreeing(turnOf("4", "home", word))
		if deciding {
			work()
		}
		b.rows.meanwhile = home
		if !deciding {
			work()
		}
		if _, err := b.Decide(t.Context(), question, false); err != nil {
			t.Error(err)
		}

		asked := map[string]bool{}
		for range 2 {
			last, token := b.isAsked(t, asker, about.ID)
			asked[strings.Fields(last.Part.Message)[0]] = true
			if _, err := b.Decide(t.Context(), token, false); err != nil {
				t.Error(err)
			}
			about = last
		}
		if want := map[string]bool{"mailto:home": true, "mailto:work": true}; !maps.Equal(asked, want) {
			t.Errorf("asked about %v", asked)
		}
	}
}

// TestLinkShowsWhatIsProven: both sides read the address that evidence vouches for, and the subject where an address is only stated.
func TestLinkShowsWhatIsProven(t *testing.T) {
	b := setup(t)
	asker := turnOf("1", "eve@evil.test")
	asker.Message.Sender.Address = identity.Stated("@boss@corp.test") // so she says
	_, word := b.agreed(t, asker)
	part, _, err := b.Challenge(t.Context(), turnOf("2", "bob@corp.test", word))
	if err != nil || !strings.HasPrefix(part.Message, "@eve@evil.test asks to be treated by @a@agents.test as the same person as @bob@corp.test") ||
		strings.Contains(part.Message, "boss") || !strings.Contains(part.Message, "unlink") {
		t.Errorf("%q, %v", part.Message, err)
	}
}

// TestEitherSideEndsALink: with the agent that asked, and with proof.
func TestEitherSideEndsALink(t *testing.T) {
	for _, who := range []string{"alice@a.test", "work@a.test"} {
		b := setup(t)
		first, word := b.agreed(t, turnOf("1", "alice@a.test"))
		b.sends(t, turnOf("2", "work@a.test", word))
		_, token := b.isAsked(t, turnOf("1", "alice@a.test"), first.ID)
		if _, err := b.Decide(t.Context(), token, true); err != nil {
			t.Fatal(err)
		}

		elsewhere, unproven := turnOf("3", who), turnOf("4", who)
		elsewhere.Agent, unproven.Message.Sender.Identities = "b", nil
		for name, turn := range map[string]exchange.TurnRecord{"another agent": elsewhere, "no proof": unproven, "somebody else": turnOf("5", "eve@evil.test")} {
			if _, ended, err := b.Unlink(t.Context(), turn); ended || err != nil || len(b.rows.links) != 1 {
				t.Errorf("%s: %v, %v", name, ended, err)
			}
		}
		sentence, ended, err := b.Unlink(t.Context(), turnOf("6", who))
		if err != nil || !ended || len(b.rows.links) != 0 || strings.Contains(sentence, "@"+who) || !strings.Contains(sentence, "@a.test") {
			t.Errorf("%s: %q, %v, %v", who, sentence, ended, err)
		}
		if _, ended, err := b.Unlink(t.Context(), turnOf("7", who)); ended || err != nil {
			t.Errorf("twice: %v, %v", ended, err)
		}
	}
}

func TestWordsThatLinkNobody(t *testing.T) {
	b := setup(t)
	_, word := b.agreed(t, turnOf("1", "alice"))
	b.rows.codes()
	if _, answers, err := b.Challenge(t.Context(), turnOf("2", "alice", word)); answers || !fault.Is(err, fault.Forbidden) || refusedBy(err) != policypart.CodePrincipal {
		t.Errorf("the same side: %v %v", answers, err)
	}
	unverified := turnOf("3", "mallory", word)
	unverified.Message.Sender.Identities = nil
	if _, answers, err := b.Challenge(t.Context(), unverified); answers || !fault.Is(err, fault.Forbidden) || refusedBy(err) != policypart.CodeProof {
		t.Errorf("unverified: %v %v", answers, err)
	}
	b.wantAudit(t, policypart.CodePrincipal, policypart.CodeProof)
	other := turnOf("4", "bob", word)
	other.Agent = "b"
	for name, turn := range map[string]exchange.TurnRecord{
		"another agent": other, "a guess": turnOf("5", "bob", "link-0000000000000000"), "a longer word": turnOf("6", "bob", word+"0"), "no word": turnOf("7", "bob", "hello"),
	} {
		if _, answers, err := b.Challenge(t.Context(), turn); answers || err != nil {
			t.Errorf("%s: %v %v", name, answers, err)
		}
	}
	b.clock = b.clock.Add(25 * time.Hour)
	if _, answers, err := b.Challenge(t.Context(), turnOf("8", "bob", word)); answers || err != nil {
		t.Errorf("expired: %v %v", answers, err)
	}
}

func TestConfirmationIsBoundToItsTurnAndToAnOpenFirstSide(t *testing.T) {
	b := setup(t)
	first, word := b.agreed(t, turnOf("1", "alice"))
	second := turnOf("2", "bob", word)
	part, _, err := b.Challenge(t.Context(), second)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Issue(turnOf("3", "carol"), part); err == nil {
		t.Error("an agent carried the confirmation to another turn")
	}
	for _, code := range []string{CodeLinkConfirm, CodeLinkComplete} {
		if _, err := b.Issue(second, policypart.Part{Kind: policypart.ConsentRequired, Code: code, Message: "m"}); err == nil {
			t.Errorf("an agent made a %s of its own", code)
		}
	}
	other := part
	other.Code = CodeLinkComplete
	if _, err := b.Issue(second, other); err == nil {
		t.Error("a confirmation passed for what the asker is asked")
	}
	confirm, token := b.park(t, second, part)
	stored := b.row(first.ID)
	stored.Status = policypart.StatusDenied
	b.rows.demands[first.ID] = stored
	if _, err := b.Decide(t.Context(), token, true); refusedBy(err) != policypart.CodeUsed || b.row(confirm.ID).Status != policypart.StatusIssued {
		t.Errorf("%v", err)
	}
	delete(b.rows.demands, first.ID)
	if _, err := b.Decide(t.Context(), token, true); refusedBy(err) != policypart.CodeUnknown {
		t.Errorf("%v", err)
	}
	if _, err := b.Decide(t.Context(), token, false); err != nil || b.row(confirm.ID).Status != policypart.StatusDenied {
		t.Errorf("%v", err)
	}
}

func TestLinkIsNotResolvedByMessage(t *testing.T) {
	b := setup(t)
	parked := turnOf("1", "alice")
	_, token := b.park(t, parked, linkPart())
	if _, err := b.Offer(t.Context(), answering(parked, token, policypart.ConsentRequired, "granted"), parked); refusedBy(err) != policypart.CodeProof {
		t.Errorf("%v", err)
	}
}

func TestWordsAreForgiving(t *testing.T) {
	for text, want := range map[string]string{
		"Link-0123456789ABCDEF":    "link-0123456789abcdef",
		"(LINK-O123456789abcdeL).": "link-0123456789abcde1",
		"xlink-0123456789abcdef":   "",
		"link-0123456789abcde":     "",
		"link-0123456789abcde_":    "",
	} {
		got := words(normalized.Message{Parts: []normalized.Part{normalized.Text(text)}})
		if (want == "") != (len(got) == 0) || want != "" && got[0] != want {
			t.Errorf("%q: %v", text, got)
		}
	}
	many := normalized.Message{Parts: []normalized.Part{normalized.Text(strings.Repeat("link-0123456789abcdef ", 5000)), normalized.Text("link-0123456789abcdef")}}
	if got := words(many); len(got) != maxWords {
		t.Errorf("%d words", len(got))
	}
}

// TestConsentNamesProgramsByTheirLabel: a person who is asked about a program that shows a token reads the label of the token, and never its id. The
// id of another server's token is no label here.
func TestConsentNamesProgramsByTheirLabel(t *testing.T) {
	byToken := func(id, issuer, token string, texts ...string) exchange.TurnRecord {
		turn := turnOf(id, "program", texts...)
		e := evidence("token:" + token)
		e.Issuer = issuer
		turn.Message.Sender.Identities = []identity.Evidence{e}
		turn.Principal = turn.Message.Sender.Principal()
		return turn
	}
	const label = "“customer” (a program with a token of agents.test)"

	for _, test := range []struct {
		issuer, token, want string
	}{{"agents.test", "7", label}, {"agents.test", "8", "a program of agents.test"}, {"other.test", "7", "a program of other.test"}} {
		b := setup(t)
		asker := byToken("1", test.issuer, test.token)
		first, word := b.agreed(t, asker)
		part, _, err := b.Challenge(t.Context(), turnOf("2", "alice", word))
		if err != nil || !strings.HasPrefix(part.Message, test.want+" asks") || strings.Contains(part.Message, "token:") {
			t.Errorf("%+v: %q, %v", test, part.Message, err)
		}
		b.sends(t, turnOf("2", "alice", word))
		told := normalized.PlainText(b.rows.endings[0].Response.Parts)
		if !strings.Contains(told, test.want+" is now asked") || strings.Contains(told, "token:") {
			t.Errorf("%+v: told %q", test, told)
		}
		last, token := b.isAsked(t, asker, first.ID)
		if !strings.Contains(last.Part.Message, "as the same person as "+test.want) || strings.Contains(last.Part.Message, "token:") {
			t.Errorf("%+v: asked %q", test, last.Part.Message)
		}
		if _, err := b.Decide(t.Context(), token, true); err != nil {
			t.Fatal(err)
		}
		b.rows.links = []exchange.PersonLink{*b.rows.endings[len(b.rows.endings)-2].Link}
		if sentence, ended, err := b.Unlink(t.Context(), turnOf("3", "alice")); !ended || err != nil || !strings.Contains(sentence, "this address and "+test.want) {
			t.Errorf("%+v: %q, %v, %v", test, sentence, ended, err)
		}
	}

	b := setup(t)
	_, word := b.agreed(t, turnOf("1", "alice"))
	part, _, err := b.Challenge(t.Context(), byToken("2", "agents.test", "7", word))
	if err != nil || !strings.Contains(part.Message, "as the same person as "+label) {
		t.Errorf("the other side: %q, %v", part.Message, err)
	}
}
