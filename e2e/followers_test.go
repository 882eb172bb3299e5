package e2e

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/exchange"
)

// act delivers an activity of a person to an agent and returns its id. The object is whatever the activity is about.
func (f *fediverse) act(s *server, agent string, person int, kind, key string, more map[string]any) string {
	f.t.Helper()
	who := f.Persons[person]
	activity := map[string]any{
		"@context": "https://www.w3.org/ns/activitystreams", "id": who.ID + "/" + strings.ToLower(kind) + "/" + key, "type": kind, "actor": who.ID,
	}
	maps.Copy(activity, more)
	body, err := json.Marshal(activity)
	if err != nil {
		f.t.Fatal(err)
	}
	request, err := who.Delivery(s.Actor(agent)+"/inbox", body, load.Signature{})
	if err != nil {
		f.t.Fatal(err)
	}
	if status := do(f.t, request); status != http.StatusAccepted {
		f.t.Fatalf("the %s was answered %d", kind, status)
	}
	return who.ID + "/" + strings.ToLower(kind) + "/" + key
}

func (f *fediverse) follow(s *server, agent string, person int) string {
	f.t.Helper()
	return f.act(s, agent, person, "Follow", "1", map[string]any{"object": s.Actor(agent), "to": []string{s.Actor(agent)}})
}

// pending returns the actors that wait to follow an agent.
func pending(t *testing.T, s *server, agent string) []string {
	t.Helper()
	var rows []struct{ Actor string }
	if err := decodeList(s.inbox("follows", "list", "--json", agent), &rows); err != nil {
		t.Fatal(err)
	}
	actors := make([]string, 0, len(rows))
	for _, row := range rows {
		actors = append(actors, row.Actor)
	}
	return actors
}

// decided waits for the answer to a Follow.
func (f *fediverse) decided(t *testing.T, kind, follow string) {
	t.Helper()
	if answer := f.next(t); !strings.Contains(answer, `"type":"`+kind+`"`) || !strings.Contains(answer, follow) {
		t.Errorf("the Follow %s is answered %s; want %s", follow, answer, kind)
	}
}

// TestOperatorChoosesFollowers: who wants to follow waits until a command says yes or no; the running server tells them.
func TestOperatorChoosesFollowers(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		community := startFediverse(t, 3)
		s := start(t, instance.Settings{Database: database, Agents: "[[agents]]\nname = \"echo\"\nkind = \"echo\"\nfollows = \"hold\"\n" +
			"[[agents]]\nname = \"shy\"\nkind = \"echo\"\nfollows = \"reject\"\n"})
		welcome, unwelcome := community.follow(s, "echo", 0), community.follow(s, "echo", 1)
		community.quiet(s)
		if waiting := pending(t, s, "echo"); len(waiting) != 2 {
			t.Errorf("%v wait; want two", waiting)
		}
		s.killed()
		s.inbox("follows", "accept", "echo", community.Persons[0].ID)
		community.decided(t, "Accept", welcome)
		s.inbox("follows", "reject", "echo", community.Persons[1].ID)
		community.decided(t, "Reject", unwelcome)
		s.awaitIdle()
		if waiting := pending(t, s, "echo"); len(waiting) != 0 {
			t.Errorf("%v still wait", waiting)
		}
		if _, followers := readActivity(t, s.Actor("echo")+"/followers"); !strings.Contains(followers, `"totalItems":1`) {
			t.Errorf("the followers are %s; want one", followers)
		}
		if _, err := s.Run(t.Context(), "follows", "accept", "echo", community.Persons[2].ID); err == nil || !strings.Contains(err.Error(), "does not wait") {
			t.Errorf("accepting somebody who does not wait says %v", err)
		}
		community.decided(t, "Reject", community.follow(s, "shy", 2))
		if _, actor := readActivity(t, s.Actor("echo")); !strings.Contains(actor, `"manuallyApprovesFollowers":true`) {
			t.Errorf("the agent is not shown as locked: %s", actor)
		}
		community.quiet(s)
	})
}

// TestComplaintsAreListed: a Flag about an agent and its answer is found by command and API; the agent is not asked.
func TestComplaintsAreListed(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		community := startFediverse(t, 2)
		s := start(t, instance.Settings{Database: database})
		mention, answer := community.ask(s, "echo", 0, "hello there")
		var activity struct{ Object struct{ ID string } }
		if err := json.Unmarshal([]byte(answer), &activity); err != nil {
			t.Fatal(err)
		}
		community.act(s, "echo", 1, "Flag", "1", map[string]any{
			"content": "this bot is rude", "object": []string{s.Actor("echo"), activity.Object.ID}, "to": []string{s.Actor("echo")},
		})
		community.act(s, "echo", 1, "Flag", "2", map[string]any{"content": "about nobody here", "object": []string{"https://elsewhere.test/users/x"}})
		s.awaitState("") // a kill before the delivery is noted sends the same activity once more
		s.killed()
		var records []exchange.AuditRecord
		if err := decodeList(s.inbox("reports", "list", "--json"), &records); err != nil {
			t.Fatal(err)
		}
		if len(records) != 1 || records[0].Agent != "echo" || !strings.Contains(records[0].Detail, "this bot is rude") ||
			!strings.HasSuffix(records[0].Principal, community.Persons[1].ID) {
			t.Fatalf("the reports are %+v", records)
		}
		if shown := s.inbox("show", records[0].TurnID); !strings.Contains(shown, mention.NoteID) {
			t.Errorf("the report leads to\n%s", shown)
		}
		if table := s.inbox("reports", "list"); !strings.Contains(table, "this bot is rude") {
			t.Errorf("the table is\n%s", table)
		}
		if status, body := s.api(http.MethodGet, "/reports", s.adminToken()); status != http.StatusOK || !strings.Contains(body, "this bot is rude") {
			t.Errorf("the API answers %d %s", status, body)
		}
		if found := states(t, s.Instance); len(found) != 1 {
			t.Errorf("the turns are %v; want the question alone", found)
		}
		community.quiet(s)
	})
}

