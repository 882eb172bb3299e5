package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"inbox/e2e/instance"
)

// calling streams one call of a tool.
func calling(id, name, arguments string) string {
	return fmt.Sprintf(`{"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","tool_calls":[{"index":0,"id":%q,"type":"function","function":{"name":%q,"arguments":""}}]}}]}
{"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":%q}}]}}]}
{"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13}}`,
		id, name, arguments)
}

// takesANote looks at the notes, adds one and says so.
func takesANote(request modelRequest) string {
	results, asked := 0, false
	for _, message := range request.Messages {
		asked = asked || strings.Contains(string(message), "please note")
		if strings.Contains(string(message), `"role":"tool"`) {
			results++
		}
	}
	switch {
	case len(request.Tools) == 0 || !asked:
		return saidHello
	case results == 0:
		return calling("call_1", "notes__list_notes", `{}`)
	case results == 1:
		return calling("call_2", "notes__add_note", `{"text":"buy milk"}`)
	}
	return strings.Replace(saidHello, "from the model.", "again, I noted it.", 1)
}

// noteTaker is the configuration of a model with the notes of the documentation's tool server.
func noteTaker(t *testing.T, provider *model, notes, more string) string {
	t.Helper()
	return fmt.Sprintf(`[[agents]]
name = "memory"
kind = "llm"
access = "public"
%s
[[agents.rules]]
effect = "allow"
purposes = ["tool:notes/list_notes", "tool:notes/add_note"]
[agents.llm]
base_url = %q
model = "scripted"
[agents.llm.price]
input = 1
output = 10
currency = "USD"
[[agents.mcp]]
name = "notes"
command = "/usr/bin/python3"
arguments = [%q, %q]
`, more, provider.URL, filepath.Join(examplesDirectory(t), "pythontools", "server.py"), notes)
}

func TestModelUsesTools(t *testing.T) {
	t.Parallel()
	provider := startModel(t, takesANote)
	notes := filepath.Join(t.TempDir(), "notes.jsonl")
	s := start(t, instance.Settings{Agents: noteTaker(t, provider, notes, "")})
	if text := answered(t, s.a2aPeer("memory", "ann"), "please note: buy milk"); !strings.Contains(text, "again, I noted it.") {
		t.Errorf("the model answered %q", text)
	}
	if content, err := os.ReadFile(notes); err != nil || strings.Count(string(content), "buy milk") != 1 {
		t.Errorf("the notes are %q (%v); want one", content, err)
	}
}

//contract:shows runtime-87
func TestToolsAreClosedWithoutARule(t *testing.T) {
	t.Parallel()
	provider := startModel(t, takesANote)
	notes := filepath.Join(t.TempDir(), "notes.jsonl")
	closed := strings.Replace(noteTaker(t, provider, notes, ""), `"tool:notes/list_notes", "tool:notes/add_note"`, `"skill:none"`, 1)
	s := start(t, instance.Settings{Agents: closed})
	answered(t, s.a2aPeer("memory", "ann"), "please note: buy milk")
	if _, err := os.Stat(notes); err == nil {
		t.Error("a tool ran that no rule opens")
	}
	provider.mu.Lock()
	defer provider.mu.Unlock()
	for _, asked := range provider.asked {
		if len(asked.Tools) > 0 {
			t.Errorf("the model was offered %s", asked.Tools)
		}
	}
}

