package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"inbox/exchange"
	"inbox/internal/clip"
	"inbox/internal/fault"
	"inbox/normalized"
)

// searchStore finds messages by what they say, and keeps the index for that.
type searchStore struct{ *database }

const (
	// maxSearchedBytes is how much of a text is indexed, of a question and of its answer alike.
	maxSearchedBytes = 64 << 10
	maxSearchedWords = 8_000
	// maxWordBytes is where a word is cut, in the index and in a query alike. PostgreSQL takes 2046 bytes.
	maxWordBytes = 80
	// maxQueryBytes and maxQueryWords bound what a search may ask for.
	maxQueryBytes = 1_000
	maxQueryWords = 32
	// minBeginning is how many bytes the beginning of a word must have: a shorter one is that of a good part of all words.
	minBeginning = 2
)

// searchWords are the words of a question or an answer.
type searchWords struct{ said, subject, sender []string }

// spaceless are scripts that are written without blanks between words: each character is a word, and several are a phrase.
var spaceless = []*unicode.RangeTable{
	unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar,
}

// wordsOf takes a text apart: words are runs of letters and digits, in lower case, without accents and compatibility forms
// (Unicode NFKD). Both databases get words that their own rules leave as they are.
func wordsOf(text string, most int) []string {
	text = clip.Bytes(text, maxSearchedBytes)
	if !plainASCII(text) {
		text = norm.NFKD.String(text)
	}

	var words []string
	var word strings.Builder
	end := func() {
		if word.Len() > 0 && len(words) < most {
			words = append(words, clip.Bytes(word.String(), maxWordBytes))
		}
		word.Reset()
	}
	for _, r := range text {
		switch {
		case r >= unicode.MaxASCII && unicode.Is(unicode.Mn, r): // an accent, apart from its letter
		case !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.Is(unicode.Mc, r):
			end()
		case r >= unicode.MaxASCII && unicode.In(r, spaceless...):
			end()
			word.WriteRune(unicode.ToLower(r))
			end()
		default:
			word.WriteRune(unicode.ToLower(r))
		}
		if len(words) >= most {
			return words
		}
	}

	end()
	return words
}

func plainASCII(text string) bool {
	for i := range len(text) {
		if text[i] >= 0x80 {
			return false
		}
	}
	return true
}

// questionWords and answerWords are what of a turn is found. A message that was erased has nothing, also not its sender.
func questionWords(message *normalized.Message) searchWords {
	if len(message.Parts) == 0 {
		return searchWords{}
	}
	return about(message, wordsOf(normalized.PlainText(message.Parts), maxSearchedWords))
}

func answerWords(message *normalized.Message, response *normalized.Response) searchWords {
	if response == nil || len(response.Parts) == 0 {
		return searchWords{}
	}
	return about(message, wordsOf(normalized.PlainText(response.Parts), maxSearchedWords))
}

func about(message *normalized.Message, said []string) searchWords {
	words := searchWords{said: said, sender: wordsOf(message.Sender.Address+" "+message.Sender.DisplayName, 64)}
	if message.Surface != nil {
		words.subject = wordsOf(message.Surface.Subject, 256)
	}
	return words
}

func (w searchWords) empty() bool { return len(w.said) == 0 && len(w.subject) == 0 }

// fields are the runs of words that a phrase does not cross.
func (w searchWords) fields() [3][]string { return [3][]string{w.said, w.subject, w.sender} }

const sqliteInsertWords = `INSERT INTO search_words (rowid, said, subject, sender) VALUES ($1, $2, $3, $4)`

func (w searchWords) sqlite(rowid int64) []any {
	return []any{rowid, strings.Join(w.said, " "), strings.Join(w.subject, " "), strings.Join(w.sender, " ")}
}

const postgresInsertWords = `INSERT INTO search_words (rowid, words) VALUES ($1, CAST(CAST($2 AS TEXT) AS tsvector))`

const (
	// fieldGap is how far fields are apart, so that no phrase crosses from one to the next.
	fieldGap = 16
	// maxPositions is what PostgreSQL keeps for each word.
	maxPositions = 255
)

// postgres writes a tsvector. Words are letters and digits alone, so that nothing in it needs to be escaped.
func (w searchWords) postgres(rowid int64) []any {
	positions, order, at := map[string][]int{}, []string(nil), 0
	for _, field := range w.fields() {
		for _, word := range field {
			at++
			if positions[word] == nil {
				order = append(order, word)
			}
			if len(positions[word]) < maxPositions {
				positions[word] = append(positions[word], at)
			}
		}
		at += fieldGap
	}

	var vector strings.Builder
	for _, word := range order {
		vector.WriteString("'" + word + "':")
		for i, position := range positions[word] {
			if i > 0 {
				vector.WriteByte(',')
			}
			vector.WriteString(strconv.Itoa(position))
		}
		vector.WriteByte(' ')
	}
	for level := range windowSizes {
		vector.WriteString("'" + windowOf(level, rowid/2).word() + "' ")
	}
	return []any{rowid, vector.String()}
}

