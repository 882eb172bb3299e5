package store

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"inbox/exchange"
	"inbox/internal/clip"
	"inbox/internal/fault"
	"inbox/internal/markup"
	"inbox/normalized"
)

// searchStore finds messages by what they say, and keeps the index for that.
type searchStore struct{ *shared }

const (
	// maxSearchedBytes is how much of a text is indexed, of a question and of its answer alike.
	maxSearchedBytes = 64 << 10
	maxSearchedWords = 8_000
	// maxWordBytes is where a word is cut, in the index and in a query alike. PostgreSQL takes 2046 bytes.
	maxWordBytes = 80
	// maxQueryBytes and maxQueryWords bound what a search may ask for.
	maxQueryBytes = 1_000
	maxQueryWords = 32
	// Beginnings of words are indexed with these many letters. A shorter one is that of a good part of all words; of a longer one the
	// index finds the first letters, and the rest is compared with what was found.
	minBeginning, maxBeginning = 2, 4
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
	if plainASCII(text) { // each word is a piece of one copy
		return plainWords(strings.ToLower(text), most)
	}
	text = norm.NFKD.String(text)

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

// plainWords is wordsOf for ASCII in lower case.
func plainWords(text string, most int) []string {
	const usual = 6 // letters of a word, with the blank
	words := make([]string, 0, min(most, len(text)/usual+1))
	for end := 0; len(words) < most; {
		begin := end
		for begin < len(text) && !isWord(text[begin]) {
			begin++
		}
		if begin == len(text) {
			break
		}
		for end = begin; end < len(text) && isWord(text[end]); {
			end++
		}
		words = append(words, clip.Bytes(text[begin:end], maxWordBytes))
	}
	return words
}

func isWord(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }

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
	return about(message, wordsOf(markup.PlainText(message.Parts), maxSearchedWords))
}

func answerWords(message *normalized.Message, response *normalized.Response) searchWords {
	if response == nil || len(response.Parts) == 0 {
		return searchWords{}
	}
	return about(message, wordsOf(markup.PlainText(response.Parts), maxSearchedWords))
}

func about(message *normalized.Message, said []string) searchWords {
	words := searchWords{said: said, sender: wordsOf(message.Sender.Address.String()+" "+message.Sender.DisplayName, 64)}
	if message.Surface != nil {
		words.subject = wordsOf(message.Surface.Subject, 256)
	}
	return words
}

func (w searchWords) empty() bool { return len(w.said) == 0 && len(w.subject) == 0 }

// fields are the runs of words that a phrase does not cross.
func (w searchWords) fields() [3][]string { return [3][]string{w.said, w.subject, w.sender} }

const sqliteInsertWords = `INSERT INTO {words} (rowid, said, subject, sender) VALUES ($1, $2, $3, $4)`

func (w searchWords) sqlite(rowid int64, _ windowSizes) []any {
	return []any{rowid, strings.Join(w.said, " "), strings.Join(w.subject, " "), strings.Join(w.sender, " ")}
}

const postgresInsertWords = `INSERT INTO {words} (rowid, words) VALUES ($1, CAST(CAST($2 AS TEXT) AS tsvector))`

const (
	// fieldGap is how far fields are apart, so that no phrase crosses from one to the next.
	fieldGap = 16
	// maxPositions is what PostgreSQL keeps for each word.
	maxPositions = 255
)

// postgres writes a tsvector. Words are letters and digits alone, so that nothing in it needs to be escaped. Beginnings are words of
// their own, because GIN reads all words that have one, whatever else is asked for.
func (w searchWords) postgres(rowid int64, sizes windowSizes) []any {
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
	begun := map[string]bool{}
	for _, word := range order {
		for letters := minBeginning; letters <= maxBeginning; letters++ {
			if begins := firstRunes(word, letters); utf8.RuneCountInString(begins) == letters && !begun[begins] {
				begun[begins] = true
				vector.WriteString("'" + beginningWord(begins) + "' ")
			}
		}
	}
	for level := range sizes {
		vector.WriteString("'" + sizes.of(level, rowid/2).word() + "' ")
	}
	return []any{rowid, vector.String()}
}

