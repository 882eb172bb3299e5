package notetext

import (
	"mime"
	"net/url"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"inbox/adapters/activitypub/document"
	"inbox/internal/markup"
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

// withoutPictures takes the pictures out of HTML, which no server shows within a post: each is attached or becomes a link
// that shows its description. What has nothing to show is taken out too.
func withoutPictures(content string, attach Attach) string {
	if !strings.Contains(strings.ToLower(content), "<img") && !slices.ContainsFunc(shownEmpty, func(end string) bool { return strings.Contains(content, end) }) {
		return content
	}
	document, _ := markup.Parse(content, markup.Limits{})
	takePictures(document, attach, false)
	body := document.FirstChild.LastChild
	dropEmpty(body)
	var out strings.Builder
	for child := body.FirstChild; child != nil; child = child.NextSibling {
		if err := html.Render(&out, child); err != nil {
			return "" // a string takes everything
		}
	}

	return out.String()
}

// shownEmpty are ends of links and paragraphs without content.
var shownEmpty = []string{`"></a>`, `'></a>`, `"></p>`, "<p></p>", "--></p>"}

func takePictures(n *html.Node, attach Attach, linked bool) {
	linked = linked || n.DataAtom == atom.A
	for child := n.FirstChild; child != nil; {
		next := child.NextSibling
		if child.DataAtom == atom.Img {
			takePicture(child, attach, linked)
		} else {
			takePictures(child, attach, linked)
		}
		child = next
	}
}

func takePicture(image *html.Node, attach Attach, linked bool) {
	address, words := strings.TrimSpace(attribute(image, "src")), strings.Join(strings.Fields(attribute(image, "alt")), " ")
	if utf8.RuneCountInString(words) > maxAlt {
		words = string([]rune(words)[:maxAlt-1]) + "…"
	}

	attached := attach(address, words)
	shown := words
	if shown == "" && IsAddress(address) {
		shown = address
	}

	switch {
	case attached && !linked: // the attachment says it all
		replace(image, "")
	case linked || !IsAddress(address):
		replace(image, shown)
	default:
		image.DataAtom, image.Data, image.Attr = atom.A, "a", []html.Attribute{{Key: "href", Val: address}}
		image.AppendChild(&html.Node{Type: html.TextNode, Data: shown})
	}
}

// dropEmpty takes out elements that show nothing, and line breaks at the edges of paragraphs; a link without words shows its
// address. It reports whether something is left.
func dropEmpty(n *html.Node) bool {
	switch {
	case n.Type == html.TextNode:
		return strings.TrimSpace(n.Data) != ""
	case n.DataAtom == atom.Br, n.DataAtom == atom.Hr, n.DataAtom == atom.Td, n.DataAtom == atom.Th:
		return n.DataAtom != atom.Br
	}

	left := false
	for child := n.FirstChild; child != nil; {
		next := child.NextSibling
		if dropEmpty(child) {
			left = true
		} else if child.Type == html.ElementNode && child.DataAtom != atom.Br {
			n.RemoveChild(child)
		}
		child = next
	}

	if address := attribute(n, "href"); !left && n.DataAtom == atom.A && IsAddress(address) {
		n.AppendChild(&html.Node{Type: html.TextNode, Data: address})
		return true
	}

	if n.DataAtom == atom.P || n.DataAtom == atom.Li {
		for edge := n.FirstChild; edge != nil && emptyEdge(edge); edge = n.FirstChild {
			n.RemoveChild(edge)
		}
		for edge := n.LastChild; edge != nil && emptyEdge(edge); edge = n.LastChild {
			n.RemoveChild(edge)
		}
	}

	return left
}

func emptyEdge(n *html.Node) bool {
	return n.DataAtom == atom.Br || n.Type == html.TextNode && strings.TrimSpace(n.Data) == ""
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

// AttachmentType is the kind of attachment; servers show a Document by its media type.
func AttachmentType(mime string) string {
	switch kind, _, _ := strings.Cut(mime, "/"); kind {
	case "image":
		return "Image"
	case "video":
		return "Video"
	case "audio":
		return "Audio"
	}

	return "Document"
}
