package activitypub

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/notetext"
	"inbox/adapters/activitypub/signature"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/golden"
	"inbox/normalized"
)

// golden compares a JSON document with a file, after the addresses of this run are replaced.
var proofValues = regexp.MustCompile(`"proofValue":"z[1-9A-Za-z]+"`)

func (r *rig) golden(name string, content []byte) {
	r.t.Helper()
	text := strings.NewReplacer(
		r.base, "https://inbox.example", r.domain, "inbox.example",
		r.remote.base, "https://m.example", document.HostOf(r.remote.base), "m.example",
	).Replace(string(content))
	text = proofValues.ReplaceAllString(text, `"proofValue":"z…"`) // it signs the port of this run
	golden.Compare(r.t, name, append(golden.Indented(r.t, []byte(text)), '\n'))
}

func TestActorDocuments(t *testing.T) {
	r := newRig(t)
	for path, file := range map[string]string{"/agents/echo": "actor.json", "/agents/ECHO": "actor.json", "/actor": "instance.json"} {
		status, header, body := r.fetch(path, acceptActivity)
		if status != http.StatusOK || header.Get("Content-Type") != "application/activity+json; charset=utf-8" || header.Get("ETag") == "" ||
			header.Get("Vary") != "Accept" || !strings.Contains(header.Get("Cache-Control"), "max-age=180") {
			t.Errorf("%s: %d %v", path, status, header)
		}
		var actor actorDocument
		if err := json.Unmarshal([]byte(body), &actor); err != nil {
			t.Fatal(err)
		}
		if _, err := signature.ParseKey(actor.PublicKey.PEM); err != nil {
			t.Error(err)
		}
		pem, _ := json.Marshal(actor.PublicKey.PEM)
		r.golden(file, []byte(strings.Replace(body, string(pem), `"PEM"`, 1)))
	}
}

func TestWebFingerLinks(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.Profile = func(string) Profile { return Profile{Icon: "https://inbox.example/echo.png"} }
	})
	links := r.adapter.profiles.Links(r.profile("echo"))
	if len(links) != 2 || links[0].Rel != "self" || links[0].Href != r.base+"/agents/echo" || links[0].Type != activityMediaType ||
		links[1].Rel != "http://webfinger.net/rel/avatar" || links[1].Type != "image/png" || links[1].Href != "https://inbox.example/echo.png" {
		t.Errorf("%+v", links)
	}
	if links := newRig(t).adapter.profiles.Links(r.profile("echo")); len(links) != 1 {
		t.Errorf("without a picture: %+v", links)
	}
}

func TestContentNegotiation(t *testing.T) {
	r := newRig(t)
	cases := []struct {
		accept   string
		status   int
		location string
	}{
		{"", 200, ""}, {"*/*", 200, ""}, {"application/activity+json", 200, ""},
		{`application/ld+json; profile="https://www.w3.org/ns/activitystreams"`, 200, ""}, {"application/ld+json", 200, ""},
		{"application/json", 200, ""}, {"text/html, application/activity+json", 200, ""},
		{"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", 303, "/@echo"}, {"text/html", 303, "/@echo"},
		{"image/png", 406, ""},
		// what Mastodon's search, Misskey, Lemmy and GoToSocial send
		{`application/activity+json, application/ld+json; profile="https://www.w3.org/ns/activitystreams", text/html;q=0.1`, 200, ""},
		{"application/activity+json, application/ld+json", 200, ""}, {`application/activity+json,application/ld+json;profile="https://www.w3.org/ns/activitystreams"`, 200, ""},
		{"Application/Activity+JSON ; q=0.9 , */* ; q=0.1", 200, ""}, {`application/ld+json; profile="https://other.example/"`, 200, ""},
		// what is preferred counts, and what is refused is not sent
		{"text/html, application/activity+json;q=0.5", 303, "/@echo"}, {"text/html;q=0.5, application/activity+json;q=0.5", 200, ""},
		{"application/activity+json;q=0, */*", 303, "/@echo"}, {"application/activity+json;q=0", 406, ""}, {"text/html;q=0, */*", 200, ""},
		{"application/activity+json;q=high", 200, ""}, {"*/*;q=0", 406, ""}, {"text/*", 303, "/@echo"}, {"application/activity+jsonx", 406, ""},
	}
	for _, c := range cases {
		status, header, _ := r.fetch("/agents/echo", c.accept)
		if status != c.status || header.Get("Location") != strings.Replace(c.location, "/@", r.base+"/@", 1) || header.Get("Vary") != "Accept" {
			t.Errorf("%q: %d %v", c.accept, status, header)
		}
	}
	_, header, _ := r.fetch("/agents/echo", "*/*")
	request, _ := http.NewRequest(http.MethodGet, r.base+"/agents/echo", nil)
	request.Header.Set("If-None-Match", header.Get("ETag"))
	response, err := r.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusNotModified {
		t.Errorf("known document: %d", response.StatusCode)
	}
}

