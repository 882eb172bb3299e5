package operator

import (
	"context"
	"strings"

	"inbox/engine/delivery"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
	"inbox/operator/lookup"
)

type (
	// Delivery is one way of a reply to a receiver.
	Delivery = delivery.Record
	// DeliveryFilter selects deliveries.
	DeliveryFilter = delivery.Filter
)

// States of a delivery on which what an operator may do depends; DeliveryStates has all.
const (
	DeliveryDelivered = delivery.StateDelivered
	DeliveryRetry     = delivery.StateRetry
	DeliveryDead      = delivery.StateDead
	DeliveryCancelled = delivery.StateCancelled
)

// DeliveryStates returns the states that a delivery can have.
func DeliveryStates() []string { return delivery.States() }

// Deliveries are the ways of replies to their receivers.
type Deliveries struct {
	store    *store.Store
	delivery *delivery.Service

	index *lookup.Index
}

// List lists deliveries, newest first.
func (d Deliveries) List(ctx context.Context, filter delivery.Filter) ([]delivery.Record, error) {
	records, err := d.store.Deliveries(ctx, filter)
	return listed(records), err
}

// ShownDelivery is one delivery with the answer that it brings.
type ShownDelivery struct {
	delivery.Record

	Answer *normalized.Response `json:"answer,omitempty"` // nil once it was taken back
	Fixed  string               `json:"fixed,omitempty"`  // why its text cannot be changed; empty = it can be tried
}

// Show returns one delivery; fault.NotFound when there is none.
func (d Deliveries) Show(ctx context.Context, id string) (shown ShownDelivery, err error) {
	if id, err = d.index.Delivery(ctx, id); err != nil {
		return shown, err
	}
	record, reply, err := d.store.Deliverer().Delivery(ctx, id)
	if err != nil {
		return shown, err
	}

	shown.Record = record
	if reply.DeletedAt.IsZero() {
		shown.Answer = &reply.Response
	}
	if err := d.delivery.Changeable(ctx, reply.ID); err != nil {
		if shown.Fixed = fault.Of(err).Public; fault.Of(err).Kind == fault.Unavailable {
			return shown, err
		}
	}
	return shown, nil
}

// Retry sends a dead or cancelled delivery again, under the same wire id.
func (d Deliveries) Retry(ctx context.Context, id string) error {
	id, err := d.index.Delivery(ctx, id)
	if err != nil {
		return err
	}
	return d.delivery.Again(ctx, id)
}

// RetryDead sends the dead deliveries again that the filter selects, a few a second, and returns what becomes of each. With dryRun it
// changes nothing. A second call finds nothing to do, or what a first one that was cut off left.
func (d Deliveries) RetryDead(ctx context.Context, filter exchange.RetryFilter, dryRun bool) (exchange.RetriedWork, error) {
	return d.delivery.RetryDead(ctx, filter, dryRun)
}

// Cancel stops a delivery that has not been made.
func (d Deliveries) Cancel(ctx context.Context, id string) error {
	id, err := d.index.Delivery(ctx, id)
	if err != nil {
		return err
	}
	return d.delivery.Cancel(ctx, id)
}

// Suppressions are the addresses to which no mail is sent any more.
type Suppressions struct {
	store *store.Store
	vault func(ctx context.Context) (Vault, error) // with the key by which erased persons are named
}

// List lists suppressed addresses, in order of the address.
func (s Suppressions) List(ctx context.Context, filter exchange.SuppressionFilter) ([]exchange.Suppression, error) {
	found, err := s.store.Suppressions(ctx, filter)
	return listed(found), err
}

// LiftSuppression lets mail go to an address again, also to one of which only a hash is kept, and reports whether it was suppressed.
func LiftSuppression(ctx context.Context, rows *store.Store, vault Vault, address string) (lifted bool, err error) {
	if lifted, err = rows.Unsuppress(ctx, address); lifted || err != nil {
		return lifted, err
	}
	hash, err := ErasedNames(ctx, vault)
	if err != nil || hash == nil {
		return false, err
	}
	return rows.Unsuppress(ctx, store.ErasedAddress(hash(address)))
}

// Lift lets mail go to an address again; fault.NotFound when it is not suppressed.
func (s Suppressions) Lift(ctx context.Context, address string) error {
	address = strings.TrimPrefix(strings.ToLower(strings.TrimSpace(address)), "@")
	vault, err := s.vault(ctx)
	if err != nil {
		return err
	}
	lifted, err := LiftSuppression(ctx, s.store, vault, address)
	if err == nil && !lifted {
		err = fault.Newf(fault.NotFound, "%s is not suppressed; see: inbox suppressions list", address)
	}
	return err
}
