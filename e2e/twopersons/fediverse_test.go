package twopersons

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"html"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"inbox/adapters/activitypub/signature"
	"inbox/e2e/load"
	"inbox/inboxtest"
)

const everyone = "https://www.w3.org/ns/activitystreams#Public"

// home is a server of the fediverse.
type home struct{ *load.Community }

func (h *home) host() string { return strings.TrimPrefix(h.Origin, "http://") }

func newHome(t *testing.T, w *world) *home {
	t.Helper()
	community, err := load.NewCommunity("127.0.0.1:0", 1, w.noteArrived)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(community.Close)
	return &home{community}
}

// join gives a person an account at home, with a key for requests and one for what they sign themselves.
func (w *world) join(p *person) {
	w.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		w.Fatal(err)
	}
	p.proof = private
	p.actor = load.Person{Name: p.name, ID: p.home.Origin + "/users/" + p.name, Key: p.post.Key}
	// Each has an inbox of their own alone, so that it is known who reads.
	w.show(p, map[string]any{"endpoints": nil, "assertionMethod": []any{map[string]any{
		"id": p.proofKey(), "type": "Multikey", "controller": p.actor.ID, "publicKeyMultibase": signature.Multikey(public),
	}}})
}

// proofKey is the IRI of the key of what a person signs themselves.
func (p *person) proofKey() string { return p.actor.ID + "#ed25519-key" }

// show publishes an actor. Servers keep what they fetched, so it counts for those that did not ask yet.
func (w *world) show(p *person, members map[string]any) {
	w.Helper()
	if err := p.home.Present(p.actor, members); err != nil {
		w.Fatal(err)
	}
}

// noteArrived takes what the server delivers: the owner of the inbox reads it.
func (w *world) noteArrived(arrived load.Arrival) {
	name := strings.TrimSuffix(strings.TrimPrefix(arrived.Path, "/users/"), "/inbox")
	var reader *person
	for _, home := range w.homes {
		if found := w.ledger.owner(home.Origin + "/users/" + name); found != nil {
			reader = found
		}
	}
	if reader == nil {
		return
	}

	text := html.UnescapeString(plainJSON(arrived.Body))
	w.ledger.reads(reader, "a post to "+reader.String(), text)
	w.see(harvest(arrived.Body)...)
	w.mu.Lock()
	defer w.mu.Unlock()
	if strings.Contains(text, everyone) {
		w.ledger.reads(w.now.ann, "a public post", text)
		w.ledger.reads(w.now.eve, "a public post", text)
	}
	reader.links = append(reader.links, linkPattern.FindAllString(text, -1)...)
}

// actorOf is the account of an agent.
func (w *world) actorOf(agent string) string { return w.URL + "/agents/" + agent }

// create writes the activity of a note to the audience.
func (p *person) create(id string, members map[string]any, text string, to ...string) []byte {
	object := map[string]any{
		"id": id, "type": "Note", "attributedTo": p.actor.ID, "published": time.Now().UTC().Format(time.RFC3339), "to": to,
		"content": "<p>" + html.EscapeString(text) + "</p>",
	}
	maps.Copy(object, members)
	body, err := json.Marshal(map[string]any{
		"@context": []string{"https://www.w3.org/ns/activitystreams", "https://w3id.org/security/data-integrity/v2"},
		"id":       id + "/activity", "type": "Create", "actor": p.actor.ID, "to": to, "object": object,
	})
	if err != nil {
		panic(err) // strings can always be written
	}
	return body
}

// noteID is the address of a note; somebody else's stays as it is.
func (p *person) noteID(id string) string {
	if strings.HasPrefix(id, "http") {
		return id
	}
	return p.actor.ID + "/notes/" + id
}

// shows publishes a note under its address to everyone who asks for it.
func (p *person) shows(create []byte) {
	var activity struct {
		Object map[string]any `json:"object"`
	}
	if json.Unmarshal(create, &activity) != nil {
		return
	}
	id, _ := activity.Object["id"].(string)
	if strings.HasPrefix(id, p.actor.ID+"/") {
		document, _ := json.Marshal(activity.Object) // it was just read
		p.home.Publish(id, document)
	}
}

// post delivers an activity of a person to an agent under the signature of their server.
func (w *world) post(p *person, agent string, body []byte) error {
	w.Helper()
	request, err := p.actor.Delivery(w.actorOf(agent)+"/inbox", body, load.Signature{})
	if err != nil {
		w.Fatal(err)
	}
	return w.request(request)
}

// request sends a request and returns what the server said against it.
func (w *world) request(request *http.Request) error {
	w.Helper()
	response, err := inboxtest.Client.Do(request)
	if err != nil {
		w.Fatal(err)
	}
	if said := readAll(response); response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%d %.200s", response.StatusCode, said)
	}
	return nil
}

// sendNote writes to an agent in the fediverse.
func (r *run) sendNote(m note) {
	id := m.author.noteID(m.id)
	to := []string{r.actorOf(m.agent)}
	tags := []any{map[string]string{"type": "Mention", "href": to[0], "name": "@" + m.agent + "@" + mailDomain}}
	for _, reader := range m.cc {
		to = append(to, reader.actor.ID)
		tags = append(tags, map[string]string{"type": "Mention", "href": reader.actor.ID, "name": "@" + reader.handle()})
	}
	if m.public {
		to = append(to, everyone)
	}
	if m.alias != "" {
		tags = append(tags, map[string]string{"type": "Mention", "href": m.author.actor.ID, "name": m.alias})
	}

	members := map[string]any{"tag": tags}
	for name, value := range map[string]string{"inReplyTo": m.parent, "context": m.thread, "conversation": m.thread} {
		if value != "" {
			members[name] = value
		}
	}
	body := m.author.create(id, members, m.text, to...)
	if m.public {
		m.author.shows(body)
	}
	r.sent(id, id+"/activity")
	r.took(r.post(m.author, m.agent, body))
}
