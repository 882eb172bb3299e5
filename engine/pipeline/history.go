package pipeline

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"inbox/agents"
	"inbox/exchange"
	"inbox/history"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/normalized"
)

// Exchange is one earlier question of a thread with its answer.
type Exchange struct {
	Turn      exchange.TurnRecord // Message without history; Response nil when there was none
	ReplyID   string
	At        time.Time         // of the answer
	Earlier   []normalized.Part // of the answers before that of Turn
	Withdrawn bool              // the sender took the question back: only the answer is left of it
}

// Answered reports whether there is an answer that someone could see.
func (e Exchange) Answered() bool {
	return e.Turn.Response != nil && !e.Turn.Response.Silent && len(e.Turn.Response.Parts) > 0
}

// Turns says how many turns of a history the exchange makes.
func (e Exchange) Turns() (count int) {
	if !e.Withdrawn {
		count++
	}
	if e.Answered() {
		count++
	}
	return count
}

// For leaves out the answer where it was told to the sender of the message alone and the agent must not repeat it: none of the principals
// is that sender, or others read what the agent says now. The message may have been public, and what was asked and answered in private is not.
func (e *Exchange) For(principals []string, othersRead bool) {
	if e.Turn.Response == nil || e.mayTell(*e.Turn.Response, principals, othersRead) {
		return
	}
	e.Turn.Response, e.Turn.Said, e.ReplyID = nil, nil, ""
}

// mayTell reports whether an answer may be told to a party, and to others who read. What the agent itself began is told to its parties.
func (e *Exchange) mayTell(answer normalized.Response, principals []string, othersRead bool) bool {
	if othersRead && answer.Visibility == normalized.VisibilityDirect {
		return false
	}
	speaker := e.Turn.Message.Sender.Speaker()
	began := speaker != nil && speaker.Local() && speaker.Vouches(e.Turn.Message.Recipient)
	narrow := answer.Visibility == normalized.VisibilityDirect || answer.Visibility == normalized.VisibilityFollowers
	return !narrow || began || slices.Contains(principals, e.Turn.Principal)
}

// parts are those that a history may show.
func (e Exchange) parts() (list []normalized.Part) {
	if !e.Withdrawn {
		list = slices.Clone(e.Turn.Message.Parts)
	}
	if e.Answered() {
		list = append(append(list, e.Earlier...), e.Turn.Response.Parts...)
	}
	return list
}

// ThreadQuery selects both ends of a thread. Held messages, and taken back ones without answer, are no part of it.
type ThreadQuery struct {
	Agent, ThreadID string
	Principals      []string            // of the party whose history it is: turns are left out whose audience has none of them; the first 16 count
	OthersRead      bool                // without answers that were for their asker alone: other people read what is said now
	Elsewhere       bool                // with what the principals said to the agent in Shared turns of other threads
	Before          string              // only what was accepted before the turn with this id
	Since           time.Time           // only what was accepted since then; zero = all
	Head, Tail      int                 // turns that are wanted of the start and of the end
	Enough          func(Exchange) bool // asked for each exchange from the newest back; true = older ones are not wanted for Tail; optional
}

// ThreadExcerpt is what a ThreadQuery found: at least the turns asked for, none twice, both ends oldest first.
type ThreadExcerpt struct {
	Head, Tail []Exchange
	Total      int // turns, those between the ends included
}

// ThreadReader is what the pipeline reads to make a history.
type ThreadReader interface {
	// ThreadExcerpt reads as little as the query asks for, however long the thread is.
	ThreadExcerpt(ctx context.Context, query ThreadQuery) (ThreadExcerpt, error)
	// LinksOf returns the links of a principal that are in force for an agent.
	LinksOf(ctx context.Context, agent, principal string) ([]exchange.PersonLink, error)
}

// historian collects what was said in a thread before a turn.
type historian struct{ *core }

