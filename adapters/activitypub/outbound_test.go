package activitypub

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/signature"
	"inbox/exchange"
	"inbox/internal/capability"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/normalized"
)

// sendAll plans a reply as the engine does and makes every delivery with the action. It returns the reply as stored.
func (r *rig) sendAll(reply exchange.Reply, action string) exchange.Reply {
	r.t.Helper()
	if action == exchange.ActionSend {
		plan, err := r.adapter.outbox.Plan(r.t.Context(), reply)
		if err != nil {
			r.t.Fatal(err)
		}
		reply.Posts, reply.Open = plan.Posts, plan.Open
		r.engine.replies[reply.ID] = reply
	}
	plan, err := chainedPlan(r, reply)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, to := range plan {
		if _, err := r.adapter.outbox.Deliver(r.t.Context(), exchange.Delivery{ID: "d", Attempt: 1, Reply: reply, Destination: to, Action: action}); err != nil {
			r.t.Fatal(err)
		}
	}
	return reply
}

// chainedPlan returns the asker's destinations, one for each post that was sent at first.
func chainedPlan(r *rig, reply exchange.Reply) ([]exchange.Destination, error) {
	asked, err := readRoute(reply.Route)
	if err != nil {
		return nil, err
	}
	return chained([]destination{{Actor: asked.Actor, Inbox: asked.Inbox}}, max(reply.Posts, 1))
}

func (r *rig) bodies() (list []map[string]any) {
	r.t.Helper()
	for _, one := range r.remote.arrivals() {
		var body map[string]any
		if err := json.Unmarshal(one.body, &body); err != nil {
			r.t.Fatal(err)
		}
		list = append(list, body)
	}
	return list
}

func TestLongAnswerIsAChain(t *testing.T) {
	r := newRig(t, func(o *Options) { o.PostLength = 40 })
	reply := r.sendAll(r.reply(r.question("1", "hello"), "The first part of it.\n\nThe second part of it.\n\nThe third part of it."), exchange.ActionSend)
	got := r.bodies()
	if len(got) != 3 {
		t.Fatalf("%d posts", len(got))
	}
	previous := r.remote.base + "/notes/1"
	for i, create := range got {
		note := create["object"].(map[string]any)
		if note["inReplyTo"] != previous || create["id"] != note["id"].(string)+"/activity" {
			t.Errorf("post %d: %v answers %v, want %s", i+1, note["id"], note["inReplyTo"], previous)
		}
		if mentioned := note["tag"] != nil && strings.Contains(note["content"].(string), "mention"); mentioned != (i == 0) {
			t.Errorf("post %d mentions: %v", i+1, mentioned)
		}
		if diff := cmp.Diff(got[0]["to"], create["to"]); diff != "" {
			t.Error(diff)
		}
		path := strings.TrimPrefix(note["id"].(string), r.base)
		status, _, body := r.fetch(path, activityMediaType)
		if status != http.StatusOK || !strings.Contains(body, `"id":"`+note["id"].(string)+`"`) {
			t.Errorf("%s: %d", path, status)
		}
		previous = note["id"].(string)
	}
	if status, _, _ := r.fetch("/o/"+reply.ID+"/4", activityMediaType); status != http.StatusNotFound {
		t.Errorf("a fourth post: %d", status)
	}
	if _, _, page := r.fetch("/o/"+reply.ID, "text/html"); !strings.Contains(page, "third part") {
		t.Error("the page of the first post does not show the whole answer")
	}
	if got := r.adapter.firstPost(previous); got != r.base+"/o/"+reply.ID {
		t.Errorf("the answer of the last post is %s", got)
	}
}

// TestPrivateChainMentionsInEveryPost: GoToSocial shows a direct post to those whom its tags mention and to no one else.
func TestPrivateChainMentionsInEveryPost(t *testing.T) {
	r := newRig(t, func(o *Options) { o.PostLength = 40 })
	in := r.question("1", "psst", func(note map[string]any) { direct(r, note) })
	r.sendAll(r.reply(in, "The first part of it.\n\nThe second part of it."), exchange.ActionSend)
	got := r.bodies()
	if len(got) != 2 {
		t.Fatalf("%d posts", len(got))
	}
	for i, create := range got {
		note := create["object"].(map[string]any)
		tags, _ := note["tag"].([]any)
		if len(tags) != 1 || tags[0].(map[string]any)["href"] != r.remote.actor("alice") || !strings.Contains(note["content"].(string), "mention") {
			t.Errorf("post %d: %v", i+1, note)
		}
	}
}

