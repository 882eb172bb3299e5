package lookalike

import (
	"strings"
	"unicode"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"
)

// Host is a host name that a text writes with characters beyond ASCII.
type Host struct {
	Written string // made Visible
	ASCII   string // as it is looked up (IDNA 2008), such as "xn--e1afmkfd.xn--p1ai"
}

// Hosts returns the host names beyond ASCII of the texts, each once and in the order of the texts, at most limit of them, and how many more
// there are. A name counts after "@" or "//", and anywhere else if it ends in a public suffix of ICANN.
func Hosts(limit int, texts ...string) (found []Host, more int) {
	seen := map[Host]bool{}
	for _, text := range texts {
		for at, name := range names(text) {
			host, is := hostOf(name, strings.HasSuffix(text[:at], "@") || strings.HasSuffix(text[:at], "//"))
			if !is || seen[host] {
				continue
			}
			seen[host] = true
			if len(found) < limit {
				found = append(found, host)
			}
		}
	}
	return found, len(seen) - len(found)
}

// names yields the runs of characters that a host name may have, with the place of each.
func names(text string) func(yield func(int, string) bool) {
	return func(yield func(int, string) bool) {
		inName := func(r rune) bool {
			return unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.Cf, unicode.Variation_Selector) || r > unicode.MaxASCII && unicode.In(r, unicode.P, unicode.S) || r == '.' || r == '-' || r == '_'
		}
		for at := 0; at < len(text); {
			begin := strings.IndexFunc(text[at:], inName)
			if begin < 0 {
				return
			}
			begin += at
			length := strings.IndexFunc(text[begin:], func(r rune) bool { return !inName(r) })
			if length < 0 {
				length = len(text) - begin
			}
			if at = begin + length; !yield(begin, text[begin:at]) {
				return
			}
		}
	}
}

const maxName = 1 << 10 // bytes of a host name before it is brought into ASCII, which has at most 253

func hostOf(name string, addressed bool) (Host, bool) {
	name = strings.Trim(name, ".-_…")
	if len(name) > maxName || isASCII(name) || name == "" {
		return Host{}, false
	}
	ascii, err := idna.Lookup.ToASCII(name)
	if err != nil { // some programs look it up all the same
		if ascii, err = idna.Punycode.ToASCII(name); err != nil || !addressed {
			return Host{}, false
		}
	}
	_, known := publicsuffix.PublicSuffix(ascii)
	if !addressed && (!known || !strings.Contains(ascii, ".")) {
		return Host{}, false
	}
	return Host{Written: Visible(name), ASCII: ascii}, true
}
