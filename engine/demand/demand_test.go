package demand

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/await"
	"inbox/internal/facilitator/facilitatortest"
	"inbox/internal/fault"
	"inbox/internal/openid"
	"inbox/normalized"
	"inbox/policypart"
)

func (b *bench) wantAudit(t *testing.T, codes ...string) {
	t.Helper()
	if diff := cmp.Diff(codes, b.rows.codes()); diff != "" {
		t.Error("audit:", diff)
	}
}

func TestIssueFreezesAndPresentPutsTheStateIn(t *testing.T) {
	b := setup(t)
	part := consent()
	part.URL = "https://evil.test/phish"
	part.Data = map[string]json.RawMessage{StateKey: json.RawMessage(`"forged"`), "com.example.x": json.RawMessage("1")}
	turn := turnOf("1", "alice")
	issuance, token := b.park(t, turn, part)
	if issuance.Part.URL != "https://agents.test/policy/"+issuance.ID || issuance.Part.Data[StateKey] != nil || !issuance.ExpiresAt.Equal(b.clock.Add(24*time.Hour)) {
		t.Errorf("%+v", issuance.Part)
	}
	stored, _ := json.Marshal(issuance)
	if strings.Contains(string(stored), token) || issuance.StateHash != policypart.HashState(token) {
		t.Error("the state is stored, or its hash is not")
	}
	shown := b.Present(issuance.Part)
	if string(shown.Data[StateKey]) != `"`+token+`"` || string(shown.Data["com.example.x"]) != "1" || issuance.Part.Data[StateKey] != nil {
		t.Errorf("%+v", shown.Data)
	}
	foreign := b.Present(policypart.Part{Kind: "forbidden", Message: "no", URL: "https://evil.test/policy/" + issuance.ID})
	if foreign.URL != "" || foreign.Code != "url-removed" {
		t.Errorf("%+v", foreign)
	}
	own := policypart.Part{Kind: "forbidden", Message: "no", URL: "https://agents.test/help"}
	if got := b.Present(own); got.URL != own.URL || got.Data != nil {
		t.Errorf("%+v", got)
	}
	if want := []policypart.Resolver{{Issuer: "agents.test", Subject: "mailto:alice", Method: identity.MethodActivityPubSignature}}; !slices.Equal(issuance.Asker, want) {
		t.Errorf("%+v", issuance.Asker)
	}
}

func TestIssueRefusesWhatNobodyCouldMeet(t *testing.T) {
	b := setup(t)
	past := identity.At(b.clock.Add(-time.Second))
	verified, unverified := turnOf("1", "alice"), turnOf("2", "bob")
	unverified.Message.Sender.Identities = nil
	for name, c := range map[string]struct {
		turn exchange.TurnRecord
		part policypart.Part
	}{
		"kind":            {verified, policypart.Part{Kind: "captcha_required", Message: "m"}},
		"forbidden":       {verified, policypart.Part{Kind: policypart.Forbidden, Message: "m"}},
		"no message":      {verified, policypart.Part{Kind: policypart.ConsentRequired}},
		"over already":    {verified, policypart.Part{Kind: policypart.ConsentRequired, Message: "m", ExpiresAt: &past}},
		"nothing to pay":  {verified, invoice()},
		"unpayable":       {verified, invoice(json.RawMessage(`{"scheme":"exact"}`))},
		"unknown login":   {verified, policypart.Part{Kind: policypart.Unauthorized, Message: "m", AuthChallenges: []policypart.Challenge{{Scheme: "Bearer", Params: map[string]string{"login": "x"}}}}},
		"unverified link": {unverified, policypart.Part{Kind: policypart.ConsentRequired, Message: "m", Code: CodeLink}},
		"forged confirm": {verified, policypart.Part{
			Kind: policypart.ConsentRequired, Message: "m", Code: CodeLinkConfirm,
			Data: map[string]json.RawMessage{LinkKey: json.RawMessage(`{"demand":"x","proof":"y"}`)},
		}},
	} {
		if got, err := b.Issue(c.turn, c.part); err == nil || !fault.Of(err).Permanent || fault.Of(err).Public == "" {
			t.Errorf("%s: %+v %v", name, got, err)
		}
	}
	b.options.Facilitator = nil
	b.restart()
	if _, err := b.Issue(verified, invoice(facilitatortest.Requirements("0xshop", "1"))); err == nil {
		t.Error("a payment without a facilitator")
	}
}

func TestConsentResumesTheTurnOnce(t *testing.T) {
	b := setup(t)
	issuance, token := b.park(t, turnOf("1", "alice"), consent())
	for range 3 { // a mail scanner
		view, err := b.Show(t.Context(), token)
		if err != nil || !view.Open || view.Part.URL != "" || view.Asker != "mailto:alice" || view.Status != policypart.StatusIssued || view.Locale != "de" {
			t.Fatalf("%+v %v", view, err)
		}
	}
	if diff := cmp.Diff(issuance, b.row(issuance.ID)); diff != "" {
		t.Fatal("GET changed the demand:", diff)
	}
	b.wantAudit(t)
	view, err := b.Decide(t.Context(), token, true)
	if err != nil || view.Open || view.Outcome != policypart.OutcomeGranted || view.Status != policypart.StatusResolved {
		t.Fatalf("%+v %v", view, err)
	}
	ending := b.rows.lastEnding(t)
	resolution := ending.Issuance.Resolution
	if !ending.Resume || ending.Response != nil || resolution.InReplyToState != "" || *resolution.ResolvedBy != issuance.Asker[0] || resolution.Check() != nil {
		t.Errorf("%+v %+v", ending, resolution)
	}
	view, err = b.Decide(t.Context(), token, false)
	if refusedBy(err) != policypart.CodeUsed || !fault.Is(err, fault.Conflict) || view.Outcome != policypart.OutcomeGranted {
		t.Errorf("%+v %v", view, err)
	}
	b.wantAudit(t, "demand:granted", policypart.CodeUsed)
}

