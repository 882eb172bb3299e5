package activitypub

import (
	"maps"
	"net/http"
	"strings"
	"testing"

	"inbox/adapters/activitypub/notetext"
	"inbox/normalized"
)

// TestEveryAttachmentIsADocument: Lemmy refuses the whole note for a Video or an Audio.
func TestEveryAttachmentIsADocument(t *testing.T) {
	r := newRig(t)
	for _, media := range []string{"video/mp4", "audio/ogg", "image/png", "application/pdf"} {
		file := normalized.Part{
			Kind: normalized.PartFile, MIME: media, BytesRef: &normalized.BytesRef{Kind: normalized.BytesURL, URL: "https://f.example/1"},
		}
		reply := r.reply(r.question(strings.ReplaceAll(media, "/", "-"), "hello"), "here", file)
		made, err := r.adapter.renderer.render(reply, 1, nil, withoutAddress)
		if err != nil || len(made.Attachment) != 1 || made.Attachment[0].Type != "Document" || made.Attachment[0].MediaType != media {
			t.Errorf("%s: %+v, %v", media, made.Attachment, err)
		}
	}
}

// TestSlashedInbox: a delivery follows a redirect that adds or takes a slash at the end of the path, once, and no other.
func TestSlashedInbox(t *testing.T) {
	for name, c := range map[string]struct {
		status   int
		location string
		want     []string // paths that were posted to
	}{
		"308, relative":    {308, "/users/alice/inbox/", []string{"/users/alice/inbox", "/users/alice/inbox/"}},
		"301":              {301, "BASE/users/alice/inbox/", []string{"/users/alice/inbox", "/users/alice/inbox/"}},
		"307":              {307, "inbox/", []string{"/users/alice/inbox", "/users/alice/inbox/"}},
		"302":              {302, "/users/alice/inbox/", []string{"/users/alice/inbox"}},
		"another path":     {308, "/users/bob/inbox/", []string{"/users/alice/inbox"}},
		"another host":     {308, "https://elsewhere.example/users/alice/inbox/", []string{"/users/alice/inbox"}},
		"with a query":     {308, "/users/alice/inbox/?x", []string{"/users/alice/inbox"}},
		"itself":           {308, "/users/alice/inbox", []string{"/users/alice/inbox"}},
		"no address":       {308, "", []string{"/users/alice/inbox"}},
		"with credentials": {308, "http://user@HOST/users/alice/inbox/", []string{"/users/alice/inbox"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			location := strings.ReplaceAll(strings.ReplaceAll(c.location, "BASE", r.remote.base), "HOST", strings.TrimPrefix(r.remote.base, "http://"))
			r.remote.answer(func(w http.ResponseWriter) {
				if location != "" {
					w.Header().Set("Location", location)
				}
				w.WriteHeader(c.status)
			})
			inbox := r.remote.actor("alice") + "/inbox"
			_, err := r.adapter.transport.post(t.Context(), outgoing{agent: "echo", inbox: inbox, body: []byte("{}"), attempt: 1})
			var paths []string
			for _, got := range r.remote.arrivals() {
				paths = append(paths, got.path)
				r.checkArrival(got, "echo")
			}
			if strings.Join(paths, " ") != strings.Join(c.want, " ") || (err == nil) != (len(c.want) == 2) {
				t.Errorf("posted to %v, %v; want %v", paths, err, c.want)
			}
		})
	}

	t.Run("a circle", func(t *testing.T) {
		r := newRig(t)
		to := func(path string) func(http.ResponseWriter) {
			return func(w http.ResponseWriter) {
				w.Header().Set("Location", path)
				w.WriteHeader(http.StatusPermanentRedirect)
			}
		}
		r.remote.answer(to("/users/alice/inbox/"), to("/users/alice/inbox"), to("/users/alice/inbox/"))
		if _, err := r.adapter.transport.post(t.Context(), outgoing{agent: "echo", inbox: r.remote.actor("alice") + "/inbox", body: []byte("{}"), attempt: 1}); err == nil || len(r.remote.arrivals()) != 2 {
			t.Errorf("%v after %d posts", err, len(r.remote.arrivals()))
		}
	})
}

