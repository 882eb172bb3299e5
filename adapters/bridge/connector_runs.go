package bridge

import (
	"cmp"
	"net/http"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

// runPath is where the run of a connector's message is asked for: the Location of what was taken and not yet answered. It is
// also what the connector signs where a request has no body.
func runPath(connector, run string) string { return "/v1/connectors/" + connector + "/runs/" + run }

// connectorRun tells a connector what became of a message that it handed in, with the answer where it leaves no other way.
// With wait it answers when the run has ended, or when the time is over. The request proves itself like a message: by the
// connector's secret over its body, or over the path where it has none; or by signed evidence whose message_digest is that
// of the path. A run of anybody else is not found.
func (a *Adapter) connectorRun(w http.ResponseWriter, r *http.Request) error {
	body, err := readBody(r, maxBodyBytes)
	if err != nil {
		return err
	}
	connector := a.connectors[channelSlug(httpserver.Param(r, "connector"))]
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
	turn, err := a.options.Turns.Turn(r.Context(), run)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	if kept := readRoute(turn.Route); err != nil || kept.Surface != surfaceConnector || kept.Connector != connector.Name {
		turn = exchange.TurnRecord{}
	}
	if !signed {
		if err := a.vouchedRun(r, connector, body, run, turn); err != nil {
			return err
		}
	}
	credentials.WithLabelValues("valid").Inc()
	if turn.ID == "" {
		return runNotFound()
	}
	return a.writeConnectorRun(w, r, turn)
}

// vouchedRun checks the evidence of a request that no secret signs. It is judged for the run's agent; for a run that is not
// the connector's, for its first one, so that nobody without good evidence learns which runs there are.
func (a *Adapter) vouchedRun(r *http.Request, connector *Connector, body []byte, run string, turn exchange.TurnRecord) error {
	object, err := decodeObject(body)
	if err != nil {
		return notVouched()
	}
	var first string
	if len(connector.Agents) > 0 {
		first = connector.Agents[0]
	}
	agent, known := a.options.Directory.Agent(cmp.Or(turn.Agent, first))
	if !known {
		return notVouched()
	}
	m := &relayed{Adapter: a, connector: connector, body: object, about: []byte(runPath(connector.Name, run))}
	q := question{agent: agent}
	if len(m.vouchedBy(m.believe(r.Context(), &q).Evidence, q)) == 0 {
		credentials.WithLabelValues("refused").Inc()
		return notVouched()
	}
	return nil
}

func (a *Adapter) writeConnectorRun(w http.ResponseWriter, r *http.Request, turn exchange.TurnRecord) error {
	patience, err := a.patience(r.URL.Query().Get("wait"))
	if err != nil {
		return err
	}
	if turn, err = a.settled(r.Context(), turn, patience); err != nil {
		return err
	}
	writeTaken(w, turn, a.forConnector(turn))
	return nil
}

// forConnector writes a run without what leaves another way: two answers would be one too many.
func (a *Adapter) forConnector(turn exchange.TurnRecord) map[string]any {
	run := runOf(turn, a.options.Present)
	if readRoute(turn.Route).Way != wayResponse {
		for _, member := range []string{"reply", "messages", "parts", "queue_id"} {
			delete(run, member)
		}
	}
	return run
}

// writeTaken answers whoever handed a message in: 200 where the run has its answer, else 202 and where to ask for it.
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
