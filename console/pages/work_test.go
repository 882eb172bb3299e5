package pages_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"inbox/agents/runtime/tool/request"
	"inbox/engine/delivery"
	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/identity"
	"inbox/inboxtest"
	"inbox/internal/bearer"
	"inbox/normalized"
	"inbox/policypart"
)

// browser is one operator at the console.
type browser struct {
	*inboxtest.Server
	http.Client
}

func signIn(t *testing.T, server *inboxtest.Server, role exchange.Role) *browser {
	t.Helper()
	token, hash := bearer.Mint()
	record := exchange.Token{ID: newID(), Name: role.String() + "-" + newID(), Scope: role.String(), Hash: hash, CreatedAt: time.Now()}
	if err := server.Operator().Tokens.Rows.CreateToken(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &browser{server, http.Client{Jar: jar, Timeout: inboxtest.Client.Timeout}}
	if status, page := b.post("/console/login", url.Values{"token": {token}}); status != http.StatusOK || !strings.Contains(page, "/console/logout") {
		t.Fatalf("signing in: %d %s", status, page)
	}
	return b
}

func (b *browser) read(response *http.Response, err error) (int, string) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
	content, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		b.Fatal(err)
	}
	return response.StatusCode, string(content)
}

func (b *browser) get(path string) (int, string) {
	b.Helper()
	return b.read(b.Get(b.URL + path))
}

func (b *browser) post(path string, form url.Values) (int, string) {
	b.Helper()
	return b.read(b.PostForm(b.URL+path, form))
}

var csrfField = regexp.MustCompile(`name="csrf" value="([^"]+)"`)

// does posts a form of a page and returns the page after it.
func (b *browser) does(path string, pairs ...string) (int, string) {
	b.Helper()
	_, page := b.get("/console")
	token := csrfField.FindStringSubmatch(page)
	if token == nil {
		b.Fatalf("no form on %s", page)
	}
	form := url.Values{"csrf": {token[1]}}
	for i := 0; i < len(pairs); i += 2 {
		form.Add(pairs[i], pairs[i+1])
	}
	return b.post(path, form)
}

func (b *browser) shows(path string, want ...string) string {
	b.Helper()
	status, page := b.get(path)
	if status != http.StatusOK {
		b.Fatalf("%s: %d %s", path, status, page)
	}
	for _, words := range want {
		if !strings.Contains(page, words) {
			b.Errorf("%s lacks %q:\n%s", path, words, page)
		}
	}
	return page
}

// office is a server with work that waits.
type office struct {
	*inboxtest.Server
	now time.Time
}

func newOffice(t *testing.T) *office {
	t.Helper()
	return &office{
		inboxtest.Start(t, "INBOX_SMTP_LISTEN=127.0.0.1:0", "INBOX_AGENTS_0_NAME=echo", "INBOX_AGENTS_0_KIND=echo", "INBOX_AGENTS_0_UNVERIFIED=hold"),
		time.Now().UTC().Truncate(time.Millisecond),
	}
}

func newID() string { return uuid.Must(uuid.NewV7()).String() }

func (o *office) turn(state, sender, words string) exchange.TurnRecord {
	id := newID()
	return exchange.TurnRecord{
		ID: id, Agent: "echo", Principal: "unverified " + sender, ThreadID: "thread " + id, State: state, Reason: "the model gave no answer",
		AcceptedAt: o.now, UpdatedAt: o.now, Channel: normalized.ViaEmail, Attempt: 1,
		Route: json.RawMessage(`{"v":1,"local":"echo","from":{"name":"","address":"ana@peer.test"},"verified":false}`),
		Message: normalized.Message{
			ID: id + "@peer.test", ThreadID: "thread " + id, Recipient: "@echo@localhost:8080", ReceivedVia: normalized.ViaEmail,
			ReceivedAt: identity.At(o.now), Raw: normalized.Raw{Ref: "sha256:00", MediaType: "message/rfc822"},
			Sender: normalized.Sender{Address: identity.Stated(sender), AuthMethod: normalized.AuthNone},
			Parts:  []normalized.Part{normalized.Text(words)},
			RecipientCapabilities: normalized.RecipientCapabilities{
				MentionRelay: normalized.MentionRelay{Kind: normalized.RelayRecipientField, Fields: []string{"to", "cc"}},
			},
		},
	}
}

