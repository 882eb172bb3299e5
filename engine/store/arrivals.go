package store

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"inbox/exchange"
	"inbox/internal/fault"
)

// arrivalStore lists what came in, in the order in which it came.
type arrivalStore struct{ *shared }

const (
	// maxSenderBytes is where the columns sender and sender_domain are cut: an address of mail has at most 254 (RFC 5321,
	// section 4.5.3.1.3).
	maxSenderBytes = 320
	// maxCursorBytes is more than an id of a turn has.
	maxCursorBytes = 64
	// maxPrincipalRunes is where the column principal of arrivals is cut; the rest is compared in the row of the turn.
	maxPrincipalRunes = 200
)

// senderColumns are the columns sender and sender_domain of a turn from an address such as @ann@example.org.
func senderColumns(address string) (sender, domain string) {
	sender = short(strings.ToLower(address), maxSenderBytes)
	if at := strings.LastIndexByte(sender, '@'); at > 0 {
		domain = sender[at+1:]
	}
	return sender, domain
}

// Places are agent, channel and state of a turn that has ended, none of which has a blank. The worker of the search index writes them into
// the rows of arrivals, whose indexes lists read.
const (
	endedTurns = `t.state NOT IN ('accepted', 'running', 'waiting', 'held')`
	placeNow   = `CASE WHEN ` + endedTurns + ` THEN t.agent || ' ' || t.channel || ' ' || t.state ELSE '' END`
)

// Turns that have ended without being in their place yet. Those that got an answer are in the outbox of the worker, of which lists read all: it is
// as long as the worker is behind. The others have a row without a place.
const (
	fromWaiting  = ` FROM search_pending AS waiting CROSS JOIN turns t` // with waitingTurn
	waitingTurn  = `waiting.id > '' AND t.id = waiting.turn_id`
	fromUnplaced = ` FROM arrivals a CROSS JOIN turns t` // with unplacedTurn
	unplacedTurn = `a.place = '' AND t.id = a.turn_id AND ` + endedTurns
)

// arrivalList is a list of turns in order of arrival. Those that have ended are read from a range of one index for each place;
// those that have not are few and have an index of their own, and so have those that are not in their place.
type arrivalList struct {
	filter exchange.ArrivalFilter
	upper  string // the id before which the list begins; empty = none
}

// selectArrivals reads a filter; its text is not looked at. Upper is the id before which the list begins, empty = none.
func selectArrivals(f exchange.ArrivalFilter, upper string) (*arrivalList, error) {
	if len(upper) > maxCursorBytes || !storable(upper) {
		return nil, wrongCursor()
	}
	for _, state := range f.States {
		if !slices.Contains(turnStates, state) {
			return nil, fault.InField("state", "must be one of "+strings.Join(turnStates, ", "))
		}
	}
	for name, value := range map[string]string{"agent": f.Agent, "channel": f.Channel, "sender": f.Sender} {
		if err := requireStorable(name, value); err != nil {
			return nil, err
		}
	}
	return &arrivalList{f, upper}, nil
}

func firstRunes(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most])
}

// unrestricted reports whether the list has all turns of its range of ids.
func (l *arrivalList) unrestricted() bool {
	return l.filter.Sender == "" && l.filter.Agent == "" && l.filter.Channel == "" && len(l.filter.States) == 0
}

// addIDs adds the range of ids.
func (l *arrivalList) addIDs(s *selection, column string) {
	s.addWhen(l.upper != "", column+" < ?", l.upper)
	s.addWhen(!l.filter.Until.IsZero(), column+" < ?", firstID(l.filter.Until))
	s.addWhen(!l.filter.Since.IsZero(), column+" >= ?", firstID(l.filter.Since))
}

// turns are the conditions about a row of turns but for its state; id is the column with the range of ids.
func (l *arrivalList) turns(id string) (s selection) {
	switch kind, value := exchange.SenderFilter(l.filter.Sender); kind {
	case exchange.SenderDomain:
		s.add("t.sender_domain = ?", short(value, maxSenderBytes))
	case exchange.SenderAddress:
		s.add("t.sender = ?", short(value, maxSenderBytes))
	case exchange.SenderPrincipal:
		s.add("t.principal = ?", value)
	}
	l.addIDs(&s, id)
	s.addWhen(l.filter.Agent != "", "t.agent = ?", l.filter.Agent)
	s.addWhen(l.filter.Channel != "", "t.channel = ?", l.filter.Channel)
	return s
}

