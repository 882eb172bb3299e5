package database

import "context"

// Replication is what PostgreSQL says about its standbys.
type Replication struct {
	Primary     bool // the server says on which timeline it is, so that a former primary is recognised
	Standbys    int  // that are connected now
	Synchronous bool // a commit waits until a standby has it on disk
	Seen        bool // false: a synchronous standby is demanded, and this role may not see whether one is connected
}

const selectReplication = `SELECT COUNT(*), COUNT(*) FILTER (WHERE sync_state IN ('sync', 'quorum')), COUNT(*) FILTER (WHERE sync_state IS NULL),
	current_setting('synchronous_standby_names') <> '' AND current_setting('synchronous_commit') IN ('on', 'remote_apply') FROM pg_stat_replication`

// Replication asks the server about its standbys.
func (e *postgresEngine) Replication(ctx context.Context) (found Replication, err error) {
	var standbys, synchronous, hidden int64
	var demanded bool
	err = e.Each(ctx, selectReplication, nil, func(r Row) error { return r.Scan(&standbys, &synchronous, &hidden, &demanded) })
	if err != nil {
		return Replication{}, err
	}
	return Replication{
		Primary: e.primary.newest.Load() > 0, Standbys: int(standbys),
		Synchronous: demanded && synchronous > 0, Seen: !demanded || hidden == 0,
	}, nil
}
