package text

import (
	"strings"
	"unicode/utf8"

	"inbox/adapters/email/message"
)

// originalMarks are what Outlook, Yahoo and others write above the mail that is answered, without the dashes.
var originalMarks = map[string]bool{
	"original message": true, "reply message": true, "original": true, "ursprüngliche nachricht": true, "originalnachricht": true, "original-nachricht": true,
	"antwort nachricht": true, "message d'origine": true,
	"message d’origine": true, "message original": true, "mensaje original": true, "messaggio originale": true,
	"oorspronkelijk bericht": true, "mensagem original": true, "wiadomość oryginalna": true, "oryginalna wiadomość": true,
	"ursprungligt meddelande": true, "originalmeddelande": true, "oprindelig meddelelse": true, "opprinnelig melding": true, "исходное сообщение": true,
	"оригінальне повідомлення": true, "původní zpráva": true, "původní e-mail": true, "pôvodná správa": true, "orijinal mesaj": true, "özgün ileti": true,
	"الرسالة الأصلية": true, "原始邮件": true, "原始郵件": true, "元のメッセージ": true, "원본 메시지": true, "원본 메일": true, "eredeti üzenet": true,
	"alkuperäinen viesti": true, "mesajul original": true, "mesaj original": true, "αρχικό μήνυμα": true, "הודעה מקורית": true,
}

// forwardMarks are the lines above a forwarded mail, without dashes and colon.
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

// forwards reports whether a subject marks a forwarded mail, behind any reply prefixes.
func forwards(subject string) bool {
	prefix, _, found := strings.Cut(message.BaseSubject(subject), ":")
	return found && forwardPrefixes[strings.ToLower(strings.TrimSpace(prefix))]
}

// hasForwardMark reports whether another mail was pasted or forwarded below. A quoted mark belongs to an older mail.
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

// framed reports whether a line begins or ends with something that may stand around a mark.
func framed(line string) bool {
	const around = "*\\" + markCharacters
	first, last := line[0], line[len(line)-1]
	return first >= utf8.RuneSelf || last >= utf8.RuneSelf || strings.IndexByte(around, first) >= 0 || strings.IndexByte(around, last) >= 0 || last < ' '
}

const markCharacters = "-–—_=: \t"

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
	return original(line) || len(line) >= 20 && strings.Trim(unmarked(line), "_") == ""
}

// original reports whether a line consists of words that name the old mail, between dashes.
func original(line string) bool {
	if len(line) == 0 || strings.IndexByte("-_*\\ \t", line[0]) < 0 && line[0] < utf8.RuneSelf {
		return false
	}
	line = unmarked(line)
	return strings.HasPrefix(line, "--") && originalMarks[markText(line)]
}

// headerLabels are the names of From, Sent or Date, To and Subject in the languages of Outlook.
var headerLabels = func() map[string]string {
	labels := map[string]string{}
	for field, names := range map[string][]string{
		"from": {
			"from", "von", "de", "da", "van", "od", "från", "fra", "от", "差出人", "发件人", "寄件者", "kimden", "gönderen", "من", "보낸 사람", "보낸사람", "від", "feladó",
			"lähettäjä", "de la", "expeditor", "από", "מאת", "từ",
		},
		"sent": {
			"sent", "date", "gesendet", "datum", "envoyé", "enviado", "enviada", "enviado el", "fecha", "inviato", "data", "verzonden", "enviada em", "enviado em",
			"data de envio", "wysłano", "skickat", "sendt", "отправлено", "дата", "送信日時", "日時", "发送时间", "日期", "寄件日期", "傳送時間", "gönderildi", "gönderilme tarihi", "gönderme tarihi", "tarih",
			"تاريخ الإرسال", "تم الإرسال", "أرسلت", "التاريخ", "odesláno", "odoslané", "보낸 날짜", "보낸날짜", "날짜", "надіслано", "elküldve", "küldve", "dátum", "lähetetty",
			"päivämäärä", "trimis", "στάλθηκε", "ημερομηνία", "נשלח", "תאריך", "đã gửi", "ngày",
		},
		"to": {
			"to", "an", "à", "para", "a", "aan", "do", "till", "til", "кому", "宛先", "收件人", "收件者", "kime", "alıcı", "إلى", "الى", "komu", "받는 사람", "받는사람", "címzett",
			"vastaanottaja", "către", "προς", "אל", "đến", "tới",
		},
		"subject": {
			"subject", "betreff", "objet", "asunto", "oggetto", "onderwerp", "assunto", "temat", "ämne", "emne", "тема", "件名", "主题", "主旨", "konu", "الموضوع", "موضوع",
			"předmět", "predmet", "제목", "tárgy", "aihe", "subiect", "θέμα", "נושא", "chủ đề",
		},
	} {
		for _, name := range names {
			labels[name] = field
		}
	}
	return labels
}()

// outlookHeader finds where the header of the answered mail begins: a separator and a block of its fields, or the whole
// block alone below words that do not lead over to it. A mail that answers nothing has no old mail below it. -1 = nowhere.
func outlookHeader(lines []string, answers bool) int {
	if !answers {
		return -1
	}

	for i, line := range lines {
		if len(line) < 4 {
			continue // "a: b" is the shortest
		}

		if separates(line) {
			next := i + 1
			for next < len(lines) && blank(lines[next]) && next < i+3 {
				next++
			}
			if headerFields(lines[next:]) >= 3 || strings.HasPrefix(unmarked(line), "-") && anyFields(lines[next:]) >= 3 {
				return i
			}
		}

		if i == 0 {
			continue
		}

		switch label(line) {
		case "from":
			if (blank(lines[i-1]) || strings.Contains(line, "@")) && headerFields(lines[i:]) == 4 && !announcedByPerson(lines[:i]) {
				return i
			}
		case "sent": // Hotmail began with the date
			if anyFields(lines[i:]) == 4 && strings.Count(strings.Join(lines[i:min(len(lines), i+4)], "\n"), "@") >= 2 {
				return i
			}
		}
	}
	return -1
}

// announcedByPerson reports whether the words above a header lead over to it: "Please write this mail for me:".
func announcedByPerson(above []string) bool {
	above = withoutRule(trimEnd(above))
	return len(above) > 0 && endsInColon(above[len(above)-1])
}

func label(line string) string {
	if len(line) > 4096 || strings.IndexByte(line, ':') < 0 && !strings.Contains(line, "：") {
		return "" // no program writes such a field
	}

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
