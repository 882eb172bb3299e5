package activitypub

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"strings"
	"time"

	"inbox/exchange"
	"inbox/normalized"
)

// maxReplyFiles is what Mastodon shows of a post.
const maxReplyFiles = 4

// noteContext names the terms beside ActivityStreams that our notes use.
var noteContext = []any{
	activityStreams,
	map[string]any{
		"ostatus": "http://ostatus.org#", "conversation": "ostatus:conversation", "sensitive": "as:sensitive",
	},
}

// note is our answer as an ActivityStreams object.
type note struct {
	Context      []any             `json:"@context,omitempty"`
	ID           string            `json:"id"`
	Type         string            `json:"type"`
	AttributedTo string            `json:"attributedTo"`
	InReplyTo    string            `json:"inReplyTo,omitempty"`
	Content      string            `json:"content"`
	ContentMap   map[string]string `json:"contentMap,omitempty"`
	Source       *noteSource       `json:"source,omitempty"`
	Published    string            `json:"published"`
	URL          string            `json:"url"`
	To           []string          `json:"to"`
	Cc           []string          `json:"cc"`
	Tag          []mentionTag      `json:"tag,omitempty"`
	Attachment   []noteFile        `json:"attachment,omitempty"`
	Summary      string            `json:"summary,omitempty"`
	Sensitive    bool              `json:"sensitive"`
	Thread       string            `json:"context,omitempty"`
	Conversation string            `json:"conversation,omitempty"`
}

type noteSource struct {
	Content   string `json:"content"`
	MediaType string `json:"mediaType"`
}

type mentionTag struct {
	Type string `json:"type"`
	Href string `json:"href"`
	Name string `json:"name"`
}

type noteFile struct {
	Type      string `json:"type"`
	MediaType string `json:"mediaType,omitempty"`
	URL       string `json:"url"`
	Name      string `json:"name,omitempty"`
}

// createActivity carries a note; addressing and time are the note's own.
type createActivity struct {
	Context   []any    `json:"@context,omitempty"`
	ID        string   `json:"id"`
	Type      string   `json:"type"`
	Actor     string   `json:"actor"`
	Published string   `json:"published"`
	To        []string `json:"to"`
	Cc        []string `json:"cc"`
	Object    note     `json:"object"`
}

// person is somebody whom a reply mentions.
type person struct {
	Address string `json:"address"` // @user@host
	Actor   string `json:"actor"`
	Profile string `json:"profile"`
	Inbox   string `json:"inbox,omitempty"`
}

// anchor is the visible mention (h-card), as all servers write it.
func (p person) anchor() string {
	user, _, _ := strings.Cut(strings.TrimPrefix(p.Address, "@"), "@")
	return `<span class="h-card" translate="no"><a href="` + html.EscapeString(p.Profile) +
		`" class="u-url mention">@<span>` + html.EscapeString(user) + `</span></a></span>`
}

// render makes the note of a reply. It is a function of the reply and of the people that it relays to, so every
// attempt and every reader gets the same note.
func (a *Adapter) render(reply exchange.Reply, relayed []person) (note, error) {
	asked, err := readRoute(reply.Route)
	if err != nil {
		return note{}, err
	}
	asker := person{Address: asked.Address, Actor: asked.Actor, Profile: asked.Profile}
	people := append([]person{asker}, relayed...)
	made := note{
		ID: a.noteIRI(reply.ID), Type: "Note", AttributedTo: a.actorIRI(reply.Agent), InReplyTo: asked.Note,
		Published: reply.CreatedAt.UTC().Format(time.RFC3339), URL: a.noteIRI(reply.ID),
		Sensitive: asked.Sensitive, Summary: replyWarning(asked.Warning),
		Thread: asked.Context, Conversation: asked.Conversation,
	}
	made.address(a.visibilityOf(reply, asked), people)
	a.fill(&made, reply.Response, people)
	if asked.Language != "" {
		made.ContentMap = map[string]string{asked.Language: made.Content}
	}
	return made, nil
}

func readRoute(raw json.RawMessage) (route, error) {
	var asked route
	if err := json.Unmarshal(raw, &asked); err != nil {
		return route{}, fmt.Errorf("decode route: %w", err)
	}
	return asked, nil
}

// visibilityOf decides who may read the reply. A demand or refusal by policy is for the asker alone.
func (a *Adapter) visibilityOf(reply exchange.Reply, asked route) string {
	if hasPolicy(reply.Response) {
		return normalized.VisibilityDirect
	}
	return replyVisibility(asked.Visibility, reply.Response.Visibility, a.options.PublicReplies)
}

func hasPolicy(response normalized.Response) bool {
	for _, part := range response.Parts {
		if part.Kind == normalized.PartPolicy {
			return true
		}
	}
	return false
}

// address fills to, cc and the mentions. Our followers are left out: an answer is for those who take part.
func (n *note) address(visibility string, people []person) {
	actors := make([]string, 0, len(people))
	for _, one := range people {
		actors = append(actors, one.Actor)
		n.Tag = append(n.Tag, mentionTag{"Mention", one.Actor, one.Address})
	}
	switch visibility {
	case normalized.VisibilityPublic:
		n.To, n.Cc = []string{public}, actors
	case normalized.VisibilityUnlisted:
		n.To, n.Cc = actors, []string{public}
	default:
		n.To, n.Cc = actors, []string{}
	}
}