func TestCollections(t *testing.T) {
	r := newRig(t)
	reply := r.reply(r.question("1", "hello"), "hi")
	secret := reply
	secret.ID = "01939f3e-0000-7000-8000-000000000002"
	secret.Response.Visibility = normalized.VisibilityDirect
	r.engine.replies[secret.ID] = secret
	for path, file := range map[string]string{
		"/agents/echo/outbox": "outbox.json", "/agents/echo/outbox?page=true": "outbox-page.json",
		"/agents/echo/followers": "followers.json", "/agents/echo/following": "following.json", "/agents/echo/featured": "featured.json",
		"/actor/outbox": "instance-outbox.json",
	} {
		status, _, body := r.fetch(path, activityMediaType)
		if status != http.StatusOK {
			t.Errorf("%s: %d %s", path, status, body)
			continue
		}
		r.golden(file, []byte(body))
	}
	for path, want := range map[string]int{
		"/agents/nobody": 404, "/agents/nobody/outbox": 404, "/agents/echo/nothing": 404, "/agents/echo/inbox": 405, "/actor/followers": 404,
	} {
		if status, _, _ := r.fetch(path, activityMediaType); status != want {
			t.Errorf("%s: %d, want %d", path, status, want)
		}
	}
}

func TestNotes(t *testing.T) {
	r := newRig(t)
	reply := r.reply(r.question("1", "hello"), normalized.Markdown("**hi** <script>alert(1)</script>"))
	_, _, body := r.fetch("/o/"+reply.ID, activityMediaType)
	r.golden("note.json", []byte(body))
	_, _, body = r.fetch("/o/"+reply.ID+"/activity", activityMediaType)
	r.golden("create.json", []byte(body))
	status, header, page := r.fetch("/o/"+reply.ID, "text/html")
	if status != http.StatusOK || !strings.Contains(page, "<strong>hi</strong>") || strings.Contains(withoutFrame(t, page), "<script") ||
		!strings.HasPrefix(header.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Errorf("page %d %v\n%s", status, header, page)
	}
	if status, _, _ := r.fetch("/o/nothing", activityMediaType); status != http.StatusNotFound {
		t.Errorf("unknown note: %d", status)
	}
}

// TestRenderedResponses is about everything that an answer can hold.
func TestRenderedResponses(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Blobs = noBlobs{} })
	in := r.question("1", "hello", func(note map[string]any) {
		note["summary"], note["sensitive"] = "food", true
		note["contentMap"] = map[string]string{"de": "hello"}
		note["context"], note["conversation"] = "https://m.example/contexts/1", "tag:m.example,2026:1"
	})
	reply := r.reply(in,
		normalized.Markdown("# Title\n\nOne *two*\nthree https://example.org/x.\n\n- a\n- b\n\n```\ncode <b>\n```\n\n[bad](javascript:alert(1)) ~~gone~~"),
		"plain <b>text</b>\nsecond line\n\nhttps://example.org/a?b=1&c=2.",
		normalized.Part{Kind: normalized.PartText, MIME: normalized.MIMEHTML, Content: `<h2 onclick="x">H</h2><p style="x">ok<img src=x onerror=alert(1)></p>`},
		normalized.Part{Kind: normalized.PartLink, URL: "https://example.org/", Title: "A <site>"},
		normalized.Part{Kind: normalized.PartFile, MIME: "image/png", Name: "a.png", Alt: "A cat", BytesRef: normalized.At("https://files.example/a.png")},
		normalized.Part{Kind: normalized.PartFile, MIME: "image/png", Name: "b.png", BytesRef: normalized.Stored(strings.Repeat("ab", 32))},
		normalized.Part{Kind: normalized.PartFile, MIME: "text/plain", Name: "c<.txt", BytesRef: normalized.Inline([]byte("x"))},
		normalized.Part{Kind: normalized.PartToolCall, ID: "1", Name: "secret_tool"},
	)
	made, err := r.adapter.renderer.render(reply, 1, nil, r.adapter.options.Present)
	if err != nil {
		t.Fatal(err)
	}
	body, err := document.Encode(made)
	if err != nil {
		t.Fatal(err)
	}
	r.golden("rendered.json", body)
	failed := r.reply(in)
	failed.Response.Status, failed.Response.Error = normalized.StatusFailed, &normalized.ResponseError{Message: "Something broke <here>."}
	made, err = r.adapter.renderer.render(failed, 1, nil, r.adapter.options.Present)
	if err != nil || !strings.Contains(made.Content, "Something broke &lt;here&gt;.") {
		t.Errorf("failed: %s, %v", made.Content, err)
	}
}

