package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/quotedprintable"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"inbox/adapters/a2a"
	"inbox/adapters/chat"
	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/internal/await"
)

// hiddenWord is in every secret of these tests: no reader may see it.
const hiddenWord = "s3cret"

// stockResult is what a program hands in for a call: a result with two citations, the second of which its reader may not see.
const stockResult = `{"success": true, "result": {"in_stock": 3, "access_token": "s3cret-result"}, "metadata": {"citations": [
 {"source": "stock", "source_title": "Stock list", "source_url": "https://docs.test/stock", "excerpt": "three bottles", "score": 0.9, "token_id": "s3cret-token",
  "access_status": "allowed", "principal": {"schema_version": 1, "acting_user_id": 7, "owner_key": "s3cret-owner", "audience_claims": {"aud": "s3cret-claim"}}},
 {"source_title": "Wages", "source_url": "https://docs.test/s3cret-page", "excerpt": "s3cret-excerpt", "access_status": "denied", "restriction_reason": "workspace", "nonce": "s3cret-nonce"}]}}`

// looksUpWithAKey calls the tool with a secret in its arguments.
func looksUpWithAKey(request modelRequest) string {
	return strings.ReplaceAll(looksUp(request), `{\"item\":\"milk\"}`, `{\"item\":\"milk\",\"api_key\":\"s3cret-argument\"}`)
}

// shelves are three agents that differ in what they show of their tools.
func shelves(provider *model) string {
	var tables strings.Builder
	for name, setting := range map[string]string{"hidden": "", "named": `show_tools = "names"`, "full": `show_tools = "full"`} {
		tables.WriteString(strings.Replace(shelf(provider, "1h", setting), `"memory"`, fmt.Sprintf("%q", name), 1))
	}
	return tables.String()
}

// serve hands the same result in for every call of an agent, until the test ends.
func (d desk) serve(t *testing.T, result string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- d.work(ctx, result) }()
	t.Cleanup(func() {
		stop()
		if err := await.Result(t, func() error { return <-ended }, "the end of the program"); err != nil && ctx.Err() == nil {
			t.Errorf("the program of %s: %v", d.agent, err)
		}
	})
}

func (d desk) work(ctx context.Context, result string) error {
	base := d.server.URL() + "/v1/tools/" + d.agent + "/requests"
	for ctx.Err() == nil {
		var open struct {
			Requests []struct {
				ID string `json:"request_id"`
			} `json:"requests"`
		}
		if err := d.request(ctx, http.MethodGet, base+"?wait=20s", "", &open); err != nil {
			return err
		}
		for _, one := range open.Requests {
			if err := d.request(ctx, http.MethodPost, base+"/"+one.ID+"/submit", result, &struct{}{}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d desk) request(ctx context.Context, method, address, body string, into any) error {
	request, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+d.token)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %d %s", method, address, response.StatusCode, content)
	}
	return json.Unmarshal(content, into)
}

// wanted is what the readers of one agent see.
type wanted struct {
	agent     string
	line      string // in texts; empty = nothing about tools
	arguments string // the JSON of programs; empty = none
	output    string
}

// TestToolsAndSourcesReachReaders: under each setting the readers of every way see of the calls what the operator lets them see,
// and in any case where the answer comes from, and never a secret.
//
//contract:shows runtime-74 runtime-75 runtime-76 runtime-77
func TestToolsAndSourcesReachReaders(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		provider := startModel(t, looksUpWithAKey)
		community := startFediverse(t, 1)
		p := startPostWith(t, database, shelves(provider))
		relay := p.bridge("relay")
		for _, want := range []wanted{
			{agent: "hidden"},
			{agent: "named", line: "Tools: client/look_up", output: `{"success":true}`},
			{"full", `Tools: client/look_up {"api_key":"[redacted]","item":"milk"}`, `{"api_key":"[redacted]","item":"milk"}`, `{"access_token":"[redacted]","in_stock":3}`},
		} {
			p.desk(want.agent).serve(t, stockResult)
			t.Run(want.agent, func(t *testing.T) {
				seen := map[string]string{
					"mail":      want.mail(t, p),
					"fediverse": want.note(t, p.server, community),
					"a2a":       want.task(t, p.server),
					"openai":    want.completion(t, p.server),
					"chat":      want.chat(t, p.server),
					"bridge":    want.run(t, relay),
				}
				for way, text := range seen {
					if strings.Contains(text, hiddenWord) {
						t.Errorf("%s shows a secret:\n%s", way, text)
					}
					if want.line == "" && strings.Contains(text, "look_up") {
						t.Errorf("%s shows a tool:\n%s", way, text)
					}
				}
			})
		}
		provider.wasToldSources(t)
	})
}

