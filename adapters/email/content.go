package email

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"inbox/internal/fault"
	"inbox/normalized"
)

// Bounds of what an agent gets; the original keeps the rest.
const (
	maxTextBytes   = 256 << 10
	maxFiles       = 60
	maxNameBytes   = 200
	maxInlineTotal = 1 << 20 // of all files of a mail; what is over goes to the blob store
)

// content is what a mail says, the same for each of its recipients.
type content struct {
	text      string // without subject
	mime      string
	forwarded []string // text of enclosed mails
	files     []normalized.Part
	left      int // files that were left out
}

// content reads the MIME tree. Large files go to the blob store first, so that a message never points at nothing.
func (a *Adapter) content(ctx context.Context, mail *arrival) (content, error) {
	walk := &mimeWalk{}
	root, err := walk.parseEntity(mail.fields, mail.body, 0, "text/plain")
	if err != nil {
		return content{}, fault.InField("body", err.Error())
	}
	reader := &contentReader{blobs: a.options.Blobs, walk: walk, budget: 2*len(mail.mail) + 64<<10}
	if err := reader.read(ctx, root, false); err != nil {
		return content{}, err
	}
	reader.result.text = strings.TrimSpace(reader.text.String())
	return reader.result, nil
}

// contentReader collects text and files from a tree, in order.
type contentReader struct {
	blobs  Blobs
	walk   *mimeWalk
	inline int
	budget int // decoded bytes left; base64 and quoted-printable never grow, so twice the wire size is plenty
	text   strings.Builder
	result content
}

// read takes one node. related is set below multipart/related, where everything behind the root is a resource.
func (r *contentReader) read(ctx context.Context, node *entity, related bool) error {
	switch {
	case node.media == "multipart/alternative" && len(node.children) > 0:
		return r.readAlternative(ctx, node)
	case len(node.children) > 0:
		for i, child := range node.children {
			if err := r.read(ctx, child, related || (node.media == "multipart/related" && i > 0)); err != nil {
				return err
			}
		}
		return nil
	case node.media == "message/rfc822" || node.media == "message/global":
		return r.readEnclosed(ctx, node)
	case node.isText() && !related:
		r.addText(node.readText())
		return nil
	}
	return r.addFile(ctx, node)
}

// readAlternative takes the plain text, unless it only says that there is HTML; else the richest form that we read.
func (r *contentReader) readAlternative(ctx context.Context, node *entity) error {
	var plain, rich *entity
	for _, child := range node.children {
		switch {
		case child.media == "text/plain" && plain == nil:
			plain = child
		case child.holds("text/html"):
			rich = child
		case child.media == "text/calendar":
			if err := r.addFile(ctx, child); err != nil {
				return err
			}
		}
	}
	switch {
	case plain != nil && (rich == nil || !stub(plain)):
		content, mime := plain.readText()
		r.addText(content, mime)
		return r.readResources(ctx, rich)
	case rich != nil:
		return r.read(ctx, rich, false)
	}
	return r.read(ctx, node.children[len(node.children)-1], false)
}

// readResources keeps the files that came with an HTML form whose text was not needed.
func (r *contentReader) readResources(ctx context.Context, node *entity) error {
	if node == nil || len(node.children) == 0 {
		return nil
	}
	for _, child := range node.children {
		if child.isText() || len(child.children) > 0 {
			continue
		}
		if err := r.addFile(ctx, child); err != nil {
			return err
		}
	}
	return nil
}

// readEnclosed gives a forwarded mail as a file and its text as well: it often is the request.
func (r *contentReader) readEnclosed(ctx context.Context, node *entity) error {
	fields, body, err := splitHeader(node.decodeBody())
	if err == nil {
		inner, err := r.walk.parseEntity(fields, body, 1, "text/plain")
		if err != nil {
			return fault.InField("body", err.Error())
		}
		if summary := enclosedText(fields, inner); summary != "" {
			r.result.forwarded = append(r.result.forwarded, summary)
		}
	}
	return r.addFile(ctx, node)
}

func enclosedText(fields header, root *entity) string {
	var out strings.Builder
	out.WriteString("Enclosed mail\n")
	for _, name := range []string{"From", "To", "Date", "Subject"} {
		if value := fields.decoded(name); value != "" {
			fmt.Fprintf(&out, "%s: %s\n", name, value)
		}
	}
	if text := root.firstText(); text != "" {
		out.WriteString("\n" + text)
	}
	return truncate(strings.TrimSpace(out.String()))
}

func (e *entity) firstText() string {
	if e.isText() {
		text, _ := e.readText()
		return text
	}
	best := ""
	for _, child := range e.children {
		if text := child.firstText(); text != "" && (best == "" || child.media == "text/plain") {
			return text
		}
	}
	return best
}

func (e *entity) holds(media string) bool {
	if e.media == media {
		return true
	}
	for _, child := range e.children {
		if child.holds(media) {
			return true
		}
	}
	return false
}

// isText says whether a leaf is to be read rather than to be kept as a file.
func (e *entity) isText() bool {
	if e.media != "text/plain" && e.media != "text/html" {
		return false
	}
	disposition, params := mediaType(e.fields.get("Content-Disposition"), "inline")
	return disposition != "attachment" && params["filename"] == ""
}

