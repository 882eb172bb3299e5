package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// changesItsAnswers: what the operator edits and takes back reaches the peer, verified by Fedify, and the address says
// that the answer is gone.
func (x *exchangeOf) changesItsAnswers(t *testing.T) {
	_, reply := x.answered("say something that you will regret", "")
	file := filepath.Join(t.TempDir(), "answer.md")
	if err := os.WriteFile(file, []byte("I meant **something else**."), 0o600); err != nil {
		t.Fatal(err)
	}
	x.s.inbox("edit", "--type", "text/markdown", reply.Object.ID, file)
	update := x.change(t, "Update", reply.Object.ID)
	changed := readNote(t, update)
	if !strings.Contains(changed.Object.Content, "<strong>something else</strong>") || !strings.Contains(string(update.Activity), `"updated"`) {
		t.Errorf("the edit says %s", update.Activity)
	}
	x.s.inbox("delete", reply.Object.ID)
	x.change(t, "Delete", reply.Object.ID)
	if status, body := readActivity(t, reply.Object.ID); status != http.StatusGone || !strings.Contains(body, "Tombstone") {
		t.Errorf("the address of the answer says %d %s", status, body)
	}
}

// change waits for an activity about a note of ours and demands that Fedify took it.
func (x *exchangeOf) change(t *testing.T, kind, note string) arrived {
	t.Helper()
	change := x.peer.await(kind+" of "+note, func(a arrived) bool {
		var activity struct {
			Type   string
			Object json.RawMessage
		}
		return json.Unmarshal(a.Activity, &activity) == nil && activity.Type == kind && strings.Contains(string(activity.Object), note)
	})
	if !change.Verified || !change.Accepted || change.Proof != "valid" || change.Owner != x.s.Actor("memory") {
		t.Errorf("Fedify did not take the %s: verified %v by %q, accepted %v, proof %s, status %d, reason %s",
			kind, change.Verified, change.Owner, change.Accepted, change.Proof, change.Status, change.Reason)
	}
	return change
}

// readActivity reads an address as another server does.
func readActivity(t *testing.T, address string) (status int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "application/activity+json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// forwards: an activity that somebody else brings is believed for its proof, or for what its own server shows, and
// otherwise not.
func (x *exchangeOf) forwards(t *testing.T) {
	for name, c := range map[string]struct {
		from, by string
		status   int
	}{
		"with proof, signed by another":         {"alice", "bob", http.StatusAccepted},
		"with proof, not signed":                {"alice", "", http.StatusAccepted},
		"without proof, signed by another":      {"bob", "alice", http.StatusAccepted}, // read again at its origin
		"without proof and signature":           {"bob", "", http.StatusUnauthorized},
		"without proof, by somebody who is not": {"carol", "", http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			x.in(t, func(x *exchangeOf, t *testing.T) {
				before := len(x.agent.questions())
				note := x.peer.command("/forward", errand{To: x.s.Actor("memory"), From: c.from, By: c.by, Content: "brought by somebody"})
				if note.Status != c.status {
					t.Fatalf("answered %d %s, want %d", note.Status, note.Reason, c.status)
				}
				if c.status != http.StatusAccepted {
					x.s.awaitState("")
					if n := len(x.agent.questions()) - before; n != 0 {
						t.Errorf("the agent was asked %d times", n)
					}
					return
				}
				x.peer.await("the reply to "+note.Note, answers(note.Note))
				sender := x.agent.last(t).Sender
				if !strings.HasSuffix(sender.Identities[0].Subject, "/users/"+c.from) || !sender.Verified {
					t.Errorf("the agent was told that %+v asked; want %s", sender, c.from)
				}
			})
		})
	}
}

// entersLate: a mention under a note that never came here brings the note along, as history.
func (x *exchangeOf) entersLate(t *testing.T) {
	written := x.peer.command("/write", errand{To: x.s.Actor("memory"), Content: "the moon is made of cheese"})
	question := x.peer.command("/mention", errand{To: x.s.Actor("memory"), From: "bob", Content: "is that so?", InReplyTo: written.Note})
	x.peer.await("the reply to "+question.Note, answers(question.Note))
	if said := saidBefore(x.agent.last(t)); !strings.Contains(said, "made of cheese") {
		t.Errorf("the history of a thread that was entered late says %q", said)
	}
}
