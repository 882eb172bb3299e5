// Package store keeps everything that must survive a crash: turns with their originals and timelines, replies,
// deliveries, jobs, demands, dispatches, tool requests, linked people, the audit trail, the adapters' documents and
// tokens, in SQLite or PostgreSQL. It holds the only SQL of the server and returns to each consumer the view that it declared (Pipeline,
// Delivery, Queue, State). It decides nothing about messages: every rule beyond row integrity is the caller's.
package store

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/engine/delivery"
	"inbox/engine/pipeline"
	"inbox/engine/store/database"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/internal/telemetry"
)

// Label outcome: committed, undone (the caller's own error), failed (the database's), unknown (COMMIT without an answer).
var transactionSeconds = promauto.NewHistogramVec(prometheus.HistogramOpts{
	Name: "inbox_store_transaction_seconds", Help: "From the call to the commit, waiting included.",
	Buckets: telemetry.FastSeconds,
}, []string{"outcome"})

// Channels of Options.Notify; what their payloads are, package database says.
const (
	ChannelJob    = database.ChannelJob
	ChannelTurn   = database.ChannelTurn
	ChannelLists  = database.ChannelLists
	ChannelTokens = database.ChannelTokens
	ChannelBridge = database.ChannelBridge
)

// File is the name of the SQLite database in the data directory.
const File = database.File

// Options configure Open. The zero value of a field means its default.
type Options struct {
	// URL is "sqlite" (a file in DataDir, the default) or "postgres://…" as PostgreSQL's own tools read it.
	URL string
	// DataDir holds the SQLite file inbox.db and is created when missing. For PostgreSQL it keeps the newest timeline; empty = this process only.
	DataDir string
	// Connections bounds the PostgreSQL connections of this node, 16 by default; one more is kept by Listen.
	Connections int
	// RequireSynchronous refuses transactions while PostgreSQL would not wait for a synchronous standby.
	RequireSynchronous bool
	// Readers is the number of SQLite connections that read beside the writer, 4 by default.
	Readers int
	// Notify is called after a commit of this process that others may wait for. It must not block; it may be called by several
	// goroutines at once and more often than needed.
	Notify func(channel, payload string)
	// Elsewhere is called by Listen for commits of other nodes, as Notify is; Notify when nil.
	Elsewhere func(channel, payload string)
	// Now is this node's clock; time.Now when nil. Instants of callers are read by it.
	Now func() time.Time
	// AsFound leaves the schema as it is, also an older one: no migration runs, and nothing is swept. For those who only read the rows as a
	// whole (Snapshot) and write documents.
	AsFound bool
	// NoUpgrade refuses an older schema (database.OlderSchema), on which a server of that version may be running. An empty database gets the newest one.
	NoUpgrade bool
	// Ceilings returns how long what ended is kept at most, by kind; 0 or absent = for ever. DefaultCeilings when nil.
	Ceilings func() Periods
	// Logger gets what no caller can be told: reconnects, a failing sweep. slog.Default when nil.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.URL == "" {
		o.URL = "sqlite"
	}
	if o.Connections <= 0 {
		o.Connections = 16
	}
	if o.Readers <= 0 {
		o.Readers = 4
	}
	if o.Notify == nil {
		o.Notify = func(string, string) {}
	}
	if o.Elsewhere == nil {
		o.Elsewhere = o.Notify
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Ceilings == nil {
		o.Ceilings = DefaultCeilings
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}

	return o
}

// Database returns what the database needs of them, with defaults.
func (o Options) Database() database.Options {
	o = o.withDefaults()
	return database.Options{
		URL: o.URL, DataDir: o.DataDir, Connections: o.Connections, RequireSynchronous: o.RequireSynchronous, Readers: o.Readers, AsFound: o.AsFound, NoUpgrade: o.NoUpgrade,
		Logger: o.Logger,
	}
}

// Store is one open database with everything that is kept in it. It is safe for use by many goroutines.
type Store struct {
	*shared

	turnStore
	replyStore
	deliveryStore
	demandStore
	callStore
	sessionStore
	documentStore
	jobStore
	watchStore
	backEndStore
	resultStore
	noticeStore
	takeoverStore

	arrivalStore
	searchStore

	personStore
	listStore
	quotaStore
	tokenStore
	consoleStore
	readStore
	auditStore

	erasureStore
	retentionStore
	personEraser
	usageStore
	statisticsStore
	contentStore
	uploadStore
	mailStore
	sweeper
}

