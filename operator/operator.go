// Package operator is what an operator may look at and do, once: the commands, the operator API and programs that embed
// the server call the same methods, grouped by topic. It works on the database of a running or of a stopped server: what a
// command changes, running servers notice by their queue and their lists. It speaks no protocol and prints nothing.
package operator

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	"inbox/adapters/activitypub"
	"inbox/adapters/email"
	"inbox/engine/delivery"
	"inbox/engine/moderation"
	"inbox/engine/notice"
	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/internal/config"
	"inbox/internal/queue"
	"inbox/internal/safehttp"
	"inbox/normalized"
	"inbox/operator/doctor"
	"inbox/operator/held"
	"inbox/operator/lookup"
	"inbox/operator/takeover"
)

// CommandLine is who did something, for the record, where the operator used a command.
const CommandLine = "operator:command line"

// ByCommand returns the context of a command that works on the database itself: its first change is on the audit trail in the same
// transaction, as "operator:command NAME" of the user of the machine. Objects are what the command acts on: ids, addresses, names of agents.
// They are in the detail, from which an erasure takes people.
func ByCommand(ctx context.Context, command, user string, objects ...string) context.Context {
	words := strings.Fields(command)
	return store.WithAct(ctx, exchange.AuditRecord{
		Code: exchange.AuditOperator + "command." + strings.Join(words[min(1, len(words)):], "."), Principal: exchange.OperatorPrincipal("command " + user),
		Detail: detailOf(command, objects),
	})
}

// detailOf names a command and what it acts on, as far as there is room. No object is cut: an erasure would not find a part of a name.
func detailOf(command string, objects []string) string {
	detail := command
	for _, object := range objects {
		if len(detail)+len(" ")+len(object) > maxDetail-len(" …") {
			return detail + " …"
		}
		detail += " " + object
	}
	return detail
}

// maxDetail bounds the detail of a record, in bytes: a command may name thousands of messages.
const maxDetail = 500

// Operator is what an operator may do, by topic.
type Operator struct {
	Messages      Messages
	Arrivals      Arrivals
	Agents        Agents
	Held          *held.Service
	Approvals     Approvals
	HeldFiles     HeldFiles
	Demands       Demands
	Tools         Tools
	Results       Results
	Answers       Answers
	Takeovers     *takeover.Service
	Deliveries    Deliveries
	Waiting       Waiting
	Jobs          Jobs
	Breakers      Breakers
	Suppressions  Suppressions
	Mail          Mail
	Notices       Notices
	Lists         Lists
	Pauses        Pauses
	Follows       Follows
	People        People
	Audit         Audit
	Tokens        Tokens
	Sessions      Sessions
	Keys          Keys
	Conversations Conversations
	Connectors    Connectors
	Erasures      Erasures
	Exports       Exports
	Persons       Persons
	Usage         Usage
	Statistics    Statistics
	Doctor        *doctor.Doctor
	Examinations  *doctor.Examinations
	RecordLooks   *doctor.RecordLooks
	Nodes         Nodes

	Node Node // nil where only the database is at hand

	options Options
}

// Options are what an operator works with. All but Further, Check, Current, Node, Withdraw and Listening are required.
type Options struct {
	Config *config.Config
	// Further are the other domains of the server, for those who act at the domain at the top.
	Further []Domain
	// Current returns the configuration as it is in force, where a running server may have read it again; nil = Config.
	Current func() *config.Config
	Store   *store.Store

	Turns      *pipeline.Service
	Approvals  Approvals
	Demands    DemandEndings
	Deliveries *delivery.Service
	Notices    *notice.Service
	Agents     func() []string // names of all agents
	Shown      exchange.Tokens // finds the tokens that callers show, and notes it; nil = Store

	Files func() (exchange.Files, error) // opens the blob store, which few topics need

	Vault         func(ctx context.Context) (Vault, error) // opens the documents with private keys, which few topics need
	SecretKeyFile string                                   // with the key that seals them
	Issued        Issued                                   // the certificates that this server has from an authority; nil = none

	// Later makes the job of an activity that leaves beside the answers.
	Later func(activitypub.Later) queue.NewJob
	Node  Node // the running server that is asked; nil = none is at hand
	// Check reports what a start would refuse of settings; nil = only what reading them refuses.
	Check func(ctx context.Context, settings *config.Config) error
	// Withdraw cancels what was accepted from senders who are blocked now. Nil = a running server does it by itself.
	Withdraw func(ctx context.Context) (cancelled int, err error)
	// WouldWithdraw counts what these entries would cancel, if they were on their lists.
	WouldWithdraw func(ctx context.Context, entries ...exchange.ListEntry) (count int, err error)
	OwnHosts      map[string]bool // names of this server, which are not blocked
	// Listening returns host:port of the listeners for HTTP and for mail of a running server; nil = those of Config.
	Listening func() (web, mail string)
	// Listed says what the operator's lists say about a sender, as a running server has them; nil = they are read from the Store.
	Listed func(sender normalized.Sender) moderation.Verdict

	UserAgent string                                            // of the doctor's requests
	Policies  func(client *safehttp.Client) email.PolicyFetcher // MTA-STS policies, for the doctor
}

