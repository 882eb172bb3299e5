package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"inbox/engine/delivery"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
	"inbox/policypart"
)

// Exports write what is kept of one person.
type Exports struct {
	store  *store.Store
	people Erasures
	files  func() (exchange.Files, error)
}

// Archive takes files one after the other; a file ends when the next begins.
type Archive interface {
	Create(name string) (io.Writer, error)
}

// Directory is an archive of files below a new directory.
type Directory struct {
	path string
	open *os.File
}

// NewDirectory makes a directory that is not there yet, for this user alone.
func NewDirectory(path string) (*Directory, error) {
	if err := os.Mkdir(path, 0o700); err != nil {
		return nil, err
	}
	return &Directory{path: path}, nil
}

// Create implements Archive.
func (d *Directory) Create(name string) (io.Writer, error) {
	if err := d.Close(); err != nil {
		return nil, err
	}
	path := filepath.Join(d.path, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	d.open = file
	return file, err
}

// Close ends the last file.
func (d *Directory) Close() error {
	if d.open == nil {
		return nil
	}
	file := d.open
	d.open = nil
	return file.Close()
}

// Exported says what an export holds.
type Exported struct {
	store.Person

	Links    []exchange.PersonIdentity `json:"links,omitempty"`
	Stopped  []exchange.ListEntry      `json:"stopped,omitempty"` // agents that the person told to stop
	No       []exchange.Suppression    `json:"suppressed,omitempty"`
	Messages int                       `json:"messages"`
	Files    int                       `json:"files"`
	Missing  int                       `json:"missing_files"` // that are not kept any more
	At       time.Time                 `json:"at"`
}

// addLinks adds the links that are not there yet.
func (e *Exported) addLinks(links []exchange.PersonLink) {
	for i := range links {
		if !slices.ContainsFunc(e.Links, func(one exchange.PersonIdentity) bool { return one.PersonID == links[i].ID }) {
			e.Links = append(e.Links, links[i].Identities()...)
		}
	}
}

// exportedMessage is one message of a person with everything about it.
type exportedMessage struct {
	ID        string                 `json:"id"`
	Agent     string                 `json:"agent"`
	State     string                 `json:"state"`
	Reason    string                 `json:"reason,omitempty"`
	Principal string                 `json:"principal"`
	Message   normalized.Message     `json:"message"`           // as in the message contract, with the evidence about its sender
	Earlier   []exchange.Earlier     `json:"earlier,omitempty"` // what the sender says was said before
	Answers   []exportedAnswer       `json:"answers,omitempty"`
	Delivered []delivery.Record      `json:"deliveries,omitempty"`
	Demands   []policypart.Issuance  `json:"demands,omitempty"`
	Decisions []exchange.AuditRecord `json:"decisions,omitempty"`
	Original  string                 `json:"original,omitempty"` // file with the message as it came
}

type exportedAnswer struct {
	ID        string              `json:"id"`
	CreatedAt time.Time           `json:"created_at"`
	DeletedAt time.Time           `json:"deleted_at,omitzero"`
	Response  normalized.Response `json:"response"`
}

// Export writes the messages of the person that the name means, the answers to them, and what belongs to both: index.html to be read, one JSON document for
// each message, the files and the messages as they came. person.json says why each principal is the person. Of conversations with several people it holds what this person said and was
// answered. The memory that it needs does not grow with the number of messages. fault.NotFound when nothing is kept of such a person.
func (e Exports) Export(ctx context.Context, who PersonName, into Archive) (Exported, error) {
	person, err := e.people.Who(ctx, who)
	if err != nil {
		return Exported{}, err
	}
	made := Exported{Person: person, At: now()}
	index, err := os.CreateTemp("", "inbox-export-*.html")
	if err != nil {
		return made, fmt.Errorf("make a temporary file: %w", err)
	}
	defer func() { _ = errors.Join(index.Close(), os.Remove(index.Name())) }()

	if _, err := io.WriteString(index, exportHead); err != nil {
		return made, err
	}
	if err := e.aboutPerson(ctx, &made); err != nil {
		return made, err
	}
	written := map[string]bool{}
	err = e.store.PersonTurns(ctx, person.Names, "", "", func(id string) error { return e.message(ctx, id, into, index, &made, written) })
	if err != nil {
		return made, err
	}
	if made.Messages == 0 && len(made.Links) == 0 && len(made.Stopped) == 0 && len(made.No) == 0 {
		return made, nothingOf(who.Name, person)
	}

	if _, err := index.WriteString("</body></html>\n"); err != nil {
		return made, err
	}
	if _, err := index.Seek(0, io.SeekStart); err != nil {
		return made, err
	}
	page, err := into.Create("index.html")
	if err != nil {
		return made, err
	}
	if _, err := io.Copy(page, index); err != nil {
		return made, err
	}
	return made, writeDocument(into, "person.json", made)
}

// nothingOf says that nothing is kept of a person, and what there is of others under the name.
func nothingOf(name string, person store.Person) error {
	if len(person.Unproven) > 0 {
		return fault.Newf(fault.NotFound, "nothing proves a message of %q; messages of %s only state the address: name that principal to export them, or write --unproven if the person says that they are theirs",
			name, person.Unproven[0].Principal)
	}
	if len(person.Others) > 0 {
		return fault.Newf(fault.NotFound, "nothing is kept of %q; %s: name that principal if it is who you mean", name, person.Others[0].Why())
	}
	return fault.Newf(fault.NotFound, "nothing is kept of %q; copy an address or a principal from inbox show or inbox people list", name)
}

const exportHead = `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Messages</title><style>body{font:16px/1.5 sans-serif;max-width:50em;margin:2em auto}pre{white-space:pre-wrap;background:#f4f4f4;padding:.7em}.answer{margin-left:2em}</style></head><body>
<h1>Messages</h1><p>Each message is also a JSON document in <code>messages/</code>; <code>person.json</code> says what else is kept.</p>
`

func writeDocument(into Archive, name string, value any) error {
	file, err := into.Create(name)
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(file)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// aboutPerson finds what is kept beside messages.
func (e Exports) aboutPerson(ctx context.Context, made *Exported) error {
	for _, principal := range made.Names.Principals {
		links, err := e.store.LinksOf(ctx, "", principal)
		if err != nil {
			return err
		}
		made.addLinks(links)
		stops, err := e.store.ListEntries(ctx, exchange.ListFilter{List: exchange.ListStop, Target: principal, Limit: 500})
		if err != nil {
			return err
		}
		made.Stopped = append(made.Stopped, stops...)
	}
	for _, one := range made.Names.Linked {
		links, err := e.store.LinksOf(ctx, one.Agent, one.Principal)
		if err != nil {
			return err
		}
		made.addLinks(links)
	}

	var mails []string
	for _, address := range made.Names.Addresses {
		mails = append(mails, strings.ToLower(address.Mail()))
	}
	no, err := e.store.Suppressed(ctx, mails)
	made.No = no
	return err
}

func (e Exports) message(ctx context.Context, id string, into Archive, index io.Writer, made *Exported, written map[string]bool) error {
	turn, err := e.store.Turn(ctx, id)
	if fault.Is(err, fault.NotFound) {
		return nil // it went just now
	}
	if err != nil {
		return err
	}

	one := exportedMessage{ID: id, Agent: turn.Agent, State: turn.State, Reason: turn.Reason, Principal: turn.Principal, Message: turn.Message, Earlier: exchange.EarlierIn(turn.Route)}
	answers, err := e.store.AnswersOf(ctx, id)
	if err != nil {
		return err
	}
	parts := turn.Message.Parts
	for _, earlier := range one.Earlier {
		parts = append(slices.Clip(parts), earlier.Parts...)
	}
	for _, answer := range answers {
		reply, _, err := e.store.Reply(ctx, answer)
		if err != nil {
			return err
		}
		one.Answers = append(one.Answers, exportedAnswer{reply.ID, reply.CreatedAt, reply.DeletedAt, reply.Response})
		parts = append(slices.Clip(parts), reply.Response.Parts...)
	}
	if one.Delivered, err = e.store.Deliveries(ctx, delivery.Filter{TurnID: id, Limit: 500}); err != nil {
		return err
	}
	if one.Demands, err = e.store.DemandsOfTurn(ctx, id); err != nil {
		return err
	}
	for i := range one.Demands {
		one.Demands[i].StateHash, one.Demands[i].CodeHash = "", ""
	}
	if one.Decisions, err = e.store.AuditRecords(ctx, exchange.AuditFilter{TurnID: id, Limit: 500}); err != nil {
		return err
	}
	if one.Original, err = e.original(ctx, turn.Message.Raw, into, written); err != nil {
		return err
	}
	for _, part := range parts {
		if err := e.file(ctx, part, into, made, written); err != nil {
			return err
		}
	}

	made.Messages++
	if err := writeDocument(into, "messages/"+id+".json", one); err != nil {
		return err
	}
	return writeReadable(index, one)
}

// original writes the message as it came, once, and returns its name; empty when it is not kept any more.
func (e Exports) original(ctx context.Context, raw normalized.Raw, into Archive, written map[string]bool) (string, error) {
	digest, is := strings.CutPrefix(raw.Ref, "sha256:")
	if !is {
		return "", nil
	}
	name := "originals/" + digest + Original{MediaType: raw.MediaType}.Suffix()
	original, err := e.store.Original(ctx, digest)
	switch {
	case fault.Is(err, fault.NotFound):
		return "", nil
	case err != nil:
		return "", err
	case written[name]:
		return name, nil
	}

	written[name] = true
	if original.Body == nil {
		found, err := e.copyFile(ctx, digest, name, into)
		if !found {
			name = ""
		}
		return name, err
	}
	file, err := into.Create(name)
	if err == nil {
		_, err = file.Write(original.Body)
	}
	return name, err
}

// fileName keeps the end of a name that a stranger chose, where it is a usual one.
func fileName(part normalized.Part) string {
	end := strings.ToLower(filepath.Ext(part.Name))
	if len(end) < 2 || len(end) > 6 || strings.Trim(end[1:], "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		end = ".bin"
	}
	return "files/" + part.BytesRef.Digest + end
}

func (e Exports) file(ctx context.Context, part normalized.Part, into Archive, made *Exported, written map[string]bool) error {
	if part.BytesRef == nil || part.BytesRef.Digest == "" || written[fileName(part)] {
		return nil
	}
	name := fileName(part)
	written[name] = true
	found, err := e.copyFile(ctx, part.BytesRef.Digest, name, into)
	if found {
		made.Files++
	} else {
		made.Missing++
	}
	return err
}

func (e Exports) copyFile(ctx context.Context, digest, name string, into Archive) (found bool, err error) {
	files, err := e.files()
	if err != nil {
		return false, err
	}
	content, err := files.Open(ctx, digest)
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer content.Close()

	file, err := into.Create(name)
	if err != nil {
		return false, err
	}
	_, err = io.Copy(file, content)
	return err == nil, err
}

func writeReadable(out io.Writer, one exportedMessage) error {
	var page strings.Builder
	fmt.Fprintf(&page, "<h2>%s to %s, %s</h2>\n", html.EscapeString(one.Message.Sender.Address.String()), html.EscapeString(one.Agent), one.Message.ReceivedAt.UTC().Format(time.DateTime))
	writeParts(&page, one.Message.Parts)
	for _, answer := range one.Answers {
		fmt.Fprintf(&page, "<div class=\"answer\"><h3>Answer, %s</h3>\n", answer.CreatedAt.UTC().Format(time.DateTime))
		writeParts(&page, answer.Response.Parts)
		page.WriteString("</div>\n")
	}
	fmt.Fprintf(&page, "<p><a href=\"messages/%s.json\">JSON</a>", one.ID)
	if one.Original != "" {
		fmt.Fprintf(&page, " · <a href=\"%s\">as it came</a>", one.Original)
	}
	page.WriteString("</p>\n")
	_, err := io.WriteString(out, page.String())
	return err
}

func writeParts(page *strings.Builder, parts []normalized.Part) {
	for _, part := range parts {
		switch {
		case part.BytesRef != nil && part.BytesRef.Digest != "":
			fmt.Fprintf(page, "<p>File: <a href=\"%s\">%s</a></p>\n", fileName(part), html.EscapeString(part.Name))
		case part.Kind == normalized.PartLink:
			fmt.Fprintf(page, "<p>Link: %s</p>\n", html.EscapeString(part.URL))
		case part.Content != "":
			fmt.Fprintf(page, "<pre>%s</pre>\n", html.EscapeString(part.Content))
		}
	}
}
