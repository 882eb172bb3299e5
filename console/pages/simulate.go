package pages

import (
	"context"
	"net/http"
	"strings"
	"time"

	"inbox/console/account"
	"inbox/exchange"
	"inbox/internal/design"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/operator"
)

// simulationWait is how long a page waits for what becomes of a simulated message.
const simulationWait = 20 * time.Second

// simulate sends an agent a message as a sender on a network would, and leads to its result.
func (p *Pages) simulate(w http.ResponseWriter, r *http.Request, _ account.Session) error {
	name, path := agentPath(r)
	way, wrong := r.PostFormValue("way"), r.PostFormValue("fault")
	if of, rest, is := strings.Cut(wrong, " "); is { // the form has the faults of all ways in one list
		if of != way {
			return fault.InField("fault", text(r.Context(), "is one of another network; choose one of the network above"))
		}
		wrong = rest
	}

	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() {
		select {
		case <-httpserver.Stopping(r.Context()):
			cancel()
		case <-ctx.Done():
		}
	}()
	found, err := p.Operator.Simulate(ctx, operator.Simulation{
		Way: way, Agent: name, From: strings.TrimSpace(r.PostFormValue("from")), Subject: r.PostFormValue("subject"), Text: r.PostFormValue("text"), Fault: wrong,
	}, operator.PeerOptions{}, simulationWait)
	if err != nil {
		return err
	}

	words := text(r.Context(), "{from} wrote: {outcome}.", "from", design.VisibleLine(found.From), "outcome", outcomeName(r.Context(), found.Outcome))
	if found.Said != "" {
		words += " " + text(r.Context(), "The server said: {words}", "words", design.VisibleLine(found.Said))
	}
	if found.Note != "" {
		words += " " + design.VisibleLine(found.Note)
	}
	if found.Message != nil {
		path = at("messages", found.Message.Turn.ID)
	}
	return p.done(w, r, path, words)
}

// outcomeName is what became of a simulated message, in the reader's language.
func outcomeName(ctx context.Context, outcome string) string {
	switch outcome {
	case operator.OutcomeIgnored:
		return text(ctx, "ignored")
	case operator.OutcomePending:
		return text(ctx, "nothing has become of it yet")
	case exchange.StateRefused:
		return text(ctx, "refused")
	}
	return strings.ToLower(stateName(ctx, outcome))
}

// wayName is a network by which a message can be simulated.
func wayName(ctx context.Context, way string) string {
	switch way {
	case "mention":
		return text(ctx, "Mention in the fediverse")
	case "mail":
		return text(ctx, "Email")
	case "task":
		return text(ctx, "Task of another agent (A2A)")
	}
	return text(ctx, "Chat of a program")
}
