package backup

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"inbox/engine/store"
	"inbox/engine/store/database"
)

// MoveOptions say which databases go where: those of From to the Targets at the same places. No server serves them meanwhile.
type MoveOptions struct {
	From     []MoveSource
	Targets  []Target
	Progress func(Progress)
}

// MoveSource is a database that is moved.
type MoveSource struct {
	Domain string
	Store  *store.Store
	Name   string // as it may be shown
}

// Moved says what was moved.
type Moved struct {
	Domain string        `json:"domain"`
	To     string        `json:"to"`
	Rows   int64         `json:"rows"`
	Took   time.Duration `json:"-"`
	Before bool          `json:"before,omitempty"` // an earlier run has copied it
}

// Move copies databases into new ones and then marks them, so that no server starts on them any more. It can be run again after it broke off
// at any place: what was copied whole is not copied again.
func Move(ctx context.Context, o MoveOptions) ([]Moved, error) {
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	moved := make([]Moved, len(o.From))
	for i := range o.From {
		var err error
		moved[i] = Moved{Domain: o.From[i].Domain, To: o.Targets[i].Name}
		if moved[i].Before, err = mayMove(ctx, &o.From[i], &o.Targets[i]); err != nil {
			return nil, err
		}
	}

	for i := range o.From {
		if moved[i].Before {
			continue
		}
		begun := time.Now()
		rows, err := o.copy(ctx, i)
		if err != nil {
			return nil, fmt.Errorf("copy the database of %s: %w; %s is as it was", o.From[i].Domain, err, o.From[i].Name)
		}
		moved[i].Rows, moved[i].Took = rows, time.Since(begun)
	}

	// Nothing was changed until here. A process that dies between two of these steps leaves databases of which none is served,
	// and the next run goes on.
	for i := range o.From {
		if err := o.From[i].Store.MarkMoved(ctx, o.Targets[i].Name); err != nil {
			return nil, fmt.Errorf("mark %s as moved: %w", o.From[i].Name, err)
		}
	}
	for i := range o.Targets {
		if err := complete(ctx, &o.Targets[i]); err != nil {
			return nil, fmt.Errorf("finish %s: %w; run the command again", o.Targets[i].Name, err)
		}
	}
	return moved, nil
}

// mayMove refuses what must not be moved, and reports whether it was copied before.
func mayMove(ctx context.Context, from *MoveSource, target *Target) (before bool, err error) {
	marks, err := from.Store.Marks(ctx)
	if err != nil {
		return false, err
	}
	found, err := store.Look(ctx, target.Store)
	switch {
	case err != nil:
		return false, fmt.Errorf("%s cannot be opened: %w", target.Name, err)
	case marks.Unfinished != "":
		return false, fmt.Errorf("%s is not complete (%s): end that first", from.Name, marks.Unfinished)
	case marks.Moved != "" && marks.Moved != target.Name:
		return false, fmt.Errorf("%s was moved to %s already", from.Name, marks.Moved)
	case marks.Moved != "" && !found.Used:
		return false, fmt.Errorf("%s was moved to %s, and that is empty now: name the right database, or restore it from a backup", from.Name, target.Name)
	case marks.Moved != "":
		return true, nil
	case found.Used && found.Marks.Unfinished == "":
		return false, fmt.Errorf("%s is in use: a database is moved into an empty one only; name another, or drop what is there", target.Name)
	}
	return false, nil
}

func (o MoveOptions) copy(ctx context.Context, number int) (rows int64, err error) {
	view, err := o.From[number].Store.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, view.Close()) }()

	total := int64(0)
	for _, count := range view.Rows {
		total += count
	}
	loader, err := database.NewLoader(ctx, o.Targets[number].Store.Database(), view.Version, "move of "+o.From[number].Name)
	if err != nil {
		return 0, err
	}

	for _, table := range view.Tables {
		next, stop := iter.Pull2(rowsOf(ctx, view, table))
		loaded, err := loader.Load(ctx, table, func() ([]any, bool, error) {
			if rows%progressRows == 0 {
				o.Progress(Progress{"rows", rows, total})
			}
			values, err, more := next()
			if more && err == nil {
				rows++
			}
			return values, more, err
		})
		stop()
		if err == nil && loaded != view.Rows[table.Name] {
			err = fmt.Errorf("%d rows of %s arrived, and there are %d", loaded, table.Name, view.Rows[table.Name])
		}
		if err != nil {
			loader.Abandon()
			return rows, err
		}
	}
	o.Progress(Progress{"rows", rows, total})
	return rows, loader.Close(ctx)
}

var errStopped = errors.New("no more rows are wanted")

// rowsOf are the rows of a table one after the other; the slice is used again.
func rowsOf(ctx context.Context, view *database.Snapshot, table database.Table) iter.Seq2[[]any, error] {
	return func(yield func([]any, error) bool) {
		err := view.Each(ctx, table, func(values []any) error {
			if !yield(values, nil) {
				return errStopped
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStopped) {
			yield(nil, err)
		}
	}
}

func complete(ctx context.Context, target *Target) error {
	opened, err := store.Open(ctx, target.Store)
	if err != nil {
		return err
	}
	return errors.Join(opened.Complete(ctx), opened.Close())
}
