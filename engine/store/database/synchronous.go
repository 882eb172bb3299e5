package database

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// errAlone refuses a commit that no standby would have.
var errAlone = errors.New("PostgreSQL waits for no synchronous standby, and database.require_synchronous demands one: " +
	"name the standbys in synchronous_standby_names of the primary and reload it")

// errUnreplicated is why a confirmed commit counts as unknown.
var errUnreplicated = errors.New("PostgreSQL ended the wait for its synchronous standby: the change may be on the primary only")

// selectStandby asks a primary whether it has a list of synchronous standbys. A session whose commits would not wait for the standby's disk by
// the settings of the server, the database or the role then waits by its own.
const selectStandby = `SELECT CASE WHEN pg_is_in_recovery() THEN '' WHEN current_setting('synchronous_standby_names') = '' THEN 'no' ELSE 'yes' END;
	SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')`

// checkStandby notes whether the server of a connection waits for a synchronous standby, if that is required.
func (p *primary) checkStandby(ctx context.Context, connection *pgconn.PgConn) error {
	if !p.required {
		return nil
	}
	answer, err := valueOf(ctx, connection, selectStandby)
	if err != nil || answer == "" { // a standby answers nothing
		return err
	}

	p.lock.Lock()
	defer p.lock.Unlock()

	waits := answer == "yes"
	switch now := time.Now(); {
	case waits && !p.aloneAt.IsZero():
		p.aloneAt = time.Time{}
		p.logger.Warn("commits wait for a synchronous standby again", "server", serverOf(connection))
	case !waits && now.Sub(p.aloneAt) >= refusalsEvery:
		p.aloneAt = now
		p.logger.Warn("nothing is stored", "server", serverOf(connection), "error", errAlone)
	}
	p.waits.Store(waits)
	return nil
}

// alone is the key under which a connection keeps that one of its commits did not wait for the standby.
const alone = "inbox: unreplicated"

// noteUnreplicated sees a commit that PostgreSQL confirms although its wait for the standby was cancelled, by an operator or by
// statement_timeout. The text of the warning depends on the language of the server, and the function that reports it does not.
func noteUnreplicated(connection *pgconn.PgConn, notice *pgconn.Notice) {
	if notice.Routine == "SyncRepWaitForLSN" {
		connection.CustomData()[alone] = true
	}
}

func unreplicated(connection *pgconn.PgConn) bool { return connection.CustomData()[alone] != nil }
