package demand

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/normalized"
	"inbox/policypart"
)

func refund() policypart.Part {
	return policypart.Part{
		Kind: policypart.ConsentRequired, Code: policypart.CodeApproval, Title: "Approval needed", Message: "I would refund order 17.",
		URL: "https://agents.test/policy/chosen-by-the-agent",
		Data: map[string]json.RawMessage{policypart.ApprovalKey: json.RawMessage(
			`{"action_id":"act-1","tool":"refund","summary":"Refund order 17","preview":{"amount":"5.00"},"apply_input":{"order":17}}`,
		)},
	}
}

// await issues an approval and stores it with its waiting turn, as the pipeline does.
func (b *bench) await(t *testing.T, id string, part policypart.Part) policypart.Issuance {
	t.Helper()
	issuance, err := b.Issue(turnOf(id, "alice", "Please refund order 17.\nThanks!"), part)
	if err != nil {
		t.Fatal(err)
	}
	return b.keep(issuance)
}

func (b *bench) keep(issuance policypart.Issuance) policypart.Issuance {
	b.rows.mutex.Lock()
	defer b.rows.mutex.Unlock()
	b.rows.demands[issuance.ID], b.rows.waiting[issuance.TurnID] = issuance, true
	return issuance
}

func (b *bench) hold(t *testing.T, id string, parts ...normalized.Part) policypart.Issuance {
	t.Helper()
	issuance, _, err := b.Hold(turnOf(id, "alice", "When do you open?"), normalized.Response{Parts: parts}, false)
	if err != nil {
		t.Fatal(err)
	}
	return b.keep(issuance)
}

