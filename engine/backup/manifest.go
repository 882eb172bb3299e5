// Package backup writes whole copies of a server while it runs, checks them, and makes servers of them again: on another machine or in
// the other database. It knows the form of a backup and the order of the steps; rows are read and loaded by the store, settings
// and keys come from its caller. Decision record 0106.
package backup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"inbox/engine/store/database"
	"inbox/internal/disk"
)

// Format is the version of the form in which backups are written.
const Format = 1

// A directory of backups has one directory for each of them, and the contents that they share:
//
//	snapshots/20261125T220000.000Z/manifest.json     written last: without it there is no backup
//	                           files/…           configuration, secret key, the operator's first token
//	                           domains/0/turns.jsonl.gz, …, blobs.gz
//	blobs/ab/cd/<digest>
const (
	snapshotsDirectory = "snapshots"
	blobsDirectory     = "blobs"
	manifestFile       = "manifest.json"
	filesDirectory     = "files"
	domainsDirectory   = "domains"
	blobList           = "blobs.gz"
)

// Names of files of a backup that are no rows.
const (
	ConfigFile = "inbox.toml"
	KeyFile    = "secret.key"
	TokenFile  = "admin-token" // of the domain at the top
)

// Manifest describes a backup.
type Manifest struct {
	Format  int       `json:"format"`
	Name    string    `json:"name"`
	Program string    `json:"program"` // version of inbox that wrote it
	Moment  time.Time `json:"moment"`  // everything that was acknowledged before is in the backup
	Ended   time.Time `json:"ended"`
	Domains []Domain  `json:"domains"` // that at the top of the configuration first
	Files   []File    `json:"files"`
	Keys    bool      `json:"keys"` // the secret key is among the files
	// Elsewhere are files that the configuration names and the backup has not, and Environment the INBOX_ variables that were set.
	Elsewhere   []string `json:"elsewhere,omitempty"`
	Environment []string `json:"environment,omitempty"`
}

// Domain is one domain of the server with its own database.
type Domain struct {
	Domain        string    `json:"domain"`
	Engine        string    `json:"engine"` // sqlite or postgres
	Moment        time.Time `json:"moment"`
	SchemaVersion int64     `json:"schema_version"`
	Tables        []Table   `json:"tables"` // each behind those that it refers to
	Contents      File      `json:"contents"`
	ContentCount  int64     `json:"content_count"`
	ContentBytes  int64     `json:"content_bytes"`
	// Missing are contents that rows refer to and that were not there, at most some of them.
	Missing      []string `json:"missing,omitempty"`
	MissingCount int64    `json:"missing_count,omitempty"`
}

// Table is the file with the rows of one table: a JSON array for each, one a line.
type Table struct {
	Table   string   `json:"table"`
	Columns []string `json:"columns"`
	Numbers []string `json:"numbers,omitempty"` // columns of integers
	Rows    int64    `json:"rows"`
	File
}

// File is a file of a backup. Its path is relative to the directory of the backup.
type File struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"` // in bytes
	SHA256 string `json:"sha256"`
}

// Rows counts the rows of all domains.
func (m *Manifest) Rows() (rows int64) {
	for i := range m.Domains {
		for _, table := range m.Domains[i].Tables {
			rows += table.Rows
		}
	}
	return rows
}

// Size counts the bytes of a backup: those of its own files, and those of the contents that it refers to.
func (m *Manifest) Size() (own, contents int64) {
	for _, file := range m.all() {
		own += file.Size
	}
	for i := range m.Domains {
		contents += m.Domains[i].ContentBytes
	}
	return own, contents
}

// all lists every file of a backup.
func (m *Manifest) all() (files []File) {
	files = append(files, m.Files...)
	for i := range m.Domains {
		for _, table := range m.Domains[i].Tables {
			files = append(files, table.File)
		}
		files = append(files, m.Domains[i].Contents)
	}
	return files
}

// table returns a table as the store knows it.
func (t Table) table() database.Table {
	table := database.Table{Name: t.Table}
	for _, name := range t.Columns {
		table.Columns = append(table.Columns, database.Column{Name: name, Integer: slices.Contains(t.Numbers, name)})
	}
	return table
}

// nameLayout is the form of names of backups, whose order is that of their moments.
const nameLayout = "20060102T150405.000Z"

var validName = regexp.MustCompile(`^[0-9]{8}T[0-9]{6}\.[0-9]{3}Z$`)

// Names lists the complete backups of a directory, the oldest first, and what a backup left there that did not end.
func Names(directory string) (complete, unfinished []string, err error) {
	entries, err := os.ReadDir(filepath.Join(directory, snapshotsDirectory))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}

	for _, entry := range entries {
		if !entry.IsDir() || !validName.MatchString(entry.Name()) {
			continue
		}
		_, err := os.Stat(filepath.Join(directory, snapshotsDirectory, entry.Name(), manifestFile))
		switch {
		case err == nil:
			complete = append(complete, entry.Name())
		case errors.Is(err, fs.ErrNotExist):
			unfinished = append(unfinished, entry.Name())
		default:
			return nil, nil, err
		}
	}
	return complete, unfinished, nil
}

// Read reads the description of a backup; an empty name is the newest. Its error says what to write instead.
func Read(directory, name string) (*Manifest, error) {
	complete, unfinished, err := Names(directory)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s cannot be read: %w", directory, disk.Cause(err))
	case len(complete) == 0 && len(unfinished) > 0:
		return nil, fmt.Errorf("%s has no complete backup, only %s, which did not end: run inbox backup again", directory, unfinished[0])
	case len(complete) == 0:
		return nil, fmt.Errorf("%s has no backup: name the directory that inbox backup was given", directory)
	case name == "":
		name = complete[len(complete)-1]
	case !slices.Contains(complete, name):
		return nil, fmt.Errorf("%s has no complete backup %q; it has %v", directory, name, complete)
	}

	content, err := os.ReadFile(filepath.Join(directory, snapshotsDirectory, name, manifestFile))
	if err != nil {
		return nil, fmt.Errorf("backup %s cannot be read: %w", name, disk.Cause(err))
	}
	var manifest Manifest
	if err := json.Unmarshal(content, &manifest); err != nil {
		return nil, fmt.Errorf("backup %s is damaged: %s: %w", name, manifestFile, err)
	}
	if manifest.Format != Format {
		return nil, fmt.Errorf("backup %s has the form %d, and this program reads %d: use the version of inbox that wrote it (%s)", name, manifest.Format, Format, manifest.Program)
	}
	if err := manifest.checkPaths(); err != nil {
		return nil, fmt.Errorf("backup %s is damaged: %w", name, err)
	}
	manifest.Name = name
	return &manifest, nil
}

// checkPaths refuses files outside of the backup.
func (m *Manifest) checkPaths() error {
	for _, file := range m.all() {
		if !filepath.IsLocal(filepath.FromSlash(file.Path)) {
			return fmt.Errorf("%s names the file %q", manifestFile, file.Path)
		}
	}
	return nil
}

// path is where a file of a backup is.
func path(directory, name string, file File) string {
	return filepath.Join(directory, snapshotsDirectory, name, filepath.FromSlash(file.Path))
}

// Content reads a small file of a backup by its name, such as ConfigFile; false without one.
func (m *Manifest) Content(directory, name string) (content []byte, found bool, err error) {
	at := slices.IndexFunc(m.Files, func(file File) bool { return filepath.Base(file.Path) == name })
	if at < 0 {
		return nil, false, nil
	}
	content, err = os.ReadFile(path(directory, m.Name, m.Files[at]))
	return content, err == nil, err
}
