package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"

	"inbox/adapters/bridge/contract"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
)

var _ exchange.Channel = (*Adapter)(nil)

// queueID is the id of an answer in the queue: made of the reply's, which is final before the first attempt, so that a
// repeat after a crash is no second item.
func queueID(replyID string) string { return "bridge_" + replyID }

// queueHost names a queue in the form of a host, which destinations are compared by; there is none of that name.
func queueHost(client string) string {
	const longestLabel = 63
	if len(client) > longestLabel {
		client = hashOf(client)[:32]
	}
	return client + ".bridge.invalid"
}

// Plan decides where an answer goes. It is the way that the question brought: a repeat of the plan gives the same.
func (a *Adapter) Plan(_ context.Context, reply exchange.Reply) (exchange.Plan, error) {
	r := readRoute(reply.Route)
	switch r.Way {
	case wayQueue:
		return exchange.Plan{NativeID: queueID(reply.ID), Destinations: []exchange.Destination{{
			Key: queueHost(r.Client), Address: "bridge://" + r.Client,
		}}}, nil
	case wayCallback:
		connector, known := a.connectors[r.Connector]
		if !known || connector.CallbackURL == "" {
			return exchange.Plan{}, fmt.Errorf("connector %s has no callback_url any more", r.Connector)
		}
		address, err := url.Parse(connector.CallbackURL)
		if err != nil {
			return exchange.Plan{}, fmt.Errorf("callback of connector %s: %w", r.Connector, err)
		}
		return exchange.Plan{NativeID: queueID(reply.ID), Destinations: []exchange.Destination{{Key: address.Host, Address: connector.CallbackURL}}}, nil
	}
	return exchange.Plan{}, nil // the caller waits for it, or asks again
}

// Deliver puts an answer into the queue of its client, or calls a connector's callback.
func (a *Adapter) Deliver(ctx context.Context, delivery exchange.Delivery) (exchange.DeliveryReceipt, error) {
	r := readRoute(delivery.Reply.Route)
	item, err := a.itemOf(delivery.Reply, r)
	if err != nil {
		return exchange.DeliveryReceipt{}, fault.GiveUp("the answer makes no item: "+err.Error(), err)
	}
	if r.Way == wayCallback {
		return a.callConnector(ctx, r, item, delivery)
	}
	if err := a.options.Queue.Offer(ctx, item); err != nil {
		return exchange.DeliveryReceipt{}, fault.RetryIn(0, "the queue of the client takes nothing: "+err.Error(), err)
	}
	return exchange.DeliveryReceipt{Detail: "queued as " + item.ID}, nil
}

// itemOf writes an answer in the form of section 6.4.
func (a *Adapter) itemOf(reply exchange.Reply, r route) (contract.Item, error) {
	response := &reply.Response
	content := textOf(response, a.options.Present)
	if content == "" {
		content = "(The answer has no text.)"
	}
	if len(content) > contract.MaxContentBytes {
		content = cut(content, contract.MaxContentBytes-64) + "\n\n(The answer was longer and is cut here.)"
	}
	client := r.Client
	if client == "" {
		client = r.Connector
	}
	return contract.NormalizeItem(map[string]any{
		"queue_id": queueID(reply.ID), "client_id": client, "connector_id": r.Connector, "agent": reply.Agent, "session_id": r.Session,
		"role": "assistant", "content": content, "completed": reply.Response.Status == "" || reply.Response.Status == normalized.StatusCompleted,
		"created_at": stamp(reply.CreatedAt), "metadata": a.about(reply, r),
	})
}

// about tells to what an item is the answer.
func (a *Adapter) about(reply exchange.Reply, r route) map[string]any {
	metadata := map[string]any{"run_id": reply.TurnID, "agent": reply.Agent}
	for name, value := range map[string]string{
		"external_provider": r.Provider, "external_conversation_id": r.Conversation, "external_message_id": r.ExternalID,
		"sender_id": r.Person, "room_kind": r.Room, "status": reply.Response.Status,
	} {
		if value != "" {
			metadata[name] = value
		}
	}
	if policy := reply.Response.Policy(); policy != nil {
		metadata["demand"] = plainJSON(a.options.Present(*policy))
	}
	if parts := partsOf(&reply.Response, a.options.Present); parts != nil {
		if encoded := plainJSON(parts); encoded != nil {
			metadata["parts"] = encoded
		}
	}
	return metadata
}

// maxPartsBytes bounds the parts beside the text of an item.
const maxPartsBytes = 512 << 10

// plainJSON brings a value into maps and lists; nil where it is too large.
func plainJSON(value any) (plain any) {
	encoded, err := json.Marshal(value)
	if err != nil || len(encoded) > maxPartsBytes || json.Unmarshal(encoded, &plain) != nil {
		return nil
	}
	return plain
}

// cut shortens a text to at most size bytes, not inside of a character.
func cut(text string, size int) string {
	for size > 0 && text[size]&0xC0 == 0x80 {
		size--
	}
	return text[:size]
}
