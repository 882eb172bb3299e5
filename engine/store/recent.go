package store

import (
	"context"
	"time"

	"inbox/engine/delivery"
)

// The ids of deliveries begin with their time, so that the recent ones are at the end of the table.
const selectRecent = `SELECT DISTINCT address FROM deliveries WHERE id >= $1 AND agent = $2 AND channel = $3 AND state = '` +
	delivery.StateDelivered + `' AND address > $4 ORDER BY address LIMIT $5 + 0`

// RecentAddresses returns the addresses that took something of the agent by a channel since the instant, in order after the
// given one.
func (s *Store) RecentAddresses(ctx context.Context, channel, agent string, since time.Time, after string, limit int) ([]string, error) {
	var addresses []string
	arguments := []any{firstID(since), agent, channel, cleaned(after), pageSize(limit)}
	err := s.engine.reader().each(ctx, selectRecent, arguments, func(r row) error {
		var address string
		err := r.Scan(&address)
		addresses = append(addresses, address)
		return err
	})
	return addresses, err
}
