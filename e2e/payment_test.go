package e2e

import (
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/identity"
	"inbox/internal/facilitator/facilitatortest"
	"inbox/internal/openid/openidtest"
	"inbox/normalized"
	"inbox/policypart"
)

// asksForMoney demands a payment and then works; the text "fail" makes the paid work fail.
func asksForMoney(requirement json.RawMessage) func(normalized.Message) normalized.Response {
	return func(message normalized.Message) normalized.Response {
		switch {
		case message.PolicyResolution == nil:
			expires := identity.At(time.Now().Add(5 * time.Minute))
			return demanding(policypart.Part{
				Kind: policypart.PaymentRequired, Title: "A report costs something", Message: "One report is 10,000 units.",
				Accepts: []json.RawMessage{requirement}, Amount: "10000", Currency: "UNIT", ExpiresAt: &expires,
			})
		case strings.Contains(textOf(message.Parts), "fail"):
			return normalized.Response{
				Status: normalized.StatusFailed, Error: &normalized.ResponseError{Code: "agent:failed", Message: "I could not write it."},
			}
		}
		return say("Here is your report.")
	}
}

//contract:shows message-23 message-32
func TestPaymentIsTakenForCompletedWorkAlone(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		money := facilitatortest.New(t)
		requirement := facilitatortest.Requirements("0x00000000000000000000000000000000000000ff", "10000")
		agent := startScripted(t, asksForMoney(requirement))
		s := start(t, instance.Settings{
			Database: database, Agents: agent.table("writer", ""), More: fmt.Sprintf("[payments]\nfacilitator_url = %q\n", money.URL.String()),
		})
		peer := s.a2aPeer("writer", "ann")
		ask := func(text string) (load.Task, string) {
			t.Helper()
			task, err := peer.Send(t.Context(), load.SendBody("message-"+text, text, false))
			if err != nil {
				t.Fatal(err)
			}
			if task.Status.State != "TASK_STATE_INPUT_REQUIRED" {
				t.Fatalf("the task is %s; want INPUT_REQUIRED", task.Status.State)
			}
			return task, findLink(t, texts(task))
		}

		task, link := ask("please")
		wallet := facilitatortest.NewWallet()
		if status, body := pay(t, link, facilitatortest.Forge(wallet.Pay(requirement))); status < http.StatusBadRequest {
			t.Errorf("a forged payment was answered %d: %s", status, body)
		}
		forgedTask, forgedLink := task, link
		task, link = ask("again")
		if status, body := pay(t, link, wallet.Pay(requirement)); status >= http.StatusBadRequest {
			t.Fatalf("a good payment was answered %d: %s", status, body)
		}
		awaitTask(t, peer, task.ID, completed)
		if settled := money.Settled(); len(settled) != 1 || settled[0].Value != "10000" || settled[0].From != wallet.Address() {
			t.Errorf("the facilitator carried out %v; want one payment of the wallet", settled)
		}
		if status, _ := pay(t, forgedLink, wallet.Pay(requirement)); status < http.StatusBadRequest {
			t.Error("after a forged payment the same demand could be paid: a failed check burns it")
		}
		if got, err := peer.Get(t.Context(), forgedTask.ID); err != nil || got.Status.State == completed {
			t.Errorf("the task of the forged payment is %s (%v)", got.Status.State, err)
		}

		task, link = ask("fail")
		uncaptured := facilitatortest.NewWallet().Pay(requirement)
		if status, body := pay(t, link, uncaptured); status >= http.StatusBadRequest {
			t.Fatalf("a good payment was answered %d: %s", status, body)
		}
		awaitTask(t, peer, task.ID, "TASK_STATE_FAILED")
		if settled := money.Settled(); len(settled) != 1 {
			t.Errorf("failed work was paid: %v", settled)
		}

		task, link = ask("once more")
		if status, body := pay(t, link, uncaptured); status < http.StatusBadRequest || !strings.Contains(body, "used for another request") {
			t.Errorf("the payment of another demand was answered %d: %s", status, body)
		}
		if status, body := pay(t, link, wallet.Pay(requirement)); status >= http.StatusBadRequest {
			t.Errorf("the demand takes no other payment after that: %d: %s", status, body)
		}
		awaitTask(t, peer, task.ID, completed)
		if settled := money.Settled(); len(settled) != 2 {
			t.Errorf("two reports were given and paid %d times: %v", len(settled), settled)
		}
	})
}

