-- +goose Up

-- Recipients of a delivery to several who do not have it, and why: a JSON object; empty = all have it, or nobody.
ALTER TABLE deliveries ADD COLUMN returned TEXT NOT NULL DEFAULT '';

-- Contents outside of the database that nobody refers to any more. The row stands before the bytes go, so that a crash
-- between the two loses no track of them.
CREATE TABLE blob_garbage (
    digest     TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    created_at BIGINT NOT NULL
);
