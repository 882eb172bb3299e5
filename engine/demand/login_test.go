package demand

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/openid"
	"inbox/normalized"
	"inbox/policypart"
)

// logIn begins a login in a browser of its own and returns what the provider sends back, with the browser's binding.
func (b *bench) logIn(t *testing.T, token string) (openid.Return, string) {
	t.Helper()
	redirect, attempt, binding, err := b.BeginLogin(t.Context(), token, "staff")
	if err != nil {
		t.Fatal(err)
	}
	back, err := openid.ReadReturn(b.issuer.Visit(t, redirect))
	if err != nil || openid.AttemptName(back.State) != attempt {
		t.Fatalf("%+v %v", back, err)
	}
	return back, binding
}

// mailOf is a turn whose sender's mail was proven.
func mailOf(id, address string) exchange.TurnRecord {
	turn := turnOf(id, address, "What does my payslip say?")
	turn.Message.Sender.Address = identity.Stated("@" + address)
	return turn
}

// TestSomebodyElsesLogin: the asker forwarded the link, an employee logged in, and the asker got the answer.
func TestSomebodyElsesLogin(t *testing.T) {
	b := setup(t)
	b.issuer.User("email", "boss@corp.test")
	b.issuer.User("email_verified", true)
	issuance, token := b.park(t, mailOf("1", "ann@a.test"), login())
	shown, err := b.Show(t.Context(), token)
	if err != nil || shown.Question != "" || shown.LoggedIn != nil || shown.Address != "@ann@a.test" || !shown.Proven || shown.Via != "email" {
		t.Errorf("whoever has the link alone is shown %+v %v", shown, err)
	}

	back, binding := b.logIn(t, token)
	view, err := b.FinishLogin(t.Context(), back, binding)
	if err != nil || view.LoggedIn == nil || view.LoggedIn.Address != "boss@corp.test" || view.Question != "What does my payslip say?" {
		t.Fatalf("%+v %v", view, err)
	}
	if got := b.row(issuance.ID); got.Status != policypart.StatusIssued || len(b.rows.endings) != 0 {
		t.Fatalf("the login decided: %+v", got)
	}

	// Only the page decides, and only in the browser that logged in, for its demand.
	other, otherToken := b.park(t, mailOf("2", "eve@e.test"), login())
	proof := view.LoggedIn.Proof
	for name, attempt := range map[string][3]string{
		"another browser": {token, proof, "other"}, "no cookie": {token, proof, ""}, "another demand": {otherToken, proof, binding},
		"cut": {token, proof[1:], binding}, "the state": {token, back.State, binding}, "nothing": {token, "", binding},
	} {
		if _, err := b.ConfirmLogin(t.Context(), attempt[0], attempt[1], attempt[2], true); refusedBy(err) != policypart.CodeProof {
			t.Errorf("%s: %v", name, err)
		}
	}
	if b.row(other.ID).Status != policypart.StatusIssued || b.row(issuance.ID).Status != policypart.StatusIssued {
		t.Error("one of them decided")
	}

	if view, err = b.ConfirmLogin(t.Context(), token, proof, binding, true); err != nil || view.Outcome != policypart.OutcomeGranted {
		t.Fatalf("%+v %v", view, err)
	}
	resolution := b.row(issuance.ID).Resolution
	if resolution.SameAsSender == nil || *resolution.SameAsSender || resolution.ResolvedBy.Subject != "user-7" {
		t.Errorf("%+v", resolution)
	}
	if written, err := json.Marshal(resolution); err != nil || !strings.Contains(string(written), `"same_as_sender":false`) {
		t.Errorf("%s %v", written, err)
	}
	if _, err := b.ConfirmLogin(t.Context(), token, proof, binding, true); refusedBy(err) != policypart.CodeUsed {
		t.Errorf("twice: %v", err)
	}
}