// readText decodes charset, flow and HTML.
func (e *entity) readText() (content, mime string) {
	text := decodeCharset(e.decodeBody(), e.params["charset"])
	if e.media == "text/html" {
		content, mime = fromHTML(text)
		return readable(content), mime
	}
	if strings.EqualFold(e.params["format"], "flowed") {
		text = unflow(text, strings.EqualFold(e.params["delsp"], "yes"))
	}
	return readable(text), normalized.MIMEPlain
}

// decodeCharset makes UTF-8. A missing, unknown or wrong charset never loses text.
func decodeCharset(raw []byte, label string) string {
	switch label = strings.ToLower(strings.TrimSpace(label)); label {
	case "", "us-ascii", "ascii":
		return utf8Text(raw)
	case "utf-8", "utf8":
		if utf8.Valid(raw) {
			return string(raw)
		}
		return strings.ToValidUTF8(string(raw), "\uFFFD")
	}
	reader, err := charsetReader(label, bytes.NewReader(raw))
	if err != nil {
		return utf8Text(raw)
	}
	var out bytes.Buffer
	if _, err := out.ReadFrom(reader); err != nil {
		return utf8Text(raw)
	}
	return strings.ToValidUTF8(out.String(), "\uFFFD")
}

// readable makes line ends LF and removes controls and runes that hide or turn text.
func readable(text string) string {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	if harmless(text) {
		return strings.TrimSpace(text)
	}
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == 0x200d: // the joiner holds emoji together
			return r
		case unicode.IsControl(r) || invisible(r):
			return -1
		}
		return r
	}, text))
}

// harmless is the common case, and ten times cheaper to see than to rewrite.
func harmless(text string) bool {
	for i := range len(text) {
		if c := text[i]; c >= 0x7f || (c < ' ' && c != '\n' && c != '\t') {
			return false
		}
	}
	return true
}

func (r *contentReader) addText(text, mime string) {
	if strings.TrimSpace(text) == "" {
		return
	}
	if r.text.Len() > 0 {
		r.text.WriteString("\n\n")
	}
	r.text.WriteString(truncate(text))
	if r.result.mime == "" || mime == normalized.MIMEMarkdown {
		r.result.mime = mime
	}
}

func truncate(text string) string {
	if len(text) <= maxTextBytes {
		return text
	}
	return strings.ToValidUTF8(text[:maxTextBytes], "") + "\n\n[The text was cut after 256 KiB; the original mail is kept.]"
}

// stub says whether a plain text part only points at the HTML part.
func stub(node *entity) bool {
	text, _ := node.readText()
	if strings.TrimSpace(text) == "" {
		return true
	}
	lower := strings.ToLower(text)
	if len(lower) > 300 || !strings.Contains(lower, "html") {
		return false
	}
	for _, sign := range []string{"view", "format", "support", "compatible", "anzeig", "client", "version"} {
		if strings.Contains(lower, sign) {
			return true
		}
	}
	return false
}

// addFile keeps a leaf as a file part.
func (r *contentReader) addFile(ctx context.Context, node *entity) error {
	if len(r.result.files) >= maxFiles {
		r.result.left++
		return nil
	}
	body := node.decodeBody()
	if r.budget -= len(body); r.budget < 0 {
		return fault.InField("body", "the decoded files are larger than the mail")
	}
	ref, err := r.keep(ctx, body)
	if err != nil {
		return err
	}
	r.result.files = append(r.result.files, normalized.Part{
		Kind: normalized.PartFile, MIME: fileType(node, body), Name: fileName(node), Size: int64(len(body)), BytesRef: ref,
	})
	return nil
}

func (r *contentReader) keep(ctx context.Context, body []byte) (*normalized.BytesRef, error) {
	if len(body) <= normalized.MaxInlineBytes && r.inline+len(body) <= maxInlineTotal {
		r.inline += len(body)
		return &normalized.BytesRef{Kind: normalized.BytesInline, DataBase64: base64.StdEncoding.EncodeToString(body)}, nil
	}
	digest, _, err := r.blobs.Put(ctx, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("store attachment: %w", err)
	}
	return &normalized.BytesRef{Kind: normalized.BytesContentAddressed, Algo: "sha256", Digest: digest}, nil
}

// fileType is the declared type, or what the bytes look like when the declaration says nothing.
func fileType(node *entity, body []byte) string {
	if node.media != "" && node.media != "application/octet-stream" && len(node.media) <= 127 {
		return node.media
	}
	sniffed, _ := mediaType(http.DetectContentType(body), "application/octet-stream")
	return sniffed
}

// fileName gives a harmless name: the last path element without controls, disguises and leading dots.
func fileName(node *entity) string {
	_, disposition := mediaType(node.fields.get("Content-Disposition"), "inline")
	name := disposition["filename"]
	if name == "" {
		name = node.params["name"]
	}
	if name == "" && strings.HasPrefix(node.media, "message/") {
		name = enclosedName(node)
	}
	return cleanName(decodeWords(name))
}

func enclosedName(node *entity) string {
	fields, _, err := splitHeader(node.decodeBody())
	if err != nil || fields.decoded("Subject") == "" {
		return "mail.eml"
	}
	return strings.NewReplacer("/", " ", "\\", " ", ":", " ").Replace(fields.decoded("Subject")) + ".eml"
}

func cleanName(name string) string {
	name = name[strings.LastIndexAny(name, `/\`)+1:]
	name = strings.TrimLeft(cleanText(name, maxNameBytes), ". ")
	for len(name) > maxNameBytes {
		_, size := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-size]
	}
	return name
}

func digestOf(mail []byte) string {
	sum := sha256.Sum256(mail)
	return hex.EncodeToString(sum[:])
}
