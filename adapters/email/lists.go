package email

import (
	"slices"
	"strings"

	"inbox/adapters/email/message"
)

// listMail says whether a mail came through a mailing list (RFC 2369, RFC 2919, and what lists wrote before).
func listMail(fields message.Header) bool {
	return slices.ContainsFunc([]string{"List-Id", "List-Post", "Mailing-List", "X-BeenThere"}, fields.Has) ||
		slices.ContainsFunc(fields.All("Precedence"), func(f message.Field) bool { return message.FirstToken(f.Text()) == "list" })
}

// answersList says whether the agent answers the author of a mail that came through a list: the operator wants it, the mail
// names the agent in To, and a person wrote it, not the list.
func (a *Adapter) answersList(mail *arrival, to recipient) bool {
	return a.options.AnswersLists != nil && listMail(mail.fields) && a.options.AnswersLists(to.agent) && a.named(mail.fields, to, "To") &&
		!slices.Contains(listAddresses(mail.fields), mail.sender.from.Key())
}

// listMark says whether a field says only that a list passed the mail on.
func listMark(name string) bool {
	return strings.HasPrefix(strings.ToLower(name), "list-") || strings.EqualFold(name, "Mailing-List")
}

// maxListAddresses bounds what is remembered of one mail.
const maxListAddresses = 20

// listAddresses gives the addresses behind which a list stands, in lower case; nobody there is ever answered.
func listAddresses(fields message.Header) []string {
	var found []string
	add := func(text string) {
		if address := message.AddressKey(text); address != "" && !slices.Contains(found, address) && len(found) < maxListAddresses {
			found = append(found, address)
		}
	}
	for _, name := range []string{"List-Post", "List-Owner", "List-Help", "List-Subscribe", "List-Unsubscribe"} {
		for _, one := range fields.All(name) {
			for piece := range strings.SplitSeq(one.Text(), "<") {
				uri, _, _ := strings.Cut(piece, ">")
				if address, is := strings.CutPrefix(strings.ToLower(strings.TrimSpace(uri)), "mailto:"); is {
					address, _, _ = strings.Cut(address, "?")
					add(address)
				}
			}
		}
	}
	for _, one := range fields.All("List-Id") {
		id := one.Text()
		if start := strings.LastIndexByte(id, '<'); start >= 0 {
			id, _, _ = strings.Cut(id[start+1:], ">")
		}
		if name, domain, found := strings.Cut(strings.TrimSpace(id), "."); found {
			add(name + "@" + domain)
		}
	}
	for _, name := range []string{"X-BeenThere", "Mailing-List"} {
		for _, one := range fields.All(name) {
			for word := range strings.FieldsFuncSeq(one.Text(), func(r rune) bool { return r == ' ' || r == ';' || r == ',' || r == '\t' }) {
				if strings.Contains(word, "@") {
					add(word)
				}
			}
		}
	}
	return found
}