// TestChatIsAnsweredInTheChat: Lemmy takes private messages as ChatMessage alone, and Pleroma shows a Note elsewhere.
func TestChatIsAnsweredInTheChat(t *testing.T) {
	r := newRig(t)
	chat := func(id string, change func(map[string]any)) exchange.Inbound {
		return r.question(id, "psst", func(note map[string]any) {
			note["type"] = chatMessage
			delete(note, "tag")
			change(note)
		})
	}
	reply := r.sendAll(r.reply(chat("1", func(note map[string]any) { direct(r, note) }), "psst!"), exchange.ActionSend)
	create := r.bodies()[0]
	said := create["object"].(map[string]any)
	if said["type"] != chatMessage || said["tag"] != nil || said["content"] != "<p>psst!</p>" || said["inReplyTo"] != r.remote.base+"/notes/1" ||
		!cmp.Equal(said["to"], any([]any{r.remote.actor("alice")})) || !strings.Contains(fmt.Sprint(create["@context"]), "litepub:ChatMessage") {
		t.Errorf("%v", create)
	}
	reply.DeletedAt = reply.CreatedAt
	r.engine.replies[reply.ID] = reply
	if status, _, body := r.fetch("/o/"+reply.ID, activityMediaType); status != http.StatusGone || !strings.Contains(body, `"formerType":"ChatMessage"`) {
		t.Errorf("deleted: %d %s", status, body)
	}
	// What is public is no chat, and neither is what goes to others, too.
	open := r.reply(chat("2", func(map[string]any) {}), "hello")
	if made := must(r.adapter.renderer.render(open, 1, nil, withoutAddress)); made.Type != "Note" || len(made.Tag) != 1 {
		t.Errorf("%+v", made)
	}
	wider := r.reply(chat("3", func(note map[string]any) { direct(r, note) }), "hello")
	wider.Response.Cc = []string{"@bob@elsewhere.example"}
	if made := must(r.adapter.renderer.render(wider, 1, nil, withoutAddress)); made.Type != "Note" {
		t.Errorf("%+v", made)
	}
}

