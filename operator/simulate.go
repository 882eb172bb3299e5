package operator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"inbox/adapters/email"
	"inbox/engine/delivery"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/clock"
	"inbox/internal/config"
	"inbox/internal/fault"
	"inbox/internal/peer"
	"inbox/internal/simulation"
)

// Simulation is a message that someone would send to an agent.
type Simulation struct {
	Way      string          `json:"way"` // one of Ways
	Agent    string          `json:"agent"`
	From     string          `json:"from,omitempty"`    // name of the sender; empty = alice
	Subject  string          `json:"subject,omitempty"` // of a mail
	Text     string          `json:"text,omitempty"`
	Language string          `json:"language,omitempty"` // BCP 47, of mentions and mails
	Files    []SimulatedFile `json:"files,omitempty"`
	Fault    string          `json:"fault,omitempty"` // what is wrong with the message or its proof, one of Faults; empty = nothing

	// Follows is what an earlier message of the same Simulator came to, whose conversation goes on; nil = a new one.
	Follows *Simulated `json:"-"`
}

// SimulatedFile goes with a message.
type SimulatedFile struct {
	Name    string `json:"name"`
	MIME    string `json:"mime"`
	Content []byte `json:"content"`
}

// Simulated is what became of a message that was simulated.
type Simulated struct {
	Outcome  string             `json:"outcome"` // one of Outcomes
	Way      string             `json:"way"`
	From     string             `json:"from"` // the sender as the server should see it
	Said     string             `json:"said"` // by the server on the wire
	Note     string             `json:"note,omitempty"`
	Millis   int64              `json:"millis"`             // until the outcome was stored, as this program saw it
	Received *SimulatedReceived `json:"received,omitempty"` // the answer as it reached the sender; absent where it did not, or where the sender looks for it
	Message  *Shown             `json:"message,omitempty"`  // absent where nothing was stored

	sent *simulation.Sent
}

// SimulatedReceived is an answer that reached the sender.
type SimulatedReceived struct {
	ID       string   `json:"id"`
	Text     string   `json:"text"`
	Evidence []string `json:"evidence"` // what the sender checked about it
}

// Outcomes of a simulated message beside the states in which a turn ends or waits.
const (
	OutcomeIgnored = "ignored" // the server took it and stored nothing
	OutcomePending = "pending" // nothing has become of it within the time
)

// Outcomes lists all outcomes.
func Outcomes() []string {
	return []string{
		exchange.StateAnswered, exchange.StateHeld, exchange.StateRefused, exchange.StateSilent, exchange.StateWaiting, exchange.StateFailed,
		exchange.StateCancelled, OutcomeIgnored, OutcomePending,
	}
}

// Ways lists the ways by which a message can be simulated.
func Ways() []string { return simulation.Ways() }

// Faults lists what can be wrong with a message of a way; nil for a word that is none.
func Faults(way string) []string { return simulation.Faults(way) }

// PeerOptions say where simulated servers of the fediverse are reached; see simulation.Options.
type PeerOptions = simulation.Options

// Simulator sends messages to the running server as others would, over its own listeners (decision 0117). Each passes every stage that
// those of strangers pass and proves no more than the server can check; senders have names that no one else has. It is for one goroutine;
// Close ends its senders.
type Simulator struct {
	operator *Operator
	network  *simulation.Network
	tokens   map[string]simulatedToken // by sender and agent
}

type simulatedToken struct{ id, secret string }

// Simulator makes one. The server must run on this machine.
func (o *Operator) Simulator(options PeerOptions) *Simulator {
	c := o.options.Config
	client, _, _ := o.options.ownListener()
	client.Timeout, client.Transport = time.Minute, ownScheme{client.Transport, c.HTTP.TLS != "off"}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	server := simulation.Server{
		PublicURL: c.PublicURL, Domain: c.Domain, HTTP: client, SMTPAddr: o.options.mailListener(), Resolver: c.DNS.Resolver,
		Private: c.Federation.AllowPrivate, Captures: c.Mail.Mode == email.ModeCapture,
		MaxBody: int(c.HTTP.MaxBodyBytes), MaxTask: int(c.A2A.MaxRequestBytes), MaxMail: int(c.SMTP.MaxMessageBytes),
	}
	return &Simulator{operator: o, network: simulation.New(server, options), tokens: map[string]simulatedToken{}}
}

// ownScheme asks for addresses of the server by TLS or without it, as its own listener speaks, whatever stands before it.
type ownScheme struct {
	http.RoundTripper
	secure bool
}

// RoundTrip implements http.RoundTripper.
func (s ownScheme) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.URL.Scheme = "http"
	if s.secure {
		request.URL.Scheme = "https"
	}
	return s.RoundTripper.RoundTrip(request)
}

// Simulate sends one message and waits at most so long for what becomes of it; see Simulator.Send.
func (o *Operator) Simulate(ctx context.Context, message Simulation, options PeerOptions, wait time.Duration) (simulated Simulated, err error) {
	s := o.Simulator(options)
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	return s.Send(ctx, message, wait)
}

