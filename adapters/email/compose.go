package email

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"html"
	"mime"
	"path"
	"slices"
	"strings"
	"time"

	"inbox/adapters/email/message"
	"inbox/adapters/email/text"
	"inbox/exchange"
	"inbox/internal/catalog"
	"inbox/internal/design"
	"inbox/internal/fault"
	"inbox/internal/markup"
	"inbox/normalized"
	"inbox/policypart"
)

// composer collects the two forms of a text and the files.
type composer struct {
	plain, html strings.Builder
	rich        bool // at least one part has structure
	letter      bool // the server itself writes, in the form of its pages
	files       []attachment
	size        int64
	locale      string
	spoken      string                       // the language of a demand; empty = English
	link        func(normalized.Part) string // where a file that is too large can be had; empty = nowhere
}

// composeBody turns the parts of a response into text, HTML and attachments; a demand comes last.
func (w *renderer) composeBody(ctx context.Context, reply exchange.Reply, notes route, people audience) (body, error) {
	c := &composer{locale: localeOf(reply), link: func(part normalized.Part) string { return w.fileLink(reply, part) }}
	said, citations := normalized.Cited(reply.Response.Parts)
	parts := slices.Clone(said)
	slices.SortStableFunc(parts, demandLast)
	notice := notes.Opened && !notes.Forward // no agent begins a conversation by itself
	c.letter = notice || slices.ContainsFunc(parts, w.leads)
	if notice && !hasPolicy(reply.Response) {
		c.html.WriteString(design.LetterTitle(message.Clean(notes.Subject, 300)))
	}
	ended := false
	end := func() { // before a demand, which stands last
		if !ended {
			c.addSources(citations)
			c.addTools(parts)
			ended = true
		}
	}
	for _, part := range parts {
		if part.Kind == normalized.PartPolicy {
			end()
		}
		if err := w.composePart(ctx, c, part); err != nil {
			return body{}, err
		}
	}

	end()
	if failure := reply.Response.Error; failure != nil && c.plain.Len() == 0 {
		c.addPlain(failure.Message)
	}

	if c.plain.Len() == 0 && len(c.files) > 0 {
		c.addPlain("See the attached files.")
	}

	if w.mayQuote(reply, notes, people) {
		c.addQuote(reply.Message, notes, w.options.QuoteLines)
	}

	result := body{plain: strings.TrimRight(c.plain.String(), "\n") + "\n", files: c.files}
	switch {
	case c.letter:
		result.html = design.Letter{Lang: cmp.Or(c.spoken, catalog.English), Site: w.domain, Body: c.html.String()}.HTML()
	case c.rich:
		result.html = document(languageOf(reply), replySubject(notes), c.html.String())
	}

	return result, nil
}

// leads reports whether a part is a demand or a refusal with a page where the reader goes on.
func (w *renderer) leads(part normalized.Part) bool {
	return part.Kind == normalized.PartPolicy && part.Policy != nil && w.options.Present(*part.Policy).URL != ""
}

func demandLast(a, b normalized.Part) int {
	switch last := normalized.PartPolicy; {
	case a.Kind == last && b.Kind != last:
		return 1
	case a.Kind != last && b.Kind == last:
		return -1
	}
	return 0
}

func (w *renderer) composePart(ctx context.Context, c *composer, part normalized.Part) error {
	switch part.Kind {
	case normalized.PartText:
		c.addText(part)
	case normalized.PartLink:
		c.addPlain(described(titled(part.Title, part.URL), part.Description))
	case normalized.PartPolicy:
		if part.Policy != nil {
			c.addPolicy(w.options.Present(*part.Policy))
		}

	case normalized.PartFile, normalized.PartArtifact:
		return w.attach(ctx, c, part)
	}
	return nil // calls of tools have a line of their own; parts of unknown kinds are skipped
}

func (c *composer) addText(part normalized.Part) {
	switch kind, _ := normalized.TextMIME(part.MIME); kind {
	case normalized.MIMEMarkdown:
		c.addMarkdown(part.Content)
	case normalized.MIMEHTML:
		c.addDocument(markup.FromHTML(part.Content))
	default:
		c.addPlain(part.Content)
	}
}