// pay offers an x402 payment to the page of a demand, as programs do.
func pay(t *testing.T, link string, payment json.RawMessage) (int, string) {
	t.Helper()
	return page(t, http.MethodPost, link, url.Values{"decision": {"pay"}, "payment": {string(payment)}})
}

func awaitTask(t *testing.T, peer load.A2APeer, id, want string) load.Task {
	t.Helper()
	var task load.Task
	eventually(t, "the task becomes "+want, func() (there bool) {
		var err error
		if task, err = peer.Get(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		return task.Status.State == want
	})
	return task
}

// asksForLogin demands a second identity and tells which one it got.
func asksForLogin(message normalized.Message) normalized.Response {
	if resolution := message.PolicyResolution; resolution != nil {
		return say(fmt.Sprint("Welcome, ", resolution.ResolvedBy.Subject, " of ", resolution.ResolvedBy.Issuer, ", the sender: ", *resolution.SameAsSender))
	}
	return demanding(policypart.Part{
		Kind: policypart.Unauthorized, Title: "Who are you at work?", Message: "Log in with your work account.",
		AuthChallenges: []policypart.Challenge{{Scheme: "oidc", Params: map[string]string{"login": "work"}}},
	})
}

//contract:shows message-23 message-32
func TestLoginProvesASecondIdentity(t *testing.T) {
	t.Parallel()
	issuer := openidtest.New(t, "employee-7")
	agent := startScripted(t, asksForLogin)
	login := fmt.Sprintf("[[logins]]\nname = \"work\"\nissuer = %q\nclient_id = %q\nclient_secret = %q\n", issuer.URL, openidtest.ClientID, openidtest.ClientSecret)
	s := start(t, instance.Settings{Agents: agent.table("desk", ""), More: login})
	peer := s.a2aPeer("desk", "ann")
	task, err := peer.Send(t.Context(), load.SendBody("message-1", "show me my payslip", false))
	if err != nil {
		t.Fatal(err)
	}
	if task.Status.State != "TASK_STATE_AUTH_REQUIRED" {
		t.Fatalf("the task is %s; want AUTH_REQUIRED", task.Status.State)
	}
	link := findLink(t, texts(task))
	scan(t, link)

	browser := newBrowser(t)
	status, where, body := browser.post(link, url.Values{"login": {"work"}})
	if status != http.StatusSeeOther || !strings.HasPrefix(where, issuer.URL) {
		t.Fatalf("the login begins with %d to %q:\n%s", status, where, body)
	}
	back := issuer.Visit(t, where)
	callback := s.URL() + "/policy/login/callback?" + back.Encode()
	if status, _, _ := newBrowser(t).get(callback); status < http.StatusBadRequest {
		t.Errorf("another browser finished the login: %d", status)
	}
	status, _, body = browser.get(callback)
	if status >= http.StatusBadRequest || !strings.Contains(body, "show me my payslip") || !strings.Contains(body, "@ann@") {
		t.Fatalf("the login ended with %d:\n%s", status, body)
	}
	if got, err := peer.Get(t.Context(), task.ID); err != nil || got.Status.State != "TASK_STATE_AUTH_REQUIRED" {
		t.Fatalf("the login alone decided: %s, %v", got.Status.State, err)
	}
	form := hiddenFields(body)
	form.Set("decision", "grant")
	if status, _, _ := newBrowser(t).post(link, form); status < http.StatusBadRequest {
		t.Errorf("another browser confirmed the login: %d", status)
	}
	if status, _, body := browser.post(link, form); status >= http.StatusBadRequest {
		t.Fatalf("the confirmation was answered %d:\n%s", status, body)
	}
	task = awaitTask(t, peer, task.ID, completed)
	if text := texts(task); !strings.Contains(text, "employee-7") || !strings.Contains(text, "the sender: false") || !strings.Contains(text, issuer.URL) {
		t.Errorf("the agent was told %q", text)
	}
	if status, _, _ := browser.get(callback); status < http.StatusBadRequest {
		t.Errorf("the same login was taken twice: %d", status)
	}
	if codes := auditCodes(t, s.Instance); !slices.Contains(codes, "demand:granted") {
		t.Errorf("the grant is not on record: %v", codes)
	}
}

var hiddenField = regexp.MustCompile(`<input type="hidden" name="([^"]+)" value="([^"]*)"`)

// hiddenFields are those of the forms of a page.
func hiddenFields(page string) url.Values {
	form := url.Values{}
	for _, field := range hiddenField.FindAllStringSubmatch(page, -1) {
		form.Set(field[1], html.UnescapeString(field[2]))
	}
	return form
}

// paying is a message to a task with the keys of the x402 extension of A2A.
func paying(t *testing.T, id string, to load.Task, metadata map[string]any) []byte {
	t.Helper()
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": map[string]any{"message": map[string]any{
		"messageId": id, "taskId": to.ID, "role": "ROLE_USER", "parts": []map[string]string{{"text": "about the payment"}}, "metadata": metadata,
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// TestPaymentsOverA2A: a failure has the fields of the x402 extension, "payment-rejected" declines, and a facilitator that does not
// answer costs the payer nothing, the demand included.
func TestPaymentsOverA2A(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		money := facilitatortest.New(t)
		requirement := facilitatortest.Requirements("0x00000000000000000000000000000000000000ff", "10000")
		agent := startScripted(t, asksForMoney(requirement))
		s := start(t, instance.Settings{
			Database: database, Agents: agent.table("writer", ""), More: fmt.Sprintf("[payments]\nfacilitator_url = %q\n", money.URL.String()),
		})
		peer := s.a2aPeer("writer", "ann")
		ask := func(id string) load.Task {
			t.Helper()
			task, err := peer.Send(t.Context(), load.SendBody(id, id, false))
			if err != nil || task.Status.State != "TASK_STATE_INPUT_REQUIRED" {
				t.Fatalf("%s: %s, %v", id, task.Status.State, err)
			}
			return task
		}
		submitted := func(payment json.RawMessage) map[string]any {
			return map[string]any{"x402.payment.status": "payment-submitted", "x402.payment.payload": payment}
		}
		metadataOf := func(task load.Task) map[string]any {
			if task.Status.Message == nil {
				return nil
			}
			return task.Status.Message.Metadata
		}
		wallet := facilitatortest.NewWallet()

		task := ask("forged")
		failed, err := peer.Send(t.Context(), paying(t, "pay-forged", task, submitted(facilitatortest.Forge(wallet.Pay(requirement)))))
		if err != nil || failed.ID != task.ID {
			t.Fatalf("a forged payment is answered by its task: %+v, %v", failed, err)
		}
		got := metadataOf(failed)
		receipts, _ := got["x402.payment.receipts"].([]any)
		if got["x402.payment.status"] != "payment-failed" || got["x402.payment.error"] != "INVALID_SIGNATURE" || len(receipts) != 1 {
			t.Errorf("a forged payment ends %s with %v", failed.Status.State, got)
		} else if receipt, _ := receipts[0].(map[string]any); receipt["success"] != any(false) || receipt["network"] != facilitatortest.Network || receipt["errorReason"] == "" {
			t.Errorf("the receipt of a forged payment: %v", receipt)
		}

		asked := len(agent.questions())
		task = ask("declined")
		declined, err := peer.Send(t.Context(), paying(t, "pay-declined", task, map[string]any{"x402.payment.status": "payment-rejected"}))
		if err != nil || declined.ID != task.ID || metadataOf(declined)["x402.payment.status"] != "payment-rejected" {
			t.Errorf("a declined payment ends %s with %v, %v", declined.Status.State, metadataOf(declined), err)
		}
		if runs := len(agent.questions()) - asked; runs != 1 {
			t.Errorf("the agent ran %d times for a demand that was declined", runs)
		}

		task = ask("silent")
		money.Trouble(func(_ string, w http.ResponseWriter) bool { w.WriteHeader(http.StatusGatewayTimeout); return true })
		if answer, err := peer.Send(t.Context(), paying(t, "pay-silent", task, submitted(wallet.Pay(requirement)))); err == nil {
			t.Errorf("a payment that could not be checked was taken: %s", answer.Status.State)
		}
		if open, err := peer.Get(t.Context(), task.ID); err != nil || open.Status.State != "TASK_STATE_INPUT_REQUIRED" || metadataOf(open)["x402.payment.status"] != "payment-required" {
			t.Fatalf("the task is %s with %v, %v", open.Status.State, metadataOf(open), err)
		}
		money.Trouble(nil)
		if paid, err := peer.Send(t.Context(), paying(t, "pay-again", task, submitted(wallet.Pay(requirement)))); err != nil || paid.Status.State != completed {
			t.Errorf("paid again: %s, %v", paid.Status.State, err)
		}
		if settled := money.Settled(); len(settled) != 1 {
			t.Errorf("%v was taken", settled)
		}
		if _, err := peer.Send(t.Context(), paying(t, "pay-nothing", ask("nothing"), map[string]any{"x402.payment.status": "payment-submitted"})); err == nil {
			t.Error("a payment without a payload was taken for a question")
		}
	})
}

