package console

import (
	"slices"
	"strconv"
	"strings"

	"inbox/policypart"
)

const maxLanguages = 20

// languages reads Accept-Language (RFC 9110 section 12.5.4), best first. What cannot be read is left out.
func languages(header string) []string {
	type weighted struct {
		tag    string
		weight float64
	}
	var wanted []weighted
	for item := range strings.SplitSeq(header, ",") {
		tag, parameters, _ := strings.Cut(strings.TrimSpace(item), ";")
		weight := 1.0
		if text, ok := strings.CutPrefix(strings.ReplaceAll(parameters, " ", ""), "q="); ok {
			weight, _ = strconv.ParseFloat(text, 64)
		}
		if tag != "" && tag != "*" && weight > 0 && len(wanted) < maxLanguages {
			wanted = append(wanted, weighted{strings.TrimSpace(tag), weight})
		}
	}
	slices.SortStableFunc(wanted, func(a, b weighted) int {
		switch {
		case a.weight > b.weight:
			return -1
		case a.weight < b.weight:
			return 1
		}
		return 0
	})
	tags := make([]string, 0, len(wanted))
	for _, w := range wanted {
		tags = append(tags, w.tag)
	}
	return tags
}

// translate returns title and message in the first of the reader's languages that the agent wrote. A reader of English
// gets the agent's own words before a translation into a language that they like less.
func translate(part policypart.Part, wanted []string) (title, message, lang string) {
	for _, tag := range wanted {
		for short := tag; short != ""; short = parentTag(short) {
			for language, text := range part.MessageTranslations {
				if strings.EqualFold(language, short) && text.Message != "" {
					return orElse(text.Title, part.Title), text.Message, language
				}
			}
		}
		if base, _, _ := strings.Cut(strings.ToLower(tag), "-"); base == "en" {
			break
		}
	}
	return part.Title, part.Message, ""
}

func parentTag(tag string) string { return tag[:max(0, strings.LastIndexByte(tag, '-'))] }
