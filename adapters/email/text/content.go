package text

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"inbox/adapters/email/message"
	"inbox/internal/fault"
	"inbox/normalized"
)

// Bounds of what an agent gets; the original keeps the rest.
const (
	maxTextBytes   = 256 << 10
	maxFiles       = 60
	maxNameBytes   = 200
	maxEnclosed    = 20      // mails inside of enclosed mails that are read
	maxInlineTotal = 1 << 20 // of all files of a mail; what is over goes to the keeper
)

// Content is what a mail says, the same for each of its recipients.
type Content struct {
	Text      string // without subject
	Fresh     string // without quotations and signature too; empty = all of text is new
	MIME      string
	Links     []normalized.Part
	Forwarded []string // text of enclosed mails and invitations
	Files     []normalized.Part
	Left      int // files that were left out
}

// Read reads what a mail says from its header and body. size is that of the whole mail and bounds what is decoded. Large files go
// to the keeper. Errors are fault.Malformed, or those of the keeper.
func Read(ctx context.Context, fields message.Header, body []byte, size int, keeper normalized.Keeper) (Content, error) {
	walk := &message.Parser{}
	root, err := walk.Parse(fields, body, 0)
	if err != nil {
		return Content{}, fault.InField("body", err.Error())
	}

	reader := &contentReader{keeper: keeper, walk: walk, budget: 2*size + 64<<10, forwarded: forwards(fields.Decoded("Subject"))}
	if err := reader.read(ctx, root, false); err != nil {
		return Content{}, err
	}

	reader.result.Text = joined(reader.texts)
	subject := fields.Decoded("Subject")
	answers := fields.Has("In-Reply-To") || fields.Has("References") || message.BaseSubject(subject) != strings.TrimSpace(subject)
	if own := fresh(joined(reader.own), subject, answers); own != reader.result.Text && visible(own) {
		reader.result.Fresh = own
	}

	return reader.result, nil
}

// contentReader collects text and files from a tree, in order.
type contentReader struct {
	keeper normalized.Keeper
	walk   *message.Parser
	inline int
	budget int // decoded bytes left; base64 and quoted-printable never grow, so twice the wire size is plenty
	texts  []string
	own    []string // of texts, what the clients' HTML marks as the sender's own

	forwarded   bool           // the subject says that the mail is forwarded: nothing of it is old
	invitations map[string]int // what invitations say, and which file each is
	unwrapped   int            // signatures that were opened
	enclosed    int            // mails inside of enclosed mails
	result      Content
}

// read takes one node. related is set below multipart/related, where everything behind the root is a resource.
func (r *contentReader) read(ctx context.Context, node *message.Entity, related bool) error {
	if content, claims := signedPart(node); claims {
		return r.readSigned(ctx, node, content)
	}

	if how := encryptionOf(node); how != "" {
		r.addText(readableText{text: encryptedNotice(how), mime: normalized.MIMEPlain})
	}

	switch {
	case node.Media == "text/calendar", node.Media == "application/ics":
		return r.readCalendar(ctx, node)
	case node.Media == "multipart/alternative" && len(node.Children) > 0:
		return r.readAlternative(ctx, node)
	case len(node.Children) > 0:
		for i, child := range node.InOrder() {
			if err := r.read(ctx, child, related || (node.Media == "multipart/related" && i > 0)); err != nil {
				return err
			}
		}
		return nil

	case node.Media == "message/rfc822" || node.Media == "message/global":
		return r.readEnclosed(ctx, node)
	case node.IsText() && !related:
		return r.addPlain(ctx, node, readOwn(node, r.forwarded))
	}

	return r.addFile(ctx, node)
}

// addPlain adds a text without the files that stand in it.
func (r *contentReader) addPlain(ctx context.Context, node *message.Entity, read readableText) error {
	if node.Media == "text/plain" {
		rest, files := withoutEncoded(read.text)
		for _, file := range files {
			if err := r.addFound(ctx, file.part(), file.data); err != nil {
				return err
			}
		}
		if len(files) > 0 {
			read.text, read.own = rest, ""
		}
	}

	r.addText(read)
	return nil
}

