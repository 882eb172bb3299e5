package activitypub

import (
	"maps"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"inbox/exchange"
	"inbox/normalized"
)

func TestReplyIsNeverWider(t *testing.T) {
	levels := []string{normalized.VisibilityPublic, normalized.VisibilityUnlisted, normalized.VisibilityFollowers, normalized.VisibilityDirect}
	rapid.Check(t, func(t *rapid.T) {
		question := rapid.SampledFrom(levels).Draw(t, "question")
		wanted := rapid.SampledFrom(append(levels, "", "nonsense")).Draw(t, "wanted")
		publicReplies := rapid.Bool().Draw(t, "public replies")
		reply := narrowedVisibility(question, wanted, publicReplies)
		if reach[reply] == 0 || reach[reply] > reach[question] {
			t.Errorf("%s was answered %s", question, reply)
		}
		if reach[wanted] > 0 && reach[reply] > reach[wanted] {
			t.Errorf("the agent wanted %s and got %s", wanted, reply)
		}
		if reply == normalized.VisibilityFollowers {
			t.Error("our followers are not theirs")
		}
	})
}

// note sends one more note and returns its thread.
func (r *rig) threadOf(id string, change func(note map[string]any)) string {
	return r.question(id, "hello", change).Message.ThreadID
}

func direct(r *rig, note map[string]any) {
	note["to"], note["cc"] = []string{r.base + "/agents/echo"}, nil
}

func TestThreads(t *testing.T) {
	r := newRig(t)
	note := r.remote.base + "/notes/"
	if got := r.threadOf("1", func(map[string]any) {}); got != note+"1" {
		t.Errorf("alone: %s", got)
	}
	if got := r.threadOf("2", func(n map[string]any) {
		n["context"], n["conversation"] = r.remote.base+"/contexts/1", "tag:127.0.0.1,2026:1"
	}); got != r.remote.base+"/contexts/1" {
		t.Errorf("context: %s", got)
	}
	if got := r.threadOf("3", func(n map[string]any) { n["conversation"] = "tag:127.0.0.1,2026:1" }); got != "tag:127.0.0.1,2026:1" {
		t.Errorf("conversation: %s", got)
	}
	if got := r.threadOf("4", func(n map[string]any) { n["context"] = "not an iri" }); got != note+"4" {
		t.Errorf("nonsense: %s", got)
	}
	if got := r.threadOf("5", func(n map[string]any) { direct(r, n) }); got != note+"5#by="+r.remote.actor("alice") {
		t.Errorf("direct: %s", got)
	}
	if got := r.threadOf("6", func(n map[string]any) { n["context"] = "https://m.example/" + strings.Repeat("x", 1000) }); !strings.HasPrefix(got, "urn:sha256:") && len(got) > maxThreadBytes {
		t.Errorf("long: %s", got)
	}
}

// TestForeignConversations: a conversation that another server named joins no thread but the sender's own.
func TestForeignConversations(t *testing.T) {
	r := newRig(t)
	alice := r.remote.actor("alice")
	cases := map[string]struct {
		note map[string]any
		want string
	}{
		"1": {map[string]any{"context": "https://m.example/c/1"}, "https://m.example/c/1#told-by=" + alice},
		"2": {map[string]any{"context": "https://m.example/c/1", "inReplyTo": "https://other.example/n/1"}, "https://m.example/c/1#told-by=" + alice},
		"3": {map[string]any{"context": "https://m.example/c/1", "inReplyTo": "https://m.example/n/1"}, "https://m.example/c/1"},
		"4": {map[string]any{"conversation": "tag:m.example,2026:1"}, "tag:m.example,2026:1#told-by=" + alice},
		"5": {map[string]any{"conversation": "tag:m.example,2026:1", "inReplyTo": "https://m.example/n/1"}, "tag:m.example,2026:1"},
		"6": {map[string]any{"conversation": "tag:notm.example,2026:1", "inReplyTo": "https://m.example/n/1"}, "tag:notm.example,2026:1#told-by=" + alice},
	}
	for id, c := range cases {
		got := r.threadOf(id, func(n map[string]any) {
			maps.Copy(n, c.note)
		})
		if got != c.want {
			t.Errorf("%v: %s, want %s", c.note, got, c.want)
		}
	}
	for _, name := range []string{"https://m.example/c/1#told-by=https://m.example/users/bob", "https://m.example/c/1#by=" + alice} {
		if got := r.threadOf(name, func(n map[string]any) { n["context"] = name }); !strings.HasPrefix(got, "urn:sha256:") {
			t.Errorf("%s was named from outside: %s", name, got)
		}
	}
}

// store keeps a question as the parent that its reply's note names.
func (r *rig) store(in exchange.Inbound, native string) {
	r.engine.entries["echo "+native] = exchange.ThreadEntry{
		TurnID: "t", ThreadID: in.Message.ThreadID, Message: in.Message, Route: in.Route,
	}
}

// TestNobodyJoinsAPrivateThread: context and inReplyTo are claims. They must never put one person's direct
// conversation, or the public thread's readers, into another's history.
func TestNobodyJoinsAPrivateThread(t *testing.T) {
	r := newRig(t)
	claimed := r.remote.base + "/contexts/secret"
	secret := r.question("1", "my secret", func(n map[string]any) { direct(r, n); n["context"] = claimed })
	r.store(secret, r.base+"/o/01")
	private := secret.Message.ThreadID

	if got := r.threadOf("2", func(n map[string]any) { direct(r, n); n["inReplyTo"] = r.base + "/o/01" }); got != private {
		t.Errorf("alice's own direct answer left the thread: %s", got)
	}
	if got := r.threadOf("3", func(n map[string]any) { n["inReplyTo"] = r.base + "/o/01" }); got == private {
		t.Error("a public note joined a private thread")
	}
	if got := r.threadOf("4", func(n map[string]any) { n["context"] = private }); got == private {
		t.Error("a private thread was named from outside")
	}
	public := r.question("5", "hello all", func(n map[string]any) { n["context"] = r.remote.base + "/contexts/open" })
	r.store(public, r.base+"/o/02")
	if got := r.threadOf("6", func(n map[string]any) { direct(r, n); n["inReplyTo"] = r.base + "/o/02" }); got == public.Message.ThreadID {
		t.Error("a direct note joined a public thread")
	}
	if got := r.threadOf("7", func(n map[string]any) { n["inReplyTo"] = r.base + "/o/02" }); got != public.Message.ThreadID {
		t.Errorf("a public answer left the public thread: %s", got)
	}

	r.remote.addActor("mallory", malloryKey(), nil)
	for id, change := range map[string]func(map[string]any){
		"8": func(n map[string]any) { direct(r, n); n["context"] = claimed },
		"9": func(n map[string]any) { direct(r, n); n["inReplyTo"] = r.base + "/o/01" },
	} {
		activity := r.mentionNote(id, "tell me")
		change(activity["object"].(map[string]any))
		activity["actor"] = r.remote.actor("mallory")
		activity["object"].(map[string]any)["attributedTo"] = r.remote.actor("mallory")
		d := r.deliver(activity)
		d.keyID, d.key = r.remote.actor("mallory")+"#main-key", malloryKey()
		r.want(d.sign(), 202, "")
		taken := r.engine.messages()
		if got := taken[len(taken)-1].Message.ThreadID; got == private {
			t.Errorf("mallory joined alice's thread with note %s", id)
		}
	}
}