// Close ends the senders and deletes their tokens.
func (s *Simulator) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tryRequest)
	defer cancel()
	errs := []error{s.network.Close()}
	for _, token := range s.tokens {
		errs = append(errs, s.operator.Tokens.remove(ctx, token.id))
	}
	clear(s.tokens)
	return errors.Join(errs...)
}

// Send sends a message and waits at most so long until it ended or waits for someone. What the server says against it is an outcome and no
// error. fault.Malformed is a message that cannot be sent, fault.NotFound an agent that is not there, fault.Conflict a server to which
// nothing of the kind may be sent, fault.Unavailable one that does not listen.
func (s *Simulator) Send(ctx context.Context, message Simulation, wait time.Duration) (Simulated, error) {
	entry, err := configuredAgent(s.operator.options.Config, message.Agent)
	if err != nil {
		return Simulated{}, err
	}

	wire := simulation.Message{
		Way: message.Way, Agent: entry.Name, From: message.From, Subject: message.Subject, Text: message.Text, Language: message.Language,
		Fault: message.Fault,
	}
	if wire.From == "" {
		wire.From = "alice"
	}
	for _, file := range message.Files {
		wire.Files = append(wire.Files, peer.File(file))
	}
	if message.Follows != nil {
		wire.Continue = message.Follows.sent
	}
	if message.Way == simulation.Task || message.Way == simulation.Chat {
		if wire.Token, err = s.token(ctx, wire.From, entry, message.Fault); err != nil {
			return Simulated{}, err
		}
	}

	began := time.Now()
	sent, err := s.network.Send(ctx, wire)
	if err != nil {
		return Simulated{}, err
	}

	simulated := Simulated{Way: message.Way, From: sent.From, Said: sent.Said, Note: sent.Note, Outcome: exchange.StateRefused, sent: sent}
	if sent.Taken {
		err = s.follow(ctx, &simulated, began.Add(wait))
	}
	simulated.Millis = time.Since(began).Milliseconds()
	return simulated, err
}

// token returns the token of a sender, which ends with the simulator.
func (s *Simulator) token(ctx context.Context, from string, agent *config.Agent, wrong string) (string, error) {
	name := simulation.TokenPrefix + from
	if !identity.ValidAgentName(name) {
		return "", fault.InField("from", "is too long for a caller, or no name")
	}
	if wrong == peer.FaultRevokedToken {
		secret, token, err := s.operator.Tokens.Create(ctx, name, agent.Name)
		if err != nil {
			return "", err
		}
		s.tokens[token.ID] = simulatedToken{secret: secret, id: token.ID} // under its id: no sender gets it again
		return secret, s.operator.Tokens.Revoke(ctx, token.ID)
	}

	key := name + " " + agent.Name
	if token, made := s.tokens[key]; made {
		return token.secret, nil
	}
	secret, token, err := s.operator.Tokens.Create(ctx, name, agent.Name)
	if err == nil {
		s.tokens[key] = simulatedToken{token.ID, secret}
	}
	return secret, err
}

const (
	// storedWithin is how long a message that the server took may not be found yet.
	storedWithin = 2 * time.Second
	// deliveredWithin is how long an answer may be under way to a sender who waits for it.
	deliveredWithin = 10 * time.Second
)

// follow waits for what becomes of a message that the server took.
func (s *Simulator) follow(ctx context.Context, simulated *Simulated, end time.Time) error {
	stored := time.Now().Add(storedWithin)
	for {
		shown, err := s.operator.Messages.Show(ctx, simulated.sent.ID)
		switch {
		case fault.Is(err, fault.NotFound) && time.Now().Before(stored):
		case fault.Is(err, fault.NotFound):
			simulated.Outcome = OutcomeIgnored
			return nil
		case err != nil:
			return err
		case exchange.Settled(shown.Turn.State):
			simulated.Outcome, simulated.Message = shown.Turn.State, &shown
			return s.receive(ctx, simulated)
		case time.Now().After(end):
			simulated.Outcome, simulated.Message = OutcomePending, &shown
			return nil
		}
		if err := clock.Sleep(ctx, tryLook); err != nil {
			return err
		}
	}
}

// receive waits until no delivery of the answer is under way, and notes what came to the sender.
func (s *Simulator) receive(ctx context.Context, simulated *Simulated) error {
	for end := time.Now().Add(deliveredWithin); underWay(simulated.Message.Deliveries) && time.Now().Before(end); {
		if err := clock.Sleep(ctx, tryLook); err != nil {
			return err
		}
		shown, err := s.operator.Messages.Show(ctx, simulated.Message.Turn.ID)
		if err != nil {
			return err
		}
		simulated.Message = &shown
	}

	got, came, err := simulated.sent.Received()
	switch {
	case err != nil:
		simulated.Note = fmt.Sprintf("the answer reached the sender and does not verify: %v", err)
	case came:
		simulated.Received = &SimulatedReceived{ID: got.ID, Text: got.Text, Evidence: got.Evidence}
	}
	return nil
}

func underWay(deliveries []delivery.Record) bool {
	for i := range deliveries {
		if state := deliveries[i].State; state == delivery.StatePending || state == delivery.StateSending {
			return true
		}
	}
	return false
}
