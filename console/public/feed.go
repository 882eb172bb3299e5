package public

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"net/http"
	"strings"
	"time"

	"inbox/exchange"
	"inbox/internal/catalog"
	"inbox/internal/clip"
	"inbox/internal/httpserver"
)

const notesInFeed = 20

// atomFeed is an Atom feed (RFC 4287).
type atomFeed struct {
	XMLName xml.Name    `xml:"http://www.w3.org/2005/Atom feed"`
	ID      string      `xml:"id"`
	Title   string      `xml:"title"`
	Summary string      `xml:"subtitle,omitempty"`
	Updated string      `xml:"updated"`
	Author  atomAuthor  `xml:"author"`
	Links   []atomLink  `xml:"link"`
	Entries []atomEntry `xml:"entry"`
}

type atomAuthor struct {
	Name string `xml:"name"`
	URI  string `xml:"uri"`
}

type atomLink struct {
	Rel  string `xml:"rel,attr"`
	Type string `xml:"type,attr,omitempty"`
	Href string `xml:"href,attr"`
}

type atomEntry struct {
	ID        string      `xml:"id"`
	Title     string      `xml:"title"`
	Published string      `xml:"published"`
	Updated   string      `xml:"updated"`
	Link      atomLink    `xml:"link"`
	Content   atomContent `xml:"content"`
}

type atomContent struct {
	Type string `xml:"type,attr"`
	Body string `xml:",chardata"`
}

const maxTitleBytes = 120

// feed serves what an agent said in public.
func (p *Pages) feed(w http.ResponseWriter, r *http.Request) {
	r = catalog.ForReader(r)
	agent, known := p.options.Agents.Agent(httpserver.Param(r, "agent"))
	if !known {
		p.missing(w, r)
		return
	}
	notes, err := p.options.Notes(r.Context(), agent.Name, notesInFeed)
	if err != nil {
		httpserver.WriteFault(w, err)
		return
	}

	body, err := xml.Marshal(p.atom(agent, notes))
	if err != nil {
		httpserver.WriteFault(w, err)
		return
	}

	sum := sha256.Sum256(body)
	tag := `"` + hex.EncodeToString(sum[:12]) + `"`
	header := w.Header()
	header.Set("Content-Type", "application/atom+xml; charset=utf-8")
	header.Set("Cache-Control", "public, max-age=300")
	header.Set("ETag", tag)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Security-Policy", "default-src 'none'")
	if strings.Contains(r.Header.Get("If-None-Match"), tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = w.Write(bytes.Join([][]byte{[]byte(xml.Header), body}, nil)) //nolint:gosec // XML that encoding/xml wrote; the reader went away: nothing to do
}

func (p *Pages) atom(agent exchange.AgentProfile, notes []Note) atomFeed {
	shown := p.view(agent)
	feed := atomFeed{
		ID: shown.Page, Title: shown.Label, Summary: firstLine(agent.Summary), Updated: atomTime(agent.CreatedAt), Author: atomAuthor{shown.Label, shown.Page},
		Links: []atomLink{{"self", "application/atom+xml", shown.Page + "/feed"}, {"alternate", "text/html", shown.Page}},
	}
	if len(notes) > 0 {
		feed.Updated = atomTime(notes[0].Published)
	}

	for _, note := range notes {
		title := note.Summary
		if title == "" {
			title = clip.Bytes(strings.Join(strings.Fields(note.Text), " "), maxTitleBytes)
		}
		feed.Entries = append(feed.Entries, atomEntry{
			ID: note.Address, Title: title, Published: atomTime(note.Published), Updated: atomTime(note.Published),
			Link: atomLink{"alternate", "text/html", note.Address}, Content: atomContent{"html", note.HTML},
		})
	}
	return feed
}

// atomTime is RFC 3339 in UTC; an unknown time is the beginning of the epoch, since a feed must have one.
func atomTime(at time.Time) string {
	if at.IsZero() {
		at = time.Unix(0, 0)
	}
	return at.UTC().Format(time.RFC3339)
}
