package pipeline

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"inbox/agents"
	"inbox/engine/delivery"
	"inbox/engine/moderation"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/normalized"
)

// Meter counts messages and money; *moderation.Meter is one.
type Meter interface {
	// Reserve counts a message until its transaction ended, or reports that it is over a limit.
	Reserve(ctx context.Context, subject moderation.Subject) (*moderation.Reservation, moderation.Excess, bool)
	// Report counts what is over a limit and completes the excess. Its reservation ends with the transaction, too.
	Report(ctx context.Context, excess moderation.Excess) (moderation.Excess, *moderation.Reservation)
	// Explain reports whether a sender is to be told why a message stays without an answer: once in a day. Its reservation is never nil.
	Explain(ctx context.Context, subject moderation.Subject) (bool, *moderation.Reservation)
	Spend(ctx context.Context, subject moderation.Subject, cost int64)
	// Remember notes that a sender was answered.
	Remember(subject moderation.Subject)
}

// ListTx is what a transaction does about stop words.
type ListTx interface {
	PutListEntries(ctx context.Context, entries ...exchange.ListEntry) error
	RemoveListEntry(ctx context.Context, entry exchange.ListEntry) (bool, error)
}

// Limiters are what keeps conversations in bounds. The zero value brakes nothing but two agents that play ping-pong.
type Limiters struct {
	Meter       Meter                // optional
	Networks    *moderation.Networks // optional: without it senders without proof are counted by what they say of themselves
	Stop, Start moderation.Words     // messages that are nothing else; empty = none
	BotTurns    int                  // messages of one agent in one thread within BotWindow that are answered; 0 = 6
	BotWindow   time.Duration        // 0 = 10 minutes
	ThreadTurns int                  // the same for the life of the thread, at most 100; 0 = no bound
}

// WithDefaults returns the limiters with what is zero filled in, as Options.Current has to return them.
func (l Limiters) WithDefaults() Limiters {
	l.setDefaults()
	return l
}

func (l *Limiters) setDefaults() {
	if l.BotTurns == 0 {
		l.BotTurns = pingPongTurns
	}
	if l.BotWindow == 0 {
		l.BotWindow = pingPongWithin
	}
}

// finalNotice is the last word of a turn that no agent runs for: a polite sentence, and what else its transaction writes.
type finalNotice struct {
	reply      exchange.Reply
	nativeID   string
	deliveries []delivery.Record
	write      func(ctx context.Context, tx Tx) error // optional
	written    func()                                 // optional, after the commit
}

func (p *finalNotice) store(ctx context.Context, tx Tx) error {
	if p == nil {
		return nil
	}

	if p.write != nil {
		if err := p.write(ctx, tx); err != nil {
			return err
		}
	}

	if p.reply.ID == "" {
		return nil
	}
	if err := tx.InsertReply(ctx, p.reply, p.nativeID); err != nil {
		return err
	}

	return insertDeliveries(ctx, tx, p.reply, p.deliveries)
}

// committed does what follows the commit.
func (p *finalNotice) committed() {
	if p != nil && p.written != nil {
		p.written()
	}
}

// limited is what limits and stop words made of a message.
type limited struct {
	last     *finalNotice
	audit    []exchange.AuditRecord
	counted  *moderation.Reservation // is kept or given back with the message
	repeated *exchange.Receipt       // the message was accepted before; nil = not known to be
}

