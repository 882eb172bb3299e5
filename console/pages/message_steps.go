package pages

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"inbox/exchange"
	"inbox/internal/design"
)

// steps writes a timeline for people. Pieces of an answer that grew are left out: the answer is shown whole.
func steps(ctx context.Context, events []exchange.Event) (list []step) {
	for i := range events {
		if events[i].Kind == exchange.EventDelta {
			continue
		}
		one := step{At: events[i].At, Kind: events[i].Kind}
		one.Title, one.Detail, one.Colour = tell(ctx, events[i])
		list = append(list, one)
	}
	return list
}

// tell returns what an event was, what more is known of it, and whether that is good.
func tell(ctx context.Context, event exchange.Event) (title, detail, colour string) {
	if state, is := strings.CutPrefix(event.Kind, "turn."); is && event.Kind != exchange.EventRestarted {
		title, colour = stateName(ctx, state), stateKind(state)
		return title, fields(event.Body), colour
	}

	switch event.Kind {
	case exchange.EventRestarted:
		return text(ctx, "The run ended without an answer and starts again"), fields(event.Body), design.Warn
	case exchange.EventModelCalled:
		return tellModel(ctx, event)
	case exchange.EventToolCalled:
		return tellTool(ctx, event)
	case exchange.EventRunWaits:
		return text(ctx, "The run waits"), fields(event.Body), design.Warn
	case exchange.EventAnswerCut:
		return text(ctx, "The answer was too large and was cut"), fields(event.Body), design.Warn
	case exchange.EventCompacted:
		return text(ctx, "The history was shortened"), fields(event.Body), design.Plain
	case exchange.EventDeliverySent:
		return text(ctx, "Delivered"), fields(event.Body), design.OK
	case exchange.EventDeliveryRetry:
		return text(ctx, "Delivery is tried again"), fields(event.Body), design.Warn
	case exchange.EventDeliveryDead:
		return text(ctx, "Delivery was given up"), fields(event.Body), design.Bad
	case exchange.EventDeliveryCanceled:
		return text(ctx, "Delivery was cancelled"), fields(event.Body), design.Warn
	case exchange.EventDeliveryBounced:
		return text(ctx, "The answer came back"), fields(event.Body), design.Bad
	case exchange.EventDeliveryDelayed:
		return text(ctx, "A server on the way still tries"), fields(event.Body), design.Warn
	case exchange.EventDeliveryComplaint:
		return text(ctx, "The recipient reported the answer as unwanted"), fields(event.Body), design.Bad
	case exchange.EventAcknowledged:
		return text(ctx, "The asker was told that it takes long"), fields(event.Body), design.Plain
	case exchange.EventMessageEdited:
		return text(ctx, "The sender changed the message"), "", design.Plain
	case exchange.EventMessageDeleted:
		return text(ctx, "The sender deleted the message"), "", design.Warn
	case exchange.EventReplyEdited:
		return text(ctx, "An operator changed the answer"), fields(event.Body), design.Plain
	case exchange.EventReplyDeleted:
		return text(ctx, "An operator deleted the answer"), fields(event.Body), design.Warn
	case exchange.EventTakenOver:
		return text(ctx, "An operator took the conversation over"), fields(event.Body), design.Info
	case exchange.EventHandedBack:
		return text(ctx, "An operator handed the conversation back"), fields(event.Body), design.Info
	case exchange.EventOperatorAnswers:
		return text(ctx, "An operator answered as the agent"), fields(event.Body), design.OK
	case exchange.EventDraftKept:
		return text(ctx, "What the agent said was kept as a draft"), fields(event.Body), design.Plain
	case exchange.EventReaction:
		return text(ctx, "A reaction came"), fields(event.Body), design.Plain
	case exchange.EventDispatchCalled:
		return text(ctx, "The agent asked another agent"), fields(event.Body), design.Plain
	case exchange.EventDispatchAnswered:
		return text(ctx, "The other agent answered"), fields(event.Body), design.Plain
	}
	return event.Kind, fields(event.Body), design.Plain
}

func tellModel(ctx context.Context, event exchange.Event) (title, detail, colour string) {
	var step exchange.ModelStep
	if json.Unmarshal(event.Body, &step) != nil {
		return event.Kind, "", design.Plain
	}

	title, colour = text(ctx, "Model {name} was called", "name", step.Model), design.OK
	words := []string{
		lasted(step.Millis),
		text(ctx, "{in} tokens in, {out} out", "in", step.Input, "out", step.Output),
	}
	if step.Cost > 0 {
		words = append(words, price(step.Cost, step.Currency))
	}
	if step.Error != "" {
		words, colour = append(words, step.Error), design.Bad
	}
	return title, strings.Join(words, " · "), colour
}

func tellTool(ctx context.Context, event exchange.Event) (title, detail, colour string) {
	var step exchange.ToolStep
	if json.Unmarshal(event.Body, &step) != nil {
		return event.Kind, "", design.Plain
	}

	title, colour = text(ctx, "Tool {name} was called", "name", step.Name), design.OK
	words := []string{lasted(step.Millis)}
	if len(step.Arguments.Keys) > 0 {
		words = append(words, text(ctx, "with {names}", "names", strings.Join(step.Arguments.Keys, ", ")))
	}
	switch step.Status {
	case exchange.ToolFailed:
		words, colour = append(words, text(ctx, "failed"), step.ErrorType), design.Bad
	case exchange.ToolRejected:
		words, colour = append(words, text(ctx, "rejected"), step.ErrorType), design.Warn
	}
	return title, strings.Join(words, " · "), colour
}

// fields writes the body of an event in one line.
func fields(body json.RawMessage) string {
	var words []string
	for _, one := range claims("", body) {
		if one.Value != "" && one.Value != "null" {
			words = append(words, one.Name+": "+one.Value)
		}
	}
	return strings.Join(words, " · ")
}

// since is how long after the first step of a timeline another one was.
func since(begun, at time.Time) string {
	return "+" + at.Sub(begun).Round(100*time.Millisecond).String()
}

func lasted(millis int64) string { return (time.Duration(millis) * time.Millisecond).String() }

// price writes an amount as it was reported, without the noise of floating points.
func price(cost float64, currency string) string {
	return strings.TrimSpace(strconv.FormatFloat(cost, 'f', -1, 64) + " " + currency)
}
