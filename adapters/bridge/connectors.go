package bridge

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"inbox/adapters/bridge/contract"
	"inbox/agents/runtime/value"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/internal/webhooksignature"
	"inbox/normalized"
)

// connectors takes messages of other messengers, and shows what became of them.
type connectors struct {
	*site
	sessions *sessions
	runs     *runs
	messages *messages
}

// Connector is a program that relays another messenger, as the operator configured it.
type Connector struct {
	Name        string   // in the address; a slug
	Secrets     []string // that sign its messages and our callbacks, the newest first; none = only signed evidence is taken
	Issuer      string   // who vouches for its people, as in the list of trusted issuers; empty = no one
	Method      string   // by which it knows them
	Agents      []string // that it may reach, the first by default
	CallbackURL string   // where answers go; empty = they do not go there
	Client      string   // of the bridge in whose queue answers wait where there is no callback; empty = the caller asks again
	Web         exchange.WebClient

	// RequireTimestamp refuses signatures without TimestampHeader, which hold for ever.
	RequireTimestamp bool
}

// DefaultConnectorMethod is how a connector knows its people where nothing else is configured.
const DefaultConnectorMethod = "urn:mentionable:auth:platform-mention:v0.1"

// connector returns the connector of the name as it is configured now; nil = there is none.
func (s *site) connector(name string) *Connector {
	list := s.options.Connectors()
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}

// Headers in which products sign their webhooks in our form.
var signatureHeaders = []string{SignatureHeader, "X-Hub-Signature-256", "X-Signature-256"}

// connectorEdge counts and answers errors; whether the connector is known or the signature is wrong is one answer.
func (c *connectors) connectorEdge(handle func(http.ResponseWriter, *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { finish(w, "connector", handle(w, r)) })
}

func notVouched() error {
	return fault.New(fault.Unauthenticated, "a signature of a known connector is needed: "+SignatureHeader+
		": sha256=…, with "+TimestampHeader+" over the time, a dot and the body, at most five minutes old; or signed evidence")
}

// connectorMessage takes one message of another messenger (agent runtime contract, section 6.2).
func (c *connectors) connectorMessage(w http.ResponseWriter, r *http.Request) error {
	body, err := readBody(r, maxBodyBytes)
	if err != nil {
		return err
	}

	connector := c.connector(channelSlug(httpserver.Param(r, "connector")))
	signed := connector != nil && connector.verifies(r, body, time.Now())
	if connector == nil || !signed && connector.Issuer == "" {
		credentials.WithLabelValues("refused").Inc()
		return notVouched()
	}

	object, err := decodeObject(body)
	if err != nil {
		if !signed {
			return notVouched()
		}
		return err
	}

	delivery := &relayed{connectors: c, connector: connector, body: object, raw: body, about: messageBytes(body), signed: signed}
	return delivery.serve(w, r)
}

func channelSlug(name string) string { return contract.NewSessionKey(name, "", "").Connector }

// TimestampHeader binds a connector's signature to a time: seconds since 1970. The signature is made over its text, a dot and
// the body then.
const TimestampHeader = "X-Inbox-Timestamp"

// maxSignatureAge is how far the time of a signature may be from ours, in either direction.
const maxSignatureAge = 5 * time.Minute

// verifies reports whether a secret of the connector signed the body. A signature with a time is good for five minutes; one
// without, which is all that products with a form of their own can make, for ever: such a request is told from its repeat
// by the id of its message alone.
func (c *Connector) verifies(r *http.Request, body []byte, now time.Time) bool {
	stamp := r.Header.Get(TimestampHeader)
	if stamp == "" && c.RequireTimestamp {
		return false
	}

	if stamp != "" {
		seconds, err := strconv.ParseInt(stamp, 10, 64)
		if err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > maxSignatureAge {
			return false
		}
		body = slices.Concat([]byte(stamp), []byte("."), body)
	}

	for _, name := range signatureHeaders {
		if given := r.Header.Get(name); given != "" {
			return webhooksignature.VerifyRotating(c.Secrets, body, given, webhooksignature.Form{})
		}
	}

	return false
}

// relayed is one message of a connector on its way in.
type relayed struct {
	*connectors
	connector *Connector
	body      map[string]any
	raw       []byte
	about     []byte // what evidence has to be about: the bytes of the message
	signed    bool   // by the connector's secret
}

