// Package lookup finds messages and conversations, and what belongs to them, by any id that a person or a program was shown.
package lookup

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"inbox/adapters/activitypub"
	"inbox/adapters/email"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/policypart"
)

// Kind is a kind of id that leads to messages.
type Kind struct {
	Name string
	From string // where one meets it, for people

	own bool // the server makes the ids: no sender can have chosen one

	// find returns the turns, newest first; none are an empty list.
	find func(ctx context.Context, x *Index, id string) ([]string, error)
}

// MaxOthers bounds how many turns beside the newest one are named.
const MaxOthers = 20

const maxFound = MaxOthers + 1

// longestID is more than any id has that was ever shown: an address of ActivityPub may have 2 KiB.
const longestID = 4 << 10

// Kinds are all kinds of ids that lead to messages, in the order in which they are tried. Ids of the server's own making come
// first, and nothing else is tried where one of them fits: a sender may call something of their own by the id of another person's
// message. Ids that peers choose may be those of several. Each costs a look into one index.
func Kinds() []Kind { return slices.Clone(kinds) }

var kinds = []Kind{
	{"turn", "lists, log lines (turn); run_id of bridges; ids of A2A's artifacts; ids of events of streams; chatcmpl-…, resp_…, msg_… and call_… of OpenAI's form; …/contexts/… of the fediverse", true, looked(exchange.FindTurn, turnsIn)},
	{"reply", "answers of an agent in A2A (messageId); items of bridges (bridge_…); addresses of posts of an agent (…/o/…) and of what is done with them", true, looked(exchange.FindReply, repliesIn)},
	{"delivery", "inbox deliveries list, log lines (delivery), bounce+…@ in the Return-Path of mails", true, looked(exchange.FindDelivery, deliveriesIn)},
	{"demand", "log lines (approval), inbox approvals list", true, looked(exchange.FindDemand, asWritten)},
	{"page of a demand", "addresses …/policy/… that askers get, and their state", true, looked(exchange.FindDemandState, statesIn)},
	{"approval code", "the words that approvers answer with", true, findApproval},
	{"tool request", "inbox tool-requests list, programs that execute tools (request_id)", true, looked(exchange.FindToolRequest, asWritten)},
	{"dispatch", "log lines (dispatch), timelines; other agents, as the id of the message that they got", true, looked(exchange.FindDispatch, asWritten)},
	{"audit record", "inbox audit", true, looked(exchange.FindAudit, asWritten)},
	{"job", "log lines (job), inbox jobs list; only as long as it is not done", true, findJob},
	{"request", "the header X-Request-Id of the answer to the request that brought the message, log lines (request)", true, looked(exchange.FindRequest, asWritten)},
	{"sent message", "Message-ID of a mail of an agent, messageId of A2A, address of a post; of an answer or of a question back", true, looked(exchange.FindSentMessage, messagesIn)},
	{"task run", "programs that run tasks (run_id)", false, looked(exchange.FindTaskRun, asWritten)},
	{"trace", "log lines and headers (traceparent), where traces are on", false, looked(exchange.FindTrace, tracesIn)},
	{"A2A task", "A2A (taskId)", false, looked(exchange.FindReference, asWritten)},
	{"webhook of an A2A task", "A2A, where the peer did not name it itself", false, looked(exchange.FindWatch, asWritten)},
	{"message", "Message-ID with or without <>, messageId of A2A, IRI of an activity or an object, address of a post as people see it, run_id of a chat", false, findMessage},
	{"session", "session of a chat, session_id of bridges and tasks, contextId of A2A", false, looked(exchange.FindConversation, asWritten)},
	{kindThread, "inbox show", false, findThread},
}

const kindThread = "thread"

// Index finds messages in the database. Those who have ids of turns only may use a nil one.
type Index struct {
	rows      *store.Store
	agents    func() []string
	approvals func(ctx context.Context, id string) (exchange.Approval, error)
}

// New makes the index of a database. Agents returns the names of all agents; approvals returns an approval by its id or its code.
func New(rows *store.Store, agents func() []string, approvals func(ctx context.Context, id string) (exchange.Approval, error)) *Index {
	return &Index{rows, agents, approvals}
}

// Find returns the turns to which an id leads, newest first and MaxOthers+1 at most, and the first kind of id that it is. fault.NotFound for none.
func (x *Index) Find(ctx context.Context, id string) (kind string, turns []string, err error) {
	id = strings.TrimSpace(id)
	if id == "" || len(id) > longestID {
		return "", nil, fault.New(fault.NotFound, "that is no id of a message")
	}

	if exchange.IsConversationID(id) {
		found, err := findThread(ctx, x, id)
		if err != nil || len(found) > 0 {
			return kindThread, found, err
		}
	}
	for _, one := range kinds {
		found, err := one.find(ctx, x, id)
		if err != nil {
			return "", nil, err
		}
		if kind == "" && len(found) > 0 {
			kind = one.Name
		}
		if turns = append(turns, found...); one.own && len(turns) > 0 {
			break
		}
	}
	if len(turns) == 0 {
		return "", nil, fault.Newf(fault.NotFound, "no message %s was accepted here", id)
	}

	slices.Sort(turns) // UUIDv7
	turns = slices.Compact(turns)
	slices.Reverse(turns)
	return kind, turns[:min(len(turns), maxFound)], nil
}