func (o *office) tx(work func(ctx context.Context, tx pipeline.Tx) error) {
	o.Helper()
	if err := o.Store().Pipeline().InTx(o.Context(), func(tx pipeline.Tx) error { return work(o.Context(), tx) }); err != nil {
		o.Fatal(err)
	}
}

func (o *office) insert(turn exchange.TurnRecord) exchange.TurnRecord {
	o.Helper()
	o.tx(func(ctx context.Context, tx pipeline.Tx) error {
		_, _, err := tx.InsertTurn(ctx, turn, pipeline.Original{Digest: "00" + turn.ID, MediaType: "message/rfc822", Body: []byte("x")})
		return err
	})
	return turn
}

func (o *office) stranger(words string) string {
	o.Helper()
	return o.insert(o.turn(exchange.StateHeld, "@ana@peer.test", words)).ID
}

// demand stores a demand of a turn that waits.
func (o *office) demand(purpose string, part policypart.Part, notes string) policypart.Issuance {
	o.Helper()
	turn := o.insert(o.turn(exchange.StateWaiting, "@ana@peer.test", "Please order three."))
	id, expires := newID(), identity.At(o.now.Add(time.Hour))
	part.ExpiresAt, part.URL = &expires, "https://inbox.example/policy/"+id
	issuance := policypart.Issuance{
		ID: id, StateHash: "hash of " + id, TurnID: turn.ID, Agent: "echo", ThreadID: turn.ThreadID, MessageID: turn.Message.ID, Via: normalized.ViaEmail,
		Principal: turn.Principal, Kind: part.Kind, Purpose: purpose, Part: part, Action: "sha256:aa", Status: policypart.StatusIssued,
		IssuedAt: o.now, ExpiresAt: o.now.Add(time.Hour), UpdatedAt: o.now, Notes: json.RawMessage(notes),
	}
	o.tx(func(ctx context.Context, tx pipeline.Tx) error { return tx.InsertDemand(ctx, issuance) })
	return issuance
}

// answer stores a message with the answer to it.
func (o *office) answer(turn exchange.TurnRecord, words string) exchange.TurnRecord {
	o.Helper()
	reply := exchange.Reply{
		ID: newID(), TurnID: turn.ID, Agent: turn.Agent, Message: turn.Message, Channel: turn.Channel, Route: turn.Route, CreatedAt: o.now, Posts: 1,
		Response: normalized.Response{InReplyTo: turn.Message.ID, Parts: []normalized.Part{normalized.Text(words)}},
	}
	running := turn
	running.State = exchange.StateRunning
	o.insert(running)
	o.tx(func(ctx context.Context, tx pipeline.Tx) error {
		moved, err := tx.AnswerTurn(ctx, pipeline.Move{ID: turn.ID, From: []string{exchange.StateRunning}, To: exchange.StateAnswered, At: o.now}, reply, "https://localhost:8080/o/"+reply.ID)
		if err == nil && !moved {
			err = errors.New("the message has no answer")
		}
		return err
	})
	turn.ReplyID = reply.ID
	return turn
}

// dead stores a delivery that was given up.
func (o *office) dead(reason string) delivery.Record {
	o.Helper()
	turn := o.insert(o.turn(exchange.StateAnswered, "@ana@peer.test", "When do you open?"))
	reply := exchange.Reply{
		ID: newID(), TurnID: turn.ID, Agent: turn.Agent, Message: turn.Message, Channel: turn.Channel, Route: turn.Route, CreatedAt: o.now, Posts: 1,
		Response: normalized.Response{InReplyTo: turn.Message.ID, Parts: []normalized.Part{normalized.Text("We open at ten.")}},
	}
	record := delivery.Record{
		ID: newID(), TurnID: turn.ID, ReplyID: reply.ID, Agent: "echo", Channel: turn.Channel, NativeID: "<x@localhost>", Key: "peer.test",
		Address: "ana@peer.test", Data: json.RawMessage(`{}`), State: delivery.StateDead, Reason: reason, Attempt: 9, CreatedAt: o.now, UpdatedAt: o.now,
	}
	o.tx(func(ctx context.Context, tx pipeline.Tx) error {
		if err := tx.InsertReply(ctx, reply, "<x@localhost>"); err != nil {
			return err
		}
		return tx.InsertDelivery(ctx, record)
	})
	return record
}

