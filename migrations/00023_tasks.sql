-- +goose Up

-- Runs of tasks are stored with their turns and stay with them; beside them the table has notes about the control of other runs,
-- which end by age. A run has an owner and a turn, a note has none.
ALTER TABLE task_runs ADD COLUMN owner TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE task_runs ADD COLUMN turn_id TEXT COLLATE "C" NOT NULL DEFAULT ''; -- a UUIDv7: the order of the beginning

CREATE INDEX task_runs_owner ON task_runs (owner, turn_id) WHERE turn_id <> '';
CREATE INDEX task_runs_turn ON task_runs (turn_id) WHERE turn_id <> '';

DROP INDEX task_runs_updated;
CREATE INDEX task_runs_updated ON task_runs (updated_at, id) WHERE turn_id = '';