// limit looks at a message that its agent would answer: the sender may have said stop, or say it now, or be over a limit.
// It changes the turn; the finalNotice is stored with it. A fault refuses the message. Where the message is over a limit its
// first copy is looked for before anything is counted: a repeat is no message.
func (s *acceptor) limit(ctx context.Context, agent agents.Entry, in exchange.Inbound, turn *exchange.TurnRecord, networks []string) (limited, error) {
	if turn.State == exchange.StateSilent && in.Doubted {
		return s.explainSilence(ctx, agent, in, turn)
	}
	if turn.State != exchange.StateAccepted || in.Settlement != nil || mayDecide(agent, in) {
		return limited{}, nil
	}
	if last, done, err := s.stopWord(ctx, in, turn); done || err != nil {
		return limited{last: last}, err
	}
	if s.limiters().Meter == nil {
		return limited{}, nil
	}

	subject := subjectOf(*turn)
	subject.Networks, subject.Bytes = networks, storedBytes(in)
	subject.Message, subject.Opens, subject.Chain = turn.Message.ID, in.Opens || in.NewThread, in.Chain
	subject.Astray = in.Astray
	subject.Said, subject.Waited = turn.Message.Parts, waited(in, turn.AcceptedAt)
	counted, excess, over := s.limiters().Meter.Reserve(ctx, subject)
	if !over {
		return limited{counted: counted}, nil
	}
	if receipt, repeated, err := s.repeat(ctx, agent, in); repeated || err != nil {
		return limited{repeated: &receipt}, err
	}
	if excess.Contended {
		return limited{}, contended()
	}

	excess, told := s.limiters().Meter.Report(ctx, excess)
	if excess.Contended {
		told.Release()
		return limited{}, contended()
	}
	if excess.Brake != "" {
		return limited{audit: braking(turn, excess), counted: told}, nil
	}

	last, audit, err := s.overLimit(ctx, agent, in, turn, excess)
	if fault.Is(err, fault.RateLimited) {
		told.Commit() // the refusal is the answer
	}

	return limited{last: last, audit: audit, counted: told}, err
}

// wordDoubted is what a sender is told whose message looked as if a program had written it.
const wordDoubted = "This message looked as if a program had sent it, so I did not answer it. If you wrote it yourself, reply to this mail with any words."

// explainSilence tells a proven sender once in a day that a message was not answered because of a guess. A sender to whom the agent is closed, or
// who wants to hear nothing, is not told.
func (s *acceptor) explainSilence(ctx context.Context, agent agents.Entry, in exchange.Inbound, turn *exchange.TurnRecord) (limited, error) {
	sender := in.Message.Sender
	if len(sender.Identities) == 0 || in.Quiet || guarded(in) || s.limiters().Meter == nil || s.options.Moderator.Sender(sender).Effect != "" ||
		!agent.Settings.Decide(identity.PurposeMessage, sender).Allowed {
		return limited{}, nil
	}
	if _, stopped := s.options.Moderator.Stopped(turn.Agent, turn.Principal); stopped {
		return limited{}, nil
	}

	tell, counted := s.limiters().Meter.Explain(ctx, subjectOf(*turn))
	if !tell {
		return limited{counted: counted}, nil
	}
	last, reached, err := s.finalNoticeOf(ctx, *turn, wordDoubted, "")
	if err != nil || !reached {
		return limited{counted: counted}, err
	}
	return limited{last: last, counted: counted}, nil
}

// contended refuses a message whose limit is full of messages that are being stored at this moment, or about which the
// database cannot report whether the sender was told. To keep it unanswered would be final, and those messages may yet fail.
func contended() error {
	return &fault.Fault{Kind: fault.RateLimited, Public: "too many messages at once; try again in a moment", RetryAfter: time.Second}
}

// networks are those by which the sender of a message is counted; none when something proves the sender.
func (s *acceptor) networks(in exchange.Inbound) []string {
	if len(in.Message.Sender.Identities) > 0 {
		return nil
	}
	return s.limiters().Networks.Of(in.Client)
}

func subjectOf(turn exchange.TurnRecord) moderation.Subject {
	subject := moderation.Subject{
		Principal: turn.Principal, Carrier: turn.Carrier, Agent: turn.Agent, Thread: turn.ThreadID, Channel: turn.Channel,
		Proven: len(turn.Message.Sender.Identities) > 0,
	}

	if turn.Network != "" {
		subject.Networks = []string{turn.Network}
	}
	subject.Host = provenDomain(turn.Message.Sender)
	return subject
}

