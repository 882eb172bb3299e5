package load

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"time"
)

const publicCollection = "https://www.w3.org/ns/activitystreams#Public"

// Person is one actor of a Community.
type Person struct {
	Name string
	ID   string // actor IRI
	Key  *rsa.PrivateKey
}

// KeyID is the IRI of the person's key.
func (p Person) KeyID() string { return p.ID + "#main-key" }

// Document is the actor as its server shows it.
func (p Person) Document() map[string]any {
	return map[string]any{
		"@context":          []string{"https://www.w3.org/ns/activitystreams", "https://w3id.org/security/v1"},
		"id":                p.ID,
		"type":              "Person",
		"preferredUsername": p.Name,
		"inbox":             p.ID + "/inbox",
		"outbox":            p.ID + "/outbox",
		"followers":         p.ID + "/followers",
		"following":         p.ID + "/following",
		"url":               p.ID,
		"endpoints":         map[string]string{"sharedInbox": p.origin() + "/inbox"},
		"publicKey":         map[string]string{"id": p.KeyID(), "owner": p.ID, "publicKeyPem": publicPEM(p.Key)},
	}
}

func (p Person) origin() string {
	parsed, err := url.Parse(p.ID)
	if err != nil {
		panic(err) // made by us
	}
	return parsed.Scheme + "://" + parsed.Host
}

// Mention is a public note that mentions the agent. NoteID is what its reply will name in inReplyTo.
type Mention struct {
	ActivityID string
	NoteID     string
	Body       []byte
}

// Mention writes the activity. The key must be new for each message; agent is the actor IRI.
func (p Person) Mention(agent, key, text string) Mention {
	note := p.ID + "/notes/" + key
	cc := []string{p.ID + "/followers", agent}
	published := time.Now().UTC().Format(time.RFC3339)
	body, err := json.Marshal(map[string]any{
		"@context":  "https://www.w3.org/ns/activitystreams",
		"id":        note + "/activity",
		"type":      "Create",
		"actor":     p.ID,
		"published": published,
		"to":        []string{publicCollection},
		"cc":        cc,
		"object": map[string]any{
			"id":           note,
			"type":         "Note",
			"attributedTo": p.ID,
			"published":    published,
			"to":           []string{publicCollection},
			"cc":           cc,
			"content": fmt.Sprintf(`<p><span class="h-card"><a href=%q class="u-url mention">@<span>agent</span></a></span> %s</p>`,
				agent, text),
			"tag": []map[string]string{{"type": "Mention", "href": agent, "name": "@agent"}},
		},
	})
	if err != nil {
		panic(err) // strings can always be written
	}

	return Mention{ActivityID: note + "/activity", NoteID: note, Body: body}
}

// With returns the mention with further members of its note, or with others in place of its own.
func (m Mention) With(members map[string]any) (Mention, error) {
	var activity map[string]any
	if err := json.Unmarshal(m.Body, &activity); err != nil {
		return m, fmt.Errorf("read mention: %w", err)
	}

	note, _ := activity["object"].(map[string]any)
	maps.Copy(note, members)
	body, err := json.Marshal(activity)
	if err != nil {
		return m, fmt.Errorf("write mention: %w", err)
	}
	m.Body = body
	return m, nil
}

// Signature says how a delivery is signed; the zero value is what an honest server sends now.
type Signature struct {
	Key   *rsa.PrivateKey // nil = the person's own
	KeyID string          // empty = the person's own
	Date  time.Time       // zero = now
}

// Delivery makes the POST of a body to an inbox, signed as draft-cavage-http-signatures-12 with the four headers that
// the fediverse covers.
func (p Person) Delivery(inbox string, body []byte, how Signature) (*http.Request, error) {
	request, err := http.NewRequest(http.MethodPost, inbox, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make delivery: %w", err)
	}

	if how.Date.IsZero() {
		how.Date = time.Now()
	}

	digest := sha256.Sum256(body)
	request.Header.Set("Content-Type", "application/activity+json")
	request.Header.Set("User-Agent", "load/1.0")
	request.Header.Set("Date", how.Date.UTC().Format(http.TimeFormat))
	request.Header.Set("Digest", "SHA-256="+base64.StdEncoding.EncodeToString(digest[:]))
	return request, p.sign(request, how)
}

func (p Person) sign(request *http.Request, how Signature) error {
	if how.Key == nil {
		how.Key = p.Key
	}
	if how.KeyID == "" {
		how.KeyID = p.KeyID()
	}

	text := fmt.Sprintf("(request-target): post %s\nhost: %s\ndate: %s\ndigest: %s", request.URL.RequestURI(),
		request.URL.Host, request.Header.Get("Date"), request.Header.Get("Digest"))
	hash := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, how.Key, crypto.SHA256, hash[:])
	if err != nil {
		return fmt.Errorf("sign delivery: %w", err)
	}

	request.Header.Set("Signature", fmt.Sprintf(
		`keyId=%q,algorithm="rsa-sha256",headers="(request-target) host date digest",signature=%q`,
		how.KeyID, base64.StdEncoding.EncodeToString(signature)))

	return nil
}