func TestALoginThatIsNotConfirmed(t *testing.T) {
	b := setup(t)
	issuance, token := b.park(t, mailOf("1", "ann@a.test"), login())
	back, binding := b.logIn(t, token)
	view, err := b.FinishLogin(t.Context(), back, binding)
	if err != nil {
		t.Fatal(err)
	}
	again, againBinding := b.logIn(t, token) // a second tab of the same page
	if second, err := b.FinishLogin(t.Context(), again, againBinding); err != nil || second.LoggedIn == nil {
		t.Fatalf("%+v %v", second, err)
	}

	view, err = b.ConfirmLogin(t.Context(), token, view.LoggedIn.Proof, binding, false)
	if err != nil || view.Outcome != policypart.OutcomeDenied || b.row(issuance.ID).Resolution.ResolvedBy.Subject != "user-7" {
		t.Errorf("%+v %v", view, err)
	}
	if told := b.rows.lastEnding(t).Response; told == nil || !strings.Contains(told.Error.Message, "was not confirmed") {
		t.Errorf("%+v", told)
	}
}

func TestAPageOfALoginEnds(t *testing.T) {
	b := setup(t)
	_, token := b.park(t, mailOf("1", "ann@a.test"), login())
	back, binding := b.logIn(t, token)
	view, err := b.FinishLogin(t.Context(), back, binding)
	if err != nil {
		t.Fatal(err)
	}
	b.clock = b.clock.Add(loginLife + time.Second)
	if _, err := b.ConfirmLogin(t.Context(), token, view.LoggedIn.Proof, binding, true); refusedBy(err) != policypart.CodeExpired {
		t.Error(err)
	}
}

// TestTheSendersOwnLogin: no question where the verified address of the login is one that the sender's evidence proves.
func TestTheSendersOwnLogin(t *testing.T) {
	actor := evidence("https://a.test/users/ann")
	actor.Claims = json.RawMessage(`{"account":"@ann@a.test"}`)
	named := evidence("https://a.test/users/ann")
	program := evidence("acct:ann@a.test")
	program.Method, program.Assurance = identity.MethodA2AJWT, identity.AssuranceAgent
	token := evidence("token:1")
	token.Assurance = identity.AssuranceAgent
	second := []identity.Evidence{token, evidence("mailto:ann@a.test")}

	for name, c := range map[string]struct {
		sender   []identity.Evidence
		email    any
		verified any
		same     bool
	}{
		"mail":                         {[]identity.Evidence{evidence("mailto:ann@a.test")}, "ann@a.test", true, true},
		"acct":                         {[]identity.Evidence{evidence("acct:ann@a.test")}, "ann@a.test", true, true},
		"actor that WebFinger names":   {[]identity.Evidence{actor}, "ann@a.test", true, true},
		"second evidence":              {second, "ann@a.test", true, true},
		"domain in capitals":           {[]identity.Evidence{evidence("mailto:ann@a.test")}, "ann@A.TEST", true, true},
		"domain as Unicode":            {[]identity.Evidence{evidence("mailto:ann@xn--bcher-kva.test")}, "ann@bücher.test", true, true},
		"address is not verified":      {[]identity.Evidence{evidence("mailto:ann@a.test")}, "ann@a.test", false, false},
		"nothing says it is verified":  {[]identity.Evidence{evidence("mailto:ann@a.test")}, "ann@a.test", nil, false},
		"verified in another word":     {[]identity.Evidence{evidence("mailto:ann@a.test")}, "ann@a.test", 1, false},
		"another tag":                  {[]identity.Evidence{evidence("mailto:ann@a.test")}, "ann+boss@a.test", true, false},
		"local part in capitals":       {[]identity.Evidence{evidence("mailto:ann@a.test")}, "ANN@a.test", true, false},
		"local part that looks alike":  {[]identity.Evidence{evidence("mailto:ann@a.test")}, "аnn@a.test", true, false},
		"domain that looks alike":      {[]identity.Evidence{evidence("mailto:ann@a.test")}, "ann@а.test", true, false},
		"subdomain":                    {[]identity.Evidence{evidence("mailto:ann@a.test")}, "ann@x.a.test", true, false},
		"no address":                   {[]identity.Evidence{evidence("mailto:ann@a.test")}, nil, true, false},
		"an actor's own name":          {[]identity.Evidence{named}, "ann@a.test", true, false},
		"a program says so":            {[]identity.Evidence{program}, "ann@a.test", true, false},
		"a sender who is not proven":   {nil, "ann@a.test", true, false},
		"two addresses in one":         {[]identity.Evidence{evidence("mailto:ann@a.test")}, "ann@a.test, boss@a.test", true, false},
		"name and address":             {[]identity.Evidence{evidence("mailto:ann@a.test")}, "Ann <ann@a.test>", true, false},
		"list":                         {[]identity.Evidence{evidence("mailto:ann@a.test")}, []string{"ann@a.test"}, true, false},
		"dot at the end of the domain": {[]identity.Evidence{evidence("mailto:ann@a.test")}, "ann@a.test.", true, true},
	} {
		for _, only := range []bool{false, true} {
			b := setup(t)
			if c.email != nil {
				b.issuer.User("email", c.email)
			}
			if c.verified != nil {
				b.issuer.User("email_verified", c.verified)
			}
			turn, part := mailOf("1", "ann@a.test"), login()
			turn.Message.Sender.Identities, part.SamePerson = c.sender, only
			issuance, token := b.park(t, turn, part)
			back, binding := b.logIn(t, token)
			view, err := b.FinishLogin(t.Context(), back, binding)
			resolution := b.row(issuance.ID).Resolution
			switch {
			case c.same:
				if err != nil || resolution == nil || resolution.SameAsSender == nil || !*resolution.SameAsSender {
					t.Errorf("%s, only: %v: %+v %v", name, only, resolution, err)
				}
			case name == "list": // not an ID token that can be read
				if refusedBy(err) != policypart.CodeProof {
					t.Errorf("%s: %v", name, err)
				}
			case only:
				if refusedBy(err) != policypart.CodePrincipal || view.LoggedIn != nil || !view.Open || !strings.Contains(err.Error(), "@ann@a.test") {
					t.Errorf("%s, only: %+v %v", name, view, err)
				}
			default:
				if err != nil || view.LoggedIn == nil || resolution != nil {
					t.Errorf("%s: %+v %v", name, view, err)
				}
			}
		}
	}
}