// TestReasonsOfReports: in content as Mastodon writes them, in summary as Lemmy and Mbin do.
func TestReasonsOfReports(t *testing.T) {
	for name, c := range map[string]struct {
		members map[string]any
		want    string
	}{
		"content":        {map[string]any{"content": "it lies"}, "it lies ("},
		"summary":        {map[string]any{"summary": "it lies"}, "it lies ("},
		"both":           {map[string]any{"content": "it lies", "summary": "spam"}, "it lies · spam ("},
		"the same twice": {map[string]any{"content": "spam", "summary": "spam"}, "spam ("},
		"a translation":  {map[string]any{"summaryMap": map[string]any{"en": "spam"}}, "spam ("},
		"empty":          {map[string]any{"content": "", "summary": " "}, "no comment ("},
		"nothing":        {nil, "no comment ("},
	} {
		r := newRig(t)
		flag := r.simple("Flag", r.base+"/agents/echo")
		maps.Copy(flag, c.members)
		r.accept(flag)
		if len(r.engine.audit) != 1 || !strings.HasPrefix(r.engine.audit[0].Detail, c.want) {
			t.Errorf("%s: %+v, want %q", name, r.engine.audit, c.want)
		}
	}
}

// TestLateUndo: an Undo of what a newer activity replaced changes nothing; one of an activity that never came here counts by what it says.
func TestLateUndo(t *testing.T) {
	for _, kind := range []string{"Follow", "Block"} {
		for name, c := range map[string]struct {
			ids  []string // of the activities, in order
			undo string
			want bool
		}{
			"of the older": {[]string{"a", "b"}, "a", true}, "of the newer": {[]string{"a", "b"}, "b", false}, "of the only": {[]string{"a"}, "a", false},
			"of one that never came": {[]string{"a", "b"}, "c", false}, "without an id": {[]string{"a", "b"}, "", false},
		} {
			r := newRig(t)
			activity := func(id string) map[string]any {
				one := r.simple(kind, r.base+"/agents/echo")
				one["id"] = r.remote.base + "/" + id
				if id == "" {
					delete(one, "id")
				}
				return one
			}
			for _, id := range c.ids {
				r.accept(activity(id))
			}
			r.accept(r.simple("Undo", activity(c.undo)))
			namespace := FollowerNamespace
			if kind == "Block" {
				namespace = blockNamespace
			}
			if got := r.state.Has(namespace+"echo", r.remote.actor("alice")); got != c.want {
				t.Errorf("%s, %s: stands %v, want %v", kind, name, got, c.want)
			}
		}
	}

	t.Run("of a Follow that waits", func(t *testing.T) {
		r := newRig(t, func(o *Options) { o.Follows = func(string) string { return FollowHold } })
		for _, id := range []string{"a", "b"} {
			follow := r.simple("Follow", r.base+"/agents/echo")
			follow["id"] = r.remote.base + "/" + id
			r.accept(follow)
		}
		older := r.simple("Follow", r.base+"/agents/echo")
		older["id"] = r.remote.base + "/a"
		r.accept(r.simple("Undo", older))
		if !r.state.Has(PendingNamespace+"echo", r.remote.actor("alice")) {
			t.Error("the newer Follow does not wait any more")
		}
	})
}

// TestFlagsStayWhole: the flags of England, Scotland and Wales are made of tags, which are removed everywhere else.
func TestFlagsStayWhole(t *testing.T) {
	tags := func(region string) string {
		return "\U0001f3f4" + strings.Map(func(r rune) rune { return 0xe0000 + r }, region) + "\U000e007f"
	}
	for _, region := range []string{"gbeng", "gbsct", "gbwls"} {
		text := "I am from " + tags(region) + "!"
		r := newRig(t)
		in := r.question("1", "<p>"+text+"</p>")
		if got := in.Message.Parts[0].Content; got != text {
			t.Errorf("%q, want %q", got, text)
		}
		if got := notetext.Visible(text, 256); got != text {
			t.Errorf("%q, want %q", got, text)
		}
	}
	if got := notetext.Visible("\U0001f3f4"+tags("hidden words")[4:]+"x\U000e0041", 256); got != "\U0001f3f4x" {
		t.Errorf("%q: hidden letters stay", got)
	}
}