// addStates adds the wanted states, if not all are.
func (l *arrivalList) addStates(s *selection) {
	if len(l.filter.States) > 0 {
		s.add("t.state IN ('" + strings.Join(l.filter.States, "', '") + "')")
	}
}

// placed are the conditions about the sender of a row of arrivals that has a place.
func (l *arrivalList) placed() (s selection) {
	s.add("a.place <> ''")
	switch kind, value := exchange.SenderFilter(l.filter.Sender); kind {
	case exchange.SenderDomain:
		s.add("a.sender_domain = ?", short(value, maxSenderBytes))
	case exchange.SenderAddress:
		s.add("a.sender = ?", short(value, maxSenderBytes))
	case exchange.SenderPrincipal:
		s.add("a.principal = ?", firstRunes(value, maxPrincipalRunes))
		if utf8.RuneCountInString(value) >= maxPrincipalRunes { // others may begin like it
			s.add("(SELECT t.principal FROM turns t WHERE t.id = a.turn_id) = ?", value)
		}
	default:
		s.add("a.turn_id <> ''")
	}
	return s
}

// bounded is the text of a range, newest first.
func bounded(from, id string, s selection, limit int) (string, []any) {
	s.arguments = append(slices.Clone(s.arguments), int64(limit))
	return `SELECT ` + id + from + s.sql() + ` ORDER BY ` + id + ` DESC LIMIT $` + strconv.Itoa(len(s.arguments)) + ` + 0`, s.arguments
}

// all is the text of a list that is not restricted.
func (l *arrivalList) all(limit int) (string, []any) {
	var s selection
	l.addIDs(&s, "t.id")
	return bounded(` FROM turns t`, "t.id", s, limit)
}

// open is the text of what has not ended.
func (l *arrivalList) open(limit int) (string, []any) {
	s := l.turns("t.id")
	s.add(openStates)
	if states := l.states(false); len(l.filter.States) > 0 {
		s.add("t.state IN (" + states + ")")
	}
	return bounded(` FROM turns t`, "t.id", s, limit)
}

// waiting is the text of what the worker has been told about. A turn may have several rows there.
func (l *arrivalList) waiting(limit int) (string, []any) {
	s := l.turns("waiting.turn_id")
	s.add(waitingTurn)
	l.addStates(&s)
	s.arguments = append(s.arguments, int64(limit))
	return `SELECT DISTINCT waiting.turn_id` + fromWaiting + s.sql() + ` ORDER BY waiting.turn_id DESC LIMIT $` + strconv.Itoa(len(s.arguments)) + ` + 0`, s.arguments
}

// unplaced is the text of what ended and has a row without a place.
func (l *arrivalList) unplaced(limit int) (string, []any) {
	s := l.turns("a.turn_id")
	s.add(unplacedTurn)
	l.addStates(&s)
	return bounded(fromUnplaced, "a.turn_id", s, limit)
}

// late are the texts of turns that may have ended without being in their place.
func (l *arrivalList) late() []func(limit int) (string, []any) {
	return []func(limit int) (string, []any){l.waiting, l.unplaced}
}

// states are the wanted states that are ends, or those that are not, as they are written in a text.
func (l *arrivalList) states(ends bool) string {
	var words []string
	for _, state := range l.filter.States {
		if exchange.Terminal(state) == ends {
			words = append(words, "'"+state+"'")
		}
	}
	return strings.Join(words, ", ")
}

// places is the text of the places that have turns of the sender, each with its newest turn in the range of ids. It jumps from
// one place to the next in the index, however many turns are between.
func (l *arrivalList) places() (string, []any) {
	who := l.placed()
	newest := selection{where: slices.Clone(who.where), arguments: slices.Clone(who.arguments)}
	newest.where = append(newest.where, "a.place = places.place")
	l.addIDs(&newest, "a.turn_id")
	arguments := newest.arguments
	first := "" // SQLite seeks by one lower bound and compares the other row by row: each step has its own alone
	if l.filter.Agent != "" {
		arguments = append(arguments, l.filter.Agent+"!", l.filter.Agent+" ") // the next byte after a blank ends the range
		who.where = append(who.where, "a.place < $"+strconv.Itoa(len(arguments)-1))
		first = "a.place >= $" + strconv.Itoa(len(arguments))
	}

	next := func(lower string) string {
		where := slices.Clone(who.where)
		if lower != "" {
			where = append(where, lower)
		}
		return `(SELECT a.place FROM arrivals a WHERE ` + strings.Join(where, " AND ") + ` ORDER BY a.place LIMIT 1)`
	}

	return `WITH RECURSIVE places(place) AS (SELECT ` + next(first) + ` UNION ALL SELECT ` + next("a.place > places.place") +
		` FROM places WHERE places.place IS NOT NULL)
		SELECT place, (SELECT a.turn_id FROM arrivals a WHERE ` + strings.Join(newest.where, " AND ") + ` ORDER BY a.turn_id DESC LIMIT 1)
		FROM places WHERE place IS NOT NULL`, arguments
}

