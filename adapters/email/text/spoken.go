package text

import (
	"bytes"
	"strings"
	"unicode"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"inbox/internal/markup"
)

// spoken are the texts of one alternative that are read.
type spoken struct {
	texts []string
	words map[string]bool // of all texts; nil until it is asked for
}

func (s *spoken) add(texts ...string) {
	for _, text := range texts {
		s.texts = append(s.texts, withoutTargets(text))
	}
	s.words = nil
}

// say reports whether every word of another form is among those that are read.
func (s *spoken) say(text string) bool {
	if s.words == nil {
		s.words = map[string]bool{}
		for _, one := range s.texts {
			for word := range wordsOf(one) {
				s.words[word] = true
			}
		}
	}

	for word := range wordsOf(text) {
		if !s.words[word] {
			return s.sayLetters(text)
		}
	}
	return true
}

// sayLetters reports whether one of the texts holds the letters of another, whatever stands between them.
func (s *spoken) sayLetters(text string) bool {
	wanted := letters(text)
	for _, one := range s.texts {
		if strings.Contains(letters(one), wanted) {
			return true
		}
	}
	return false
}

// sayHTML reports whether the words of a document stand in the text that is read, in their order. It makes no tree, because nearly every mail
// has both forms: false only says that it is worth a closer look.
func (s *spoken) sayHTML(document string) bool {
	if len(s.texts) == 0 || len(document) > maxHTMLBytes {
		return false
	}

	rest := s.texts[0]
	tokens := html.NewTokenizer(strings.NewReader(document))
	skipped := 0 // elements that are open and are not shown
	for {
		switch tokens.Next() {
		case html.ErrorToken:
			return true
		case html.StartTagToken:
			if unshown(tokens) {
				skipped++
			}
		case html.EndTagToken:
			if unshown(tokens) && skipped > 0 {
				skipped--
			}
		case html.TextToken:
			if skipped > 0 {
				continue
			}
			for word := range bytes.FieldsFuncSeq(tokens.Text(), notOfWord) {
				var found bool
				if rest, found = afterWord(rest, word); !found {
					return false
				}
			}
		}
	}
}

func unshown(tokens *html.Tokenizer) bool {
	name, _ := tokens.TagName()
	switch atom.Lookup(name) {
	case atom.Style, atom.Script, atom.Title:
		return true
	}
	return false
}

// afterWord returns what follows the next instance of a word.
func afterWord(text string, word []byte) (rest string, found bool) {
	for len(text) > 0 {
		start := strings.IndexFunc(text, ofWord)
		if start < 0 {
			return "", false
		}
		text = text[start:]
		end := strings.IndexFunc(text, notOfWord)
		if end < 0 {
			end = len(text)
		}
		if text[:end] == string(word) {
			return text[end:], true
		}
		text = text[end:]
	}
	return "", false
}

func ofWord(r rune) bool    { return unicode.IsLetter(r) || unicode.IsDigit(r) }
func notOfWord(r rune) bool { return !ofWord(r) }

// wordsOf yields the words of a text: runs of letters and digits.
func wordsOf(text string) func(yield func(string) bool) {
	return strings.FieldsFuncSeq(text, notOfWord)
}

// shownText returns the words of a document that a reader would see, without marks and addresses.
func shownText(source string) string {
	document, _ := parseHTML(source)
	removeSelected(document, hiddenSelectors(document))
	removeHidden(document)
	removeAttributes(document)
	text, _ := markup.Text(document, markup.Plain, maxTextBytes)
	return Readable(text)
}

// removeAttributes leaves of links and pictures what is written between their tags.
func removeAttributes(node *html.Node) {
	node.Attr = nil
	for child := node.FirstChild; child != nil; child = child.NextSibling {
		removeAttributes(child)
	}
}