// newStore puts the topics on one database.
func newStore(db *shared) *Store {
	return &Store{
		db, turnStore{db}, replyStore{db, new(countCache)}, deliveryStore{db}, demandStore{db}, callStore{db}, sessionStore{db},
		documentStore{db}, jobStore{db}, watchStore{db}, backEndStore{db}, resultStore{db}, noticeStore{db}, takeoverStore{db},
		arrivalStore{db}, searchStore{db},
		personStore{db}, listStore{db}, quotaStore{db}, tokenStore{db}, consoleStore{db}, readStore{db}, auditStore{db},
		erasureStore{db}, retentionStore{db}, personEraser{db}, usageStore{db}, statisticsStore{db}, contentStore{db}, uploadStore{db}, mailStore{db}, sweeper{db},
	}
}

// shared is what all topics of a Store share: the connection and its transactions.
type shared struct {
	*storeClock

	engine     database.Engine
	dialect    *dialect
	options    Options
	probe      string // key of this process's row that Probe writes
	cancel     context.CancelFunc
	tasks      sync.WaitGroup
	words      database.Engine // has the search index: engine itself on PostgreSQL; nil = not opened
	indexer    *indexer
	background *background
	tuning     searchTuning

	earlierTurns, earlierCalls existence // of conversations from before ids were made of names
	stranded                   strandedCheck
	lost                       lostCheck
}

// Topics of the same database, for the steps of one that are another's.
func (d *shared) sessions() sessionStore { return sessionStore{d} }
func (d *shared) quotas() quotaStore     { return quotaStore{d} }
func (d *shared) erasure() erasureStore  { return erasureStore{d} }
func (d *shared) arrivals() arrivalStore { return arrivalStore{d} }
func (d *shared) search() searchStore    { return searchStore{d} }

// CheckURL reports what Open would refuse of Options.URL before it connects.
func CheckURL(address string) error { return database.CheckURL(address) }

// Open connects, applies the migrations and starts the background sweep. The error of a database that cannot be
// used is fault.Unavailable and names what to change.
func Open(ctx context.Context, options Options) (*Store, error) {
	for _, outcome := range []string{"committed", "undone", "failed", "unknown"} {
		transactionSeconds.WithLabelValues(outcome) // from 0 on, so that an alert sees the first one
	}
	countLostFromZero()

	options = options.withDefaults()
	opened, err := database.Open(ctx, options.Database())
	if err != nil {
		return nil, err
	}

	running, cancel := context.WithCancel(context.Background())
	s := newStore(&shared{
		storeClock: &storeClock{local: options.Now}, engine: opened, dialect: dialects[opened.Kind()], options: options, probe: rand.Text(), cancel: cancel,
		indexer: &indexer{due: make(chan struct{}, 1)}, background: newBackground(), tuning: defaultTuning, lost: lostCheck{after: map[*rowsWithJob]string{}},
	})
	if err := s.setClock(ctx); err != nil {
		cancel()
		return nil, errors.Join(err, opened.Close())
	}
	if options.AsFound {
		return s, nil
	}
	if err := s.openWords(ctx); err != nil {
		cancel()
		return nil, errors.Join(err, opened.Close())
	}
	s.tasks.Go(func() { s.sweep(running, time.Minute) })
	if opened.Kind() == database.Postgres {
		s.tasks.Go(func() { s.watchClock(running) })
	}

	return s, nil
}

// Close waits for transactions that have begun, refuses new ones and releases the database. It is harmless to
// close again.
func (d *shared) Close() error {
	d.cancel()
	d.tasks.Wait()
	if d.words == nil || d.words == d.engine {
		return d.engine.Close()
	}
	return errors.Join(d.words.Close(), d.engine.Close())
}

// Snapshot opens a view of the whole database at this moment. Writers are not held up.
func (d *shared) Snapshot(ctx context.Context) (*database.Snapshot, error) {
	return d.engine.Snapshot(ctx, d.options.Now())
}

// Ping reports whether the database answers; its error is fault.Unavailable.
func (d *shared) Ping(ctx context.Context) error { return d.engine.Ping(ctx) }