// looked finds turns by a kind of the store, under each text that an id may mean.
func looked(kind string, texts func(id string) []string) func(context.Context, *Index, string) ([]string, error) {
	return func(ctx context.Context, x *Index, id string) (turns []string, err error) {
		for _, text := range texts(id) {
			found, err := x.rows.FindTurns(ctx, kind, text, maxFound)
			if err != nil {
				return nil, err
			}
			turns = append(turns, found...)
		}
		return turns, nil
	}
}

func asWritten(id string) []string { return []string{id} }

// eventOfTurn is the id of an event of a stream, and that of an artifact: a turn and a number.
var eventOfTurn = regexp.MustCompile(`^([0-9a-f-]{36})\.[0-9]+$`)

// itemOfTurn is the id of a response of OpenAI's form, of its message, or of a call: the digits of a turn and more.
var itemOfTurn = regexp.MustCompile(`^(?:resp|msg|fc|call)_([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})(?:_[0-9a-z]+)?$`)

func turnsIn(id string) []string {
	texts := []string{id}
	if found := itemOfTurn.FindStringSubmatch(id); found != nil {
		texts = append(texts, strings.Join(found[1:], "-"))
	}
	if turn, is := strings.CutPrefix(id, "chatcmpl-"); is {
		texts = append(texts, turn)
	}
	if found := eventOfTurn.FindStringSubmatch(id); found != nil {
		texts = append(texts, found[1])
	}
	if turn, _ := activitypub.IDsIn(id); turn != "" {
		texts = append(texts, turn)
	}
	return texts
}

func repliesIn(id string) []string {
	texts := []string{strings.TrimPrefix(id, "bridge_")}
	if _, reply := activitypub.IDsIn(id); reply != "" {
		texts = append(texts, reply)
	}
	return texts
}

func deliveriesIn(id string) []string {
	texts := []string{id}
	if delivery, found := email.DeliveryIn(id); found {
		texts = append(texts, delivery)
	}
	return texts
}

// statesIn reads the state of a demand out of the address of its page.
func statesIn(id string) []string {
	_, state, is := strings.Cut(id, "/policy/")
	if !is {
		state = id
	}
	if end := strings.IndexAny(state, "/?#"); end >= 0 {
		state = state[:end]
	}
	return []string{policypart.HashState(state)}
}

// traceparent is a header of W3C Trace Context, section 3.2.
var traceparent = regexp.MustCompile(`^[0-9a-fA-F]{2}-([0-9a-fA-F]{32})-[0-9a-fA-F]{16}-[0-9a-fA-F]{2}$`)

func tracesIn(id string) []string {
	if found := traceparent.FindStringSubmatch(id); found != nil {
		return []string{found[1]}
	}
	return []string{id}
}

// messagesIn are the ids that a message may have in its protocol. Fields of mails have their ids in brackets.
func messagesIn(id string) []string {
	texts := []string{id}
	if inner, is := strings.CutPrefix(id, "<"); is {
		texts = append(texts, strings.TrimSuffix(inner, ">"))
	}
	return texts
}

func findMessage(ctx context.Context, x *Index, id string) ([]string, error) {
	activity, found, err := activitypub.ActivityOf(ctx, x.rows.State(), id)
	if err != nil {
		return nil, err
	}

	texts := append(messagesIn(id), exchange.RunMessageID(strings.TrimSuffix(id, "-message"))) // as JSON-RPC chat names the message of a run
	if found {
		texts = append(texts, activity)
	}
	return looked(exchange.FindMessage, func(string) []string { return texts })(ctx, x, id)
}

func findApproval(ctx context.Context, x *Index, id string) ([]string, error) {
	approval, err := x.approvals(ctx, id)
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	return []string{approval.TurnID}, err
}

// ownID is what ids of the server look like inside of a job's payload.
var ownID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`)

// findJob finds what a job is about by the ids in its payload.
func findJob(ctx context.Context, x *Index, id string) (turns []string, err error) {
	job, found, err := x.rows.Job(ctx, id)
	if err != nil || !found {
		return nil, err
	}

	return TurnsIn(ctx, x.rows, job.Payload)
}

// TurnsIn finds turns by the ids of this server in a text, such as the payload of a job.
func TurnsIn(ctx context.Context, rows *store.Store, text string) (turns []string, err error) {
	for _, own := range ownID.FindAllString(text, maxFound) {
		for _, kind := range []string{exchange.FindTurn, exchange.FindDelivery, exchange.FindReply, exchange.FindDemand, exchange.FindDispatch} {
			found, err := rows.FindTurns(ctx, kind, own, 1)
			if err != nil {
				return nil, err
			}
			turns = append(turns, found...)
		}
	}
	return turns, nil
}

func findThread(ctx context.Context, x *Index, id string) (turns []string, err error) {
	for _, agent := range x.agents() {
		found, err := x.rows.FindThread(ctx, agent, id, maxFound)
		if err != nil {
			return nil, err
		}
		turns = append(turns, found...)
	}
	return turns, nil
}
