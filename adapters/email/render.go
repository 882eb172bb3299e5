package email

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"mime"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	gomessage "github.com/emersion/go-message"

	"inbox/adapters/email/bounce"
	"inbox/adapters/email/message"
	"inbox/exchange"
	"inbox/internal/fault"
)

const (
	loopField       = "X-Loop"
	maxReferencesIn = 20  // ids written to References; long chains keep the root and the newest
	maxWrittenID    = 900 // a longer id would break the line limit of RFC 5322, section 2.1.1
)

// renderer writes replies as mails.
type renderer struct {
	options *Options
	domain  string
	tokens  *bounce.Tokens
	log     *slog.Logger
}

// render writes a reply as one mail for all of its recipients. The same reply has the same bytes, whenever and
// wherever it is rendered.
func (w *renderer) render(ctx context.Context, reply exchange.Reply, notes route, people audience) ([]byte, error) {
	body, err := w.composeBody(ctx, reply, notes, people)
	if err != nil {
		return nil, err
	}

	mail, err := w.compose(reply, notes, people, body)
	if err != nil {
		// An answer is not lost for the decoration that it has from its question.
		w.log.WarnContext(ctx, "a reply makes no valid mail and leaves without subject and names", "reply", reply.ID, "error", err)
		mail, err = w.compose(reply, bareNotes(notes), bareNames(people), body)
	}
	if err != nil {
		return nil, fault.GiveUp("the reply makes no valid mail", err)
	}

	return mail, nil
}

// compose writes the mail into memory and reads it again as a recipient does: what could be read in two ways never leaves.
func (w *renderer) compose(reply exchange.Reply, notes route, people audience, body body) ([]byte, error) {
	var out bytes.Buffer
	if err := writeMail(&out, w.replyHeader(reply, notes, people), body, reply.ID); err != nil {
		return nil, fmt.Errorf("write mail: %w", err)
	}

	fields, _, _, err := inspect(out.Bytes(), true)
	if err != nil {
		return nil, err
	}

	for _, name := range []string{"From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted", "MIME-Version", "Content-Type"} {
		if count := len(fields.All(name)); count != 1 {
			return nil, fmt.Errorf("%s occurs %d times", name, count)
		}
	}

	return out.Bytes(), nil
}

func bareNotes(notes route) route {
	notes.Subject, notes.Topic, notes.Index = "", "", ""
	return notes
}

func bareNames(people audience) audience {
	bare := func(boxes []message.Mailbox) []message.Mailbox {
		bared := slices.Clone(boxes)
		for i := range bared {
			bared[i].Name = ""
		}
		return bared
	}
	return audience{to: bare(people.to), cc: bare(people.cc), refused: people.refused}
}

type headerLine struct{ name, value string }

// replyHeader threads the reply and marks it as automatic (RFC 3834): the runtime sets all of it, the agent none.
func (w *renderer) replyHeader(reply exchange.Reply, notes route, people audience) []headerLine {
	self := tagged(notes.Local, notes.Tag) + "@" + w.domain
	lines := []headerLine{
		{"From", message.FormatAddress(w.authorName(reply.Agent, notes), self)},
		{"To", formatAddresses(people.to)},
	}

	if len(people.cc) > 0 {
		lines = append(lines, headerLine{"Cc", formatAddresses(people.cc)})
	}

	if back := w.threadAddress(reply.ID, notes.Local); back != "" {
		lines = append(lines, headerLine{"Reply-To", back})
	}

	lines = append(lines,
		headerLine{"Subject", message.EncodeWords(replySubject(notes))},
		headerLine{"Date", reply.CreatedAt.UTC().Format(time.RFC1123Z)},
		headerLine{"Message-ID", "<" + w.replyID(reply) + ">"},
	)

	if message.ValidID(notes.MessageID) && len(notes.MessageID) <= maxWrittenID {
		lines = append(lines, headerLine{"In-Reply-To", "<" + notes.MessageID + ">"},
			headerLine{"References", formatReferences(notes)})
	}

	if notes.Topic != "" {
		lines = append(lines, headerLine{"Thread-Topic", message.EncodeWords(notes.Topic)})
	}

	if index := answerIndex(notes.Index, reply.CreatedAt); index != "" {
		lines = append(lines, headerLine{"Thread-Index", index})
	}

	if notes.Opened && !notes.Forward {
		// A recipient who did not write first can stop it with one mail (RFC 2369, section 3.2); the pipeline knows the word.
		lines = append(lines, headerLine{"List-Unsubscribe", "<mailto:" + self + "?subject=stop>"})
	}

	if chain, chained := w.chainOf(reply, people); chained {
		lines = append(lines, headerLine{chainField, formatChain(chain)})
	}

	return append(lines,
		headerLine{"Auto-Submitted", submitted(notes)},
		headerLine{"X-Auto-Response-Suppress", "All"},
		headerLine{loopField, notes.Local + "@" + w.domain},
		headerLine{"MIME-Version", "1.0"},
	)
}

// submitted is how the mail came to be (RFC 3834, section 5).
func submitted(notes route) string {
	if notes.Opened {
		return "auto-generated"
	}
	return "auto-replied"
}

func (w *renderer) authorName(agent string, notes route) string {
	if notes.Forward {
		return "" // a role address is no one's
	}
	return w.displayName(agent)
}

func (w *renderer) displayName(agent string) string {
	if profile, ok := w.options.Agents.Agent(agent); ok {
		return message.DisplayName(profile.DisplayName)
	}
	return ""
}