// noBlobs is a store of files with nothing in it.
type noBlobs struct{}

func (noBlobs) Open(context.Context, string) (io.ReadCloser, error) {
	return nil, fault.New(fault.NotFound, "no such content")
}

// TestNormalizedMessages checks whole messages of different servers against golden files.
//
//contract:shows message-1 message-3 message-10 message-12 message-15 message-34 message-40 message-46 message-49 message-52
func TestNormalizedMessages(t *testing.T) {
	files, err := filepath.Glob("testdata/inbound/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no files in testdata/inbound")
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			r := newRig(t)
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			body := strings.NewReplacer("https://inbox.example", r.base, "inbox.example", r.domain, "https://m.example", r.remote.base, "m.example", document.HostOf(r.remote.base)).Replace(string(raw))
			r.want(r.deliver(body).sign(), http.StatusAccepted, "")
			taken := r.engine.All()
			if len(taken) != 1 {
				t.Fatalf("%d messages", len(taken))
			}
			r.golden(filepath.Join("normalized", filepath.Base(file)), r.stable(taken[0]))
		})
	}
}

// stable blanks what differs from run to run. TestThreads looks at the conversation, whose id follows from the port of the test server.
func (r *rig) stable(in exchange.Inbound) []byte {
	message := in.Message
	message.ReceivedAt.Time = in.Message.ReceivedAt.Time.Truncate(0).AddDate(-in.Message.ReceivedAt.Year()+1, 0, 0)
	stable := map[string]any{
		"id": message.ID, "in_reply_to": message.InReplyTo, "recipient": message.Recipient,
		"parts": message.Parts, "sender": map[string]any{
			"address": message.Sender.Address.String(), "display_name": message.Sender.DisplayName, "auth_method": message.Sender.AuthMethod,
			"verified": message.Sender.Verified, "key_id": message.Sender.KeyID, "username": message.Sender.Profile.Username,
			"url": message.Sender.Profile.URL, "subject": message.Sender.Identities[0].Subject, "method": message.Sender.Identities[0].Method,
			"claims": message.Sender.Identities[0].Claims, "audience": message.Sender.Identities[0].Audience,
		},
		"capabilities": message.RecipientCapabilities, "received_via": message.ReceivedVia, "route": in.Route, "no_reply": in.NoReply,
	}
	body, err := document.Encode(stable)
	if err != nil {
		r.t.Fatal(err)
	}
	return body
}