// beginningWord is the beginning of words in the index of PostgreSQL. It is no word of a text, which has letters and digits alone.
func beginningWord(letters string) string { return "^" + letters }

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
			if last, size := utf8.DecodeRuneInString(one.words[len(one.words)-1]); one.beginning && size == len(one.words[len(one.words)-1]) {
				if !unicode.In(last, spaceless...) {
					return nil, fault.InField("text", "has the beginning of a word of one letter; give two")
				}
				one.beginning = false // the character is the whole word
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

// indexed is the beginning that the index has, and whether that is all of it.
func (p phrase) indexed() (letters string, whole bool) {
	last := p.words[len(p.words)-1]
	letters = firstRunes(last, maxBeginning)
	return letters, letters == last && len(p.words) == 1
}

const (
	sqliteMatchWords = `SELECT rowid FROM {words} WHERE {words} MATCH $1 AND rowid >= $2 AND rowid < $3{test} ORDER BY rowid DESC LIMIT $4 + 0`

	// The window is one of the words, so that the index reads no more than it; "+ 0" keeps the planner from walking through the
	// table instead, and CASE from asking the index for beginnings.
	postgresMatchWords = `SELECT rowid FROM {words} WHERE words @@ CAST(CAST($1 AS TEXT) AS tsquery) AND rowid + 0 >= $2 AND rowid + 0 < $3{test}
		ORDER BY rowid + 0 DESC LIMIT $4 + 0`

	// Rows that are known are read by their numbers.
	holdWords = `SELECT rowid FROM {words} WHERE rowid IN ({rows}){test}`
)

// sqlite writes an FTS5 query: every phrase is a string, in which no sign has a meaning.
func (q searchQuery) sqlite(string) string {
	var text strings.Builder
	for _, p := range q {
		words := p.words
		if p.beginning {
			letters, _ := p.indexed()
			words = append(slices.Clone(words[:len(words)-1]), letters)
		}
		text.WriteString(` "` + strings.Join(words, " ") + `"`)
		if p.beginning {
			text.WriteString(" *")
		}
	}
	return text.String()
}

// sqliteTest compares the texts of a row with the phrases.
func (q searchQuery) sqliteTest(s *selection) {
	for _, p := range q {
		text := " " + strings.Join(p.words, " ")
		if !p.beginning {
			text += " "
		}
		s.add(`(instr(' ' || said || ' ', ?) > 0 OR instr(' ' || subject || ' ', ?) > 0 OR instr(' ' || sender || ' ', ?) > 0)`, text, text, text)
	}
}

func (q searchQuery) postgres(window string) string {
	var text strings.Builder
	text.WriteString("'" + window + "'")
	for _, p := range q {
		if p.beginning {
			letters, _ := p.indexed()
			for _, word := range p.words[:len(p.words)-1] {
				text.WriteString(" & '" + word + "'")
			}
			text.WriteString(" & '" + beginningWord(letters) + "'")
			continue
		}
		text.WriteString(" & (" + p.tsquery() + ")")
	}
	return text.String()
}

func (p phrase) tsquery() string {
	text := "'" + strings.Join(p.words, "' <-> '") + "'"
	if p.beginning {
		text += ":*"
	}
	return text
}

// postgresTest compares the words of a row with the phrases.
func (q searchQuery) postgresTest(s *selection) {
	phrases := make([]string, 0, len(q))
	for _, p := range q {
		phrases = append(phrases, "("+p.tsquery()+")")
	}
	s.add(`CASE WHEN words @@ CAST(CAST(? AS TEXT) AS tsquery) THEN 1 ELSE 0 END = 1`, strings.Join(phrases, " & "))
}

// inexact are the phrases of which the index knows the beginning of the last word in part, or not where it stands.
func (q searchQuery) inexact() (rest searchQuery) {
	for _, p := range q {
		if _, whole := p.indexed(); p.beginning && !whole {
			rest = append(rest, p)
		}
	}
	return rest
}

// windowSizes are how many numbers a search reads together: few where the words are frequent, so that not all of them are read
// and put in order for one page, and many where they are rare. The words of PostgreSQL have the windows of these sizes.
type windowSizes [3]int64

var defaultWindows = windowSizes{1 << 9, 1 << 13, 1 << 17}

// searchWindow is a range of numbers.
type searchWindow struct {
	level int
	index int64
	size  int64
}

func (w windowSizes) of(level int, number int64) searchWindow {
	return searchWindow{level, number / w[level], w[level]}
}

func (w searchWindow) from() int64 { return w.index * w.size }

// word is the window in the index of PostgreSQL. It is no word of a text, which has letters and digits alone.
func (w searchWindow) word() string {
	return "~" + strconv.Itoa(w.level) + "-" + strconv.FormatInt(w.index, 10)
}

const (
	// maxHits is how many rows of the index are read at once.
	maxHits = 500
	// fewTurns is up to how many turns of the rest of a filter are looked at, instead of the index from its newest words on. Where it
	// has more of them and the words are frequent, they are found soon.
	fewTurns = 2_000
	// probeTime is for how long the index is read before it is asked whether the rest of a filter has very few turns.
	probeTime = 10 * time.Millisecond
	// searchTime is after which a page ends with what it has.
	searchTime = 50 * time.Millisecond
	// maxSearchTime ends a search that the database does not end.
	maxSearchTime = 5 * time.Second
	// quickWindow and slowWindow are how long reading a window takes after which the next one is larger or smaller.
	quickWindow = 2 * time.Millisecond
	slowWindow  = 20 * time.Millisecond
	// outOfOrder is how far the order of numbers may differ from that of ids.
	outOfOrder = 10_000
)

// searchTuning is what tests change.
type searchTuning struct {
	few, hits   int
	probe, time time.Duration
	windows     windowSizes
	unanswered  time.Duration // see unansweredFor
}

var defaultTuning = searchTuning{unanswered: unansweredFor, few: fewTurns, hits: maxHits, probe: probeTime, time: searchTime, windows: defaultWindows}

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

	lowest, highest, err := s.between(ctx, filter, upper)
	if err != nil {
		return exchange.ArrivalPage{}, err
	}
	walk := s.walk(turnTable, query, lowest, highest, limit, func(ctx context.Context, numbers []int64) ([]numbered, error) {
		return s.restrict(ctx, list, numbers)
	})
	begun := time.Now()
	if list.unrestricted() {
		err = walk.until(ctx, begun.Add(s.tuning.time))
	} else {
		err = s.restricted(ctx, list, walk, begun)
	}
	if err != nil {
		return exchange.ArrivalPage{}, err
	}

	hits, next := walk.page()
	ids := make([]string, 0, len(hits))
	for _, hit := range hits {
		ids = append(ids, hit.id)
	}
	loaded, err := s.arrivals().load(ctx, ids)
	if err != nil {
		return exchange.ArrivalPage{}, err
	}
	// The index may have words that a turn does not say any more.
	loaded = slices.DeleteFunc(loaded, func(one arrived) bool { return !query.matches(&one.turn) })
	return s.arrivals().page(ctx, filter, loaded, next)
}