// wasToldSources looks at what the model read: the sources of the results, without what is secret in them.
func (m *model) wasToldSources(t *testing.T) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, request := range m.asked {
		for _, message := range request.Messages {
			text := string(message)
			if !strings.Contains(text, `"role":"tool"`) {
				continue
			}
			for _, want := range []string{"Stock list", "https://docs.test/stock", "three bottles", "Wages", "denied", "acting_user_id"} {
				if !strings.Contains(text, want) {
					t.Errorf("the model was not told %q: %s", want, text)
				}
			}
			for _, secret := range []string{"s3cret-token", "s3cret-owner", "s3cret-claim", "s3cret-page", "s3cret-excerpt", "s3cret-nonce"} {
				if strings.Contains(text, secret) {
					t.Errorf("the model was told %s: %s", secret, text)
				}
			}
			return
		}
	}
	t.Error("the model was told no result")
}

const (
	milkQuestion = "is there milk"
	milkSources  = "Sources:\n[1] Stock list: https://docs.test/stock\n[2] Wages (no access: workspace)"
)

func (w wanted) mail(t *testing.T, p *post) string {
	t.Helper()
	id := "milk-" + w.agent + "@sender.test"
	p.sendAs(w.agent, id, milkQuestion)
	raw := p.outbox.await(t, id).Raw
	text := strings.ReplaceAll(plain(raw), "\r\n", "\n")
	if !strings.Contains(text, "Yes, there are three.\n\n"+milkSources+"\n") || strings.Count(text, milkSources) != 1 {
		t.Errorf("the mail of %s:\n%s", w.agent, text)
	}
	if w.line != "" && !strings.Contains(text, milkSources+"\n\n"+w.line+"\n") {
		t.Errorf("the mail of %s lacks %q:\n%s", w.agent, w.line, text)
	}
	_, body, _ := bytes.Cut(raw, []byte("\r\n\r\n"))
	whole, err := io.ReadAll(quotedprintable.NewReader(bytes.NewReader(body)))
	if err != nil || !strings.Contains(string(whole), `[1] <a href="https://docs.test/stock"`) {
		t.Errorf("the HTML of the mail of %s has no link, %v:\n%s", w.agent, err, whole)
	}
	return string(whole)
}

func (w wanted) note(t *testing.T, s *server, community *fediverse) string {
	t.Helper()
	mention := community.mention(s, w.agent, "milk-"+w.agent+s.URL(), milkQuestion)
	content := community.reply(mention)
	var activity struct {
		Object struct{ Content string }
	}
	if err := json.Unmarshal([]byte(content), &activity); err == nil {
		content = activity.Object.Content
	}
	for _, part := range []string{"[1] <a href=", "https://docs.test/stock", "Stock list</a>", "[2] Wages (no access: workspace)"} {
		if !strings.Contains(strings.ReplaceAll(content, `\"`, `"`), part) {
			t.Errorf("the note of %s lacks %q: %s", w.agent, part, content)
		}
	}
	if line := strings.ReplaceAll(w.line, `"`, ""); line != "" && !strings.Contains(strings.NewReplacer(`\"`, "", `"`, "", `&#34;`, "").Replace(content), "<p>"+line+"</p>") {
		t.Errorf("the note of %s lacks %q: %s", w.agent, line, content)
	}
	return content
}

// a2aParts are the parts of artifacts.
type a2aParts struct {
	Text, URL, Filename string
	Data                map[string]any
	Metadata            struct {
		Mentionable struct {
			Citation map[string]any
		}
	}
}