//contract:shows runtime-86 runtime-94 runtime-95 runtime-96
func TestOwnerApprovesAToolFromTheFediverse(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		provider := startModel(t, takesANote)
		notes := filepath.Join(t.TempDir(), "notes.jsonl")
		community := startFediverse(t, 2)
		owner := "@" + community.Persons[0].Name + "@" + strings.TrimPrefix(community.Origin, "http://")
		table := noteTaker(t, provider, notes, fmt.Sprintf("approvers = [%q]", owner)) + "preview = [\"*add_note\"]\n"
		p := startPostWith(t, database, table)
		const id = "note@sender.test"
		p.sendAs("memory", id, "please note: buy milk")

		asked := community.next(t)
		if !strings.Contains(asked, "add_note") || !strings.Contains(asked, "buy milk") {
			t.Errorf("the owner was asked %s", asked)
		}
		if _, err := os.Stat(notes); err == nil {
			t.Fatal("the tool ran before anybody approved")
		}
		community.ask(p.server, "memory", 1, "approve") // someone else: an ordinary message
		if _, err := os.Stat(notes); err == nil {
			t.Fatal("the tool ran because a stranger said so")
		}
		code := approvalCode.FindStringSubmatch(asked)
		if code == nil {
			t.Fatalf("the owner is told no code:\n%s", asked)
		}
		community.ask(p.server, "memory", 0, code[0])
		if text := plain(p.outbox.await(t, id).Raw); !strings.Contains(text, "again, I noted it.") {
			t.Errorf("the reply is %s", text)
		}
		community.ask(p.server, "memory", 0, code[0]) // nothing is open any more
		if content, err := os.ReadFile(notes); err != nil || strings.Count(string(content), "\n") != 1 {
			t.Errorf("the notes are %q (%v); want one", content, err)
		}
		if replies, _ := p.outbox.repliesTo(id); len(replies) != 1 {
			t.Errorf("%d mails came; want one reply", len(replies))
		}
		checkTimeline(t, p.inbox("show", id))
	})
}

// checkTimeline wants each step of a note that was approved, in order, with what it cost.
func checkTimeline(t *testing.T, shown string) {
	t.Helper()
	rest := shown
	for _, want := range []string{
		"Spent     3 model calls, 2 tool calls, 27 tokens in, 12 out, 0.000147 USD", "turn.running",
		"model.called       call 1 of scripted, ", "9 tokens in, 4 out, 0.000049 USD, stop tool_calls",
		"tool.called        notes/list_notes succeeded, ",
		"model.called       call 2 of scripted, ", "run.waits          approval_required for notes/add_note", "turn.waiting",
		"approval.told", "turn.accepted", "turn.restarted", "tool.called        notes/add_note succeeded, ", "1 argument (text), result ",
		"model.called       call 3 of scripted, ", "stop end", "turn.answered",
	} {
		_, after, found := strings.Cut(rest, want)
		if !found {
			t.Errorf("the timeline lacks %q after what came before:\n%s", want, shown)
			return
		}
		rest = after
	}
	_, timeline, found := strings.Cut(shown, "Timeline")
	if !found || strings.Contains(timeline, "buy milk") {
		t.Errorf("the timeline shows arguments:\n%s", shown)
	}
}

//contract:shows runtime-103
func TestApprovedToolRunsOnceWhateverDies(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		provider := startModel(t, takesANote)
		notes := filepath.Join(t.TempDir(), "notes.jsonl")
		community := startFediverse(t, 1)
		owner := "@" + community.Persons[0].Name + "@" + strings.TrimPrefix(community.Origin, "http://")
		table := noteTaker(t, provider, notes, fmt.Sprintf("approvers = [%q]", owner)) + "preview = [\"*add_note\"]\nat_most_once = [\"*add_note\"]\n"
		p := startPostWith(t, database, table)
		const id = "killed@sender.test"
		p.sendAs("memory", id, "please note: buy milk")
		p.killed()
		asked := community.next(t)
		p.killed()
		community.ask(p.server, "memory", 0, approvalCode.FindString(asked))
		p.killed()
		p.outbox.await(t, id)
		if content, err := os.ReadFile(notes); err == nil && strings.Count(string(content), "\n") > 1 {
			t.Errorf("the notes are %q; want one at most", content)
		}
		ids := map[string]bool{}
		replies, _ := p.outbox.repliesTo(id)
		for _, one := range replies {
			ids[one.Field("Message-ID")] = true
		}
		if len(ids) != 1 {
			t.Errorf("%d different replies came; want one", len(ids))
		}
	})
}