// wants reports whether the filter selects what is at a place.
func (l *arrivalList) wants(place string) bool {
	agent, rest, _ := strings.Cut(place, " ")
	channel, state, _ := strings.Cut(rest, " ")
	return (l.filter.Agent == "" || l.filter.Agent == agent) && (l.filter.Channel == "" || l.filter.Channel == channel) &&
		(len(l.filter.States) == 0 || slices.Contains(l.filter.States, state))
}

// maxArms is how many places one statement reads; the texts for one and for so many are prepared.
const maxArms = 8

// at is the text of the turns at places, of which there are one or maxArms.
func (l *arrivalList) at(places []string, limit int) (string, []any) {
	s := l.placed()
	l.addIDs(&s, "a.turn_id")
	s.arguments = append(s.arguments, int64(limit))
	most := "$" + strconv.Itoa(len(s.arguments)) + " + 0"
	texts := make([]string, len(places))
	for i, one := range places {
		arm := selection{where: slices.Clone(s.where), arguments: s.arguments}
		arm.add("a.place = ?", one)
		s.arguments = arm.arguments
		texts[i] = `SELECT turn_id FROM (SELECT a.turn_id FROM arrivals a` + arm.sql() + ` ORDER BY a.turn_id DESC LIMIT ` + most + `) AS arm` + strconv.Itoa(i)
	}
	return strings.Join(texts, " UNION ALL "), s.arguments
}

// newestPlace is a place and its newest turn in the list.
type newestPlace struct{ place, id string }

// newest returns the ids of the newest turns of a list, newest first, at most limit.
func (s arrivalStore) newest(ctx context.Context, list *arrivalList, limit int) ([]string, error) {
	if list.unrestricted() {
		return s.turnIDs(ctx, list.all, limit)
	}

	found := map[string]bool{}
	add := func(ids []string, err error) error {
		for _, id := range ids {
			found[id] = true
		}
		return err
	}

	wantOpen := len(list.filter.States) == 0 || list.states(false) != ""
	wantEnds := len(list.filter.States) == 0 || list.states(true) != ""
	if wantOpen {
		if err := add(s.turnIDs(ctx, list.open, limit)); err != nil {
			return nil, err
		}
	}
	if wantEnds {
		// The worker moves turns in this order, so that none of them is overtaken.
		for _, text := range list.late() {
			if err := add(s.turnIDs(ctx, text, limit)); err != nil {
				return nil, err
			}
		}
		if err := s.ends(ctx, list, limit, found); err != nil {
			return nil, err
		}
	}
	// What was run again meanwhile has left the ends before they were read, and what ended has left the open ones.
	if wantOpen && wantEnds {
		if err := add(s.turnIDs(ctx, list.open, limit)); err != nil {
			return nil, err
		}
	}

	return newestOf(found, limit), nil
}

func newestOf(found map[string]bool, limit int) []string {
	ids := make([]string, 0, len(found))
	for id := range found {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b string) int { return cmp.Compare(b, a) })
	return ids[:min(limit, len(ids))]
}

// upTo returns the ids of all turns of a list, in no order, or more than most of them. It reads little more than it returns, where newest
// reads so many of several places.
func (s arrivalStore) upTo(ctx context.Context, list *arrivalList, most int) ([]string, error) {
	found := map[string]bool{}
	add := func(text func(limit int) (string, []any)) error {
		ids, err := s.turnIDs(ctx, text, most+1)
		for _, id := range ids {
			found[id] = true
		}
		return err
	}

	wantOpen := len(list.filter.States) == 0 || list.states(false) != ""
	wantEnds := len(list.filter.States) == 0 || list.states(true) != ""
	if wantOpen {
		if err := add(list.open); err != nil {
			return nil, err
		}
	}
	if wantEnds {
		for _, text := range list.late() { // as in newest
			if err := add(text); err != nil {
				return nil, err
			}
		}
		places, err := s.placesOf(ctx, list)
		if err != nil {
			return nil, err
		}
		for size := 1; len(places) > 0 && len(found) <= most; size = maxArms { // the first one alone: often it has enough
			var group []string
			group, places = nextPlaces(places, size)
			if err := add(func(limit int) (string, []any) { return list.at(group, limit) }); err != nil {
				return nil, err
			}
		}
	}
	if wantOpen && wantEnds { // as in newest
		if err := add(list.open); err != nil {
			return nil, err
		}
	}
	return newestOf(found, most+1), nil
}