// browser keeps cookies and follows no redirects.
type browser struct {
	t      *testing.T
	client *http.Client
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &browser{t: t, client: &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

func (b *browser) get(address string) (status int, where, body string) {
	b.t.Helper()
	return b.answered(b.client.Get(address))
}

func (b *browser) post(address string, form url.Values) (status int, where, body string) {
	b.t.Helper()
	return b.answered(b.client.PostForm(address, form))
}

func (b *browser) answered(response *http.Response, err error) (status int, where, body string) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return response.StatusCode, response.Header.Get("Location"), string(text)
}

// settling is a message that brings the answer to a demand.
func settling(t *testing.T, id string, to load.Task, state, outcome string) []byte {
	t.Helper()
	message := map[string]any{
		"messageId": id, "role": "ROLE_USER", "parts": []map[string]string{{"text": "here is my answer"}},
		"metadata": map[string]any{"mentionable": map[string]any{"policy_resolution": map[string]any{
			"kind": "consent_required", "in_reply_to_state": state, "outcome": outcome, "resolved_at": time.Now().UTC().Format(time.RFC3339),
		}}},
	}
	if to.ID != "" {
		message["taskId"] = to.ID
	}
	if to.ContextID != "" {
		message["contextId"] = to.ContextID
	}
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": map[string]any{"message": message}})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func stateOf(link string) string { return link[strings.LastIndexByte(link, '/')+1:] }

//contract:shows message-33
func TestDemandIsSettledByTheAskersOwnMessageAlone(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		agent := startScripted(t, asksForConsent)
		s := start(t, instance.Settings{Database: database, Agents: agent.table("booker", "")})
		ann, mallory := s.a2aPeer("booker", "ann"), s.a2aPeer("booker", "mallory")
		ask := func(id string) (load.Task, string) {
			t.Helper()
			task, err := ann.Send(t.Context(), load.SendBody(id, "book a table", false))
			if err != nil {
				t.Fatal(err)
			}
			return task, stateOf(findLink(t, texts(task)))
		}
		refused := func(name, code string, peer load.A2APeer, body []byte) {
			t.Helper()
			before := len(auditCodes(t, s.Instance))
			if task, err := peer.Send(t.Context(), body); err == nil && task.Status.State == completed {
				t.Errorf("%s: the demand was settled: %s", name, texts(task))
			}
			if codes := auditCodes(t, s.Instance)[before:]; !slices.Contains(codes, code) {
				t.Errorf("%s: on record %v; want %s", name, codes, code)
			}
		}

		task, state := ask("first")
		refused("unknown state", "state:unknown", ann, settling(t, "m-1", load.Task{}, strings.Repeat("A", 43), "granted"))
		refused("another thread", "state:thread", ann, settling(t, "m-2", load.Task{}, state, "granted"))
		refused("another person", "state:thread", mallory, settling(t, "m-3", load.Task{}, state, "granted"))
		answer, err := ann.Send(t.Context(), settling(t, "m-4", task, state, "granted"))
		if err != nil || answer.Status.State != completed || !strings.Contains(texts(answer), "table is booked") {
			t.Fatalf("the asker's own message: %s %q, %v", answer.Status.State, texts(answer), err)
		}
		again, err := ann.Send(t.Context(), settling(t, "m-4", task, state, "granted"))
		if err != nil || again.ID != answer.ID || again.Status.State != completed {
			t.Errorf("the same message again: %s, %v; want the same task", again.Status.State, err)
		}
		refused("used", "state:used", ann, settling(t, "m-5", load.Task{ContextID: task.ContextID}, state, "granted"))

		task, state = ask("second")
		asked := len(agent.questions())
		answer, err = ann.Send(t.Context(), settling(t, "m-6", task, state, "denied"))
		if err != nil || answer.Status.State == completed {
			t.Errorf("declined by message: %s, %v", answer.Status.State, err)
		}
		if len(agent.questions()) != asked {
			t.Error("the agent ran although its demand was declined")
		}
	})
}