// provenDomain is the domain of who brought a message: a carrier must not use up what the domains of its people may. It is empty
// where nothing is proven: who only states the address of a domain must not use up what that domain may.
func provenDomain(sender normalized.Sender) string {
	if len(sender.Identities) == 0 {
		return ""
	}
	return sender.Identities[0].Domain()
}

// waited returns how long after our answer its answer came; 0 = unknown. A clock that went back says nothing.
func waited(in exchange.Inbound, now time.Time) time.Duration {
	if in.AnswerOf.IsZero() {
		return 0
	}
	return max(now.Sub(in.AnswerOf), 0)
}

// braking keeps a message without an answer. The record is written once in a window, the reason with every message.
func braking(turn *exchange.TurnRecord, excess moderation.Excess) []exchange.AuditRecord {
	code := "brake:" + excess.Limit
	turn.State, turn.Reason = exchange.StateSilent, code+": "+excess.Brake
	if !excess.First {
		return nil
	}
	return []exchange.AuditRecord{auditOf(*turn, code, excess.Brake)}
}

// overLimit tells the sender once in a window, where someone reads it; later messages are kept unanswered, or refused
// where the peer comes again by itself.
func (s *acceptor) overLimit(
	ctx context.Context, agent agents.Entry, in exchange.Inbound, turn *exchange.TurnRecord, excess moderation.Excess,
) (*finalNotice, []exchange.AuditRecord, error) {
	reason := "limit:" + excess.Limit + ": over it until " + excess.Until.UTC().Format(time.RFC3339)
	refusal := &fault.Fault{Kind: fault.RateLimited, Public: "too many messages; try again later", RetryAfter: max(time.Second, time.Until(excess.Until))}
	automatic := guarded(in)
	text := "Sorry, I cannot answer more messages right now. Please try again after " + excess.Until.UTC().Format("15:04 UTC on 2 January") + "."
	turn.State, turn.Reason = exchange.StateRefused, reason
	last, reached, err := s.finalNoticeOf(ctx, *turn, text, string(fault.RateLimited))
	switch {
	case err != nil:
		return nil, nil, err
	case !reached, excess.Flood, !excess.Personal:
		return nil, nil, refusal // who asks for the answer by itself, and servers as a whole, come again at their time
	case excess.First && !automatic && !in.Quiet:
		return last, []exchange.AuditRecord{auditRow(agent.Profile.Name, in, "limit:"+excess.Limit, reason)}, nil
	case in.Repeats:
		return nil, nil, refusal
	}

	turn.State = exchange.StateSilent
	return nil, nil, nil
}

// lastWord plans a sentence to the sender and reports whether it goes anywhere.
func (s *acceptor) finalNoticeOf(ctx context.Context, turn exchange.TurnRecord, text, code string) (*finalNotice, bool, error) {
	response := normalized.Response{Parts: []normalized.Part{normalized.Text(text)}}
	if code != "" {
		response.Status, response.Error = normalized.StatusFailed, &normalized.ResponseError{Code: code, Message: text}
	}

	word := s.replies.newReply(turn, response.Answering(turn.Message))
	plan, err := s.replies.plan(ctx, word)
	if err != nil {
		return nil, false, unavailable("plan notice", err)
	}

	deliveries := deliveriesOf(ctx, word, plan)
	return &finalNotice{reply: word, nativeID: plan.NativeID, deliveries: deliveries}, len(deliveries) > 0, nil
}

// reasonStopped is the reason of turns that waited when their sender said stop.
const reasonStopped = "the sender said stop"

