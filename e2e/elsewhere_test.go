package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/exchange"
	"inbox/internal/await"
	"inbox/normalized"
)

// stopRounds is how often each act is measured. What the acts promise does not depend on it.
const stopRounds = 2

// tireless is a webhook agent that works on a message until its caller leaves or the test ends. Quick questions it answers at once.
type tireless struct {
	URL   string
	begun chan string // words of messages on which it begins to work
	ended chan struct{}

	mu  sync.Mutex
	cut map[string]time.Time // when its caller left, by the words of the message
}

const quick = "quick"

func startTireless(t *testing.T) *tireless {
	t.Helper()
	a := &tireless{begun: make(chan string, 64), ended: make(chan struct{}), cut: map[string]time.Time{}}
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	a.URL = server.URL
	return a
}

func (a *tireless) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Message normalized.Message `json:"message"`
	}
	err := json.NewDecoder(r.Body).Decode(&body)
	if _, rest := io.Copy(io.Discard, r.Body); errors.Join(err, rest) != nil {
		http.Error(w, "cannot be read", http.StatusBadRequest)
		return
	}

	words := strings.Fields(textOf(body.Message.Parts))
	said := words[len(words)-1] // a mention stands before it
	if said != quick {
		a.work(r.Context(), said)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(say("Done."))
}

func (a *tireless) work(ctx context.Context, said string) {
	a.begun <- said
	select {
	case <-ctx.Done():
		a.mu.Lock()
		a.cut[said] = time.Now()
		a.mu.Unlock()
	case <-a.ended:
	}
}

// awaitBegun waits until the agent works on a message.
func (a *tireless) awaitBegun(t *testing.T, said string) {
	t.Helper()
	if got := await.Receive(t, a.begun, "the agent to work on "+said); got != said {
		t.Fatalf("the agent works on %q; want %q", got, said)
	}
}

// awaitCut waits until the caller of a message left, and returns when that was.
func (a *tireless) awaitCut(t *testing.T, said string) (at time.Time) {
	t.Helper()
	await.Until(t, "the run of "+said+" is stopped", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		at = a.cut[said]
		return !at.IsZero()
	})
	return at
}

func (a *tireless) wasCut(said string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.cut[said].IsZero()
}

// twoNodes are two servers on one database. Messages come in at the first, where their runs are then, and what stops them happens at
// the second.
type twoNodes struct {
	t             *testing.T
	first, second *server
	agent         *tireless
	community     *fediverse
	token         string
	sent          int
	took          map[string][]time.Duration
}

func startTwoNodes(t *testing.T) *twoNodes {
	t.Helper()
	n := &twoNodes{t: t, agent: startTireless(t), community: startFediverse(t, 1), took: map[string][]time.Duration{}}
	n.first = start(t, instance.Settings{Database: postgres(t), Agents: fmt.Sprintf(
		"[[agents]]\nname = \"tireless\"\nkind = \"webhook\"\n[agents.webhook]\nurl = %q\nsecret = %q\n[[agents]]\nname = \"other\"\nkind = \"webhook\"\n[agents.webhook]\nurl = %q\nsecret = %q\n",
		n.agent.URL, webhookSecret, n.agent.URL, webhookSecret)})
	n.second = secondNode(t, n.first)
	t.Cleanup(func() { close(n.agent.ended) }) // before the nodes stop, which would wait for their runs
	n.token = n.first.peerToken("ann")
	return n
}

// words are those of a message that no other one has.
func (n *twoNodes) words() string {
	n.sent++
	return "message" + strconv.Itoa(n.sent)
}

// note is when an act that began at a time had its effect.
func (n *twoNodes) note(act string, began, effect time.Time) {
	n.took[act] = append(n.took[act], effect.Sub(began))
}