// restricted goes through the index, unless the rest of the filter turns out to select few turns: it is asked for very few soon, and for
// more of them, which costs more, when the index has not filled the page for longer.
func (s searchStore) restricted(ctx context.Context, list *arrivalList, walk *searchWalk, begun time.Time) error {
	for _, stage := range []struct {
		few  int
		time time.Duration
	}{{s.tuning.few / 8, s.tuning.probe}, {s.tuning.few, 4 * s.tuning.probe}} {
		if err := walk.until(ctx, begun.Add(stage.time)); err != nil || walk.done() {
			return err
		}
		if few, err := s.among(ctx, list, walk, stage.few); err != nil || few {
			return err
		}
	}
	return walk.until(ctx, begun.Add(s.tuning.time))
}

// numbered is what a search found.
type numbered struct {
	number int64
	id     string
}

// Tables of words.
const (
	turnTable = "search_words" // 2 * number is the question of a turn, 2 * number + 1 its answer
	mailTable = "mail_words"   // 2 * number is a mail
)

// searchWalk goes through an index from the newest number below upper, window by window.
type searchWalk struct {
	searchStore

	table         string
	query         searchQuery
	lowest, upper int64 // lowest included, upper not
	before        int64 // upper at the start
	limit         int
	restrict      func(ctx context.Context, numbers []int64) ([]numbered, error) // those that the rest of a filter selects, newest first

	level int
	hits  []numbered
}

