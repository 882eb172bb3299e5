-- +goose Up

-- Mail that is kept for the operator: to role addresses of the domain, and answers that mail.mode = capture kept.
CREATE TABLE mails (
    id          TEXT COLLATE "C" NOT NULL PRIMARY KEY, -- UUIDv7 of when it came
    natural_key TEXT COLLATE "C" NOT NULL,
    kind        TEXT COLLATE "C" NOT NULL,             -- mail, dmarc, tls, captured
    mailbox     TEXT COLLATE "C" NOT NULL,
    sender      TEXT COLLATE "C" NOT NULL,             -- address of the author in lower case
    sender_host TEXT COLLATE "C" NOT NULL,             -- its domain, backwards and with a final dot: com.example.
    bytes       BIGINT NOT NULL,                       -- what it counts in mail_sums; 0 = it is not counted
    digest      TEXT COLLATE "C" NOT NULL,             -- of its bytes in the blob store; empty = they are in mail_originals
    head        TEXT NOT NULL,                         -- what lists show
    words       TEXT NOT NULL,                         -- what is searched, in lower case
    content     TEXT NOT NULL                          -- what one mail shows besides
);

CREATE UNIQUE INDEX mails_natural ON mails (natural_key);
CREATE INDEX mails_kind ON mails (kind, id);
CREATE INDEX mails_mailbox ON mails (mailbox, id);
CREATE INDEX mails_sender ON mails (sender, id);
CREATE INDEX mails_host ON mails (sender_host, id);
CREATE INDEX mails_digest ON mails (digest) WHERE digest <> '';

CREATE TABLE mail_originals (
    mail_id  TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    encoding TEXT NOT NULL,
    body     TEXT NOT NULL
);

-- Sums of the first table. The account that is empty is the sum of all.
CREATE TABLE mail_sums (
    account  TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    messages BIGINT NOT NULL,
    bytes    BIGINT NOT NULL
);

-- Lines of the reports of other servers about DMARC and TLS, each with the report that it stands in.
CREATE TABLE mail_reports (
    id           TEXT COLLATE "C" NOT NULL PRIMARY KEY, -- UUIDv7 of when it came
    report_key   TEXT COLLATE "C" NOT NULL,             -- of its kind, reporter, proof and id
    line         BIGINT NOT NULL,
    mail_id      TEXT COLLATE "C" NOT NULL,
    kind         TEXT COLLATE "C" NOT NULL,             -- dmarc, tls
    reporter     TEXT COLLATE "C" NOT NULL,             -- domain of the author of the mail
    proof        TEXT COLLATE "C" NOT NULL,             -- what proves that domain
    proven       BIGINT NOT NULL,                       -- 1 = something does
    organization TEXT NOT NULL,                         -- who wrote it, as it says
    report_id    TEXT NOT NULL,
    domain       TEXT COLLATE "C" NOT NULL,             -- that it is about
    begins_at    BIGINT NOT NULL,
    ends_at      BIGINT NOT NULL,
    received_at  BIGINT NOT NULL,
    policy       TEXT NOT NULL,
    source       TEXT COLLATE "C" NOT NULL,             -- address of who sent
    peer         TEXT NOT NULL,                         -- DMARC: domain of From; TLS: our mail server
    amount       BIGINT NOT NULL,                       -- mails, or sessions
    disposition  TEXT COLLATE "C" NOT NULL,
    dkim         TEXT COLLATE "C" NOT NULL,
    spf          TEXT COLLATE "C" NOT NULL,
    result       TEXT COLLATE "C" NOT NULL,             -- pass, fail, success, or the type of a failure
    detail       TEXT NOT NULL
);

CREATE UNIQUE INDEX mail_reports_natural ON mail_reports (report_key, line);
CREATE INDEX mail_reports_ends ON mail_reports (ends_at);
