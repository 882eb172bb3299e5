package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"time"

	"inbox/engine/delivery"
	"inbox/engine/store"
	"inbox/engine/store/database"
	"inbox/exchange"
	"inbox/internal/blob"
	"inbox/internal/disk"
	"inbox/internal/fault"
)

// Target is where one domain goes.
type Target struct {
	Domain  string
	Store   store.Options
	Name    string // of the database, as it may be shown
	DataDir string
	Blobs   func() (blob.Backend, error)
	// Settle does what else has to be done to the rows before they may be served; nil = nothing.
	Settle func(ctx context.Context, opened *store.Store) error
}

// ReportFile has in a data directory what a restore may have made twice, one JSON value a line, the first being a Restored.
const ReportFile = "restored.jsonl"

// Restored is what a restore did with one domain, and how much of it may have been sent before.
type Restored struct {
	Domain     string    `json:"domain"`
	Backup     string    `json:"backup"`
	Moment     time.Time `json:"moment"` // what the old server took, sent and did afterwards is not known
	At         time.Time `json:"restored_at"`
	Rows       int64     `json:"rows"`
	Contents   int64     `json:"contents"`
	Turns      int64     `json:"uncertain_turns"`      // not ended at the moment: they run again
	Deliveries int64     `json:"uncertain_deliveries"` // not made at the moment: they are made again
	Held       int64     `json:"held_deliveries"`      // of those, that wait for the operator instead
}

// Uncertain is a turn that may have been answered, or a delivery that may have been made, by the old server after the backup.
type Uncertain struct {
	Kind     string    `json:"kind"` // turn or delivery
	ID       string    `json:"id"`
	TurnID   string    `json:"turn_id,omitempty"` // of a delivery
	Agent    string    `json:"agent"`
	Channel  string    `json:"channel"`
	State    string    `json:"state"` // at the moment of the backup
	To       string    `json:"to"`    // address of a delivery, sender of a turn
	NativeID string    `json:"native_id,omitempty"`
	Held     bool      `json:"held,omitempty"`
	At       time.Time `json:"at"` // when it was accepted or made
}

// RestoreOptions say what is restored where.
type RestoreOptions struct {
	Directory string
	Manifest  *Manifest
	Targets   []Target // of each domain of the backup, in its order
	// Hold are channels whose uncertain deliveries wait for the operator; "all" = those of every channel.
	Hold     []string
	Progress func(Progress)
}

// Restore makes the databases and files of a backup. It refuses, before it changes anything, a damaged backup and a place that is in use.
// What a restore left that did not end is removed.
func Restore(ctx context.Context, o RestoreOptions) (restored []Restored, err error) {
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	for _, file := range o.Manifest.all() {
		o.Progress(Progress{Step: "checking " + file.Path})
		if err := checkFile(path(o.Directory, o.Manifest.Name, file), file); err != nil {
			return nil, fmt.Errorf("backup %s is damaged: %w; inbox verify lists everything that is wrong, and --snapshot takes another one", o.Manifest.Name, err)
		}
	}

	backends := make([]blob.Backend, len(o.Targets))
	ids := make([]string, len(o.Targets))
	for i := range o.Targets {
		target := &o.Targets[i]
		if err := mayRestore(ctx, target); err != nil {
			return nil, err
		}
		if backends[i], err = target.Blobs(); err != nil {
			return nil, err
		}
		if ids[i], err = o.blobsID(i); err != nil {
			return nil, err
		}
		there, err := backends[i].ID(ctx)
		if err != nil {
			return nil, err
		}
		if there != "" && there != ids[i] {
			return nil, fmt.Errorf("blob_url: the place of the files of %s has those of another server (%s): name its own place", target.Domain, there)
		}
	}

	for i := range o.Targets {
		text := "backup " + o.Manifest.Name + " of " + o.Directory
		if err := beginUnfinished(o.Targets[i].DataDir, text); err != nil {
			return nil, err
		}
	}
	for i := range o.Targets {
		one, err := o.domain(ctx, i, backends[i], ids[i])
		if err != nil {
			return restored, fmt.Errorf("restore %s: %w; nothing serves it until inbox restore has ended: run it again", o.Targets[i].Domain, err)
		}
		restored = append(restored, one)
	}
	for i := range o.Targets {
		if err := endUnfinished(o.Targets[i].DataDir); err != nil {
			return restored, err
		}
	}
	return restored, nil
}