func (o *office) call() exchange.ToolRequest {
	o.Helper()
	turn := o.insert(o.turn(exchange.StateWaiting, "@ana@peer.test", "How many are there?"))
	id := newID()
	body, err := json.Marshal(map[string]any{
		"request_id": id, "tool_name": "client/stock", "tool_call_id": "c1", "run_id": turn.ID, "status": request.StatusPending, "parameters": map[string]any{"item": "lamp"},
	})
	if err != nil {
		o.Fatal(err)
	}
	made := exchange.ToolRequest{
		ID: id, Agent: "echo", TurnID: turn.ID, ToolName: "client/stock", Status: request.StatusPending, Request: body, CreatedAt: o.now, UpdatedAt: o.now,
	}
	o.tx(func(ctx context.Context, tx pipeline.Tx) error {
		_, err := tx.InsertToolRequest(ctx, made)
		return err
	})
	return made
}

func (o *office) stateOf(turn string) string {
	o.Helper()
	found, err := o.Store().Turn(o.Context(), turn)
	if err != nil {
		o.Fatal(err)
	}
	return found.State
}

const draftNotes = `{"number":1,"address":"@ana@peer.test","draft":{"response":{"in_reply_to":"m","parts":[{"kind":"text","content":"We open at ten."}]}}}`

// TestDroppedMessagesAreRestored: who works finds what was dropped beside what is held, and puts it back on hold.
func TestDroppedMessagesAreRestored(t *testing.T) {
	t.Parallel()
	o := &office{
		inboxtest.Start(t, "INBOX_CHAT_HOLD_GUESTS=true", "INBOX_AGENTS_0_NAME=echo", "INBOX_AGENTS_0_KIND=echo", "INBOX_AGENTS_0_UNVERIFIED=hold"), time.Now(),
	}
	reader, worker := signIn(t, o.Server, exchange.RoleRead), signIn(t, o.Server, exchange.RoleWork)
	ids := map[string]string{}
	for _, words := range []string{"first words", "second words"} {
		status, _, body := o.Read(http.MethodPost, "/v1/chat", "", fmt.Sprintf(`{"agent":"echo","message":%q}`, words))
		held, err := o.Operator().Held.List(t.Context(), "echo", "", 1)
		if err != nil || len(held) != 1 || status != http.StatusOK {
			t.Fatal(status, body, held, err)
		}
		ids[words] = held[0].ID
	}
	dropped := ids["first words"]
	worker.does("/console/work/held/drop", "id", dropped, "reason", "spam")
	page := worker.shows("/console/work/held", "second words", "dropped=true")
	list := html.UnescapeString(regexp.MustCompile(`href="([^"]*dropped=true)"`).FindStringSubmatch(page)[1])

	if page := reader.shows(list, "first words"); strings.Contains(page, "Restore what is chosen") || strings.Contains(page, "second words") {
		t.Errorf("the dropped messages of a reader: %s", page)
	}
	worker.shows(list, "first words", "Restore what is chosen")
	if status, _ := reader.does("/console/work/held/restore", "id", dropped); status != http.StatusForbidden || o.stateOf(dropped) != exchange.StateRefused {
		t.Errorf("a reader restores: %d", status)
	}
	if _, page := worker.does("/console/work/held/restore", "id", dropped, "id", ids["second words"]); !strings.Contains(page, "1 message is held again") || !strings.Contains(page, "1 was left") {
		t.Errorf("restored: %s", page)
	}
	if state := o.stateOf(dropped); state != exchange.StateHeld {
		t.Errorf("the restored message is %s", state)
	}
}

