package agents

import (
	"time"

	"inbox/history"
	"inbox/identity"
	"inbox/internal/fault"
)

// Values of Settings.Unverified: what happens to a message whose sender proved nothing.
const (
	UnverifiedAnswer = "answer" // it is answered like any other; the evidence stays honest
	UnverifiedHold   = "hold"   // it is stored and waits for the operator (default)
	UnverifiedRefuse = "refuse" // it is not accepted
)

// DefaultTimeLimit bounds one run of an agent that sets no limit of its own.
const DefaultTimeLimit = 5 * time.Minute

// Settings are the operator's choices for one agent. The zero value is the careful default.
type Settings struct {
	Unverified   string         // see the Unverified constants; empty = hold
	TimeLimit    time.Duration  // of one run; zero = DefaultTimeLimit
	AnswerAgents bool           // other bots are answered too
	History      history.Policy // how much of the thread the agent gets; zero = history.DefaultPolicy
	HistoryScope string         // see the History constants; empty = thread

	Access  identity.AccessPolicy // who may use the agent for what; zero = public
	MaxHops int                   // ceiling of agents calling agents; zero = DefaultMaxHops
}

// Values of Settings.HistoryScope.
const (
	HistoryThread = "thread" // the agent sees the conversation that it is in
	HistoryPerson = "person" // it also sees the other conversations that the same person had with it
)

// DefaultMaxHops bounds chains of agents where the operator set nothing (message contract, section 7).
const DefaultMaxHops = 4

// WithDefaults gives a copy in which every empty field has its default.
func (s Settings) WithDefaults() Settings {
	if s.Unverified == "" {
		s.Unverified = UnverifiedHold
	}
	if s.TimeLimit == 0 {
		s.TimeLimit = DefaultTimeLimit
	}
	if s.HistoryScope == "" {
		s.HistoryScope = HistoryThread
	}
	if s.Access.Access == "" {
		s.Access.Access = identity.AccessPublic
	}
	if s.MaxHops == 0 {
		s.MaxHops = DefaultMaxHops
	}
	if s.History == (history.Policy{}) {
		s.History = history.DefaultPolicy()
	}
	return s
}

// Validate says which setting is not one of the allowed values. It expects defaults to be filled in.
func (s Settings) Validate() error {
	switch s.Unverified {
	case UnverifiedAnswer, UnverifiedHold, UnverifiedRefuse:
	default:
		return fault.InField("unverified", `must be "answer", "hold" or "refuse"`)
	}
	if s.HistoryScope != HistoryThread && s.HistoryScope != HistoryPerson {
		return fault.InField("history.scope", `must be "thread" or "person"`)
	}
	if s.MaxHops < 1 {
		return fault.InField("max_hops", "must be at least 1")
	}
	if s.TimeLimit < 0 {
		return fault.InField("time_limit", "must not be negative")
	}
	return nil
}