// readSigned reads the mail inside of an opaque S/MIME signature, and keeps the signature as a file. What it says is no more than
// what its sender says: nothing of the signature is checked.
func (r *contentReader) readSigned(ctx context.Context, node *message.Entity, content []byte) error {
	if r.unwrapped++; content == nil || r.unwrapped > maxUnwrapped || len(content) > r.budget {
		r.addText(readableText{text: wrappedNotice, mime: normalized.MIMEPlain})
		return r.addFile(ctx, node)
	}

	r.budget -= len(content)
	fields, body, err := message.Split(content)
	if err != nil {
		fields, body = nil, content
	}

	inner, err := r.walk.Parse(fields, body, 1)
	if err != nil {
		return fault.InField("body", err.Error())
	}

	if err := r.read(ctx, inner, false); err != nil {
		return err
	}

	if !slices.Contains(r.result.Forwarded, unwrapNotice) {
		r.result.Forwarded = append(r.result.Forwarded, unwrapNotice)
	}

	return r.addFound(ctx, normalized.Part{MIME: typeOfFile(node), Name: fileName(node)}, node.Decode())
}

// readAlternative takes the plain text, unless it only says that there is HTML; else the richest form that we read.
func (r *contentReader) readAlternative(ctx context.Context, node *message.Entity) error {
	var plain, rich *message.Entity
	for _, child := range node.Children {
		switch {
		case child.Media == "text/calendar", child.Media == "application/ics":
			if err := r.readCalendar(ctx, child); err != nil {
				return err
			}

		case child.Attached(): // careless programs put files among the forms of the text
			if err := r.addFile(ctx, child); err != nil {
				return err
			}

		case child.Media == "text/plain" && plain == nil:
			plain = child
		case child.Holds("text/html"):
			rich = child
		}
	}

	switch {
	case plain != nil && (rich == nil || !stub(plain)):
		read := readOwn(plain, r.forwarded)
		if rich != nil && !r.forwarded {
			read.own = ownByMarks(read.text, rich)
		}
		if err := r.addPlain(ctx, plain, read); err != nil {
			return err
		}
		return r.readResources(ctx, rich)
	case rich != nil:
		return r.read(ctx, rich, false)
	}

	if last := node.Children[len(node.Children)-1]; !last.Attached() && last.Media != "text/calendar" && last.Media != "application/ics" {
		return r.read(ctx, last, false)
	}

	return nil
}

// readCalendar returns an invitation as a file and what it says as text. Mails carry duplicates, inside of the
// alternatives and attached: it is there once, under the name that one of them has.
func (r *contentReader) readCalendar(ctx context.Context, node *message.Entity) error {
	summary := Truncate(calendarText(message.Decode(node.Decode(), cmp.Or(node.Params["charset"], "utf-8"))))
	if summary == "" {
		return r.addFile(ctx, node)
	}

	if at, known := r.invitations[summary]; known {
		if file := &r.result.Files[at]; file.Name == "" {
			file.Name = fileName(node)
		}
		return nil
	}

	r.result.Forwarded = append(r.result.Forwarded, summary)
	before := len(r.result.Files)
	if err := r.addFile(ctx, node); err != nil || len(r.result.Files) == before {
		return err
	}

	if r.invitations == nil {
		r.invitations = map[string]int{}
	}

	r.invitations[summary] = before
	return nil
}

// readResources keeps the files that came with an HTML form whose text was not needed.
func (r *contentReader) readResources(ctx context.Context, node *message.Entity) error {
	if node == nil {
		return nil
	}

	for _, child := range node.Children {
		err := error(nil)
		switch {
		case len(child.Children) > 0:
			err = r.readResources(ctx, child)
		case !child.IsText():
			err = r.addFile(ctx, child)
		}
		if err != nil {
			return err
		}
	}

	return nil
}