// New makes an operator.
func New(o Options) *Operator {
	if o.Current == nil {
		o.Current = func() *config.Config { return o.Config }
	}
	if o.Shown == nil {
		o.Shown = o.Store
	}
	index := lookup.New(o.Store, o.Agents, o.Approvals.Approval)
	erasures := Erasures{o.Store, o.Deliveries, o.Turns.Cancel, o.Vault, o.Files, o.Config.Domain, o.Current}
	var made *Operator
	listed := func(ctx context.Context, turnID string) (moderation.Verdict, error) {
		turn, err := o.Store.Turn(ctx, turnID)
		if err != nil {
			return moderation.Verdict{}, err
		}
		return made.stored(ctx, o.Current(), turn.Message.Sender)
	}
	made = &Operator{
		Messages:      Messages{Retries: o.Turns, Timelines: o.Store, Finder: index, Rows: o.Store, Originals: o.Store, Files: o.Files, index: index},
		Arrivals:      Arrivals{o.Store, index, o.Current},
		Agents:        Agents{o.Current, Pauses{o.Store, o.Agents}},
		Held:          held.New(o.Turns, o.Store, index, listed),
		Approvals:     foundApprovals{o.Approvals, index},
		HeldFiles:     HeldFiles{foundApprovals{o.Approvals, index}, o.Files},
		Demands:       Demands{o.Demands, o.Store, index},
		Tools:         Tools{o.Store, o.Turns, index},
		Results:       Results{o.Store, o.Files, index},
		Takeovers:     takeover.New(o.Store, o.Turns, index),
		Answers:       Answers{o.Store, o.Deliveries, o.Later, index},
		Deliveries:    Deliveries{o.Store, o.Deliveries, index},
		Waiting:       Waiting{o.Store, o.Approvals},
		Jobs:          Jobs{o.Store},
		Breakers:      Breakers{o.Store, o.Deliveries},
		Suppressions:  Suppressions{o.Store, o.Vault},
		Mail:          Mail{o.Store, o.Files, o.Config},
		Notices:       Notices{o.Store, o.Notices},
		Lists:         Lists{store: o.Store, ownHosts: o.OwnHosts, wouldWithdraw: o.WouldWithdraw, withdraw: o.Withdraw},
		Pauses:        Pauses{o.Store, o.Agents},
		Follows:       Follows{o.Current, o.Store, o.Later},
		People:        People{o.Store, o.Store},
		Audit:         Audit{o.Store},
		Tokens:        Tokens{Rows: o.Store, Agents: o.Agents, Shown: o.Shown},
		Sessions:      Sessions{o.Store, o.Current},
		Keys:          Keys{o.Config, o.Vault},
		Conversations: Conversations{o.Current, o.Store},
		Connectors:    Connectors{o.Current},
		Erasures:      erasures,
		Exports:       Exports{o.Store, erasures, o.Files},
		Usage:         Usage{o.Store, o.Files, o.Config.DataDir},
		Statistics:    Statistics{o.Store},
		Nodes:         Nodes{o.Store},
		Node:          o.Node,
		options:       o,
	}
	here := Domain{o.Config.Domain, func(ctx context.Context, work func(context.Context, *Operator) error) error { return work(ctx, made) }}
	made.Persons = Persons{Domains: append([]Domain{here}, o.Further...), LeftOut: o.Config.OrphanedDomains}
	made.Doctor = made.newDoctor()
	made.Examinations, made.RecordLooks = &doctor.Examinations{Doctor: made.Doctor}, &doctor.RecordLooks{Doctor: made.Doctor}
	return made
}

func (o *Operator) newDoctor() *doctor.Doctor {
	return &doctor.Doctor{
		Config: o.options.Config, Current: o.options.Current, Store: o.options.Store, Files: o.options.Files,
		Keys: func(ctx context.Context) (ids []string, err error) {
			keys, err := o.Keys.List(ctx)
			for _, key := range keys {
				ids = append(ids, key.ID)
			}
			return ids, err
		},
		Vault:         func(ctx context.Context) (email.KeyState, error) { return o.options.Vault(ctx) },
		SecretKeyFile: o.options.SecretKeyFile, TokenFile: filepath.Join(o.options.Config.DataDir, AdminTokenFile),
		Running: o.options.operatorListener, UserAgent: o.options.UserAgent, Policies: o.options.Policies,
	}
}

// Close closes the database.
func (o *Operator) Close() error { return o.options.Store.Close() }

// Settings returns the settings that are in force, with all defaults, as a file would say them. Secrets and passwords are hidden.
func (o *Operator) Settings() (string, error) {
	document, err := o.options.Current().Document(true)
	return string(document), err
}

// Approvals are the decisions that are not the asker's to take. An approval is named by its id or its code; by
// is who decides, for the record. Errors are fault.NotFound, fault.Gone (expired), fault.Conflict (decided before) and
// fault.Malformed. A server that runs tells the asker at once, one that is stopped at its next start.
type Approvals interface {
	// Approvals lists what waits for a decision, newest first; with filter.All also what was decided.
	Approvals(ctx context.Context, filter exchange.ApprovalFilter) ([]exchange.Approval, error)
	Approval(ctx context.Context, id string) (exchange.Approval, error)
	// Approvable returns what is to be read before it is approved, with the error of Approve if its id approves nothing.
	Approvable(ctx context.Context, id, by string) (exchange.Approval, error)
	// Approve lets the agent go on, or the answer that was held back pass. Shown is the digest of what was read. fault.Conflict when it is
	// another one now.
	Approve(ctx context.Context, id, shown, by string) (exchange.Approval, error)
	// Deny ends the turn; a reason of at most 500 bytes is told to the asker.
	Deny(ctx context.Context, id, by, reason string) (exchange.Approval, error)
	// EditReply replaces the text of an answer that is held back. fault.Malformed for an empty text or an approval of an
	// action.
	EditReply(ctx context.Context, id, by, text string) (exchange.Approval, error)
}

// listed makes an empty list of none, so that JSON says [] and not null.
func listed[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// now is the time as rows keep it.
func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }
