package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"inbox/adapters/activitypub"
	"inbox/agents/runtime/tool/request"
	"inbox/engine/delivery"
	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/identity"
	"inbox/inboxtest"
	"inbox/internal/await"
	"inbox/internal/queue"
	"inbox/policypart"
)

// office is a running server with three rows in every long list, whose commands are run in this process.
type office struct {
	*inboxtest.Server

	token    string // of an operator
	answered []exchange.TurnRecord
}

const officeFile = `[federation]
allow_private = true

[[agents]]
name = "echo"
kind = "echo"
summary = "Answers every message."

[[agents]]
name = "closed"
kind = "echo"
unverified = "hold"

[[targets]]
id = "local"
kind = "agent"
agent = "echo"
`

func newOffice(t *testing.T) *office {
	t.Helper()
	file, data := filepath.Join(t.TempDir(), "inbox.toml"), t.TempDir()
	if err := os.WriteFile(file, []byte(officeFile), 0o600); err != nil {
		t.Fatal(err)
	}
	o := &office{Server: inboxtest.New(t, file, "INBOX_DATA_DIR="+data, "INBOX_CHAT_HOLD_GUESTS=true").Serve()}
	for name, value := range map[string]string{
		"INBOX_DATA_DIR": data, "INBOX_PUBLIC_URL": "http://localhost:8080", "INBOX_SMTP_LISTEN": "127.0.0.1:0", "INBOX_LOG_LEVEL": "error", "INBOX_HTTP_LISTEN": o.HTTPAddr().String(),
	} {
		t.Setenv(name, value)
	}
	t.Chdir(filepath.Dir(file)) // where the file has its usual name

	token, _, err := o.Operator().Tokens.CreateAdmin(t.Context(), "desk")
	if err != nil {
		t.Fatal(err)
	}
	o.token = token
	t.Setenv("INBOX_TOKEN", token)
	o.speak()
	o.fill()
	return o
}

// speak writes messages: some are answered, one of them failed, and some are held.
func (o *office) speak() {
	o.Helper()
	peer := o.Token("peer")
	o.Token("second")
	for i := range 4 {
		if status, _, said := o.Read(http.MethodPost, "/v1/chat", peer, fmt.Sprintf(`{"agent":"echo","message":"hello %d"}`, i)); status != http.StatusOK {
			o.Fatal(status, said)
		}
		if status, _, said := o.Read(http.MethodPost, "/v1/chat", "", `{"agent":"closed","message":"let me in"}`); status != http.StatusOK {
			o.Fatal(status, said)
		}
		if status, _, said := o.Read(http.MethodPost, "/v1/tasks?wait=20s", o.token, fmt.Sprintf(`{"task":{"id":"t%d","instructions":"hello"},"run_id":"run%d","session_id":"s"}`, i, i)); status >= 300 {
			o.Fatal(status, said)
		}
	}
	turns, err := o.Store().Turns(o.Context(), exchange.TurnFilter{Agent: "echo", Limit: 50})
	if err != nil {
		o.Fatal(err)
	}
	for _, turn := range turns {
		if turn.ReplyID != "" {
			o.answered = append(o.answered, turn)
		}
	}
	if len(o.answered) < 6 {
		o.Fatalf("%d messages are answered", len(o.answered))
	}
	for _, turn := range o.answered[:3] {
		if err := o.Store().Pipeline().InTx(o.Context(), func(tx pipeline.Tx) error {
			_, err := tx.MoveTurn(o.Context(), pipeline.Move{ID: turn.ID, From: []string{exchange.StateAnswered}, To: exchange.StateFailed, Reason: "no way", At: time.Now()})
			return err
		}); err != nil {
			o.Fatal(err)
		}
	}
}

// fill writes three rows of everything that no message makes by itself here.
func (o *office) fill() {
	o.Helper()
	now := time.Now()
	turn := o.answered[3]
	for i := range 3 {
		id := func(kind int) string { return fmt.Sprintf("019a0000-0000-7000-80%02d-00000000000%d", kind, i) }
		side := func(subject, address string) exchange.LinkSide {
			return exchange.LinkSide{Principal: "localhost " + subject, Issuer: "localhost", Subject: subject, Method: identity.MethodEmailDMARC, Address: identity.ProvenAddress(address)}
		}
		demand := policypart.Issuance{
			ID: id(1), StateHash: fmt.Sprint("hash", i), TurnID: turn.ID, Agent: "echo", MessageID: turn.Message.ID, Via: "email", Principal: turn.Principal,
			Kind: policypart.ConsentRequired, Part: policypart.Part{Kind: policypart.ConsentRequired, Message: "May I?"}, Status: policypart.StatusIssued,
			IssuedAt: now, ExpiresAt: now.Add(time.Hour), UpdatedAt: now,
		}
		approval := demand
		approval.ID, approval.StateHash, approval.Purpose = id(2), fmt.Sprint("other", i), policypart.PurposeApproval
		name := fmt.Sprintf("ana%d", i)
		dead := delivery.Record{
			ID: id(6), TurnID: turn.ID, ReplyID: turn.ReplyID, Agent: "echo", Channel: "email", Key: "mail.test", Address: "ana@mail.test", State: delivery.StateDead,
			Reason: "no way", CreatedAt: now, UpdatedAt: now,
		}
		pending := dead
		pending.ID, pending.State = id(9), delivery.StatePending
		job := queue.NewJob{ID: id(3), Kind: "nobody does it", Payload: "x"}
		err := o.Store().InTx(o.Context(), func(tx *store.Tx) error {
			_, requested := tx.InsertToolRequest(o.Context(), exchange.ToolRequest{
				ID: id(4), Agent: "echo", TurnID: turn.ID, ToolName: "client/look", Status: request.StatusPending, Request: json.RawMessage(`{}`), CreatedAt: now, // all at one time
			})
			_, _, taken := tx.BeginTakeover(o.Context(), exchange.Takeover{ID: id(5), Agent: "echo", ThreadID: o.answered[i+1].ThreadID, Holder: "operator:anna", Since: now})
			_, down := tx.OpenBackEnd(o.Context(), pipeline.BackEnd{Agent: fmt.Sprint("down", i), Since: now, ProbeAt: now.Add(time.Minute), Reason: "no way"}, now)
			return errors.Join(requested, taken, down,
				tx.InsertDemand(o.Context(), demand), tx.InsertDemand(o.Context(), approval), tx.EnqueueLeased(o.Context(), job, "me", time.Minute),
				tx.InsertDelivery(o.Context(), dead), tx.InsertDelivery(o.Context(), pending),
				tx.PutLink(o.Context(), exchange.PersonLink{Agent: "echo", Digest: "shown", LinkedAt: now, Sides: [2]exchange.LinkSide{
					side("acct:"+name+"@social.test", "@"+name+"@social.test"), side("mailto:"+name+"@mail.test", "@"+name+"@mail.test"),
				}}),
				tx.Audit(o.Context(), exchange.AuditRecord{Code: "report:flag", Agent: "echo", Principal: "social.test", Detail: "rude", At: now}),
				tx.InsertNotice(o.Context(), exchange.Notice{ID: id(7), Phase: "test", Title: "A test", CreatedAt: now}))
		})
		if err == nil {
			err = o.Store().Queue().Settle(o.Context(), queue.Lease{JobID: job.ID, Fence: 1}, queue.Outcome{Kind: queue.Dead, Reason: "no way"})
		}
		mail := exchange.IncomingMail{Key: name, Raw: []byte("From: a@b.example\r\n\r\nHello\r\n"), Mail: exchange.Mail{
			ID: id(8), Kind: exchange.MailDMARC, Mailbox: "postmaster", From: "a@b.example", Subject: "Hello", ReceivedAt: now, Proof: "email-dmarc", Text: "Hello",
		}, Report: &exchange.MailReport{Kind: exchange.MailDMARC, ReportID: name, Domain: "inbox.test", Begins: now, Ends: now.Add(time.Hour), Rows: []exchange.MailReportRow{
			{Source: fmt.Sprint("192.0.2.", i), Count: 3, Result: "pass"},
		}}}
		_, kept := o.Store().KeepMail(o.Context(), mail, exchange.MailCharge{}, "")
		_, failed := o.Store().MailFailed(o.Context(), exchange.MailFailure{Address: name + "@gone.test", Kind: exchange.FailureHard, Reason: "550", DeliveryID: "d", At: now})
		entry := func(number int, list, kind, target string) exchange.ListEntry {
			return exchange.ListEntry{ID: id(number), List: list, Kind: kind, Target: target, Agent: map[bool]string{true: "echo"}[list == exchange.ListStop], Effect: map[bool]string{true: "refuse"}[list == exchange.ListBlock], CreatedAt: now}
		}
		_, begun := o.Store().BeginErasure(o.Context(), store.PersonNames{Principals: []string{"nowhere.test " + name}}, []string{"hash"}, "operator:test")
		_, _, follows := o.Store().State().PutIfAbsent(o.Context(), activitypub.PendingNamespace+"echo", "https://social.test/"+name, []byte(`{}`), time.Time{})
		if err := errors.Join(err, kept, failed, begun, follows,
			o.Store().PutListEntries(o.Context(), entry(10, exchange.ListBlock, exchange.TargetHost, name+".test"), entry(11, exchange.ListAllow, exchange.TargetHost, name+".example"), entry(12, exchange.ListStop, exchange.TargetPrincipal, "localhost stop:"+name)),
			o.Store().CreateConsoleSession(o.Context(), exchange.ConsoleSession{
				ID: id(20), Hash: strings.Repeat(fmt.Sprint(i), 64), Name: "ann", Subject: "https://login.example " + name, CreatedAt: now, SeenAt: now, ProvenAt: now, ExpiresAt: now.Add(time.Hour),
			}, 5)); err != nil {
			o.Fatal(err)
		}
	}
	await.Until(o, "the mail in the index of words", func() bool {
		found, err := o.Operator().Mail.List(o.Context(), exchange.MailFilter{Text: "hello", Limit: 5})
		return err == nil && len(found) == 3
	})
}

