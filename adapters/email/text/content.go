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
	Unmarked  string // what is not in Fresh only because it looks like an old mail; see Repeats
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

	if err := reader.readBodyAmongFiles(ctx); err != nil {
		return Content{}, err
	}

	reader.result.Text = joined(reader.texts)
	subject := fields.Decoded("Subject")
	answers := fields.Has("In-Reply-To") || fields.Has("References") || message.BaseSubject(subject) != strings.TrimSpace(subject)
	if own, unmarked := parted(joined(reader.own), subject, fields.Decoded("From"), answers); own != reader.result.Text && visible(own) {
		reader.result.Fresh, reader.result.Unmarked = own, unmarked
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

	length int             // bytes of texts
	body   *message.Entity // the first text that was kept as a file

	forwarded   bool           // the subject says that the mail is forwarded: nothing of it is old
	invitations map[string]int // the letters of invitations, and which file each is
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
	case isCalendar(node):
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

	return r.addLeaf(ctx, node)
}

// addLeaf keeps a part that is not read as a file, and remembers the first that could be read.
func (r *contentReader) addLeaf(ctx context.Context, node *message.Entity) error {
	if r.body == nil && strings.HasPrefix(node.Media, "text/") && (!node.Attached() || node.Readable()) {
		r.body = node
	}
	return r.addFile(ctx, node)
}

// readBodyAmongFiles reads the text of a mail that has none but a text with the marks of a file: a body with a name, or of a type that few
// programs know. It stays a file as well.
func (r *contentReader) readBodyAmongFiles(ctx context.Context) error {
	if len(r.texts) > 0 || len(r.result.Forwarded) > 0 || r.body == nil {
		return nil
	}
	return r.addPlain(ctx, r.body, readOwn(r.body, r.forwarded))
}

// addPlain adds a text without the files that stand in it.
func (r *contentReader) addPlain(ctx context.Context, node *message.Entity, read readableText) error {
	if r.length += len(read.text); (r.length > maxTextBytes || read.cut) && node != r.body { // what is cut off the text is in a file
		if err := r.addFile(ctx, node); err != nil {
			return err
		}
	}

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

	for _, block := range r.addText(read) {
		if err := r.addFound(ctx, normalized.Part{MIME: armourType([]byte(block))}, []byte(block+"\n")); err != nil {
			return err
		}
	}
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
	fields, body, err := message.SplitTolerant(content)
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

// readAlternative takes the plain text, unless it only says that there is HTML; else the richest form that we read. Of the other forms
// stays what says something else: careless programs put different texts and files among the forms of one.
func (r *contentReader) readAlternative(ctx context.Context, node *message.Entity) error {
	chosen, rich := chosenForm(node)
	read := readableText{}
	if chosen != nil && len(chosen.Children) == 0 && chosen.IsText() {
		if read = readOwn(chosen, r.forwarded); chosen != rich && rich != nil && !r.forwarded {
			read.own = ownByMarks(read.text, rich)
		}
	}

	known := &spoken{}
	for _, child := range node.Children {
		var err error
		switch {
		case child == chosen && read.mime != "":
			known.add(read.text)
			err = r.addPlain(ctx, child, read)
		case child == chosen:
			before := len(r.texts)
			err = r.read(ctx, child, false)
			known.add(r.texts[before:]...)
		}
		if err != nil {
			return err
		}
	}

	for _, child := range node.Children {
		if child != chosen {
			if err := r.readOtherForm(ctx, child, known); err != nil {
				return err
			}
		}
	}
	return nil
}

// chosenForm returns which form of a text is read, and the one with HTML; nil = there is none.
func chosenForm(node *message.Entity) (chosen, rich *message.Entity) {
	var plain, other *message.Entity
	for _, child := range node.Children {
		switch {
		case child.Attached(), isCalendar(child):
		case child.Media == "text/plain" && plain == nil && child.IsText():
			plain = child
		case child.Find("text/html") != nil:
			rich = child
		case other == nil && (child.Find("text/plain") != nil || child.IsText() || len(child.Children) > 0):
			other = child
		}
	}

	switch {
	case plain != nil && (rich == nil || !stub(plain)):
		return plain, rich
	case rich != nil:
		return rich, rich
	}
	return other, rich
}

func isCalendar(node *message.Entity) bool {
	return node.Media == "text/calendar" || node.Media == "application/ics"
}

// readOtherForm keeps of a form that was not chosen what the chosen one lacks: plain words are read as well, all else is a file.
func (r *contentReader) readOtherForm(ctx context.Context, node *message.Entity, known *spoken) error {
	for _, child := range node.Children {
		if err := r.readOtherForm(ctx, child, known); err != nil {
			return err
		}
	}

	switch {
	case len(node.Children) > 0:
		return nil
	case node.Attached() || !strings.HasPrefix(node.Media, "text/") || isCalendar(node):
		return r.read(ctx, node, false)
	case node.Media == "text/html":
		if source := sourceOf(node); known.sayHTML(source) || known.say(shownText(source)) {
			return nil
		}
		return r.addLeaf(ctx, node)
	}

	read := readOwn(node, true)
	switch {
	case known.say(read.text):
		return nil
	case node.Media == "text/plain" && node.IsText() && !stub(node):
		known.add(read.text)
		return r.addPlain(ctx, node, read)
	}
	return r.addLeaf(ctx, node)
}

// readCalendar returns an invitation as a file and what it says as text. Mails carry duplicates, inside of the
// alternatives and attached: it is there once, under the name that one of them has.
func (r *contentReader) readCalendar(ctx context.Context, node *message.Entity) error {
	whole := message.Decode(node.Decode(), cmp.Or(node.Params["charset"], "utf-8"))
	summary := Truncate(calendarText(whole))
	if summary == "" {
		return r.addFile(ctx, node)
	}

	said := letters(whole)
	if at, known := r.invitations[said]; known {
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

	r.invitations[said] = before
	return nil
}

// readEnclosed returns a forwarded mail as a file and its text as well: it often is the request.
func (r *contentReader) readEnclosed(ctx context.Context, node *message.Entity) error {
	fields, body, err := message.SplitEnclosed(node.Decode())
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
		fields, body, err := message.SplitEnclosed(node.Decode())
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

// addText adds a text. blocks are what was taken out of it.
func (r *contentReader) addText(read readableText) (blocks []string) {
	if strings.TrimSpace(read.text) == "" {
		return nil
	}

	whole := armored(read.text)
	read.text, blocks = withoutArmour(read.text)
	read.own, _ = withoutArmour(read.own)
	if whole && (read.text == armourNotice || armored(read.text)) {
		read.text, read.own = encryptedNotice("OpenPGP"), ""
	}

	r.texts = append(r.texts, read.text)
	r.own = append(r.own, cmp.Or(read.own, read.text))
	if r.result.MIME == "" || read.mime == normalized.MIMEMarkdown {
		r.result.MIME = read.mime
	}

	r.result.Links = append(r.result.Links, read.links[:min(len(read.links), maxLinks-len(r.result.Links))]...)
	return blocks
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
