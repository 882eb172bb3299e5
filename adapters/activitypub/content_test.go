package activitypub

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inbox/adapters/activitypub/notetext"
	"inbox/normalized"
)

// described writes parts in short: text, or kind, address and name.
func described(parts []normalized.Part) (lines []string) {
	for _, part := range parts {
		switch part.Kind {
		case normalized.PartText:
			lines = append(lines, part.Content)
		case normalized.PartLink:
			lines = append(lines, "link "+part.URL+" "+part.Title)
		default:
			lines = append(lines, part.Kind+" "+part.BytesRef.URL+" "+part.MIME+" "+part.Alt)
		}
	}
	return lines
}

const linkType = `application/ld+json; profile="https://www.w3.org/ns/activitystreams"`

// TestNoteContent converts what servers put into notes, row by row.
func TestNoteContent(t *testing.T) {
	long := strings.Repeat("x", 300)
	cases := []struct {
		name string
		note map[string]any // over a Note with the content "hello"
		want []string
	}{
		{"content warning first", map[string]any{"summary": "food"}, []string{"[CW: food]\n\nhello"}},
		{"content warning in a map", map[string]any{"summaryMap": map[string]any{"de": "Essen"}}, []string{"[CW: Essen]\n\nhello"}},
		{"article", map[string]any{"type": "Article", "name": "Title", "summary": "<p>Abstract</p>"}, []string{"Title\n\nAbstract\n\nhello"}},
		{"page with its picture and link", map[string]any{
			"type": "Page", "name": "Title", "image": map[string]any{"type": "Image", "url": "https://f.example/p.png"},
			"attachment": []any{map[string]any{"type": "Link", "href": "https://news.example/1"}},
		}, []string{"Title\n\nhello", "link https://news.example/1 ", "file https://f.example/p.png image/png "}},
		{"chat message", map[string]any{"type": "ChatMessage", "attachment": map[string]any{"type": "Image", "mediaType": "image/png", "url": "https://f.example/c.png"}},
			[]string{"hello", "file https://f.example/c.png image/png "}},
		{"contentMap alone", map[string]any{"content": nil, "contentMap": map[string]any{"en": "one", "de": "eins"}}, []string{"eins"}},
		{"source is not what people saw", map[string]any{"source": map[string]any{"content": "**other**", "mediaType": "text/markdown"}}, []string{"hello"}},
		{"fallback line of a quote", map[string]any{
			"content": `<p class="quote-inline">RE: <a href="https://m.example/9">m.example/9</a></p><p>hello</p>`, "quote": "https://m.example/9",
		}, []string{"hello", "link https://m.example/9 quoted post"}},
		{"fallback line of a quote without a mark (Misskey)", map[string]any{
			"content":  `<p><a href="DOMAIN" class="mention">@echo@DOMAIN</a><span> hello<br><br>RE: </span><a href="https://m.example/notes/9">https://m.example/notes/9</a></p>`,
			"quoteUrl": "https://m.example/notes/9",
		}, []string{"hello", "link https://m.example/notes/9 quoted post"}},
		{"fallback line of a quote at the head, with the address of its page", map[string]any{
			"content": `<p>RE: <a href="https://m.example/@ada/9">m.example/@ada/9</a></p><p>hello</p>`, "quote": "https://m.example/users/ada/statuses/9",
		}, []string{"hello", "link https://m.example/users/ada/statuses/9 quoted post"}},
		{"a line that only looks like the fallback of a quote", map[string]any{
			"content": `<p>hello<br>RE: <a href="https://other.example/9">https://other.example/9</a></p>`, "quote": "https://m.example/9",
		}, []string{"hello\nRE: https://other.example/9", "link https://m.example/9 quoted post"}},
		{"the same line without a quote", map[string]any{"content": `<p>hello<br>RE: <a href="https://m.example/9">https://m.example/9</a></p>`},
			[]string{"hello\nRE: https://m.example/9"}},
		{"quoteUrl", map[string]any{"quoteUrl": "https://m.example/9"}, []string{"hello", "link https://m.example/9 quoted post"}},
		{"quoteUri", map[string]any{"quoteUri": "https://m.example/9"}, []string{"hello", "link https://m.example/9 quoted post"}},
		{"_misskey_quote", map[string]any{"_misskey_quote": "https://m.example/9"}, []string{"hello", "link https://m.example/9 quoted post"}},
		{"all spellings are one quote", map[string]any{
			"quote": "https://m.example/9", "quoteUrl": "https://m.example/9", "_misskey_quote": "https://m.example/9",
			"tag": []any{map[string]any{"type": "Link", "mediaType": linkType, "rel": "https://misskey-hub.net/ns#_misskey_quote", "href": "https://m.example/nine"}},
		}, []string{"hello", "link https://m.example/9 quoted post"}},
		{"quote by a tag", map[string]any{"tag": []any{map[string]any{"type": "Link", "mediaType": activityMediaType, "rel": []any{"https://misskey-hub.net/ns#_misskey_quote"}, "href": "https://m.example/9"}}},
			[]string{"hello", "link https://m.example/9 quoted post"}},
		{"link to another post by a tag", map[string]any{"tag": []any{map[string]any{"type": "Link", "mediaType": linkType, "name": "see this", "href": "https://m.example/9"}}},
			[]string{"hello", "link https://m.example/9 see this"}},
		{"link tag to a page", map[string]any{"tag": []any{map[string]any{"type": "Link", "mediaType": "text/html", "href": "https://m.example/9"}}}, []string{"hello"}},
		{"no address", map[string]any{"quoteUrl": "javascript:alert(1)"}, []string{"hello"}},
		{"attachments", map[string]any{"attachment": []any{
			map[string]any{"type": "Document", "mediaType": "image/PNG", "name": "A cat", "url": "https://f.example/1"},
			map[string]any{"type": "Video", "url": []any{
				map[string]any{"type": "Link", "mediaType": "text/html", "href": "https://f.example/w"},
				map[string]any{"type": "Link", "mediaType": "video/mp4", "href": "https://f.example/v"},
			}},
			map[string]any{"type": "Audio", "mediaType": "audio/ogg", "url": "https://f.example/a"},
			map[string]any{"type": "PropertyValue", "name": "x", "value": "y"},
			"https://f.example/bare", map[string]any{"type": "Image", "url": "file:///etc/passwd"}, 7,
		}}, []string{"hello", "file https://f.example/1 image/png A cat", "file https://f.example/v video/mp4 ", "file https://f.example/a audio/ogg ", "link https://f.example/bare "}},
		{"files without a media type", map[string]any{"attachment": []any{
			map[string]any{"type": "Image", "url": "https://f.example/pictures/1"},
			map[string]any{"type": "Document", "url": "https://f.example/a.WEBP?size=2"},
			map[string]any{"type": "Document", "name": "report.pdf", "url": "https://f.example/2"},
			map[string]any{"type": "Document", "mediaType": "application/octet-stream", "url": "https://f.example/talk.ogg"},
			map[string]any{"type": "Document", "url": "https://f.example/3"},
		}}, []string{
			"hello", "file https://f.example/pictures/1 image/jpeg ", "file https://f.example/a.WEBP?size=2 image/webp ",
			"file https://f.example/2 application/pdf report.pdf", "file https://f.example/talk.ogg audio/ogg ", "file https://f.example/3 application/octet-stream ",
		}},
		{"video whose files are below its playlist", map[string]any{"attachment": []any{map[string]any{
			"type": "Video", "mediaType": "text/markdown", "name": "A film", "url": []any{
				map[string]any{"type": "Link", "mediaType": "text/html", "href": "https://f.example/w"},
				map[string]any{"type": "Link", "mediaType": "application/x-mpegURL", "href": "https://f.example/master.m3u8", "tag": []any{
					map[string]any{"type": "Infohash", "name": "abc"},
					map[string]any{"type": "Link", "mediaType": "application/json", "href": "https://f.example/segments.json"},
					map[string]any{"type": "Link", "mediaType": "video/mp4", "href": "https://f.example/1080.mp4", "height": 1080},
					map[string]any{"type": "Link", "mediaType": "video/mp4", "href": "https://f.example/240.mp4", "height": 240},
					map[string]any{"type": "Link", "mediaType": "video/mp4", "href": "https://f.example/720.mp4", "height": 720},
				}},
			},
		}}}, []string{"hello", "file https://f.example/720.mp4 video/mp4 A film"}},
		{"poll", map[string]any{
			"type": "Question", "anyOf": []any{map[string]any{"name": "Tea", "replies": map[string]any{"totalItems": 3}}, map[string]any{"name": "Milk"}},
			"endTime": "2026-11-22T12:00:00+02:00",
		}, []string{"hello\n\n- Tea (3)\n- Milk\nPoll ends 2026-11-22T10:00:00Z"}},
		{"closed poll", map[string]any{"type": "Question", "oneOf": []any{map[string]any{"name": "Tea"}}, "closed": true}, []string{"hello\n\n- Tea\nPoll closed"}},
		{"ruby", map[string]any{"content": "<ruby>漢字<rt>kanji</rt></ruby> <ruby>東<rp>(</rp><rt>east</rt><rp>)</rp></ruby>"}, []string{"漢字(kanji) 東(east)"}},
		{"our address without a link", map[string]any{"content": "<p>@Echo@DOMAIN: is it <b>open</b>?</p>"}, []string{"is it open?"}},
		{"our address without a link, on a line", map[string]any{"content": "<p>@echo@DOMAIN</p><p>hello</p>"}, []string{"hello"}},
		{"an address that begins like ours", map[string]any{"content": "<p>@echo@DOMAIN.example hello</p>"}, []string{"@echo@DOMAIN.example hello"}},
		{"other schemes", map[string]any{"content": `<a href="gemini://g.example/">capsule</a> <a href="javascript:alert(1)">no</a>`}, []string{"capsule (gemini://g.example/) no"}},
		{"long title", map[string]any{"name": long}, []string{long + "\n\nhello"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			in := r.question("1", "hello", func(note map[string]any) {
				for name, value := range c.note {
					if value == nil {
						delete(note, name)
						continue
					}
					if tags, isList := value.([]any); isList && name == "tag" {
						value = slices.Concat(tags, note["tag"].([]any))
					}
					if text, isText := value.(string); isText {
						value = strings.ReplaceAll(text, "DOMAIN", r.domain)
					}
					note[name] = value
				}
			})
			for i := range c.want {
				c.want[i] = strings.ReplaceAll(c.want[i], "DOMAIN", r.domain)
			}
			if diff := cmp.Diff(c.want, described(in.Message.Parts)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAtMostSixteenFiles(t *testing.T) {
	r := newRig(t)
	in := r.question("1", "hello", func(note map[string]any) {
		var files []any
		for i := range 40 {
			files = append(files, map[string]any{"type": "Image", "url": "https://f.example/" + string(rune('A'+i))})
		}
		note["attachment"] = files
	})
	if got := len(in.Message.Parts); got != 1+notetext.MaxFiles {
		t.Errorf("%d parts", got)
	}
}

// TestFacts: what the text does not say is context in the profile.
func TestFacts(t *testing.T) {
	r := newRig(t)
	in := r.question("1", "hello :blob:", func(note map[string]any) {
		note["sensitive"], note["type"] = true, "Article"
		note["tag"] = append(note["tag"].([]any),
			map[string]any{"type": "Emoji", "name": ":blob:", "icon": map[string]any{"type": "Image", "url": "https://f.example/b.png"}},
			map[string]any{"type": "Emoji", "name": ":bad:", "icon": map[string]any{"url": "javascript:1"}},
			map[string]any{"type": "Hashtag", "name": "#Cats", "href": "https://m.example/tags/cats"})
	})
	var got noteFacts
	if err := json.Unmarshal(in.Message.Sender.Profile.Extensions["activitypub"], &got); err != nil {
		t.Fatal(err)
	}
	want := noteFacts{Type: "Article", Sensitive: true, Hashtags: []string{"#Cats"}, Emoji: []customEmoji{{":blob:", "https://f.example/b.png"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if in.Message.Parts[0].Content != "hello :blob:" {
		t.Errorf("text %q", in.Message.Parts[0].Content)
	}
	if plain := r.question("2", "hello"); plain.Message.Sender.Profile.Extensions != nil {
		t.Errorf("a plain note has extensions %s", plain.Message.Sender.Profile.Extensions)
	}
}
