package operator

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"inbox/adapters/activitypub"
	"inbox/adapters/email"
	"inbox/engine/delivery"
	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/policypart"
)

// IDKind is a kind of id by which Messages.Show finds messages.
type IDKind struct {
	Name string
	From string // where one meets it, for people

	own bool // the server makes the ids: no sender can have chosen one

	// find returns the turns, newest first; none are an empty list.
	find func(ctx context.Context, m ids, id string) ([]string, error)
}

// MaxOthers bounds how many turns beside the newest one are named.
const MaxOthers = 20

const maxFound = MaxOthers + 1

// longestID is more than any id has that was ever shown: an address of ActivityPub may have 2 KiB.
const longestID = 4 << 10

// Kinds are all kinds of ids by which a message is shown, in the order in which they are tried. Ids of the server's own making come
// first, and nothing else is tried where one of them fits: a sender may call something of their own by the id of another person's
// message. Ids that peers choose may be those of several. Each costs a look into one index.
func Kinds() []IDKind { return slices.Clone(idKinds) }

var idKinds = []IDKind{
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

// Finder finds messages by their ids, and what belongs to them.
type Finder interface {
	// Find returns the turns to which an id leads, newest first, and the first kind of id that it is; fault.NotFound for none.
	Find(ctx context.Context, id string) (kind string, turns []string, err error)

	Deliveries(ctx context.Context, filter delivery.Filter) ([]delivery.Record, error)
	ToolRequests(ctx context.Context, filter exchange.ToolRequestFilter) ([]exchange.ToolRequest, error)
	// Takeover returns the newest takeover of a conversation, which may have ended.
	Takeover(ctx context.Context, agent, threadID string) (exchange.Takeover, bool, error)
	WaitingForOperator(ctx context.Context, agent, threadID string, limit int) ([]string, error)
	// TurnJob returns the job of a turn; found is false when it has none.
	TurnJob(ctx context.Context, turn exchange.TurnRecord) (job store.JobRecord, found bool, err error)
	// BackEnds lists the newest outage of each agent that had one.
	BackEnds(ctx context.Context) ([]pipeline.BackEnd, error)
	// Draft returns what the agent said while an operator had the conversation; fault.NotFound when it said nothing.
	Draft(ctx context.Context, turnID string) (exchange.Reply, error)
}

// ids finds messages in the database.
type ids struct {
	rows      *store.Store
	agents    func() []string
	approvals func(ctx context.Context, id string) (exchange.Approval, error)
}

// Find returns the turns to which an id leads, newest first, and the first kind of id that it is.
func (m ids) Find(ctx context.Context, id string) (kind string, turns []string, err error) {
	id = strings.TrimSpace(id)
	if id == "" || len(id) > longestID {
		return "", nil, fault.New(fault.NotFound, "that is no id of a message")
	}

	if exchange.IsConversationID(id) {
		found, err := findThread(ctx, m, id)
		if err != nil || len(found) > 0 {
			return kindThread, found, err
		}
	}
	for _, one := range idKinds {
		found, err := one.find(ctx, m, id)
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

// Deliveries implements Finder.
func (m ids) Deliveries(ctx context.Context, filter delivery.Filter) ([]delivery.Record, error) {
	return m.rows.Deliveries(ctx, filter)
}

// ToolRequests implements Finder.
func (m ids) ToolRequests(ctx context.Context, filter exchange.ToolRequestFilter) ([]exchange.ToolRequest, error) {
	return m.rows.ToolRequests(ctx, filter)
}

// TurnJob implements Finder.
func (m ids) TurnJob(ctx context.Context, turn exchange.TurnRecord) (store.JobRecord, bool, error) {
	return m.rows.TurnJob(ctx, turn)
}

// BackEnds implements Finder.
func (m ids) BackEnds(ctx context.Context) ([]pipeline.BackEnd, error) { return m.rows.BackEnds(ctx) }

// Draft implements Finder.
func (m ids) Draft(ctx context.Context, turnID string) (exchange.Reply, error) {
	return m.rows.Draft(ctx, turnID)
}

// Takeover implements Finder.
func (m ids) Takeover(ctx context.Context, agent, threadID string) (exchange.Takeover, bool, error) {
	return m.rows.Takeover(ctx, agent, threadID)
}

// WaitingForOperator implements Finder.
func (m ids) WaitingForOperator(ctx context.Context, agent, threadID string, limit int) ([]string, error) {
	return m.rows.WaitingForOperator(ctx, agent, threadID, limit)
}

// looked finds turns by a kind of the store, under each text that an id may mean.
func looked(kind string, texts func(id string) []string) func(context.Context, ids, string) ([]string, error) {
	return func(ctx context.Context, m ids, id string) (turns []string, err error) {
		for _, text := range texts(id) {
			found, err := m.rows.FindTurns(ctx, kind, text, maxFound)
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

func findMessage(ctx context.Context, m ids, id string) ([]string, error) {
	activity, found, err := activitypub.ActivityOf(ctx, m.rows.State(), id)
	if err != nil {
		return nil, err
	}

	texts := append(messagesIn(id), exchange.RunMessageID(strings.TrimSuffix(id, "-message"))) // as JSON-RPC chat names the message of a run
	if found {
		texts = append(texts, activity)
	}
	return looked(exchange.FindMessage, func(string) []string { return texts })(ctx, m, id)
}

func findApproval(ctx context.Context, m ids, id string) ([]string, error) {
	approval, err := m.approvals(ctx, id)
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	return []string{approval.TurnID}, err
}

// ownID is what ids of the server look like inside of a job's payload.
var ownID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`)

// findJob finds what a job is about by the ids in its payload.
func findJob(ctx context.Context, m ids, id string) (turns []string, err error) {
	job, found, err := m.rows.Job(ctx, id)
	if err != nil || !found {
		return nil, err
	}

	return findTurnsIn(ctx, m.rows, job.Payload)
}

// findTurnsIn finds turns by the ids of the server that stand in a text.
func findTurnsIn(ctx context.Context, rows *store.Store, text string) (turns []string, err error) {
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

func findThread(ctx context.Context, m ids, id string) (turns []string, err error) {
	for _, agent := range m.agents() {
		found, err := m.rows.FindThread(ctx, agent, id, maxFound)
		if err != nil {
			return nil, err
		}
		turns = append(turns, found...)
	}
	return turns, nil
}