// addMarkdown adds a text in both forms. What follows a line of "-- " is a signature (RFC 3676, section 4.3), which
// Markdown would take for the underline of a heading.
func (c *composer) addMarkdown(source string) {
	body, signature := splitSignature(source)
	c.addDocument(markup.FromMarkdown(body))
	if signature != "" {
		signed := markup.FromMarkdown(signature)
		plain, _ := signed.Text(markup.Plain, 0)
		c.add(signatureMark+"\n"+text.Readable(plain), "<div>"+signatureMark+"</div>\n"+signed.HTML(page)+"\n")
	}
}

func (c *composer) addDocument(document markup.Document) {
	plain, _ := document.Text(markup.Plain, 0)
	c.add(plain, document.HTML(page)+"\n")
	c.rich = true
}

// signatureMark is alone on the line above a signature.
const signatureMark = "-- "

// splitSignature cuts a text before its last line of "-- " outside of code, or of "--" with at most a few lines behind it:
// programs trim blanks. The mark belongs to neither half.
func splitSignature(source string) (body, signature string) {
	lines := strings.Split(strings.ReplaceAll(source, "\r\n", "\n"), "\n")
	at, fence := -1, ""
	for i, line := range lines {
		trimmed := strings.TrimLeft(line, " ")
		switch {
		case fence != "":
			if strings.HasPrefix(trimmed, fence) && strings.Trim(trimmed, fence[:1]+" ") == "" {
				fence = ""
			}
		case strings.HasPrefix(trimmed, "```") || strings.HasPrefix(trimmed, "~~~"):
			fence = trimmed[:len(trimmed)-len(strings.TrimLeft(trimmed, trimmed[:1]))]
		case line == signatureMark, line == "--" && len(lines)-i <= text.MaxSignature:
			at = i
		}
	}

	if at < 0 {
		return source, ""
	}

	return strings.Join(lines[:at], "\n"), strings.TrimSpace(strings.Join(lines[at+1:], "\n"))
}

func (c *composer) addPlain(plain string) {
	if c.letter {
		c.add(plain, design.LetterText(text.Readable(plain)))
		return
	}
	c.add(plain, markup.FromText(text.Readable(plain)).HTML(page)+"\n")
}

func (c *composer) add(plain, rich string) {
	if plain = text.Readable(plain); plain == "" {
		return
	}
	if c.plain.Len() > 0 {
		c.plain.WriteString("\n\n")
	}
	c.plain.WriteString(plain)
	c.html.WriteString(rich)
}

func titled(title, target string) string {
	if title = message.Clean(title, 300); title == "" {
		return target
	}
	return title + ": " + target
}

// described puts the description of a link or a file below its line.
func described(line, about string) string {
	if about = message.Clean(about, 1000); about == "" {
		return line
	}
	return line + "\n" + about
}

// attach adds a file, or a line that says why it is not there.
func (w *renderer) attach(ctx context.Context, c *composer, part normalized.Part) error {
	name := cmp.Or(text.CleanName(part.Name), "file")
	switch {
	case part.BytesRef == nil:
		return nil
	case part.BytesRef.Kind == normalized.BytesURL:
		c.addPlain(described(titled(name, part.BytesRef.URL), part.About()))
		return nil

	case executable(name):
		c.addPlain("[" + name + " is not attached: mail providers refuse programs.]")
		return nil

	case len(c.files) >= maxAttachedFiles || part.Size > maxAttachedBytes-c.size:
		c.addTooLarge(name, part)
		return nil
	}

	data, err := w.fileBytes(ctx, part.BytesRef)
	if err != nil {
		return err
	}

	if c.size+int64(len(data)) > maxAttachedBytes {
		c.addTooLarge(name, part)
		return nil
	}

	c.size += int64(len(data))
	c.files = append(c.files, attachment{
		name: name, mime: attachedType(part.MIME, data), data: data, description: part.About(), artifactType: part.ArtifactType, id: part.ID,
	})
	return nil
}

