package database

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/internal/clock"
	"inbox/internal/fault"
)

var repeated = promauto.NewCounter(prometheus.CounterOpts{
	Name: "inbox_store_repeats_total", Help: "Transactions that PostgreSQL asked to run again: deadlocks and lost races.",
})

// maxAttempts bounds how often a transaction runs when PostgreSQL asks to run it again.
const maxAttempts = 8

// postgresEngine is a pool of equal connections.
type postgresEngine struct {
	pool      *pgxpool.Pool
	config    *pgx.ConnConfig
	primary   *primary
	announcer *announcer
	outage    *outage
	logger    logger

	endLooks context.CancelFunc
	looks    sync.WaitGroup
}

// CheckURL reports what Open would refuse of a URL before it connects.
func CheckURL(address string) error {
	if address == "" || address == "sqlite" {
		return nil
	}
	_, _, err := readURL(address)
	return err
}

func readURL(address string) (config *pgxpool.Config, schema string, err error) {
	if config, schema, err = postgresConfig(address); err != nil {
		err = fault.Wrap(fault.Malformed, "database_url is not a PostgreSQL URL", err)
	}
	return config, schema, err
}

func openPostgres(ctx context.Context, options Options) (Engine, error) {
	config, schema, err := readURL(options.URL)
	if err != nil {
		return nil, err
	}

	known, err := openPrimary(options)
	if err != nil {
		return nil, err
	}
	wire := &config.ConnConfig.Config
	servers := known.servers(wire)
	if len(servers) > 1 {
		known.look(ctx, servers) // the first one may be a former primary
	}
	known.guard(wire)
	noticeSilence(wire)

	pool, err := openPostgresPool(config, options.Connections, known)
	if err != nil {
		return nil, err
	}
	err = refuseSharedSessions(ctx, pool, wire)
	if err == nil && !options.AsFound {
		err = makeSchema(ctx, pool, schema)
	}
	if err == nil {
		migrating := stdlib.OpenDBFromPool(pool)
		err = errors.Join(migrateOrKeep(ctx, migrating, postgresSchema, options), migrating.Close())
	}
	if err != nil {
		pool.Close()
		return nil, unusable(unusablePostgres(config.ConnConfig, err), err)
	}

	e := &postgresEngine{
		pool: pool, config: config.ConnConfig, primary: known, outage: &outage{logger: options.Logger, remedy: postgresRemedy}, logger: options.Logger,
	}
	looking, end := context.WithCancel(context.Background())
	e.endLooks = end
	e.looks.Go(func() { known.lookAround(looking, servers) })
	e.announcer = startAnnouncer(pool, e.outage)
	return e, nil
}

