package activitypub

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"inbox/adapters/activitypub/document"
	"inbox/exchange"
	"inbox/internal/fault"
)

// update makes alice's Update of a note.
func (r *rig) update(id, content, updated string) map[string]any {
	activity := r.mentionNote(id, content)
	activity["type"], activity["id"] = "Update", r.remote.base+"/notes/"+id+"#updates/"+updated
	if updated != "" {
		activity["object"].(map[string]any)["updated"] = updated
	}
	return activity
}

func (r *rig) tombstone(id string) map[string]any {
	return r.simple("Delete", map[string]any{"id": r.remote.base + "/notes/" + id, "type": "Tombstone"})
}

func (r *rig) accept(activity any) {
	r.t.Helper()
	r.want(r.deliver(activity).sign(), http.StatusAccepted, "")
}

func (r *rig) texts() (texts []string) {
	for _, in := range r.engine.All() {
		text := ""
		if len(in.Message.Parts) > 0 {
			text = in.Message.Parts[0].Content
		}
		texts = append(texts, text)
	}
	return texts
}

// TestEditsAndDeletionsInAnyOrder: servers deliver in parallel and repeat what failed, so that an edit or a deletion may
// be here before its note.
func TestEditsAndDeletionsInAnyOrder(t *testing.T) {
	early, late := "2026-11-21T12:00:00Z", "2026-11-21T13:00:00Z"
	create := func(r *rig) map[string]any { return r.mentionNote("1", "old words") }
	cases := []struct {
		name    string
		steps   func(r *rig) []map[string]any
		want    []string
		removed int
	}{
		{"edit", func(r *rig) []map[string]any { return []map[string]any{create(r), r.update("1", "new words", early)} }, []string{"new words"}, 0},
		{"edit of another note", func(r *rig) []map[string]any { return []map[string]any{create(r), r.update("2", "new words", early)} }, []string{"old words", "new words"}, 0},
		{"older edit last", func(r *rig) []map[string]any {
			return []map[string]any{create(r), r.update("1", "newest", late), r.update("1", "newer", early)}
		}, []string{"newest"}, 0},
		{"edit without a time", func(r *rig) []map[string]any { return []map[string]any{create(r), r.update("1", "new words", "")} }, []string{"new words"}, 0},
		{"edit before its note", func(r *rig) []map[string]any { return []map[string]any{r.update("1", "new words", early), create(r)} }, []string{"new words"}, 0},
		{"two edits before their note", func(r *rig) []map[string]any {
			return []map[string]any{r.update("1", "newest", late), r.update("1", "newer", early), create(r), create(r)}
		}, []string{"newest"}, 0},
		{"votes of a poll", func(r *rig) []map[string]any {
			votes := r.update("1", "which?", late)
			votes["object"].(map[string]any)["type"] = "Question"
			return []map[string]any{create(r), votes}
		}, []string{"old words"}, 0},
		{"deletion", func(r *rig) []map[string]any { return []map[string]any{create(r), r.tombstone("1"), r.tombstone("1")} }, []string{"old words"}, 2},
		{"deletion by the address alone", func(r *rig) []map[string]any {
			return []map[string]any{create(r), r.simple("Delete", r.remote.base+"/notes/1")}
		}, []string{"old words"}, 1},
		{"deletion before its note", func(r *rig) []map[string]any { return []map[string]any{r.tombstone("1"), create(r)} }, nil, 0},
		{"deletion and edit before their note", func(r *rig) []map[string]any {
			return []map[string]any{r.tombstone("1"), r.update("1", "new words", late), r.tombstone("1"), create(r)}
		}, nil, 0},
		{"note again after its deletion", func(r *rig) []map[string]any {
			again := create(r)
			again["id"] = r.remote.base + "/notes/1/again"
			return []map[string]any{create(r), r.tombstone("1"), again, r.update("1", "new words", late)}
		}, []string{"old words"}, 1},
		{"the same note in another activity", func(r *rig) []map[string]any {
			again := create(r)
			again["id"] = r.remote.base + "/notes/1/again"
			return []map[string]any{create(r), again}
		}, []string{"old words"}, 0},
		{"deletion of a note that never came", func(r *rig) []map[string]any { return []map[string]any{r.tombstone("7")} }, nil, 0},
		{"edit that says nothing", func(r *rig) []map[string]any { return []map[string]any{create(r), r.update("1", "<p> </p>", late)} }, []string{"old words"}, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			for _, activity := range c.steps(r) {
				r.accept(activity)
			}
			if got := r.texts(); !slices.Equal(got, c.want) {
				t.Errorf("texts %q, want %q", got, c.want)
			}
			want := slices.Repeat([]string{" " + r.remote.base + "/notes/1/activity " + r.domain + " " + r.remote.actor("alice")}, c.removed)
			if !slices.Equal(r.engine.removed, want) {
				t.Errorf("removed %q, want %q", r.engine.removed, want)
			}
		})
	}
}

