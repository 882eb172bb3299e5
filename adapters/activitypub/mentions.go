package activitypub

import (
	"strings"

	"inbox/identity"
)

// mention is one Mention tag of a note.
type mention struct {
	href string
	name string // @user or @user@host, as the sender wrote it
}

type mentions []mention

func readMentions(note object) mentions {
	var found mentions
	for _, entry := range listed(note["tag"]) {
		tag, _ := entry.(object)
		if tag != nil && isA(tag, "Mention") {
			found = append(found, mention{reference(tag["href"]), str(tag, "name")})
		}
	}
	return found
}

// address gives @user@host of the mention.
func (m mention) address() string {
	name := m.name
	if strings.Count(name, "@") < 2 {
		name = strings.TrimPrefix(name, "@") + "@" + hostOf(m.href)
	}
	address, err := identity.ParseAddress(name)
	if err != nil {
		return ""
	}
	return address.String()
}

// user is the part of the name between the @ signs.
func (m mention) user() string {
	user, _, _ := strings.Cut(strings.TrimPrefix(m.name, "@"), "@")
	return user
}

// find gives the tag that an anchor in the text stands for. Mastodon links the profile page in the text and the
// actor's id in the tag, so a tag on the same host with the same user name fits too.
func (m mentions) find(href, text string) (mention, bool) {
	for _, tag := range m {
		if tag.href == href {
			return tag, true
		}
	}
	text = strings.TrimSpace(text)
	user, host, whole := strings.Cut(strings.TrimPrefix(text, "@"), "@")
	for _, tag := range m {
		switch {
		case user == "" || !strings.EqualFold(tag.user(), user) || !sameOrigin(tag.href, href):
		case whole && !strings.EqualFold(tag.address(), "@"+user+"@"+host): // somebody of the same name elsewhere
		default:
			return tag, true
		}
	}
	return mention{}, false
}