// printed runs a command with --json and returns its one document.
func (o *office) printed(arguments ...string) map[string]any {
	o.Helper()
	t, _ := o.TB.(*testing.T)
	output, err := runCommand(t, append(slices.Clip(arguments), "--json")...)
	return o.document(strings.Join(arguments, " "), output, err)
}

func (o *office) document(what, output string, err error) map[string]any {
	o.Helper()
	decoder := json.NewDecoder(strings.NewReader(output))
	var document map[string]any
	if failed := decoder.Decode(&document); failed != nil {
		o.Errorf("%s prints %q, %v, %v", what, output, failed, err)
		return nil
	}
	if decoder.Decode(new(any)) != io.EOF {
		o.Errorf("%s prints more than one document: %s", what, output)
	}
	return document
}

// items returns the rows of a list and the cursor of the following page.
func (o *office) items(what string, document map[string]any) (items []any, next string) {
	o.Helper()
	items, is := document["items"].([]any)
	next, text := document["next"].(string)
	if !is || !text {
		o.Errorf("%s has not the shape of a list: %v", what, document)
	}
	return items, next
}

// listsOf are the lists that are not called "list", or that need arguments, and the call that has the same rows; "" = there is none.
var listsOf = map[string]struct {
	arguments []string
	path      string
}{
	"inbox list":                 {nil, "turns"},
	"inbox threads list":         {nil, "threads"},
	"inbox agents list":          {nil, "agents"},
	"inbox agents pause":         {nil, ""},
	"inbox pause":                {nil, ""},
	"inbox allow list":           {nil, "allows"},
	"inbox block list":           {nil, "blocks"},
	"inbox approvals list":       {nil, "approvals"},
	"inbox audit list":           {nil, "audit"},
	"inbox breakers list":        {nil, "breakers"},
	"inbox deliveries list":      {nil, "deliveries"},
	"inbox demands list":         {nil, "demands"},
	"inbox domains list":         {nil, ""},
	"inbox failed list":          {nil, "failed"},
	"inbox follows list":         {nil, "follows"},
	"inbox held list":            {nil, "held"},
	"inbox jobs list":            {nil, "jobs"},
	"inbox keys list":            {nil, ""},
	"inbox mail list":            {nil, "mail"},
	"inbox mail search":          {[]string{"hello"}, "mail?text=hello"},
	"inbox mail reports":         {nil, "mail/reports/summary"},
	"inbox mail reports list":    {nil, "mail/reports"},
	"inbox mail suppressed list": {nil, "mail/suppressed"},
	"inbox suppressions list":    {nil, "mail/suppressed"},
	"inbox notices list":         {nil, "notices"},
	"inbox people list":          {nil, ""}, // it also has who said stop
	"inbox reports list":         {nil, "reports"},
	"inbox sessions list":        {nil, "sessions"},
	"inbox takeover list":        {nil, "takeovers"},
	"inbox tasks list":           {nil, ""}, // the calls about tasks have the shape of their contract
	"inbox tasks targets":        {nil, ""},
	"inbox tokens list":          {nil, "tokens"},
	"inbox tool-requests list":   {nil, "tool-requests"},
	"inbox erase":                {[]string{"--list"}, "erasures"},
	"inbox dns":                  {nil, ""}, // no mail comes to the server here
	"inbox dns print":            {nil, ""},
	"inbox dns check":            {nil, ""},
	"inbox doctor":               {[]string{"--probe", ""}, ""},
	"inbox explain":              {[]string{"held"}, ""},
	"inbox migrate":              {nil, ""},
	"inbox readers":              {[]string{"THREAD"}, "threads/THREAD/readers?agent=echo"},
	"inbox conversations import": {[]string{"--client", "relay", "--agent", "echo", "-"}, ""},
	"inbox import":               {[]string{"--client", "relay", "--agent", "echo", "-"}, ""},
	"inbox restore":              {[]string{"--report"}, ""},
}

// TestEveryListHasOneShape runs every list of the commands and of the operator API on a server with rows in all of them: each is one document
// {"items", "next"}; commands and calls have the same rows; and the pages of two are together the page of all.
func TestEveryListHasOneShape(t *testing.T) {
	o := newOffice(t)
	met := 0
	commands(func(cmd *cobra.Command) {
		path := cmd.CommandPath()
		list, is := listsOf[path]
		if !is {
			if strings.HasSuffix(path, " list") {
				t.Errorf("%s is not in the table of lists", path)
			}
			return
		}
		met++
		if slices.Contains([]string{"inbox restore", "inbox conversations import", "inbox import"}, path) { // they need what another command made
			return
		}
		thread := strings.NewReplacer("THREAD", o.answered[4].ThreadID)
		arguments := strings.Fields(path)[1:]
		for _, argument := range list.arguments {
			arguments = append(arguments, thread.Replace(argument))
		}
		whole := o.printed(arguments...)
		rows, next := o.items(path, whole)
		if next != "" {
			t.Errorf("%s has more than 50 rows", path)
		}
		o.pages(cmd, arguments, rows)
		if list.path == "" {
			return
		}
		status, _, body := o.Read(http.MethodGet, "/api/v1/"+thread.Replace(list.path), o.token, "")
		called, next := o.items(list.path, o.document(list.path, body, nil))
		if status != http.StatusOK || next != "" || len(called) != len(rows) && path != "inbox audit list" && path != "inbox follows list" {
			t.Errorf("%s: %d, %d rows, next %q; %s prints %d rows", list.path, status, len(called), next, path, len(rows))
		}
	})
	if met != len(listsOf) {
		t.Errorf("%d of %d lists are commands", met, len(listsOf))
	}
}

