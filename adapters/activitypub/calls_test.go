package activitypub

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"inbox/adapters/activitypub/document"
)

// aloud makes a public note of alice that addresses no agent.
func (r *rig) aloud(id, content string) (activity, note map[string]any) {
	activity = r.mentionNote(id, content)
	note = activity["object"].(map[string]any)
	activity["cc"], note["cc"] = []string{}, []string{}
	delete(note, "tag")
	return activity, note
}

func mentionTag(name string, href any) map[string]any {
	tag := map[string]any{"type": "Mention", "name": name}
	if href != nil {
		tag["href"] = href
	}
	return tag
}

// TestNotesThatNameTheAgentOddly reach it: at its own inbox by name and text, everywhere by an href that is spelled otherwise.
func TestNotesThatNameTheAgentOddly(t *testing.T) {
	const own, shared = "/agents/echo/inbox", "/inbox"
	cases := []struct {
		name   string
		change func(r *rig, note map[string]any)
		inbox  string
		want   []string
	}{
		{"tag without href, bare name", func(_ *rig, note map[string]any) { note["tag"] = mentionTag("@echo", nil) }, own, []string{"hello"}},
		{"tag without href, bare name, shared inbox", func(_ *rig, note map[string]any) { note["tag"] = mentionTag("@echo", nil) }, shared, nil},
		{"tag without href, address", func(r *rig, note map[string]any) { note["tag"] = mentionTag("@echo@"+r.domain, nil) }, own, []string{"hello"}},
		{"tag without href, address, shared inbox", func(r *rig, note map[string]any) { note["tag"] = mentionTag("@echo@"+r.domain, nil) }, shared, []string{"hello"}},
		{"tag with an empty href", func(_ *rig, note map[string]any) { note["tag"] = mentionTag("echo", "") }, own, []string{"hello"}},
		{"tag of a namesake elsewhere", func(_ *rig, note map[string]any) { note["tag"] = mentionTag("@echo", "https://elsewhere.example/echo") }, own, nil},
		{"tag of another agent's name", func(_ *rig, note map[string]any) { note["tag"] = mentionTag("@bob", nil) }, own, nil},
		{"slash at the end", func(r *rig, note map[string]any) { note["tag"] = mentionTag("@echo", r.base+"/agents/echo/") }, shared, []string{"hello"}},
		{"slash at the end of the profile", func(r *rig, note map[string]any) { note["tag"] = mentionTag("@echo", r.base+"/@echo/") }, shared, []string{"hello"}},
		{"recipient with a slash", func(r *rig, note map[string]any) { note["cc"] = r.base + "/agents/echo/" }, shared, []string{"hello"}},
		{"mention after two hundred others", func(r *rig, note map[string]any) {
			var tags []any
			for i := range 300 {
				tags = append(tags, mentionTag(fmt.Sprint("@u", i), fmt.Sprint("https://elsewhere.example/u", i)))
			}
			note["tag"] = append(tags, mentionTag("@echo", r.base+"/agents/echo"))
		}, shared, []string{"hello"}},
		{"bare name at the head", func(_ *rig, note map[string]any) { note["content"] = "<p>@echo hello</p>" }, own, []string{"hello"}},
		{"bare name and a colon", func(_ *rig, note map[string]any) { note["content"] = "@Echo: hello" }, own, []string{"hello"}},
		{"bare name after another", func(_ *rig, note map[string]any) { note["content"] = "@bob@b.example @echo hello" }, own, []string{"@bob@b.example @echo hello"}},
		{"bare name at the head, shared inbox", func(_ *rig, note map[string]any) { note["content"] = "@echo hello" }, shared, nil},
		{"longer name at the head", func(_ *rig, note map[string]any) { note["content"] = "@echoes hello" }, own, nil},
		{"namesake elsewhere at the head", func(_ *rig, note map[string]any) { note["content"] = "@echo@b.example hello" }, own, nil},
		{"bare name in the middle", func(_ *rig, note map[string]any) { note["content"] = "I like @echo" }, own, nil},
		{"address in the middle", func(r *rig, note map[string]any) { note["content"] = "hello, @echo@" + r.domain + "!" }, own, []string{"hello, @echo@DOMAIN!"}},
		{"beginning of another address", func(r *rig, note map[string]any) { note["content"] = "hello, @echo@" + r.domain + ".evil.example" }, own, nil},
		{"nothing", func(*rig, map[string]any) {}, own, nil},
		{"relative link", func(r *rig, note map[string]any) {
			note["tag"], note["content"] = mentionTag("@echo", r.base+"/agents/echo"), `<p><a href="/@echo" class="u-url mention">@<span>echo</span></a> hello</p>`
		}, shared, []string{"hello"}},
		{"relative link without a class", func(r *rig, note map[string]any) {
			note["tag"], note["content"] = mentionTag("@echo@"+r.domain, r.base+"/agents/echo"), `<a href="../@echo">@echo</a> hello`
		}, shared, []string{"hello"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			activity, note := r.aloud("1", "hello")
			c.change(r, note)
			d := r.deliver(activity)
			d.path = c.inbox
			r.want(d.sign(), http.StatusAccepted, "")
			got := r.texts()
			for i := range got {
				got[i] = strings.ReplaceAll(got[i], r.domain, "DOMAIN")
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
			records := 0
			for _, record := range r.engine.audit {
				if record.Code == codeDropped && record.Agent == "echo" && strings.HasPrefix(record.Detail, droppedNotNamed+" (http") {
					records++
				}
			}
			if dropped := c.want == nil && c.inbox == own; dropped != (records == 1) {
				t.Errorf("%d records of what was dropped", records)
			}
		})
	}
}

// TestKindsOfObjectsThatSpeak: an event or a video that mentions an agent, and an object that was posted without its Create.
func TestKindsOfObjectsThatSpeak(t *testing.T) {
	cases := []struct {
		name   string
		change func(r *rig, activity, note map[string]any) any
		want   string
	}{
		{"event", func(_ *rig, activity, note map[string]any) any {
			note["type"], note["name"], note["startTime"] = "Event", "Meeting", "2026-12-01T19:00:00+01:00"
			note["location"] = map[string]any{"type": "Place", "name": "Town hall"}
			return activity
		}, "Meeting\n\n2026-12-01T18:00:00Z, Town hall\n\nhello"},
		{"video", func(_ *rig, activity, note map[string]any) any {
			note["type"], note["name"] = "Video", "A film"
			note["url"] = []any{
				map[string]any{"type": "Link", "mediaType": "text/html", "href": "https://v.example/w/1"},
				map[string]any{"type": "Link", "mediaType": "video/mp4", "href": "https://v.example/1.mp4", "height": 720},
			}
			return activity
		}, "A film\n\nhello"},
		{"audio", func(_ *rig, activity, note map[string]any) any { note["type"] = "Audio"; return activity }, "hello"},
		{"image", func(_ *rig, activity, note map[string]any) any { note["type"] = "Image"; return activity }, "hello"},
		{"note without its Create", func(_ *rig, _, note map[string]any) any { return note }, "hello"},
		{"event without its Create", func(_ *rig, _, note map[string]any) any { note["type"] = "Event"; return note }, "hello"},
		{"note without its Create, by two", func(r *rig, _, note map[string]any) any {
			note["attributedTo"] = []any{map[string]any{"type": "Group", "id": r.remote.base + "/c/1"}, r.remote.actor("alice")}
			return note
		}, "hello"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			activity := r.mentionNote("1", "hello")
			r.accept(c.change(r, activity, activity["object"].(map[string]any)))
			if got := r.texts(); !slices.Equal(got, []string{c.want}) {
				t.Errorf("%q, want %q", got, c.want)
			}
			if c.name == "video" {
				if parts := r.engine.All()[0].Message.Parts; len(parts) != 2 || parts[1].MIME != "video/mp4" {
					t.Errorf("parts %+v", parts)
				}
			}
			r.accept(r.mentionNote("1", "hello")) // the Create that comes as well
			if n := len(r.engine.All()); n != 1 {
				t.Errorf("%d messages, want 1", n)
			}
		})
	}

	t.Run("by another", func(t *testing.T) {
		r := newRig(t)
		note := r.mentionNote("1", "hello")["object"].(map[string]any)
		r.remote.addActor("mallory", malloryKey(), nil)
		d := r.deliver(note)
		d.keyID, d.key = r.remote.actor("mallory")+"#main-key", malloryKey()
		r.want(d.sign(), http.StatusUnauthorized, "")
		note["@context"] = document.ActivityStreams
		note["proof"] = r.proveAs("alice", aliceProofKey, note, nil)["proof"]
		r.want(r.unsigned(note), http.StatusAccepted, "")
	})
}

