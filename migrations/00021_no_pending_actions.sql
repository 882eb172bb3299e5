-- +goose Up

-- The table of a second way to wait for an approval, which no running server ever wrote: what an agent waits for are
-- demands.
DROP TABLE pending_actions;