// TestSamePersonIsFrozen: whether somebody else's login counts is a term of the demand.
func TestSamePersonIsFrozen(t *testing.T) {
	var part policypart.Part
	if err := json.Unmarshal([]byte(`{"kind":"unauthorized","message":"m","auth_challenges":[{"scheme":"Bearer"}],"same_person":true}`), &part); err != nil || !part.SamePerson || len(part.Extra) > 0 {
		t.Fatalf("%+v %v", part, err)
	}
	strict, err := part.Terms()
	if err != nil {
		t.Fatal(err)
	}
	part.SamePerson = false
	if loose, err := part.Terms(); err != nil || loose == strict {
		t.Errorf("%s %v", loose, err)
	}
}

// TestAnswersByMessageAreTheSenders: the fourth check held.
func TestAnswersByMessageAreTheSenders(t *testing.T) {
	b := setup(t)
	turn := turnOf("1", "alice")
	_, token := b.park(t, turn, consent())
	ending, err := b.Offer(t.Context(), answering(turn, token, policypart.ConsentRequired, policypart.OutcomeGranted), turn)
	if err != nil || ending.Issuance.Resolution.SameAsSender == nil || !*ending.Issuance.Resolution.SameAsSender {
		t.Errorf("%+v %v", ending.Issuance.Resolution, err)
	}
}

// TestALoginIsLentForTheMessageShown: the sender changes the message after somebody else logged in for it.
func TestALoginIsLentForTheMessageShown(t *testing.T) {
	for address, stays := range map[string]bool{"boss@corp.test": false, "ann@a.test": true} {
		b := setup(t)
		b.issuer.User("email", address)
		b.issuer.User("email_verified", true)
		turn := mailOf("1", "ann@a.test")
		issuance, token := b.park(t, turn, login())
		back, binding := b.logIn(t, token)
		view, err := b.FinishLogin(t.Context(), back, binding)
		if err == nil && view.LoggedIn != nil {
			_, err = b.ConfirmLogin(t.Context(), token, view.LoggedIn.Proof, binding, true)
		}
		if err != nil {
			t.Fatal(err)
		}

		turn = b.resumed(turn, issuance.ID)
		if granted, err := b.Granted(t.Context(), turn); err != nil || !granted {
			t.Errorf("%s: granted %v, %v", address, granted, err)
		}
		turn.Message.Parts = []normalized.Part{normalized.Text("What do all payslips say?")}
		if granted, err := b.Granted(t.Context(), turn); err != nil || granted != stays {
			t.Errorf("%s, after an edit: granted %v, %v", address, granted, err)
		}
	}
}