// replyWarning copies a content warning, marked once.
func replyWarning(warning string) string {
	if warning == "" || strings.HasPrefix(strings.ToLower(warning), "re: ") {
		return warning
	}
	return "re: " + warning
}

// fill writes content, source and files, with every mentioned person visible in the text.
func (a *Adapter) fill(made *note, response normalized.Response, people []person) {
	body, sources := a.content(made, response)
	body, missing := linkMentions(body, people)
	var lead strings.Builder
	for _, one := range missing {
		lead.WriteString(one.anchor() + " ")
	}
	switch {
	case lead.Len() == 0:
		made.Content = body
	case strings.HasPrefix(body, "<p>"):
		made.Content = "<p>" + lead.String() + body[len("<p>"):]
	default:
		made.Content = "<p>" + strings.TrimSpace(lead.String()) + "</p>" + body
	}
	if len(sources) > 0 {
		made.Source = &noteSource{strings.Join(sources, "\n\n"), normalized.MIMEMarkdown}
	}
}

// content renders the parts in order. Tool calls are not shown, and parts of an unknown kind are left out.
func (a *Adapter) content(made *note, response normalized.Response) (body string, sources []string) {
	var out strings.Builder
	for _, part := range response.Parts {
		switch part.Kind {
		case normalized.PartText:
			out.WriteString(textHTML(part))
			if part.MIME == normalized.MIMEMarkdown {
				sources = append(sources, part.Content)
			}
		case normalized.PartLink:
			out.WriteString("<p>" + linkPart(part) + "</p>")
		case normalized.PartFile, normalized.PartArtifact:
			out.WriteString(a.file(made, part))
		case normalized.PartPolicy:
			out.WriteString(policyHTML(part))
		}
	}
	if out.Len() == 0 && response.Error != nil {
		out.WriteString(plainHTML(response.Error.Message))
	}
	return out.String(), sources
}

func textHTML(part normalized.Part) string {
	switch part.MIME {
	case normalized.MIMEMarkdown:
		return markdownHTML(part.Content)
	case normalized.MIMEHTML:
		return sanitize(part.Content)
	}
	return plainHTML(part.Content)
}

func linkPart(part normalized.Part) string {
	title := part.Title
	if title == "" {
		title = part.URL
	}
	text := sanitize(linkHTML(part.URL, title))
	if part.Description != "" {
		text += "<br>" + html.EscapeString(part.Description)
	}
	return text
}

// file attaches a file that has a public address and names any other.
func (a *Adapter) file(made *note, part normalized.Part) string {
	address := a.fileAddress(part)
	if address == "" || len(made.Attachment) >= maxReplyFiles {
		name := part.Name
		if name == "" {
			name = part.MIME
		}
		if address != "" {
			return "<p>" + sanitize(linkHTML(address, name)) + "</p>"
		}
		return "<p>[" + html.EscapeString(name) + "]</p>"
	}
	description := part.Alt
	if description == "" {
		description = part.Description
	}
	made.Attachment = append(made.Attachment, noteFile{"Document", part.MIME, address, description})
	return ""
}

func (a *Adapter) fileAddress(part normalized.Part) string {
	if part.BytesRef == nil {
		return ""
	}
	if _, ok := origin(part.BytesRef.URL); ok {
		return part.BytesRef.URL
	}
	if part.BytesRef.Kind == normalized.BytesContentAddressed && a.options.MediaURL != nil {
		return a.options.MediaURL(part.BytesRef.Digest, part.Name)
	}
	return ""
}

// policyHTML shows a demand as lines with its address in plain sight; no button hides where it leads.
func policyHTML(part normalized.Part) string {
	policy := part.Policy
	if policy == nil {
		return ""
	}
	var lines []string
	if policy.Title != "" {
		lines = append(lines, "<strong>"+html.EscapeString(policy.Title)+"</strong>")
	}
	lines = append(lines, html.EscapeString(policy.Message))
	if policy.URL != "" {
		label := policy.ActionLabel
		if label == "" {
			label = "Continue"
		}
		lines = append(lines, html.EscapeString(label)+": "+linkHTML(policy.URL, policy.URL))
	}
	if policy.ExpiresAt != nil {
		lines = append(lines, "Valid until "+policy.ExpiresAt.UTC().Format("2 January 2006, 15:04 UTC"))
	}
	return sanitize("<p>" + strings.Join(lines, "<br>") + "</p>")
}

// activity wraps a note into its Create.
func (a *Adapter) activity(replyID string, made note) createActivity {
	return createActivity{
		Context: noteContext, ID: a.activityIRI(replyID), Type: "Create", Actor: made.AttributedTo,
		Published: made.Published, To: made.To, Cc: made.Cc, Object: made,
	}
}

// encode writes JSON without the escapes that are meant for HTML pages.
func encode(document any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(document); err != nil {
		return nil, fmt.Errorf("encode document: %w", err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}