// mayRestore refuses a place that is in use.
func mayRestore(ctx context.Context, target *Target) error {
	if err := os.MkdirAll(target.DataDir, 0o700); err != nil {
		return fmt.Errorf("data_dir: cannot make %s: %w", target.DataDir, disk.Cause(err))
	}
	if _, err := os.Stat(filepath.Join(target.DataDir, store.UnfinishedFile)); err == nil && target.Store.URL == "sqlite" {
		return nil // its file may be half written
	}

	found, err := store.Look(ctx, target.Store)
	switch {
	case err != nil:
		return fmt.Errorf("%s cannot be opened: %w", target.Name, err)
	case found.Used && found.Marks.Unfinished == "":
		return fmt.Errorf("%s is in use: a restore puts nothing into a database that has rows. Name another one (--database-url, --data-dir or the "+
			"configuration), or stop its server and move the database away", target.Name)
	}
	return nil
}

func beginUnfinished(dataDir, text string) error {
	if err := disk.WritePrivate(filepath.Join(dataDir, store.UnfinishedFile), text+"\n"); err != nil {
		return fmt.Errorf("data_dir: cannot write %s: %w", store.UnfinishedFile, disk.Cause(err))
	}
	return syncDirectory(dataDir)
}

func endUnfinished(dataDir string) error {
	err := os.Remove(filepath.Join(dataDir, store.UnfinishedFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("data_dir: cannot remove %s: %w", store.UnfinishedFile, disk.Cause(err))
	}
	return syncDirectory(dataDir)
}

// filesDocument is where a database keeps the id of the place of its files.
const filesNamespace, filesKey = "database", "files"

// blobsID reads the id that the place of the files had.
func (o RestoreOptions) blobsID(number int) (id string, err error) {
	domain := &o.Manifest.Domains[number]
	at := slices.IndexFunc(domain.Tables, func(table Table) bool { return table.Table == "documents" })
	if at < 0 {
		return "", nil
	}
	err = o.rows(domain.Tables[at], func(table database.Table, next func() ([]any, bool, error)) error {
		for {
			values, more, err := next()
			if err != nil || !more {
				return err
			}
			row := map[string]any{}
			for i, column := range table.Columns {
				row[column.Name] = values[i]
			}
			if row["namespace"] == filesNamespace && row["key"] == filesKey {
				id, _ = row["value"].(string)
			}
		}
	})
	return id, err
}

func (o RestoreOptions) rows(table Table, use func(database.Table, func() ([]any, bool, error)) error) (err error) {
	in, err := openLines(path(o.Directory, o.Manifest.Name, table.File))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	reader := newRowReader(table.table(), in)
	return use(reader.table, reader.next)
}

// domain restores one domain: rows, files, then the migrations of this version and what must not be as it was.
func (o RestoreOptions) domain(ctx context.Context, number int, files blob.Backend, id string) (restored Restored, err error) {
	from, target := &o.Manifest.Domains[number], &o.Targets[number]
	restored = Restored{Domain: from.Domain, Backup: o.Manifest.Name, Moment: from.Moment, At: time.Now().UTC()}

	loader, err := database.NewLoader(ctx, target.Store.Database(), from.SchemaVersion, "restore of backup "+o.Manifest.Name)
	if err != nil {
		return restored, err
	}
	for _, table := range from.Tables {
		loaded := int64(0)
		err := o.rows(table, func(as database.Table, next func() ([]any, bool, error)) error {
			_, err := loader.Load(ctx, as, func() ([]any, bool, error) {
				if loaded%progressRows == 0 {
					o.Progress(Progress{"rows of " + table.Table, loaded, table.Rows})
				}
				values, more, err := next()
				if more {
					loaded++
				}
				return values, more, err
			})
			return err
		})
		if err == nil && loaded != table.Rows {
			err = fmt.Errorf("%s has %d rows, and had %d", table.Path, loaded, table.Rows)
		}
		if err != nil {
			loader.Abandon()
			return restored, err
		}
		restored.Rows += loaded
	}
	if err := loader.Close(ctx); err != nil {
		return restored, err
	}

	if restored.Contents, err = o.contents(ctx, from, files); err != nil {
		return restored, err
	}
	if id != "" {
		if err := files.SetID(ctx, id); err != nil {
			return restored, err
		}
	}

	opened, err := store.Open(ctx, target.Store) // migrates
	if err != nil {
		return restored, err
	}
	err = o.settle(ctx, opened, target, &restored)
	return restored, errors.Join(err, opened.Close())
}

// contents puts the files of a domain where its server keeps them.
func (o RestoreOptions) contents(ctx context.Context, from *Domain, files blob.Backend) (count int64, err error) {
	kept, err := blob.OpenFiles(filepath.Join(o.Directory, blobsDirectory), blob.Options{MaxBytes: maxContent})
	if err != nil {
		return 0, err
	}
	err = eachContent(path(o.Directory, o.Manifest.Name, from.Contents), func(digest string, _ int64) error {
		o.Progress(Progress{"files", count, from.ContentCount})
		count++
		if _, err := files.Stat(ctx, digest); err == nil {
			return nil
		}
		content, err := kept.Open(ctx, digest)
		if err != nil {
			return fmt.Errorf("the file %s is not in the backup any more: %w", digest, err)
		}
		put, _, err := files.Put(ctx, content)
		if err == nil && put != digest {
			err = fmt.Errorf("the file %s is damaged in the backup", digest)
		}
		return errors.Join(err, content.Close())
	})
	return count, err
}

// settle lists what may have been sent before, holds what the operator wants held, and says that the database may be served.
func (o RestoreOptions) settle(ctx context.Context, opened *store.Store, target *Target, restored *Restored) (err error) {
	file, err := os.CreateTemp(target.DataDir, ReportFile+"-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(file.Name()) }() // of no effect when it got its name
	out := newEncoder(file)

	// The first line has the numbers, which are known at the end: the rows are counted before they are written.
	var held []delivery.Record
	err = o.uncertain(ctx, opened, func(one Uncertain, record *delivery.Record) error {
		restored.count(one)
		if one.Held {
			held = append(held, *record)
		}
		return nil
	})
	if err == nil {
		err = out.Encode(restored)
	}
	if err == nil {
		err = o.uncertain(ctx, opened, func(one Uncertain, _ *delivery.Record) error { return out.Encode(one) })
	}
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), filepath.Join(target.DataDir, ReportFile)); err != nil {
		return err
	}

	if err := o.hold(ctx, opened, held); err != nil {
		return err
	}
	if target.Settle != nil {
		if err := target.Settle(ctx, opened); err != nil {
			return err
		}
	}
	return opened.Complete(ctx)
}

