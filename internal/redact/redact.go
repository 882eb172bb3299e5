// Package redact hides the keys of this server in texts that came in: addresses of pages, files and mailboxes that work for everyone
// who has them, and the codes that go with them. A reply quotes the mail that it answers, and the reader of the reply must not get the keys that
// the mail gave to its recipient. It knows the forms in which mail programs and the gateways of companies write an address; what a file
// that is no text holds it does not see.
package redact

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"inbox/identity"
)

// Key is one kind of secret, declared by the package that mints it. Exactly one of Path, Tag and Pattern is set.
type Key struct {
	Path   string // addresses below it are keys, such as "/policy/"; it begins with a slash
	Query  string // only those with this member of the query; empty = all below Path
	Length int    // of the token after Path, which may then be broken over lines; 0 = not always the same

	Tag int // a mailbox is a key whose tag (name+tag@domain) ends with at least so many letters and digits

	// Pattern finds words that are keys beside an address; its first group is the secret. It is asked only about texts with Near,
	// in lower case.
	Pattern *regexp.Regexp
	Near    string
}

// What stands in the place of a key.
const (
	HiddenLink = "[link removed]"
	HiddenCode = "[code removed]"
)

// Redactor hides the keys of one server. The zero value hides nothing. It is safe for concurrent use.
type Redactor struct {
	hosts map[string]bool // see hostName; one with a port also without it
	paths []Key           // with Path in lower case
	tag   int
	words []word
}

// word is a Key with Pattern.
type word struct {
	Key
	rare int // place of the letter of Near that a search looks for
}

// New makes a Redactor. Hosts are those under which the server is reached, by HTTP and by mail, with or without a port.
func New(hosts []string, keys ...Key) *Redactor {
	r := &Redactor{hosts: map[string]bool{}}
	for _, host := range hosts {
		if name := hostName(host); name != "" {
			r.hosts[name], r.hosts[identity.HostOf(name)] = true, true
		}
	}

	for _, key := range keys {
		switch {
		case key.Pattern != nil:
			r.words = append(r.words, word{key, rarest(key.Near)})
		case key.Path != "":
			key.Path = strings.ToLower(key.Path)
			r.paths = append(r.paths, key)
		case key.Tag > 0 && (r.tag == 0 || key.Tag < r.tag):
			r.tag = key.Tag
		}
	}
	return r
}

// hostName returns a host in the form in which hosts are compared: lower case, punycode, without the ports of HTTP and a final dot. Another port
// is another server. Empty for a text that is not a host.
func hostName(text string) string {
	if at := strings.LastIndexByte(text, '@'); at >= 0 {
		text = text[at+1:]
	}
	port := ""
	if colon := strings.LastIndexByte(text, ':'); colon >= 0 && strings.Trim(text[colon+1:], "0123456789") == "" {
		if port = text[colon:]; port == ":" || port == ":80" || port == ":443" {
			port = ""
		}
		text = text[:colon]
	}
	text = strings.ToLower(strings.TrimSuffix(text[strings.LastIndexByte(text, ':')+1:], "."))
	if domain, err := identity.ParseDomain(text); err == nil {
		return domain + port
	}
	return text + port
}

// span is a piece of a text.
type span struct {
	from, to int
	word     bool // a code, not an address
}

// Text returns a text without keys.
func (r *Redactor) Text(text string) string { return replaced(text, r.find(text, true)) }

// Links is Text for a text whose first code its writer typed to be understood: that code stays.
func (r *Redactor) Links(text string) string {
	found := r.find(text, true)
	if first := slices.IndexFunc(found, func(s span) bool { return s.word }); first >= 0 {
		found = slices.Delete(found, first, first+1)
	}
	return replaced(text, found)
}

// Holds reports whether there is a key in bytes as they came, which may be a whole mail with its encodings.
func (r *Redactor) Holds(content []byte) bool {
	text := string(content)
	if isWide(text) {
		text = narrow(text)
	}
	if len(r.find(text, false)) > 0 {
		return true
	}

	for _, decoded := range encoded(text) {
		if len(r.find(decoded, false)) > 0 {
			return true
		}
	}
	return false
}

