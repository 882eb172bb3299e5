package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"inbox/engine/store/database"
	"inbox/internal/blob"
	"inbox/normalized"
)

// Proof checks whether the secret key opens a document of the database; storage.Proof is one.
type Proof interface {
	Check(namespace, key, value string) error
	Opens(namespace, key string) bool
}

// Verified says what was looked at, and what is wrong.
type Verified struct {
	*Manifest
	Rows     int64    `json:"rows"`
	Contents int64    `json:"contents"`
	Sealed   int64    `json:"sealed_documents"` // that the secret key opened
	Problems []string `json:"problems"`         // at most some of them
	Found    int64    `json:"problem_count"`

	missing int64 // of the problems: references to files that the server does not have either
}

// Intact reports whether nothing is wrong.
func (v *Verified) Intact() bool { return v.Found == 0 }

const maxProblems = 50

func (v *Verified) problem(err error) {
	v.Found++
	if len(v.Problems) < maxProblems {
		v.Problems = append(v.Problems, err.Error())
	}
}

// Verify checks a backup; an empty name is the newest. It reads every byte: hashes and numbers of rows, whether rows are what the
// server reads, whether every file that they refer to is there with its bytes, and, with a proof, whether the secret key opens what is
// sealed. The error is that of a backup that cannot be read at all.
func Verify(ctx context.Context, directory, name string, proofOf func(key []byte) (Proof, error), progress func(Progress)) (*Verified, error) {
	manifest, err := Read(directory, name)
	if err != nil {
		return nil, err
	}
	if progress == nil {
		progress = func(Progress) {}
	}
	v := &Verified{Manifest: manifest, Problems: []string{}}

	for _, file := range manifest.all() {
		if err := checkFile(path(directory, manifest.Name, file), file); err != nil {
			v.problem(err)
		}
	}

	var proof Proof
	if key, found, err := manifest.Content(directory, KeyFile); err != nil {
		v.problem(err)
	} else if found && proofOf != nil {
		if proof, err = proofOf(key); err != nil {
			v.problem(fmt.Errorf("%s: %w", KeyFile, err))
		}
	}

	kept, err := blob.OpenFiles(filepath.Join(directory, blobsDirectory), blob.Options{MaxBytes: maxContent})
	if err != nil {
		return nil, err
	}
	for i := range manifest.Domains {
		if err := v.domain(ctx, directory, &manifest.Domains[i], kept, proof, progress); err != nil {
			return v, err
		}
	}
	return v, nil
}

func (v *Verified) domain(ctx context.Context, directory string, domain *Domain, kept *blob.Files, proof Proof, progress func(Progress)) error {
	for _, table := range domain.Tables {
		if err := v.table(ctx, directory, table, kept, proof, progress); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			v.problem(err)
		}
	}

	listed := int64(0)
	err := eachContent(path(directory, v.Name, domain.Contents), func(digest string, size int64) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		progress(Progress{"files", listed, domain.ContentCount})
		listed++
		if err := checkContent(ctx, kept, digest, size); err != nil {
			v.problem(err)
		}
		return nil
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		v.problem(err)
	}
	if listed != domain.ContentCount {
		v.problem(fmt.Errorf("the list of files of %s has %d of them, and had %d when it was written", domain.Domain, listed, domain.ContentCount))
	}
	v.Contents += listed
	return nil
}

func checkContent(ctx context.Context, kept *blob.Files, digest string, size int64) error {
	content, err := kept.Open(ctx, digest)
	if err != nil {
		return fmt.Errorf("the file %s is missing: %w", digest, err)
	}
	sum := newSum()
	found, err := io.Copy(sum, content)
	switch err := errors.Join(err, content.Close()); {
	case err != nil:
		return fmt.Errorf("the file %s cannot be read: %w", digest, err)
	case found != size || sum.text() != digest:
		return fmt.Errorf("the file %s has other bytes than when it was stored", digest)
	}
	return nil
}

// table reads the rows of a table as a restore would.
func (v *Verified) table(ctx context.Context, directory string, table Table, kept *blob.Files, proof Proof, progress func(Progress)) (err error) {
	in, err := openLines(path(directory, v.Name, table.File))
	if err != nil {
		return fmt.Errorf("%s cannot be read: %w", table.Path, err)
	}
	defer func() { err = errors.Join(err, in.Close()) }()

	rows, rest := newRowReader(table.table(), in), int64(0)
	check := func(digest string) error {
		if _, err := kept.Stat(ctx, digest); err != nil {
			v.missing++
			v.problem(fmt.Errorf("a row of %s refers to the file %s, which is not there", table.Table, digest))
		}
		return nil
	}
	for {
		values, more, err := rows.next()
		if err != nil {
			return err
		}
		if !more {
			break
		}
		if rest%progressRows == 0 {
			progress(Progress{"rows of " + table.Table, rest, table.Rows})
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		rest++
		if err := v.row(rows.table, values, proof, check); err != nil {
			v.problem(fmt.Errorf("row %d of %s: %w", rest, table.Table, err))
		}
	}

	v.Rows += rest
	if rest != table.Rows {
		return fmt.Errorf("%s has %d rows, and had %d when it was written", table.Path, rest, table.Rows)
	}
	return nil
}

func (v *Verified) row(table database.Table, values []any, proof Proof, check func(digest string) error) error {
	if err := eachRef(table, values, check); err != nil {
		return err
	}
	text := func(name string) string {
		for i, column := range table.Columns {
			if column.Name == name {
				value, _ := values[i].(string)
				return value
			}
		}
		return ""
	}

	switch table.Name {
	case "turns":
		return json.Unmarshal([]byte(text("message")), new(normalized.Message))
	case "replies":
		return json.Unmarshal([]byte(text("response")), new(normalized.Response))
	case "documents":
		namespace, key := text("namespace"), text("key")
		if proof == nil {
			return nil
		}
		if err := proof.Check(namespace, key, text("value")); err != nil {
			return err
		}
		if proof.Opens(namespace, key) {
			v.Sealed++
		}
	}
	return nil
}
