package activitypub

import (
	"mime"
	"net/url"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"inbox/internal/markup"
)

// maxAlt is how many characters of a description Mastodon keeps.
const maxAlt = 1500

// attachPicture attaches the picture at an address to a note, and reports whether it could.
type attachPicture func(address, description string) bool

// picture attaches a picture that a text shows, as a file by URL is attached: servers fetch it from its address. That must
// be https and name its kind by its ending; any other picture becomes a link.
func (n *note) picture(address, description string) bool {
	kind := pictureType(address)
	if kind == "" {
		return false
	}
	for _, known := range n.Attachment {
		if known.URL == address {
			return true
		}
	}
	if len(n.Attachment) >= maxReplyFiles {
		return false
	}
	n.Attachment = append(n.Attachment, noteFile{Type: attachmentType(kind), MediaType: kind, URL: address, Name: description})
	return true
}

// pictureType is the media type of a picture that an address names; empty when it names none or may not be attached.
func pictureType(address string) string {
	parsed, err := url.Parse(address)
	if err != nil || parsed.Scheme != "https" || !isAddress(address) {
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
func withoutPictures(content string, attach attachPicture) string {
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

func takePictures(n *html.Node, attach attachPicture, linked bool) {
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

func takePicture(image *html.Node, attach attachPicture, linked bool) {
	address, words := strings.TrimSpace(attribute(image, "src")), strings.Join(strings.Fields(attribute(image, "alt")), " ")
	if utf8.RuneCountInString(words) > maxAlt {
		words = string([]rune(words)[:maxAlt-1]) + "…"
	}
	attached := attach(address, words)
	shown := words
	if shown == "" && isAddress(address) {
		shown = address
	}
	switch {
	case attached && !linked: // the attachment says it all
		replace(image, "")
	case linked || !isAddress(address):
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
	if address := attribute(n, "href"); !left && n.DataAtom == atom.A && isAddress(address) {
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