func (w wanted) task(t *testing.T, s *server) string {
	t.Helper()
	peer := s.a2aPeer(w.agent, "ann")
	var all string
	for _, activated := range []bool{false, true} {
		header := []string{"A2A-Version", "1.0"}
		if activated {
			header = append(header, "X-A2A-Extensions", a2a.ToolEventsExtension)
		}
		answer := s.shown("POST", "/a2a/"+w.agent, string(load.SendBody(fmt.Sprint("milk-", activated), milkQuestion, false)), "Bearer "+peer.Token, header...)
		var sent struct {
			Result struct {
				Task struct {
					Artifacts []struct{ Parts []a2aParts }
				}
			}
		}
		if err := json.Unmarshal([]byte(answer.body), &sent); err != nil || len(sent.Result.Task.Artifacts) != 1 {
			t.Fatalf("the task of %s: %v %s", w.agent, err, answer.body)
		}
		parts := sent.Result.Task.Artifacts[0].Parts
		w.checkParts(t, parts, activated && w.line != "")
		all += answer.body
	}
	card := s.shown("GET", "/a2a/"+w.agent+"/.well-known/agent-card.json", "", "")
	if declared := strings.Contains(card.body, a2a.ToolEventsExtension); declared != (w.line != "") {
		t.Errorf("the card of %s: %s", w.agent, card.body)
	}
	return all
}

func (w wanted) checkParts(t *testing.T, parts []a2aParts, events bool) {
	t.Helper()
	count := 3
	if events {
		count = 4
	}
	if len(parts) != count {
		t.Fatalf("%s: %d parts: %+v", w.agent, len(parts), parts)
	}
	if event := parts[0].Data; events {
		input, _ := json.Marshal(event["input"])
		output, _ := json.Marshal(event["output"])
		if event["type"] != "tool-result" || event["toolName"] != "client/look_up" || event["toolCallId"] != "call_1" || w.arguments != "" && string(input) != w.arguments || string(output) != w.output {
			t.Errorf("%s: the event is %v", w.agent, event)
		}
	}
	last := parts[count-2:]
	cited, denied := last[0].Metadata.Mentionable.Citation, last[1].Metadata.Mentionable.Citation
	if last[0].URL != "https://docs.test/stock" || cited["excerpt"] != "three bottles" || cited["access_status"] != "allowed" || cited["score"] != 0.9 {
		t.Errorf("%s: the first source is %+v", w.agent, last[0])
	}
	if last[1].Text != "Wages (no access: workspace)" || denied["access_status"] != "denied" || denied["source_url"] != nil || denied["excerpt"] != nil {
		t.Errorf("%s: the second source is %+v", w.agent, last[1])
	}
}

func (w wanted) completion(t *testing.T, s *server) string {
	t.Helper()
	body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":%q}]}`, w.agent, milkQuestion)
	answer := s.shown("POST", "/v1/chat/completions", body, "Bearer "+s.peerToken("openai"))
	var completion chat.Completion
	if err := json.Unmarshal([]byte(answer.body), &completion); err != nil || len(completion.Choices) != 1 {
		t.Fatalf("%d %s", answer.status, answer.body)
	}
	message := completion.Choices[0].Message
	if completion.Choices[0].FinishReason != "stop" || len(message.ToolCalls) != 0 || !strings.HasSuffix(*message.Content, milkSources) {
		t.Errorf("%s: %s", w.agent, answer.body)
	}
	if len(message.Annotations) != 1 || message.Annotations[0].URLCitation.URL != "https://docs.test/stock" {
		t.Errorf("%s: annotations %+v", w.agent, message.Annotations)
	}
	switch tools := message.ExecutedTools; {
	case w.line == "" && len(tools) == 0:
	case w.line == "" || len(tools) != 1 || tools[0].Name != "client/look_up" || tools[0].Status != "succeeded" || tools[0].Arguments != w.arguments || tools[0].Output != w.output:
		t.Errorf("%s: executed tools %+v", w.agent, tools)
	}
	return answer.body
}

