-- +goose Up

-- Calls of tools that programs outside of the server execute. Their turns wait until the row is not pending any more.
CREATE TABLE tool_requests (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    agent      TEXT COLLATE "C" NOT NULL,
    run_id     TEXT COLLATE "C" NOT NULL, -- id of the turn
    tool_name  TEXT COLLATE "C" NOT NULL,
    status     TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    due_at     BIGINT NOT NULL, -- 0 = it waits for ever
    updated_at BIGINT NOT NULL,
    request    TEXT NOT NULL,
    result     TEXT NOT NULL    -- empty without one
);

CREATE INDEX tool_requests_run ON tool_requests (run_id, created_at, id);
CREATE INDEX tool_requests_open ON tool_requests (created_at, id) WHERE status = 'runtime_tool_pending';
CREATE INDEX tool_requests_due ON tool_requests (due_at, id) WHERE status = 'runtime_tool_pending' AND due_at > 0;
CREATE INDEX tool_requests_ended ON tool_requests (updated_at, id) WHERE status <> 'runtime_tool_pending';

-- Actions that run only after somebody agreed to them.
CREATE TABLE pending_actions (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    kind       TEXT COLLATE "C" NOT NULL,
    agent      TEXT COLLATE "C" NOT NULL,
    creator    TEXT COLLATE "C" NOT NULL,
    resolver   TEXT COLLATE "C" NOT NULL,
    status     TEXT COLLATE "C" NOT NULL,
    stored_at  BIGINT NOT NULL,
    due_at     BIGINT NOT NULL, -- 0 = never
    updated_at BIGINT NOT NULL,
    recorded   BIGINT NOT NULL, -- 1 = what came of it is in the action
    action     TEXT NOT NULL
);

CREATE INDEX pending_actions_status ON pending_actions (status, stored_at, id);
CREATE INDEX pending_actions_order ON pending_actions (stored_at, id);
CREATE INDEX pending_actions_due ON pending_actions (status, due_at, id);

-- Runs of tasks by executors.
CREATE TABLE task_runs (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    run        TEXT NOT NULL
);

CREATE INDEX task_runs_updated ON task_runs (updated_at, id);