// TestWorkOfOperators: who works decides about everything that waits; who reads sees it and changes nothing.
func TestWorkOfOperators(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	reader, worker := signIn(t, o.Server, exchange.RoleRead), signIn(t, o.Server, exchange.RoleWork)

	for path, words := range map[string]string{
		"held": "Nothing is held", "approvals": "Nothing waits for an approval", "failed": "Nothing failed", "deliveries": "Every answer is on its way",
		"jobs": "No work was given up", "tools": "No call waits for a program", "demands": "No agent waits for an answer",
		"mailbox": "No mail for the operator", "reports": "No report in this time", "suppressed": "Mail goes to every address", "breakers": "Nothing rests",
	} {
		reader.shows("/console/work/"+path, words)
	}

	t.Run("held", func(t *testing.T) {
		one, two, three := o.stranger("first words"), o.stranger("second words"), o.stranger("third words")
		if page := reader.shows("/console/work/held", "first words", "third words"); strings.Contains(page, "Release what is chosen") {
			t.Error("who reads gets the buttons")
		}
		if status, _ := reader.does("/console/work/held/release", "id", one); status != http.StatusForbidden || o.stateOf(one) != exchange.StateHeld {
			t.Errorf("released by who reads: %d, %s", status, o.stateOf(one))
		}
		if status, page := worker.does("/console/work/held/release"); status != http.StatusBadRequest {
			t.Errorf("nothing chosen: %d %s", status, page)
		}
		if _, page := worker.does("/console/work/held/drop", "id", one, "id", two, "reason", "spam"); !strings.Contains(page, "2 messages were dropped") {
			t.Errorf("dropped: %s", page)
		}
		if one, two := o.stateOf(one), o.stateOf(two); one != exchange.StateRefused || two != exchange.StateRefused {
			t.Errorf("%s, %s", one, two)
		}
		if _, page := worker.does("/console/work/held/release", "id", three, "id", one); !strings.Contains(page, "1 message was released") || !strings.Contains(page, "1 was left") {
			t.Errorf("released: %s", page)
		}
		records, err := o.Operator().Audit.Records(t.Context(), exchange.AuditFilter{Code: "operator:work.held.drop", Limit: 10})
		if err != nil || len(records) != 3 || !strings.Contains(records[0].Detail+records[1].Detail, two) {
			t.Errorf("on record: %+v, %v", records, err)
		}
	})

	t.Run("lists", func(t *testing.T) {
		admin := signIn(t, o.Server, exchange.RoleAdmin)
		held := o.stranger("let me in")
		admin.shows("/console/work/held/"+held, "anyone could write this address", "Block and drop")
		if status, page := admin.does("/console/work/held/"+held+"/allow", "target", "@ana@peer.test"); status != http.StatusConflict {
			t.Errorf("a sender whom nothing proves: %d %s", status, page)
		}
		if status, _ := worker.does("/console/work/held/"+held+"/block", "target", "peer.test"); status != http.StatusForbidden {
			t.Errorf("a list changed by who works: %d", status)
		}
		if status, page := admin.does("/console/work/held/"+held+"/block", "target", "elsewhere.test"); status != http.StatusBadRequest {
			t.Errorf("another target: %d %s", status, page)
		}
		if _, page := admin.does("/console/work/held/"+held+"/block", "target", "@ana@peer.test"); !strings.Contains(page, "@ana@peer.test is blocked now") {
			t.Errorf("blocked: %s", page)
		}
		if state := o.stateOf(held); state != exchange.StateRefused && state != exchange.StateCancelled {
			t.Errorf("what was blocked is %s", state)
		}
		if err := o.Operator().Lists.Remove(t.Context(), exchange.ListEntry{List: exchange.ListBlock, Target: "@ana@peer.test"}); err != nil {
			t.Error(err)
		}
	})

	t.Run("approvals", func(t *testing.T) {
		part := policypart.Part{Kind: policypart.ConsentRequired, Code: policypart.CodeApprovalReply, Message: "May this be sent?"}
		one, other := o.demand(policypart.PurposeApproval, part, draftNotes), o.demand(policypart.PurposeApproval, part, draftNotes)
		path := "/console/work/approvals/" + one.ID
		if page := reader.shows(path, "We open at ten."); strings.Contains(page, "Approve and send") {
			t.Error("who reads gets the buttons")
		}
		if status, _ := reader.does(path + "/approve"); status != http.StatusForbidden {
			t.Errorf("approved by who reads: %d", status)
		}
		_, page := worker.does(path+"/compare", "text", "We open at nine.\r\nCome in.")
		was := regexp.MustCompile(`name="was" value="([^"]+)"`).FindStringSubmatch(page)
		if was == nil || !strings.Contains(page, "<del") || !strings.Contains(page, "We open at nine.") {
			t.Fatalf("compared: %s", page)
		}
		if found, err := o.Operator().Approvals.Approval(t.Context(), one.ID); err != nil || found.EditedBy != "" {
			t.Errorf("comparing changed it: %+v, %v", found, err)
		}
		if _, page := worker.does(path+"/edit", "text", "We open at nine.", "was", "another text", "then", "send"); !strings.Contains(page, "The text was changed meanwhile") {
			t.Errorf("a text that changed since: %s", page)
		}
		if _, page := worker.does(path+"/edit", "text", "We open at nine.", "was", was[1], "then", "keep"); !strings.Contains(page, "The text is saved") {
			t.Errorf("saved: %s", page)
		}
		if status, page := worker.does(path + "/approve"); status != http.StatusConflict {
			t.Errorf("approved without what was read: %d %s", status, page)
		}
		shown := regexp.MustCompile(`name="shown" value="([^"]+)"`).FindStringSubmatch(worker.shows(path, "We open at nine."))
		if _, page := worker.does(path+"/approve", "shown", shown[1]); !strings.Contains(page, "The answer is on its way") {
			t.Errorf("approved: %s", page)
		}
		if found, err := o.Operator().Approvals.Approval(t.Context(), one.ID); err != nil || found.Status != exchange.ApprovalApproved || found.Draft.Parts[0].Content != "We open at nine." {
			t.Errorf("%+v, %v", found, err)
		}
		if _, page := worker.does("/console/work/approvals/"+other.ID+"/deny", "reason", "too early"); !strings.Contains(page, "Declined") {
			t.Errorf("declined: %s", page)
		}
		worker.shows("/console/work/approvals?status=all", "operator:work")
	})

	t.Run("files of held answers", func(t *testing.T) {
		files, err := o.Operator().Messages.Files()
		if err != nil {
			t.Fatal(err)
		}
		digest, _, err := files.(exchange.Blobs).Put(t.Context(), strings.NewReader("<script>alert(1)</script>"))
		if err != nil {
			t.Fatal(err)
		}
		held := o.demand(policypart.PurposeApproval, policypart.Part{Kind: policypart.ConsentRequired, Code: policypart.CodeApprovalReply, Message: "May this be sent?"},
			`{"number":1,"address":"@ana@peer.test","draft":{"response":{"in_reply_to":"m","parts":[{"kind":"text","content":"See the files."},`+
				`{"kind":"file","name":"in.txt","mime":"text/plain","bytes_ref":{"kind":"inline","data_base64":"aGVsbG8="}},`+
				`{"kind":"file","name":"../page.html","mime":"text/html","size":25,"bytes_ref":{"kind":"content_addressed","algo":"sha256","digest":"`+digest+`"}},`+
				`{"kind":"file","name":"far.pdf","mime":"application/pdf","bytes_ref":{"kind":"url","url":"https://peer.test/far.pdf"}}]}}}`)
		path := "/console/work/approvals/" + held.ID
		page := reader.shows(path, "in.txt", "text/plain", "5 B", "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824", "page.html", "25 B", digest, "https://peer.test/far.pdf")
		if strings.Contains(page, path+"/files/2") {
			t.Error("a file that is elsewhere has a link")
		}
		for place, content := range []string{"hello", "<script>alert(1)</script>"} {
			response, err := reader.Get(reader.URL + fmt.Sprintf("%s/files/%d", path, place))
			status, got := reader.read(response, err)
			header := response.Header
			if status != http.StatusOK || got != content || header.Get("Content-Type") != "application/octet-stream" || header.Get("X-Content-Type-Options") != "nosniff" ||
				!strings.HasPrefix(header.Get("Content-Disposition"), "attachment") || strings.Contains(header.Get("Content-Disposition"), "/") {
				t.Errorf("file %d: %d %q %v", place, status, got, header)
			}
		}
		for _, place := range []string{"2", "3", "-1", "x"} {
			if status, _ := reader.get(path + "/files/" + place); status != http.StatusNotFound {
				t.Errorf("file %s: %d", place, status)
			}
		}
	})

	t.Run("failed turns", func(t *testing.T) {
		one := o.insert(o.turn(exchange.StateFailed, "@bo@peer.test", "Are you there?"))
		worker.shows("/console/work/failed", "@bo@peer.test", "the model gave no answer")
		worker.shows("/console/work/failed?agent=echo&channel=a2a", "Nothing matches")
		if page := reader.shows("/console/work/failed/retry?agent=echo", "1 message would run again."); strings.Contains(page, "Do it") {
			t.Error("who reads gets the button")
		}
		if state := o.stateOf(one.ID); state != exchange.StateFailed {
			t.Errorf("looking at what would run made it %s", state)
		}
		if status, _ := reader.does("/console/work/failed/retry", "agent", "echo"); status != http.StatusForbidden {
			t.Errorf("run again by who reads: %d", status)
		}
		for range 100 {
			o.insert(o.turn(exchange.StateFailed, "@bo@peer.test", "Are you there?"))
		}
		reader.shows("/console/work/failed/retry?agent=echo", "100 messages would run again.", "Older ones, which were not examined, run too.")
		if _, page := worker.does("/console/work/failed/retry", "agent", "echo"); !strings.Contains(page, "101 messages run again.") {
			t.Errorf("run again: %s", page)
		}
	})

	t.Run("dead deliveries", func(t *testing.T) {
		one := o.dead("550 5.1.1 <ana@peer.test> nobody here")
		worker.shows("/console/work/deliveries", "550 5.1.1 &lt;ana@peer.test&gt; nobody here")
		worker.shows("/console/work/deliveries/retry", "1 delivery would be tried again.")
		worker.shows("/console/work/deliveries/"+one.ID, "We open at ten.", "The text of this answer cannot be changed")
		if status, page := worker.does("/console/work/deliveries/"+one.ID+"/compare", "text", "No."); status < 400 {
			t.Errorf("a mail was edited: %d %s", status, page)
		}
		if status, _ := reader.does("/console/work/deliveries/drop", "id", one.ID); status != http.StatusForbidden {
			t.Errorf("given up by who reads: %d", status)
		}
		if _, page := worker.does("/console/work/deliveries/drop", "id", one.ID); !strings.Contains(page, "1 delivery was given up for good.") {
			t.Errorf("given up: %s", page)
		}
	})

	t.Run("tool requests", func(t *testing.T) {
		one := o.call()
		path := "/console/work/tools/" + one.ID
		worker.shows("/console/work/tools", "client/stock")
		worker.shows(path, "lamp", "Hand in")
		if status, page := worker.does(path+"/submit", "outcome", "done", "result", "three"); status != http.StatusBadRequest {
			t.Errorf("no JSON: %d %s", status, page)
		}
		if status, _ := reader.does(path+"/submit", "outcome", "done", "result", "3"); status != http.StatusForbidden {
			t.Errorf("handed in by who reads: %d", status)
		}
		if _, page := worker.does(path+"/submit", "outcome", "done", "result", `{"in_stock":3}`); !strings.Contains(page, "The result was handed in") {
			t.Errorf("handed in: %s", page)
		}
		worker.shows(path, "Has a result", "in_stock")
		two := o.call()
		if _, page := worker.does("/console/work/tools/cancel", "id", two.ID); !strings.Contains(page, "1 call was cancelled") {
			t.Errorf("cancelled: %s", page)
		}
	})

	t.Run("demands", func(t *testing.T) {
		one := o.demand("", policypart.Part{Kind: policypart.PaymentRequired, Message: "Three lamps", Amount: "9.90", Currency: "EUR"}, `{"number":1}`)
		reader.shows("/console/work/demands", "Three lamps", "9.90 EUR")
		if status, _ := reader.does("/console/work/demands/withdraw", "id", one.ID); status != http.StatusForbidden {
			t.Errorf("taken back by who reads: %d", status)
		}
		if _, page := worker.does("/console/work/demands/withdraw", "id", one.ID); !strings.Contains(page, "1 demand was withdrawn") {
			t.Errorf("taken back: %s", page)
		}
		if state := o.stateOf(one.TurnID); state != exchange.StateRefused {
			t.Errorf("its message is %s", state)
		}
		if _, page := worker.does("/console/work/demands/withdraw", "id", one.ID); !strings.Contains(page, "1 was left") {
			t.Errorf("taken back twice: %s", page)
		}
	})
}