// post sends JSON to one of the nodes.
func (n *twoNodes) post(node *server, path, token, body string) (int, string) {
	n.t.Helper()
	request, err := http.NewRequestWithContext(n.t.Context(), http.MethodPost, "http://"+node.Settings.HTTP+path, strings.NewReader(body))
	if err != nil {
		n.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		n.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	return response.StatusCode, string(answer)
}

// ask sends a message by A2A to the first node and returns its task, on which the agent works.
func (n *twoNodes) ask(token string) (said string, task load.Task) {
	n.t.Helper()
	said = n.words()
	peer := load.A2APeer{URL: n.first.URL() + "/a2a/tireless", Token: token, Client: http.DefaultClient}
	task, err := peer.Send(n.t.Context(), load.SendBody(said, said, true))
	if err != nil {
		n.t.Fatal(err)
	}
	n.agent.awaitBegun(n.t, said)
	return said, task
}

// mention sends a note of a person to the first node.
func (n *twoNodes) mention() (said string, person load.Person, note load.Mention) {
	n.t.Helper()
	said = n.words()
	person = n.community.Stranger(n.sent)
	note = person.Mention(n.first.Actor("tireless"), said, said)
	n.activity(n.first, person, note.Body)
	n.agent.awaitBegun(n.t, said)
	return said, person, note
}

func (n *twoNodes) activity(node *server, person load.Person, body []byte) {
	n.t.Helper()
	request, err := person.Delivery(n.first.Actor("tireless")+"/inbox", body, load.Signature{})
	if err != nil {
		n.t.Fatal(err)
	}
	request.Host, request.URL.Host = request.URL.Host, node.Settings.HTTP
	if status := do(n.t, request); status != http.StatusAccepted {
		n.t.Fatalf("an activity was answered %d", status)
	}
}

// stops are the acts that end a run: each sends a message to the first node, and does something at the second.
var stops = map[string]func(n *twoNodes) (said string, began time.Time){
	"cancelled by A2A": func(n *twoNodes) (string, time.Time) {
		said, task := n.ask(n.token)
		began := time.Now()
		peer := load.A2APeer{URL: "http://" + n.second.Settings.HTTP + "/a2a/tireless", Token: n.token, Client: http.DefaultClient}
		if err := peer.Cancel(n.t.Context(), task.ID); err != nil {
			n.t.Fatal(err)
		}
		return said, began
	},
	"stopped in a chat": func(n *twoNodes) (string, time.Time) {
		said := n.words()
		chat := fmt.Sprintf(`{"agent":"tireless","session":%q,"run_id":%q,"message":%q}`, said, said, said)
		var asking sync.WaitGroup
		n.t.Cleanup(asking.Wait)
		asking.Go(func() { n.post(n.first, "/v1/chat", n.token, chat) })
		n.agent.awaitBegun(n.t, said)
		began := time.Now()
		if status, answer := n.post(n.second, "/v1/chat/stop", n.token, chat); status != http.StatusOK {
			n.t.Fatalf("the stop is answered %d %s", status, answer)
		}
		return said, began
	},
	"deleted by its sender": func(n *twoNodes) (string, time.Time) {
		said, person, note := n.mention()
		body := fmt.Sprintf(`{"@context":"https://www.w3.org/ns/activitystreams","id":"%s/deletion","type":"Delete","actor":%q,"object":{"type":"Tombstone","id":%q}}`, note.NoteID, person.ID, note.NoteID)
		began := time.Now()
		n.activity(n.second, person, []byte(body))
		return said, began
	},
	"edited by its sender": func(n *twoNodes) (string, time.Time) {
		said, person, note := n.mention()
		var edit map[string]any
		if err := json.Unmarshal(note.Body, &edit); err != nil {
			n.t.Fatal(err)
		}
		now := n.words()
		edit["type"], edit["id"] = "Update", note.NoteID+"/edit"
		object, _ := edit["object"].(map[string]any)
		object["content"], object["updated"] = "<p>"+now+"</p>", time.Now().Add(time.Second).UTC().Format(time.RFC3339)
		body, err := json.Marshal(edit)
		if err != nil {
			n.t.Fatal(err)
		}
		began := time.Now()
		n.activity(n.second, person, body)
		n.agent.awaitBegun(n.t, now) // the run begins again
		return said, began
	},
	"its sender is blocked": func(n *twoNodes) (string, time.Time) {
		said, person, _ := n.mention()
		began := time.Now()
		n.second.inbox("block", "add", person.ID)
		return said, began
	},
	"its sender is erased": func(n *twoNodes) (string, time.Time) {
		said, person, _ := n.mention()
		began := time.Now()
		n.second.inbox("erase", person.ID, "--yes")
		return said, began
	},
	"taken over and answered by an operator": func(n *twoNodes) (string, time.Time) {
		said, _, note := n.mention()
		n.second.inbox("takeover", "begin", note.NoteID, "--as", "anna")
		began := time.Now()
		n.second.inbox("reply", note.NoteID, "A person answers.", "--as", "anna", "--yes")
		return said, began
	},
	"taken over and dropped by an operator": func(n *twoNodes) (string, time.Time) {
		said, _, note := n.mention()
		n.second.inbox("takeover", "begin", note.NoteID, "--as", "anna")
		began := time.Now()
		n.second.inbox("takeover", "end", note.NoteID, "--as", "anna", "--drop")
		return said, began
	},
}

// TestActsAtOneNodeHoldAtTheOther: what stops something at one node stops it at the other one, without its help. The log has the times.
func TestActsAtOneNodeHoldAtTheOther(t *testing.T) {
	t.Parallel()
	n := startTwoNodes(t)
	for range stopRounds {
		for _, act := range slices.Sorted(maps.Keys(stops)) {
			said, began := stops[act](n)
			n.note("a run ends: "+act, began, n.agent.awaitCut(t, said))
		}
		n.revokeWhileStreaming()
		n.revokeWhileWaiting()
		n.revokeBetweenRequests()
		n.pause()
	}

	for _, act := range slices.Sorted(maps.Keys(n.took)) {
		took := slices.Sorted(slices.Values(n.took[act]))
		t.Logf("%-60s min %4d ms, median %4d ms, max %4d ms (%d)", act, took[0].Milliseconds(), took[len(took)/2].Milliseconds(), took[len(took)-1].Milliseconds(), len(took))
	}
}

// revokeWhileStreaming: a stream ends with its token, and gets no words afterwards.
func (n *twoNodes) revokeWhileStreaming() {
	n.t.Helper()
	name := n.words()
	token := n.first.peerToken(name)
	said := n.words()
	stream := n.first.openStream(n.t, "tireless", token, "SendStreamingMessage", fmt.Sprintf(`{"message":{"messageId":%q,"role":"ROLE_USER","parts":[{"text":%q}]}}`, said, said))
	n.agent.awaitBegun(n.t, said)
	began := time.Now()
	n.second.inbox("tokens", "revoke", n.tokenID(name))
	for more := true; more; {
		more, _ = stream.next()
	}
	n.note("a stream ends: its token is revoked", began, time.Now())
	if stream.ends != 0 || n.agent.wasCut(said) {
		n.t.Errorf("the stream of a revoked token: %+v", stream)
	}
}

// revokeWhileWaiting: a request that waits for its answer is refused.
func (n *twoNodes) revokeWhileWaiting() {
	n.t.Helper()
	name := n.words()
	token := n.first.peerToken(name)
	said := n.words()
	answered := make(chan int, 1)
	go func() {
		status, _ := n.post(n.first, "/a2a/tireless", token, string(load.SendBody(said, said, false)))
		answered <- status
	}()
	n.agent.awaitBegun(n.t, said)
	began := time.Now()
	n.second.inbox("tokens", "revoke", n.tokenID(name))
	if status := await.Receive(n.t, answered, "an answer to the request of a revoked token"); status != http.StatusUnauthorized {
		n.t.Errorf("the request of a revoked token is answered %d", status)
	}
	n.note("a waiting request ends: its token is revoked", began, time.Now())
}

// revokeBetweenRequests: a token that the first node remembers opens nothing there any more.
func (n *twoNodes) revokeBetweenRequests() {
	n.t.Helper()
	name := n.words()
	token := n.first.peerToken(name)
	list := func() int {
		status, _ := n.post(n.first, "/a2a/tireless", token, `{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{}}`)
		return status
	}
	if status := list(); status != http.StatusOK {
		n.t.Fatalf("a valid token is answered %d", status)
	}
	began := time.Now()
	n.second.inbox("tokens", "revoke", n.tokenID(name))
	await.Until(n.t, "the token is refused", func() bool { return list() == http.StatusUnauthorized })
	n.note("requests are refused: their token is revoked", began, time.Now())
}

func (n *twoNodes) tokenID(name string) string {
	n.t.Helper()
	for _, token := range listedAs[exchange.Token](n.t, n.first.inbox("tokens", "list", "--json")) {
		if token.Name == name {
			return token.ID
		}
	}
	n.t.Fatalf("there is no token %s", name)
	return ""
}

// pause checks that a paused agent gets no new messages and finishes the run that has begun.
func (n *twoNodes) pause() {
	n.t.Helper()
	said := n.words()
	peer := load.A2APeer{URL: n.first.URL() + "/a2a/other", Token: n.token, Client: http.DefaultClient}
	if _, err := peer.Send(n.t.Context(), load.SendBody(said, said, true)); err != nil {
		n.t.Fatal(err)
	}
	n.agent.awaitBegun(n.t, said)
	began := time.Now()
	n.second.inbox("agents", "pause", "other")
	refused := func() bool {
		status, _ := n.post(n.first, "/a2a/other", n.token, string(load.SendBody(n.words(), quick, true)))
		return status == http.StatusServiceUnavailable
	}
	await.Until(n.t, "messages to the paused agent are refused", refused)
	n.note("messages are refused: their agent is paused", began, time.Now())
	if n.agent.wasCut(said) {
		n.t.Error("a pause stops a run under way")
	}
	n.second.inbox("agents", "resume", "other")
	await.Until(n.t, "the agent is resumed", func() bool { return !refused() })
}
