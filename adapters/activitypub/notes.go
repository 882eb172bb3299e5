package activitypub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/notetext"
	"inbox/adapters/activitypub/signature"
	"inbox/exchange"
	"inbox/internal/catalog"
	"inbox/internal/clip"
	"inbox/internal/design"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

// serveNote shows one of our notes: to everyone what everyone may read, and the rest to the servers of those to whom
// it is addressed, who prove themselves by a signature. For anyone else the answer is the same as for an id that
// never existed.
func (c *collections) serveNote(w http.ResponseWriter, r *http.Request) {
	if accepts(r) != formPage && !c.verifier.mayRead(w, r) {
		return
	}
	reply, made, private, err := c.readableNote(r)
	if err != nil {
		c.refuseNote(w, r, reply, err)
		return
	}

	switch form := accepts(r); {
	case private:
		made.Context = made.context()
		c.writePrivate(w, r, made)
		return
	case form == formActivity:
		made.Context = made.context()
		c.write(w, r, made)
	case form == formPage:
		c.writePage(w, r, reply, c.wholeAnswer(r, reply, made))
	default:
		refuseForm(w)
	}
}

func (c *collections) serveCreate(w http.ResponseWriter, r *http.Request) {
	if !c.verifier.mayRead(w, r) {
		return
	}
	reply, made, private, err := c.readableNote(r)
	if err != nil {
		c.refuseNote(w, r, reply, err)
		return
	}

	body, err := c.outbox.provenCreate(r.Context(), reply, made)
	switch {
	case err != nil:
		refuse(w, r, unavailable(err))
	case private:
		c.writePrivate(w, r, json.RawMessage(body))
	default:
		c.write(w, r, json.RawMessage(body))
	}
}

// readableNote returns the note of the request, if its reader may have it, and whether it is for that reader alone.
func (c *collections) readableNote(r *http.Request) (reply exchange.Reply, made note, private bool, err error) {
	missing := fault.New(fault.NotFound, "no such object")
	reply, native, err := c.options.Replies.Reply(r.Context(), httpserver.Param(r, "id"))
	switch {
	case fault.Is(err, fault.NotFound), err == nil && (!isNote(reply) || reply.Notice == exchange.NoticeAck && native == ""):
		return reply, note{}, false, missing
	case err != nil:
		return reply, note{}, false, unavailable(err)
	}

	post, err := c.postOf(r, reply)
	if err != nil {
		return reply, note{}, false, err
	}

	people := c.renderer.knownPeople(r.Context(), reply)
	if c.published(reply) {
		made, err = c.renderer.render(reply, post, people, withoutAddress)
		return reply, made, false, err
	}
	if !c.readByRecipient(r, reply, people) {
		return reply, note{}, true, missing
	}

	made, err = c.renderer.render(reply, post, people, c.options.Present)
	return reply, made, true, err
}

// readByRecipient reports whether the request is signed by one of the actors whom the note addresses.
func (c *collections) readByRecipient(r *http.Request, reply exchange.Reply, people []person) bool {
	asked, err := readRoute(reply.Route)
	if err != nil || signature.SchemeOf(r.Header) == signature.None {
		return false
	}

	readers := []string{asked.Actor}
	if !reply.HasPolicy() {
		for _, one := range people {
			readers = append(readers, one.Actor)
		}
	}

	for _, actor := range readers {
		if c.verifier.authenticateReader(r, actor) == nil {
			return true
		}
	}
	return false
}

// writePrivate sends what no cache may keep.
func (c *collections) writePrivate(w http.ResponseWriter, r *http.Request, content any) {
	doc, err := newDocument("", content)
	if err != nil {
		refuse(w, r, err)
		return
	}
	writeDocument(w, r, doc, 0)
}

// knownPeople are the people that a sent reply was relayed to, as they were resolved then.
func (r *renderer) knownPeople(ctx context.Context, reply exchange.Reply) []person {
	if len(reply.Response.To)+len(reply.Response.Cc) == 0 {
		return nil
	}
	var people []person
	value, found, err := r.options.State.Get(ctx, relayNamespace, reply.ID)
	if err != nil || !found || json.Unmarshal(value, &people) != nil {
		return nil
	}
	return welcoming(people)
}

//go:generate go tool -modfile=../../tools/thirdparty/go.mod templ generate -path . -log-level warn

