-- +goose Up

-- Conversation results of runs (agent runtime contract, section 2): one for each run of a turn whose agent gave one. They are
-- erased with what was said in the turn.
CREATE TABLE run_results (
    turn_id  TEXT COLLATE "C" NOT NULL,
    run      BIGINT NOT NULL, -- attempt of the turn
    at       BIGINT NOT NULL,
    status   TEXT COLLATE "C" NOT NULL, -- run_outcome.status
    bytes    BIGINT NOT NULL, -- of the document, wherever it is
    body     TEXT NOT NULL,   -- the document; empty where it is in the blob store or was left out
    digest   TEXT COLLATE "C" NOT NULL, -- of the content in the blob store; empty without one
    audit    TEXT NOT NULL,   -- its tool_audit_events: hashes, no contents
    left_out TEXT NOT NULL,   -- why the document is not kept; empty = it is
    PRIMARY KEY (turn_id, run)
);

CREATE INDEX run_results_at ON run_results (at);
