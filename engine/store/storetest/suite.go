package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"inbox/engine/delivery"
	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/normalized"
)

// Records is what adapters and operators read and write beside the pipeline's and delivery's views.
type Records interface {
	Said(ctx context.Context, agent, threadID string) ([]string, error)
	exchange.Threads
	exchange.Conversations
	PartiesOf(ctx context.Context, turnID string) ([]string, error)
	Reply(ctx context.Context, id string) (exchange.Reply, string, error)
	Replies(ctx context.Context, agent, before string, limit int) ([]exchange.Reply, error)
	CountReplies(ctx context.Context, agent string) (int64, error)
	LocalPosts(ctx context.Context) (int64, error)
	Turns(ctx context.Context, filter exchange.TurnFilter) ([]exchange.TurnRecord, error)
	CountTurns(ctx context.Context, filter exchange.TurnFilter) (int64, error)
	Deliveries(ctx context.Context, filter delivery.Filter) ([]delivery.Record, error)
	Original(ctx context.Context, digest string) (pipeline.Original, error)
	CreateToken(ctx context.Context, token exchange.Token) error
	Tokens(ctx context.Context) ([]exchange.Token, error)
	RevokeToken(ctx context.Context, id string) error
	TokenByHash(ctx context.Context, hash string) (exchange.Token, bool, error)
	UseTokens(ctx context.Context, used map[string]time.Time) error
	CreateConsoleSession(ctx context.Context, session exchange.ConsoleSession, most int) error
	ConsoleSession(ctx context.Context, hash string) (exchange.ConsoleSession, bool, error)
	ConsoleSessions(ctx context.Context, filter exchange.ConsoleSessionFilter) ([]exchange.ConsoleSession, error)
	SeeConsoleSession(ctx context.Context, id string, at time.Time) error
	ProveConsoleSession(ctx context.Context, id string, at time.Time, members []string) error
	EndConsoleSession(ctx context.Context, id string, owner exchange.SessionOwner) error
	Ping(ctx context.Context) error
}

// Documents is the adapters' private state.
type Documents interface {
	Get(ctx context.Context, namespace, key string) (value []byte, found bool, err error)
	Put(ctx context.Context, namespace, key string, value []byte, expires time.Time) error
	PutIfAbsent(ctx context.Context, namespace, key string, value []byte, expires time.Time) (current []byte, inserted bool, err error)
	Swap(ctx context.Context, namespace, key string, old, value []byte, expires time.Time) (bool, error)
	Delete(ctx context.Context, namespace, key string) error
	Several(ctx context.Context, namespace string, keys []string) (map[string][]byte, error)
	List(ctx context.Context, namespace, after string, limit int) (keys []string, values [][]byte, err error)
	Count(ctx context.Context, namespace string) (int64, error)
}

// Bench is an empty store under test.
type Bench struct {
	Pipeline     pipeline.Store
	Delivery     delivery.Store
	Queue        queue.Store
	Records      Records
	Watched      Watches
	Documents    Documents
	Trust        Trust
	Moderation   Moderation
	Suppressions Suppressions
	Bridge       BridgeQueue
	Sessions     Sessions
	Uploads      Uploads
	InTx         func(ctx context.Context, work func(TrustTx) error) error
	FreeLeases   func(ctx context.Context) error
	Notified     func() []string // "channel payload" of every notification so far
}

// Run runs the suite; open returns a new empty store each time.
func Run(t *testing.T, open func(t *testing.T) Bench) {
	suites := map[string]map[string]func(*testing.T, *probe){
		"transactions": transactionCases, "turns": turnCases, "threads": threadCases, "sent": sentCases, "lists": listCases, "replies": replyCases, "acknowledgements": ackCases,
		"deliveries": deliveryCases, "documents": documentCases, "tokens": tokenCases,
		"demands": demandCases, "audit": auditCases, "people": peopleCases, "dispatches": dispatchCases, "resumed turns": resumeCases,
		"revisions": revisionCases, "conditions": conditionCases, "moderation": moderationCases, "watches": watchCases,
		"suppressions": suppressionCases, "sessions": sessionCases, "bridges": bridgeCases, "leased": leasedCases, "uploads": uploadCases,
		"tool requests": toolCases,
	}
	for suite, cases := range suites {
		for name, test := range cases {
			t.Run(suite+"/"+name, func(t *testing.T) {
				t.Parallel()
				test(t, &probe{T: t, Bench: open(t), now: time.Now().UTC().Truncate(time.Microsecond)})
			})
		}
	}
}

// probe is a store with a clock and short ways to say usual things.
type probe struct {
	*testing.T
	Bench
	now time.Time
}

func newID() string { return uuid.Must(uuid.NewV7()).String() }

