package peer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"inbox/identity"
)

// Ask mentions the account @user@domain in a public note and waits until ctx ends for a reply that verifies.
// publicURL is where the domain's WebFinger is reached; empty = https://domain.
func (f *Fediverse) Ask(ctx context.Context, publicURL, address, text string) (Conversation, error) {
	question, err := f.inquire(ctx, publicURL, address, text)
	if err != nil {
		return Conversation{}, err
	}
	defer question.forget()

	got, err := question.next(ctx)
	if err != nil {
		return Conversation{}, err
	}
	return question.finish(got), nil
}

// AskWithConsent is Ask to an agent that asks back first: the demand must come as a note to us alone, its page is
// opened without effect, then agreed to, and the answer arrives without another question.
func (f *Fediverse) AskWithConsent(ctx context.Context, publicURL, address, text string) (Demand, Conversation, error) {
	question, err := f.inquire(ctx, publicURL, address, text)
	if err != nil {
		return Demand{}, Conversation{}, err
	}
	defer question.forget()
	return question.consent(ctx)
}

// inquire sends a public mention.
func (f *Fediverse) inquire(ctx context.Context, publicURL, address, text string) (*inquiry, error) {
	question := &inquiry{waiting: f.waiting, started: time.Now()}
	target, err := f.find(ctx, publicURL, address)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", address, err)
	}

	create := f.note(target, address, text, "")
	question.author, question.home = target.ID, origin(target.ID)
	question.replyTo = create["object"].(object)["id"].(string)
	question.conversation = Conversation{
		Network: "fediverse", From: f.Address(), To: address, MessageID: create["id"].(string), Question: text,
	}

	question.arrival, question.forget = f.waiting.expect(question.replyTo)
	if err := f.deliver(ctx, target.Inbox, create); err != nil {
		question.forget()
		return nil, fmt.Errorf("deliver the mention to %s: %w", target.Inbox, err)
	}

	return question, nil
}

// find resolves an address as Mastodon does: WebFinger, actor, and the way back from the actor to the address.
func (f *Fediverse) find(ctx context.Context, publicURL, address string) (actorDocument, error) {
	wanted, err := identity.ParseAddress(address)
	if err != nil {
		return actorDocument{}, err
	}

	if publicURL == "" {
		publicURL = "https://" + wanted.Domain
	}

	var found webFingerDocument
	query := publicURL + "/.well-known/webfinger?resource=" + url.QueryEscape(wanted.Acct())
	if err := f.get(ctx, query, []string{"application/jrd+json", "application/json"}, &found); err != nil {
		return actorDocument{}, err
	}
	if !strings.EqualFold(found.Subject, wanted.Acct()) {
		return actorDocument{}, fmt.Errorf("WebFinger answered for %q", found.Subject)
	}

	place := slices.IndexFunc(found.Links, func(link webFingerLink) bool {
		return link.Rel == "self" && link.Type == activityJSON
	})
	if place < 0 {
		return actorDocument{}, errors.New("WebFinger has no self link of type " + activityJSON)
	}

	actor, err := f.fetchActor(ctx, found.Links[place].Href)
	if err == nil && !strings.EqualFold(actor.PreferredUsername, wanted.Local) {
		err = fmt.Errorf("the actor calls itself %q", actor.PreferredUsername)
	}

	return actor, err
}

// fetchActor returns the actor document, which must say of itself that it lives there.
func (f *Fediverse) fetchActor(ctx context.Context, id string) (actorDocument, error) {
	var actor actorDocument
	accepted := []string{activityJSON, `application/ld+json; profile="` + activityStreams + `"`}
	if err := f.get(ctx, id, accepted, &actor); err != nil {
		return actor, err
	}

	switch {
	case actor.ID != id:
		return actor, fmt.Errorf("the actor at %s has the id %q", id, actor.ID)
	case !slices.Contains(actor.Context, activityStreams):
		return actor, fmt.Errorf("the actor at %s lacks the @context %s", id, activityStreams)
	case actor.PublicKey.Owner != actor.ID:
		return actor, fmt.Errorf("the key of %s belongs to %q", id, actor.PublicKey.Owner)
	case origin(actor.Inbox) != origin(actor.ID):
		return actor, fmt.Errorf("the inbox of %s is elsewhere: %q", id, actor.Inbox)
	}

	return actor, nil
}

