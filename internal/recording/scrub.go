package recording

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"inbox/identity"
)

// Words that stand for what was taken out.
const (
	removed       = "[removed]"
	removedNumber = "[number]"

	// PeopleDomain is that of the addresses that stand for people's.
	PeopleDomain = "simulated.test"
	// ownDomain stands for that of the server, so that another server can be compared with it.
	ownDomain = "agents.test"
)

// Scrubber takes secrets out of texts and gives people other names, the same person always the same. One is for one set of recordings,
// and for one goroutine.
type Scrubber struct {
	domain     string // of the server
	pseudonyms bool

	people  map[string]int // by address in small letters
	names   []spoken       // longest first
	threads map[string]int
}

// spoken is a word of a name, and the person who has it.
type spoken struct {
	word   string
	person int
}

// NewScrubber makes one for recordings of a server with the domain. Without pseudonyms only secrets are taken out.
func NewScrubber(domain string, pseudonyms bool) *Scrubber {
	return &Scrubber{domain: domain, pseudonyms: pseudonyms, people: map[string]int{}, threads: map[string]int{}}
}

func (s *Scrubber) thread(agent, id string) string {
	key := agent + " " + id
	if s.threads[key] == 0 {
		s.threads[key] = len(s.threads) + 1
	}
	return fmt.Sprintf("thread%d", s.threads[key])
}

// minName is the shortest word of a name that is looked for in texts, in characters: shorter ones are words, too.
const minName = 3

// sender returns what stands for the sender of a message, whose name is looked for in texts from now on.
func (s *Scrubber) sender(address, name string) (string, string) {
	if !s.pseudonyms {
		return address, name
	}
	person := s.person(address)
	for _, word := range append([]string{name}, strings.FieldsFunc(name, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })...) {
		one := spoken{strings.TrimSpace(word), person}
		if utf8.RuneCountInString(one.word) >= minName && !slices.ContainsFunc(s.names, func(other spoken) bool { return other.word == one.word }) {
			s.names = append(s.names, one)
		}
	}
	slices.SortStableFunc(s.names, func(a, b spoken) int { return len(b.word) - len(a.word) })

	if name != "" {
		name = personName(person)
	}
	return personAddress(person), name
}

func (s *Scrubber) person(address string) int {
	key := strings.ToLower(strings.TrimPrefix(address, "@"))
	if s.people[key] == 0 {
		s.people[key] = len(s.people) + 1
	}
	return s.people[key]
}

func personName(person int) string    { return fmt.Sprintf("Person%d", person) }
func personAddress(person int) string { return fmt.Sprintf("person%d@%s", person, PeopleDomain) }

// Text returns a text without secrets, and with pseudonyms without what names people: their addresses, profiles, phone numbers and the names
// of senders so far.
func (s *Scrubber) Text(text string) string {
	text = withoutSecrets(text)
	if !s.pseudonyms {
		return text
	}

	text = numberForm.ReplaceAllStringFunc(text, number) // first: what stands for people has numbers, too
	text = addressForm.ReplaceAllStringFunc(text, s.address)
	text = profileForm.ReplaceAllStringFunc(text, func(found string) string {
		parts := profileForm.FindStringSubmatch(found)
		if standsForPerson.MatchString(parts[2]) || parts[1] == s.domain {
			return found
		}
		return "https://" + PeopleDomain + "/@" + strings.ToLower(personName(s.person(parts[2]+"@"+parts[1])))
	})
	for _, name := range s.names {
		text = replaceWord(text, name.word, personName(name.person))
	}
	return text
}

var (
	addressForm = regexp.MustCompile(`@?[\pL\pN_][\pL\pN._%+~-]*@[\pL\pN](?:[\pL\pN.-]*[\pL\pN])?(?::[0-9]{1,5}\b)?`)
	profileForm = regexp.MustCompile(`https?://([^/\s"<>]+)/(?:@|users/|u/)([\pL\pN._-]+)`)
	numberForm  = regexp.MustCompile(`(?:\+|\b)[0-9][0-9 ()/.-]{7,}[0-9]\b`)
	dateForm    = regexp.MustCompile(`^(?:19|20)[0-9]{2}-[0-9]{2}-[0-9]{2}`)

	standsForPerson = regexp.MustCompile(`^person[0-9]+$`)
)

// address returns what stands for an address. Those of the server's agents keep their names; what stands for a person already has the domain
// of such.
func (s *Scrubber) address(found string) string {
	bare, at := strings.CutPrefix(found, "@")
	local, domain, _ := strings.Cut(bare, "@")
	prefix := ""
	if at {
		prefix = "@"
	}
	switch {
	case strings.EqualFold(domain, s.domain) || strings.EqualFold(domain, identity.HostOf(s.domain)) || domain == ownDomain:
		return prefix + local + "@" + ownDomain
	case standsForPerson.MatchString(local):
		return prefix + local + "@" + PeopleDomain
	}
	return prefix + personAddress(s.person(bare))
}

