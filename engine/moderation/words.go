package moderation

import (
	"strings"
	"unicode"

	"inbox/normalized"
)

// DefaultStopWords and DefaultStartWords are understood where the operator writes no others.
var (
	DefaultStopWords = []string{
		"stop", "stop it", "stopp", "unsubscribe", "opt out", "leave me alone", "aufhören", "hör auf", "abmelden", "arrête", "arrêtez",
		"désabonner", "detente", "parar", "basta", "smettila", "pare", "stoppen", "sluta", "przestań", "стоп", "хватит", "dur", "توقف",
		"やめて", "停止", "ストップ", "退订", "그만", "중지",
	}
	DefaultStartWords = []string{
		"start", "resume", "subscribe", "weiter", "anmelden", "reprendre", "empezar", "iniciar", "inizia", "старт", "начать", "başla", "ابدأ",
		"開始", "スタート", "开始", "시작",
	}
)

// Words is a set of words that mean something when a message is nothing else.
type Words map[string]bool

// NewWords makes a set; case, blanks and punctuation around do not count.
func NewWords(list []string) Words {
	words := Words{}
	for _, word := range list {
		if word = plainWord(word); word != "" {
			words[word] = true
		}
	}
	return words
}

const maxWordBytes = 200

// Only reports whether a message is one of the words and nothing else. Mentions around it do not count.
func (w Words) Only(message normalized.Message) bool {
	if len(w) == 0 || len(message.Parts) != 1 || message.Parts[0].Kind != normalized.PartText || len(message.Parts[0].Content) > maxWordBytes {
		return false
	}

	_, text, subject := strings.Cut(message.Parts[0].Content, "\n\n")
	if !subject || !strings.HasPrefix(message.Parts[0].Content, "Subject: ") {
		text = message.Parts[0].Content
	}

	var kept []string
	for field := range strings.FieldsSeq(text) {
		if !strings.HasPrefix(field, "@") {
			kept = append(kept, field)
		}
	}

	return w[plainWord(strings.Join(kept, " "))]
}

func plainWord(text string) string {
	text = strings.TrimFunc(strings.Join(strings.Fields(text), " "), func(r rune) bool {
		return unicode.IsPunct(r) || unicode.IsSymbol(r) || unicode.IsSpace(r)
	})
	return strings.ToLower(text)
}