// InUse reports whether the database has been used: it has a message, or a document that is meant to stay, such as a key.
func (d *shared) InUse(ctx context.Context) (bool, error) {
	var one int64
	for _, query := range []string{`SELECT 1 FROM turns LIMIT 1`, `SELECT 1 FROM documents WHERE expires_at = 0 LIMIT 1`} {
		if used, err := first(ctx, d.engine.Reader(), query, nil, &one); err != nil || used {
			return used, err
		}
	}
	return false, nil
}

// probeSpace is the namespace of the documents that Probe writes: one for each process, for at most two hours.
const probeSpace = "probe"

// The rows of a message that Probe writes and removes, and the rows that it reads. Where a message goes, pages may be damaged or the disk full,
// while the one row of the probe, which is replaced in its place, is still written.
var (
	rehearsal = []struct {
		query     string
		arguments int // how many of id and time it has
	}{
		{`INSERT INTO turns (id, agent, recipient, received_via, principal, native_id, thread_id, reference, native_key, sender_key, thread_key,
			owner_key, reference_key, state, reason, attempt, reply_id, accepted_at, updated_at, original_digest, route, message)
			VALUES ($1, '', '', '', '', '', '', '', $1, $1, $1, $1, '', 'accepted', '', 0, '', $2, $2, '', '', '')`, 2},
		{`INSERT INTO events (turn_id, seq, kind, body, at) VALUES ($1, 1, '', '', $2)`, 2},
		{`INSERT INTO jobs (id, kind, partition_of, partition_key, state, attempt, run_at, lease_owner, lease_until, fence, created_at, updated_at, reason, payload)
			VALUES ($1, '', '', $1, 'blocked', 0, $2, '', 0, 0, $2, $2, '', '')`, 2},
		{`DELETE FROM jobs WHERE id = $1`, 1},
		{`DELETE FROM events WHERE turn_id = $1`, 1},
		{`DELETE FROM turns WHERE id = $1`, 1},
	}
	rehearsedReads = []string{
		`SELECT state FROM turns ORDER BY id DESC LIMIT 1`, `SELECT state FROM jobs ORDER BY id DESC LIMIT 1`,
		`SELECT state FROM deliveries ORDER BY id DESC LIMIT 1`, `SELECT agent FROM replies ORDER BY id DESC LIMIT 1`,
	}
)

// Probe reports whether the database takes a message now. It commits one row, always the same of this process, together with rows of a
// message that the same transaction removes, and reads from the tables of messages. Its error is fault.Unavailable.
func (d *shared) Probe(ctx context.Context) error {
	now := d.options.Now()
	id := uuid.Must(uuid.NewV7()).String() // a new one, so that the rows go where those of the next message will
	err := d.InTx(ctx, func(tx *Tx) error {
		for _, step := range rehearsal {
			if err := tx.sql.Do(ctx, step.query, []any{id, micros(now)}[:step.arguments]...); err != nil {
				return err
			}
		}
		// An end that moves once an hour keeps PostgreSQL from writing an index for every probe.
		return tx.PutDocument(ctx, probeSpace, d.probe, []byte(now.UTC().Format(time.RFC3339Nano)), now.Truncate(time.Hour).Add(2*time.Hour))
	})

	for _, query := range rehearsedReads { // after the commit: the readers of SQLite then read pages again that they remembered
		if err == nil {
			var state string
			_, err = first(ctx, d.engine.Reader(), query, nil, &state)
		}
	}
	return err
}

// Damage returns the first damage of the database that this process met; nil = none.
func (d *shared) Damage() *database.Damage { return d.engine.Damage() }

// Examine reads the whole database and returns what is wrong with its pages; false where the database has no such check. On SQLite that
// takes as long as reading the file.
func (d *shared) Examine(ctx context.Context) (problems []string, able bool, err error) {
	return d.engine.Examine(ctx)
}

// Listen passes the notifications of other nodes to Options.Elsewhere until ctx ends. It connects again after a
// failure and then notifies with empty payloads, because something may have been missed. On SQLite there are no
// other nodes and it only waits.
func (d *shared) Listen(ctx context.Context) error { return d.engine.Listen(ctx, d.options.Elsewhere) }

