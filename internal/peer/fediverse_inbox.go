package peer

import (
	"context"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"
)

// inbox accepts an activity only when its sender is proven.
func (f *Fediverse) inbox(w http.ResponseWriter, r *http.Request) {
	if got, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); got != activityJSON && got != "application/ld+json" {
		http.Error(w, "want "+activityJSON, http.StatusUnsupportedMediaType)
		return
	}

	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxDocumentBytes))
	if err != nil {
		http.Error(w, "body too large or cut", http.StatusRequestEntityTooLarge)
		return
	}

	sender, signature, err := f.authenticate(r, body)
	if err != nil {
		f.waiting.refuse(err)
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	if err := f.receive(sender, signature, body); err != nil {
		f.waiting.refuse(err)
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}

	w.WriteHeader(http.StatusAccepted)
}

// authenticate returns the actor whose key signed the request; its key is fetched anew, never believed from before.
func (f *Fediverse) authenticate(r *http.Request, body []byte) (actorDocument, requestSignature, error) {
	check := checkUnsigned
	if f.scheme == SchemeRFC9421 {
		check = checkMessageUnsigned
	}
	signature, err := check(r, body, time.Now())
	if err != nil {
		return actorDocument{}, signature, err
	}
	return f.owner(r, signature)
}

// owner fetches the owner of the key and verifies the signature with it.
func (f *Fediverse) owner(r *http.Request, signature requestSignature) (actorDocument, requestSignature, error) {
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	owner, _, _ := strings.Cut(signature.keyID, "#")
	actor, err := f.fetchActor(ctx, owner)
	if err != nil {
		return actor, signature, fmt.Errorf("fetch the key %s: %w", signature.keyID, err)
	}
	if actor.PublicKey.ID != signature.keyID {
		return actor, signature, fmt.Errorf("%s does not list the key %s", actor.ID, signature.keyID)
	}

	key, err := parsePublicKey(actor.PublicKey.PublicKeyPEM)
	if err != nil {
		return actor, signature, err
	}

	return actor, signature, signature.check(r, key)
}

func parsePublicKey(text string) (*rsa.PublicKey, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("publicKeyPem is no PEM")
	}

	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("publicKeyPem: %w", err)
	}

	key, ok := parsed.(*rsa.PublicKey)
	if !ok || key.N.BitLen() < 2048 {
		return nil, errors.New("publicKeyPem is no RSA key of 2048 bits or more")
	}
	return key, nil
}

// receive takes a proven activity: replies go to the one who asked, mentions are answered when the peer does that.
func (f *Fediverse) receive(sender actorDocument, signature requestSignature, body []byte) error {
	var activity activityDocument
	if err := json.Unmarshal(body, &activity); err != nil {
		return fmt.Errorf("the activity is not the expected JSON: %w", err)
	}
	if activity.Actor != sender.ID {
		return fmt.Errorf("the activity of %s is signed by %s", activity.Actor, sender.ID)
	}
	if activity.Type != "Create" {
		return nil
	}

	var note noteDocument
	if err := json.Unmarshal(activity.Object, &note); err != nil {
		return fmt.Errorf("the object is not the expected note: %w", err)
	}
	if err := checkNote(activity, note); err != nil {
		return err
	}
	if note.InReplyTo != "" && f.waiting.deliver(note.InReplyTo, f.judge(sender, signature, note)) {
		return nil
	}

	f.maybeReply(sender, note)
	return nil
}

// checkNote holds for every Create: author and ids belong to the one who signed.
func checkNote(activity activityDocument, note noteDocument) error {
	switch {
	case !slices.Contains(activity.Context, activityStreams):
		return errors.New("the activity lacks the @context " + activityStreams)
	case note.AttributedTo != activity.Actor:
		return fmt.Errorf("the note is attributed to %q", note.AttributedTo)
	case origin(activity.ID) == "" || origin(activity.ID) != origin(activity.Actor):
		return fmt.Errorf("the activity id %q is not on its actor's server", activity.ID)
	case origin(note.ID) != origin(activity.Actor):
		return fmt.Errorf("the note id %q is not on its author's server", note.ID)
	}
	return nil
}

// judge turns a reply to one of our notes into the answer or into what is wrong with it.
func (f *Fediverse) judge(sender actorDocument, signature requestSignature, note noteDocument) answer {
	text := noteText(note.Content)
	switch {
	case !note.mentions(f.actorID()):
		return answer{err: fmt.Errorf("the reply %s does not mention and address %s", note.ID, f.actorID())}
	case text == "":
		return answer{err: fmt.Errorf("the reply %s has no text", note.ID)}
	}

	return answer{id: note.ID, from: sender.ID, others: note.others(f.actorID()), text: text, evidence: []string{
		"HTTP signature over " + strings.Join(signature.covered, ", ") + " verifies",
		"key " + signature.keyID + " fetched from its owner",
		"author " + sender.ID + " is the owner of that key",
		"inReplyTo is our note; Mention and address are ours",
	}}
}

// maybeReply answers a mention after the request is over, as servers do.
func (f *Fediverse) maybeReply(sender actorDocument, note noteDocument) {
	if f.reply == nil || !note.mentions(f.actorID()) {
		return
	}

	address := "@" + sender.PreferredUsername + "@" + strings.TrimPrefix(strings.TrimPrefix(origin(sender.ID), "http://"), "https://")
	create := f.note(sender, address, f.reply(noteText(note.Content)), note.ID)
	f.work.Go(func() {
		ctx, cancel := context.WithTimeout(f.life, requestTimeout)
		defer cancel()
		if err := f.deliver(ctx, sender.Inbox, create); err != nil {
			f.waiting.refuse(err)
		}
	})
}
