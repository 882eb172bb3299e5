package activitypub

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"strings"
	"time"
)

// remoteActor is what we keep of somebody else's actor document. All strings are copies: a piece of the document
// would keep its whole megabyte alive.
type remoteActor struct {
	ID          string         `json:"id"`
	Type        string         `json:"type"`
	Username    string         `json:"username"`
	Name        string         `json:"name,omitempty"`
	URL         string         `json:"url,omitempty"`
	Icon        string         `json:"icon,omitempty"`
	IconType    string         `json:"icon_type,omitempty"`
	Inbox       string         `json:"inbox"`
	SharedInbox string         `json:"shared_inbox,omitempty"`
	Followers   string         `json:"followers,omitempty"`
	NoBot       bool           `json:"no_bot,omitempty"`    // the profile asks programs not to write unasked
	WebFinger   string         `json:"webfinger,omitempty"` // FEP-2c59: user@domain
	Language    string         `json:"language,omitempty"`  // of the profile, when it is in one language
	Keys        []publishedKey `json:"keys"`
	FetchedAt   time.Time      `json:"fetched_at"`
	Until       time.Time      `json:"until,omitzero"`   // the actor was changed: what we have holds no longer than this
	GoneAt      time.Time      `json:"gone_at,omitzero"` // since when its server says that it does not exist
}

// publishedKey is a key that an actor lists. Material is SPKI PEM or a Multikey; empty when the actor only names it.
type publishedKey struct {
	ID        string `json:"id"`
	Material  string `json:"material,omitempty"`
	Assertion bool   `json:"assertion,omitempty"` // a Multikey of assertionMethod: it may prove objects
}

// actorTypes are the kinds of ActivityStreams 2.0 that can speak.
var actorTypes = []string{"Person", "Service", "Application", "Group", "Organization"}

func isActor(doc object) bool { return isA(doc, actorTypes...) }

// automated says that an actor declares itself a program.
func (r *remoteActor) automated() bool { return r.Type == "Service" || r.Type == "Application" }

// freshUntil is when the actor is to be fetched again.
func (r *remoteActor) freshUntil() time.Time {
	end := r.FetchedAt.Add(keyLife)
	if !r.Until.IsZero() && r.Until.Before(end) {
		return r.Until
	}
	return end
}

func (r *remoteActor) fresh(now time.Time) bool { return now.Before(r.freshUntil()) }

// lists finds a key by its id. An actor may list one key both ways.
func (r *remoteActor) lists(keyID string) (found publishedKey, listed bool) {
	for _, key := range r.Keys {
		if key.ID != keyID {
			continue
		}
		if found.Material == "" {
			found.ID, found.Material = key.ID, key.Material
		}
		found.Assertion = found.Assertion || key.Assertion
		listed = true
	}
	if !listed && keyID == r.ID {
		return r.onlyKey()
	}
	return found, listed
}

// onlyKey is the key of an actor who signs with the actor's own id as key id, as PeerTube did up to version 5. Of
// several keys nobody knows which one is meant.
func (r *remoteActor) onlyKey() (only publishedKey, single bool) {
	for _, key := range r.Keys {
		if key.Assertion || key.Material == "" {
			continue
		}
		if only.ID != "" {
			return publishedKey{}, false
		}
		only = key
	}
	return only, only.ID != ""
}

// readActor reads an actor document. It does not judge where the document came from.
func readActor(doc object, now time.Time) (*remoteActor, error) {
	copied := func(o object, name string, limit int) string { return strings.Clone(clip(str(o, name), limit)) }
	actor := &remoteActor{
		ID: copied(doc, "id", maxIRIBytes), Type: strings.Clone(clip(kindOf(doc), 64)),
		Username: copied(doc, "preferredUsername", 256), Name: copied(doc, "name", 1024),
		URL: strings.Clone(linkHref(doc["url"])), Inbox: copied(doc, "inbox", maxIRIBytes),
		Followers: strings.Clone(clip(reference(doc["followers"]), maxIRIBytes)), WebFinger: copied(doc, "webfinger", 320),
		Language: actorLanguage(doc), FetchedAt: now.UTC(),
	}
	actor.NoBot = asksNoBots(str(doc, "summary"))
	if !isActor(doc) || actor.ID == "" || actor.Inbox == "" {
		return nil, errors.New("document is not an actor with id and inbox")
	}
	if _, ok := origin(actor.Inbox); !ok {
		return nil, errors.New("the actor's inbox is not an address")
	}
	if endpoints := embedded(doc["endpoints"]); endpoints != nil {
		// A shared inbox elsewhere would let anybody point our signed posts at a third party.
		if shared := copied(endpoints, "sharedInbox", maxIRIBytes); sameOrigin(shared, actor.Inbox) {
			actor.SharedInbox = shared
		}
	}
	if icon := embedded(doc["icon"]); icon != nil {
		actor.Icon, actor.IconType = strings.Clone(linkHref(icon["url"])), copied(icon, "mediaType", 128)
	} else {
		actor.Icon = strings.Clone(linkHref(doc["icon"])) // ActivityStreams allows the bare address
	}
	actor.Keys = readKeys(doc)
	return actor, nil
}