func TestEditedAnswer(t *testing.T) {
	r := newRig(t, func(o *Options) { o.PostLength = 40 })
	reply := r.sendAll(r.reply(r.question("1", "hello"), "The first part of it.\n\nThe second part of it."), exchange.ActionSend)
	reply.Response.Parts = []normalized.Part{normalized.Text("Short.")}
	reply.Revision, reply.EditedAt = 1, reply.CreatedAt.Add(time.Hour)
	edited := reply
	edited.Posts = r.adapter.PostsOf(reply)
	r.engine.replies[reply.ID] = edited
	reply.Posts = 2 // the destinations of the first sending
	for i, to := range must(chainedPlan(r, reply)) {
		if _, err := r.adapter.outbox.Deliver(t.Context(), exchange.Delivery{ID: fmt.Sprint(i), Attempt: 1, Reply: edited, Destination: to, Action: exchange.ActionUpdate}); err != nil {
			t.Fatal(err)
		}
	}
	got := r.bodies()[2:]
	note := got[0]["object"].(map[string]any)
	if got[0]["type"] != "Update" || note["updated"] != "2026-11-21T13:00:00Z" || !strings.Contains(note["content"].(string), "Short.") || got[0]["proof"] == nil {
		t.Errorf("update %v", got[0])
	}
	grave := got[1]["object"].(map[string]any)
	if got[1]["type"] != "Delete" || grave["type"] != "Tombstone" || grave["id"] != r.base+"/o/"+reply.ID+"/2" {
		t.Errorf("the post that is left out: %v", got[1])
	}
	if status, _, _ := r.fetch("/o/"+reply.ID+"/2", activityMediaType); status != http.StatusGone {
		t.Errorf("its address: %d", status)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func TestDeletedAnswer(t *testing.T) {
	r := newRig(t)
	reply := r.sendAll(r.reply(r.question("1", "hello"), "hi"), exchange.ActionSend)
	reply.DeletedAt, reply.Response.Parts = reply.CreatedAt.Add(time.Hour), nil
	r.engine.replies[reply.ID] = reply
	r.sendAll(reply, exchange.ActionDelete)
	got := r.bodies()[1]
	want := map[string]any{"id": r.base + "/o/" + reply.ID, "type": "Tombstone", "formerType": "Note", "deleted": "2026-11-21T13:00:00Z"}
	if diff := cmp.Diff(want, got["object"]); got["type"] != "Delete" || diff != "" {
		t.Errorf("%v: %s", got["type"], diff)
	}
	for _, path := range []string{"", "/activity"} {
		status, header, body := r.fetch("/o/"+reply.ID+path, activityMediaType)
		if status != http.StatusGone || !strings.Contains(body, `"Tombstone"`) || !strings.HasPrefix(header.Get("Content-Type"), activityMediaType) {
			t.Errorf("%q: %d %s", path, status, body)
		}
	}
	if _, _, body := r.fetch("/agents/echo/outbox?page=true", activityMediaType); strings.Contains(body, reply.ID) {
		t.Error("the outbox lists it")
	}
}

func TestOutboxPages(t *testing.T) {
	r := newRig(t)
	in := r.question("1", "hello")
	for i := 10; i < 35; i++ {
		reply := r.reply(in, "hi")
		delete(r.engine.replies, reply.ID)
		reply.ID = fmt.Sprintf("01939f3e-0000-7000-8000-0000000000%02d", i)
		r.engine.replies[reply.ID] = reply
	}
	var page outboxPageDocument
	read := func(path string) []string {
		_, _, body := r.fetch(path, activityMediaType)
		page = outboxPageDocument{}
		if err := json.Unmarshal([]byte(body), &page); err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, entry := range page.OrderedItems {
			ids = append(ids, entry.Object.ID[len(entry.Object.ID)-2:])
		}
		return ids
	}
	first := read("/agents/echo/outbox?page=true")
	if len(first) != 20 || first[0] != "34" || first[19] != "15" {
		t.Errorf("first page %v", first)
	}
	second := read(strings.TrimPrefix(page.Next, r.base))
	if diff := cmp.Diff([]string{"14", "13", "12", "11", "10"}, second); diff != "" || page.Next != "" {
		t.Errorf("second page %s, next %q", diff, page.Next)
	}
}

func TestSpreadReachesEachInboxOnce(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.FollowersGetReplies = true
		o.HostAllowed = func(host string) bool { return host != "blocked.example" }
	})
	for i := range 250 {
		host := fmt.Sprintf("https://h%02d.example", i%40)
		if i%40 == 7 {
			host = "https://blocked.example"
		}
		entry := follower{Inbox: fmt.Sprintf("%s/u/%d/inbox", host, i), SharedInbox: host + "/inbox"}
		if i%40 == 8 {
			entry.SharedInbox = ""
		}
		value, _ := json.Marshal(entry)
		_ = r.state.Put(t.Context(), FollowerNamespace+"echo", fmt.Sprintf("%s/u/%d", host, i), value, time.Time{})
	}
	reply := r.reply(r.question("1", "hello"), "hi")
	plan := must(r.adapter.outbox.Plan(t.Context(), reply))
	if !plan.Spread || !plan.Open {
		t.Fatalf("plan %+v", plan)
	}
	inboxes, cursor, rounds := map[string]int{}, "", 0
	for {
		places, next, err := r.adapter.outbox.Spread(t.Context(), reply, cursor)
		if err != nil {
			t.Fatal(err)
		}
		for _, place := range places {
			inboxes[place.Address]++
		}
		if rounds++; next == "" {
			break
		}
		cursor = next
	}
	if rounds != 3 || len(inboxes) != 38+7 { // 38 servers by their shared inbox, 7 followers of one that has none
		t.Errorf("%d inboxes in %d rounds", len(inboxes), rounds)
	}
	for inbox, times := range inboxes {
		if times != 1 || strings.Contains(inbox, "blocked") {
			t.Errorf("%s: %d times", inbox, times)
		}
	}
	made := must(r.adapter.renderer.render(reply, 1, nil, withoutAddress))
	followers := r.base + "/agents/echo/followers"
	if diff := cmp.Diff([]string{followers}, made.To) + cmp.Diff([]string{document.Public, r.remote.actor("alice")}, made.Cc); diff != "" {
		t.Error(diff)
	}
}