// message makes a turn whose message has the id.
func (p *probe) message(id string) exchange.TurnRecord {
	p.now = p.now.Add(time.Millisecond)
	return exchange.TurnRecord{
		ID: newID(), Agent: "echo", Principal: alice, ThreadID: "thread 1", State: exchange.StateAccepted,
		AcceptedAt: p.now, UpdatedAt: p.now, Channel: normalized.ViaEmail, Route: json.RawMessage(`{"inbox":"https://peer.example/inbox"}`),
		Message: normalized.Message{
			ID: id, ThreadID: "thread 1", Recipient: "@echo@inbox.example", ReceivedVia: normalized.ViaEmail,
			ReceivedAt: identity.At(p.now), Raw: normalized.Raw{Ref: "sha256:00", MediaType: "message/rfc822"},
			Sender:                normalized.Sender{Address: identity.Stated("@alice@peer.example"), AuthMethod: normalized.AuthNone},
			Parts:                 []normalized.Part{normalized.Text("hello " + id)},
			RecipientCapabilities: normalized.RecipientCapabilities{MentionRelay: normalized.MentionRelay{Kind: normalized.RelayNone}},
		},
	}
}

// alice is who sends what message makes.
const alice = "peer.example alice"

// continued finds a message that alice may continue.
func (p *probe) continued(agent, nativeID string) (exchange.ThreadEntry, bool, error) {
	return p.Records.ContinuedMessage(p.Context(), agent, normalized.ViaEmail, alice, []string{nativeID})
}

func (p *probe) tx(work func(pipeline.Tx) error) {
	p.Helper()
	if err := p.Pipeline.InTx(p.Context(), work); err != nil {
		p.Fatalf("transaction: %v", err)
	}
}

// insert stores turns and fails when one is a duplicate.
func (p *probe) insert(turns ...exchange.TurnRecord) {
	p.Helper()
	for _, turn := range turns {
		if _, inserted := p.offer(turn); !inserted {
			p.Fatalf("turn %s was taken for a duplicate", turn.ID)
		}
	}
}

// offer stores a turn unless it is a duplicate.
func (p *probe) offer(turn exchange.TurnRecord) (stored exchange.TurnRecord, inserted bool) {
	p.Helper()
	p.tx(func(tx pipeline.Tx) (err error) {
		stored, inserted, err = tx.InsertTurn(p.Context(), turn, pipeline.Original{})
		return err
	})
	return stored, inserted
}

func (p *probe) turn(id string) exchange.TurnRecord {
	p.Helper()
	turn, err := p.Pipeline.Turn(p.Context(), id)
	if err != nil {
		p.Fatalf("turn %s: %v", id, err)
	}
	return turn
}

// timeline returns "seq kind body" of every row.
func (p *probe) timeline(turnID string) []string {
	p.Helper()
	events, err := p.Pipeline.Events(p.Context(), turnID, 0, 10_000)
	if err != nil {
		p.Fatalf("events: %v", err)
	}

	rows := make([]string, 0, len(events))
	for _, event := range events {
		if event.TurnID != turnID || event.At.IsZero() {
			p.Errorf("event %+v", event)
		}
		rows = append(rows, fmt.Sprintf("%d %s %s", event.Seq, event.Kind, event.Body))
	}

	return rows
}

// answer stores a reply to a turn.
func (p *probe) answer(turn exchange.TurnRecord, nativeID string) exchange.Reply {
	p.Helper()
	reply := p.reply(turn)
	p.tx(func(tx pipeline.Tx) error { return tx.InsertReply(p.Context(), reply, nativeID) })
	return reply
}

func (p *probe) reply(turn exchange.TurnRecord) exchange.Reply {
	p.now = p.now.Add(time.Millisecond)
	return exchange.Reply{
		ID: newID(), TurnID: turn.ID, Agent: turn.Agent, Message: turn.Message, Channel: turn.Channel, Route: turn.Route, CreatedAt: p.now,
		Posts: 1, Open: true,
		Response: normalized.Response{InReplyTo: turn.Message.ID, Parts: []normalized.Part{normalized.Text("re: " + turn.Message.ID)}},
	}
}

// same compares through JSON, which sees what a reader of the store can see.
func (p *probe) same(want, got any) {
	p.Helper()
	if diff := cmp.Diff(text(p, want), text(p, got)); diff != "" {
		p.Errorf("(-want +got):\n%s", diff)
	}
}

func text(p *probe, value any) string {
	p.Helper()
	encoded, err := json.MarshalIndent(value, "", " ")
	if err != nil {
		p.Fatalf("encode %T: %v", value, err)
	}
	return string(encoded)
}

func (p *probe) missing(err error) {
	p.Helper()
	if !fault.Is(err, fault.NotFound) {
		p.Errorf("got %v, want fault.NotFound", err)
	}
}

func (p *probe) ok(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}