func TestDeniedIsToldInTheAskersLanguage(t *testing.T) {
	b := setup(t)
	issuance, token := b.park(t, turnOf("1", "alice"), consent())
	if view, err := b.Decide(t.Context(), token, false); err != nil || view.Status != policypart.StatusDenied {
		t.Fatalf("%+v %v", view, err)
	}
	ending := b.rows.lastEnding(t)
	response := ending.Response
	if ending.Resume || ending.State != exchange.StateRefused || response.InReplyTo != issuance.MessageID || response.Visibility != normalized.VisibilityDirect ||
		response.Status != normalized.StatusFailed || !strings.Contains(response.Parts[0].Content, "Darf ich deine Mail lesen?") {
		t.Errorf("%+v", response)
	}
	if err := normalized.ValidateResponse(*response, normalized.Message{ID: issuance.MessageID, ThreadID: issuance.ThreadID}, normalized.DefaultLimits()); err != nil {
		t.Error(err)
	}
}

func TestEveryRefusalOnThePageHasItsAuditRow(t *testing.T) {
	b := setup(t)
	_, err := b.Decide(t.Context(), strings.Repeat("A", tokenBytes), true)
	if refusedBy(err) != policypart.CodeUnknown || !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
	if _, err = b.Decide(t.Context(), "short", true); refusedBy(err) != policypart.CodeUnknown {
		t.Error(err)
	}
	b.wantAudit(t, policypart.CodeUnknown, policypart.CodeUnknown)

	_, token := b.park(t, turnOf("1", "alice"), consent())
	b.clock = b.clock.Add(25 * time.Hour)
	if view, err := b.Decide(t.Context(), token, true); refusedBy(err) != policypart.CodeExpired || !fault.Is(err, fault.Gone) || view.Status != policypart.StatusExpired {
		t.Errorf("%+v %v", view, err)
	}
	b.wantAudit(t, policypart.CodeExpired)

	changed, token := b.park(t, turnOf("2", "alice"), consent())
	changed.Part.Scopes = []string{"mail.read", "mail.send"}
	b.rows.demands[changed.ID] = changed
	if _, err := b.Decide(t.Context(), token, true); refusedBy(err) != policypart.CodeTerms || !fault.Is(err, fault.Forbidden) {
		t.Error(err)
	}
	b.wantAudit(t, policypart.CodeTerms)

	for _, part := range []policypart.Part{login(), invoice(facilitatortest.Requirements("0xshop", "1"))} {
		_, token = b.park(t, turnOf("3", "alice"), part)
		if _, err := b.Decide(t.Context(), token, true); refusedBy(err) != policypart.CodeProof {
			t.Errorf("%s: %v", part.Kind, err)
		}
		b.wantAudit(t, policypart.CodeProof)
	}

	cancelled, token := b.park(t, turnOf("4", "alice"), consent())
	delete(b.rows.waiting, cancelled.TurnID)
	if _, err := b.Decide(t.Context(), token, true); refusedBy(err) != policypart.CodeUsed {
		t.Error(err)
	}
	b.wantAudit(t, policypart.CodeUsed)
}

func TestAScannerCannotFillTheAuditTrail(t *testing.T) {
	b := setup(t)
	b.clock = b.clock.Truncate(time.Minute)
	for range 10 * unknownRows {
		if _, err := b.Decide(t.Context(), strings.Repeat("B", tokenBytes), true); refusedBy(err) != policypart.CodeUnknown {
			t.Fatal(err)
		}
	}
	if rows := b.rows.codes(); len(rows) != unknownRows {
		t.Errorf("%d rows", len(rows))
	}
	b.clock = b.clock.Add(time.Minute)
	_, _ = b.Decide(t.Context(), "x", true)
	if row := b.rows.audit[0]; !strings.Contains(row.Detail, "270 more") {
		t.Errorf("%+v", row)
	}
}

func TestAtMostFiveDemandsInATurn(t *testing.T) {
	b := setup(t)
	turn := turnOf("1", "alice")
	for range MaxDemands {
		issuance, token := b.park(t, turn, consent())
		if _, err := b.Decide(t.Context(), token, true); err != nil {
			t.Fatal(err)
		}
		turn = b.resumed(turn, issuance.ID)
	}
	if _, err := b.Issue(turn, consent()); err == nil || !fault.Of(err).Permanent {
		t.Errorf("%v", err)
	}
}

