package notetext

import (
	"encoding/json"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/internal/clip"
	"inbox/internal/filetype"
	"inbox/normalized"
)

// MaxFiles is how many attachments of a note are looked at; Mastodon shows four.
const MaxFiles = 16

// Attachments makes a file part by URL of every attached file, and a link part of every attached link. Nothing is
// fetched: that happens on demand, through the guarded client.
func Attachments(note document.Object) []normalized.Part {
	var parts []normalized.Part
	entries := document.List(note["attachment"])
	if document.IsA(note, "Article", "Page") {
		entries = slices.Concat(entries, document.List(note["image"])) // the picture above the title
	}

	if document.IsA(note, "Video", "Audio", "Image") {
		entries = slices.Concat([]any{note}, entries) // it is a file itself (PeerTube, Funkwhale, Pixelfed)
	}

	for _, entry := range entries {
		if part, ok := attachment(entry); ok && len(parts) < MaxFiles && !slices.ContainsFunc(parts, part.Equal) {
			parts = append(parts, part)
		}
	}
	return parts
}

// Occasion says when and where an event is, as one line; empty for any other object.
func Occasion(note document.Object) string {
	if !document.IsA(note, "Event") {
		return ""
	}
	var pieces []string
	for _, name := range []string{"startTime", "endTime"} {
		if at, is := document.Time(note[name]); is {
			pieces = append(pieces, at.Format(time.RFC3339))
		}
	}
	line := strings.Join(pieces, " – ")
	if place := Visible(document.Translated(document.Embedded(note["location"]), "name"), 512); place != "" {
		line = strings.TrimPrefix(line+", "+place, ", ")
	}
	return line
}

// fileTypes are the objects that stand for bytes. Everything else that is attached is a link.
var fileTypes = []string{"Document", "Image", "Video", "Audio", "Page"}

func attachment(entry any) (normalized.Part, bool) {
	attached, _ := entry.(document.Object)
	if href, isText := entry.(string); isText {
		attached = document.Object{"type": "Link", "href": href}
	}
	if attached == nil {
		return normalized.Part{}, false
	}

	name := Visible(document.Text(attached, "name"), 4096)
	href, media := document.Text(attached, "href"), document.Text(attached, "mediaType")
	if !document.IsA(attached, "Link") {
		var own string
		if href, own = fileURL(attached["url"]); own != "" {
			media = own // mediaType of a Video is that of its description
		}
	}
	if !IsAddress(href) {
		return normalized.Part{}, false
	}

	// The contract wants https for files by URL; plain http occurs on development servers only and stays a link.
	if !document.IsA(attached, fileTypes...) || !strings.HasPrefix(href, "https://") {
		return normalized.Part{Kind: normalized.PartLink, URL: href, Title: clip.Bytes(name, 512)}, true
	}

	return normalized.Part{
		Kind: normalized.PartFile, MIME: fileType(media, href, attached), Name: fileName(href), Alt: name,
		BytesRef: &normalized.BytesRef{Kind: normalized.BytesURL, URL: href},
	}, true
}

// maxFileLinks is how many addresses of one file are looked at: PeerTube lists one for each resolution.
const maxFileLinks = 64

// fileURL reads url: a string, a Link, or a list; and the media type. Of a list a file that plays by itself counts before the
// playlist of a stream (HLS), whose files PeerTube lists below it in tag, and the first that is no web page before nothing.
func fileURL(value any) (href, media string) {
	var first, playable document.Object
	looked := 0
	var look func(entries []any)
	look = func(entries []any) {
		for _, entry := range entries {
			link, isLink := entry.(document.Object)
			kind := document.MediaType(document.Text(link, "mediaType"))
			if looked++; !isLink || looked > maxFileLinks || kind == "text/html" || document.Text(link, "href") == "" {
				continue
			}

			if first == nil {
				first = link
			}

			if plays(kind) && (playable == nil || betterFile(link, playable)) {
				playable = link
			}
			if isPlaylist(kind) {
				look(document.List(link["tag"]))
			}
		}
	}

	for _, entry := range document.List(value) {
		if text, isText := entry.(string); isText {
			return text, ""
		}
	}

	look(document.List(value))
	if playable != nil {
		first = playable
	}
	return document.Text(first, "href"), document.Text(first, "mediaType")
}

func plays(media string) bool {
	kind, _, _ := strings.Cut(media, "/")
	return (kind == "video" || kind == "audio") && !isPlaylist(media)
}

func isPlaylist(media string) bool {
	return strings.EqualFold(media, "application/x-mpegurl") || strings.EqualFold(media, "application/vnd.apple.mpegurl") ||
		strings.EqualFold(media, "audio/mpegurl") || strings.EqualFold(media, "audio/x-mpegurl")
}

// preferredHeight is the resolution that a reader gets of several: enough to see, and not the largest file.
const preferredHeight = 720

// betterFile prefers the highest resolution up to preferredHeight, and above it the lowest.
func betterFile(a, b document.Object) bool {
	one, other := heightOf(a), heightOf(b)
	if (one <= preferredHeight) != (other <= preferredHeight) {
		return one <= preferredHeight
	}
	return one != other && (one > other) == (one <= preferredHeight)
}

func heightOf(link document.Object) float64 {
	number, _ := link["height"].(json.Number)
	height, err := number.Float64()
	if err != nil {
		return 0
	}
	return height
}

