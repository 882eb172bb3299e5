package notetext

import (
	"mime"
	"net/url"
	"path"
	"strings"

	"inbox/adapters/activitypub/document"
)

// maxAlt is how many characters of a description Mastodon keeps.
const maxAlt = 1500

// Attach attaches the picture at an address to a note, and reports whether it could.
type Attach func(address, description string) bool

// PictureType is the media type of a picture that an address names; empty when it names none or may not be attached.
func PictureType(address string) string {
	parsed, err := url.Parse(address)
	if err != nil || parsed.Scheme != "https" || !IsAddress(address) {
		return ""
	}

	switch strings.ToLower(path.Ext(parsed.Path)) {
	case ".png":
		return "image/png"
	case ".jpg", ".jpeg", ".jfif":
		return "image/jpeg"
	case ".gif":
		return "image/gif"
	case ".webp":
		return "image/webp"
	case ".avif":
		return "image/avif"
	case ".heic":
		return "image/heic"
	case ".mp4", ".m4v", ".webm", ".mov", ".mp3", ".ogg", ".flac", ".wav":
		kind, _, _ := strings.Cut(mime.TypeByExtension(path.Ext(parsed.Path)), ";")
		return kind
	}

	return ""
}

// IsAddress keeps what the contract would refuse out of the message: one odd link must not cost the whole note.
func IsAddress(text string) bool {
	parsed, err := url.Parse(text)
	if err != nil || parsed.User != nil {
		return false
	}
	_, ok := document.Origin(text)
	return ok
}
