-- +goose Up

-- Payments that demands were claimed with: a second demand is not claimed with the same one. A row goes when its demand
-- ends without being met, because nothing is ever taken for that one.
CREATE TABLE demand_payments (
    payment_key TEXT COLLATE "C" NOT NULL PRIMARY KEY, -- hash of network, asset, payer and nonce
    demand_id   TEXT COLLATE "C" NOT NULL,
    claimed_at  BIGINT NOT NULL
);

CREATE INDEX demand_payments_demand ON demand_payments (demand_id);
CREATE INDEX demand_payments_claimed ON demand_payments (claimed_at);