// TestNobodyChangesTheNotesOfOthers: not even an account of the same server.
func TestNobodyChangesTheNotesOfOthers(t *testing.T) {
	r := newRig(t)
	r.remote.addActor("mallory", malloryKey(), nil)
	r.accept(r.mentionNote("1", "alice's words"))
	as := func(activity map[string]any, status int) {
		t.Helper()
		activity["actor"] = r.remote.actor("mallory")
		if note, embeds := activity["object"].(map[string]any); embeds && note["attributedTo"] != nil {
			note["attributedTo"] = r.remote.actor("mallory")
		}
		d := r.deliver(activity)
		d.keyID, d.key = r.remote.actor("mallory")+"#main-key", malloryKey()
		r.want(d.sign(), status, "")
	}
	as(r.tombstone("1"), 202)
	as(r.update("1", "mallory's words", "2026-11-21T12:00:00Z"), 202)
	as(r.tombstone("2"), 202) // before alice's note comes
	r.accept(r.mentionNote("2", "alice's other words"))
	if got := r.texts(); !slices.Equal(got, []string{"alice's words", "alice's other words"}) || len(r.engine.removed) != 0 {
		t.Errorf("texts %q, removed %q", got, r.engine.removed)
	}
	r.accept(r.tombstone("2"))
	if len(r.engine.removed) != 1 {
		t.Errorf("alice could not delete her own note: %q", r.engine.removed)
	}
}

// TestEditChangesHowToAnswer: a warning that was added is copied to the answer, and nothing becomes wider.
func TestEditChangesHowToAnswer(t *testing.T) {
	r := newRig(t)
	r.accept(r.mentionNote("1", "hello"))
	edit := r.update("1", "hello there", "2026-11-21T12:00:00Z")
	note := edit["object"].(map[string]any)
	note["summary"], note["sensitive"], note["to"], note["cc"] = "spiders", true, []string{r.remote.actor("alice") + "/followers"}, []string{document.Public, r.base + "/agents/echo"}
	r.accept(edit)
	var asked route
	if err := json.Unmarshal(r.engine.All()[0].Route, &asked); err != nil || asked.Warning != "spiders" || !asked.Sensitive || asked.Visibility != "unlisted" {
		t.Errorf("%+v, %v", asked, err)
	}
	narrow := r.update("1", "for you alone", "2026-11-21T13:00:00Z")
	direct(r, narrow["object"].(map[string]any))
	r.accept(narrow)
	if got := r.texts()[0]; !strings.HasSuffix(got, "hello there") {
		t.Errorf("private words joined a public thread: %q", got)
	}
}

func TestAccountDeletionCancelsTurns(t *testing.T) {
	r := newRig(t)
	r.accept(r.mentionNote("1", "hello"))
	r.accept(r.simple("Delete", r.remote.actor("alice")))
	if want := []string{" " + r.domain + " " + r.remote.actor("alice")}; !slices.Equal(r.engine.cancelled, want) {
		t.Errorf("cancelled %q, want %q", r.engine.cancelled, want)
	}
	if want := []string{r.domain + " " + r.remote.actor("alice")}; !slices.Equal(r.engine.unlinked, want) {
		t.Errorf("links ended of %q, want %q", r.engine.unlinked, want)
	}
	if r.state.Has(actorNamespace, r.remote.actor("alice")) {
		t.Error("the profile is still there")
	}
}

