package activitypub

import (
	"cmp"
	"fmt"
	"html"
	"slices"
	"strings"
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/notetext"
	"inbox/adapters/activitypub/signature"
	"inbox/exchange"
	"inbox/normalized"
)

// maxReplyFiles is what Mastodon shows of a post.
const maxReplyFiles = 4

// noteContext names the terms beside ActivityStreams that our notes use.
var noteContext = []any{
	document.ActivityStreams,
	signature.IntegrityContext,
	map[string]any{
		"ostatus": "http://ostatus.org#", "conversation": "ostatus:conversation", "sensitive": "as:sensitive", "Hashtag": "as:Hashtag",
		"pt": "https://joinpeertube.org/ns#", "size": "pt:size",
		"gts":               "https://gotosocial.org/ns#",
		"interactionPolicy": map[string]string{"@id": "gts:interactionPolicy", "@type": "@id"},
		"canQuote":          map[string]string{"@id": "gts:canQuote", "@type": "@id"},
		"automaticApproval": map[string]string{"@id": "gts:automaticApproval", "@type": "@id"},
	},
}

// renderer writes answers as notes.
type renderer struct {
	*site
	media *mediaFiles
}

// note is our answer as an ActivityStreams object.
type note struct {
	Context      []any              `json:"@context,omitempty"`
	ID           string             `json:"id"`
	Type         string             `json:"type"`
	AttributedTo string             `json:"attributedTo"`
	InReplyTo    string             `json:"inReplyTo,omitempty"`
	Content      string             `json:"content"`
	ContentMap   map[string]string  `json:"contentMap,omitempty"`
	Source       *noteSource        `json:"source,omitempty"`
	Published    string             `json:"published"`
	Updated      string             `json:"updated,omitempty"`
	URL          string             `json:"url"`
	To           []string           `json:"to"`
	Cc           []string           `json:"cc"`
	Tag          []noteTag          `json:"tag,omitempty"`
	Attachment   []noteFile         `json:"attachment,omitempty"`
	Summary      string             `json:"summary,omitempty"`
	Sensitive    bool               `json:"sensitive"`
	Thread       string             `json:"context,omitempty"`
	Conversation string             `json:"conversation,omitempty"`
	Interaction  *interaction       `json:"interactionPolicy,omitempty"` // servers read it from the note, not from its author
	Replies      *repliesCollection `json:"replies,omitempty"`
}

type noteSource struct {
	Content   string `json:"content"`
	MediaType string `json:"mediaType"`
}

// noteTag is a Mention or a Hashtag.
type noteTag struct {
	Type string `json:"type"`
	Href string `json:"href"`
	Name string `json:"name"`
}