// placesOf returns the places that have turns of the list, in the order of their newest turn.
func (s arrivalStore) placesOf(ctx context.Context, list *arrivalList) (places []newestPlace, err error) {
	query, arguments := list.places()
	err = s.engine.Reader().Each(ctx, query, arguments, func(r row) error {
		var one newestPlace
		var newest *string
		if err := r.Scan(&one.place, &newest); err != nil || newest == nil || !list.wants(one.place) {
			return err
		}
		one.id = *newest
		places = append(places, one)
		return nil
	})
	slices.SortFunc(places, func(a, b newestPlace) int { return cmp.Compare(b.id, a.id) })
	return places, err
}

// noPlace is where no turn is. With an empty place PostgreSQL would read the turns without one.
const noPlace = "-"

// nextPlaces takes places away, of which there are then one or maxArms: the texts for those are prepared.
func nextPlaces(places []newestPlace, size int) (group []string, rest []newestPlace) {
	for _, one := range places[:min(len(places), size)] {
		group = append(group, one.place)
	}
	rest = places[len(group):]
	for len(group) > 1 && len(group) < maxArms {
		group = append(group, noPlace)
	}
	return group, rest
}

// ends adds the newest turns that have ended. Places are read in the order of their newest turn, until none can add any.
func (s arrivalStore) ends(ctx context.Context, list *arrivalList, limit int, found map[string]bool) error {
	places, err := s.placesOf(ctx, list)
	if err != nil {
		return err
	}
	for len(places) > 0 {
		best := newestOf(found, limit)
		if len(best) == limit && best[limit-1] > places[0].id {
			return nil
		}

		var group []string
		group, places = nextPlaces(places, maxArms)
		ids, err := s.turnIDs(ctx, func(limit int) (string, []any) { return list.at(group, limit) }, limit)
		if err != nil {
			return err
		}
		for _, id := range ids {
			found[id] = true
		}
	}
	return nil
}

func (s arrivalStore) turnIDs(ctx context.Context, text func(limit int) (string, []any), limit int) (ids []string, err error) {
	query, arguments := text(limit)
	return column[string](ctx, s.engine.Reader(), query, arguments)
}

// loadedAtOnce is how many turns one statement reads; shorter lists repeat their last id.
const loadedAtOnce = 50

var selectLoaded = `SELECT ` + turnColumns + `, COALESCE(r.response, ''), COALESCE(a.number, 0)` + turnsWithReplies +
	`LEFT JOIN arrivals a ON a.turn_id = t.id WHERE t.id IN (` + placeholders(1, loadedAtOnce) + `)`

// arrived is a turn with its number; 0 = it has none yet.
type arrived struct {
	turn   exchange.TurnRecord
	number int64
}

// load reads turns in the order of ids; those that are gone are left out.
func (s arrivalStore) load(ctx context.Context, ids []string) ([]arrived, error) {
	found := make(map[string]arrived, len(ids))
	for chunk := range slices.Chunk(ids, loadedAtOnce) {
		err := s.engine.Reader().Each(ctx, selectLoaded, padded(chunk, loadedAtOnce), func(r row) error {
			var one arrived
			turn, err := scanTurn(r, &one.number)
			one.turn = turn
			found[turn.ID] = one
			return err
		})
		if err != nil {
			return nil, err
		}
	}

	loaded := make([]arrived, 0, len(ids))
	for _, id := range ids {
		if one, there := found[id]; there {
			loaded = append(loaded, one)
		}
	}
	return loaded, nil
}

// padded makes arguments of a fixed number, so that there is one text to prepare.
func padded[T any](values []T, size int) []any {
	arguments := make([]any, size)
	for i := range arguments {
		arguments[i] = values[min(i, len(values)-1)]
	}
	return arguments
}