func (w wanted) chat(t *testing.T, s *server) string {
	t.Helper()
	body := fmt.Sprintf(`{"agent":%q,"message":%q}`, w.agent, milkQuestion)
	answer := s.shown("POST", "/v1/chat", body, "Bearer "+s.peerToken("rest"))
	var shown chat.ChatAnswer
	if err := json.Unmarshal([]byte(answer.body), &shown); err != nil || len(shown.Citations) != 2 || !strings.HasSuffix(shown.Reply, milkSources) {
		t.Fatalf("%d %v %s", answer.status, err, answer.body)
	}
	if count := len(shown.Tools); count != map[bool]int{false: 1}[w.line == ""] || count == 1 && string(shown.Tools[0].Args) != w.arguments {
		t.Errorf("%s: tools %+v", w.agent, shown.Tools)
	}
	w.observability(t, shown.Metadata.AgentsAPI)
	return answer.body
}

// observability looks at what the answer tells of the tools without their content.
func (w wanted) observability(t *testing.T, about chat.RunMetadata) {
	t.Helper()
	want := "null"
	switch {
	case w.arguments != "":
		want = `{"calls":[{"arguments":{"count":2,"keys":["api_key","item"],"redacted":true},"result":{"count":2,"type":"object"},"sequence":1,"status":"succeeded","tool_name":"client/look_up"}],"version":1}`
	case w.line != "":
		want = `{"calls":[{"result":{"count":1,"type":"object"},"sequence":1,"status":"succeeded","tool_name":"client/look_up"}],"version":1}`
	}
	calls, _ := about.ToolObservability["calls"].([]any)
	for _, call := range calls {
		delete(call.(map[string]any), "tool_call_id")
	}
	completed, _ := about.RunOutcome["completed"].(bool)
	if got := string(jsonOf(about.ToolObservability)); got != want || about.Status != "completed" || !completed {
		t.Errorf("%s: %+v with %s, want %s", w.agent, about, got, want)
	}
}

func (w wanted) run(t *testing.T, relay *bridgeUser) string {
	t.Helper()
	sent := relay.ask(http.MethodPost, "/v1/bridge/send", map[string]any{"agent": w.agent, "message": milkQuestion, "wait": true})
	run := relay.ask(http.MethodGet, fmt.Sprint("/v1/runs/", sent["run_id"]), nil)
	items := relay.ask(http.MethodGet, "/v1/bridge/pending?limit=1000", nil)
	encoded := string(jsonOf(jsonObject{"run": run, "items": items}))
	if citations, _ := run["citations"].([]any); len(citations) != 2 || !strings.Contains(encoded, "Stock list") {
		t.Errorf("%s: the run is %s", w.agent, encoded)
	}
	if calls := strings.Count(string(jsonOf(run)), `"tool_call"`); calls != map[bool]int{false: 1}[w.line == ""] {
		t.Errorf("%s: %d calls in %s", w.agent, calls, encoded)
	}
	return encoded
}

// growingCall is a webhook agent that calls a tool while its readers look on: the call ends when the test has seen it begin.
func growingCall(t *testing.T, seen <-chan struct{}) *httptest.Server {
	t.Helper()
	delta := func(w http.ResponseWriter, step string) {
		_, _ = io.WriteString(w, "event: delta\ndata: "+step+"\n\n")
		_ = http.NewResponseController(w).Flush()
	}
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		delta(w, `{"kind":"text","text":"Let me look. "}`)
		delta(w, `{"kind":"tool_call_start","part":{"kind":"tool_call","id":"call-7","name":"search","args":{"q":"milk","password":"s3cret-argument"}}}`)
		select {
		case <-seen:
		case <-time.After(patience):
		}
		delta(w, `{"kind":"tool_call_end","part":{"kind":"tool_call","id":"call-7","name":"search","result":{"found":1,"cookie":"s3cret-result",`+
			`"metadata":{"citations":[{"source_title":"Shop","source_url":"https://shop.test/","nonce":"s3cret-nonce"}]}}}}`)
		delta(w, `{"kind":"text","text":"One shop has it."}`)
		_, _ = io.WriteString(w, "event: end\ndata: {}\n\n")
	}))
	t.Cleanup(agent.Close)
	return agent
}

