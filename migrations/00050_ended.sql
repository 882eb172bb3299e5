-- +goose Up

-- Demands and calls that ended are removed at their age. Those that never end must not be in the way, however old they are.
CREATE INDEX demands_ended ON demands (updated_at, id) WHERE status NOT IN ('issued', 'claimed');
CREATE INDEX dispatches_ended ON dispatches (updated_at, id) WHERE state = 'done';
