package database

import (
	"context"
	"errors"
	"slices"
)

// maxFound bounds the lines that an examination returns.
const maxFound = 20

// Examine runs PRAGMA quick_check, table by table: one check of the whole file would be one reader of an old state, and keep the
// write-ahead log from beginning anew until it ends.
func (e *sqliteEngine) Examine(ctx context.Context) (problems []string, able bool, err error) {
	pool, err := openPool(ctx, sqliteURL(e.path, "query_only(ON)"), 1)
	if err == nil {
		problems, err = quickCheck(ctx, pool)
		err = errors.Join(err, pool.Close())
	}
	switch {
	case ctx.Err() != nil:
		return nil, true, Unavailable("examine the database", ctx.Err())
	case sqliteDamaged(err):
		return append(problems, err.Error()), true, nil
	case err != nil:
		return nil, true, sqliteFault("examine the database", err)
	}
	return problems, true, nil
}

func quickCheck(ctx context.Context, from queryable) (problems []string, err error) {
	var tables []string
	err = pairs(ctx, from, `SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name`, 1, func(row []string) error {
		tables = append(tables, row[0])
		return nil
	})
	if err != nil {
		return nil, err
	}

	for _, table := range tables {
		err := pairs(ctx, from, "PRAGMA quick_check("+quoted(table)+")", 1, func(row []string) error {
			if row[0] != "ok" && len(problems) < maxFound {
				problems = append(problems, table+": "+row[0])
			}
			return nil
		})
		switch {
		case sqliteDamaged(err) && ctx.Err() == nil: // too damaged to be walked through: the other tables may not be
			problems = append(problems, table+": "+err.Error())
		case err != nil:
			return problems, err
		}
	}
	return slices.Clip(problems), nil
}

// Examine does nothing: PostgreSQL checks pages as it reads them where data checksums are on, and amcheck is an extension.
func (e *postgresEngine) Examine(context.Context) (problems []string, able bool, err error) {
	return nil, false, nil
}