func TestBlockCancelsTurns(t *testing.T) {
	r := newRig(t)
	r.accept(r.simple("Block", r.base+"/agents/echo"))
	if want := []string{"echo " + r.domain + " " + r.remote.actor("alice")}; !slices.Equal(r.engine.cancelled, want) {
		t.Errorf("cancelled %q, want %q", r.engine.cancelled, want)
	}
	undo := r.simple("Undo", r.remote.base+"/activities/block")
	r.accept(undo)
	if r.state.Has(blockNamespace+"echo", r.remote.actor("alice")) {
		t.Error("the block was not undone by its id")
	}
}

func TestReactionsToOurNotes(t *testing.T) {
	r := newRig(t)
	r.engine.replies["0190"] = exchange.Reply{ID: "0190", TurnID: "t1", Agent: "echo"}
	note, alice := r.base+"/o/0190", r.remote.actor("alice")
	emoji := r.simple("EmojiReact", note)
	emoji["content"] = "🦊"
	r.accept(r.simple("Like", note))
	r.accept(r.simple("Like", note))
	r.accept(emoji)
	r.accept(r.simple("Announce", note))
	r.accept(r.simple("Like", r.base+"/o/0191"))
	r.accept(r.simple("Announce", "https://elsewhere.example/1"))
	undo := func(id string, inner any) {
		activity := r.simple("Undo", inner)
		activity["id"] = r.remote.base + "/activities/undo-" + id
		r.accept(activity)
	}
	undo("1", r.simple("Like", note))
	undo("2", r.remote.base+"/activities/emojireact")
	announced := r.simple("Announce", note)
	delete(announced, "id")
	undo("3", announced)
	undo("4", announced)
	want := []string{
		"t1 Like " + alice + "  false", "t1 EmojiReact " + alice + " 🦊 false", "t1 Announce " + alice + "  false",
		"t1 Like " + alice + "  true", "t1 EmojiReact " + alice + " 🦊 true", "t1 Announce " + alice + "  true",
	}
	if !slices.Equal(r.engine.reactions, want) {
		t.Errorf("reactions\n%q, want\n%q", r.engine.reactions, want)
	}
	if len(r.engine.All()) != 0 {
		t.Error("a reaction started a turn")
	}
}

// TestReactionThatWasNotKeptComesAgain: the mark of a reaction was stored and the process died, or the database went away, before its timeline
// had it. The repeat was taken for a duplicate.
func TestReactionThatWasNotKeptComesAgain(t *testing.T) {
	r := newRig(t)
	r.engine.replies["0190"] = exchange.Reply{ID: "0190", TurnID: "t1", Agent: "echo"}
	like := r.simple("Like", r.base+"/o/0190")
	r.engine.unkept = fault.New(fault.Unavailable, "the database is away")
	if status, _, _ := r.send(r.deliver(like).sign()); status != http.StatusServiceUnavailable {
		t.Errorf("a reaction that is not kept is answered %d", status)
	}
	for range 3 {
		r.accept(like)
	}
	if len(r.engine.reactions) != 1 {
		t.Errorf("%q; want the reaction once", r.engine.reactions)
	}
}

func TestReactionOfOthersCannotBeUndone(t *testing.T) {
	r := newRig(t)
	r.engine.replies["0190"] = exchange.Reply{ID: "0190", TurnID: "t1", Agent: "echo"}
	r.remote.addActor("mallory", malloryKey(), nil)
	r.accept(r.simple("Like", r.base+"/o/0190"))
	undo := r.simple("Undo", r.remote.base+"/activities/like")
	undo["actor"] = r.remote.actor("mallory")
	d := r.deliver(undo)
	d.keyID, d.key = r.remote.actor("mallory")+"#main-key", malloryKey()
	r.want(d.sign(), 202, "")
	if len(r.engine.reactions) != 1 {
		t.Errorf("%q", r.engine.reactions)
	}
}