// withHistory returns what the agent is told, the message as it sees it: with the trimmed history of its thread, or of its sender's
// conversations where the agent's history follows the person.
func (s *historian) withHistory(ctx context.Context, agent agents.Entry, turn exchange.TurnRecord) (told, error) {
	return s.joined(ctx, agent, turn, s.ancestors)
}

// told is what an agent is told of its conversation.
type told struct {
	message    normalized.Message // with history
	breakpoint *int
	named      []string // whom the last answer named and did not address
}

// joined is withHistory with what was said where this server was not told, as lookUp finds it or the sender brought it.
func (s *historian) joined(
	ctx context.Context, agent agents.Entry, turn exchange.TurnRecord, lookUp func(context.Context, exchange.TurnRecord, bool) (*ancestry, error),
) (told, error) {
	message := turn.Message
	query, err := s.threadQuery(ctx, agent, turn)
	if err != nil {
		return told{message: message}, err
	}

	var excerpt ThreadExcerpt
	if entry, expected := s.broker.expectation(turn.ID); !expected || !entry.fresh || query.Elsewhere {
		if excerpt, err = s.options.Store.ThreadExcerpt(ctx, query); err != nil {
			return told{message: message}, err
		}
	}

	if err := s.recall(ctx, excerpt.Head, query); err != nil {
		return told{message: message}, err
	}
	if err := s.recall(ctx, excerpt.Tail, query); err != nil {
		return told{message: message}, err
	}

	before, err := lookUp(ctx, turn, excerpt.Total > 0)
	if err != nil {
		return told{message: message}, err
	}
	past := slices.Concat(excerpt.Head, excerpt.Tail)
	before.brought = s.brought(agent, turn, past)
	if excerpt.Total+before.messages() == 0 {
		return told{message: message}, nil
	}
	if err := s.keepFiles(ctx, past); err != nil {
		return told{message: message}, err
	}

	kept, breakpoint := history.TrimThread(history.Thread{
		Head: turns(agent, excerpt.Head, before), Tail: append(turns(agent, excerpt.Tail, before), before.to(turn.ID)...),
		Total: excerpt.Total + before.messages(),
	}, agent.Settings.History)

	message.History = s.shownAgain(kept)
	return told{message: message, breakpoint: breakpoint, named: lastNamed(past)}, nil
}

// brought returns what the senders of a turn and of the earlier ones of its thread say was said before them, by turn. All of it is the
// sender's word: the agent perhaps never said what it says here. Adapters hold it to the contract before it is stored.
func (s *historian) brought(agent agents.Entry, turn exchange.TurnRecord, past []Exchange) (list map[string][]normalized.HistoricalMessage) {
	add := func(one *exchange.TurnRecord) {
		earlier := exchange.EarlierIn(one.Route)
		if len(earlier) == 0 || one.ThreadID != turn.ThreadID || list[one.ID] != nil {
			return
		}

		if list == nil {
			list = map[string][]normalized.HistoricalMessage{}
		}
		for i, line := range earlier {
			message := normalized.HistoricalMessage{
				ID: fmt.Sprintf("%s/%d", one.Message.ID, i), Role: line.Role, Sender: one.Message.Sender, Timestamp: identity.At(one.AcceptedAt),
				Parts: s.withoutKeys(line.Contents(), s.keys().Text),
			}
			if line.Role == normalized.RoleAssistant {
				message.Sender = self(agent)
			}
			list[one.ID] = append(list[one.ID], message)
		}
	}

	for i := range past {
		if !past[i].Withdrawn {
			add(&past[i].Turn)
		}
	}
	add(&turn)
	return list
}

func (s *historian) threadQuery(ctx context.Context, agent agents.Entry, turn exchange.TurnRecord) (ThreadQuery, error) {
	policy := agent.Settings.History
	enough := policy.Enough()
	query := ThreadQuery{
		Agent: turn.Agent, ThreadID: turn.ThreadID, Before: turn.ID, Since: policy.Since(time.Now()), OthersRead: turn.OthersRead() && !askedInPrivate(turn),
		Enough: func(past Exchange) (is bool) {
			for _, h := range slices.Backward(turns(agent, []Exchange{past}, new(ancestry))) {
				is = enough(h)
			}
			return is
		},
	}

	query.Head, query.Tail = policy.Need()
	var err error
	query.Principals, query.Elsewhere, err = s.party(ctx, agent, turn)
	return query, err
}

// party returns the principals of the sender: its own and, where the agent's history follows the person, those that are linked with it for
// this agent, with what they said elsewhere. A sender who proved nothing is no known person: a name alone opens no other conversation. Nor
// does the message of an agent.
func (s *historian) party(ctx context.Context, agent agents.Entry, turn exchange.TurnRecord) (principals []string, elsewhere bool, err error) {
	sender := turn.Message.Sender
	principals = []string{turn.Principal}
	if names := sender.Names(); names[0] == turn.Principal {
		principals = names
	}
	if agent.Settings.HistoryScope != agents.HistoryPerson || !turn.Shared || turn.Principal != sender.Principal() {
		return principals, false, nil
	}

	links, err := s.options.Store.LinksOf(ctx, turn.Agent, turn.Principal)
	for i := range links {
		own, other, counts := links[i].With(turn.Agent, turn.Principal, time.Now())
		if counts && s.believed(own) && s.believed(other) && !renamed(own, sender) {
			principals = append(principals, other.Principal)
		}
	}
	return principals, true, err
}

// believed reports whether what proved a side of a link would still be believed.
func (s *historian) believed(side exchange.LinkSide) bool {
	return s.options.Believed == nil || s.options.Believed(side)
}

// renamed reports whether the sender's evidence vouches for another address now than when the link was made.
func renamed(own exchange.LinkSide, sender normalized.Sender) bool {
	for i := range sender.Identities {
		e := &sender.Identities[i]
		if now := e.Proven(); e.Issuer == own.Issuer && e.Subject == own.Subject && own.Address != "" && now != "" && now != own.Address {
			return true
		}
	}
	return false
}

// keepFiles puts the inline bytes of earlier turns into the blob store: history carries their digests only.
func (s *historian) keepFiles(ctx context.Context, exchanges []Exchange) error {
	for _, past := range exchanges {
		for _, part := range past.parts() {
			if part.BytesRef == nil || part.BytesRef.Kind != normalized.BytesInline {
				continue
			}

			content, err := part.BytesRef.Bytes()
			if err != nil {
				return fmt.Errorf("read inline bytes of turn %s: %w", past.Turn.ID, err)
			}
			if _, err := s.options.Blobs.PutBytes(ctx, content); err != nil {
				return fmt.Errorf("keep a file of turn %s: %w", past.Turn.ID, err)
			}
		}
	}
	return nil
}

// recall adds to exchanges the answers that they had before the newest one, as far as they may be told. They are few: an operator
// writes a second answer by hand.
func (s *historian) recall(ctx context.Context, exchanges []Exchange, query ThreadQuery) error {
	for i := range exchanges {
		for _, one := range exchanges[i].Turn.Said {
			said, _, err := s.options.Store.Reply(ctx, one.ReplyID)
			switch {
			case fault.Is(err, fault.NotFound):
			case err != nil:
				return fmt.Errorf("read an earlier answer of turn %s: %w", exchanges[i].Turn.ID, err)
			case exchanges[i].mayTell(said.Response, query.Principals, query.OthersRead): // one that was taken back has no parts
				exchanges[i].Earlier = append(exchanges[i].Earlier, said.Response.Parts...)
			}
		}
	}
	return nil
}