// writePage shows the note to people. The content is sanitized once more on its way out, and the page may load and
// run nothing.
func (c *collections) writePage(w http.ResponseWriter, r *http.Request, reply exchange.Reply, made note) {
	r = catalog.ForReader(r)
	language := "en"
	for tag := range made.ContentMap {
		language = tag
	}

	author := "@" + reply.Agent + "@" + c.options.Domain
	head := design.Head{
		Title: author, Lang: catalog.Language(r.Context()), Class: "public", Canonical: made.URL, Description: made.excerpt(),
		OpenGraph: design.OpenGraph{Type: "article", Site: c.options.Domain},
		Links:     []design.Link{{Rel: "alternate", Type: activityMediaType, Href: made.ID, Title: author}},
	}
	if c.options.Profile != nil {
		shown := c.options.Profile(reply.Agent)
		head.OpenGraph.Image = design.Picture{Address: shown.Icon, Alt: pictureWords(r.Context(), author), Size: shown.IconSize}
	}
	page := notePage(head, made, language, author, c.profileURL(reply.Agent))
	if err := design.Send(w, r, page, design.Answer{Status: http.StatusOK, Keep: "public, max-age=60"}); err != nil {
		slog.DebugContext(r.Context(), "note page was not written", "error", err)
		refuse(w, r, err)
	}
}

// maxExcerpt is how much of a note other sites show, in bytes.
const maxExcerpt = 300

// excerpt is the beginning of a note as text; its warning where it has one.
func (n *note) excerpt() string {
	if n.Summary != "" {
		return n.Summary
	}
	words := notetext.Plain(notetext.Sanitize(n.Content), notetext.Reader{IsUs: func(string) bool { return false }})
	return clip.Bytes(strings.Join(strings.Fields(words), " "), maxExcerpt)
}

// publishedAt is the time of the note; zero where it cannot be read.
func (n *note) publishedAt() time.Time {
	at, err := time.Parse(time.RFC3339, n.Published)
	if err != nil {
		return time.Time{}
	}
	return at
}

// errTombstone reports whether a note was taken back.
var errTombstone = errors.New("the note was deleted")

// postOf reads which post of the chain is asked for.
func (c *collections) postOf(r *http.Request, reply exchange.Reply) (int, error) {
	post := 1
	if text := httpserver.Param(r, "post"); text != "" {
		number, err := strconv.Atoi(text)
		if err != nil || number < 2 || number > notetext.MaxPosts || strconv.Itoa(number) != text {
			return 0, fault.New(fault.NotFound, "no such object")
		}
		post = number
	}
	switch {
	case !reply.DeletedAt.IsZero() && post <= max(reply.Posts, 1), post > max(reply.Posts, 1) && !reply.EditedAt.IsZero():
		return post, fault.Wrap(fault.Gone, "the note was deleted", fmt.Errorf("%w %d", errTombstone, post))
	case post > max(reply.Posts, 1):
		return 0, fault.New(fault.NotFound, "no such object")
	}

	return post, nil
}

// refuseNote answers 410 with the tombstone for a note that was taken back. That says nothing about it: the id is no
// secret of those who could read it, and no one guesses one.
func (c *collections) refuseNote(w http.ResponseWriter, r *http.Request, reply exchange.Reply, err error) {
	if !errors.Is(err, errTombstone) || accepts(r) != formActivity {
		refuse(w, r, err)
		return
	}

	post, _ := strconv.Atoi(httpserver.Param(r, "post"))
	grave := c.renderer.tombstone(reply, max(post, 1))
	grave.Context = document.ActivityStreams
	body, encodeErr := json.Marshal(grave)
	if encodeErr != nil {
		refuse(w, r, err)
		return
	}

	header := w.Header()
	header.Set("Content-Type", activityMediaType+"; charset=utf-8")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "public, max-age=60")
	header.Set("Vary", "Accept")
	w.WriteHeader(http.StatusGone)
	_, _ = w.Write(body)
}

// wholeAnswer shows the whole answer on the page of a chain's first post.
func (c *collections) wholeAnswer(r *http.Request, reply exchange.Reply, made note) note {
	if reply.Posts <= 1 || made.ID != c.noteIRI(reply.ID) {
		return made
	}
	all, err := c.renderer.renderParts(reply, 1, c.renderer.knownPeople(r.Context(), reply), withoutAddress)
	if err != nil {
		return made
	}
	return all
}