// fileType is the media type of a file: as stated, by the end of its name, by the type of the object, or unknown.
func fileType(media, href string, attached document.Object) string {
	if media = document.MediaType(media); media != "" && media != "application/octet-stream" {
		return media
	}
	for _, name := range []string{fileName(href), document.Text(attached, "name")} {
		if known := filetype.ByName(name); known != "" {
			return known
		}
	}

	switch {
	case document.IsA(attached, "Image"):
		return "image/jpeg"
	case document.IsA(attached, "Video"):
		return "video/mp4"
	case document.IsA(attached, "Audio"):
		return "audio/mpeg"
	}

	return "application/octet-stream"
}

func fileName(href string) string {
	parsed, err := url.Parse(href)
	if err != nil {
		return ""
	}

	name := path.Base(parsed.Path)
	if name == "." || name == "/" {
		return ""
	}
	return Visible(name, 255)
}

// Poll lists the choices of a Question with their votes so far, and when it ends.
func Poll(note document.Object, now time.Time) string {
	choices := document.List(note["oneOf"])
	if len(choices) == 0 {
		choices = document.List(note["anyOf"])
	}

	var lines []string
	for _, entry := range choices {
		choice, _ := entry.(document.Object)
		if name := Visible(document.Text(choice, "name"), 512); name != "" {
			lines = append(lines, "- "+name+votes(choice))
		}
	}
	if len(lines) == 0 {
		return ""
	}

	if end := pollEnd(note, now); end != "" {
		lines = append(lines, end)
	}
	return strings.Join(lines, "\n")
}

func votes(choice document.Object) string {
	replies := document.Embedded(choice["replies"])
	if count, isNumber := replies["totalItems"].(json.Number); isNumber {
		return " (" + clip.Bytes(count.String(), 20) + ")"
	}
	return ""
}

// pollEnd reads closed, a time or a mere true, before endTime. Pleroma and Akkoma write into closed when an open
// poll will be.
func pollEnd(note document.Object, now time.Time) string {
	if closed, isTime := document.Time(note["closed"]); isTime && closed.After(now) {
		return "Poll ends " + closed.Format(time.RFC3339)
	} else if isTime {
		return "Poll closed " + closed.Format(time.RFC3339)
	}

	if closed, _ := note["closed"].(bool); closed {
		return "Poll closed"
	}
	if end, isTime := document.Time(note["endTime"]); isTime {
		return "Poll ends " + end.Format(time.RFC3339)
	}
	return ""
}

// misskeyQuote marks a link tag as a quote (FEP-e232).
const misskeyQuote = "https://misskey-hub.net/ns#_misskey_quote"

// MaxLinks is how many posts that a note links to are looked at.
const MaxLinks = 8

// LinkedPosts makes a link part of the post that a note quotes, in each of the spellings in use, and of every other post
// that it links to by a tag (FEP-e232). Whether the quote was authorized does not matter to a reader.
func LinkedPosts(note document.Object) []normalized.Part {
	var parts []normalized.Part
	add := func(href, title string) {
		known := func(part normalized.Part) bool { return part.URL == href }
		if IsAddress(href) && len(parts) < MaxLinks && !slices.ContainsFunc(parts, known) {
			parts = append(parts, normalized.Part{Kind: normalized.PartLink, URL: href, Title: title})
		}
	}
	for _, name := range []string{"quote", "quoteUrl", "quoteUri", "_misskey_quote"} {
		if len(parts) == 0 {
			add(document.Reference(note[name]), quotedTitle)
		}
	}

	quoted := len(parts) > 0
	for _, entry := range document.List(note["tag"]) {
		tag, _ := entry.(document.Object)
		if tag == nil || !document.IsA(tag, "Link") || !document.IsActivityType(document.Text(tag, "mediaType"), false) {
			continue
		}

		title := Visible(document.Text(tag, "name"), 512)
		if isQuote := relatesAs(tag["rel"], misskeyQuote); isQuote && quoted {
			continue // a second spelling of the same quote, perhaps by another address
		} else if isQuote {
			title = quotedTitle
		}
		add(document.Text(tag, "href"), title)
	}

	return parts
}

const quotedTitle = "quoted post"

// relatesAs reads rel: one relation, several with blanks between them, or a list.
func relatesAs(rel any, wanted string) bool {
	for _, entry := range document.List(rel) {
		if text, isText := entry.(string); isText && slices.Contains(strings.Fields(text), wanted) {
			return true
		}
	}
	return false
}

// WithoutQuoteLine cuts off the line "RE: address" with which servers show the quoted post to those that know no quotes, where
// it stands first or last. Newer ones mark it by the class quote-inline (hidden); Misskey and its forks did not. The address
// may be that of the post's page.
func WithoutQuoteLine(text string, parts []normalized.Part) string {
	for _, part := range parts {
		if part.Title != quotedTitle {
			continue
		}
		if line, rest, _ := strings.Cut(text, "\n"); isQuoteLine(line, part.URL) {
			text = strings.TrimSpace(rest)
		}

		last := strings.LastIndexByte(text, '\n') + 1
		if isQuoteLine(text[last:], part.URL) {
			text = strings.TrimSpace(text[:last])
		}
	}

	return text
}

func isQuoteLine(line, quoted string) bool {
	for _, word := range []string{"RE: ", "QT: "} {
		if address, is := strings.CutPrefix(line, word); is && !strings.Contains(address, " ") && document.SameOrigin(address, quoted) {
			return true
		}
	}
	return false
}
