-- +goose Up

-- The header traceparent (W3C Trace Context) of the span that accepted a message, and of the run that made a delivery, so that what
-- follows belongs to the same trace after a restart and on another node. Empty = not traced.
ALTER TABLE turns ADD COLUMN trace TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE deliveries ADD COLUMN trace TEXT COLLATE "C" NOT NULL DEFAULT '';