// pages reads a list page by page, where it has pages, and compares what they have with the whole.
func (o *office) pages(cmd *cobra.Command, arguments []string, rows []any) {
	o.Helper()
	path := strings.Join(arguments, " ")
	if cmd.Flags().Lookup("before") == nil {
		return
	}
	if len(rows) < 3 {
		o.Errorf("%s has %d rows; the pages show nothing", path, len(rows))
	}
	var read []any
	for before, pages := "", 0; ; pages++ {
		items, next := o.items(path, o.printed(append(slices.Clip(arguments), "--limit", "2", "--before", before)...))
		if read = append(read, items...); next == "" {
			break
		}
		if before = next; pages > 50 {
			o.Fatalf("%s does not end", path)
		}
	}
	if path == "audit list" { // each command may add to it
		return
	}
	if !reflect.DeepEqual(read, rows) {
		o.Errorf("%s: pages have %d rows, the whole %d:\n%v\n%v", path, len(read), len(rows), read, rows)
	}
}

// shown are the commands that print no list, with what they are run with: words in capitals are replaced by ids of the office. An act on
// several things prints the list of what was done.
var shown = []struct {
	command   string
	arguments []string
	list      bool
}{
	{"agents pause", []string{"echo", "closed"}, true},
	{"agents resume", []string{"echo"}, true},
	{"resume", []string{"closed"}, true},
	{"pause", []string{"--all"}, true},
	{"agents resume", []string{"--all"}, true},
	{"agents why", []string{"echo", "@ann@social.test"}, false},
	{"access check", []string{"--agent", "echo", "--address", "@ann@social.test"}, false},
	{"approvals show", []string{"APPROVAL"}, false},
	{"held release", []string{"HELD0", "HELD1"}, true},
	{"held drop", []string{"HELD2"}, true},
	{"held restore", []string{"HELD2"}, true},
	{"deliveries retry", []string{"DELIVERY0"}, true},
	{"deliveries cancel", []string{"DELIVERY1"}, true},
	{"demands withdraw", []string{"DEMAND"}, false},
	{"jobs retry", []string{"JOB0"}, true},
	{"jobs remove", []string{"JOB1"}, true},
	{"sessions end", []string{"SESSION"}, true},
	{"tokens create", []string{"third"}, false},
	{"tokens revoke", []string{"TOKEN"}, true},
	{"block add", []string{"spam.test", "--dry-run"}, true},
	{"block add", []string{"spam.test", "worse.test"}, true},
	{"block remove", []string{"spam.test"}, true},
	{"allow add", []string{"friend.test"}, true},
	{"allow remove", []string{"friend.test"}, true},
	{"block import", []string{"-"}, false},
	{"allow import", []string{"-"}, false},
	{"suppressions remove", []string{"ana0@gone.test"}, true},
	{"mail suppressed remove", []string{"ana1@gone.test"}, true},
	{"breakers close", []string{"down0"}, true},
	{"people unlink", []string{"mailto:ana0@mail.test"}, true},
	{"follows accept", []string{"echo", "https://social.test/ana0"}, true},
	{"follows reject", []string{"echo", "https://social.test/ana1"}, true},
	{"takeover begin", []string{"ANSWERED"}, false},
	{"takeover end", []string{"ANSWERED"}, false},
	{"keys rotate", nil, false},
	{"config check", nil, false},
	{"config show", nil, false},
	{"ready", nil, false},
	{"version", nil, false},
	{"waiting", nil, false},
	{"usage", nil, false},
	{"statistics", nil, false},
	{"record", []string{"--to", "recordings", "ANSWERED"}, true},
	{"tasks run", []string{"hello"}, false},
	{"tasks show", []string{"run0"}, false},
	{"tasks cancel", []string{"run0"}, false},
	{"tool-requests show", []string{"REQUEST0"}, false},
	{"retry", []string{"--failed", "--since", "1h", "--dry-run"}, false},
	{"show", []string{"ANSWERED"}, false},
	{"chat", []string{"@echo", "hello"}, false},
	{"conversations import", []string{"--client", "relay", "--agent", "echo", "messages.json"}, true},
	{"import", []string{"--client", "relay", "--agent", "echo", "messages.json"}, true},
	{"simulate mention", []string{"--agent", "echo", "--text", "hello"}, false},
	{"simulate task", []string{"--agent", "echo", "--text", "hello"}, false},
	{"mail show", []string{"MAIL"}, false},
	{"mail forward", []string{"MAIL", "me@far.example"}, false},
	{"simulate chat", []string{"--agent", "echo", "--text", "hello"}, false},
	{"agents test", []string{"echo"}, false},
	{"export", []string{"ana2@mail.test", "--dry-run"}, true},
	{"erase", []string{"ana2@mail.test", "--dry-run"}, true},
	{"agents add", []string{"third", "--kind", "echo"}, false},
	{"agents remove", []string{"third"}, false},
	{"reload", nil, false},
	{"backup", []string{"copy"}, false},
	{"verify", []string{"copy"}, false},
}

