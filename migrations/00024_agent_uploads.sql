-- +goose Up

-- Files that programs handed in for answers of an agent. The content is in the blob store; a row goes a day after the file
-- was handed in or was last part of an answer.
CREATE TABLE agent_uploads (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    agent      TEXT COLLATE "C" NOT NULL, -- in lower case
    digest     TEXT COLLATE "C" NOT NULL, -- empty while the file is on its way
    size       BIGINT NOT NULL,
    used       BIGINT NOT NULL, -- 1 = an answer has it
    touched_at BIGINT NOT NULL
);

CREATE INDEX agent_uploads_digest ON agent_uploads (agent, digest);
CREATE INDEX agent_uploads_touched ON agent_uploads (touched_at);

-- Bytes of the rows of an agent that are not used.
CREATE TABLE agent_upload_sums (
    agent TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    bytes BIGINT NOT NULL
);