// addTooLarge says where a file can be had that the mail cannot carry.
func (c *composer) addTooLarge(name string, part normalized.Part) {
	if address := c.link(part); address != "" {
		c.addPlain(described(titled(name, address), part.About()))
		return
	}
	c.addPlain("[" + name + " is not attached: the mail would be too large.]")
}

func (w *renderer) fileLink(reply exchange.Reply, part normalized.Part) string {
	if w.options.FileLink == nil {
		return ""
	}
	return w.options.FileLink(reply, part)
}

func (w *renderer) fileBytes(ctx context.Context, ref *normalized.BytesRef) ([]byte, error) {
	switch ref.Kind {
	case normalized.BytesInline:
		data, err := base64.StdEncoding.DecodeString(ref.DataBase64)
		if err != nil {
			return nil, fault.GiveUp("a file of the reply is not valid base64", err)
		}
		return data, nil
	case normalized.BytesContentAddressed:
		data, err := readBlob(ctx, w.options.Blobs, ref.Digest, maxAttachedBytes+1)
		if fault.Is(err, fault.NotFound) {
			return nil, fault.GiveUp("a file of the reply is gone", err)
		}
		return data, err
	}
	return nil, fault.GiveUp("a file of the reply cannot be read", errors.New("unknown kind of bytes "+ref.Kind))
}

// mailType is the type of a mail in a mail.
const mailType = "message/rfc822"

// attachedType keeps types that may be sent base64-coded, with their parameters; composite types may not (RFC 2046, section 5.2.1). A mail stays one where any
// server takes its lines as they are (RFC 5322, section 2.1.1): another coding on the way would break our signature.
func attachedType(declared string, data []byte) string {
	media, params, err := mime.ParseMediaType(declared)
	if err == nil && media == mailType && plainLines(data) {
		return mailType
	}
	if err != nil || strings.HasPrefix(media, "multipart/") || strings.HasPrefix(media, "message/") || !strings.Contains(media, "/") {
		return "application/octet-stream"
	}
	return message.FormatType(media, params)
}

// plainLines reports whether data is lines of at most 998 bytes of ASCII that end in CRLF.
func plainLines(data []byte) bool {
	if checkLines(data) != nil || !bytes.HasSuffix(data, []byte("\r\n")) {
		return false
	}
	for line := range bytes.SplitSeq(data, []byte("\r\n")) {
		if len(line) > 998 || !message.IsASCII(string(line)) {
			return false
		}
	}
	return true
}

// executable finds what large providers refuse, whatever comes before the last ending.
func executable(name string) bool {
	switch strings.ToLower(path.Ext(strings.TrimRight(name, ". "))) {
	case ".exe", ".js", ".jse", ".mjs", ".scr", ".bat", ".cmd", ".com", ".lnk", ".vb", ".vbs", ".vbe", ".ws", ".wsf", ".wsh", ".wsc",
		".msi", ".msp", ".mst", ".pif", ".cpl", ".hta", ".jar", ".ps1", ".psm1", ".dll", ".sys", ".reg", ".inf", ".sct", ".shb", ".chm",
		".ade", ".adp", ".appx", ".msix", ".apk", ".dmg", ".iso", ".img", ".vhd", ".vhdx", ".xll", ".diagcab", ".library-ms", ".url":
		return true
	}
	return false
}

func hasPolicy(response normalized.Response) bool {
	for _, part := range response.Parts {
		if part.Kind == normalized.PartPolicy {
			return true
		}
	}
	return false
}

// languageOf returns the language of an answer: that of its question, as its header says or its sender prefers; "" = it is not known.
func languageOf(reply exchange.Reply) string {
	if surface := reply.Message.Surface; surface != nil && surface.Language != "" {
		return surface.Language
	}
	return localeOf(reply)
}

func localeOf(reply exchange.Reply) string {
	if profile := reply.Message.Sender.Profile; profile != nil {
		return profile.Locale
	}
	return ""
}