// stopWord honours a message that is only a stop word, for good: the sender hears nothing more from the agent until they
// write a start word. Where the sender fetches the answer nothing is ever sent unasked, so that the words mean nothing.
func (s *acceptor) stopWord(ctx context.Context, in exchange.Inbound, turn *exchange.TurnRecord) (last *finalNotice, done bool, err error) {
	since, stopped := s.options.Moderator.Stopped(turn.Agent, turn.Principal)
	stop, start := s.limiters().Stop.Only(in.Message), s.limiters().Start.Only(in.Message)
	if !stopped && (!stop || guarded(in)) {
		return nil, false, nil
	}

	entry := exchange.ListEntry{
		ID: newID(), List: exchange.ListStop, Kind: exchange.TargetPrincipal, Target: turn.Principal, Agent: turn.Agent,
		Reason: turn.Message.Sender.Address.String(), Source: "sender", CreatedAt: turn.AcceptedAt.UTC().Truncate(time.Microsecond),
	}
	switch {
	case stopped && !start:
		turn.State, turn.Reason = exchange.StateSilent, "the sender said stop on "+since.UTC().Format(time.RFC3339)
		return nil, true, nil
	case stopped:
		return s.obey(ctx, in, turn, entry, true, "Welcome back. I answer your messages again.")
	}

	return s.obey(ctx, in, turn, entry, false, "Understood: I will not write to you again. Send “start” if you change your mind.")
}

func (s *acceptor) obey(
	ctx context.Context, in exchange.Inbound, turn *exchange.TurnRecord, entry exchange.ListEntry, lift bool, text string,
) (*finalNotice, bool, error) {
	last, reached, err := s.finalNoticeOf(ctx, *turn, text, "")
	if err != nil || !reached {
		return nil, err != nil, err
	}

	turn.State, turn.Reason = exchange.StateAnswered, "the sender said stop"
	if lift {
		turn.Reason = "the sender said start"
	}
	if in.Quiet {
		last.reply, turn.State = exchange.Reply{}, exchange.StateSilent
	}

	last.write = func(ctx context.Context, tx Tx) error {
		if lift {
			_, err := tx.RemoveListEntry(ctx, entry)
			return err
		}
		return tx.PutListEntries(ctx, entry)
	}

	last.written = func() {
		ctx := context.WithoutCancel(ctx)
		s.options.Moderator.Note(entry, lift)
		s.cancels.CancelRunning(ctx)

		if lift {
			return
		}

		// What a crash leaves waiting is cancelled when its run begins.
		if err := s.cancels.CancelOpen(ctx, turn.Agent, turn.Principal, reasonStopped); err != nil {
			s.options.Logger.WarnContext(ctx, "messages of a sender who said stop are cancelled later", "error", err)
		}
	}

	return last, true, nil
}

// spend counts what an answer cost, where its agent says so, and that its asker was answered.
func (s *replier) spend(ctx context.Context, turn exchange.TurnRecord, response normalized.Response) {
	if s.limiters().Meter == nil {
		return
	}

	if stateOf(response) == exchange.StateAnswered {
		s.limiters().Meter.Remember(subjectOf(turn))
	}

	cost, err := strconv.ParseFloat(strings.TrimSpace(response.Metadata["cost"]), 64)
	if err != nil || cost <= 0 || cost > 1e9 {
		return
	}
	s.limiters().Meter.Spend(ctx, subjectOf(turn), int64(cost*1e6))
}

// tooDeep says why an agent's message is not answered any more, however slowly it came.
func (l Limiters) tooDeep(turns int) string {
	if l.ThreadTurns <= 0 || turns < l.ThreadTurns {
		return ""
	}
	return fmt.Sprintf("more than %d messages of this agent in this thread", l.ThreadTurns)
}

// Usage is a number of messages and what they take on the disk: used, or allowed.
type Usage struct{ Messages, Bytes int64 }

// Quotas bound the messages that get no answer by themselves: those that are held for the operator and those that are
// never answered. They cost the sender nothing, and no one else would bound them. The zero value bounds nothing.
type Quotas struct {
	Sender     Usage // of one network of senders without proof, or of one domain of proven ones
	All        Usage
	Kept       int64 // percent of All that senders without proof do not use
	HeldFor    time.Duration
	SilentFor  time.Duration // how long the content of a message is kept that is never answered
	GuestBytes int64         // the largest message of a sender without proof, files included; 0 = no bound
}

// Unanswered is a message that gets no answer by itself, and the quotas that it has to fit into.
type Unanswered struct {
	TurnID     string
	Account    string // a network or a domain; empty = only All counts
	Bytes      int64
	Ends       time.Time // when its content goes
	Quota, All Usage
}

