package database

import "context"

// Replication is what PostgreSQL says about its standbys.
type Replication struct {
	Primary     bool      // the server says on which timeline it is, so that a former primary is recognised
	Standbys    []Standby // that are connected now
	Demanded    bool      // a commit waits until a standby has it on disk
	Synchronous bool      // such a standby is connected
	Seen        bool      // false: a synchronous standby is demanded, and this role may not see whether one is connected
	Required    bool      // nothing is stored unless a commit waits for a standby
}

// Standby is a server that follows the primary.
type Standby struct {
	Name   string // its application_name
	State  string // sync, quorum, potential or async; empty = this role may not see it
	Behind int64  // bytes of the write-ahead log that are not on its disk
}

const (
	selectStandbys = `SELECT COALESCE(application_name, ''), COALESCE(sync_state, ''), COALESCE(CAST(pg_wal_lsn_diff(`
	ofStandbys     = `, flush_lsn) AS BIGINT), 0) FROM pg_stat_replication ORDER BY application_name, pid`

	selectSynchronous = `SELECT current_setting('synchronous_standby_names') <> '' AND current_setting('synchronous_commit') IN ('on', 'remote_apply')`
)

// Replication asks the server about its standbys.
func (e *postgresEngine) Replication(ctx context.Context) (Replication, error) {
	found := Replication{Primary: e.primary.newest.Load() > 0, Required: e.primary.required}
	written := "sent_lsn"
	if found.Primary { // it offers the function, which some services do not
		written = "pg_current_wal_lsn()"
	}

	if err := e.Each(ctx, selectSynchronous, nil, func(r Row) error { return r.Scan(&found.Demanded) }); err != nil {
		return Replication{}, err
	}
	found.Seen = true
	err := e.Each(ctx, selectStandbys+written+ofStandbys, nil, func(r Row) error {
		var one Standby
		err := r.Scan(&one.Name, &one.State, &one.Behind)
		found.Standbys = append(found.Standbys, one)
		found.Synchronous = found.Synchronous || found.Demanded && (one.State == "sync" || one.State == "quorum")
		found.Seen = found.Seen && (!found.Demanded || one.State != "")
		return err
	})
	return found, err
}