// However many decide at the same time, one of them does.
func TestADemandIsResolvedAtMostOnce(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		b := offline(t)
		issuance, token := b.park(t, turnOf("1", "alice"), consent())
		var group sync.WaitGroup
		var won atomic.Int32
		for _, grant := range rapid.SliceOfN(rapid.Bool(), 2, 8).Draw(r, "decisions") {
			group.Go(func() {
				if _, err := b.Decide(t.Context(), token, grant); err == nil {
					won.Add(1)
				} else if code := refusedBy(err); code != policypart.CodeUsed && code != policypart.CodeExpired {
					t.Error(err)
				}
			})
		}
		group.Go(func() {
			if err := b.end(t.Context(), issuance); err != nil {
				t.Error(err)
			}
		})
		await.Done(t, group.Wait, "all decisions")
		if won.Load() > 1 || len(b.rows.endings) != 1 {
			r.Fatalf("%d won, %d endings", won.Load(), len(b.rows.endings))
		}
	})
}

func TestExpiredIsToldOnceByAnyNumberOfNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := offline(t)
		b.options.Now = time.Now
		b.restart()
		waiting, _ := b.park(t, turnOf("1", "alice"), consent())
		left, _ := b.park(t, turnOf("2", "alice"), invoice(facilitatortest.Requirements("0xshop", "1")))
		if ok, err := b.rows.ClaimDemand(t.Context(), left.ID, "", left.Notes, time.Now()); !ok || err != nil {
			t.Fatal(ok, err)
		}
		gone, _ := b.park(t, turnOf("3", "alice"), consent())
		delete(b.rows.waiting, "3")
		var group sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		for range 2 {
			group.Go(func() {
				_ = b.Run(ctx)
			})
		}
		time.Sleep(11 * time.Minute) //nolint:forbidigo // the bubble's clock
		if got := b.row(left.ID).Status; got != policypart.StatusClaimed {
			t.Errorf("a claim has two minutes more: %s", got)
		}
		time.Sleep(2 * time.Minute) //nolint:forbidigo // the bubble's clock
		if got := b.row(left.ID).Status; got != policypart.StatusExpired {
			t.Errorf("left claim: %s", got)
		}
		time.Sleep(24 * time.Hour) //nolint:forbidigo // the bubble's clock
		stop()
		group.Wait()
		if b.row(waiting.ID).Status != policypart.StatusExpired || b.row(gone.ID).Status != policypart.StatusDropped || len(b.rows.endings) != 3 {
			t.Errorf("%s %s %d", b.row(waiting.ID).Status, b.row(gone.ID).Status, len(b.rows.endings))
		}
		for _, ending := range b.rows.endings {
			if told := ending.Response != nil; told == (ending.Issuance.ID == gone.ID) || ending.Resume {
				t.Errorf("%+v", ending)
			}
		}
	})
}

// TestTroubledDemandsDoNotKeepOthersOpen: demands that cannot be ended, as many as they are, and demands of several batches behind them.
func TestTroubledDemandsDoNotKeepOthersOpen(t *testing.T) {
	b := setup(t)
	const troubled, others = 1001, 2*sweepBatch + 1
	b.rows.troubled = map[string]bool{}
	for n := range troubled + others {
		id := strconv.Itoa(n)
		b.rows.troubled[id] = n < troubled
		b.park(t, turnOf(id, "alice"), consent())
		b.clock = b.clock.Add(time.Millisecond)
	}

	b.clock = b.clock.Add(25 * time.Hour)
	for range 2 { // those that are left are tried again
		if err := b.sweep(t.Context()); err != nil || len(b.rows.endings) != others {
			t.Errorf("%v, %d ended", err, len(b.rows.endings))
		}
	}
}

func TestLoginProvesAnIdentity(t *testing.T) {
	b := setup(t)
	b.issuer.User("email", "a@example.org")
	b.issuer.User("email_verified", true)
	part := login()
	part.AuthChallenges = []policypart.Challenge{{Scheme: "Basic"}} // the agent names none of ours: all are offered
	issuance, token := b.park(t, turnOf("1", "alice"), part)
	if presented := b.Present(issuance.Part); presented.AuthChallenges[1].Params["realm"] != presented.URL || presented.AuthChallenges[1].Params["login"] != "staff" {
		t.Errorf("%+v", presented.AuthChallenges)
	}
	view, err := b.Show(t.Context(), token)
	if err != nil || !slices.Equal(view.Logins, []string{"staff"}) {
		t.Fatalf("%+v %v", view, err)
	}
	back, binding := b.logIn(t, token)
	if view, err = b.FinishLogin(t.Context(), back, binding); err != nil || view.LoggedIn == nil || !view.Open {
		t.Fatalf("%+v %v", view, err)
	}
	if view, err = b.ConfirmLogin(t.Context(), token, view.LoggedIn.Proof, binding, true); err != nil || view.Outcome != policypart.OutcomeGranted {
		t.Fatalf("%+v %v", view, err)
	}
	resolution := b.rows.lastEnding(t).Issuance.Resolution
	var proven identity.Evidence
	if err := json.Unmarshal(resolution.Data[IdentityKey], &proven); err != nil || proven.CheckShape() != nil {
		t.Fatalf("%v %v", err, proven.CheckShape())
	}
	want := policypart.Resolver{Issuer: b.issuer.URL, Subject: "user-7", Method: MethodOAuth}
	if *resolution.ResolvedBy != want || proven.Subject != "user-7" || string(proven.Claims) != `{"email":"a@example.org"}` || proven.Assurance != identity.AssuranceOAuth {
		t.Errorf("%+v %+v", resolution.ResolvedBy, proven)
	}
	b.wantAudit(t, "demand:granted")
	if view, err = b.FinishLogin(t.Context(), back, binding); refusedBy(err) != policypart.CodeUsed {
		t.Errorf("%+v %v", view, err)
	}
	b.wantAudit(t, policypart.CodeUsed)
}