func (s searchStore) walk(table string, query searchQuery, lowest, upper int64, limit int, restrict func(context.Context, []int64) ([]numbered, error)) *searchWalk {
	return &searchWalk{searchStore: s, table: table, query: query, lowest: lowest, upper: upper, before: upper, limit: limit, restrict: restrict}
}

// done reports whether the page is full, or nothing is left.
func (w *searchWalk) done() bool { return w.upper <= w.lowest || len(w.hits) > w.limit }

// page returns what was found, and the cursor to go on.
func (w *searchWalk) page() (hits []numbered, next string) {
	hits, next = exchange.NextPage(w.hits, w.limit, func(one numbered) string { return numberCursor(one.number) })
	if next == "" && w.upper > w.lowest {
		next = numberCursor(w.upper)
	}
	return hits, next
}

// until goes on until the page is full, nothing is left, or the time is over.
func (w *searchWalk) until(ctx context.Context, end time.Time) error {
	for !w.done() {
		window, begun := w.tuning.windows.of(w.level, w.upper-1), time.Now()
		rows, err := w.match(ctx, window)
		if err != nil {
			return err
		}
		took := time.Since(begun)

		for numbers := range slices.Chunk(numbersOf(rows), restricted) {
			found, err := w.restrict(ctx, numbers)
			if err != nil {
				return err
			}
			if w.hits = append(w.hits, found...); len(w.hits) > w.limit {
				return nil
			}
		}

		// Question and answer of a turn are two rows; where the second one was not read, its turn is there by the first.
		if w.upper = window.from(); len(rows) == w.tuning.hits {
			w.upper = rows[len(rows)-1] / 2
		}
		switch {
		case len(rows) == w.tuning.hits || took > slowWindow:
			w.level = max(w.level-1, 0)
		case took < quickWindow:
			w.level = min(w.level+1, len(w.tuning.windows)-1)
		}
		if time.Now().After(end) {
			return nil
		}
	}
	return nil
}

// numbersOf returns the numbers of rows that are in order, each once.
func numbersOf(rows []int64) []int64 {
	numbers := make([]int64, 0, len(rows))
	for _, rowid := range rows {
		if number := rowid / 2; len(numbers) == 0 || numbers[len(numbers)-1] != number {
			numbers = append(numbers, number)
		}
	}
	return numbers
}

// match returns rows of the index in a window, below upper, newest first.
func (w *searchWalk) match(ctx context.Context, window searchWindow) (rows []int64, err error) {
	words := w.dialect
	test := &selection{arguments: []any{words.matchQuery(w.query, window.word()), 2 * max(window.from(), w.lowest), 2 * w.upper, int64(w.tuning.hits)}}
	if rest := w.query.inexact(); len(rest) > 0 {
		words.testWords(rest, test)
	}
	return w.rows(ctx, words.matchWords, test)
}

// rows reads numbers of rows of the index.
func (w *searchWalk) rows(ctx context.Context, text string, test *selection) (rows []int64, err error) {
	var condition strings.Builder
	for _, one := range test.where {
		condition.WriteString(" AND " + one)
	}
	text = strings.NewReplacer("{words}", w.table, "{test}", condition.String()).Replace(text)
	return column[int64](ctx, w.words.Reader(), text, test.arguments)
}

// heldAtOnce is how many rows one statement compares with a query.
const heldAtOnce = 200

// among fills the page from numbers that are known, newest first: all that the rest of the filter has below the upper end.
func (w *searchWalk) among(ctx context.Context, all []numbered) error {
	w.hits, w.upper = nil, w.lowest
	slices.SortFunc(all, func(a, b numbered) int { return cmp.Compare(b.number, a.number) })
	for chunk := range slices.Chunk(all, heldAtOnce/2) {
		rowids := make([]int64, 0, heldAtOnce)
		for _, one := range chunk {
			rowids = append(rowids, 2*one.number, 2*one.number+1)
		}
		test := &selection{arguments: padded(rowids, heldAtOnce)}
		w.dialect.testWords(w.query, test)
		rows, err := w.rows(ctx, strings.Replace(holdWords, "{rows}", placeholders(1, heldAtOnce), 1), test)
		if err != nil {
			return err
		}

		says := map[int64]bool{}
		for _, rowid := range rows {
			says[rowid/2] = true
		}
		for _, one := range chunk {
			if says[one.number] {
				w.hits = append(w.hits, one)
			}
		}
		if len(w.hits) > w.limit {
			return nil
		}
	}
	return nil
}