// TestStreamedCallIsFollowedByItsResult: who reads an answer while it grows is told of a call when it begins, and then of its
// outcome under the same id, whatever the agent is that made it.
//
//contract:shows message-22
func TestStreamedCallIsFollowedByItsResult(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		seen := make(chan struct{})
		agent := growingCall(t, seen)
		var tables strings.Builder
		for _, setting := range []string{"none", "names", "full"} {
			fmt.Fprintf(&tables, "[[agents]]\nname = %q\nkind = \"webhook\"\nshow_tools = %q\n[agents.webhook]\nurl = %q\nsecret = %q\n", setting, setting, agent.URL, webhookSecret)
		}
		s := start(t, instance.Settings{Database: database, Agents: tables.String()})
		token := "Bearer " + s.peerToken("reader")
		relay := "Bearer " + s.bridge("relay").token
		for _, setting := range []string{"none", "names", "full"} {
			for name, reader := range map[string]struct {
				path, body, authorization string
				begun, ended              string // members of the two events
				header                    []string
			}{
				"a2a": {
					"/a2a/" + setting, `{"jsonrpc":"2.0","id":1,"method":"SendStreamingMessage","params":{"message":{"messageId":"m-1","role":"ROLE_USER","parts":[{"text":"milk"}]}}}`, token,
					`"type":"tool-call"`, `"type":"tool-result"`, []string{"A2A-Version", "1.0", "A2A-Extensions", a2a.ToolEventsExtension},
				},
				"chat":   {"/v1/chat", fmt.Sprintf(`{"agent":%q,"message":"milk"}`, setting), token, `"status":"running"`, `"status":"succeeded"`, nil},
				"rpc":    {"/v1/agent/" + setting, `{"jsonrpc":"2.0","id":1,"method":"message/stream","params":{"message":{"role":"user","parts":[{"type":"text","text":"milk"}]}}}`, token, `"deltaType":"tool_name"`, `"toolStatus":"succeeded"`, nil},
				"openai": {"/v1/chat/completions", fmt.Sprintf(`{"model":%q,"stream":true,"messages":[{"role":"user","content":"milk"}]}`, setting), token, `"status":"running"`, `"status":"succeeded"`, nil},
				"runs":   {"/v1/bridge/send", fmt.Sprintf(`{"agent":%q,"message":"milk"}`, setting), relay, `"status":"running"`, `"status":"succeeded"`, nil},
			} {
				t.Run(setting+" "+name, func(t *testing.T) {
					lines := s.openLines(t, reader.path, reader.body, reader.authorization, reader.header)
					var all strings.Builder
					next := func() (line string, more bool) {
						if !lines.Scan() {
							return "", false
						}
						all.WriteString(lines.Text() + "\n")
						return lines.Text(), true
					}
					awaitLine := func(members ...string) {
						t.Helper()
						for {
							line, more := next()
							if !more {
								t.Fatalf("no event with %q:\n%s", members, all.String())
							}
							if containsAll(line, members) {
								return
							}
						}
					}
					if setting == "none" {
						awaitLine("Let me look.")
						seen <- struct{}{}
					} else {
						awaitLine("call-7", reader.begun)
						if strings.Contains(all.String(), "found") || strings.Contains(all.String(), reader.ended) {
							t.Errorf("the call has an outcome before it ended:\n%s", all.String())
						}
						seen <- struct{}{}
						awaitLine("call-7", reader.ended)
					}
					for more := true; more; {
						_, more = next()
					}
					text := all.String()
					if strings.Contains(text, hiddenWord) || !strings.Contains(text, "https://shop.test/") || !strings.Contains(text, "One shop has it.") {
						t.Errorf("the stream is\n%s", text)
					}
					if shows := strings.Contains(text, `search`); shows != (setting != "none") {
						t.Errorf("the stream with show_tools %s is\n%s", setting, text)
					}
					if shows := strings.Contains(text, `[redacted]`); shows != (setting == "full") {
						t.Errorf("the stream with show_tools %s is\n%s", setting, text)
					}
				})
			}
		}
	})
}

