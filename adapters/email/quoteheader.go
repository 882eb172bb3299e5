package email

import (
	"strings"
	"unicode/utf8"
)

// originalMarks are what Outlook, Yahoo and others write above the mail that is answered, without the dashes.
var originalMarks = map[string]bool{
	"original message": true, "ursprüngliche nachricht": true, "originalnachricht": true, "original-nachricht": true, "message d'origine": true,
	"message d’origine": true, "message original": true, "mensaje original": true, "messaggio originale": true,
	"oorspronkelijk bericht": true, "mensagem original": true, "wiadomość oryginalna": true, "oryginalna wiadomość": true,
	"ursprungligt meddelande": true, "originalmeddelande": true, "oprindelig meddelelse": true, "исходное сообщение": true,
}

// forwardMarks are what stands above a forwarded mail, without dashes and colon.
var forwardMarks = map[string]bool{
	"forwarded message": true, "begin forwarded message": true, "weitergeleitete nachricht": true,
	"anfang der weitergeleiteten nachricht": true, "message transféré": true, "début du message transféré": true, "message transmis": true,
	"début du message réexpédié": true, "mensaje reenviado": true, "inicio del mensaje reenviado": true, "messaggio inoltrato": true, "inizio messaggio inoltrato": true,
	"doorgestuurd bericht": true, "begin doorgestuurd bericht": true, "mensagem encaminhada": true, "início da mensagem encaminhada": true,
	"przekazana wiadomość": true, "wiadomość przekazana": true, "treść przekazanej wiadomości": true, "vidarebefordrat meddelande": true, "пересылаемое сообщение": true,
}

var forwardPrefixes = map[string]bool{
	"fwd": true, "fw": true, "wg": true, "tr": true, "rv": true, "i": true, "enc": true, "pd": true, "doorst": true, "vb": true, "vl": true, "转发": true, "轉寄": true,
}

// forwards says whether a subject marks a forwarded mail, behind any reply prefixes.
func forwards(subject string) bool {
	prefix, _, found := strings.Cut(baseSubject(subject), ":")
	return found && forwardPrefixes[strings.ToLower(strings.TrimSpace(prefix))]
}

// hasForwardMark says whether somebody's mail was pasted or forwarded below. A quoted mark belongs to an older mail.
func hasForwardMark(lines []string) bool {
	for _, line := range lines {
		if len(line) > longestMark && !framed(line) {
			continue // most lines of a text: too long for a mark, and nothing to take away at their ends
		}
		if line = strings.Trim(unmarked(line), markCharacters); len(line) <= longestMark && forwardMarks[strings.ToLower(line)] {
			return true
		}
	}
	return false
}

// framed says whether a line begins or ends with something that may stand around a mark.
func framed(line string) bool {
	const around = "*\\" + markCharacters
	first, last := line[0], line[len(line)-1]
	return first >= utf8.RuneSelf || last >= utf8.RuneSelf || strings.IndexByte(around, first) >= 0 || strings.IndexByte(around, last) >= 0 || last < ' '
}

const markCharacters = "-–—_: \t"

var longestMark = func() (longest int) {
	for mark := range forwardMarks {
		longest = max(longest, len(mark))
	}
	return longest
}()

// markText takes dashes, emphasis and the colon from a line.
func markText(line string) string {
	return strings.ToLower(strings.Trim(unmarked(line), markCharacters))
}

func separates(line string) bool {
	if len(line) == 0 || strings.IndexByte("-_*\\ \t", line[0]) < 0 && line[0] < utf8.RuneSelf {
		return false
	}
	line = unmarked(line)
	return strings.HasPrefix(line, "-") && originalMarks[markText(line)] || len(line) >= 20 && strings.Trim(line, "_") == ""
}

// headerLabels are the names of From, Sent or Date, To and Subject in the languages of Outlook.
var headerLabels = map[string]string{
	"from": "from", "von": "from", "de": "from", "da": "from", "van": "from", "od": "from", "från": "from", "fra": "from", "от": "from", "差出人": "from", "发件人": "from",
	"sent": "sent", "date": "sent", "gesendet": "sent", "datum": "sent", "envoyé": "sent", "enviado": "sent", "enviado el": "sent", "fecha": "sent", "inviato": "sent",
	"data": "sent", "verzonden": "sent", "enviada em": "sent", "enviado em": "sent", "wysłano": "sent", "skickat": "sent", "sendt": "sent", "отправлено": "sent", "дата": "sent", "送信日時": "sent", "发送时间": "sent",
	"to": "to", "an": "to", "à": "to", "para": "to", "a": "to", "aan": "to", "do": "to", "till": "to", "til": "to", "кому": "to", "宛先": "to", "收件人": "to",
	"subject": "subject", "betreff": "subject", "objet": "subject", "asunto": "subject", "oggetto": "subject", "onderwerp": "subject", "assunto": "subject",
	"temat": "subject", "ämne": "subject", "emne": "subject", "тема": "subject", "件名": "subject", "主题": "subject",
}

// outlookHeader finds where the header of the answered mail begins: a separator and a block of its fields, or the whole
// block alone when the mail says that it is an answer. -1 = nowhere.
func outlookHeader(lines []string, answers bool) int {
	for i, line := range lines {
		if separates(line) {
			next := i + 1
			for next < len(lines) && blank(lines[next]) && next < i+3 {
				next++
			}
			if headerFields(lines[next:]) >= 3 || strings.HasPrefix(unmarked(line), "-") && anyFields(lines[next:]) >= 3 {
				return i
			}
		}
		if answers && i > 0 && blank(lines[i-1]) && label(line) == "from" && headerFields(lines[i:]) == 4 {
			return i
		}
	}
	return -1
}

func label(line string) string {
	name, value, found := strings.Cut(unmarked(line), ":")
	if !found {
		name, value, found = strings.Cut(unmarked(line), "：")
	}
	if !found || strings.TrimSpace(value) == "" || len(name) > 30 {
		return ""
	}
	return headerLabels[strings.ToLower(strings.TrimSpace(name))]
}

// anyFields counts the different fields of a block in any order: behind words that name the old mail no more is asked
// (Thunderbird begins with the subject).
func anyFields(lines []string) int {
	seen := map[string]bool{}
	for _, line := range lines[:min(len(lines), 8)] {
		name := label(line)
		if name == "" {
			break
		}
		seen[name] = true
	}
	return len(seen)
}

// headerFields counts the different fields in a block that begins with the sender.
func headerFields(lines []string) int {
	seen := map[string]bool{}
	for i, line := range lines[:min(len(lines), 12)] {
		name := label(line)
		if i == 0 && name != "from" {
			return 0
		}
		if blank(line) && (len(seen) >= 3 || i > 0 && blank(lines[i-1])) {
			break
		}
		if name != "" {
			seen[name] = true
		}
	}
	return len(seen)
}