// turns writes exchanges as history: what was told before the question, the question, then the answer where there was
// one. Several answers to a question are one turn, as neighbours of equal role are.
func turns(agent agents.Entry, exchanges []Exchange, told *ancestry) []normalized.HistoricalMessage {
	list := make([]normalized.HistoricalMessage, 0, 2*len(exchanges))
	for _, past := range exchanges {
		list = append(list, told.to(past.Turn.ID)...)
		if question := past.Turn.Message; !past.Withdrawn {
			list = append(list, normalized.HistoricalMessage{
				ID: question.ID, Role: normalized.RoleUser, Sender: question.Sender, Parts: question.Parts, Timestamp: question.ReceivedAt,
			})
		}
		if past.Answered() {
			list = append(list, normalized.HistoricalMessage{
				ID: past.ReplyID, Role: normalized.RoleAssistant, Sender: speaker(agent, past.Turn), Timestamp: identity.At(past.At),
				Parts: slices.Concat(past.Earlier, past.Turn.Response.Parts),
			})
		}
	}

	return list
}

func self(agent agents.Entry) normalized.Sender {
	return normalized.Sender{Address: identity.Stated(agent.Profile.Address), AuthMethod: normalized.AuthNone}
}

// speaker is the agent, with the mark of the operator who wrote its answer.
func speaker(agent agents.Entry, turn exchange.TurnRecord) normalized.Sender {
	sender := self(agent)
	if turn.Written == nil {
		return sender
	}
	own, _ := identity.ParseAddress(agent.Profile.Address) // the registry has checked it
	sender.Identities = []identity.Evidence{{Subject: turn.Written.By, Issuer: own.Domain, Method: identity.MethodLocalOperator}}
	return sender
}

const (
	ancestorNamespace = "pipeline.ancestors" // hash of agent and thread → ancestry
	ancestorLife      = 30 * 24 * time.Hour  // after the last turn of the thread
	ancestorRenewal   = 24 * time.Hour       // its life is written down anew at most so often
	ancestorTries     = 2                    // searches that are begun for one turn; those that a crash cut off count
	maxAncestorTurns  = 16                   // turns of a thread whose ancestors are kept
	maxAncestors      = 100                  // messages that are kept for one turn
)

// ancestry is what was said in a thread where this server was not told, before each turn that entered it late. It is kept
// so that every later history of the thread has the same bytes, and no crash makes us ask other servers again and again.
type ancestry struct {
	Kept  time.Time     `json:"kept"` // when it was last written
	Turns []ancestorsOf `json:"turns"`

	brought map[string][]normalized.HistoricalMessage // by turn: what its sender brought along; the turn's own row has it
}

type ancestorsOf struct {
	Turn     string                         `json:"turn"`
	Tries    int                            `json:"tries"`
	Done     bool                           `json:"done"`
	Messages []normalized.HistoricalMessage `json:"messages,omitempty"`
}

func (a *ancestry) of(turnID string) *ancestorsOf {
	for i := range a.Turns {
		if a.Turns[i].Turn == turnID {
			return &a.Turns[i]
		}
	}
	return &ancestorsOf{}
}

// to returns what was said before a turn.
func (a *ancestry) to(turnID string) []normalized.HistoricalMessage {
	return slices.Concat(a.of(turnID).Messages, a.brought[turnID])
}

// messages counts those of all turns.
func (a *ancestry) messages() (count int) {
	for _, one := range a.Turns {
		count += len(one.Messages)
	}
	for _, messages := range a.brought {
		count += len(messages)
	}
	return count
}

// AncestorsOf names the document with what was said in a thread where this server was not told.
func AncestorsOf(agent, threadID string) (namespace, key string) {
	sum := sha256.Sum256([]byte(agent + "\n" + threadID))
	return ancestorNamespace, hex.EncodeToString(sum[:])
}