// InTx runs work in one transaction: all of it is committed and on disk when InTx returns nil, none of it after an
// error whose fault.OutcomeOf is NotDone, all or none of it when that is Unknown. Errors of work come back as they are; those of
// the database are fault.Unavailable. Work must touch nothing but tx and must bear being run again; on SQLite it runs on the one
// writer, so it must not wait for anything.
func (d *shared) InTx(ctx context.Context, work func(*Tx) error) error {
	var wakes []database.Wake
	var words bool
	begun, done := time.Now(), actOf(ctx)
	err := d.engine.Transact(ctx, func(running database.Session) error {
		tx := newTx(running, d.dialect, d.storeClock)
		err := work(tx)
		if err == nil && done != nil {
			err = tx.Audit(ctx, done.record)
		}
		if err == nil {
			err = tx.writeCounts(ctx)
		}
		wakes, words = tx.wakes, tx.indexes
		return err
	})

	observe(begun, err)
	if err == nil && done != nil {
		done.kept.Store(true)
	}
	if err == nil && words {
		d.indexer.wake()
	}
	if err != nil || len(wakes) == 0 {
		return err
	}

	for _, w := range wakes {
		d.options.Notify(w.Channel, w.Payload)
	}

	d.engine.Announce(wakes)
	return nil
}

// changeOne runs one conditional update in its own transaction and reports whether it met a row.
func (d *shared) changeOne(ctx context.Context, query string, arguments ...any) (bool, error) {
	var changed int64
	err := d.InTx(ctx, func(tx *Tx) (err error) {
		changed, err = tx.sql.Change(ctx, query, arguments...)
		return err
	})
	return err == nil && changed > 0, err
}

func observe(begun time.Time, err error) {
	outcome := "committed"
	switch {
	case fault.OutcomeOf(err) == fault.Unknown:
		outcome = "unknown"
	case fault.Is(err, fault.Unavailable):
		outcome = "failed"
	case err != nil:
		outcome = "undone"
	}

	transactionSeconds.WithLabelValues(outcome).Observe(time.Since(begun).Seconds())
}

// Pipeline returns the view that the pipeline declared.
func (s *Store) Pipeline() pipeline.Store { return pipelineView{s, s.shared} }

// Deliverer returns the view that delivery declared.
func (s *Store) Deliverer() delivery.Store { return deliveryView{s.deliveryStore, s.replyStore} }

// Queue returns the view that the queue declared.
func (d *shared) Queue() queue.Store { return queueView{d} }

// State returns the adapters' private documents.
func (d *shared) State() *State { return &State{d} }

// pipelineView and its like have the methods of their consumer alone: one that embedded the Store would carry a copy of every method that
// any consumer calls.
type pipelineView struct {
	pipeline.Reader
	db *shared
}

// InTx runs work in one transaction; see Store.InTx.
func (v pipelineView) InTx(ctx context.Context, work func(pipeline.Tx) error) error {
	return v.db.InTx(ctx, func(tx *Tx) error { return work(tx) })
}

// EndLinks is that of Store.
func (v pipelineView) EndLinks(ctx context.Context, filter exchange.LinkFilter, end exchange.LinkEnd) ([]exchange.PersonLink, error) {
	return personStore{v.db}.EndLinks(ctx, filter, end)
}

type deliveryView struct {
	deliveryStore
	replyStore
}

// InTx runs work in one transaction; see Store.InTx.
func (v deliveryView) InTx(ctx context.Context, work func(delivery.Tx) error) error {
	return v.deliveryStore.InTx(ctx, func(tx *Tx) error { return work(tx) })
}

// Replication returns what PostgreSQL says about its standbys; false on SQLite, which has none.
func (d *shared) Replication(ctx context.Context) (found database.Replication, has bool, err error) {
	replicated, has := d.engine.(interface {
		Replication(ctx context.Context) (database.Replication, error)
	})
	if !has {
		return found, false, nil
	}
	found, err = replicated.Replication(ctx)
	return found, true, err
}

// SchemaVersion returns the number of the last migration that the database has.
func (d *shared) SchemaVersion(ctx context.Context) (int64, error) {
	var version int64
	_, err := first(ctx, d.engine.Reader(), `SELECT MAX(version_id) FROM goose_db_version`, nil, &version)
	return version, err
}