// searchQuery is what a text must have: all of its phrases.
type searchQuery []phrase

// phrase is words that follow each other; the last may be a beginning.
type phrase struct {
	words     []string
	beginning bool
}

// parseText reads what a person writes into a search: words, "phrases", and beginnings of words with a * behind. Other signs
// separate words, so that nothing is a syntax error. Empty = everything is found. fault.Malformed for a text without any word, one
// that is too long, and a beginning of one letter.
func parseText(text string) (searchQuery, error) {
	if text == "" {
		return nil, nil
	}
	if len(text) > maxQueryBytes {
		return nil, fault.InField("text", "must be at most 1000 bytes")
	}

	var query searchQuery
	total := 0
	for i, quoted := range strings.Split(text, `"`) {
		pieces := []string{quoted}
		if i%2 == 0 {
			pieces = strings.Fields(quoted)
		}
		for _, piece := range pieces {
			one := phrase{words: wordsOf(piece, maxQueryWords+1), beginning: strings.HasSuffix(piece, "*")}
			if len(one.words) == 0 {
				continue
			}
			if one.beginning && len(one.words[len(one.words)-1]) < minBeginning {
				return nil, fault.InField("text", "has the beginning of a word of one letter; give two")
			}
			query, total = append(query, one), total+len(one.words)
		}
	}

	switch {
	case total == 0:
		return nil, fault.InField("text", "has no word to look for")
	case total > maxQueryWords:
		return nil, fault.InField("text", "has too many words; give at most 32")
	}
	return query, nil
}

// matches reports whether a turn says what the query asks for, in its question or in its answer.
func (q searchQuery) matches(turn *exchange.TurnRecord) bool {
	return len(q) == 0 || q.within(questionWords(&turn.Message)) || q.within(answerWords(&turn.Message, turn.Response))
}

func (q searchQuery) within(words searchWords) bool {
	if words.empty() {
		return false
	}
	fields := words.fields()
	return !slices.ContainsFunc(q, func(p phrase) bool {
		return !slices.ContainsFunc(fields[:], p.within)
	})
}

func (p phrase) within(field []string) bool {
	for from := range max(0, len(field)-len(p.words)+1) {
		if p.begins(field[from:]) {
			return true
		}
	}
	return false
}

func (p phrase) begins(field []string) bool {
	for i, word := range p.words {
		if field[i] != word && (!p.beginning || i != len(p.words)-1 || !strings.HasPrefix(field[i], word)) {
			return false
		}
	}
	return true
}

const sqliteMatchWords = `SELECT rowid FROM search_words WHERE search_words MATCH $1 AND rowid >= $2 AND rowid < $3
	ORDER BY rowid DESC LIMIT $4 + 0`

// sqlite writes an FTS5 query: every phrase is a string, in which no sign has a meaning.
func (q searchQuery) sqlite(string) string {
	var text strings.Builder
	for _, p := range q {
		text.WriteString(` "` + strings.Join(p.words, " ") + `"`)
		if p.beginning {
			text.WriteString(" *")
		}
	}
	return text.String()
}

// The window is one of the words, so that the index reads no more than it; "+ 0" keeps the planner from walking through the
// table instead.
const postgresMatchWords = `SELECT rowid FROM search_words WHERE words @@ CAST(CAST($1 AS TEXT) AS tsquery) AND rowid + 0 >= $2 AND rowid + 0 < $3
	ORDER BY rowid + 0 DESC LIMIT $4 + 0`

func (q searchQuery) postgres(window string) string {
	var text strings.Builder
	text.WriteString("'" + window + "'")
	for _, p := range q {
		text.WriteString(" & (")
		for i, word := range p.words {
			if i > 0 {
				text.WriteString(" <-> ")
			}
			text.WriteString("'" + word + "'")
		}
		if p.beginning {
			text.WriteString(":*")
		}
		text.WriteByte(')')
	}
	return text.String()
}

// windowSizes are how many numbers a search reads together: few where the words are frequent, so that not all of them are read
// and put in order for one page, and many where they are rare.
var windowSizes = [...]int64{1 << 12, 1 << 17}

