package document

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// ActivityStreams is the context of every document, and Public the collection of everyone.
const (
	ActivityStreams = "https://www.w3.org/ns/activitystreams"
	Public          = ActivityStreams + "#Public"
)

// Text returns a string member; empty when it is absent or something else.
func Text(o Object, name string) string {
	text, _ := o[name].(string)
	return text
}

// MaxListed is how many recipients, tags or attachments of one document are looked at.
const MaxListed = 200

// List reads a member that may be absent, one value or a list of them.
func List(value any) []any {
	switch v := value.(type) {
	case nil:
		return nil
	case []any:
		return v[:min(len(v), MaxListed)]
	}
	return []any{value}
}

// Reference reads the IRI of a member that may be an IRI, an object with an id, or a list of which the first counts.
func Reference(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case Object:
		return Text(v, "id")
	case []any:
		if len(v) > 0 {
			if _, nested := v[0].([]any); !nested {
				return Reference(v[0])
			}
		}
	}

	return ""
}

// References reads all IRIs of a member.
func References(value any) []string {
	if text, single := value.(string); single {
		return []string{text}
	}
	var iris []string
	for _, item := range List(value) {
		if iri := Reference(item); iri != "" {
			iris = append(iris, iri)
		}
	}

	return iris
}

// Embedded reads a member that may be an object or a list that begins with one; nil otherwise.
func Embedded(value any) Object {
	switch v := value.(type) {
	case Object:
		return v
	case []any:
		if len(v) > 0 {
			first, _ := v[0].(Object)
			return first
		}
	}

	return nil
}

// IsA reports whether the document's type is, or lists, one of the types.
func IsA(o Object, types ...string) bool {
	if own, single := o["type"].(string); single {
		return slices.Contains(types, own)
	}
	for _, own := range References(o["type"]) {
		if slices.Contains(types, own) {
			return true
		}
	}

	return false
}

// Type returns the type, or the first of several.
func Type(o Object) string { return Reference(o["type"]) }

// TypeAmong returns the first of the document's types that is one of those known. It returns Type if none is.
func TypeAmong(o Object, known ...string) string {
	for _, own := range References(o["type"]) {
		if slices.Contains(known, own) {
			return own
		}
	}
	return Type(o)
}

// Authors returns the ids of all to whom a document is attributed.
func Authors(o Object) []string { return References(o["attributedTo"]) }

// Author returns the first author that is not a group. PeerTube and Lemmy list the group of a post beside the person who wrote it.
// It returns an empty string if there is no author.
func Author(o Object) string {
	for _, entry := range List(o["attributedTo"]) {
		if named, _ := entry.(Object); named == nil || !IsA(named, "Group", "Organization") {
			if iri := Reference(entry); iri != "" {
				return iri
			}
		}
	}
	return Reference(o["attributedTo"])
}

// IsBy reports whether a document names the actor among its authors, or no author at all.
func IsBy(o Object, actor string) bool {
	authors := Authors(o)
	return len(authors) == 0 || slices.Contains(authors, actor)
}

// Href reads url members: a string, a Link object, or a list of them (the first web page wins).
func Href(value any) string {
	first := ""
	for _, entry := range List(value) {
		href, _ := entry.(string)
		link, isLink := entry.(Object)
		if isLink {
			href = Text(link, "href")
		}

		if _, ok := Origin(href); !ok {
			continue
		}
		if !isLink || Text(link, "mediaType") == "text/html" {
			return href
		}

		if first == "" {
			first = href
		}
	}

	return first
}

// Time reads an xsd:dateTime, in UTC. One without a zone is none: no one knows what it means.
func Time(value any) (time.Time, bool) {
	text, _ := value.(string)
	at, err := time.Parse(time.RFC3339, text)
	return at.UTC(), err == nil
}

// Translated returns a member of natural language, or the first of its translations where it stands only in a Map.
func Translated(note Object, name string) string {
	if text := Text(note, name); text != "" {
		return text
	}
	translations, _ := note[name+"Map"].(Object)
	for _, language := range slices.Sorted(maps.Keys(translations)) {
		if text := Text(translations, language); text != "" {
			return text
		}
	}

	return ""
}

// LanguageTag keeps what can be a BCP 47 tag of one language.
func LanguageTag(text string) string {
	switch strings.ToLower(text) {
	case "und", "mul", "zxx": // undetermined, several, none
		return ""
	}

	for _, c := range []byte(text) {
		if c != '-' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
			return ""
		}
	}

	if len(text) < 2 || len(text) > 35 {
		return ""
	}
	return text
}

// MediaType keeps a media type only if it looks like one.
func MediaType(text string) string {
	kind, sub, found := strings.Cut(text, "/")
	if !found || kind == "" || sub == "" || len(text) > 127 || !utf8.ValidString(text) ||
		strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return ""
	}
	return strings.ToLower(text)
}

// IsActivityType reports whether a Content-Type means ActivityPub. A fetched document must name the profile with
// application/ld+json: a file that someone uploaded to a server must never pass as an actor (CVE-2024-25623).
func IsActivityType(header string, needProfile bool) bool {
	if header == "application/activity+json" {
		return true
	}
	media, parameters, err := mime.ParseMediaType(header)
	if err != nil && media != "application/activity+json" { // of that no parameter counts, so a malformed one costs nothing
		return false
	}

	switch media {
	case "application/activity+json":
		return true
	case "application/ld+json":
		profile, given := parameters["profile"]
		return slices.Contains(strings.Fields(profile), ActivityStreams) || !needProfile && !given
	}
	return false
}

// IsPublic knows the three spellings in use; Fedify's raw JSON-LD form writes as:Public.
func IsPublic(iri string) bool { return iri == Public || iri == "as:Public" || iri == "Public" }

// Encode writes JSON without the escapes that are meant for HTML pages.
func Encode(document any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(document); err != nil {
		return nil, fmt.Errorf("encode document: %w", err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}