func (r *Restored) count(one Uncertain) {
	switch {
	case one.Kind == "turn":
		r.Turns++
	case one.Held:
		r.Held++
		r.Deliveries++
	default:
		r.Deliveries++
	}
}

const page = 500

// uncertain visits the turns that had not ended and the deliveries that were not made.
func (o RestoreOptions) uncertain(ctx context.Context, opened *store.Store, visit func(Uncertain, *delivery.Record) error) error {
	for turn, err := range openTurns(ctx, opened) {
		if err == nil {
			err = visit(Uncertain{
				Kind: "turn", ID: turn.ID, Agent: turn.Agent, Channel: turn.Channel, State: turn.State, To: turn.Message.Sender.Address.String(),
				NativeID: turn.Message.ID, At: turn.AcceptedAt,
			}, nil)
		}
		if err != nil {
			return err
		}
	}

	for _, state := range []string{delivery.StateSending, delivery.StatePending, delivery.StateRetry} {
		for before := ""; ; {
			records, err := opened.Deliveries(ctx, delivery.Filter{State: state, Before: before, Limit: page})
			if err != nil {
				return err
			}
			for i := range records {
				before = records[i].ID
				one := Uncertain{
					Kind: "delivery", ID: before, TurnID: records[i].TurnID, Agent: records[i].Agent, Channel: records[i].Channel, State: state,
					To: records[i].Address, NativeID: records[i].NativeID, At: records[i].CreatedAt,
					Held: slices.Contains(o.Hold, "all") || slices.Contains(o.Hold, records[i].Channel),
				}
				if err := visit(one, &records[i]); err != nil {
					return err
				}
			}
			if len(records) < page {
				break
			}
		}
	}
	return nil
}