// Arrivals lists messages with their responses, newest first. A filter with a text finds by the search index, in which a message
// is some hundred milliseconds after it was accepted; its pages are in the order in which the messages entered it. Where many
// messages have the words and few are in the rest of the filter, a page may be shorter than its limit although more follow: Next
// alone says so. fault.Malformed for a state, a cursor or a text that cannot be.
func (s arrivalStore) Arrivals(ctx context.Context, filter exchange.ArrivalFilter) (exchange.ArrivalPage, error) {
	limit := int(min(pageSize(filter.Limit), maxPage-1))
	if filter.Text != "" {
		return s.search().found(ctx, filter, limit)
	}
	list, err := selectArrivals(filter, filter.Before)
	if err != nil {
		return exchange.ArrivalPage{}, err
	}

	ids, err := s.newest(ctx, list, limit+1)
	if err != nil {
		return exchange.ArrivalPage{}, err
	}
	ids, next := exchange.NextPage(ids, limit, func(id string) string { return id })
	loaded, err := s.load(ctx, ids)
	if err != nil {
		return exchange.ArrivalPage{}, err
	}
	return s.page(ctx, filter, loaded, next)
}

func wrongCursor() error { return fault.InField("before", "is not one that this server gave") }

// page makes a page of turns, without those that have changed meanwhile so that the filter does not select them any more.
func (s arrivalStore) page(ctx context.Context, filter exchange.ArrivalFilter, loaded []arrived, next string) (exchange.ArrivalPage, error) {
	page := exchange.ArrivalPage{Turns: make([]exchange.TurnRecord, 0, len(loaded)), Next: next}
	for _, one := range loaded {
		if filter.Selects(&one.turn) {
			page.Turns = append(page.Turns, one.turn)
		}
	}
	return page, s.quotas().fillExpiry(ctx, page.Turns)
}

const selectArrived = `SELECT number, turn_id FROM arrivals WHERE number > $1 ORDER BY number LIMIT $2 + 0`

// maxFollowed is how many messages one call of ArrivalsAfter looks at.
const maxFollowed = 500

// ArrivalsAfter returns messages that came after the number, in the order of their numbers, and the number to go on with. A
// message gets its number some hundred milliseconds after it was accepted, and no lower number appears after a higher one, on
// any node: who goes on with the number that was returned gets each message once. At most limit are returned and 500 looked at,
// so that a page may be empty although the number has moved.
func (s arrivalStore) ArrivalsAfter(ctx context.Context, filter exchange.ArrivalFilter, after int64, limit int) ([]exchange.TurnRecord, int64, error) {
	if _, err := selectArrivals(filter, ""); err != nil {
		return nil, after, err
	}
	query, err := parseText(filter.Text)
	if err != nil {
		return nil, after, err
	}

	numbers, ids := map[string]int64{}, []string(nil)
	err = s.engine.Reader().Each(ctx, selectArrived, []any{after, int64(maxFollowed)}, func(r row) error {
		var number int64
		var id string
		err := r.Scan(&number, &id)
		numbers[id], ids = number, append(ids, id)
		return err
	})
	if err != nil {
		return nil, after, err
	}

	var page []exchange.TurnRecord
	for chunk := range slices.Chunk(ids, loadedAtOnce) {
		loaded, err := s.load(ctx, chunk)
		if err != nil {
			return nil, after, err
		}
		for _, one := range loaded {
			if !filter.Selects(&one.turn) || !inTime(filter, one.turn.ID) || !query.matches(&one.turn) {
				continue
			}
			if page = append(page, one.turn); len(page) >= limit {
				return page, numbers[one.turn.ID], s.quotas().fillExpiry(ctx, page)
			}
		}
		after = numbers[chunk[len(chunk)-1]]
	}
	return page, after, s.quotas().fillExpiry(ctx, page)
}

// inTime reports whether a turn was accepted in the time of the filter: its id has the milliseconds.
func inTime(f exchange.ArrivalFilter, id string) bool {
	return (f.Since.IsZero() || id >= firstID(f.Since)) && (f.Until.IsZero() || id < firstID(f.Until))
}

// LastArrival returns the highest number, for ArrivalsAfter.
func (s arrivalStore) LastArrival(ctx context.Context) (number int64, err error) {
	_, err = first(ctx, s.engine.Reader(), `SELECT number FROM search_state WHERE one = 1`, nil, &number)
	return number, err
}