// searchWindow is a range of numbers.
type searchWindow struct {
	level int
	index int64
}

func windowOf(level int, number int64) searchWindow {
	return searchWindow{level, number / windowSizes[level]}
}

func (w searchWindow) from() int64 { return w.index * windowSizes[w.level] }

// word is the window in the index of PostgreSQL. It is no word of a text, which has letters and digits alone.
func (w searchWindow) word() string {
	return "~" + strconv.Itoa(w.level) + "-" + strconv.FormatInt(w.index, 10)
}

const (
	// maxHits is how many rows of the index are read at once.
	maxHits = 500
	// fewHits in a window makes the following ones large.
	fewHits = 32
	// fewTurns is up to how many turns of the rest of a filter are read for what they say, instead of the index.
	fewTurns = 300
	// searchTime is after which a page ends with what it has.
	searchTime = 100 * time.Millisecond
	// maxSearchTime ends a search that the database does not end: beginnings of words that most messages have.
	maxSearchTime = 5 * time.Second
	// outOfOrder is how far the order of numbers may differ from that of ids.
	outOfOrder = 10_000
)

// searchTuning is what tests change.
type searchTuning struct {
	few  int
	time time.Duration
}

// numberCursor is a cursor of a search: the number of its last row.
func numberCursor(number int64) string { return "n" + strconv.FormatInt(number, 10) }

// found is Arrivals for a filter with a text.
func (s searchStore) found(ctx context.Context, filter exchange.ArrivalFilter, limit int) (exchange.ArrivalPage, error) {
	query, err := parseText(filter.Text)
	if err != nil {
		return exchange.ArrivalPage{}, err
	}
	list, err := selectArrivals(filter, "")
	if err != nil {
		return exchange.ArrivalPage{}, err
	}

	var upper int64
	if filter.Before != "" {
		digits, is := strings.CutPrefix(filter.Before, "n")
		if upper, err = strconv.ParseInt(digits, 10, 64); err != nil || !is || upper < 1 {
			return exchange.ArrivalPage{}, wrongCursor()
		}
	} else if upper, err = s.arrivals().LastArrival(ctx); err != nil {
		return exchange.ArrivalPage{}, err
	} else {
		upper++
	}

	ctx, cancel := context.WithTimeout(ctx, maxSearchTime)
	defer cancel()

	few := s.tuning.few
	ids, err := s.arrivals().newest(ctx, list, few+1)
	if err != nil {
		return exchange.ArrivalPage{}, err
	}
	if len(ids) <= few {
		return s.among(ctx, filter, query, ids, upper, limit)
	}
	return s.walk(ctx, list, query, upper, limit)
}

// among looks through the few turns that the rest of a filter selects.
func (s searchStore) among(ctx context.Context, filter exchange.ArrivalFilter, query searchQuery, ids []string, upper int64, limit int) (exchange.ArrivalPage, error) {
	loaded, err := s.arrivals().load(ctx, ids)
	if err != nil {
		return exchange.ArrivalPage{}, err
	}

	loaded = slices.DeleteFunc(loaded, func(one arrived) bool {
		return one.number == 0 || one.number >= upper || !query.matches(&one.turn)
	})
	slices.SortFunc(loaded, func(a, b arrived) int { return cmp.Compare(b.number, a.number) })
	loaded, next := exchange.NextPage(loaded, limit, func(one arrived) string { return numberCursor(one.number) })
	return s.arrivals().page(ctx, filter, loaded, next)
}

// numbered is a turn that a search found.
type numbered struct {
	number int64
	id     string
}

// walk goes through the index from the newest number below upper, window by window, until the page is full or its time is over.
func (s searchStore) walk(ctx context.Context, list *arrivalList, query searchQuery, upper int64, limit int) (exchange.ArrivalPage, error) {
	lowest, upper, err := s.between(ctx, list.filter, upper)
	if err != nil {
		return exchange.ArrivalPage{}, err
	}

	var hits []numbered
	begun, level := time.Now(), 0
	for upper > lowest && len(hits) <= limit {
		window := windowOf(level, upper-1)
		rows, err := s.match(ctx, query, window, upper)
		if err != nil {
			return exchange.ArrivalPage{}, err
		}

		found, err := s.restrict(ctx, list, rows)
		if err != nil {
			return exchange.ArrivalPage{}, err
		}
		hits = append(hits, found...)

		// Question and answer of a turn are two rows; where the second one was not read, its turn is there by the first.
		if upper = window.from(); len(rows) == maxHits {
			upper = rows[len(rows)-1] / 2
		}
		if level = 0; len(rows) < fewHits {
			level = len(windowSizes) - 1
		}
		if time.Since(begun) > s.tuning.time {
			break
		}
	}

	hits, next := exchange.NextPage(hits, limit, func(one numbered) string { return numberCursor(one.number) })
	if next == "" && upper > lowest {
		next = numberCursor(upper)
	}

	ids := make([]string, 0, len(hits))
	for _, hit := range hits {
		ids = append(ids, hit.id)
	}
	loaded, err := s.arrivals().load(ctx, ids)
	if err != nil {
		return exchange.ArrivalPage{}, err
	}
	return s.arrivals().page(ctx, list.filter, loaded, next)
}