var selectNumbers = `SELECT number, turn_id FROM arrivals WHERE turn_id IN (` + placeholders(1, restricted) + `)`

// among looks through the turns that the rest of a filter selects, if they are few.
func (s searchStore) among(ctx context.Context, list *arrivalList, walk *searchWalk, most int) (few bool, err error) {
	ids, err := s.arrivals().upTo(ctx, list, most)
	if err != nil || len(ids) > most {
		return false, err
	}

	var all []numbered
	for chunk := range slices.Chunk(ids, restricted) {
		err := s.engine.Reader().Each(ctx, selectNumbers, padded(chunk, restricted), func(r row) error {
			var one numbered
			err := r.Scan(&one.number, &one.id)
			if one.number < walk.before {
				all = append(all, one)
			}
			return err
		})
		if err != nil {
			return false, err
		}
	}
	return true, walk.among(ctx, all)
}

const (
	selectFirstNumber = `SELECT number FROM arrivals WHERE turn_id >= $1 ORDER BY turn_id LIMIT 1`
	selectLastNumber  = `SELECT number FROM arrivals WHERE turn_id < $1 ORDER BY turn_id DESC LIMIT 1`
)

// between returns the numbers between which the turns of the filter's time are: lowest included, highest not.
func (s searchStore) between(ctx context.Context, filter exchange.ArrivalFilter, upper int64) (lowest, highest int64, err error) {
	lowest, highest = 1, upper
	if !filter.Since.IsZero() {
		var number int64
		found, err := first(ctx, s.engine.Reader(), selectFirstNumber, []any{firstID(filter.Since)}, &number)
		if err != nil {
			return 0, 0, err
		}
		if found {
			lowest = max(lowest, number-outOfOrder)
		}
	}
	if !filter.Until.IsZero() {
		var number int64
		found, err := first(ctx, s.engine.Reader(), selectLastNumber, []any{firstID(filter.Until)}, &number)
		if err != nil {
			return 0, 0, err
		}
		if found {
			highest = min(highest, number+outOfOrder)
		}
	}
	return lowest, highest, nil
}

// restricted is how many turns one statement compares with the rest of a filter.
const restricted = 100

// restrict returns those of the numbers whose turns the rest of the filter selects, newest first.
func (s searchStore) restrict(ctx context.Context, list *arrivalList, numbers []int64) (found []numbered, err error) {
	chosen := list.turns("t.id")
	list.addStates(&chosen)
	return s.selected(ctx, `SELECT a.number, t.id FROM arrivals a JOIN turns t ON t.id = a.turn_id`, "a.number", chosen, numbers)
}

// selected returns those of the numbers that a filter selects, newest first.
func (s searchStore) selected(ctx context.Context, from, column string, chosen selection, numbers []int64) (found []numbered, err error) {
	if len(chosen.where) > 0 { // CASE keeps planners from an index of what many rows have, where a hundred are known by their numbers
		chosen.where = []string{"CASE WHEN " + strings.Join(chosen.where, " AND ") + " THEN 1 ELSE 0 END = 1"}
	}
	chosen.where = append(chosen.where, column+" IN ("+placeholders(len(chosen.arguments)+1, restricted)+")")
	chosen.arguments = append(chosen.arguments, padded(numbers, restricted)...)

	err = s.engine.Reader().Each(ctx, from+chosen.sql()+` ORDER BY `+column+` DESC`, chosen.arguments, func(r row) error {
		var one numbered
		err := r.Scan(&one.number, &one.id)
		found = append(found, one)
		return err
	})
	return found, err
}

// decodeWords reads what of a stored turn is found.
func decodeWords(turnID, message, response string) (question, answer searchWords, err error) {
	var m normalized.Message
	if err := decodeStored("message", turnID, &m, message); err != nil {
		return question, answer, err
	}
	question = questionWords(&m)
	if response == "" {
		return question, answer, nil
	}

	var r normalized.Response
	if err := decodeStored("response", turnID, &r, response); err != nil {
		return question, answer, err
	}
	return question, answerWords(&m, &r), nil
}