// get fetches a JSON document with a signed request and demands one of the accepted media types.
func (f *Fediverse) get(ctx context.Context, address string, accepted []string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}

	request.Header.Set("Accept", strings.Join(accepted, ", "))
	body, response, err := f.send(request, nil)
	if err != nil {
		return err
	}

	got, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if !slices.ContainsFunc(accepted, func(one string) bool { return strings.HasPrefix(one, got) && got != "" }) {
		return fmt.Errorf("%s came as %q, want one of %q", address, got, accepted)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%s is not the expected JSON: %w", address, err)
	}

	return nil
}

func (f *Fediverse) deliver(ctx context.Context, inbox string, activity object) error {
	body, err := encode(activity)
	if err != nil {
		return err
	}

	request, err := http.NewRequestWithContext(ctx, http.MethodPost, inbox, bytes.NewReader(body))
	if err != nil {
		return err
	}

	request.Header.Set("Content-Type", activityJSON)
	_, _, err = f.send(request, body)
	return err
}

func (f *Fediverse) userAgent() string { return "inbox-peer/1 (+" + f.base + "/)" }

// send signs the request; any status but 2xx is an error with the start of the answer.
func (f *Fediverse) send(request *http.Request, body []byte) ([]byte, *http.Response, error) {
	request.Header.Set("User-Agent", f.userAgent())
	sign := f.key.sign
	if body != nil && f.scheme == SchemeRFC9421 {
		sign = f.key.signMessage
	}
	if err := sign(request, body); err != nil {
		return nil, nil, err
	}

	response, err := f.client.Do(request)
	if err != nil {
		return nil, nil, err
	}

	answered, err := readBody(response)
	if err != nil {
		return nil, nil, err
	}
	if response.StatusCode/100 != 2 {
		return nil, nil, fmt.Errorf("%s %s answered %s: %.200q", request.Method, request.URL, response.Status, answered)
	}

	return answered, response, nil
}

// encode writes JSON with the letters of HTML as they are.
func encode(document object) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(document)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// note makes Create(Note) that mentions the target, as Mastodon writes it, and serves both to the one who fetches them.
func (f *Fediverse) note(target actorDocument, address, text, inReplyTo string) object {
	path := "/users/" + f.user + "/statuses/" + newID()
	local, _, _ := strings.Cut(strings.TrimPrefix(address, "@"), "@")
	to, cc := []string{publicAddress}, []string{f.actorID() + "/followers", target.ID}
	published := time.Now().UTC().Format(time.RFC3339)
	note := object{
		"id": f.base + path, "type": "Note", "attributedTo": f.actorID(), "published": published, "to": to, "cc": cc,
		"url": f.base + "/@" + f.user, "sensitive": false, "conversation": "tag:" + f.host + ",2026:" + path,
		"content": fmt.Sprintf(`<p><span class="h-card" translate="no"><a href="%s" class="u-url mention">@<span>%s</span></a></span> %s</p>`,
			html.EscapeString(target.ID), html.EscapeString(local), html.EscapeString(text)),
		"tag": []object{{"type": "Mention", "href": target.ID, "name": address}},
	}

	if inReplyTo != "" {
		note["inReplyTo"] = inReplyTo
	}

	create := object{
		"@context": activityStreams, "id": f.base + path + "/activity", "type": "Create", "actor": f.actorID(),
		"published": published, "to": to, "cc": cc, "object": note,
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	f.objects[path], f.objects[path+"/activity"] = note, create
	return create
}

// origin returns scheme and host of an IRI; empty when it is none.
func origin(iri string) string {
	parsed, err := url.Parse(iri)
	if err != nil || parsed.Host == "" {
		return ""
	}
	return parsed.Scheme + "://" + strings.ToLower(parsed.Host)
}