func TestReportsReachTheOperator(t *testing.T) {
	r := newRig(t)
	r.engine.replies["0190"] = exchange.Reply{ID: "0190", TurnID: "t1", Agent: "echo"}
	flag := r.simple("Flag", []string{r.base + "/agents/echo", r.base + "/o/0190", "https://elsewhere.example/1"})
	flag["content"] = "it repeats\neverything"
	r.accept(flag)
	elsewhere := r.simple("Flag", "https://elsewhere.example/1")
	elsewhere["id"] = r.remote.base + "/activities/other"
	r.accept(elsewhere)
	if len(r.engine.audit) != 1 {
		t.Fatalf("%+v", r.engine.audit)
	}
	got := r.engine.audit[0]
	if got.Code != codeReport || got.Agent != "echo" || got.TurnID != "t1" || got.Principal != r.domain+" "+r.remote.actor("alice") ||
		!strings.HasPrefix(got.Detail, "it repeats everything (") || !strings.Contains(got.Detail, r.base+"/o/0190") {
		t.Errorf("%+v", got)
	}
}

// TestMove: the new account follows in place of the old one only if it names the old one, and gets nothing else.
func TestMove(t *testing.T) {
	for name, agrees := range map[string]bool{"both agree": true, "only the old account says so": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			alice, anna := r.remote.actor("alice"), r.remote.actor("anna")
			r.remote.addActor("anna", malloryKey(), func(doc map[string]any) {
				if agrees {
					doc["alsoKnownAs"] = []string{"https://elsewhere.example/x", alice}
				}
			})
			r.accept(r.simple("Follow", r.base+"/agents/echo"))
			move := r.simple("Move", alice)
			move["target"] = anna
			fetched := r.remote.count("/users/anna")
			r.accept(move)
			if r.remote.count("/users/anna") != fetched {
				t.Error("the sender had to wait for another server")
			}
			if want := []string{r.domain + " " + alice}; !slices.Equal(r.engine.unlinked, want) {
				t.Errorf("links ended of %q, want %q", r.engine.unlinked, want)
			}
			jobs := r.engine.takeJobs(jobMove)
			if len(jobs) != 1 {
				t.Fatalf("%d jobs", len(jobs))
			}
			if err := r.adapter.SendActivity(t.Context(), jobs[0]); (err == nil) != agrees {
				t.Fatal(err)
			}
			if r.state.Has(FollowerNamespace+"echo", anna) != agrees || r.follows("echo") == agrees {
				t.Errorf("anna follows: %v, alice follows: %v", r.state.Has(FollowerNamespace+"echo", anna), r.follows("echo"))
			}
			if (len(r.engine.audit) == 1) != agrees || agrees && r.engine.audit[0].Code != codeMoved {
				t.Errorf("%+v", r.engine.audit)
			}
			if !agrees {
				return
			}
			if err := r.adapter.actors.checkAddress(t.Context(), alice); err != nil {
				t.Fatal(err)
			}
			note := r.mentionNote("9", "it is me")
			note["actor"], note["object"].(map[string]any)["attributedTo"] = anna, anna
			for range 2 {
				d := r.deliver(note)
				d.keyID, d.key = anna+"#main-key", malloryKey()
				r.want(d.sign(), 202, "")
				for _, job := range r.engine.takeJobs(jobAddress) {
					if err := r.adapter.SendActivity(t.Context(), job); err != nil {
						t.Fatal(err)
					}
				}
				note["id"], note["object"].(map[string]any)["id"] = r.remote.base+"/notes/10/activity", r.remote.base+"/notes/10"
			}
			taken := r.engine.All()
			last := taken[len(taken)-1].Message
			if last.Sender.Principal() != r.domain+" "+anna || !strings.Contains(string(last.Sender.Identities[0].Claims), `"moved_from":"`+alice+`"`) {
				t.Errorf("%s %s", last.Sender.Principal(), last.Sender.Identities[0].Claims)
			}
		})
	}
}

func TestMovesThatAreNone(t *testing.T) {
	r := newRig(t)
	alice := r.remote.actor("alice")
	for i, c := range []struct{ object, target string }{
		{r.remote.actor("bob"), r.remote.actor("anna")}, {alice, alice}, {alice, ""}, {alice, r.base + "/agents/echo"},
	} {
		move := r.simple("Move", c.object)
		move["target"], move["id"] = c.target, r.remote.base+"/activities/move"+string(rune('a'+i))
		r.accept(move)
	}
	if jobs := r.engine.takeJobs(jobMove); len(jobs) != 0 || len(r.engine.unlinked) != 0 {
		t.Errorf("%q, links ended of %q", jobs, r.engine.unlinked)
	}
}