func TestMedia(t *testing.T) {
	r := newRig(t)
	png := normalized.Part{Kind: normalized.PartFile, MIME: "image/png", Name: "../a b.png", Alt: "A cat", Size: 4, BytesRef: normalized.Inline([]byte("\x89PNG"))}
	page := normalized.Part{Kind: normalized.PartFile, MIME: "text/html", Name: "x.html", BytesRef: normalized.Inline([]byte("<script>"))}
	reply := r.sendAll(r.reply(r.question("1", "hello"), "see", png, page), exchange.ActionSend)
	made := must(r.adapter.renderer.render(reply, 1, nil, withoutAddress))
	if len(made.Attachment) != 2 || made.Attachment[0].Type != "Document" || made.Attachment[0].Name != "A cat" || made.Attachment[0].Size != 4 {
		t.Fatalf("attachments %+v", made.Attachment)
	}
	status, header, body := r.fetch(strings.TrimPrefix(made.Attachment[0].URL, r.base), "")
	if status != http.StatusOK || body != "\x89PNG" || header.Get("Content-Type") != "image/png" || header.Get("X-Content-Type-Options") != "nosniff" ||
		!strings.Contains(header.Get("Content-Security-Policy"), "sandbox") || header.Get("ETag") == "" || header.Get("Content-Disposition") != `inline; filename="a b.png"` {
		t.Errorf("picture %d %v", status, header)
	}
	_, header, _ = r.fetch(strings.TrimPrefix(made.Attachment[1].URL, r.base), "")
	if header.Get("Content-Type") != "application/octet-stream" || !strings.HasPrefix(header.Get("Content-Disposition"), "attachment") {
		t.Errorf("page %v", header)
	}
	request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, made.Attachment[0].URL, nil)
	request.Header.Set("Range", "bytes=1-2")
	response, err := r.client.Transport.RoundTrip(request)
	if err != nil || response.StatusCode != http.StatusPartialContent {
		t.Errorf("range: %v %v", response, err)
	} else {
		_ = response.Body.Close()
	}
	r.mediaOfPrivateAnswers(png)
}

// mediaOfPrivateAnswers: the digest alone opens nothing.
func (r *rig) mediaOfPrivateAnswers(file normalized.Part) {
	r.t.Helper()
	in := r.question("2", "psst", func(note map[string]any) { note["to"], note["cc"] = []string{r.base + "/agents/echo"}, []string{} })
	reply := r.sendAll(r.reply(in, file), exchange.ActionSend)
	made := must(r.adapter.renderer.render(reply, 1, nil, withoutAddress))
	path := strings.TrimPrefix(made.Attachment[0].URL, r.base)
	if status, header, _ := r.fetch(path, ""); status != http.StatusOK || !strings.Contains(header.Get("Cache-Control"), "private") {
		r.t.Errorf("with its key: %d %v", status, header)
	}
	keyless, _, _ := strings.Cut(path, "?")
	digest := digestOfPart(file)
	secret := must(r.adapter.media.loadSecret())
	sum := hmac.New(sha256.New, secret) // as versions before decision 0137 made keys, which servers and people have
	sum.Write([]byte(reply.ID + "\n" + digest))
	old := base64.RawURLEncoding.EncodeToString(sum.Sum(nil))
	if status, _, _ := r.fetch(keyless+"?reply="+reply.ID+"&key="+old, ""); status != http.StatusOK {
		r.t.Errorf("with the key of an older version: %d", status)
	}
	another := capability.Mint(secret, keyClaim("another answer", digest))
	for _, query := range []string{"", "?reply=" + reply.ID, "?reply=" + reply.ID + "&key=AAAA", "?reply=" + reply.ID + "&key=" + another} {
		if status, _, _ := r.fetch(keyless+query, ""); status != http.StatusNotFound {
			r.t.Errorf("%q: %d, want 404", query, status)
		}
	}
	reply.DeletedAt = reply.CreatedAt
	r.engine.replies[reply.ID] = reply
	for _, address := range []string{path, keyless + "?reply=" + reply.ID + "&key=" + old} {
		if status, _, _ := r.fetch(address, ""); status != http.StatusGone {
			r.t.Errorf("after the answer was deleted: %d", status)
		}
	}
}