func containsAll(text string, members []string) bool {
	for _, member := range members {
		if !strings.Contains(text, member) {
			return false
		}
	}
	return true
}

// openLines opens a stream of events and returns its lines.
func (s *server) openLines(t *testing.T, path, body, authorization string, header []string) *bufio.Scanner {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 3*patience)
	t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "text/event-stream")
	request.Header.Set("Authorization", authorization)
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	if got := response.Header.Get("Content-Type"); got != "text/event-stream" {
		answer, _ := io.ReadAll(response.Body)
		t.Fatalf("%s is answered %d %s", path, response.StatusCode, answer)
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	return lines
}

// TestCitedLinksKeepTitleAndAddress: a link with a citation is a numbered line with its title and address on every surface, and a text with
// one keeps its words. The citation adds to the part; it does not replace it.
func TestCitedLinksKeepTitleAndAddress(t *testing.T) {
	const answer = `{"parts":[{"kind":"text","mime":"text/markdown","content":"A **bold** word."},{"kind":"text","mime":"text/plain","content":"Paris is the capital.","citation":{"source":"atlas"}},` +
		`{"kind":"link","url":"https://src.example/a","title":"Source A","description":"The first","citation":{"source":"kb","source_id":"1"}}]}`
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(agent.Close)
	community := startFediverse(t, 1)
	p := startPostWith(t, "", fmt.Sprintf("[[agents]]\nname = \"cites\"\nkind = \"webhook\"\n[agents.webhook]\nurl = %q\nsecret = %q\n", agent.URL, webhookSecret))
	relay := p.bridge("relay")
	token := "Bearer " + p.peerToken("reader")

	p.sendAs("cites", "cited@sender.test", milkQuestion)
	raw := p.outbox.await(t, "cited@sender.test").Raw
	_, body, _ := bytes.Cut(raw, []byte("\r\n\r\n"))
	mail, err := io.ReadAll(quotedprintable.NewReader(bytes.NewReader(body)))
	if err != nil {
		t.Fatal(err)
	}

	note := community.reply(community.mention(p.server, "cites", "cited"+p.URL(), milkQuestion))
	post := func(path, body string, header ...string) string {
		return p.server.shown("POST", path, body, token, header...).body
	}
	sent := relay.ask(http.MethodPost, "/v1/bridge/send", map[string]any{"agent": "cites", "message": milkQuestion, "wait": true})

	const line = "[2] Source A: https://src.example/a – The first"
	for surface, shown := range map[string]struct{ text, line string }{
		"mail":        {strings.ReplaceAll(plain(raw), "\r\n", "\n"), line},
		"HTML mail":   {string(mail), `[2] <a href="https://src.example/a">Source A</a> – The first`},
		"note":        {strings.ReplaceAll(note, `\"`, `"`), `Source A</a> – The first`},
		"chat":        {post("/v1/chat", `{"agent":"cites","message":"where"}`), line},
		"JSON-RPC":    {post("/v1/agent/cites", `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"role":"user","parts":[{"type":"text","text":"where"}]}}}`), line},
		"completions": {post("/v1/chat/completions", `{"model":"cites","messages":[{"role":"user","content":"where"}]}`), line},
		"responses":   {post("/v1/responses", `{"model":"cites","input":"where"}`), line},
		"bridge":      {string(jsonOf(relay.ask(http.MethodGet, "/v1/bridge/pending?limit=1000", nil))), line},
		"run":         {string(jsonOf(relay.ask(http.MethodGet, fmt.Sprint("/v1/runs/", sent["run_id"]), nil))), line},
		"A2A":         {post("/a2a/cites", string(load.SendBody("cited", milkQuestion, false)), "A2A-Version", "1.0"), `"filename":"Source A"`},
		"show":        {p.inbox("show", fmt.Sprint(sent["run_id"])), line},
	} {
		t.Run(surface, func(t *testing.T) {
			for _, want := range []string{shown.line, "https://src.example/a", "Paris is the capital."} {
				if !strings.Contains(shown.text, want) {
					t.Errorf("%q is not shown:\n%s", want, shown.text)
				}
			}
		})
	}
}