// Fits reports whether the message may be added to what is used of its account, or of all together.
func (u Unanswered) Fits(used Usage, ofAll bool) bool {
	most := u.Quota
	if ofAll {
		most = u.All
	}
	return used.Messages < most.Messages && used.Bytes+u.Bytes <= most.Bytes
}

// UnansweredTx is what a transaction does about such messages. What leaves hold, and what is erased, returns its room.
type UnansweredTx interface {
	// HasRoom reports whether a message fits, without taking its room.
	HasRoom(ctx context.Context, u Unanswered) (bool, error)
	// KeepUnanswered takes the room of a message. Where it does not fit the transaction has to be undone.
	KeepUnanswered(ctx context.Context, u Unanswered) (fits bool, err error)
	// Dropped reports whether a message was dropped from hold and its content is kept until an instant at least.
	Dropped(ctx context.Context, turnID string, until time.Time) (bool, error)
}

// unanswered is the entry of a turn in the quotas; false = it does not count.
func (s *acceptor) unanswered(turn exchange.TurnRecord, bytes int64) (Unanswered, bool) {
	q := s.quotas()
	u := Unanswered{TurnID: turn.ID, Account: turn.Network, Bytes: bytes, Quota: q.Sender, All: q.All}
	if q.All == (Usage{}) {
		return u, false
	}

	switch turn.State {
	case exchange.StateHeld:
		u.Ends = turn.AcceptedAt.Add(q.HeldFor)
	case exchange.StateSilent:
		u.Ends = turn.AcceptedAt.Add(q.SilentFor)
	default:
		return u, false
	}

	if len(turn.Message.Sender.Identities) == 0 {
		u.All.Messages -= u.All.Messages * q.Kept / 100
		u.All.Bytes -= u.All.Bytes * q.Kept / 100
	} else if domain := provenDomain(turn.Message.Sender); domain != "" {
		u.Account = "domain " + identity.RegistrableDomain(domain)
	}

	return u, true
}

// errNoRoom refuses a message that would wait here, or lie here unanswered, with too many others.
func errNoRoom() error {
	return &fault.Fault{Kind: fault.RateLimited, Public: "too many messages wait here unanswered; try again later", RetryAfter: time.Hour}
}

// storedBytes is what a message takes on the disk, as far as its parts say, with what its sender brought from earlier messages.
func storedBytes(in exchange.Inbound) int64 {
	size := int64(len(in.Original))
	for _, content := range in.Files {
		size += int64(len(content))
	}
	for i := range in.Message.Parts {
		part := &in.Message.Parts[i]
		size += int64(len(part.Content))
		switch {
		case part.BytesRef == nil:
		case part.BytesRef.Kind == normalized.BytesInline:
			size += int64(len(part.BytesRef.DataBase64))
		case in.Files[part.BytesRef.Digest] == nil:
			size += max(part.Size, 0)
		}
	}
	return size
}

// smallEnough refuses what a sender without proof may not send because of its size. The size is that of texts and files as their sender
// knows them; the wire form may be as much larger as base64 makes it.
func (s *acceptor) smallEnough(in exchange.Inbound) error {
	most := s.quotas().GuestBytes
	if most <= 0 || len(in.Message.Sender.Identities) > 0 {
		return nil
	}

	sent, encoding := storedBytes(in)-int64(len(in.Original)), most/3*4+wireRoom
	for i := range in.Message.Parts {
		if ref := in.Message.Parts[i].BytesRef; ref != nil && ref.Kind == normalized.BytesInline {
			sent -= int64(len(ref.DataBase64) / 4)
		}
	}
	if sent <= most && int64(len(in.Original)) <= encoding {
		return nil
	}
	return fault.Newf(fault.TooLarge, "a message whose sender proves nothing may have %d KiB, files included", most>>10)
}

// wireRoom is what the wire form of a message may have beside texts and files: headers, names, an envelope.
const wireRoom = 512 << 10