func TestAuthorizedFetch(t *testing.T) {
	r := newRig(t, func(o *Options) { o.AuthorizedFetch = true })
	reply := r.sendAll(r.reply(r.question("1", "hello"), "hi"), exchange.ActionSend)
	for _, path := range []string{"/agents/echo", "/agents/echo/outbox", "/agents/echo/followers", "/o/" + reply.ID, "/o/" + reply.ID + "/activity"} {
		if status, header, _ := r.fetch(path, activityMediaType); status != http.StatusUnauthorized ||
			header.Get("Accept-Signature") != `sig1=("@method" "@target-uri" "@authority");created;keyid` {
			t.Errorf("%s unsigned: %d %v", path, status, header)
		}
		signed := r.deliver("")
		signed.method, signed.path, signed.body = http.MethodGet, path, nil
		signed.covered = []string{"(request-target)", "host", "date"}
		signed.header.Set("Accept", activityMediaType)
		if status, body, _ := r.send(signed.sign()); status != http.StatusOK {
			t.Errorf("%s signed: %d %s", path, status, body)
		}
	}
	if status, _, _ := r.fetch("/actor", activityMediaType); status != http.StatusOK {
		t.Errorf("the server's own actor: %d", status)
	}
}

// TestAuthorizedFetchIsNotTalkedRound: what has no page is a document whatever is asked for, and a signer whom the operator
// excludes reads nothing.
func TestAuthorizedFetchIsNotTalkedRound(t *testing.T) {
	var excluded string
	r := newRig(t, func(o *Options) {
		o.AuthorizedFetch, o.ActorAllowed = true, func(iri string) bool { return iri != excluded }
	})
	reply := r.sendAll(r.reply(r.question("1", "hello"), "hi"), exchange.ActionSend)
	for _, path := range []string{"/agents/echo/outbox", "/agents/echo/outbox?page=true", "/agents/echo/followers", "/agents/echo/featured", "/o/" + reply.ID + "/activity", "/agents/echo/quotes/x"} {
		for _, accept := range []string{"text/html", "*/*", ""} {
			if status, _, body := r.fetch(path, accept); status != http.StatusUnauthorized {
				t.Errorf("%s for %q: %d %s", path, accept, status, body)
			}
		}
	}
	if status, header, _ := r.fetch("/o/"+reply.ID, "text/html"); status != http.StatusOK || !strings.HasPrefix(header.Get("Content-Type"), "text/html") {
		t.Errorf("the page of a public post: %d %v", status, header)
	}
	excluded = r.remote.actor("alice")
	signed := r.deliver("")
	signed.method, signed.path, signed.body = http.MethodGet, "/agents/echo/outbox", nil
	signed.covered = []string{"(request-target)", "host", "date"}
	r.want(signed.sign(), http.StatusForbidden, "does not accept")
}