func TestLoginsThatProveNothing(t *testing.T) {
	b := setup(t)
	issuance, token := b.park(t, turnOf("1", "alice"), login())
	if _, _, _, err := b.BeginLogin(t.Context(), token, "other"); !fault.Is(err, fault.Malformed) {
		t.Error(err)
	}
	if _, _, _, err := b.BeginLogin(t.Context(), strings.Repeat("x", tokenBytes), "staff"); refusedBy(err) != policypart.CodeUnknown {
		t.Error(err)
	}
	back, binding := b.logIn(t, token)
	b.rows.codes()
	for _, other := range []string{"another browser", ""} {
		if _, err := b.FinishLogin(t.Context(), back, other); refusedBy(err) != policypart.CodeUnknown {
			t.Error(err)
		}
	}
	cut := back
	cut.State = back.State[1:]
	if _, err := b.FinishLogin(t.Context(), cut, binding); refusedBy(err) != policypart.CodeUnknown {
		t.Error(err)
	}
	view, err := b.FinishLogin(t.Context(), openid.Return{State: back.State, Error: "access_denied"}, binding)
	if err == nil || !strings.Contains(err.Error(), "not completed at its service") {
		t.Error(err)
	}
	if refusedBy(err) != policypart.CodeProof || !view.Open || view.Token != token {
		t.Errorf("%+v %v", view, err)
	}
	b.issuer.Forge()
	if _, err := b.FinishLogin(t.Context(), back, binding); refusedBy(err) != policypart.CodeProof {
		t.Error(err)
	}
	b.wantAudit(t, policypart.CodeUnknown, policypart.CodeUnknown, policypart.CodeUnknown, policypart.CodeProof, policypart.CodeProof)
	b.clock = b.clock.Add(11 * time.Minute)
	if _, err := b.FinishLogin(t.Context(), back, binding); refusedBy(err) != policypart.CodeExpired {
		t.Error(err)
	}
	if got := b.row(issuance.ID); got.Status != policypart.StatusIssued || len(b.rows.endings) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestPaidWorkIsCapturedWhenItIsCompleted(t *testing.T) {
	b := setup(t)
	wallet := facilitatortest.NewWallet()
	accept := facilitatortest.Requirements("0xshop", "10000")
	turn := turnOf("1", "alice")
	issuance, token := b.park(t, turn, invoice(accept))
	view, err := b.Show(t.Context(), token)
	if err != nil || len(view.Accepts) != 1 || !issuance.ExpiresAt.Equal(b.clock.Add(10*time.Minute)) {
		t.Fatalf("%+v %v", view, err)
	}
	if view, err = b.Pay(t.Context(), token, wallet.Pay(accept)); err != nil || view.Outcome != policypart.OutcomePaid {
		t.Fatalf("%+v %v", view, err)
	}
	b.wantAudit(t, "demand:paid")
	resolution := b.rows.lastEnding(t).Issuance.Resolution
	if !strings.HasPrefix(resolution.Receipt, "sha256:") || !strings.Contains(string(resolution.Data[PaymentKey]), wallet.Address()) || len(b.facilitator.Settled()) != 0 {
		t.Errorf("%+v", resolution)
	}
	turn = b.resumed(turn, issuance.ID)
	if _, err := b.Issue(turn, invoice(accept)); err == nil {
		t.Error("paid twice")
	}
	next, token := b.park(t, turn, consent()) // another demand in between does not lose the payment
	if _, err := b.Decide(t.Context(), token, true); err != nil {
		t.Fatal(err)
	}
	turn = b.resumed(turn, next.ID)
	if progressOf(turn).Paid == "" || progressOf(turnOf("2", "alice")).Paid != "" {
		t.Error("the payment was forgotten")
	}
	if _, begun, err := b.Captured(t.Context(), turn); begun || err != nil {
		t.Errorf("%v %v", begun, err)
	}
	for _, status := range []string{normalized.StatusFailed, normalized.StatusInputRequired} {
		got, err := b.Capture(t.Context(), turn, normalized.Response{Status: status})
		if err != nil || got.Metadata != nil || len(b.facilitator.Settled()) != 0 {
			t.Fatalf("%s: %+v %v", status, got, err)
		}
	}
	response := normalized.Response{InReplyTo: "message-1", Parts: []normalized.Part{normalized.Text("done")}, Metadata: map[string]string{"a": "b"}}
	for range 2 { // as after a crash behind the capture
		got, err := b.Capture(t.Context(), turn, response)
		if err != nil || got.Metadata[PaymentStatusKey] != "payment-completed" || !strings.Contains(got.Metadata[PaymentReceiptsKey], "0xfeed") ||
			got.Parts[0].Content != "done" || got.Metadata["a"] != "b" || !json.Valid([]byte(got.Metadata[PaymentReceiptsKey])) {
			t.Fatalf("%+v %v", got, err)
		}
		response.Parts = []normalized.Part{normalized.Text("done differently")}
	}
	if settled := b.facilitator.Settled(); len(settled) != 1 || settled[0].Value != "10000" {
		t.Errorf("%+v", settled)
	}
}

func TestUnpaidTurnsCostNoQuery(t *testing.T) {
	b := setup(t)
	turn := turnOf("1", "alice", "a linked-list question", "hyper-link-age")
	response := normalized.Response{Parts: []normalized.Part{normalized.Text("x")}}
	if got, err := b.Capture(t.Context(), turn, response); err != nil || cmp.Diff(response.Parts[0].Content, got.Parts[0].Content) != "" {
		t.Error(err)
	}
	if _, answers, err := b.Challenge(t.Context(), turn); answers || err != nil || b.rows.queries != 0 {
		t.Errorf("%v %v, %d queries", answers, err, b.rows.queries)
	}
}

func TestBadPaymentsBurnTheDemand(t *testing.T) {
	for name, c := range map[string]struct {
		code    string
		burnt   bool
		payment func(facilitatortest.Wallet, json.RawMessage) json.RawMessage
	}{
		"other amount": {policypart.CodeTerms, false, func(w facilitatortest.Wallet, _ json.RawMessage) json.RawMessage {
			return w.Pay(facilitatortest.Requirements("0xshop", "1"))
		}},
		"other payee": {policypart.CodeTerms, false, func(w facilitatortest.Wallet, _ json.RawMessage) json.RawMessage {
			return w.Pay(facilitatortest.Requirements("0xthief", "100"))
		}},
		"no payment": {policypart.CodeProof, false, func(facilitatortest.Wallet, json.RawMessage) json.RawMessage { return []byte("{}") }},
		"forged": {policypart.CodeProof, true, func(w facilitatortest.Wallet, r json.RawMessage) json.RawMessage {
			return facilitatortest.Forge(w.Pay(r))
		}},
	} {
		b := setup(t)
		accept := facilitatortest.Requirements("0xshop", "100")
		issuance, token := b.park(t, turnOf("1", "alice"), invoice(accept))
		view, err := b.Pay(t.Context(), token, c.payment(facilitatortest.NewWallet(), accept))
		if refusedBy(err) != c.code || view.Open == c.burnt {
			t.Errorf("%s: %+v %v", name, view, err)
		}
		if codes := b.rows.codes(); !slices.Contains(codes, c.code) {
			t.Errorf("%s: %v", name, codes)
		}
		_, err = b.Pay(t.Context(), token, facilitatortest.NewWallet().Pay(accept))
		if c.burnt {
			ending := b.rows.lastEnding(t)
			if refusedBy(err) != policypart.CodeUsed || ending.Response == nil || ending.State != exchange.StateRefused || b.row(issuance.ID).Status != policypart.StatusDenied {
				t.Errorf("%s: a burnt demand was paid: %v %+v", name, err, ending)
			}
			want := map[string]string{
				PaymentStatusKey: "payment-failed", PaymentErrorKey: "INVALID_SIGNATURE",
				PaymentReceiptsKey: `[{"errorReason":"invalid_exact_evm_payload_signature","network":"` + facilitatortest.Network + `","success":false,"transaction":""}]`,
			}
			if !maps.Equal(ending.Response.Metadata, want) {
				t.Errorf("%s: %v", name, ending.Response.Metadata)
			}
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestASilentFacilitatorLeavesTheDemandOpen: one that was silent for a second ended the message of a payer who had signed.
func TestASilentFacilitatorLeavesTheDemandOpen(t *testing.T) {
	for name, trouble := range map[string]func(string, http.ResponseWriter) bool{
		"bad gateway": func(_ string, w http.ResponseWriter) bool { w.WriteHeader(http.StatusBadGateway); return true },
		"no answer":   func(string, http.ResponseWriter) bool { panic(http.ErrAbortHandler) },
		"no verdict":  func(_ string, w http.ResponseWriter) bool { _, _ = w.Write([]byte("{}")); return true },
	} {
		b := setup(t)
		accept := facilitatortest.Requirements("0xshop", "100")
		parked := turnOf("1", "alice")
		issuance, token := b.park(t, parked, invoice(accept))
		payment := facilitatortest.NewWallet().Pay(accept)

		b.facilitator.Trouble(trouble)
		view, err := b.Pay(t.Context(), token, payment)
		if !fault.Is(err, fault.Unavailable) || fault.Of(err).RetryAfter <= 0 || !view.Open {
			t.Errorf("%s: %+v %v", name, view, err)
		}
		if left := b.row(issuance.ID); left.Status != policypart.StatusIssued || notesOf(left).Payment != nil || len(b.rows.paying) != 0 || !b.rows.waiting[parked.ID] {
			t.Errorf("%s: left %+v, payments %v", name, left, b.rows.paying)
		}
		in := answering(parked, "", "", "")
		in.Settlement = &exchange.Settlement{Payment: payment}
		if _, err := b.Offer(t.Context(), in, parked); !fault.Is(err, fault.Unavailable) || b.row(issuance.ID).Status != policypart.StatusIssued {
			t.Errorf("%s, by message: %v", name, err)
		}

		// Another payment is taken, once.
		b.facilitator.Trouble(nil)
		if _, err := b.Pay(t.Context(), token, facilitatortest.NewWallet().Pay(accept)); err != nil {
			t.Fatalf("%s: the demand cannot be paid again: %v", name, err)
		}
		if _, err := b.Pay(t.Context(), token, payment); refusedBy(err) != policypart.CodeUsed {
			t.Errorf("%s: paid twice: %v", name, err)
		}
		for range 2 {
			if _, err := b.Capture(t.Context(), b.resumed(parked, issuance.ID), normalized.Response{Parts: []normalized.Part{normalized.Text("done")}}); err != nil {
				t.Fatal(err)
			}
		}
		if settled := b.facilitator.Settled(); len(settled) != 1 {
			t.Errorf("%s: %v was taken", name, settled)
		}
	}
}

// TestAnUnmetPaymentSaysSo: clients of x402 read status and error where a payment was declined or came too late.
func TestAnUnmetPaymentSaysSo(t *testing.T) {
	b := setup(t)
	accept := facilitatortest.Requirements("0xshop", "100")
	parked := turnOf("1", "alice")
	b.park(t, parked, invoice(accept))
	in := answering(parked, "", policypart.PaymentRequired, policypart.OutcomeDenied)
	ending, err := b.Offer(t.Context(), in, parked)
	if err != nil || ending.Response == nil || ending.Response.Metadata[PaymentStatusKey] != "payment-rejected" {
		t.Fatalf("%+v %v", ending, err)
	}
	in.Settlement.Resolution.Kind = policypart.ConsentRequired
	if _, err := b.Offer(t.Context(), in, parked); refusedBy(err) != policypart.CodeTerms {
		t.Errorf("another kind of demand was declined: %v", err)
	}
	in.Settlement.Resolution.Kind = policypart.PaymentRequired
	if _, err := b.Offer(t.Context(), in, exchange.TurnRecord{}); refusedBy(err) != policypart.CodeUnknown {
		t.Errorf("no demand was named: %v", err)
	}
	in.Message.Sender.Identities = []identity.Evidence{evidence("mailto:eve")}
	if _, err := b.Offer(t.Context(), in, parked); refusedBy(err) != policypart.CodePrincipal {
		t.Errorf("another sender declined: %v", err)
	}

	b.clock = b.clock.Add(time.Hour)
	if err := b.sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := b.rows.lastEnding(t).Response.Metadata; got[PaymentStatusKey] != "payment-failed" || got[PaymentErrorKey] != "EXPIRED_PAYMENT" {
		t.Errorf("%v", got)
	}
}

// TestOnePaymentIsForOneDemand: the one who signs once pays once, on the page and by message. The demand that was refused
// stays open, and a payment for which nothing can be taken any more is its payer's again.
func TestOnePaymentIsForOneDemand(t *testing.T) {
	b := setup(t)
	accept := facilitatortest.Requirements("0xshop", "100")
	wallet := facilitatortest.NewWallet()
	payment := wallet.Pay(accept)
	_, first := b.park(t, turnOf("1", "alice"), invoice(accept))
	parked := turnOf("2", "alice")
	issuance, second := b.park(t, parked, invoice(accept))
	if _, err := b.Pay(t.Context(), first, payment); err != nil {
		t.Fatal(err)
	}
	b.rows.codes()

	view, err := b.Pay(t.Context(), second, payment)
	if refusedBy(err) != policypart.CodePayment || !fault.Is(err, fault.Forbidden) || !view.Open || !strings.Contains(fault.Of(err).Public, "sign a new one") {
		t.Errorf("the second demand with the payment of the first: %+v, %v", view, err)
	}
	in := answering(parked, "", "", "")
	in.Settlement = &exchange.Settlement{Payment: json.RawMessage(" " + strings.ReplaceAll(string(payment), wallet.Address(), strings.ToUpper(wallet.Address())))}
	ending, err := b.Offer(t.Context(), in, parked)
	if refusedBy(err) != policypart.CodePayment || len(ending.Audit) != 1 || ending.Issuance.ID != "" || b.row(issuance.ID).Status != policypart.StatusIssued {
		t.Errorf("the same by message: %+v, %v", ending, err)
	}
	if codes := b.rows.codes(); !slices.Equal(codes, []string{policypart.CodePayment}) {
		t.Errorf("audit rows %v", codes)
	}

	next := wallet.Pay(accept)
	b.facilitator.Trouble(func(_ string, w http.ResponseWriter) bool { w.WriteHeader(http.StatusBadGateway); return true })
	if _, err := b.Pay(t.Context(), second, next); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a payment that cannot be checked: %v", err)
	}
	b.facilitator.Trouble(nil)
	_, third := b.park(t, turnOf("3", "alice"), invoice(accept))
	if _, err := b.Pay(t.Context(), third, next); err != nil {
		t.Errorf("a payment of which nothing was taken, for a new demand: %v", err)
	}
}

// paidTurn returns a turn that runs after its payment.
func (b *bench) paidTurn(t *testing.T) (exchange.TurnRecord, policypart.Issuance) {
	t.Helper()
	accept := facilitatortest.Requirements("0xshop", "100")
	turn := turnOf("1", "alice")
	issuance, token := b.park(t, turn, invoice(accept))
	if _, err := b.Pay(t.Context(), token, facilitatortest.NewWallet().Pay(accept)); err != nil {
		t.Fatal(err)
	}
	b.rows.codes()
	return b.resumed(turn, issuance.ID), issuance
}

func TestCaptureThatFails(t *testing.T) {
	settlePauses = []time.Duration{time.Millisecond, time.Millisecond}
	defer func(before []time.Duration) { settlePauses = before }([]time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second})
	done := normalized.Response{InReplyTo: "m", Parts: []normalized.Part{normalized.Text("secret work")}}
	answer := func(status int, body string) func(string, http.ResponseWriter) bool {
		return func(_ string, w http.ResponseWriter) bool {
			w.WriteHeader(status)
			w.Write([]byte(body))
			return true
		}
	}
	for name, c := range map[string]struct {
		code    string
		trouble func(string, http.ResponseWriter) bool
	}{
		"refused": {"payment:capture_failed", answer(200, `{"success":false,"errorReason":"insufficient_funds"}`)},
		"down":    {"payment:capture_unknown", answer(502, ``)},
		"pending": {"payment:capture_unknown", answer(200, `{"success":false,"errorReason":"settlement_pending"}`)},
	} {
		b := setup(t)
		turn, _ := b.paidTurn(t)
		b.facilitator.Trouble(c.trouble)
		got, err := b.Capture(t.Context(), turn, done)
		if err != nil || got.Status != normalized.StatusFailed || got.Error.Code != c.code || strings.Contains(got.Parts[0].Content, "secret") || got.Metadata[PaymentStatusKey] != "payment-failed" {
			t.Errorf("%s: %+v %v", name, got, err)
		}
		wantError := map[string]string{"refused": "INSUFFICIENT_FUNDS"}[name]
		if wantError == "" {
			wantError = "SETTLEMENT_FAILED"
		}
		if got.Metadata[PaymentErrorKey] != wantError || !strings.HasPrefix(got.Metadata[PaymentReceiptsKey], "[{") || !strings.Contains(got.Metadata[PaymentReceiptsKey], `"success":false`) {
			t.Errorf("%s: %v", name, got.Metadata)
		}
		b.wantAudit(t, c.code)
		if again, err := b.Capture(t.Context(), turn, done); name == "refused" && (err != nil || !maps.Equal(again.Metadata, got.Metadata)) {
			t.Errorf("%s, told again: %v %v", name, again.Metadata, err)
		}
	}

	b := setup(t)
	turn, _ := b.paidTurn(t)
	var calls atomic.Int32
	b.facilitator.Trouble(func(_ string, w http.ResponseWriter) bool { // one hiccup
		if calls.Add(1) == 1 {
			w.WriteHeader(http.StatusBadGateway)
			return true
		}
		return false
	})
	if got, err := b.Capture(t.Context(), turn, done); err != nil || got.Metadata[PaymentStatusKey] != "payment-completed" {
		t.Errorf("hiccup: %+v %v", got, err)
	}
}

// The process dies between asking the facilitator and writing down what it said.
func TestCaptureAfterACrash(t *testing.T) {
	done := normalized.Response{InReplyTo: "m", Parts: []normalized.Part{normalized.Text("first")}}
	second := normalized.Response{InReplyTo: "m", Parts: []normalized.Part{normalized.Text("second")}}
	crashed := func(b *bench, issuance policypart.Issuance) policypart.Issuance {
		stored := b.row(issuance.ID)
		kept := notesOf(stored)
		kept.Capture = &capture{State: capturing, Response: &done}
		stored.Notes = kept.raw()
		b.rows.demands[stored.ID] = stored
		return stored
	}

	b := setup(t) // before the money moved
	turn, issuance := b.paidTurn(t)
	crashed(b, issuance)
	if kept, begun, err := b.Captured(t.Context(), turn); err != nil || !begun || kept.Parts[0].Content != "first" {
		t.Errorf("%+v %v %v", kept, begun, err)
	}
	got, err := b.Capture(t.Context(), turn, second)
	if err != nil || got.Parts[0].Content != "first" || len(b.facilitator.Settled()) != 1 {
		t.Errorf("%+v %v", got, err)
	}

	b = setup(t) // after it moved: asked again, the facilitator only knows that the nonce is spent
	turn, issuance = b.paidTurn(t)
	stored := crashed(b, issuance)
	if settled, err := b.options.Facilitator.Settle(t.Context(), notesOf(stored).Payment.Payment); err != nil || !settled.Success {
		t.Fatal(settled, err)
	}
	got, err = b.Capture(t.Context(), turn, second)
	if err != nil || got.Error == nil || got.Error.Code != "payment:capture_unknown" || len(b.facilitator.Settled()) != 1 {
		t.Errorf("%+v %v", got, err)
	}
	b.wantAudit(t, "payment:capture_unknown")
}

// TestCaptureBeginsWithItsNote: the process dies while the facilitator moves the money. The next run does not ask as if it were the first, and
// tells the operator that the outcome is unknown.
func TestCaptureBeginsWithItsNote(t *testing.T) {
	b := setup(t)
	turn, issuance := b.paidTurn(t)
	ctx, die := context.WithCancel(t.Context())
	defer die()
	b.facilitator.Trouble(func(path string, _ http.ResponseWriter) bool {
		if noted := notesOf(b.row(issuance.ID)).Capture; noted == nil || noted.State != capturing {
			t.Errorf("%s: the money moves before its note: %+v", path, noted)
		}
		die()
		return false // the money moves
	})
	if _, err := b.Capture(ctx, turn, normalized.Response{InReplyTo: "m", Parts: []normalized.Part{normalized.Text("first")}}); !errors.Is(err, context.Canceled) {
		t.Fatalf("the run ended with %v", err)
	}
	b.facilitator.Trouble(nil)

	b.restart()
	kept, begun, err := b.Captured(t.Context(), turn)
	if err != nil || !begun || kept.Parts[0].Content != "first" {
		t.Errorf("the kept answer is %+v, %v, %v", kept, begun, err)
	}
	got, err := b.Capture(t.Context(), turn, kept)
	if err != nil || got.Error == nil || got.Error.Code != "payment:capture_unknown" || len(b.facilitator.Settled()) != 1 {
		t.Errorf("%+v, %v, %d payments", got, err, len(b.facilitator.Settled()))
	}
}

// TestDemandIsPaidOnce: of two payments for one demand, at two nodes at a time, one is verified.
func TestDemandIsPaidOnce(t *testing.T) {
	b := setup(t)
	accept := facilitatortest.Requirements("0xshop", "100")
	turn := turnOf("1", "alice")
	issuance, token := b.park(t, turn, invoice(accept))
	first, second := facilitatortest.NewWallet(), facilitatortest.NewWallet()
	b.rows.beforeClaim = func() {
		if _, err := b.Pay(t.Context(), token, first.Pay(accept)); err != nil {
			t.Errorf("the first payment: %v", err)
		}
	}
	if _, err := b.Pay(t.Context(), token, second.Pay(accept)); refusedBy(err) != policypart.CodeUsed {
		t.Errorf("the second payment: %v", err)
	}
	if kept := notesOf(b.row(issuance.ID)).Payment; kept == nil || !strings.EqualFold(kept.Payer, first.Address()) {
		t.Errorf("the demand was paid with %+v, want that of %s", kept, first.Address())
	}
	if got, err := b.Capture(t.Context(), b.resumed(turn, issuance.ID), normalized.Response{InReplyTo: "m", Parts: []normalized.Part{normalized.Text("done")}}); err != nil || got.Error != nil || len(b.facilitator.Settled()) != 1 {
		t.Errorf("%+v, %v, %d payments", got, err, len(b.facilitator.Settled()))
	}
}

// TestClaimOfADeadNodeHolds: a node claims a demand for a payment and dies before it is verified. No other payment takes its place.
func TestClaimOfADeadNodeHolds(t *testing.T) {
	b := setup(t)
	accept := facilitatortest.Requirements("0xshop", "100")
	issuance, token := b.park(t, turnOf("1", "alice"), invoice(accept))
	b.rows.beforeClaim = func() {
		if claimed, err := b.rows.ClaimDemand(t.Context(), issuance.ID, "the payment of a dead node", nil, b.clock); !claimed || err != nil {
			t.Errorf("%v, %v", claimed, err)
		}
	}
	b.facilitator.Trouble(func(call string, _ http.ResponseWriter) bool {
		t.Errorf("the facilitator is asked: %s", call)
		return false
	})
	if _, err := b.Pay(t.Context(), token, facilitatortest.NewWallet().Pay(accept)); refusedBy(err) != policypart.CodeUsed || b.row(issuance.ID).Status != policypart.StatusClaimed {
		t.Errorf("%v, and the demand is %s", err, b.row(issuance.ID).Status)
	}
}

func TestCaptureWithoutTheDatabaseIsRepeated(t *testing.T) {
	b := setup(t)
	turn, _ := b.paidTurn(t)
	b.rows.broken = fault.New(fault.Unavailable, "down")
	if _, err := b.Capture(t.Context(), turn, normalized.Response{}); !fault.Is(err, fault.Unavailable) || fault.Of(err).Permanent || len(b.facilitator.Settled()) != 0 {
		t.Errorf("%v", err)
	}
	if _, err := b.Show(t.Context(), strings.Repeat("x", tokenBytes)); !fault.Is(err, fault.Unavailable) {
		t.Errorf("%v", err)
	}
}

// TestTokensOfOlderVersions has what the version before decision 0137 made: people have it in mails, rows have its hash, and nodes of
// that version make it for new rows.
func TestTokensOfOlderVersions(t *testing.T) {
	b := offline(t)
	const id, state, word = "0191f3a0-0000-7000-8000-000000000001", "O1N78Zc0T4r-1ChM0x-ZJa6xttP6SrdGBura-AhIkMA", "link-xf7gtvaqezr42hk8"
	issuance, err := b.Issue(turnOf("t1", "alice"), policypart.Part{Kind: policypart.ConsentRequired, Code: CodeLink, Message: "Is that you?"})
	if err != nil {
		t.Fatal(err)
	}
	issuance.ID, issuance.StateHash, issuance.CodeHash = id, policypart.HashState(state), policypart.HashState(word)
	issuance.Part.URL = "https://agents.test/policy/" + id
	b.rows.demands[id], b.rows.waiting["t1"] = issuance, true

	if got := tokenOf(t, b.Present(issuance.Part)); got != state {
		t.Errorf("the page is under %s", got)
	}
	if view, err := b.Decide(t.Context(), state, true); err != nil || view.Token != state || view.Word != word {
		t.Errorf("%+v, %v", view, err)
	}
}