// read returns the digest of what an operator reads of an approval.
func (b *bench) read(t *testing.T, id string) string {
	t.Helper()
	read, err := b.Approval(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return read.Digest
}

func TestApprovalIsNothingOfItsAskers(t *testing.T) {
	b := offline(t)
	issuance := b.await(t, "t1", refund())
	if issuance.Purpose != policypart.PurposeApproval || issuance.Part.URL != "" || !issuance.ExpiresAt.Equal(b.clock.Add(24*time.Hour)) {
		t.Errorf("issued: %+v", issuance)
	}
	// The one who knows the state by whatever way cannot decide by a message, not even to decline.
	token := b.token(issuance.ID)
	for _, outcome := range []string{policypart.OutcomeGranted, policypart.OutcomeDenied} {
		turn := turnOf("t1", "alice")
		in := exchange.Inbound{Message: turn.Message, Settlement: &exchange.Settlement{Resolution: &policypart.Resolution{
			Kind: policypart.ConsentRequired, Outcome: outcome, InReplyToState: token, ResolvedAt: identity.At(b.clock),
		}}}
		if _, err := b.Offer(t.Context(), in, turn); refusedBy(err) != policypart.CodeProof {
			t.Errorf("the asker resolves it as %s: %v", outcome, err)
		}
	}
	if b.row(issuance.ID).Status != policypart.StatusIssued {
		t.Error("the asker decided")
	}
}

func TestApproverReadsWhatIsAsked(t *testing.T) {
	b := offline(t)
	issuance := b.await(t, "t1", refund())
	told := b.Told(issuance)
	part := b.Present(*told.Policy())
	if problem := told.Policy().CheckWithin(b.base); problem != nil {
		t.Error(problem)
	}
	for _, want := range []string{"Refund order 17", "refund", `"amount": "5.00"`, "@alice@people.test", "Please refund order 17. Thanks!", "approve " + codeOf(issuance)} {
		if !strings.Contains(part.Message, want) {
			t.Errorf("an approver is not told %q:\n%s", want, part.Message)
		}
	}
	if part.ExpiresAt == nil || !part.ExpiresAt.Equal(issuance.ExpiresAt) || !strings.Contains(part.Title, "@a@agents.test") {
		t.Errorf("title %q, expires %v", part.Title, part.ExpiresAt)
	}
	token := tokenOf(t, part)
	view, err := b.Show(t.Context(), token)
	if err != nil || !view.Open || view.Summary != "Refund order 17" || view.Tool != "refund" || view.Asker != "@alice@people.test" || string(view.Preview) != `{"apply_input":{"order":17},"preview":{"amount":"5.00"}}` {
		t.Errorf("the page: %+v, %v", view, err)
	}
	if view, err = b.DecideApproval(t.Context(), token, true, codeOf(issuance), view.Shown); err != nil || view.Outcome != policypart.OutcomeGranted {
		t.Fatalf("approved on the page: %+v, %v", view, err)
	}
	if _, err := b.DecideApproval(t.Context(), token, false, codeOf(issuance), view.Shown); refusedBy(err) != policypart.CodeUsed || !fault.Is(err, fault.Conflict) {
		t.Errorf("decided twice: %v", err)
	}
	if codes := b.rows.codes(); !slices.Equal(codes, []string{codeApprovalGranted, policypart.CodeUsed}) {
		t.Errorf("on record: %v", codes)
	}
}

func TestOperatorDecidesOnce(t *testing.T) {
	b := offline(t)
	issuance := b.await(t, "t1", refund())
	approved, err := b.Approve(t.Context(), codeOf(issuance), b.read(t, codeOf(issuance)), "operator:first")
	if err != nil || approved.Status != exchange.ApprovalApproved || approved.DecidedBy != "operator:first" {
		t.Fatalf("%+v, %v", approved, err)
	}
	ending := b.rows.lastEnding(t)
	resolution := ending.Issuance.Resolution
	if !ending.Resume || resolution.Outcome != policypart.OutcomeGranted || resolution.ResolvedBy.Subject != "operator:first" || resolution.Check() != nil {
		t.Errorf("ending %+v", ending)
	}
	if d := decidedOf(resolution); d.ActionID != "act-1" || d.Tool != "refund" || d.Reply {
		t.Errorf("the agent learns %+v", d)
	}
	if record := ending.Audit[0]; record.Code != codeApprovalGranted || record.Principal != "operator:first" {
		t.Errorf("on record: %+v", record)
	}
	if again, err := b.Deny(t.Context(), issuance.ID, "operator:second", ""); !fault.Is(err, fault.Conflict) || again.Status != exchange.ApprovalApproved ||
		!strings.Contains(fault.Of(err).Public, "approved by operator:first") {
		t.Errorf("decided twice: %+v, %v", again, err)
	}
	if _, err := b.Approve(t.Context(), "no such approval", "digest", "x"); !fault.Is(err, fault.NotFound) {
		t.Errorf("an unknown one: %v", err)
	}
	consented, _ := b.park(t, turnOf("t9", "alice"), consent())
	if _, err := b.Approve(t.Context(), consented.ID, "digest", "x"); !fault.Is(err, fault.NotFound) {
		t.Errorf("the operator consents in the asker's name: %v", err)
	}
}

func TestDeniedActionIsToldPlainly(t *testing.T) {
	b := offline(t)
	issuance := b.await(t, "t1", refund())
	if _, err := b.Deny(t.Context(), issuance.ID, "operator:x", strings.Repeat("x", maxReason+1)); !fault.Is(err, fault.Malformed) {
		t.Errorf("a long reason: %v", err)
	}
	if _, err := b.Deny(t.Context(), issuance.ID, "operator:x", " Too late. "); err != nil {
		t.Fatal(err)
	}
	ending := b.rows.lastEnding(t)
	if ending.Resume || ending.State != exchange.StateRefused || ending.Response.Error.Code != codeApprovalDenied ||
		!strings.HasSuffix(ending.Response.Parts[0].Content, "The reason: Too late.") || strings.Contains(ending.Response.Parts[0].Content, "Refund") {
		t.Errorf("ending %+v", ending)
	}
	last, ok := b.LastWord(b.row(issuance.ID))
	if !ok || last.Response.Parts[0].Content != ending.Response.Parts[0].Content || last.State != ending.State {
		t.Errorf("the last word from the row: %+v", last)
	}
	if _, ok := b.LastWord(b.await(t, "t2", refund())); ok {
		t.Error("an open approval has a last word")
	}
}

func TestHeldReplyIsEditedAndReleased(t *testing.T) {
	b := offline(t)
	file := normalized.Part{Kind: normalized.PartFile, Name: "map.png", MIME: "image/png"}
	issuance := b.hold(t, "t1", normalized.Markdown("We open at *eight*."), file, normalized.Text("Bye."))
	if listed, err := b.Approvals(t.Context(), exchange.ApprovalFilter{Limit: 10}); err != nil || len(listed) != 1 || listed[0].Kind != exchange.ApprovalReply || !strings.Contains(listed[0].Summary, "eight") {
		t.Fatalf("%+v, %v", listed, err)
	}
	edited, err := b.EditReply(t.Context(), issuance.ID, "operator:first", "We open at *nine*.\n")
	if err != nil || len(edited.Draft.Parts) != 2 || edited.Draft.Parts[0].Content != "We open at *nine*." || edited.Draft.Parts[0].MIME != normalized.MIMEMarkdown ||
		edited.Draft.Parts[1].Name != "map.png" || edited.EditedBy != "operator:first" || edited.Status != exchange.ApprovalOpen {
		t.Fatalf("%+v, %v", edited, err)
	}
	for _, text := range []string{"", "\n ", "\xff"} {
		if _, err := b.EditReply(t.Context(), issuance.ID, "x", text); !fault.Is(err, fault.Malformed) {
			t.Errorf("edited to %q: %v", text, err)
		}
	}
	if _, err := b.Approve(t.Context(), issuance.ID, "", "operator:second"); !fault.Is(err, fault.Conflict) {
		t.Errorf("the id alone approves an edited text that was not read: %v", err)
	}
	if _, err := b.Approve(t.Context(), issuance.ID, b.read(t, issuance.ID), "operator:first"); err != nil {
		t.Fatal(err)
	}
	turn := b.resumed(turnOf("t1", "alice", "When do you open?"), issuance.ID)
	released, ok, err := b.Released(t.Context(), turn)
	if err != nil || !ok || released.Response.Parts[0].Content != "We open at *nine*." {
		t.Errorf("released %+v, %v, %v", released, ok, err)
	}
	turn.ID = "t2"
	if _, ok, _ := b.Released(t.Context(), turn); ok {
		t.Error("another turn gets the answer")
	}
	if _, err := b.EditReply(t.Context(), issuance.ID, "x", "too late"); !fault.Is(err, fault.Conflict) {
		t.Errorf("edited after the decision: %v", err)
	}
	action := b.await(t, "t3", refund())
	if _, err := b.EditReply(t.Context(), action.ID, "x", "text"); !fault.Is(err, fault.Malformed) {
		t.Errorf("the text of an action: %v", err)
	}
}

func TestDeniedReplyIsSilentWithoutReason(t *testing.T) {
	b := offline(t)
	silent, told := b.hold(t, "t1", normalized.Text("a")), b.hold(t, "t2", normalized.Text("b"))
	if _, err := b.Deny(t.Context(), silent.ID, "operator:x", ""); err != nil {
		t.Fatal(err)
	}
	if ending := b.rows.lastEnding(t); !ending.Response.Silent || len(ending.Response.Parts) != 0 {
		t.Errorf("%+v", ending.Response)
	}
	if _, err := b.Deny(t.Context(), told.ID, "operator:x", "We do not answer this."); err != nil {
		t.Fatal(err)
	}
	if ending := b.rows.lastEnding(t); ending.Response.Silent || ending.Response.Parts[0].Content != "We do not answer this." {
		t.Errorf("%+v", ending.Response)
	}
}

func TestApprovalExpires(t *testing.T) {
	b := offline(t)
	soon := identity.At(b.clock.Add(time.Minute))
	part := refund()
	part.ExpiresAt = &soon
	action, reply := b.await(t, "t1", part), b.hold(t, "t2", normalized.Text("hello"))
	b.clock = b.clock.Add(25 * time.Hour)
	if listed, _ := b.Approvals(t.Context(), exchange.ApprovalFilter{Limit: 10}); listed[0].Status != exchange.ApprovalExpired {
		t.Errorf("not swept yet and %s", listed[0].Status)
	}
	if _, err := b.Approve(t.Context(), action.ID, b.read(t, action.ID), "operator:x"); !fault.Is(err, fault.Gone) {
		t.Errorf("approved too late: %v", err)
	}
	if err := b.sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if b.row(action.ID).Status != policypart.StatusExpired || b.row(reply.ID).Status != policypart.StatusExpired {
		t.Error("not expired")
	}
	for _, ending := range b.rows.endings {
		if ending.Response == nil || ending.Response.Error.Code != codeApprovalExpired || ending.Response.Silent {
			t.Errorf("the asker hears %+v", ending.Response)
		}
	}
	if codes := b.rows.codes(); !slices.Equal(codes, []string{policypart.CodeExpired, codeApprovalExpired, codeApprovalExpired}) {
		t.Errorf("on record: %v", codes)
	}
}

func TestAnswerOfAnApprover(t *testing.T) {
	owner := Decider{Name: "agents.test mailto:owner@home.test", Address: "owner@home.test", Resolver: &policypart.Resolver{Issuer: "agents.test", Subject: "mailto:owner@home.test", Method: "m"}}
	answer := func(t *testing.T, b *bench, asked *Asked, text string) Verdict {
		t.Helper()
		said, ok := ReadDecision(saying(text))
		if !ok {
			t.Fatalf("%q is no decision", text)
		}
		verdict, err := b.Answer(t.Context(), exchange.TurnRecord{ID: "owner-turn", Agent: "a"}, asked, said, owner)
		if err != nil {
			t.Fatal(err)
		}
		return verdict
	}
	decides := func(t *testing.T, v Verdict, id, outcome string) {
		t.Helper()
		if !v.Answers || v.Ending == nil || v.Ending.Issuance.ID != id || v.Ending.Issuance.Resolution.Outcome != outcome {
			t.Fatalf("verdict %+v; want %s %s", v, id, outcome)
		}
		if by := v.Ending.Issuance.Resolution.ResolvedBy; *by != *owner.Resolver || v.Ending.Audit[0].Principal != owner.Name {
			t.Errorf("decided by %+v, on record %+v", by, v.Ending.Audit[0])
		}
	}
	b := offline(t)
	one := b.await(t, "t1", refund())
	for _, word := range []string{"approve", "deny", "yes", "no", "ok"} {
		if v := answer(t, b, nil, word); v.Answers {
			t.Errorf("%q in another conversation while one is open: %+v", word, v)
		}
	}
	decides(t, answer(t, b, nil, "approve "+codeOf(one)), one.ID, policypart.OutcomeGranted)
	decides(t, answer(t, b, nil, "no "+codeOf(one)), one.ID, policypart.OutcomeDenied)
	asked := &Asked{Approval: one.ID, Shown: shownOf(one)}
	decides(t, answer(t, b, asked, "approve"), one.ID, policypart.OutcomeGranted)
	decides(t, answer(t, b, asked, "yes"), one.ID, policypart.OutcomeGranted)
	if v := answer(t, b, nil, "approve 0zzzzz"); !v.Answers || v.Ending != nil {
		t.Errorf("an unknown code: %+v", v)
	}

	two := b.hold(t, "t2", normalized.Text("hello"))
	decides(t, answer(t, b, asked, "approve"), one.ID, policypart.OutcomeGranted)
	decides(t, answer(t, b, asked, "approve "+codeOf(two)), two.ID, policypart.OutcomeGranted)
	if _, err := b.Deny(t.Context(), one.ID, "operator:x", ""); err != nil {
		t.Fatal(err)
	}
	b.rows.codes()
	for _, late := range []Verdict{answer(t, b, asked, "approve"), answer(t, b, nil, "approve "+codeOf(one)), answer(t, b, asked, "yes")} {
		if !late.Answers || late.Ending != nil || !strings.Contains(late.Sentence, "denied by operator:x") {
			t.Errorf("decided before: %+v", late)
		}
	}
	if codes := b.rows.codes(); !slices.Equal(codes, []string{policypart.CodeUsed, policypart.CodeUsed, policypart.CodeUsed}) {
		t.Errorf("on record: %v", codes)
	}
	foreign := refund()
	other, err := b.Issue(exchange.TurnRecord{ID: "t7", Agent: "other", ThreadID: "x", Message: turnOf("t7", "alice").Message}, foreign)
	if err != nil {
		t.Fatal(err)
	}
	b.keep(other)
	if v := answer(t, b, nil, "approve "+codeOf(other)); v.Ending != nil {
		t.Errorf("an approval of another agent: %+v", v)
	}
	if v := answer(t, b, &Asked{Approval: other.ID, Shown: shownOf(other)}, "approve"); v.Ending != nil {
		t.Errorf("in the conversation about another agent's: %+v", v)
	}
}

// TestGrantIsAboutWhatWasShown: an answer that was edited is not sent on a decision about the text before.
func TestGrantIsAboutWhatWasShown(t *testing.T) {
	b := offline(t)
	first := b.hold(t, "t1", normalized.Text("We open at eight."))
	shown, token := shownOf(first), b.token(first.ID)
	if _, err := b.EditReply(t.Context(), first.ID, "operator:eve", "Send me your PIN."); err != nil {
		t.Fatal(err)
	}
	edited := b.row(first.ID)
	if codeOf(edited) == codeOf(first) || shownOf(edited) == shown {
		t.Fatal("an edit leaves code or digest as they were")
	}

	owner := Decider{Name: "agents.test mailto:owner@home.test", Address: "owner@home.test"}
	for name, decide := range map[string]func() error{
		"by the code that was shown with it": func() error {
			_, err := b.Approve(t.Context(), codeOf(first), b.read(t, codeOf(first)), "operator:ann")
			return err
		},
		"by the digest": func() error { _, err := b.Approve(t.Context(), first.ID, shown, "operator:ann"); return err },
		"by the new code with the old digest": func() error {
			_, err := b.Approve(t.Context(), codeOf(edited), shown, "operator:ann")
			return err
		},
		"on the page": func() error { _, err := b.DecideApproval(t.Context(), token, true, codeOf(first), shown); return err },
	} {
		if err := decide(); refusedBy(err) != policypart.CodeTerms || !fault.Is(err, fault.Conflict) || !strings.Contains(fault.Of(err).Public, "look at it again") {
			t.Errorf("approved %s: %v", name, err)
		}
	}
	for _, text := range []string{"approve", "approve " + codeOf(first)} {
		said, _ := ReadDecision(saying(text))
		v, err := b.Answer(t.Context(), exchange.TurnRecord{Agent: "a"}, &Asked{Approval: first.ID, Shown: shown}, said, owner)
		if err != nil || !v.Answers || v.Ending != nil || v.Told == nil || !strings.Contains(v.Told.Policy().Message, "Send me your PIN.") {
			t.Errorf("%q by message: %+v, %v", text, v, err)
		}
	}

	if view, err := b.DecideApproval(t.Context(), token, true, codeOf(first), shownOf(edited)); err != nil || view.Outcome != policypart.OutcomeGranted {
		t.Errorf("the page shows the new text and an earlier code opens it: %+v, %v", view, err)
	}
}

// TestPageAsksForTheCode: the link alone, which may have got to the agent, decides nothing.
func TestPageAsksForTheCode(t *testing.T) {
	b := offline(t)
	issuance := b.await(t, "t1", refund())
	token := b.token(issuance.ID)
	for _, grant := range []bool{true, false} {
		if _, err := b.Decide(t.Context(), token, grant); !fault.Is(err, fault.Malformed) {
			t.Errorf("decided without a code: %v", err)
		}
		for _, code := range []string{"", "0zzzzz", issuance.ID, token} {
			if _, err := b.DecideApproval(t.Context(), token, grant, code, shownOf(issuance)); refusedBy(err) != policypart.CodeProof {
				t.Errorf("decided with the code %q: %v", code, err)
			}
		}
	}
	for range triesPerMinute {
		_, _ = b.DecideApproval(t.Context(), token, true, "0zzzzz", shownOf(issuance)) // refused, see above
	}
	if _, err := b.DecideApproval(t.Context(), token, true, codeOf(issuance), shownOf(issuance)); !fault.Is(err, fault.RateLimited) {
		t.Errorf("codes can be tried for ever: %v", err)
	}
	b.clock = b.clock.Add(time.Minute)
	typed := "#" + strings.ToUpper(codeOf(issuance)) + " "
	if view, err := b.DecideApproval(t.Context(), token, true, typed, shownOf(issuance)); err != nil || view.Outcome != policypart.OutcomeGranted {
		t.Errorf("with the code as people type it: %+v, %v", view, err)
	}
	for text, want := range map[string]bool{
		" Approve  " + codeOf(issuance): true, "approve #" + codeOf(issuance): true, "deny " + codeOf(issuance): false, "approve": false, "approve 0zzzzz": false,
	} {
		if got := hasCode(issuance, text); got != want {
			t.Errorf("%q is taken for the code: %v", text, got)
		}
	}

	consented, state := b.park(t, turnOf("t2", "alice"), consent())
	if _, err := b.DecideApproval(t.Context(), state, true, "0zzzzz", ""); !fault.Is(err, fault.Malformed) || b.row(consented.ID).Status != policypart.StatusIssued {
		t.Errorf("a consent is decided as an approval: %v", err)
	}
}

// TestCodeFollowsFromNothing: the agent knows the turn and its run, and from them the id of the demand.
func TestCodeFollowsFromNothing(t *testing.T) {
	one, two := offline(t).await(t, "t1", refund()), offline(t).await(t, "t1", refund())
	if one.ID != two.ID || codeOf(one) == codeOf(two) {
		t.Errorf("the same demand has the codes %s and %s", codeOf(one), codeOf(two))
	}
	b := offline(t)
	b.options.Secret = []byte(strings.Repeat("x", 32))
	with := b.Question(one.ID, "owner@home.test")
	b.restart()
	if b.Question(one.ID, "owner@home.test") == with {
		t.Error("who is asked where follows from the id")
	}
}

func TestGrantIsForOneTurn(t *testing.T) {
	b := offline(t)
	issuance := b.await(t, "t1", refund())
	asked := turnOf("t1", "alice", "Please refund order 17.\nThanks!")
	if _, err := b.Approve(t.Context(), issuance.ID, b.read(t, issuance.ID), "operator:x"); err != nil {
		t.Fatal(err)
	}
	turn := b.resumed(asked, issuance.ID)
	if granted, err := b.Granted(t.Context(), turn); err != nil || !granted {
		t.Errorf("what was approved: %v, %v", granted, err)
	}
	if granted, err := b.Granted(t.Context(), asked); err != nil || granted {
		t.Errorf("without a resolution: %v, %v", granted, err)
	}
	for name, change := range map[string]func(*exchange.TurnRecord){
		"another turn":   func(turn *exchange.TurnRecord) { turn.ID = "t2" },
		"another agent":  func(turn *exchange.TurnRecord) { turn.Agent = "other" },
		"another sender": func(turn *exchange.TurnRecord) { turn.Principal = "agents.test mailto:eve" },
		"an edited message": func(turn *exchange.TurnRecord) {
			turn.Message.Parts = []normalized.Part{normalized.Text("Refund order 99.")}
		},
	} {
		other := turn
		change(&other)
		if granted, err := b.Granted(t.Context(), other); err != nil || granted {
			t.Errorf("%s has the grant: %v, %v", name, granted, err)
		}
	}

	b.clock = b.clock.Add(policypart.GrantLife)
	if granted, err := b.Granted(t.Context(), turn); err != nil || granted {
		t.Errorf("after its end: %v, %v", granted, err)
	}
}

// TestConsentIsForOneTurn: what an asker granted is of use in the asker's turn alone.
func TestConsentIsForOneTurn(t *testing.T) {
	b := offline(t)
	asked := turnOf("t1", "alice")
	consented, state := b.park(t, asked, consent())
	for name, status := range map[string]string{
		"open": policypart.StatusIssued, "denied": policypart.StatusDenied, "expired": policypart.StatusExpired, "dropped": policypart.StatusDropped,
	} {
		row := b.row(consented.ID)
		row.Status, row.Resolution = status, &policypart.Resolution{Kind: row.Kind, Outcome: policypart.OutcomeGranted, ResolvedAt: identity.At(b.clock)}
		turn := asked
		turn.Message.PolicyResolution = ended(consented, deed{outcome: policypart.OutcomeGranted}, b.clock).Resolution
		b.rows.demands[consented.ID] = row
		if granted, err := b.Granted(t.Context(), turn); err != nil || granted {
			t.Errorf("a demand that is %s: %v, %v", name, granted, err)
		}
		b.rows.demands[consented.ID] = consented
	}

	if _, err := b.Decide(t.Context(), state, true); err != nil {
		t.Fatal(err)
	}
	turn := b.resumed(asked, consented.ID)
	if granted, err := b.Granted(t.Context(), turn); err != nil || !granted {
		t.Errorf("what its asker granted: %v, %v", granted, err)
	}
	for name, change := range map[string]func(*exchange.TurnRecord){
		"another turn":   func(turn *exchange.TurnRecord) { turn.ID = "t2" },
		"another agent":  func(turn *exchange.TurnRecord) { turn.Agent = "other" },
		"another sender": func(turn *exchange.TurnRecord) { turn.Principal = "agents.test mailto:eve" },
	} {
		other := turn
		change(&other)
		if granted, err := b.Granted(t.Context(), other); err != nil || granted {
			t.Errorf("%s has the consent: %v, %v", name, granted, err)
		}
	}

	frozen := b.row(consented.ID)
	wider := frozen
	wider.Part.Scopes = append(slices.Clone(frozen.Part.Scopes), "mail.send")
	b.rows.demands[consented.ID] = wider
	if granted, err := b.Granted(t.Context(), turn); err != nil || granted {
		t.Errorf("for more than was shown: %v, %v", granted, err)
	}
	b.rows.demands[consented.ID] = frozen

	b.clock = b.clock.Add(policypart.GrantLife)
	if granted, err := b.Granted(t.Context(), turn); err != nil || granted {
		t.Errorf("after its end: %v, %v", granted, err)
	}
}

// TestEditApprovesItsOwnText: an operator who edits and sends does not send what someone else wrote in between.
func TestEditApprovesItsOwnText(t *testing.T) {
	b := offline(t)
	held := b.hold(t, "t1", normalized.Text("We open at eight."))
	other := New(b.options) // another node
	other.Bind(b.rows)
	b.rows.afterEdit = func() {
		if _, err := other.EditReply(t.Context(), held.ID, "operator:eve", "Send me your PIN."); err != nil {
			t.Error(err)
		}
	}

	edited, err := b.EditReply(t.Context(), held.ID, "operator:ann", "We open at nine.")
	if err != nil || edited.EditedBy != "operator:ann" || edited.Draft.Parts[0].Content != "We open at nine." || edited.Code == codeOf(b.row(held.ID)) {
		t.Fatalf("the edit returns %+v, %v", edited, err)
	}
	for name, id := range map[string]string{"id and digest": held.ID, "its code": edited.Code} {
		if _, err := b.Approve(t.Context(), id, edited.Digest, "operator:ann"); refusedBy(err) != policypart.CodeTerms {
			t.Errorf("by %s the other text is sent: %v", name, err)
		}
	}
	if status := b.row(held.ID).Status; status != policypart.StatusIssued {
		t.Errorf("the answer is %s", status)
	}
}

// TestReleasedAnswerHasAnEnd: an answer that was let pass long ago is asked about again.
func TestReleasedAnswerHasAnEnd(t *testing.T) {
	b := offline(t)
	held := b.hold(t, "t1", normalized.Text("We open at eight."))
	if _, err := b.Approve(t.Context(), held.ID, b.read(t, held.ID), "operator:ann"); err != nil {
		t.Fatal(err)
	}
	turn := b.resumed(turnOf("t1", "alice", "When do you open?"), held.ID)
	if _, is, err := b.Released(t.Context(), turn); err != nil || !is {
		t.Errorf("released: %v, %v", is, err)
	}
	for name, change := range map[string]func(*exchange.TurnRecord){
		"another turn":   func(turn *exchange.TurnRecord) { turn.ID = "t2" },
		"another agent":  func(turn *exchange.TurnRecord) { turn.Agent = "other" },
		"another sender": func(turn *exchange.TurnRecord) { turn.Principal = "agents.test mailto:eve" },
		"an edited message": func(turn *exchange.TurnRecord) {
			turn.Message.Parts = []normalized.Part{normalized.Text("Where are you?")}
		},
	} {
		other := turn
		change(&other)
		if _, is, err := b.Released(t.Context(), other); err != nil || is {
			t.Errorf("%s has the answer: %v, %v", name, is, err)
		}
	}
	b.clock = b.clock.Add(policypart.GrantLife)
	if _, is, err := b.Released(t.Context(), turn); err != nil || is {
		t.Errorf("after its end: %v, %v", is, err)
	}
}

func TestApprovalsHaveABoundOfTheirOwn(t *testing.T) {
	b := offline(t)
	turn := turnOf("t1", "alice")
	for n := range MaxApprovals {
		issuance, err := b.Issue(turn, refund())
		if err != nil {
			t.Fatalf("approval %d: %v", n+1, err)
		}
		b.keep(issuance)
		if _, err := b.Approve(t.Context(), issuance.ID, b.read(t, issuance.ID), "operator:x"); err != nil {
			t.Fatal(err)
		}
		turn = b.resumed(turn, issuance.ID)
	}
	if _, err := b.Issue(turn, refund()); err == nil {
		t.Error("an agent asks for approvals for ever")
	}
	if _, err := b.Issue(turn, consent()); err != nil {
		t.Errorf("approvals use up the demands to the asker: %v", err)
	}
}

func TestOnlyTheEngineHoldsReplies(t *testing.T) {
	b := offline(t)
	part := refund()
	part.Code = policypart.CodeApprovalReply
	if _, err := b.Issue(turnOf("t1", "alice"), part); err == nil {
		t.Error("an agent made the demand for a held answer itself")
	}
}

// TestOldCodesAreRefusedBeforeAnythingIsRead: a code from before an edit, and one of an approval that is decided, ask no one.
func TestOldCodesAreRefusedBeforeAnythingIsRead(t *testing.T) {
	b := offline(t)
	held := b.hold(t, "t1", normalized.Text("We open at eight."))
	old := codeOf(held)
	if read, err := b.Approvable(t.Context(), old, "operator:ann"); err != nil || read.ID != held.ID || read.Digest == "" {
		t.Fatalf("before the edit: %+v, %v", read, err)
	}
	if _, err := b.EditReply(t.Context(), held.ID, "operator:ann", "We open at nine."); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Approvable(t.Context(), old, "operator:ann"); refusedBy(err) != policypart.CodeTerms || !fault.Is(err, fault.Conflict) {
		t.Errorf("the old code: %v", err)
	}
	now := codeOf(b.row(held.ID))
	for _, id := range []string{now, held.ID} {
		if read, err := b.Approvable(t.Context(), id, "operator:ann"); err != nil || !strings.Contains(read.DraftText, "nine") {
			t.Errorf("%s: %+v, %v", id, read, err)
		}
	}
	if _, err := b.Deny(t.Context(), now, "operator:ann", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Approvable(t.Context(), now, "operator:ann"); refusedBy(err) != policypart.CodeUsed {
		t.Errorf("decided: %v", err)
	}
	if _, err := b.Approvable(t.Context(), "0zzzzz", "operator:ann"); !fault.Is(err, fault.NotFound) {
		t.Errorf("unknown: %v", err)
	}
}

// TestApprovesByWholeDigestsOnly checks that a truncated digest is refused as malformed, not as a changed approval.
func TestApprovesByWholeDigestsOnly(t *testing.T) {
	b := offline(t)
	held := b.hold(t, "t1", normalized.Text("We open at eight."))
	whole := b.read(t, held.ID)
	for _, shown := range []string{"abc", whole[:63], whole + "0", strings.ToUpper(whole), "sha256:" + whole} {
		_, err := b.Approve(t.Context(), held.ID, shown, "operator:ann")
		if f := fault.Of(err); err == nil || f.Kind != fault.Malformed || f.Field != "digest" || !strings.Contains(f.Public, "inbox approvals show "+held.ID) {
			t.Errorf("%q: %v", shown, err)
		}
	}
	if _, err := b.Approve(t.Context(), held.ID, whole, "operator:ann"); err != nil {
		t.Error(err)
	}
}

// TestApproversReadWhoReadsTheAnswer: an answer to everyone is another decision than one to the asker.
func TestApproversReadWhoReadsTheAnswer(t *testing.T) {
	for visibility, want := range map[string]string{
		"":                             "We open at eight.",
		normalized.VisibilityPublic:    "[visibility public: everyone can read it, if everyone could read the message]\nWe open at eight.",
		normalized.VisibilityFollowers: "[visibility followers: followers can read it, if they could read the message]\nWe open at eight.",
		normalized.VisibilityDirect:    "[visibility direct: only the asker and those who are named can read it]\nWe open at eight.",
	} {
		response := normalized.Response{Parts: []normalized.Part{normalized.Text("We open at eight.")}, Visibility: visibility}
		if got := draftText(response); got != want {
			t.Errorf("%q: %q", visibility, got)
		}
	}
}
