package document

import (
	"errors"
	"strings"

	"inbox/internal/clip"
)

// Actor is an actor as its document describes it. All strings are copies: a piece of the document would keep its whole
// megabyte alive.
type Actor struct {
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
	WebFinger   string         `json:"webfinger,omitempty"` // FEP-2c59: user@domain
	Language    string         `json:"language,omitempty"`  // of the profile, when it is in one language
	Keys        []PublishedKey `json:"keys"`
}

// PublishedKey is a key that an actor lists. Material is SPKI PEM or a Multikey; empty when the actor only names it.
type PublishedKey struct {
	ID        string `json:"id"`
	Material  string `json:"material,omitempty"`
	Assertion bool   `json:"assertion,omitempty"` // a Multikey of assertionMethod: it may prove objects
}

// actorTypes are the kinds of ActivityStreams 2.0 that can speak.
var actorTypes = []string{"Person", "Service", "Application", "Group", "Organization"}

// IsActor reports whether a document is one of an actor.
func IsActor(doc Object) bool { return IsA(doc, actorTypes...) }

// Automated reports whether an actor declares itself a program.
func (r *Actor) Automated() bool { return r.Type == "Service" || r.Type == "Application" }

// ReadActor reads an actor document. It does not judge where the document came from.
func ReadActor(doc Object) (Actor, error) {
	copied := func(o Object, name string, limit int) string { return strings.Clone(clip.Bytes(Text(o, name), limit)) }
	read := Actor{
		ID: copied(doc, "id", MaxIRIBytes), Type: strings.Clone(clip.Bytes(TypeAmong(doc, actorTypes...), 64)),
		Username: copied(doc, "preferredUsername", 256), Name: copied(doc, "name", 1024),
		URL: strings.Clone(Href(doc["url"])), Inbox: copied(doc, "inbox", MaxIRIBytes),
		Followers: strings.Clone(clip.Bytes(Reference(doc["followers"]), MaxIRIBytes)), WebFinger: copied(doc, "webfinger", 320),
		Language: actorLanguage(doc), Keys: ReadKeys(doc),
	}
	if !IsActor(doc) || read.ID == "" || read.Inbox == "" {
		return Actor{}, errors.New("document is not an actor with id and inbox")
	}
	if _, ok := Origin(read.Inbox); !ok {
		return Actor{}, errors.New("the actor's inbox is not an address")
	}

	if endpoints := Embedded(doc["endpoints"]); endpoints != nil {
		// A shared inbox elsewhere would let anyone point our signed posts at a third party.
		if shared := copied(endpoints, "sharedInbox", MaxIRIBytes); SameOrigin(shared, read.Inbox) {
			read.SharedInbox = shared
		}
	}

	if icon := Embedded(doc["icon"]); icon != nil {
		read.Icon, read.IconType = strings.Clone(Href(icon["url"])), copied(icon, "mediaType", 128)
	} else {
		read.Icon = strings.Clone(Href(doc["icon"])) // ActivityStreams allows the bare address
	}
	return read, nil
}

// actorLanguage is the one language in which an actor presents itself; of several none is known to be the one that it reads.
func actorLanguage(doc Object) string {
	for _, name := range []string{"summaryMap", "nameMap"} {
		if translations, _ := doc[name].(Object); len(translations) == 1 {
			for language := range translations {
				return strings.Clone(LanguageTag(language))
			}
		}
	}
	return ""
}

// ReadKeys collects publicKey (object, list or bare ids) and assertionMethod (FEP-521a). A key that names another owner
// than the document is none of its keys.
func ReadKeys(doc Object) []PublishedKey {
	var keys []PublishedKey
	id := Text(doc, "id")
	for _, name := range []string{"publicKey", "assertionMethod"} {
		for _, entry := range List(doc[name]) {
			key, owner := ReadKey(entry)
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

// ReadKey reads one key, which may be only its id, and the owner that it names.
func ReadKey(entry any) (key PublishedKey, owner string) {
	if id, isText := entry.(string); isText {
		return PublishedKey{ID: strings.Clone(clip.Bytes(id, MaxIRIBytes))}, ""
	}
	doc, _ := entry.(Object)
	material := Text(doc, "publicKeyPem")
	if material == "" {
		material = Text(doc, "publicKeyMultibase")
	}

	if owner = Reference(doc["owner"]); owner == "" {
		owner = Reference(doc["controller"])
	}
	return PublishedKey{ID: strings.Clone(clip.Bytes(Text(doc, "id"), MaxIRIBytes)), Material: strings.Clone(clip.Bytes(material, 16<<10))}, owner
}

// Key finds a key by its id. An actor may list one key both ways.
func (r *Actor) Key(keyID string) (found PublishedKey, listed bool) {
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
// several keys none is known to be the one that is meant.
func (r *Actor) onlyKey() (only PublishedKey, single bool) {
	for _, key := range r.Keys {
		if key.Assertion || key.Material == "" {
			continue
		}
		if only.ID != "" {
			return PublishedKey{}, false
		}
		only = key
	}

	return only, only.ID != ""
}

// SetMaterial completes a key that the actor only names.
func (r *Actor) SetMaterial(keyID, material string) {
	for i := range r.Keys {
		if r.Keys[i].ID == keyID {
			r.Keys[i].Material = material
		}
	}
}