// ownSchema reports whether a search_path names one schema, as those of further domains do.
func ownSchema(path string) bool {
	return path != "" && strings.Trim(path, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

// makeSchema makes the schema that a URL names alone in its search_path: further domains of a server have one each. Where several nodes
// make it at once, PostgreSQL refuses all but one, with the codes below, and it is there.
func makeSchema(ctx context.Context, pool *pgxpool.Pool, name string) error {
	if !ownSchema(name) {
		return nil
	}
	_, err := pool.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS "+quoted(name))
	if failure, is := errors.AsType[*pgconn.PgError](err); is && (failure.Code == "23505" || failure.Code == "42P06") {
		return nil
	}
	return err
}

// DropSchema removes the schema that a PostgreSQL URL names alone in its search_path, with all its rows. It is harmless if there is none.
func DropSchema(ctx context.Context, address string) error {
	config, schema, err := readURL(address)
	if err != nil {
		return err
	}
	if !ownSchema(schema) {
		return fmt.Errorf("drop a schema: search_path %q does not name one", schema)
	}
	pool, err := openPostgresPool(config, 1, nil)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, "DROP SCHEMA IF EXISTS "+quoted(schema)+" CASCADE"); err != nil {
		return fmt.Errorf("drop the schema %s: %w", schema, err)
	}
	return nil
}

func (e *postgresEngine) Transact(ctx context.Context, work func(Session) error) error {
	again := true
	for attempt := 1; ; attempt++ {
		lost, err := e.once(ctx, work)
		if lost && again && ctx.Err() == nil {
			again = false
			continue
		}
		if err == nil || attempt == maxAttempts || !repeatable(err) {
			return e.outage.note(err)
		}

		repeated.Inc()
		if clock.Sleep(ctx, rand.N(time.Duration(attempt)*5*time.Millisecond)) != nil {
			return e.outage.note(err)
		}
	}
}

// renew replaces all connections, those in use when they are returned: where one was lost, a restarted server or a firewall has ended the
// others too, and each would cost a caller a failure.
func (e *postgresEngine) renew() { e.pool.Reset() }

// lostRead reports whether a query failed with its connection, so that another one may answer it.
func (e *postgresEngine) lostRead(err error) bool {
	var failure *pgconn.PgError
	if errors.As(err, &failure) && !unfit(failure) {
		return false
	}
	e.renew()
	return true
}

// Each reads beside transactions. A query that was lost with its connection before it returned a row is sent once more.
func (e *postgresEngine) Each(ctx context.Context, query string, arguments []any, scan func(Row) error) error {
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()

	begun, scanned, err := e.read(ctx, query, arguments, scan)
	if err != nil && !begun && ctx.Err() == nil && e.lostRead(err) {
		_, scanned, err = e.read(ctx, query, arguments, scan)
	}
	if scanned != nil {
		return scanned
	}
	return e.outage.note(readFault(ctx, postgresFault, err))
}

// read returns the error of scan apart from that of the database. Begun = there was a row.
func (e *postgresEngine) read(ctx context.Context, query string, arguments []any, scan func(Row) error) (begun bool, scanned, err error) {
	readCount.Inc()
	rows, err := e.pool.Query(ctx, query, arguments...)
	if err != nil {
		return false, nil, err
	}
	defer rows.Close()

	for rows.Next() {
		begun = true
		if scanned = scan(rows); scanned != nil {
			return begun, scanned, nil
		}
	}
	return begun, nil, rows.Err()
}

// Damage implements Engine.
func (e *postgresEngine) Damage() *Damage { return e.outage.damage.Load() }

// once runs work in one transaction of one connection. Lost = the connection broke before COMMIT was sent, so that nothing was done.
func (e *postgresEngine) once(ctx context.Context, work func(Session) error) (lost bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()

	connection, err := e.pool.Acquire(ctx)
	if err != nil {
		return false, Unavailable("connect", err)
	}
	defer connection.Release() // ends a connection that is closed, or still in a transaction

	session := &postgresSession{connection: connection.Conn()}
	wire := session.connection.PgConn()
	err = guarded(work, session)
	if err == nil {
		if refusal := e.primary.refuseCommit(wire); refusal != nil {
			lost, err = errors.Is(refusal, errReplaced), Unavailable("commit", refusal)
		}
	}
	if err == nil {
		err = session.commit(ctx)
		if err == nil && session.begun {
			if doubt := e.primary.doubtCommit(wire); doubt != nil {
				err = unknown("commit", doubt)
			}
		}
	}

	if wire.IsClosed() && ctx.Err() == nil {
		lost = lost || fault.OutcomeOf(err) == fault.NotDone
		e.renew()
	}

	session.rollback()
	return lost, err
}

// Reader implements Engine.
func (e *postgresEngine) Reader() Querier { return e }

// HasSchema implements Engine.
func (e *postgresEngine) HasSchema(ctx context.Context) (bool, error) {
	return postgresSchema.exists(ctx, e.Reader())
}

func (e *postgresEngine) Kind() string          { return Postgres }
func (e *postgresEngine) Announce(wakes []Wake) { e.announcer.add(wakes) }

func (e *postgresEngine) Ping(ctx context.Context) error {
	err := e.pool.Ping(ctx)
	if err != nil && ctx.Err() == nil && e.lostRead(err) {
		err = e.pool.Ping(ctx)
	}
	if err != nil {
		return Unavailable("ping", err)
	}
	return nil
}

func (e *postgresEngine) Close() error {
	e.endLooks()
	e.looks.Wait()
	e.announcer.stop()
	e.pool.Close()
	return nil
}

// repeatable reports whether the same transaction may succeed now: a serialization failure, a deadlock, or one of the
// unique indexes that decide races between nodes.
func repeatable(err error) bool {
	var failure *pgconn.PgError
	if !errors.As(err, &failure) {
		return false
	}

	switch failure.Code {
	case "40001", "40P01":
		return true
	case "23505":
		return failure.ConstraintName == "jobs_running" || failure.ConstraintName == "events_pkey"
	}
	return false
}

// postgresFault classes an error: what the statement itself got wrong stays as it is, everything else means that
// the database cannot serve now (PostgreSQL manual, appendix A: classes 08, 25, 40, 53, 55, 57, 58, XX).
func postgresFault(operation string, err error) error {
	if err == nil || fault.Is(err, fault.Unavailable) {
		return err
	}
	var failure *pgconn.PgError
	if !errors.As(err, &failure) {
		return Unavailable(operation, err)
	}
	if postgresDamaged(failure) {
		return damagedStore(operation, err)
	}

	for _, class := range []string{"08", "25", "40", "53", "55", "57", "58", "XX"} {
		if strings.HasPrefix(failure.Code, class) {
			return Unavailable(operation, err)
		}
	}
	if repeatable(err) {
		return Unavailable(operation, err)
	}

	return operationError{operation, err}
}

const (
	// connectionLife is after which a connection is replaced when it is next needed, at the latest a third later: a server
	// that was promoted, or came back behind the same name, gets its share without a restart of ours.
	connectionLife = 30 * time.Minute
	// connectionIdle ends connections that are not needed.
	connectionIdle = 5 * time.Minute
	// connectPatience bounds one attempt to connect to one host.
	connectPatience = 10 * time.Second
	// rollbackPatience bounds the end of a transaction that failed.
	rollbackPatience = 5 * time.Second
)

// errOld reports that a connection has lived its time.
var errOld = errors.New("the connection has lived its time")

// postgresConfig reads a URL as pgx and PostgreSQL's own tools do, several hosts included. Where neither it nor the environment
// names the kind of server that is wanted (target_session_attrs), it is one that can be written to. Schema is the search_path of the URL.
func postgresConfig(text string) (config *pgxpool.Config, schema string, err error) {
	config, err = pgxpool.ParseConfig(text)
	if err != nil {
		return nil, "", err
	}
	if config.HealthCheckPeriod <= 0 {
		return nil, "", errors.New("pool_health_check_period must be longer than 0") // pgxpool would panic
	}

	wire := config.ConnConfig
	if wire.ValidateConnect == nil && !written(text, "target_session_attrs") && os.Getenv("PGTARGETSESSIONATTRS") == "" {
		wire.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}

	if wire.RuntimeParams["application_name"] == "" {
		wire.RuntimeParams["application_name"] = "inbox"
	}
	if wire.ConnectTimeout == 0 {
		wire.ConnectTimeout = connectPatience
	}

	closes := wire.OnPgError
	wire.OnPgError = func(connection *pgconn.PgConn, failure *pgconn.PgError) bool {
		return closes(connection, failure) && !unfit(failure)
	}

	schema = wire.RuntimeParams["search_path"]
	delete(wire.RuntimeParams, "search_path")
	patience := wire.ConnectTimeout
	wire.AfterConnect = func(ctx context.Context, connection *pgconn.PgConn) error {
		ctx, cancel := context.WithTimeout(ctx, patience) // a pool connects without the deadline of a caller
		defer cancel()
		return setSession(ctx, connection, schema)
	}
	if !written(text, "pool_max_conn_lifetime") {
		config.MaxConnLifetime = connectionLife
	}
	if !written(text, "pool_max_conn_lifetime_jitter") {
		config.MaxConnLifetimeJitter = config.MaxConnLifetime / 3
	}
	if !written(text, "pool_max_conn_idle_time") {
		config.MaxConnIdleTime = connectionIdle
	}
	return config, schema, nil
}

// setSession makes the settings of a new session.
func setSession(ctx context.Context, connection *pgconn.PgConn, schema string) error {
	if _, err := connection.Exec(ctx, sessionSettings).ReadAll(); err != nil || schema == "" {
		return err
	}
	return connection.ExecParams(ctx, "SELECT set_config('search_path', $1, false)", [][]byte{[]byte(schema)}, nil, nil, nil).Read().Err
}

// written reports whether a URL has a parameter, which its configuration does not tell from a default.
func written(text, parameter string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Query().Has(parameter)
}

// unfit reports whether a connection must not be used again although PostgreSQL has not ended it: its session is read-only
// (25006), or the server or something before it is going away (57P, 08; PostgreSQL manual, appendix A). pgconn closes those
// that end with FATAL by itself; a proxy may say the same with ERROR.
func unfit(failure *pgconn.PgError) bool {
	return failure.Code == "25006" || strings.HasPrefix(failure.Code, "57P") || strings.HasPrefix(failure.Code, "08")
}

// readOnly reports whether the session or its server takes no changes.
func readOnly(err error) bool {
	failure, found := errors.AsType[*pgconn.PgError](err)
	return found && failure.Code == "25006"
}

// sessionSettings bound how long PostgreSQL keeps the locks of a node that hangs in a transaction (longer than maxWait), and of one whose
// machine is gone. Those of the planner are for statements that read few rows: by its defaults, which are for disks that turn, PostgreSQL reads
// and sorts all of a range of an index for the newest fifty, and compiles statements for longer than they run. They are not parameters of the
// connection, because poolers refuse these.
const sessionSettings = "SET idle_in_transaction_session_timeout = '60s'; " +
	"SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3; " +
	"SET random_page_cost = 1.1; SET jit = off"

// openPostgresPool makes a pool; it connects when it is first used. Connections that were made together do not end together, and those to a
// former primary are replaced where the newest one is known; nil = it is not.
func openPostgresPool(config *pgxpool.Config, connections int, known *primary) (*pgxpool.Pool, error) {
	config = config.Copy()
	config.MaxConns = int32(connections)
	config.MinConns, config.MinIdleConns = min(config.MinConns, config.MaxConns), min(config.MinIdleConns, config.MaxConns)
	if known != nil {
		config.BeforeConnect = func(_ context.Context, wire *pgx.ConnConfig) error {
			known.putFirst(&wire.Config)
			return nil
		}
		config.PrepareConn = func(_ context.Context, connection *pgx.Conn) (bool, error) {
			return known.usable(connection.PgConn()), nil
		}
	}
	return pgxpool.NewWithConfig(context.Background(), config)
}

// unusablePostgres names the servers that were tried, and what to do.
func unusablePostgres(config *pgx.ConnConfig, err error) string {
	hosts := []string{config.Host + ":" + strconv.Itoa(int(config.Port))}
	for _, other := range config.Fallbacks {
		if host := other.Host + ":" + strconv.Itoa(int(other.Port)); host != hosts[len(hosts)-1] { // the same again without TLS
			hosts = append(hosts, host)
		}
	}

	text := "PostgreSQL at " + strings.Join(hosts, ", ") + " cannot be used; "
	if errors.Is(err, errShared) {
		return text + errShared.Error()
	}
	if errors.Is(err, errSilent) {
		return text + errSilent.Error()
	}
	if former, is := errors.AsType[*formerPrimary](err); is {
		return text + former.Error()
	}
	if other, is := errors.AsType[*otherCluster](err); is {
		return text + other.Error()
	}
	if failure, is := errors.AsType[*pgconn.PgError](err); is {
		switch failure.Code {
		case "42P05", "26000":
			return text + errShared.Error()
		case "53300":
			return text + "no connection is free: raise max_connections, or the limit of the role or the database, or lower database.connections"
		case "08P01":
			return text + "a pooler refuses the connection: if it lacks room, raise max_client_conn and default_pool_size of PgBouncer, or lower database.connections"
		}
	}
	if errors.Is(err, pgconn.ErrReadOnlyConnection) || readOnly(err) {
		return text + "it is read-only: name the primary in database_url, or make the server writable"
	}
	return text + "check database_url and that the server runs"
}

// postgresSession is one transaction. Statements whose result no caller needs wait for the next one whose result a caller
// does need and travel with it in one batch: an acceptance takes two round trips instead of six.
type postgresSession struct {
	connection *pgx.Conn
	pending    pgx.Batch
	begun      bool
}

func (s *postgresSession) Do(_ context.Context, query string, arguments ...any) error {
	s.queue(query, arguments)
	return nil
}

func (s *postgresSession) Change(ctx context.Context, query string, arguments ...any) (changed int64, err error) {
	s.queue(query, arguments).Exec(func(tag pgconn.CommandTag) error {
		changed = tag.RowsAffected()
		return nil
	})
	return changed, postgresFault("write", s.send(ctx))
}

func (s *postgresSession) Each(ctx context.Context, query string, arguments []any, scan func(Row) error) error {
	var scanned error
	s.queue(query, arguments).Query(func(rows pgx.Rows) error {
		for scanned == nil && rows.Next() {
			scanned = scan(rows)
		}
		return nil // what the database has to say, send returns
	})

	err := s.send(ctx)
	if scanned != nil {
		return scanned
	}
	return postgresFault("read", err)
}

func (s *postgresSession) queue(query string, arguments []any) *pgx.QueuedQuery {
	if !s.begun {
		s.begun = true
		s.pending.Queue("BEGIN")
	}
	writeCount.Inc()
	return s.pending.Queue(query, arguments...)
}

// send sends the pending statements in one batch and returns the first error. PostgreSQL skips the statements after the one that failed.
func (s *postgresSession) send(ctx context.Context) error {
	batch := s.pending
	s.pending = pgx.Batch{}
	roundTrips.Inc()
	return s.connection.SendBatch(ctx, &batch).Close()
}

// errRolledBack is what the COMMIT of a transaction comes to in which a statement failed.
var errRolledBack = errors.New("PostgreSQL rolled the transaction back")

// commit sends COMMIT. It is done when PostgreSQL confirms it, whatever happens to the connection afterwards; a transaction in which
// a statement failed is confirmed as rolled back.
func (s *postgresSession) commit(ctx context.Context) error {
	if !s.begun {
		return nil
	}

	done := false
	s.pending.Queue("COMMIT").Exec(func(tag pgconn.CommandTag) error {
		if done = tag.String() == "COMMIT"; !done {
			return errRolledBack
		}
		return nil
	})
	err := s.send(ctx)

	switch {
	case done:
		return nil
	case s.unanswered(err):
		return unknown("commit", err)
	}
	return postgresFault("commit", err)
}

// unanswered reports whether the connection was lost after COMMIT was sent and before PostgreSQL answered. The outcome is known in three other
// cases: the connection is still open, so the error is PostgreSQL's answer; the transaction was read-only, so nothing was to be committed; or pgx could
// not prepare a statement of the batch, so the batch was not sent.
func (s *postgresSession) unanswered(err error) bool {
	_, prepares := errors.AsType[pgx.ErrPreprocessingBatch](err)
	return s.connection.IsClosed() && !prepares && !pgconn.SafeToRetry(err) && !readOnly(err)
}

// rollback ends a transaction that was not committed. Where it fails, the pool ends the connection.
func (s *postgresSession) rollback() {
	if s.connection.IsClosed() || s.connection.PgConn().TxStatus() == 'I' {
		return
	}

	ctx, cancel := context.WithTimeout(context.Background(), rollbackPatience)
	defer cancel()
	_, _ = s.connection.Exec(ctx, "ROLLBACK")
}

// Size returns the bytes of the database. How many of them hold nothing, PostgreSQL does not say without an extension: 0.
func (e *postgresEngine) Size(ctx context.Context) (total, free int64, err error) {
	err = e.Each(ctx, `SELECT pg_database_size(current_database())`, nil, func(r Row) error { return r.Scan(&total) })
	return total, 0, err
}

// vacuumed are the tables that had something of a person.
var vacuumed = []string{
	"turns", "turn_parties", "originals", "events", "replies", "deliveries", "jobs", "documents", "tokens", "demands", "audit", "links", "dispatches",
	"tool_requests", "task_runs", "destinations", "list_entries", "mail_suppressions", "mail_failures", "watches", "bridge_items", "sessions",
	"session_map", "session_messages", "unanswered", "run_results", "erasures", "erasure_turns",
	"arrivals", "search_words", "search_pending", "mails", "mail_gone", "mail_words", "mail_originals", "notices", "notice_ways", "notice_tallies", "notice_conditions",
}

// Replaced does nothing: PostgreSQL forgets replaced rows by itself.
func (e *postgresEngine) Replaced(context.Context) {}

// ForgetFree lets PostgreSQL forget removed rows at once.
func (e *postgresEngine) ForgetFree(ctx context.Context) (remains []string, err error) {
	remains = []string{"the write-ahead log, archives and replicas of PostgreSQL keep removed rows as long as they are set to"}
	for _, table := range vacuumed {
		if _, err := e.pool.Exec(ctx, "VACUUM "+table); err != nil {
			if ctx.Err() != nil {
				return nil, Unavailable("vacuum", err)
			}
			return append(remains, "PostgreSQL did not let this user vacuum "+table+"; its autovacuum does it later"), nil
		}
	}
	return remains, nil
}