func (m *relayed) serve(w http.ResponseWriter, r *http.Request) error {
	inner := m.body
	if wrapped := value.Assoc(m.body["message"]); len(wrapped) > 0 {
		inner = wrapped
	}

	patience, err := m.wait(r, m.body)
	if err != nil {
		return err
	}

	message, agent, err := m.read(inner)
	if err != nil {
		if !m.signed {
			return notVouched()
		}
		return err
	}

	q := question{
		agent: agent, message: message, context: value.Assoc(inner["client_context"]), surface: surfaceConnector,
		about: value.Assoc(inner["profile"]), relay: normalized.MentionRelay{Kind: normalized.RelayNone}, original: m.original(message), way: m.connector.way(patience), client: m.connector.Client,
	}

	replayed, err := m.vouch(r, &q, text(inner, "sender_name", "display_name"))
	if err != nil {
		return err
	}

	credentials.WithLabelValues("valid").Inc()
	if skip := skipped(message); skip != "" {
		httpserver.WriteJSON(w, http.StatusOK, map[string]any{"status": "skipped", "code": skip, "connector_id": m.connector.Name})
		return nil
	}

	return m.take(w, r, q, patience, replayed, title(text(inner, "title"), message.Text))
}

// original is what the server keeps of the message as it was received: what the connector hands in as its product's own form, else
// the request.
func (m *relayed) original(message contract.Message) []byte {
	if len(message.Raw) > 0 {
		if encoded, err := value.Encode(message.Raw); err == nil {
			return encoded
		}
	}
	return m.raw
}

// skipped returns why a message gets no answer and no agent: it came back to its sender, or says nothing.
func skipped(message contract.Message) string {
	switch {
	case message.FromSelf:
		return contract.CodeSilentSkip
	case message.Text == "" && len(message.Attachments) == 0:
		return contract.CodeEmptyMessage
	}
	return ""
}

// read brings the message into its one form and finds its agent. A connector speaks for itself only.
func (m *relayed) read(inner map[string]any) (message contract.Message, agent exchange.AgentProfile, err error) {
	if inner["connector_id"] == nil {
		inner["connector_id"] = m.connector.Name
	}
	if inner["external_provider"] == nil {
		inner["external_provider"] = m.connector.Name
	}
	if message, err = contract.NormalizeMessage(inner); err != nil {
		return message, agent, err
	}
	if message.ConnectorID != m.connector.Name {
		return message, agent, fault.InField("connector_id", "must be that of the address, or be left out")
	}

	name := strings.TrimPrefix(text(inner, "agent"), "@")
	if name == "" && len(m.connector.Agents) > 0 {
		name = m.connector.Agents[0]
	}

	agent, known := m.options.Directory.Agent(name)
	allowed := slices.ContainsFunc(m.connector.Agents, func(one string) bool { return strings.EqualFold(one, agent.Name) })
	if !known || !allowed {
		return message, agent, fault.New(fault.NotFound, "no such agent for this connector")
	}

	return message, agent, nil
}

// way is how the answer leaves: with the response for who waits, else by the callback, the queue, or on another request.
func (c *Connector) way(patience time.Duration) string {
	switch {
	case patience > 0:
		return wayResponse
	case c.CallbackURL != "":
		return wayCallback
	case c.Client != "":
		return wayQueue
	}
	return wayResponse
}

// take accepts the message and answers. replayed reports that its evidence was used before: then it is acknowledged if it is
// the repeat of a message that we have, and refused otherwise.
func (m *relayed) take(w http.ResponseWriter, r *http.Request, q question, patience time.Duration, replayed bool, title string) error {
	if replayed {
		known, err := m.repeatOf(r.Context(), q)
		if err != nil {
			return err
		}
		httpserver.WriteJSON(w, http.StatusOK, map[string]any{"run_id": known.ID, "status": statusOf(known), "duplicate": true})
		return nil
	}

	owner := OwnerOfConnector(m.options.Domain, m.connector.Name)
	session, fresh, err := m.sessions.place(r.Context(), owner, "", q.agent, q.message, title)
	if err != nil {
		return err
	}

	q.session = session
	taken, err := m.messages.accept(r.Context(), q, fresh)
	if err != nil {
		return err
	}

	turn, err := m.runs.settled(r.Context(), taken.turn, patience)
	if err != nil {
		return err
	}

	answer := m.forConnector(turn)
	if taken.repeat {
		answer["duplicate"] = true
	}

	writeTaken(w, turn, answer)
	return nil
}

// connectorSubject names a connector, or one of its people, as this server knows them: by the connector's word.
func connectorSubject(connector, person string) string {
	if person == "" {
		return "connector:" + connector
	}
	return "connector:" + connector + "/" + escaped(person)
}

