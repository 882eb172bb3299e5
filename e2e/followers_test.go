package e2e

import (
	"encoding/json"
	"maps"
	"net/http"
	"strings"
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
	if err := json.Unmarshal([]byte(s.inbox("follows", "list", "--json", agent)), &rows); err != nil {
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
	t.Parallel()
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
		if err := json.Unmarshal([]byte(s.inbox("reports", "list", "--json")), &records); err != nil {
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
