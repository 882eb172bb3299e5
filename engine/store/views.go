package store

import (
	"context"

	"inbox/engine/delivery"
	"inbox/engine/pipeline"
	"inbox/internal/queue"
)

// Pipeline returns the view that the pipeline declared.
func (s *Store) Pipeline() pipeline.Store { return pipelineView{s} }

// Deliverer returns the view that delivery declared.
func (s *Store) Deliverer() delivery.Store { return deliveryView{s} }

// Queue returns the view that the queue declared.
func (s *Store) Queue() queue.Store { return queueView{s} }

// State returns the adapters' private documents.
func (s *Store) State() *State { return &State{s} }

type pipelineView struct{ *Store }

// InTx runs work in one transaction; see Store.InTx.
func (v pipelineView) InTx(ctx context.Context, work func(pipeline.Tx) error) error {
	return v.Store.InTx(ctx, func(tx *Tx) error { return work(tx) })
}

type deliveryView struct{ *Store }

// InTx runs work in one transaction; see Store.InTx.
func (v deliveryView) InTx(ctx context.Context, work func(delivery.Tx) error) error {
	return v.Store.InTx(ctx, func(tx *Tx) error { return work(tx) })
}