type noteFile struct {
	Type      string `json:"type"`
	MediaType string `json:"mediaType,omitempty"`
	URL       string `json:"url"`
	Name      string `json:"name,omitempty"`
	Width     int    `json:"width,omitempty"`
	Height    int    `json:"height,omitempty"`
	Size      int64  `json:"size,omitempty"`

	// What a result is, by absolute terms: readers that do not know them pass over them.
	ArtifactType string `json:"https://mentionable.dev/ns/v1#artifactType,omitempty"`
	ArtifactID   string `json:"https://mentionable.dev/ns/v1#artifactId,omitempty"`
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

// person is an account that a reply mentions.
type person struct {
	Address string `json:"address"` // @user@host
	Actor   string `json:"actor"`
	Profile string `json:"profile"`
	Inbox   string `json:"inbox,omitempty"`
	NoBot   bool   `json:"no_bot,omitempty"` // asks programs not to write unasked: is neither written to nor named
}

// welcoming returns those who do not ask programs to leave them alone.
func welcoming(people []person) []person {
	return slices.DeleteFunc(slices.Clone(people), func(one person) bool { return one.NoBot })
}

// withAsker returns the asker and the others, each once: an agent may name its asker among those to whom it writes.
func (r route) withAsker(others []person) []person {
	people := []person{{Address: cmp.Or(r.Mention, r.Address), Actor: r.Actor, Profile: r.Profile}}
	for _, one := range others {
		if one.Actor != r.Actor {
			people = append(people, one)
		}
	}
	return people
}

// anchor is the visible mention (h-card), as all servers write it.
func (p person) anchor() string {
	user, _, _ := strings.Cut(strings.TrimPrefix(p.Address, "@"), "@")
	return `<span class="h-card" translate="no"><a href="` + html.EscapeString(p.Profile) +
		`" class="u-url mention">@<span>` + html.EscapeString(user) + `</span></a></span>`
}

// render makes one of the notes of a reply, counted from 1. It is a function of the reply and of the people that it
// relays to, so every attempt and every reader gets the same note. present is what the reader may see of a demand. A long
// answer is a chain: each post answers the one before, and of an open one the first alone mentions people.
func (r *renderer) render(reply exchange.Reply, post int, relayed []person, present presenter) (note, error) {
	posts := r.postsOf(reply)
	if post < 1 || post > len(posts) {
		return note{}, fmt.Errorf("the answer has %d posts and no number %d", len(posts), post)
	}

	reply.Response.Parts = posts[post-1]
	made, err := r.renderParts(reply, post, relayed, present)
	if err != nil || !made.open() {
		return made, err
	}

	next := ""
	if post < len(posts) {
		next = r.postIRI(reply.ID, post+1)
	}

	made.Replies = r.embeddedReplies(made.ID, next)
	return made, nil
}

func (r *renderer) renderParts(reply exchange.Reply, post int, relayed []person, present presenter) (note, error) {
	asked, err := readRoute(reply.Route)
	if err != nil {
		return note{}, err
	}

	people := asked.withAsker(relayed)
	made := note{
		ID: r.postIRI(reply.ID, post), Type: r.typeOf(reply, asked), AttributedTo: r.actorIRI(reply.Agent), InReplyTo: asked.Note,
		Published: reply.CreatedAt.UTC().Format(time.RFC3339), URL: r.postIRI(reply.ID, post),
		Sensitive: asked.Sensitive, Summary: replyWarning(asked.Warning),
		Thread: r.namedConversation(reply, asked), Conversation: asked.Conversation,
	}
	if !reply.EditedAt.IsZero() {
		made.Updated = reply.EditedAt.UTC().Format(time.RFC3339)
	}

	visibility := r.replyVisibility(reply, asked)
	made.address(visibility, people, r.followersOf(reply.Agent))
	if isOpen(visibility) && r.options.Profile != nil {
		made.Interaction = whoQuotes(made.AttributedTo, made.AttributedTo+"/followers", r.options.Profile(reply.Agent).QuotesByFans)
	}

	if post > 1 {
		made.InReplyTo = r.postIRI(reply.ID, post-1)
	}

	// Servers show a private post to those alone whom its tags mention, so every one of a private chain has them.
	if post > 1 && isOpen(visibility) || made.Type == chatMessage {
		made.Tag, people = nil, nil
	}

	r.fill(&made, writing{reply, localeOf(reply), present}, people)
	if asked.Language != "" {
		made.ContentMap = map[string]string{asked.Language: made.Content}
	}
	return made, nil
}

// address fills to, cc and the mentions as Mastodon addresses its posts. Without followers it is for those who take part.
func (n *note) address(visibility string, people []person, followers string) {
	actors := make([]string, 0, len(people))
	for _, one := range people {
		actors = append(actors, one.Actor)
		n.Tag = append(n.Tag, noteTag{"Mention", one.Actor, one.Address})
	}

	switch {
	case visibility == normalized.VisibilityPublic && followers != "":
		n.To, n.Cc = []string{document.Public}, append([]string{followers}, actors...)
	case visibility == normalized.VisibilityPublic:
		n.To, n.Cc = []string{document.Public}, actors
	case visibility == normalized.VisibilityUnlisted && followers != "":
		n.To, n.Cc = []string{followers}, append([]string{document.Public}, actors...)
	case visibility == normalized.VisibilityUnlisted:
		n.To, n.Cc = actors, []string{document.Public}
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

// activity wraps a note into its Create.
func (r *renderer) activity(made note) createActivity {
	return createActivity{
		Context: made.context(), ID: made.ID + "/activity", Type: "Create", Actor: made.AttributedTo,
		Published: made.Published, To: made.To, Cc: made.Cc, Object: made,
	}
}

// postsOf returns the parts of each post of a reply that was planned with reply.Posts.
func (r *renderer) postsOf(reply exchange.Reply) [][]normalized.Part {
	return notetext.Split(reply.Response.Parts, r.options.PostLength, max(reply.Posts, 1))
}

// picture attaches a picture that a text shows, as a file by URL is attached: servers fetch it from its address. That must
// be https and name its kind by its ending; any other picture becomes a link.
func (n *note) picture(address, description string) bool {
	kind := notetext.PictureType(address)
	if kind == "" {
		return false
	}

	for _, known := range n.Attachment {
		if known.URL == address {
			return true
		}
	}

	if len(n.Attachment) >= maxReplyFiles {
		return false
	}
	n.Attachment = append(n.Attachment, noteFile{Type: fileKind, MediaType: kind, URL: address, Name: description})
	return true
}

// chatMessage is the type of private messages between two, which Lemmy, Mbin and Pleroma keep apart from notes: a Note that
// answers one is refused by Lemmy and shown elsewhere by Pleroma.
const chatMessage = "ChatMessage"

var chatContext = append(slices.Clone(noteContext), map[string]any{
	"litepub": "http://litepub.social/ns#", chatMessage: "litepub:" + chatMessage,
})

// typeOf is the type of the posts of a reply: a chat is answered in the chat, where no one else is addressed.
func (r *renderer) typeOf(reply exchange.Reply, asked route) string {
	if asked.Chat && !isOpen(r.replyVisibility(reply, asked)) && len(r.extras(reply, asked)) == 0 {
		return chatMessage
	}
	return "Note"
}

// context names the terms that a post uses.
func (n *note) context() []any {
	if n.Type == chatMessage {
		return chatContext
	}
	return noteContext
}
