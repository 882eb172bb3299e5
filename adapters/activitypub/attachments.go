package activitypub

import (
	"net/url"
	"path"
	"slices"
	"strings"

	"inbox/normalized"
)

// maxFiles is how many attachments of a note are looked at; Mastodon shows four.
const maxFiles = 16

// attachments makes a file part by URL of every attached file, and a link part of every attached link. Nothing is
// fetched: that happens on demand, through the guarded client.
func attachments(note object) []normalized.Part {
	var parts []normalized.Part
	entries := listed(note["attachment"])
	if isA(note, "Article", "Page") {
		entries = slices.Concat(entries, listed(note["image"])) // the picture above the title
	}
	for _, entry := range entries {
		if part, ok := attachment(entry); ok && len(parts) < maxFiles && !slices.ContainsFunc(parts, part.Equal) {
			parts = append(parts, part)
		}
	}
	return parts
}

// fileTypes are the objects that stand for bytes. Everything else that is attached is a link.
var fileTypes = []string{"Document", "Image", "Video", "Audio", "Page"}

func attachment(entry any) (normalized.Part, bool) {
	attached, _ := entry.(object)
	if href, isText := entry.(string); isText {
		attached = object{"type": "Link", "href": href}
	}
	if attached == nil {
		return normalized.Part{}, false
	}
	name := visible(str(attached, "name"), 4096)
	href, media := str(attached, "href"), str(attached, "mediaType")
	if !isA(attached, "Link") {
		var own string
		if href, own = fileURL(attached["url"]); media == "" {
			media = own
		}
	}
	if !isAddress(href) {
		return normalized.Part{}, false
	}
	// The contract wants https for files by URL; plain http occurs on development servers only and stays a link.
	if !isA(attached, fileTypes...) || !strings.HasPrefix(href, "https://") {
		return normalized.Part{Kind: normalized.PartLink, URL: href, Title: clip(name, 512)}, true
	}
	return normalized.Part{
		Kind: normalized.PartFile, MIME: fileType(media), Name: fileName(href), Alt: name,
		BytesRef: &normalized.BytesRef{Kind: normalized.BytesURL, URL: href},
	}, true
}

// isAddress keeps what the contract would refuse out of the message: one odd link must not cost the whole note.
func isAddress(text string) bool {
	parsed, err := url.Parse(text)
	if err != nil || parsed.User != nil {
		return false
	}
	_, ok := origin(text)
	return ok
}

// fileURL reads url: a string, a Link, or a list of which the first that is not a web page counts; and its media type.
func fileURL(value any) (href, media string) {
	for _, entry := range listed(value) {
		if text, isText := entry.(string); isText {
			return text, ""
		}
		if link, isLink := entry.(object); isLink && str(link, "mediaType") != "text/html" {
			return str(link, "href"), str(link, "mediaType")
		}
	}
	return "", ""
}

func fileType(media string) string {
	if media = mediaType(media); media != "" {
		return media
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
	return visible(name, 255)
}