// actorLanguage is the one language in which an actor presents itself; of several nobody knows which one it reads.
func actorLanguage(doc object) string {
	for _, name := range []string{"summaryMap", "nameMap"} {
		if translations, _ := doc[name].(object); len(translations) == 1 {
			for language := range translations {
				return strings.Clone(languageTag(language))
			}
		}
	}
	return ""
}

// readKeys collects publicKey (object, list or bare ids) and assertionMethod (FEP-521a). A key that names another owner
// than the document is none of its keys.
func readKeys(doc object) []publishedKey {
	var keys []publishedKey
	id := str(doc, "id")
	for _, name := range []string{"publicKey", "assertionMethod"} {
		for _, entry := range listed(doc[name]) {
			key, owner := readKey(entry)
			key.Assertion = name == "assertionMethod"
			if key.ID == "" || len(keys) >= maxActorKeys || owner != "" && owner != id || key.Assertion && key.Material != "" && owner == "" {
				continue
			}
			keys = append(keys, key)
		}
	}
	return keys
}

// maxActorKeys is how many keys of one actor are kept.
const maxActorKeys = 16

func readKey(entry any) (key publishedKey, owner string) {
	if id, isText := entry.(string); isText {
		return publishedKey{ID: strings.Clone(clip(id, maxIRIBytes))}, ""
	}
	doc, _ := entry.(object)
	material := str(doc, "publicKeyPem")
	if material == "" {
		material = str(doc, "publicKeyMultibase")
	}
	if owner = reference(doc["owner"]); owner == "" {
		owner = reference(doc["controller"])
	}
	return publishedKey{ID: strings.Clone(clip(str(doc, "id"), maxIRIBytes)), Material: strings.Clone(clip(material, 16<<10))}, owner
}

// linkHref reads url members: a string, a Link object, or a list of them (the first web page wins).
func linkHref(value any) string {
	first := ""
	for _, entry := range listed(value) {
		href, _ := entry.(string)
		link, isLink := entry.(object)
		if isLink {
			href = str(link, "href")
		}
		if _, ok := origin(href); !ok {
			continue
		}
		if !isLink || str(link, "mediaType") == "text/html" {
			return href
		}
		if first == "" {
			first = href
		}
	}
	return first
}

// parseKey reads SPKI or PKCS #1 PEM, or a Multikey, and refuses weak and absurd keys.
func parseKey(material string) (crypto.PublicKey, error) {
	if strings.HasPrefix(material, "z") {
		return parseMultikey(material)
	}
	block, _ := pem.Decode([]byte(material))
	if block == nil {
		return nil, errors.New("key is neither PEM nor a Multikey")
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		pkcs1, otherErr := x509.ParsePKCS1PublicKey(block.Bytes) // "RSA PUBLIC KEY" of some small servers
		if otherErr != nil {
			return nil, errors.New("key cannot be parsed")
		}
		parsed = pkcs1
	}
	switch key := parsed.(type) {
	case *rsa.PublicKey:
		return key, checkRSA(key)
	case ed25519.PublicKey:
		return key, nil
	}
	return nil, errors.New("key is neither RSA nor Ed25519")
}

func checkRSA(key *rsa.PublicKey) error {
	bits := key.N.BitLen()
	switch {
	case bits < 2048:
		return errors.New("RSA key is shorter than 2048 bits")
	case bits > 8192:
		return errors.New("RSA key is longer than 8192 bits")
	case key.E < 65537:
		return errors.New("RSA key has an exponent below 65537")
	}
	return nil
}