// TestPicturesOfAnswersDoNotVanish: a picture in Markdown is attached with its description, or is a link.
func TestPicturesOfAnswersDoNotVanish(t *testing.T) {
	cases := []struct {
		name, source, want string
		attached           []string // type, address and description
	}{
		{"alone", "![a cat](https://i.example/cat.png)", "", []string{"Document https://i.example/cat.png a cat"}},
		{"between words", "Look:\n![a *grey* cat](https://i.example/cat.JPG?x=1 \"title\")\nNice?", "<p>Look:<br>\n<br>\nNice?</p>", []string{"Document https://i.example/cat.JPG?x=1 a grey cat"}},
		{"at the end of a paragraph", "Look:\n![cat](https://i.example/cat.webp)\n\nNice?", "<p>Look:</p>\n<p>Nice?</p>", []string{"Document https://i.example/cat.webp cat"}},
		{"without description", "![](https://i.example/cat.gif)", "", []string{"Document https://i.example/cat.gif "}},
		{"of unknown kind", "![cat](https://i.example/cat)", `<p><a href="https://i.example/cat" rel="nofollow noreferrer">cat</a></p>`, nil},
		{"of unknown kind without description", "![](https://i.example/cat)", `<p><a href="https://i.example/cat" rel="nofollow noreferrer">https://i.example/cat</a></p>`, nil},
		{"not by https", "![cat](http://i.example/cat.png)", `<p><a href="http://i.example/cat.png" rel="nofollow noreferrer">cat</a></p>`, nil},
		{"without an address", "a ![cat](cat.png) ![](x.png) b ![d](data:image/png;base64,AAAA)", "<p>a cat (cat.png) x.png b d</p>", nil},
		{"in a link", "[![cat](https://i.example/cat.png)](https://a.example/)", `<p><a href="https://a.example/" rel="nofollow noreferrer">cat</a></p>`, []string{"Document https://i.example/cat.png cat"}},
		{"in a link without description", "[![](https://i.example/cat.png)](https://a.example/)", `<p><a href="https://a.example/" rel="nofollow noreferrer">https://i.example/cat.png</a></p>`, []string{"Document https://i.example/cat.png "}},
		{"in a link, without an address and words", "[![](cat.png)](https://a.example/)", `<p><a href="https://a.example/" rel="nofollow noreferrer">https://a.example/</a></p>`, nil},
		{"none, but a link without words", "a [](https://a.example/) b", `<p>a <a href="https://a.example/" rel="nofollow noreferrer">https://a.example/</a> b</p>`, nil},
		{"none, but a link of HTML without words", "one\n\n<a href=\"https://a.example/\"></a>\n\ntwo", `<p>one</p>
<p><a href="https://a.example/" rel="nofollow noreferrer">https://a.example/</a></p>
<p>two</p>`, nil},
		{"in a list", "- ![a](https://i.example/1.png)\n- b", "<ul>\n\n<li>b</li>\n</ul>", []string{"Document https://i.example/1.png a"}},
		{"twice", "![a](https://i.example/1.png)![a](https://i.example/1.png)", "", []string{"Document https://i.example/1.png a"}},
		{"more than servers show", "![1](https://i.example/1.png)![2](https://i.example/2.png)![3](https://i.example/3.png)![4](https://i.example/4.png)![5](https://i.example/5.png)",
			`<p><a href="https://i.example/5.png" rel="nofollow noreferrer">5</a></p>`,
			[]string{"Document https://i.example/1.png 1", "Document https://i.example/2.png 2", "Document https://i.example/3.png 3", "Document https://i.example/4.png 4"}},
		{"a film", "![f](https://i.example/f.mp4)", "", []string{"Document https://i.example/f.mp4 f"}},
	}
	for _, c := range cases {
		made := &note{}
		if got := notetext.HTML(normalized.Markdown(c.source), made.picture); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
		var attached []string
		for _, file := range made.Attachment {
			attached = append(attached, file.Type+" "+file.URL+" "+file.Name)
		}
		if !slices.Equal(attached, c.attached) {
			t.Errorf("%s: attached %q, want %q", c.name, attached, c.attached)
		}
	}
	for content, want := range map[string]string{
		`<p>x</p><p><img src="https://i.example/1.png" alt="one"></p>`: "<p>x</p>",
		`<p></p><p class='a'></p><p>x</p>`:                             "<p>x</p>",
		`<p>x</p><p><a href='https://a.example/'></a></p>`:             `<p>x</p><p><a href="https://a.example/" rel="nofollow noreferrer">https://a.example/</a></p>`,
		`<p>x</p><p><a href="javascript:alert(1)"></a></p>`:            "<p>x</p>",
	} {
		made := &note{}
		got := notetext.HTML(normalized.Part{Kind: normalized.PartText, MIME: normalized.MIMEHTML, Content: content}, made.picture)
		if pictured := strings.Contains(content, "<img"); got != want || pictured && (len(made.Attachment) != 1 || made.Attachment[0].Name != "one") {
			t.Errorf("%s:\n got %s, %+v\nwant %s", content, got, made.Attachment, want)
		}
	}
}

// TestRemovedAgent: other servers learn that an agent whose keys are here is gone, and of all others that they never were.
func TestRemovedAgent(t *testing.T) {
	r := newRig(t)
	_ = r.state.Put(t.Context(), keyNamespace, rsaPrefix+"former", ownTestKey(), time.Time{})
	for path, want := range map[string]int{
		"/agents/former": 410, "/agents/FORMER": 410, "/agents/former/followers": 410, "/agents/former/outbox": 410,
		"/agents/nobody": 404, "/agents/nobody/outbox": 404, "/agents/echo": 200,
	} {
		if status, _, body := r.fetch(path, activityMediaType); status != want {
			t.Errorf("%s: %d %s, want %d", path, status, body, want)
		}
	}
	for name, want := range map[string]int{"former": http.StatusGone, "nobody": http.StatusNotFound} {
		d := r.hello()
		d.path = "/agents/" + name + "/inbox"
		r.refused(t, d.sign(), want, 0)
	}
	for name, want := range map[string]bool{"former": true, "Former": true, "nobody": false, "echo": false, "": false, "a b": false} {
		if got := r.adapter.Removed(t.Context(), name); got != want {
			t.Errorf("Removed(%q) = %v", name, got)
		}
	}
}