// readEnclosed returns a forwarded mail as a file and its text as well: it often is the request.
func (r *contentReader) readEnclosed(ctx context.Context, node *message.Entity) error {
	fields, body, err := message.Split(node.Decode())
	if err == nil {
		inner, err := r.walk.Parse(fields, body, 1)
		if err != nil {
			return fault.InField("body", err.Error())
		}

		if summary := enclosedText(fields, inner); summary != "" {
			r.result.Forwarded = append(r.result.Forwarded, summary)
		}

		if err := r.addFile(ctx, node); err != nil {
			return err
		}

		return r.readFilesOf(ctx, inner)
	}

	return r.addFile(ctx, node)
}

// readFilesOf keeps the files inside of an enclosed mail, and what mails inside of it say.
func (r *contentReader) readFilesOf(ctx context.Context, node *message.Entity) error {
	for _, child := range node.Children {
		if err := r.readFilesOf(ctx, child); err != nil {
			return err
		}
	}

	switch {
	case len(node.Children) > 0, node.IsText():
		return nil
	case node.Media == "message/rfc822" || node.Media == "message/global":
		fields, body, err := message.Split(node.Decode())
		if r.enclosed++; err != nil || r.enclosed > maxEnclosed {
			return nil //nolint:nilerr // the enclosed mail around it is kept whole
		}

		inner, err := r.walk.Parse(fields, body, 1)
		if err != nil {
			return fault.InField("body", err.Error())
		}

		if summary := enclosedText(fields, inner); summary != "" {
			r.result.Forwarded = append(r.result.Forwarded, summary)
		}

		return r.readFilesOf(ctx, inner)
	}

	body := node.Decode()
	return r.addFound(ctx, normalized.Part{MIME: fileType(node, body), Name: fileName(node), ContentID: contentID(node.Fields)}, body)
}

func enclosedText(fields message.Header, root *message.Entity) string {
	var out strings.Builder
	out.WriteString("Enclosed mail\n")
	for _, name := range []string{"From", "To", "Date", "Subject"} {
		if value := fields.Decoded(name); value != "" {
			fmt.Fprintf(&out, "%s: %s\n", name, value)
		}
	}

	if text := firstText(root); text != "" {
		out.WriteString("\n" + text)
	}

	return Truncate(strings.TrimSpace(out.String()))
}

func firstText(e *message.Entity) string {
	if e.IsText() {
		return readText(e)
	}

	best := ""
	for _, child := range e.Children {
		if text := firstText(child); text != "" && (best == "" || child.Media == "text/plain") {
			return text
		}
	}

	return best
}

func (r *contentReader) addText(read readableText) {
	if strings.TrimSpace(read.text) == "" {
		return
	}

	whole := armored(read.text)
	read.text, read.own = withoutArmour(read.text), withoutArmour(read.own)
	if whole && (read.text == armourNotice || armored(read.text)) {
		read.text, read.own = encryptedNotice("OpenPGP"), ""
	}

	r.texts = append(r.texts, read.text)
	r.own = append(r.own, cmp.Or(read.own, read.text))
	if r.result.MIME == "" || read.mime == normalized.MIMEMarkdown {
		r.result.MIME = read.mime
	}

	r.result.Links = append(r.result.Links, read.links[:min(len(read.links), maxLinks-len(r.result.Links))]...)
}

// joined returns all texts of a mail within what one part may hold.
func joined(texts []string) string { return strings.TrimSpace(Truncate(strings.Join(texts, "\n\n"))) }

// Truncate cuts a text that is longer than one part of a message may be, and adds a note about it.
func Truncate(text string) string {
	if len(text) <= maxTextBytes {
		return text
	}
	return strings.ToValidUTF8(text[:maxTextBytes], "") + "\n\n[The text was cut after 256 KiB; the original mail is kept.]"
}
