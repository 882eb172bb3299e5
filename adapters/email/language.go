package email

import (
	"strconv"
	"strings"

	"inbox/adapters/email/message"
)

// mailLocale gives the language in which the sender reads: Accept-Language asks for it, Content-Language shows it
// (RFC 3282). It is "" when the mail names none.
func mailLocale(fields message.Header) string {
	for _, name := range []string{"Accept-Language", "Content-Language"} {
		if found := bestLanguage(fields.Get(name)); found != "" {
			return found
		}
	}
	return ""
}

// bestLanguage is the language of a list with the highest weight, the first of equals.
func bestLanguage(list string) string {
	best, weight := "", 0.0
	if len(list) > 1024 {
		return ""
	}
	for entry := range strings.SplitSeq(list, ",") {
		tag, parameters, _ := strings.Cut(entry, ";")
		if tag = languageTag(tag); tag != "" && quality(parameters) > weight {
			best, weight = tag, quality(parameters)
		}
	}
	return best
}

// quality reads "q=0.8"; without it the weight is 1 (RFC 9110, section 12.4.2).
func quality(parameters string) float64 {
	name, value, found := strings.Cut(strings.TrimSpace(parameters), "=")
	if !found || !strings.EqualFold(strings.TrimSpace(name), "q") {
		return 1
	}
	weight, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	if err != nil || !(weight >= 0 && weight <= 1) { // also no NaN
		return 0
	}
	return weight
}

// languageTag keeps what can be a BCP 47 tag of one language.
func languageTag(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "(") // comments
	text = strings.TrimSpace(text)
	switch strings.ToLower(text) {
	case "und", "mul", "zxx", "i-default": // undetermined, several, none, of no reader
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
