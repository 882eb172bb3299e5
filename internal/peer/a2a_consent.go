package peer

import (
	"context"
	"fmt"
	"time"
)

// AskWithConsent is Ask to an agent that asks back first: the task waits for authorization, its page is opened without
// effect, then agreed to, and the same task completes without another message.
func (a *A2A) AskWithConsent(ctx context.Context, cardURL, text string) (Demand, Conversation, error) {
	started := time.Now()
	card, endpoint, err := a.card(ctx, cardURL)
	if err != nil {
		return Demand{}, Conversation{}, fmt.Errorf("read agent card %s: %w", cardURL, err)
	}

	question := newID()
	task, err := a.sendMessage(ctx, endpoint, question, text)
	if err == nil {
		task, err = a.settle(ctx, endpoint, task, taskDocument.ended)
	}
	if err != nil {
		return Demand{}, Conversation{}, fmt.Errorf("send a task to %s: %w", endpoint, err)
	}

	demand, err := taskDemand(task, endpoint)
	if err != nil {
		return demand, Conversation{}, err
	}

	seen, err := agree(ctx, demand.URL)
	if err != nil {
		return demand, Conversation{}, fmt.Errorf("agree to the demand: %w", err)
	}

	demand.Evidence = append(demand.Evidence, seen...)
	task, err = a.settle(ctx, endpoint, task, func(now taskDocument) bool { return now.ended() && !now.asks() })
	if err != nil {
		return demand, Conversation{}, err
	}

	evidence, err := a.check(ctx, endpoint, task)
	return demand, Conversation{
		Network: "A2A", From: a.name, To: card.Name, MessageID: question, Question: text, Answer: task.text(),
		Evidence: append([]string{"agent card names " + endpoint}, evidence...), Took: time.Since(started),
	}, err
}

// taskDemand reads the demand of a task that waits, in the text that any client can show.
func taskDemand(task taskDocument, endpoint string) (Demand, error) {
	demand := Demand{MessageID: task.ID}
	if task.Status.Message != nil {
		demand.Text = partsText(task.Status.Message.Parts)
		demand.URL = policyLink(demand.Text)
	}

	switch {
	case !task.asks():
		return demand, fmt.Errorf("the agent asked nothing back, the task is %s: %q", task.Status.State, task.text())
	case origin(demand.URL) != origin(endpoint):
		return demand, fmt.Errorf("the demand %q has no link to the agent's own server", demand.Text)
	}

	demand.Evidence = []string{"task " + task.ID + " is " + task.Status.State, "the link leads to the agent's own server"}
	return demand, nil
}