func openTurns(ctx context.Context, opened *store.Store) iter.Seq2[exchange.TurnRecord, error] {
	return func(yield func(exchange.TurnRecord, error) bool) {
		filter := exchange.TurnFilter{ByArrival: true, Limit: page, States: []string{
			exchange.StateAccepted, exchange.StateRunning, exchange.StateWaiting, exchange.StateHeld,
		}}
		for {
			turns, err := opened.Turns(ctx, filter)
			if err != nil {
				yield(exchange.TurnRecord{}, err)
				return
			}
			for _, turn := range turns {
				filter.Before = exchange.TurnCursor(turn)
				if !yield(turn, nil) {
					return
				}
			}
			if len(turns) < page {
				return
			}
		}
	}
}

// heldReason is the reason of a delivery that waits for the operator.
const heldReason = "restored from a backup, and it may have been sent before: inbox deliveries retry sends it under the same id"

// hold cancels deliveries, which the operator can put back to work.
func (o RestoreOptions) hold(ctx context.Context, opened *store.Store, records []delivery.Record) error {
	body, err := json.Marshal(map[string]string{"reason": heldReason})
	if err != nil {
		return err
	}
	for _, record := range records {
		err := opened.InTx(ctx, func(tx *store.Tx) error {
			_, err := tx.MoveDelivery(ctx, delivery.Move{
				ID: record.ID, From: []string{delivery.StateSending, delivery.StatePending, delivery.StateRetry}, To: delivery.StateCancelled,
				Reason: heldReason, Attempt: record.Attempt, At: time.Now(), Event: exchange.Event{Kind: exchange.EventDeliveryCanceled, Body: body},
			})
			return err
		})
		if err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
	}
	return nil
}

// ReadReport reads what the last restore of a data directory may have made twice; fault.NotFound where none was.
func ReadReport(dataDir string, visit func(Uncertain) error) (restored Restored, err error) {
	file, err := os.Open(filepath.Join(dataDir, ReportFile))
	if errors.Is(err, fs.ErrNotExist) {
		return restored, fault.Newf(fault.NotFound, "%s has no %s: nothing was restored there", dataDir, ReportFile)
	}
	if err != nil {
		return restored, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()

	decoder := json.NewDecoder(file)
	if err := decoder.Decode(&restored); err != nil {
		return restored, fmt.Errorf("%s cannot be read: %w", ReportFile, err)
	}
	for decoder.More() {
		var one Uncertain
		if err := decoder.Decode(&one); err != nil {
			return restored, fmt.Errorf("%s cannot be read: %w", ReportFile, err)
		}
		if err := visit(one); err != nil {
			return restored, err
		}
	}
	return restored, nil
}