func formatAddresses(boxes []message.Mailbox) string {
	formatted := make([]string, 0, len(boxes))
	for _, box := range boxes {
		formatted = append(formatted, message.FormatAddress(message.DisplayName(box.Name), box.Address()))
	}
	return strings.Join(formatted, ", ")
}

// replySubject keeps the subject as it is, because mail programs join conversations by it; only prefixes collapse.
func replySubject(notes route) string {
	if notes.Opened {
		return message.Clean(notes.Subject, 800)
	}
	return strings.TrimSpace("Re: " + message.BaseSubject(message.Clean(notes.Subject, 800)))
}

// formatReferences is the parent's chain and the parent (RFC 5322, section 3.6.4).
func formatReferences(notes route) string {
	var ids []string
	for _, id := range append(slices.Clone(notes.References), notes.MessageID) {
		if message.ValidID(id) && len(id) <= maxWrittenID && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}

	if len(ids) > maxReferencesIn {
		ids = append(ids[:1:1], ids[len(ids)-maxReferencesIn+1:]...)
	}

	return "<" + strings.Join(ids, "> <") + ">"
}

// body is what follows the header.
type body struct {
	plain string
	html  string // empty = plain text only
	files []attachment
}

type attachment struct {
	name, mime string
	data       []byte

	description      string
	artifactType, id string // of a result, see the message contract, section 3
}

// maxPartHeader bounds a text in the header of a file, in characters.
const maxPartHeader = 300

// writeMail writes text/plain, or multipart/alternative with HTML, inside multipart/mixed when there are files.
func writeMail(out *bytes.Buffer, top []headerLine, body body, seed string) error {
	if len(body.files) == 0 {
		return writeText(func(h gomessage.Header) (*gomessage.Writer, error) { return gomessage.CreateWriter(out, h) }, top, body, seed)
	}

	mixed, err := gomessage.CreateWriter(out, newHeader(top, headerLine{"Content-Type", multipart("mixed", seed, 0)}))
	if err != nil {
		return err
	}

	if err := writeText(mixed.CreatePart, nil, body, seed); err != nil {
		return err
	}

	for _, file := range body.files {
		if err := writePart(mixed.CreatePart, fileHeader(file), file.data); err != nil {
			return err
		}
	}

	return mixed.Close()
}

type partMaker func(gomessage.Header) (*gomessage.Writer, error)

func writeText(create partMaker, top []headerLine, body body, seed string) error {
	if body.html == "" {
		return writePart(create, textHeader(top, "text/plain"), []byte(body.plain))
	}

	alternative, err := create(newHeader(top, headerLine{"Content-Type", multipart("alternative", seed, 1)}))
	if err != nil {
		return err
	}

	if err := writePart(alternative.CreatePart, textHeader(nil, "text/plain"), []byte(body.plain)); err != nil {
		return err
	}

	if err := writePart(alternative.CreatePart, textHeader(nil, "text/html"), []byte(body.html)); err != nil {
		return err
	}

	return alternative.Close()
}

func writePart(create partMaker, h gomessage.Header, data []byte) error {
	part, err := create(h)
	if err != nil {
		return err
	}
	if _, err := part.Write(data); err != nil {
		return err
	}
	return part.Close()
}

func textHeader(top []headerLine, media string) gomessage.Header {
	return newHeader(top, headerLine{"Content-Type", media + "; charset=utf-8"}, headerLine{"Content-Transfer-Encoding", "quoted-printable"})
}

func fileHeader(file attachment) gomessage.Header {
	lines := []headerLine{
		{"Content-Type", typeWithName(file)},
		{"Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": file.name})},
		{"Content-Transfer-Encoding", fileCoding(file)},
	}
	for _, line := range []headerLine{
		{"Content-Description", file.description}, {"X-Mentionable-Artifact-Type", file.artifactType}, {"X-Mentionable-Artifact-Id", file.id},
	} {
		if text := message.Clean(line.value, maxPartHeader); text != "" {
			lines = append(lines, headerLine{line.name, mime.QEncoding.Encode("utf-8", text)})
		}
	}
	return newHeader(nil, lines...)
}

// fileCoding returns how the bytes of a file are written: a mail as it is (RFC 2046, section 5.2.1).
func fileCoding(file attachment) string {
	if file.mime == mailType {
		return "7bit"
	}
	return "base64"
}

// typeWithName returns the Content-Type of a file. A text in UTF-8 says so: without a charset it is ASCII (RFC 2046, section 4.1.2).
// go-message writes no other charset.
func typeWithName(file attachment) string {
	media, params := message.MediaType(file.mime, "")
	if params == nil {
		params = map[string]string{}
	}
	params["name"] = file.name
	delete(params, "charset")
	if strings.HasPrefix(media, "text/") && utf8.Valid(file.data) {
		params["charset"] = "utf-8"
	}
	return mime.FormatMediaType(media, params)
}

// newHeader keeps the order of the lines; the library adds on top. It would not fold where one word is too long.
func newHeader(top []headerLine, more ...headerLine) gomessage.Header {
	var h gomessage.Header
	lines := append(slices.Clone(top), more...)
	for _, line := range slices.Backward(lines) {
		h.AddRaw(message.Fold(line.name, line.value))
	}
	return h
}

// multipart names a boundary that follows from the reply, so that a repeat has the same bytes.
func multipart(subtype, seed string, level int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", seed, level))
	return "multipart/" + subtype + "; boundary=" + hex.EncodeToString(sum[:16])
}