// minDigits is the least number of digits of what may be a phone number, a card or an account.
const minDigits = 9

func number(found string) string {
	digits := 0
	for _, r := range found {
		if unicode.IsDigit(r) {
			digits++
		}
	}
	if digits < minDigits || dateForm.MatchString(found) {
		return found
	}
	return removedNumber
}

// replaceWord replaces a word where no letter and no digit stands beside it.
func replaceWord(text, word, with string) string {
	var written strings.Builder
	for {
		at := strings.Index(text, word)
		if at < 0 {
			written.WriteString(text)
			return written.String()
		}
		before, _ := utf8.DecodeLastRuneInString(text[:at])
		after, _ := utf8.DecodeRuneInString(text[at+len(word):])
		written.WriteString(text[:at])
		if partOfWord(before) || partOfWord(after) {
			written.WriteString(word)
		} else {
			written.WriteString(with)
		}
		text = text[at+len(word):]
	}
}

func partOfWord(r rune) bool {
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r))
}

// Forms of secrets. What looks like one is taken out: a word too many is better than a key.
var (
	keyBlock    = regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----(?:[^-]|-[^-])*(?:-----END [A-Z ]*PRIVATE KEY-----)?`)
	headerLine  = regexp.MustCompile(`(?im)^([ \t>]*(?:proxy-)?authorization|[ \t>]*(?:set-)?cookie|[ \t>]*x-api-key)[ \t]*:.*$`)
	bearerWord  = regexp.MustCompile(`(?i)\b(bearer|basic)[ \t]+[A-Za-z0-9._~+/=-]{6,}`)
	jsonToken   = regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?`)
	namedSecret = regexp.MustCompile(`(?i)\b((?:[a-z0-9_-]*(?:passwor[dt]|passwd|passphrase|kennwort|secret|token|api[ _-]?key|credential))|pin|tan)("?[ \t]*(?:=|:|\bis\b|\bist\b|\blautet\b)[ \t]*)("[^"\n]*"|'[^'\n]*'|[^\s,;]+)`)
	urlForm     = regexp.MustCompile(`\bhttps?://[^\s<>"]+`)
	randomForm  = regexp.MustCompile(`[A-Za-z0-9+_-]{20,}={0,2}`)
	secretParam = regexp.MustCompile(`(?i)token|key|secret|sig|pass|auth|code|credential|session|state|nonce|hash|otp|access`)
)

func withoutSecrets(text string) string {
	text = keyBlock.ReplaceAllString(text, removed)
	text = headerLine.ReplaceAllString(text, "$1: "+removed)
	text = urlForm.ReplaceAllStringFunc(text, cleanURL)
	text = bearerWord.ReplaceAllString(text, "$1 "+removed)
	text = jsonToken.ReplaceAllString(text, removed)
	text = namedSecret.ReplaceAllString(text, "$1$2"+removed)
	return replaceRandom(text)
}

// replaceRandom takes out long words of letters and digits outside of addresses of the web, whose parts cleanURL has looked at.
func replaceRandom(text string) string {
	var written strings.Builder
	for {
		at := urlForm.FindStringIndex(text)
		if at == nil {
			written.WriteString(randomForm.ReplaceAllStringFunc(text, random))
			return written.String()
		}
		written.WriteString(randomForm.ReplaceAllStringFunc(text[:at[0]], random))
		written.WriteString(text[at[0]:at[1]])
		text = text[at[1]:]
	}
}

// random takes out a word that no person would write: letters and digits mixed.
func random(word string) string {
	if strings.ContainsAny(word, "0123456789") && strings.ContainsFunc(word, unicode.IsLetter) {
		return removed
	}
	return word
}

// cleanURL takes out of an address what may open something: user and password, parameters with telling names, random words.
func cleanURL(found string) string {
	parsed, err := url.Parse(found)
	if err != nil {
		return removed
	}

	clean := parsed.Scheme + "://" + parsed.Host
	for i, step := range strings.Split(parsed.EscapedPath(), "/") {
		if i > 0 {
			clean += "/"
		}
		clean += randomForm.ReplaceAllStringFunc(step, random)
	}
	if parsed.RawQuery != "" {
		separator := "?"
		for one := range strings.SplitSeq(parsed.RawQuery, "&") {
			name, value, has := strings.Cut(one, "=")
			switch {
			case secretParam.MatchString(name):
				one = name + "=" + removed
			case has:
				one = name + "=" + randomForm.ReplaceAllStringFunc(value, random)
			default:
				one = randomForm.ReplaceAllStringFunc(one, random)
			}
			clean, separator = clean+separator+one, "&"
		}
	}
	if parsed.Fragment != "" {
		clean += "#" + randomForm.ReplaceAllStringFunc(parsed.EscapedFragment(), random)
		if strings.Contains(parsed.Fragment, "=") {
			clean = clean[:strings.LastIndexByte(clean, '#')] + "#" + removed
		}
	}
	return clean
}