// Sizes of the pieces in which a stream is read: each has the end of the one before it, which an address fits into.
const (
	pieceSize   = 1 << 20
	pieceRepeat = 8 << 10
)

// HoldsIn is Holds for a stream. Pieces with a zero byte are no text, and are not read, unless the stream is UTF-16.
func (r *Redactor) HoldsIn(content io.Reader) (bool, error) {
	piece := make([]byte, 0, pieceSize)
	wide := false
	for {
		n, err := io.ReadFull(content, piece[len(piece):cap(piece)])
		piece = piece[:len(piece)+n]
		wide = wide || isWide(string(piece[:min(len(piece), minWide)]))
		switch {
		case wide && r.Holds([]byte(narrow(string(piece)))), bytes.IndexByte(piece, 0) < 0 && r.Holds(piece):
			return true, nil
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		piece = append(piece[:0], piece[len(piece)-pieceRepeat:]...)
	}
}

// JSON returns a document whose names and texts went through hide, which is Text or Links; byte for byte the same where there is no key.
func (r *Redactor) JSON(document json.RawMessage, hide func(string) string) json.RawMessage {
	if len(document) == 0 || len(r.find(string(document), true)) == 0 {
		return document
	}

	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	var value any
	if decoder.Decode(&value) != nil {
		return document
	}

	clean, err := json.Marshal(hidden(value, hide))
	if err != nil { // it was JSON a moment ago
		return document
	}
	return clean
}

func hidden(value any, hide func(string) string) any {
	switch value := value.(type) {
	case string:
		return hide(value)
	case []any:
		for i := range value {
			value[i] = hidden(value[i], hide)
		}
	case map[string]any:
		renamed := make(map[string]any, len(value))
		for name, member := range value {
			renamed[hide(name)] = hidden(member, hide)
		}
		return renamed
	}
	return value
}

// replaced puts placeholders in the place of spans, which are in order and apart.
func replaced(text string, found []span) string {
	if len(found) == 0 {
		return text
	}

	var out strings.Builder
	end := 0
	for _, s := range found {
		out.WriteString(text[end:s.from])
		if s.word {
			out.WriteString(HiddenCode)
		} else {
			out.WriteString(HiddenLink)
		}
		end = s.to
	}
	out.WriteString(text[end:])
	return out.String()
}

// find returns the keys in a text, in order and apart. Whole takes the whole address around a key; without it the caller only wants to
// know whether there is one.
func (r *Redactor) find(text string, whole bool) (found []span) {
	if len(r.hosts) == 0 {
		return nil
	}

	// Most texts have no key. To find that out costs a small part of knowing the place of each byte in every view.
	if !r.mayHold(text) {
		return nil
	}
	return r.search(text, whole)
}

// mayHold reports whether search may find something.
func (r *Redactor) mayHold(text string) bool {
	seen := views(view{text: text, blind: true})
	return slices.ContainsFunc(seen, func(seen view) bool { return r.mayBeBroken(seen.text) || len(r.findIn(seen, "")) > 0 }) ||
		len(r.findBase64(seen[len(seen)-1], "")) > 0
}

// search is find for a text that may hold a key.
func (r *Redactor) search(text string, whole bool) []span {
	seen := views(view{text: text})
	found := r.findBase64(seen[len(seen)-1], text)
	for _, seen := range seen {
		found = append(found, r.findIn(seen, text)...)
		if r.mayBeBroken(seen.text) {
			joined, _ := seen.apply(anyOf("\n\r<"), joinLines)
			found = append(found, r.findPaths(joined, text, true)...)
		}
		if len(found) > 0 && !whole {
			return found
		}
	}
	return merged(found)
}

// findBase64 finds addresses that a gateway wrote in base64 into its own.
func (r *Redactor) findBase64(seen view, text string) (found []span) {
	for begin, end := nextBase64(seen.text, 0); begin < end; begin, end = nextBase64(seen.text, end) {
		plain := unbase64(seen.text[begin:end])
		if s := seen.source(begin, end); len(r.findPaths(view{text: plain}, plain, false)) > 0 && !within(s, found) {
			found = append(found, around(text, s, false))
		}
	}
	return found
}

// mayBeBroken reports whether the path of a key stands in a text, be it broken over lines.
func (r *Redactor) mayBeBroken(text string) bool {
	return slices.ContainsFunc(r.paths, func(key Key) bool {
		if key.Length == 0 {
			return false
		}
		for at := strings.IndexByte(text, '/'); at >= 0; at = indexFrom(text, at+1, '/') {
			if beginsJoined(text[at:], key.Path) {
				return true
			}
		}
		return false
	})
}

// beginsJoined reports whether a text begins with a path once its lines are joined.
func beginsJoined(text, path string) bool {
	at := 0
	for i := range len(path) {
		for at < len(text) && lower(text[at]) != path[i] {
			length, _ := joinLines(text, at)
			if length == 0 {
				return false
			}
			at += length
		}
		if at == len(text) {
			return false
		}
		at++
	}
	return true
}

func (r *Redactor) findIn(seen view, text string) []span {
	found := r.findPaths(seen, text, false)
	found = append(found, r.findMailboxes(seen, text)...)
	return append(found, r.findWords(seen)...)
}

// findPaths finds addresses. In a text whose lines were joined only keys of a known length have an end.
func (r *Redactor) findPaths(seen view, text string, joined bool) (found []span) {
	for at := strings.IndexByte(seen.text, '/'); at >= 0; at = indexFrom(seen.text, at+1, '/') {
		for _, key := range r.paths {
			if joined && key.Length == 0 || !beginsFold(seen.text[at:], key.Path) {
				continue
			}
			if s, is := r.pathAt(seen, key, at, joined); is && !within(s, found) {
				found = append(found, around(text, s, joined))
			}
		}
	}
	return found
}

// within reports whether the last span holds another one.
func within(s span, found []span) bool {
	last := len(found) - 1
	return last >= 0 && found[last].from <= s.from && s.to <= found[last].to
}

func (r *Redactor) pathAt(seen view, key Key, at int, joined bool) (span, bool) {
	begin := at
	for begin > 0 && seen.text[begin-1] == '/' {
		begin--
	}
	end := begin
	for begin > 0 && isHost(seen.text[begin-1]) {
		begin--
	}

	host := hostName(seen.text[begin:end])
	token := at + len(key.Path)
	after := token
	for after < len(seen.text) && isToken(seen.text[after]) && (!joined || after-token < key.Length) {
		after++
	}

	ours := r.hosts[host] || host == "" && key.Length > 0
	switch {
	case !ours, after == token:
		return span{}, false
	case (joined || host == "") && after-token != key.Length:
		return span{}, false
	case after-token < key.Length && strings.ToLower(seen.text[token:after]) == seen.text[token:after]: // a page with a name: someone else's on our host
		return span{}, false
	case key.Query != "" && !hasMember(addressAt(seen.text, after), key.Query):
		return span{}, false
	}
	return seen.source(begin, after), true
}

// maxAddress bounds what is taken for one address. A text without spaces would be read anew for each address in it otherwise.
const maxAddress = 4 << 10

// addressAt returns what is left of an address at a place.
func addressAt(text string, at int) string {
	end := at
	for end < min(len(text), at+maxAddress) && isAddress(text[end]) {
		end++
	}
	return text[at:end]
}

// hasMember reports whether the rest of an address has a query with the member.
func hasMember(rest, name string) bool {
	if !strings.Contains(rest, name) {
		return false
	}
	_, query, _ := strings.Cut(rest, "?")
	query, _, _ = strings.Cut(query, "#")
	members, _ := url.ParseQuery(query) // what could be read of it
	return members.Has(name)
}

// findMailboxes finds addresses of mail with a tag that is a token.
func (r *Redactor) findMailboxes(seen view, text string) (found []span) {
	if r.tag == 0 {
		return nil
	}

	for at := 0; ; at++ {
		next := strings.IndexByte(seen.text[at:], '@')
		if next < 0 {
			return found
		}
		at += next

		token := at
		for token > 0 && isAlphanumeric(seen.text[token-1]) {
			token--
		}
		begin := token
		for begin > 0 && (isToken(seen.text[begin-1]) || seen.text[begin-1] == '.' || seen.text[begin-1] == '+') {
			begin--
		}
		end := at + 1
		for end < len(seen.text) && isHost(seen.text[end]) && seen.text[end] != '@' && seen.text[end] != ':' {
			end++
		}
		if at-token >= r.tag && strings.Contains(seen.text[begin:at], "+") && r.hosts[hostName(seen.text[at+1:end])] {
			found = append(found, around(text, seen.source(begin, end), true))
		}
	}
}

// findWords finds codes.
func (r *Redactor) findWords(seen view) (found []span) {
	var folds bool // it has a letter beyond ASCII that a pattern takes for one of ASCII
	for i, one := range r.words {
		if i == 0 {
			folds = strings.Contains(seen.text, "\u212a") || strings.Contains(seen.text, "\u017f")
		}
		if !folds && !one.near(seen.text) {
			continue
		}
		for _, match := range one.Pattern.FindAllStringSubmatchIndex(seen.text, -1) {
			s := seen.source(match[2], match[3])
			s.word = true
			found = append(found, s)
		}
	}
	return found
}

// around widens a span to the address that holds it: a gateway writes ours into the query of its own. Exact leaves it as it is.
func around(text string, s span, exact bool) span {
	for least := max(0, s.from-maxAddress); s.from > least && isAddress(text[s.from-1]); {
		s.from--
	}
	if exact {
		return s
	}

	s.to += len(addressAt(text, s.to))
	for s.to > s.from && strings.IndexByte(".,;:!?*_~", text[s.to-1]) >= 0 {
		s.to--
	}
	return s
}

// merged sorts spans and joins those that overlap. An address that holds a code is an address.
func merged(found []span) []span {
	slices.SortFunc(found, func(a, b span) int { return a.from - b.from })
	var apart []span
	for _, s := range found {
		last := len(apart) - 1
		if last >= 0 && s.from < apart[last].to {
			apart[last].to, apart[last].word = max(apart[last].to, s.to), apart[last].word && s.word
			continue
		}
		apart = append(apart, s)
	}
	return apart
}

// near reports whether Near stands in a text.
func (w word) near(text string) bool {
	c := w.Near[w.rare]
	return w.nearAt(text, c) || upper(c) != c && w.nearAt(text, upper(c))
}

// nearAt is near for one case of the rare letter.
func (w word) nearAt(text string, c byte) bool {
	for at := strings.IndexByte(text, c); at >= 0; at = indexFrom(text, at+1, c) {
		if at >= w.rare && beginsFold(text[at-w.rare:], w.Near) {
			return true
		}
	}
	return false
}

// rarest returns the place of the letter of a word that is rarest in texts.
func rarest(word string) (place int) {
	const frequent = "etaoinsrhldcumfpgwybvkxjqz" // the most frequent first
	rank := func(c byte) int {
		if at := strings.IndexByte(frequent, c); at >= 0 {
			return at
		}
		return len(frequent)
	}
	for i := range len(word) {
		if rank(word[i]) > rank(word[place]) {
			place = i
		}
	}
	return place
}

// beginsFold reports whether a text begins with a word, in letters of either case.
func beginsFold(text, word string) bool {
	return len(text) >= len(word) && strings.EqualFold(text[:len(word)], word)
}

// indexFrom finds a byte from a place on.
func indexFrom(text string, from int, c byte) int {
	if next := strings.IndexByte(text[from:], c); next >= 0 {
		return from + next
	}
	return -1
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

func upper(c byte) byte {
	if c >= 'a' && c <= 'z' {
		return c - 'a' + 'A'
	}
	return c
}

func isAlphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// isToken reports whether a byte may stand in a token (RFC 4648, section 5).
func isToken(c byte) bool { return isAlphanumeric(c) || c == '-' || c == '_' }

// isHost reports whether a byte may stand in an authority, also of one that is not in punycode.
func isHost(c byte) bool {
	return isAlphanumeric(c) || c == '-' || c == '.' || c == ':' || c == '@' || c >= 0x80
}

// isAddress reports whether a byte may stand in an address (RFC 3986), without those that surround addresses in texts.
func isAddress(c byte) bool {
	return isAlphanumeric(c) || strings.IndexByte("-._~:/?#@!$&*+,;=%", c) >= 0
}