// addPolicy shows a demand as lines in the reader's language, with the link's address in plain sight in both forms of
// the text: no button hides where it leads (message contract, section 8).
func (c *composer) addPolicy(part policypart.Part) {
	var plain []string
	var rich strings.Builder
	title, explanation := part.Localized(c.locale)
	if title != part.Title || explanation != part.Message {
		c.spoken = c.locale
	}
	if title = message.Clean(title, 300); title != "" {
		plain = append(plain, title)
		rich.WriteString(design.LetterTitle(title))
	}

	explanation = text.Readable(explanation)
	plain = append(plain, explanation)
	rich.WriteString(design.LetterText(explanation))
	if part.URL != "" {
		label := cmp.Or(message.Clean(part.ActionLabel, 100), "Continue")
		plain = append(plain, label+": "+part.URL)
		rich.WriteString(design.LetterLink(label, part.URL))
	}

	for _, line := range policyTimes(part) {
		plain = append(plain, line)
		rich.WriteString(design.LetterRemark(line))
	}

	if c.letter {
		c.add(strings.Join(plain, "\n"), rich.String())
		return
	}
	c.addPlain(strings.Join(plain, "\n"))
}

func policyTimes(part policypart.Part) []string {
	var lines []string
	if part.ExpiresAt != nil {
		lines = append(lines, "Valid until "+part.ExpiresAt.UTC().Format("2 January 2006, 15:04 MST"))
	}
	if part.RetryAfterSeconds != nil {
		lines = append(lines, "Please try again in "+(time.Duration(*part.RetryAfterSeconds)*time.Second).String())
	}
	return lines
}

// maxQuoteLines bounds what an answer repeats of its question.
const maxQuoteLines = 30

// mayQuote reports whether the answer may repeat its question: where the operator wants it, and only to people who have it
// already.
func (w *renderer) mayQuote(reply exchange.Reply, notes route, people audience) bool {
	if w.options.QuoteLines <= 0 || notes.Opened || hasPolicy(reply.Response) {
		return false
	}

	has := map[string]bool{notes.From.Key(): true}
	for _, box := range notes.To {
		has[box.Key()] = true
	}

	for _, box := range notes.Cc {
		has[box.Key()] = true
	}

	for _, box := range people.all() {
		if !has[box.Key()] {
			return false
		}
	}

	return true
}

// addQuote repeats the beginning of a question below the answer.
func (c *composer) addQuote(question normalized.Message, notes route, most int) {
	from := notes.From
	lines := quotedLines(question, message.BaseSubject(notes.Subject), min(most, maxQuoteLines))
	if len(lines) == 0 {
		return
	}

	intro := "On " + question.ReceivedAt.UTC().Format("Mon, 2 Jan 2006") + ", " + cmp.Or(message.DisplayName(from.Name), from.Address()) + " wrote:"
	plain := intro + "\n> " + strings.Join(lines, "\n> ")
	plain = strings.ReplaceAll(plain, "\n> \n", "\n>\n")
	c.add(plain, "<p>"+html.EscapeString(intro)+"</p>\n<blockquote type=\"cite\">"+
		strings.ReplaceAll(html.EscapeString(strings.Join(lines, "\n")), "\n", "<br>\n")+"</blockquote>\n")
}

// quotedLines returns the first lines of the texts of a message, without what it quotes itself
// and without the subject that was put above its text.
func quotedLines(question normalized.Message, subject string, most int) []string {
	var lines []string
	for _, part := range question.Parts {
		if part.Kind != normalized.PartText {
			continue
		}
		for line := range strings.SplitSeq(text.Readable(strings.TrimPrefix(part.Content, "Subject: "+subject+"\n\n")), "\n") {
			if strings.HasPrefix(line, ">") {
				continue
			}
			if len(lines) >= most {
				return append(lines, "[…]")
			}
			lines = append(lines, strings.TrimRight(line, " \t\r"))
		}
	}

	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}

	return lines
}