// notShown are commands that the office has nothing for, and why.
var notShown = map[string]string{
	"inbox init": "it writes files of a server: testdata/script/init.txtar", "inbox restore": "it makes another server of a backup", "inbox bridge": "its client is elsewhere",
	"inbox domains remove": "no domain was removed: testdata/script/domains.txtar", "inbox replay": "it sends recordings to a server for minutes", "inbox notices test": "it needs an address",
	"inbox mail send-test": "it needs a mail server elsewhere", "inbox move": "it needs an account elsewhere", "inbox delete": "it needs an answer in the fediverse",
	"inbox edit": "it needs an answer in the fediverse", "inbox pin": "it needs an answer in the fediverse", "inbox unpin": "it needs an answer in the fediverse",
	"inbox reply": "it needs a message that waits", "inbox approvals approve": "it needs a run that waits", "inbox approvals deny": "it needs a run that waits",
	"inbox approvals edit": "it needs an answer that is held back", "inbox simulate mail": "the server takes no mail", "inbox tool-requests submit": "it needs a call of a model", "inbox tool-requests cancel": "it needs a call of a model",
}

// TestEveryCommandPrintsOneDocument: what is no list is one object, and an act on several things a list of what was done.
func TestEveryCommandPrintsOneDocument(t *testing.T) {
	o := newOffice(t)
	held, err := o.Operator().Held.List(t.Context(), "closed", "", 5)
	if err != nil || len(held) < 3 {
		t.Fatal(len(held), err)
	}
	tokens, err := o.Operator().Tokens.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	second := tokens[slices.IndexFunc(tokens, func(token exchange.Token) bool { return token.Name == "second" })].ID
	ids := strings.NewReplacer(
		"HELD0", held[0].ID, "HELD1", held[1].ID, "HELD2", held[2].ID, "TOKEN", second, "ANSWERED", o.answered[4].ID,
		"DEMAND", "019a0000-0000-7000-8001-000000000000", "APPROVAL", "019a0000-0000-7000-8002-000000000000", "JOB", "019a0000-0000-7000-8003-00000000000",
		"REQUEST", "019a0000-0000-7000-8004-00000000000", "DELIVERY", "019a0000-0000-7000-8006-00000000000", "MAIL", "019a0000-0000-7000-8008-000000000000",
		"SESSION", "019a0000-0000-7000-8020-000000000000",
	)

	if err := os.WriteFile("messages.json", []byte(`[{"role":"user","content":"hello"}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	ran := map[string]bool{}
	for _, one := range shown {
		arguments := strings.Fields(one.command)
		for _, argument := range one.arguments {
			arguments = append(arguments, ids.Replace(argument))
		}
		ran["inbox "+one.command] = true
		document := o.printed(arguments...)
		if one.list {
			if items, _ := o.items(one.command, document); len(items) == 0 {
				t.Errorf("%q did nothing: %v", arguments, document)
			}
		} else if _, is := document["items"]; is || len(document) == 0 {
			t.Errorf("%q prints %v; want an object", arguments, document)
		}
	}
	commands(func(cmd *cobra.Command) {
		path := cmd.CommandPath()
		_, list := listsOf[path]
		if withoutJSON[path] == "" && !list && !ran[path] && notShown[path] == "" {
			t.Errorf("%s is in no table: say here how it is run, or why not", path)
		}
	})
}

// TestCompletionAsksTheServer: a shell is offered what the running server has, which is still there to be named, and nothing if no server runs.
func TestCompletionAsksTheServer(t *testing.T) {
	o := newOffice(t)
	complete := func(arguments ...string) string {
		t.Helper()
		output, err := runCommand(t, append([]string{cobra.ShellCompRequestCmd}, arguments...)...)
		if err != nil {
			t.Errorf("%q: %v", arguments, err)
		}
		return output
	}
	held, err := o.Operator().Held.List(t.Context(), "", "", 5)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Operator().Held.Drop(t.Context(), held[3].ID, "spam"); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"agents pause ": "echo\tAnswers every message.", "agents pause ec": "echo\t", "chat ": "@echo\t", "list --agent ": "closed\n", "list --state fa": "failed\n",
		"held drop ": held[0].ID + "\tclosed", "held restore ": held[3].ID + "\tclosed", "show ": o.answered[4].ID + "\techo", "deliveries retry ": "019a0000-0000-7000-8006-000000000001\t",
		"jobs remove ": "019a0000-0000-7000-8003-000000000002\tnobody does it, no way", "block remove ": "ana1.test\trefuse", "tokens list --scope p": "peer\n",
		"tool-requests show ": "019a0000-0000-7000-8004-000000000000\tclient/look, echo", "suppressions remove ana2": "ana2@gone.test\thard", "tasks show run": "run0\tsucceeded",
		"demands withdraw ": "019a0000-0000-7000-8001-000000000000\t", "sessions end ": "019a0000-0000-7000-8020-000000000001\tann", "mail show ": "019a0000-0000-7000-8008-000000000000\t",
		"follows accept echo ": "https://social.test/ana1\techo, waiting", "breakers close ": "down2\t", "explain hel": "held\n", "block list --kind ": "host\n",
	} {
		words := strings.Split(line, " ")
		if got := complete(words...); !strings.Contains("\n"+got, "\n"+want) {
			t.Errorf("%q offers %q, want %q", line, got, want)
		}
	}
	commands(func(cmd *cobra.Command) {
		path := strings.Fields(cmd.CommandPath())[1:]
		if cmd.ValidArgsFunction != nil && cmd.CommandPath() != "inbox domains remove" && !slices.Contains(path, "completion") { // no domain was removed
			if got := complete(append(slices.Clone(path), "")...); strings.HasPrefix(got, ":") {
				t.Errorf("%s is offered nothing", cmd.CommandPath())
			}
		}
	})
	if got := complete("agents", "pause", "echo", ""); strings.Contains(got, "echo\t") || !strings.Contains(got, "closed\n") {
		t.Errorf("what was named is offered again: %q", got)
	}

	t.Setenv("INBOX_HTTP_LISTEN", "127.0.0.1:1")
	if got := complete("agents", "pause", ""); strings.Contains(got, "echo") || !strings.HasPrefix(got, ":") {
		t.Errorf("without a server: %q", got)
	}
}