// TestActorAtTheProfile: the address that people copy from the browser leads other servers to the actor.
func TestActorAtTheProfile(t *testing.T) {
	r := newRig(t)
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("page")) })
	router, err := httpserver.New(httpserver.Options{WithoutHealth: true, Routes: []httpserver.Route{
		{Method: http.MethodGet, Pattern: "/@{agent}", Handler: r.adapter.profiles.AtProfile(page)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for accept, document := range map[string]bool{
		acceptActivity: true, "application/activity+json": true, `application/ld+json; profile="https://www.w3.org/ns/activitystreams"`: true,
		"application/activity+json, text/html;q=0.1": true,
		"": false, "*/*": false, "text/html": false, "application/json": false, "text/html, application/activity+json;q=0.1": false,
	} {
		request := httptest.NewRequest(http.MethodGet, "/@echo", nil)
		request.Header.Set("Accept", accept)
		answer := httptest.NewRecorder()
		router.Handler().ServeHTTP(answer, request)
		got := strings.HasPrefix(answer.Header().Get("Content-Type"), "application/activity+json") && strings.Contains(answer.Body.String(), `"id":"`+r.base+`/agents/echo"`)
		if answer.Code != http.StatusOK || got != document || answer.Header().Get("Vary") != "Accept" {
			t.Errorf("%q: %d %v %.60s", accept, answer.Code, answer.Header(), answer.Body)
		}
		link := "<" + r.base + `/agents/echo>; rel="alternate"; type="application/activity+json"`
		if got := answer.Header().Get("Link"); !document && got != link || document && got != "" {
			t.Errorf("%q: Link %q", accept, got)
		}
	}
}

// TestPicturesHaveTheirSize: other servers leave room for a picture before they have it.
func TestPicturesHaveTheirSize(t *testing.T) {
	r := newRig(t)
	var picture bytes.Buffer
	if err := png.Encode(&picture, image.NewGray(image.Rect(0, 0, 30, 20))); err != nil {
		t.Fatal(err)
	}
	file := func(mime string, content []byte) normalized.Part {
		return normalized.Part{Kind: normalized.PartFile, MIME: mime, Name: "a", BytesRef: normalized.Inline(content)}
	}
	reply := r.reply(r.question("1", "hello"), "see", file("image/png", picture.Bytes()), file("image/png", picture.Bytes()[:20]), file("text/plain", picture.Bytes()))
	for range 2 { // the second time from memory
		made := must(r.adapter.renderer.render(reply, 1, nil, withoutAddress))
		for i, want := range [][2]int{{30, 20}, {0, 0}, {0, 0}} {
			if got := made.Attachment[i]; got.Width != want[0] || got.Height != want[1] {
				t.Errorf("file %d: %d × %d, want %v", i, got.Width, got.Height, want)
			}
		}
	}
}

// TestWhoMayQuoteStandsOnTheNote: Mastodon reads the policy from the note, never from its author (FEP-044f).
func TestWhoMayQuoteStandsOnTheNote(t *testing.T) {
	for fans, want := range map[bool]string{true: "/agents/echo/followers", false: "/agents/echo"} {
		r := newRig(t, func(o *Options) { o.Profile = func(string) Profile { return Profile{QuotesByFans: fans} } })
		made := must(r.adapter.renderer.render(r.reply(r.question("1", "hello"), "hi"), 1, nil, withoutAddress))
		if made.Interaction == nil || !slices.Equal(made.Interaction.CanQuote.Automatic, []string{r.base + want}) {
			t.Errorf("followers quote %v: %+v", fans, made.Interaction)
		}
		private := r.question("2", "psst", func(note map[string]any) { direct(r, note) })
		if made := must(r.adapter.renderer.render(r.reply(private, "hi"), 1, nil, withoutAddress)); made.Interaction != nil {
			t.Errorf("a private note has a policy: %+v", made.Interaction)
		}
	}
}

func TestRotatedKey(t *testing.T) {
	r := newRig(t)
	before := must(r.adapter.keys.key(t.Context(), "echo"))
	keyID, err := r.adapter.profiles.RotateKey(t.Context(), "Echo")
	if err != nil {
		t.Fatal(err)
	}
	_, _, body := r.fetch("/agents/echo", activityMediaType)
	var actor actorDocument
	if err := json.Unmarshal([]byte(body), &actor); err != nil {
		t.Fatal(err)
	}
	old := r.base + "/agents/echo#main-key"
	if actor.ID != r.base+"/agents/echo" || actor.PublicKey.ID != keyID || keyID == old || actor.PublicKey.PEM == before.Public {
		t.Errorf("key %+v", actor.PublicKey)
	}
	if len(actor.AssertionMethod) != 2 || actor.AssertionMethod[1].ID != old {
		t.Errorf("former keys %+v", actor.AssertionMethod)
	}
	if jobs := r.engine.takeJobs(jobAnnounce); len(jobs) != 1 || !strings.Contains(jobs[0], keyID) {
		t.Errorf("announced %v", jobs)
	}
	reply := r.reply(r.question("1", "hello"), "hi")
	if err := r.deliverReply(reply, 0, 1); err != nil {
		t.Fatal(err)
	}
	if got := r.remote.arrivals()[0].header.Get("Signature"); !strings.Contains(got, keyID) {
		t.Errorf("signed with %s", got)
	}
	r.clock.Add(int64(8 * 24 * time.Hour))
	if _, _, body := r.fetch("/agents/echo", activityMediaType); strings.Contains(body, "#main-key") {
		t.Error("the old key is published for longer than a week")
	}
}

func TestMoveOut(t *testing.T) {
	r := newRig(t)
	own := r.base + "/agents/echo"
	r.remote.addActor("bob", aliceKey(), nil)
	if _, err := r.adapter.moves.Move(t.Context(), "echo", r.remote.actor("bob")); !fault.Is(err, fault.Forbidden) || !strings.Contains(err.Error(), "alsoKnownAs") {
		t.Errorf("without the alias: %v", err)
	}
	r.remote.addActor("carol", aliceKey(), func(doc map[string]any) { doc["alsoKnownAs"] = []string{own} })
	value, _ := json.Marshal(follower{Inbox: r.remote.actor("alice") + "/inbox", SharedInbox: r.remote.base + "/inbox"})
	_ = r.state.Put(t.Context(), FollowerNamespace+"echo", r.remote.actor("alice"), value, time.Time{})
	target, err := r.adapter.moves.Move(t.Context(), "echo", r.remote.actor("carol"))
	if err != nil || target != r.remote.actor("carol") {
		t.Fatalf("%s, %v", target, err)
	}
	if _, _, body := r.fetch("/agents/echo", activityMediaType); !strings.Contains(body, `"movedTo":"`+target+`"`) {
		t.Error("the actor does not say so")
	}
	if _, err := r.adapter.moves.Move(t.Context(), "echo", r.remote.actor("dave")); err == nil {
		t.Error("moved to an account that does not exist")
	}
	for _, job := range r.engine.takeJobs(jobAnnounce) {
		more, err := r.adapter.Perform(t.Context(), job, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, later := range more {
			for range 2 { // the second time nothing happens
				if _, err := r.adapter.Perform(t.Context(), later.Payload, 1); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	kinds := []any{}
	for _, body := range r.bodies() {
		kinds = append(kinds, body["type"])
	}
	if diff := cmp.Diff([]any{"Move", "Update"}, kinds); diff != "" {
		t.Error(diff)
	}
	if err := r.adapter.moves.Unmove(t.Context(), "echo"); err != nil {
		t.Error(err)
	}
}

func TestAcceptSignatureIsHonoured(t *testing.T) {
	r := newRig(t)
	reply := r.reply(r.question("1", "hello"), "hi")
	r.remote.answer(func(w http.ResponseWriter) {
		w.Header().Set("Accept-Signature", `sig9=("@method" "@path" "@authority" "content-type");created;nonce="n1";alg="rsa-v1_5-sha256"`)
		w.WriteHeader(http.StatusUnauthorized)
	}, status(http.StatusAccepted))
	if err := r.deliverReply(reply, 0, 1); err != nil {
		t.Fatal(err)
	}
	got := r.remote.arrivals()[1].header.Get("Signature-Input")
	if !strings.HasPrefix(got, `sig9=("@method" "@path" "@authority" "content-type" "content-digest");created=`) || !strings.Contains(got, `nonce="n1"`) {
		t.Errorf("signed %s", got)
	}
	if known := r.adapter.transport.schemeOf(t.Context(), document.HostOf(r.remote.base)); known.Scheme != signature.RFC9421 || len(known.Components) != 5 {
		t.Errorf("remembered %+v", known)
	}
	if err := r.deliverReply(reply, 0, 2); err != nil || strings.Contains(r.remote.arrivals()[2].header.Get("Signature-Input"), "nonce") {
		t.Errorf("the next one: %v", err)
	}
}

func TestFollowersOfAGoneInboxAreDropped(t *testing.T) {
	for name, c := range map[string]struct{ code, times int }{"410 at once": {410, 1}, "404 the third time": {404, 3}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			for _, who := range []string{"alice", "bob"} {
				value, _ := json.Marshal(follower{Inbox: r.remote.actor(who) + "/inbox", SharedInbox: r.remote.base + "/inbox"})
				_ = r.state.Put(t.Context(), FollowerNamespace+"echo", r.remote.actor(who), value, time.Time{})
			}
			// Carol followed with another inbox; her account says this one by now.
			carol := r.remote.actor("carol")
			if err := errors.Join(r.adapter.putJSON(t.Context(), FollowerNamespace+"echo", carol, follower{Inbox: carol + "/old"}),
				r.adapter.putJSON(t.Context(), actorNamespace, carol, remoteActor{Actor: document.Actor{ID: carol, Inbox: carol + "/inbox", SharedInbox: r.remote.base + "/inbox"}})); err != nil {
				t.Fatal(err)
			}
			for i := range c.times {
				if !r.state.Has(FollowerNamespace+"echo", r.remote.actor("bob")) {
					t.Fatalf("dropped before attempt %d", i+1)
				}
				r.remote.answer(status(c.code))
				_, err := r.adapter.transport.post(t.Context(), outgoing{agent: "echo", actor: r.remote.actor("alice"), inbox: r.remote.base + "/inbox", body: []byte("{}"), attempt: 1, shared: true})
				if !fault.Of(err).Permanent {
					t.Errorf("%v, want the end", err)
				}
			}
			for _, who := range []string{"alice", "bob", "carol"} {
				if r.state.Has(FollowerNamespace+"echo", r.remote.actor(who)) {
					t.Errorf("%s still follows", who)
				}
			}
		})
	}
}

// TestReachOfAFailure: what one inbox answers, or that it hangs, is not known to be its host's failure; a closed port is.
func TestReachOfAFailure(t *testing.T) {
	r := newRig(t)
	post := func(inbox string) error {
		_, err := r.adapter.transport.post(t.Context(), outgoing{agent: "echo", actor: r.remote.actor("alice"), inbox: inbox, body: []byte("{}"), attempt: 1})
		return err
	}
	cut := func(http.ResponseWriter) { panic(http.ErrAbortHandler) }
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter)
		want   exchange.Reach
	}{
		"gone": {status(410), exchange.ReachRecipient}, "not there": {status(404), exchange.ReachRecipient}, "forbidden": {status(403), exchange.ReachRecipient},
		"refused": {status(401), exchange.ReachRecipient}, "failed": {status(500), exchange.ReachSession}, "busy": {status(503), exchange.ReachSession},
		"asks to wait": {status(429), exchange.ReachSession}, "cut": {cut, exchange.ReachSession},
	} {
		r.remote.answer(c.answer, c.answer)
		if err := post(r.remote.actor("alice") + "/inbox"); err == nil || exchange.ReachOf(err) != c.want {
			t.Errorf("%s: reach %d, want %d: %v", name, exchange.ReachOf(err), c.want, err)
		}
	}

	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	if err := post(closed.URL + "/inbox"); err == nil || exchange.ReachOf(err) != exchange.ReachNone {
		t.Errorf("a closed port: reach %d: %v", exchange.ReachOf(err), err)
	}

	target := destination{Address: "@ghost@" + document.HostOf(r.remote.base)}
	_, _, err := r.adapter.outbox.relay(t.Context(), exchange.Reply{ID: "01939f3e-0000-7000-8000-000000000002", Route: json.RawMessage(`{}`), Response: normalized.Response{To: []string{target.Address}}}, target)
	if err == nil || exchange.ReachOf(err) != exchange.ReachSession {
		t.Errorf("an account that WebFinger does not know: reach %d: %v", exchange.ReachOf(err), err)
	}
}