// personEvidence is what the connector says about a person of its product, for the operator's list to judge.
func (m *relayed) personEvidence(q question) identity.Evidence {
	return identity.Evidence{
		Subject: q.message.Provider + ":" + escaped(q.message.SenderID), Issuer: m.connector.Issuer, Method: m.connector.Method,
		Assurance: identity.AssurancePlatform, Audience: identity.Audience{q.agent.Address}, IssuedAt: identity.Now(),
		Source: &identity.Source{Transport: normalized.ViaA2A, Connector: m.connector.Name, Channel: escaped(q.message.ConversationID)},
		Proof:  identity.Proof{Type: identity.ProofTransport, VerifiedBy: m.options.Domain, Addressed: identity.AddressedRequest},
	}
}

// runPath is where the run of a connector's message is asked for: the Location of what was taken and not yet answered. It is
// also what the connector signs where a request has no body.
func runPath(connector, run string) string { return "/v1/connectors/" + connector + "/runs/" + run }

// connectorRun tells a connector what became of a message that it handed in, with the answer where it leaves no other way.
// With wait it answers when the run has ended, or when the time is over. The request proves itself like a message: by the
// connector's secret over its body, or over the path where it has none; or by signed evidence whose message_digest is that
// of the path. A run of another caller is not found.
func (c *connectors) connectorRun(w http.ResponseWriter, r *http.Request) error {
	body, err := readBody(r, maxBodyBytes)
	if err != nil {
		return err
	}

	connector := c.connector(channelSlug(httpserver.Param(r, "connector")))
	if connector == nil {
		credentials.WithLabelValues("refused").Inc()
		return notVouched()
	}

	run := httpserver.Param(r, "run")
	said := body
	if len(said) == 0 {
		said = []byte(runPath(connector.Name, run))
	}

	signed := connector.verifies(r, said, time.Now())
	if !signed && (connector.Issuer == "" || len(body) == 0) {
		credentials.WithLabelValues("refused").Inc()
		return notVouched()
	}

	turn, err := c.options.Turns.Turn(r.Context(), run)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}

	if kept := readRoute(turn.Route); err != nil || kept.Surface != surfaceConnector || kept.Connector != connector.Name {
		turn = exchange.TurnRecord{}
	}

	if !signed {
		if err := c.vouchedRun(r, connector, body, run, turn); err != nil {
			return err
		}
	}

	credentials.WithLabelValues("valid").Inc()
	if turn.ID == "" {
		return runNotFound()
	}

	return c.writeConnectorRun(w, r, turn)
}

// vouchedRun checks the evidence of a request that no secret signs. It is judged for the run's agent; for a run that is not
// the connector's, for its first one, so that no caller without good evidence learns which runs exist.
func (c *connectors) vouchedRun(r *http.Request, connector *Connector, body []byte, run string, turn exchange.TurnRecord) error {
	object, err := decodeObject(body)
	if err != nil {
		return notVouched()
	}

	var first string
	if len(connector.Agents) > 0 {
		first = connector.Agents[0]
	}

	agent, known := c.options.Directory.Agent(cmp.Or(turn.Agent, first))
	if !known {
		return notVouched()
	}

	m := &relayed{connectors: c, connector: connector, body: object, about: []byte(runPath(connector.Name, run))}
	q := question{agent: agent}
	if len(m.vouchedBy(m.validate(r.Context(), &q).Evidence, q)) == 0 {
		credentials.WithLabelValues("refused").Inc()
		return notVouched()
	}

	return nil
}

func (c *connectors) writeConnectorRun(w http.ResponseWriter, r *http.Request, turn exchange.TurnRecord) error {
	patience, err := c.patience(r.URL.Query().Get("wait"))
	if err != nil {
		return err
	}
	if turn, err = c.runs.settled(r.Context(), turn, patience); err != nil {
		return err
	}
	writeTaken(w, turn, c.forConnector(turn))
	return nil
}

// forConnector writes a run without what leaves another way: two answers would be one too many.
func (c *connectors) forConnector(turn exchange.TurnRecord) map[string]any {
	run := runOf(c.withAddresses(turn), c.options.Present)
	if readRoute(turn.Route).Way != wayResponse {
		for _, member := range []string{"reply", "messages", "parts", "queue_id"} {
			delete(run, member)
		}
	}
	return run
}

// writeTaken answers the caller that handed a message in: 200 where the run has its answer, else 202 and where to ask for it.
func writeTaken(w http.ResponseWriter, turn exchange.TurnRecord, answer map[string]any) {
	status := statusFor(turn)
	if status == http.StatusAccepted {
		w.Header().Set("Location", locationOf(turn))
	}
	httpserver.WriteJSON(w, status, answer)
}

func locationOf(turn exchange.TurnRecord) string {
	if r := readRoute(turn.Route); r.Surface == surfaceConnector {
		return runPath(r.Connector, turn.ID)
	}
	return "/v1/runs/" + turn.ID
}
