package activitypub

import (
	"context"
	"encoding/json"
	"html/template"
	"log/slog"
	"net/http"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

// serveNote shows one of our notes. Only what everybody may read is there at all: for anything else the answer is
// the same as for an id that never existed.
func (a *Adapter) serveNote(w http.ResponseWriter, r *http.Request) {
	reply, made, err := a.publicNote(r)
	if err != nil {
		refuse(w, r, err)
		return
	}
	switch accepts(r) {
	case formActivity:
		made.Context = noteContext
		a.write(w, r, made)
	case formPage:
		a.writePage(w, r, reply, made)
	default:
		refuseForm(w)
	}
}

func (a *Adapter) serveCreate(w http.ResponseWriter, r *http.Request) {
	reply, made, err := a.publicNote(r)
	if err != nil {
		refuse(w, r, err)
		return
	}
	a.write(w, r, a.activity(reply.ID, made))
}

func (a *Adapter) publicNote(r *http.Request) (exchange.Reply, note, error) {
	missing := fault.New(fault.NotFound, "no such object")
	reply, _, err := a.options.Replies.Reply(r.Context(), httpserver.Param(r, "id"))
	switch {
	case fault.Is(err, fault.NotFound), err == nil && !a.published(reply):
		return reply, note{}, missing
	case fault.Is(err, fault.Gone):
		return reply, note{}, err
	case err != nil:
		return reply, note{}, unavailable(err)
	}
	made, err := a.render(reply, a.knownPeople(r.Context(), reply))
	return reply, made, err
}

// knownPeople are the people that a sent reply was relayed to, as they were resolved then.
func (a *Adapter) knownPeople(ctx context.Context, reply exchange.Reply) []person {
	if len(reply.Response.To)+len(reply.Response.Cc) == 0 {
		return nil
	}
	var people []person
	value, found, err := a.options.State.Get(ctx, relayNamespace, reply.ID)
	if err != nil || !found || json.Unmarshal(value, &people) != nil {
		return nil
	}
	return people
}

var notePage = template.Must(template.New("note").Parse(`<!doctype html>
<html lang="{{.Language}}"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{{.Author}}</title><link rel="alternate" type="application/activity+json" href="{{.Note.ID}}">
<style>body{font:1.1rem/1.5 system-ui,sans-serif;max-width:40rem;margin:2rem auto;padding:0 1rem}small{color:#555}</style></head>
<body><article><p><a href="{{.Profile}}">{{.Author}}</a></p>{{if .Note.Summary}}<p><strong>{{.Note.Summary}}</strong></p>{{end}}
{{.Content}}
{{range .Note.Attachment}}<p><a rel="nofollow noopener noreferrer" href="{{.URL}}">{{if .Name}}{{.Name}}{{else}}{{.URL}}{{end}}</a></p>{{end}}
<p><small><time datetime="{{.Note.Published}}">{{.Note.Published}}</time>{{if .Note.InReplyTo}} · <a rel="nofollow noopener noreferrer" href="{{.Note.InReplyTo}}">in reply to</a>{{end}}</small></p></article></body></html>
`))

// writePage shows the note to people. The content is sanitized once more on its way out, and the page may load and
// run nothing.
func (a *Adapter) writePage(w http.ResponseWriter, r *http.Request, reply exchange.Reply, made note) {
	language := "en"
	for tag := range made.ContentMap {
		language = tag
	}
	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "public, max-age=60")
	header.Set("Vary", "Accept")
	err := notePage.Execute(w, map[string]any{
		"Note": made, "Language": language, "Author": "@" + reply.Agent + "@" + a.options.Domain,
		"Profile": a.profileURL(reply.Agent),
		"Content": template.HTML(sanitize(made.Content)), //nolint:gosec // sanitized in the same expression
	})
	if err != nil {
		slog.DebugContext(r.Context(), "note page was not written", "error", err)
	}
}