// TestEditThatAddsTheMention is answered once: its Create never came here, or comes later, and it may be edited again.
func TestEditThatAddsTheMention(t *testing.T) {
	const first, second = "2026-11-21T12:00:00Z", "2026-11-21T13:00:00Z"
	cases := map[string]struct {
		steps func(r *rig) []any
		want  []string
	}{
		"once":           {func(r *rig) []any { return []any{r.update("1", "hello", first)} }, []string{"hello"}},
		"twice the same": {func(r *rig) []any { return []any{r.update("1", "hello", first), r.update("1", "hello", first)} }, []string{"hello"}},
		"edited again":   {func(r *rig) []any { return []any{r.update("1", "hello", first), r.update("1", "hello there", second)} }, []string{"hello there"}},
		"before without": {func(r *rig) []any {
			silent, _ := r.aloud("1", "hello")
			return []any{silent, r.update("1", "hello echo", first)}
		}, []string{"hello echo"}},
		"Create later": {func(r *rig) []any { return []any{r.update("1", "hello echo", first), r.mentionNote("1", "hello")} }, []string{"hello echo"}},
		"a poll": {func(r *rig) []any {
			poll := r.update("1", "which?", first)
			poll["object"].(map[string]any)["type"] = "Question"
			return []any{poll, poll}
		}, []string{"which?"}},
		"votes of a poll": {func(r *rig) []any {
			poll := r.update("1", "which?", "")
			poll["object"].(map[string]any)["type"] = "Question"
			return []any{poll}
		}, nil},
		"named only": {func(r *rig) []any {
			edit := r.update("1", "hello", first)
			r.remote.serve("/notes/1", edit["object"])
			edit["object"] = r.remote.base + "/notes/1"
			return []any{edit, edit}
		}, []string{"hello"}},
		"without a mention": {func(r *rig) []any {
			silent, _ := r.aloud("1", "hello")
			silent["type"] = "Update"
			return []any{silent}
		}, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			for _, activity := range c.steps(r) {
				r.accept(activity)
				if errs := r.performObjects(); len(errs) > 0 {
					t.Error(errs)
				}
			}
			if got := r.texts(); !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
