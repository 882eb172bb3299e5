package document

import (
	"slices"
	"strings"

	"inbox/identity"
)

// Mention is one Mention tag of a note.
type Mention struct {
	Href string
	Name string // @user or @user@host, as the sender wrote it
}

// Mentions are all of a note.
type Mentions []Mention

// ReadMentions reads the first MaxListed Mention tags of a note, and the later ones for which matters returns true: an agent may be
// mentioned last. The size limit of the document bounds the work.
func ReadMentions(note Object, matters func(Mention) bool) Mentions {
	var found Mentions
	for _, entry := range all(note["tag"]) {
		tag, _ := entry.(Object)
		if tag == nil || !IsA(tag, "Mention") {
			continue
		}
		mention := Mention{Reference(tag["href"]), Text(tag, "name")}
		if len(found) < MaxListed || len(found) < 2*MaxListed && matters(mention) {
			found = append(found, mention)
		}
	}
	return found
}

// all is List without its bound.
func all(value any) []any {
	if list, isList := value.([]any); isList {
		return list
	}
	return List(value)
}

// Address returns @user@host of the mention.
func (m Mention) Address() string {
	name := m.Name
	if strings.Count(name, "@") < 2 {
		name = strings.TrimPrefix(name, "@") + "@" + HostOf(m.Href)
	}

	address, err := identity.ParseAddress(name)
	if err != nil {
		return ""
	}
	return address.String()
}

// user is the part of the name between the @ signs.
func (m Mention) user() string {
	user, _, _ := strings.Cut(strings.TrimPrefix(m.Name, "@"), "@")
	return user
}

// Find returns the tag that an anchor in the text stands for. Mastodon links the profile page in the text and the
// actor's id in the tag, so a tag on the same host with the same user name fits too. An address without a host says nothing: then the
// name decides, where one tag alone has it.
func (m Mentions) Find(href, text string) (Mention, bool) {
	for _, tag := range m {
		if tag.Href == href {
			return tag, true
		}
	}

	text = strings.TrimSpace(text)
	user, host, whole := strings.Cut(strings.TrimPrefix(text, "@"), "@")
	for _, tag := range m {
		switch {
		case user == "" || !strings.EqualFold(tag.user(), user) || !SameOrigin(tag.Href, href):
		case whole && !strings.EqualFold(tag.Address(), "@"+user+"@"+host): // someone of the same name elsewhere
		default:
			return tag, true
		}
	}

	if found := m.named(user, host, whole); user != "" && !strings.Contains(href, "//") && !strings.Contains(href, ":") && len(found) == 1 {
		return found[0], true
	}
	return Mention{}, false
}

// named returns the tags of a user name, on the host if one is given.
func (m Mentions) named(user, host string, whole bool) (found Mentions) {
	for _, tag := range m {
		if strings.EqualFold(tag.user(), user) && (!whole || strings.EqualFold(tag.Address(), "@"+user+"@"+host)) {
			found = append(found, tag)
		}
	}
	return found
}

// Audience is to whom a note is addressed. Hidden holds bto, bcc and audience: read for delivery to us, never echoed.
type Audience struct {
	To, Cc, Hidden []string
}

// ReadAudience reads the addressing of the object, or of its activity where the object has none.
func ReadAudience(activity, note Object) Audience {
	from := note
	if note["to"] == nil && note["cc"] == nil {
		from = activity
	}

	addressed := Audience{To: References(from["to"]), Cc: References(from["cc"])}
	for _, doc := range []Object{activity, note} {
		for _, name := range []string{"bto", "bcc", "audience"} {
			addressed.Hidden = append(addressed.Hidden, References(doc[name])...)
		}
	}
	return addressed
}

// All returns everyone in it.
func (a Audience) All() []string { return slices.Concat(a.To, a.Cc, a.Hidden) }

// Includes reports whether an actor is among the recipients.
func (a Audience) Includes(actor string) bool {
	return slices.Contains(a.To, actor) || slices.Contains(a.Cc, actor) || slices.Contains(a.Hidden, actor)
}
