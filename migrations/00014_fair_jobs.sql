-- +goose Up
-- Jobs wait in lanes, one for each member of a group, and in an order of ranks within the group: 0 = the job had begun when
-- its process ended, 1 = proven, 2 = guest. A job whose time has not come is scheduled instead of ready, so that who looks
-- for ready ones never walks over it.
ALTER TABLE jobs ADD COLUMN group_of TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN claim_rank BIGINT NOT NULL DEFAULT 1;
ALTER TABLE jobs ADD COLUMN member_key TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN guest BIGINT NOT NULL DEFAULT 0;
-- What was stored before becomes ready when its time has come, like everything else.
UPDATE jobs SET state = 'scheduled' WHERE state = 'ready';
DROP INDEX jobs_ready;
CREATE INDEX jobs_ready ON jobs (kind, group_of, claim_rank, member_key, run_at, id) WHERE state = 'ready';
CREATE INDEX jobs_scheduled ON jobs (kind, run_at) WHERE state = 'scheduled';
