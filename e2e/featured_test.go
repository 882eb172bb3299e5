package e2e

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"

	"inbox/e2e/instance"
	"inbox/e2e/load"
)

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
// when many ask for the same at once; nobody pins a sixth, but in the place of an answer that was taken back.
func TestPinsReachFollowers(t *testing.T) {
	t.Parallel()
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
		s.inbox("unpin", note) // nobody is there to send anything
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

// answer asks as somebody who does not follow, and returns the id of the answer, which comes to the server of both once.
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
