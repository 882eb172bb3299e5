package activitypub

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"inbox/adapters/activitypub/document"
	"inbox/exchange"
)

// TestConversationWithoutAName: where the question has no context our answer names the conversation, what answers it inherits
// the name, and the name leads to the posts.
func TestConversationWithoutAName(t *testing.T) {
	r := newRig(t)
	publicly := func(note map[string]any) { note["to"] = []string{document.Public, r.base + "/agents/echo"} }
	first := r.reply(r.question("1", "hello", publicly), "hi")
	delete(r.engine.replies, first.ID)
	first = r.keep("01939f3e-0000-7000-8000-00000000000b", first)
	named := asCreate(t, r.remote.arrivals()[0]).Object.Thread
	if named != r.base+"/contexts/"+first.TurnID {
		t.Fatalf("the conversation is %q", named)
	}

	post := r.base + "/o/" + first.ID
	r.engine.entries["echo "+post] = exchange.ThreadEntry{TurnID: first.TurnID, ThreadID: first.Message.ThreadID, Message: first.Message, Route: first.Route}
	in := r.question("2", "and now?", publicly, func(note map[string]any) { note["inReplyTo"] = post })
	second := r.reply(in, "later")
	delete(r.engine.replies, second.ID)
	second.TurnID = "01939f3d-0000-7000-8000-00000000000c"
	second = r.keep("01939f3e-0000-7000-8000-00000000000d", second)
	if inherited := asCreate(t, r.remote.arrivals()[1]).Object.Thread; inherited != named {
		t.Errorf("the second answer is in %q, the first in %q", inherited, named)
	}
	if err := r.adapter.outbox.keepFollowUp(t.Context(), second); err != nil {
		t.Fatal(err)
	}

	var shown struct {
		ID, Type     string
		TotalItems   int
		OrderedItems []string
	}
	status, _, body := r.fetch(strings.TrimPrefix(named, r.base), activityMediaType)
	if err := json.Unmarshal([]byte(body), &shown); err != nil || status != http.StatusOK {
		t.Fatalf("%s: %d %s", named, status, body)
	}
	want := []string{r.remote.base + "/notes/1", post, r.remote.base + "/notes/2", r.base + "/o/" + second.ID}
	if shown.ID != named || shown.Type != "OrderedCollection" || shown.TotalItems != len(want) || !slices.Equal(shown.OrderedItems, want) {
		t.Errorf("the conversation shows %s", body)
	}
	if status, _, _ := r.fetch("/contexts/unknown", activityMediaType); status != http.StatusNotFound {
		t.Errorf("an unknown conversation: %d", status)
	}
}

// TestPrivateConversationIsShownToNobody: its name leads nowhere.
func TestPrivateConversationIsShownToNobody(t *testing.T) {
	r := newRig(t)
	in := r.question("1", "hello", func(note map[string]any) { note["to"], note["cc"] = []string{r.base + "/agents/echo"}, []string{} })
	reply := r.reply(in, "hi")
	if status, _, body := r.fetch("/contexts/"+reply.TurnID, activityMediaType); status != http.StatusNotFound {
		t.Errorf("%d %s", status, body)
	}
}

// TestQuestionFoundByItsPage: what people copy from their browser is the page of a post, not its IRI.
func TestQuestionFoundByItsPage(t *testing.T) {
	r := newRig(t)
	page := r.remote.base + "/@alice/1"
	in := r.question("1", "hello", func(note map[string]any) { note["url"] = page })
	r.question("2", "mine now", func(note map[string]any) { note["url"] = page })
	r.question("3", "elsewhere", func(note map[string]any) { note["url"] = "https://elsewhere.example/@alice/3" })

	for address, want := range map[string]string{
		page: in.Message.ID, r.remote.base + "/notes/1": in.Message.ID, "https://elsewhere.example/@alice/3": "", r.remote.base + "/notes/9": "",
	} {
		activity, found, err := ActivityOf(t.Context(), r.state, address)
		if err != nil || activity != want || found != (want != "") {
			t.Errorf("%s is of %q, %v, want %q", address, activity, err, want)
		}
	}
}