const (
	selectFirstNumber = `SELECT a.number FROM turns t JOIN arrivals a ON a.turn_id = t.id WHERE t.id >= $1 ORDER BY t.id LIMIT 1`
	selectLastNumber  = `SELECT a.number FROM turns t JOIN arrivals a ON a.turn_id = t.id WHERE t.id < $1 ORDER BY t.id DESC LIMIT 1`
)

// between returns the numbers between which the turns of the filter's time are: lowest included, highest not.
func (s searchStore) between(ctx context.Context, filter exchange.ArrivalFilter, upper int64) (lowest, highest int64, err error) {
	lowest, highest = 1, upper
	if !filter.Since.IsZero() {
		var number int64
		found, err := first(ctx, s.engine.reader(), selectFirstNumber, []any{firstID(filter.Since)}, &number)
		if err != nil {
			return 0, 0, err
		}
		if found {
			lowest = max(lowest, number-outOfOrder)
		}
	}
	if !filter.Until.IsZero() {
		var number int64
		found, err := first(ctx, s.engine.reader(), selectLastNumber, []any{firstID(filter.Until)}, &number)
		if err != nil {
			return 0, 0, err
		}
		if found {
			highest = min(highest, number+outOfOrder)
		}
	}
	return lowest, highest, nil
}

// match returns rows of the index in a window, below a number, newest first.
func (s searchStore) match(ctx context.Context, query searchQuery, window searchWindow, upper int64) (rows []int64, err error) {
	words := s.engine.dialect()
	arguments := []any{words.matchQuery(query, window.word()), 2 * window.from(), 2 * upper, int64(maxHits)}
	err = s.engine.reader().each(ctx, words.matchWords, arguments, func(r row) error {
		var rowid int64
		err := r.Scan(&rowid)
		rows = append(rows, rowid)
		return err
	})
	return rows, err
}

// restricted is how many turns one statement holds against the rest of a filter.
const restricted = 100

// restrict returns those of the rows whose turns the rest of the filter selects, newest first, each once.
func (s searchStore) restrict(ctx context.Context, list *arrivalList, rows []int64) (found []numbered, err error) {
	numbers := make([]int64, 0, len(rows))
	for _, rowid := range rows {
		if number := rowid / 2; len(numbers) == 0 || numbers[len(numbers)-1] != number {
			numbers = append(numbers, number)
		}
	}

	for chunk := range slices.Chunk(numbers, restricted) {
		chosen := list.both()
		chosen.addWhen(list.filter.Agent != "", "t.agent = ?", list.filter.Agent)
		chosen.addWhen(list.filter.Channel != "", "t.channel = ?", list.filter.Channel)
		if len(list.filter.States) > 0 {
			chosen.add("t.state IN ('" + strings.Join(list.filter.States, "', '") + "')")
		}
		from := len(chosen.arguments) + 1
		chosen.add("a.number IN (" + placeholders(from, restricted) + ")")
		chosen.arguments = append(chosen.arguments, padded(chunk, restricted)...)

		query := `SELECT a.number, t.id FROM arrivals a JOIN turns t ON t.id = a.turn_id` + chosen.sql() + ` ORDER BY a.number DESC`
		err := s.engine.reader().each(ctx, query, chosen.arguments, func(r row) error {
			var one numbered
			err := r.Scan(&one.number, &one.id)
			found = append(found, one)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// decodeWords reads what of a stored turn is found.
func decodeWords(turnID, message, response string) (question, answer searchWords, err error) {
	var m normalized.Message
	if err := json.Unmarshal([]byte(message), &m); err != nil {
		return question, answer, fmt.Errorf("decode message of turn %s: %w", turnID, err)
	}
	question = questionWords(&m)
	if response == "" {
		return question, answer, nil
	}

	var r normalized.Response
	if err := json.Unmarshal([]byte(response), &r); err != nil {
		return question, answer, fmt.Errorf("decode response of turn %s: %w", turnID, err)
	}
	return question, answerWords(&m, &r), nil
}