// kept returns what is known of the thread. It asks no other server and writes nothing, so that it may be read while the turn runs.
func (s *historian) kept(ctx context.Context, turn exchange.TurnRecord, begun bool) (*ancestry, error) {
	known := new(ancestry)
	historian, is := s.options.Channels.Channel(turn.Channel).(exchange.Historian)
	if !is || s.options.Documents == nil {
		return known, nil
	}

	if !begun && !historian.Late(turn) {
		return known, nil
	}

	namespace, key := AncestorsOf(turn.Agent, turn.ThreadID)
	value, found, err := s.options.Documents.Get(ctx, namespace, key)
	if err != nil {
		return nil, fmt.Errorf("read ancestors: %w", err)
	}

	if found {
		if err := json.Unmarshal(value, known); err != nil {
			return nil, fmt.Errorf("decode ancestors: %w", err)
		}
	}

	return known, nil
}

// ancestors returns what is known of the thread, and searches for what was said before this turn if it entered late. Turns
// of a thread run one at a time, so no other run writes the document.
func (s *historian) ancestors(ctx context.Context, turn exchange.TurnRecord, begun bool) (*ancestry, error) {
	known, err := s.kept(ctx, turn, begun)
	historian, is := s.options.Channels.Channel(turn.Channel).(exchange.Historian)
	if err != nil || !is || s.options.Documents == nil {
		return known, err
	}

	if historian.Late(turn) && !known.of(turn.ID).Done {
		return known, s.search(ctx, historian, turn, known)
	}
	if len(known.Turns) > 0 && time.Since(known.Kept) > ancestorRenewal {
		return known, s.writeAncestors(ctx, turn, known)
	}

	return known, nil
}

// search asks other servers, after it is written down that it does.
func (s *historian) search(ctx context.Context, historian exchange.Historian, turn exchange.TurnRecord, known *ancestry) error {
	one := *known.of(turn.ID)
	one.Turn, one.Tries = turn.ID, one.Tries+1
	if one.Tries <= ancestorTries {
		if err := s.keepAncestors(ctx, turn, known, one); err != nil {
			return err
		}

		found, err := historian.Ancestors(ctx, turn)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			s.options.Logger.WarnContext(ctx, "what was said before a message could not be found", "error", err)
		}
		one.Messages = s.sound(turn, found)
	}

	one.Done = true
	return s.keepAncestors(ctx, turn, known, one)
}

// sound keeps the messages that the contract allows in a history.
func (s *historian) sound(turn exchange.TurnRecord, found []normalized.HistoricalMessage) []normalized.HistoricalMessage {
	var kept []normalized.HistoricalMessage
	for _, one := range found[max(len(found)-maxAncestors, 0):] {
		message := turn.Message
		message.History = []normalized.HistoricalMessage{one}
		message.Clean()
		message.History[0].Parts = s.withoutKeys(message.History[0].Parts, s.keys().Text)
		if normalized.Validate(message, s.options.Limits) == nil {
			kept = append(kept, message.History[0])
		}
	}
	return kept
}

func (s *historian) keepAncestors(ctx context.Context, turn exchange.TurnRecord, known *ancestry, one ancestorsOf) error {
	known.Turns = append(slices.DeleteFunc(known.Turns, func(other ancestorsOf) bool { return other.Turn == one.Turn }), one)
	known.Turns = known.Turns[max(len(known.Turns)-maxAncestorTurns, 0):]
	return s.writeAncestors(ctx, turn, known)
}

// writeAncestors stores them, to be kept for their whole life from now on.
func (s *historian) writeAncestors(ctx context.Context, turn exchange.TurnRecord, known *ancestry) error {
	known.Kept = time.Now().UTC()
	value, err := json.Marshal(known)
	if err != nil {
		return fmt.Errorf("encode ancestors: %w", err)
	}
	namespace, key := AncestorsOf(turn.Agent, turn.ThreadID)
	if err := s.options.Documents.Put(ctx, namespace, key, value, time.Now().Add(ancestorLife)); err != nil {
		return fmt.Errorf("keep ancestors: %w", err)
	}
	return nil
}