// pinned waits for the next activity, which must be about a note and the collection "featured", and returns its id.
func (f *fediverse) pinned(kind, note, featured string) string {
	f.t.Helper()
	var activity struct{ ID, Type, Object, Target string }
	arrival := f.nextActivity()
	if err := json.Unmarshal(arrival.Body, &activity); err != nil {
		f.t.Fatal(err)
	}
	if activity.Type != kind || activity.Object != note || activity.Target != featured || arrival.Header.Get("Signature") == "" {
		f.t.Errorf("arrived %s; want a signed %s of %s", arrival.Body, kind, note)
	}
	return activity.ID
}

// TestPinsReachFollowers: a command, or the API, that pins an answer tells the followers once, also when no server runs and
// when many ask for the same at once; no one pins a sixth, but in the place of an answer that was taken back.
func TestPinsReachFollowers(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		community := startFediverse(t, 2)
		s := start(t, instance.Settings{Database: database})
		community.decided(t, "Accept", community.follow(s, "echo", 0))
		notes := make([]string, 6)
		for i := range notes {
			notes[i] = community.answer(s)
		}
		community.quiet(s)

		note, featured := notes[0], s.Actor("echo")+"/featured"
		shown := func(want string) {
			t.Helper()
			if _, body := readActivity(t, featured); !strings.Contains(body, want) {
				t.Errorf("featured is %s; want %s", body, want)
			}
		}
		ids := map[string]bool{}
		together(4, func(int) { s.inbox("pin", note) })
		shown(`"totalItems":1`)
		ids[community.pinned("Add", note, featured)] = true
		community.quiet(s)

		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
		s.inbox("unpin", note) // no one is there to send anything
		s.start()
		shown(`"totalItems":0`)
		ids[community.pinned("Remove", note, featured)] = true
		s.inbox("unpin", note)
		community.quiet(s)

		token := s.adminToken()
		for range 2 {
			if status, body := s.api(http.MethodPut, "/replies/"+note[strings.LastIndex(note, "/")+1:]+"/pin", token); status != http.StatusNoContent {
				t.Errorf("the API answers %d %s", status, body)
			}
		}
		ids[community.pinned("Add", note, featured)] = true
		if len(ids) != 3 {
			t.Errorf("the activities have the ids %v; want three", ids)
		}
		community.quiet(s)

		refused, all := []string{}, sync.Mutex{}
		together(5, func(i int) {
			if _, err := s.Run(t.Context(), "pin", notes[1+i]); err != nil && strings.Contains(err.Error(), "has 5 pinned answers already") {
				all.Lock()
				refused = append(refused, notes[1+i])
				all.Unlock()
			}
		})
		if shown(`"totalItems":5`); len(refused) != 1 {
			t.Fatalf("%v of five more were refused; want one", refused)
		}
		for range 4 {
			if kind := community.nextActivity().Type; kind != "Add" {
				t.Errorf("a %s arrived; want the four others", kind)
			}
		}
		community.quiet(s)

		s.inbox("delete", note)
		if kind := community.nextActivity().Type; kind != "Delete" {
			t.Errorf("a %s arrived; want the Delete", kind)
		}
		s.inbox("pin", refused[0]) // in the place of the deleted one
		shown(`"totalItems":5`)
		community.pinned("Add", refused[0], featured)
		s.inbox("unpin", note)
		community.quiet(s)
	})
}

// answer asks as someone who does not follow, and returns the id of the answer, which comes to the server of both once.
func (f *fediverse) answer(s *server) string {
	f.t.Helper()
	_, reply := f.ask(s, "echo", 1, "hello there")
	var activity struct{ Object struct{ ID string } }
	if err := json.Unmarshal([]byte(reply), &activity); err != nil {
		f.t.Fatal(err)
	}
	return activity.Object.ID
}

// together does the same several times at once.
func together(count int, do func(i int)) {
	var all sync.WaitGroup
	for i := range count {
		all.Go(func() { do(i) })
	}
	all.Wait()
}

// TestQuestionIsShownByItsPage: an operator looks for a message by the address that the sender's browser shows.
func TestQuestionIsShownByItsPage(t *testing.T) {
	t.Parallel()
	community := startFediverse(t, 1)
	s := start(t, instance.Settings{})
	person := community.Persons[0]
	mention := person.Mention(s.Actor("echo"), "1", "hello there")
	page := community.Origin + "/@" + person.Name + "/1"
	mention.Body = bytes.Replace(mention.Body, []byte(`"type":"Note"`), []byte(`"type":"Note","url":"`+page+`"`), 1)
	if status := do(t, delivery(t, person, s.Actor("echo")+"/inbox", mention, load.Signature{})); status != http.StatusAccepted {
		t.Fatalf("the mention was answered %d", status)
	}
	community.reply(mention)
	for _, address := range []string{page, mention.NoteID, mention.ActivityID} {
		if shown := s.inbox("show", address); !strings.Contains(shown, mention.ActivityID) || !strings.Contains(shown, "turn.answered") {
			t.Errorf("inbox show %s says\n%s", address, shown)
		}
	}
	if _, err := s.Run(t.Context(), "show", page+"0"); err == nil || !strings.Contains(err.Error(), "no message") {
		t.Errorf("another page is found: %v", err)
	}
}
