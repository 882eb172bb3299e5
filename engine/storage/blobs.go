package storage

import (
	"context"
	"fmt"
	"path/filepath"

	"inbox/internal/blob"
)

// FilesIn opens the files in a directory, which follows from the setting. Writes, which may be nil, hears of bytes as they are about to be written.
func FilesIn(setting, directory string, writes func(bytes int64)) (*blob.Files, error) {
	if err := makeDirectory(setting, directory); err != nil {
		return nil, err
	}
	files, err := blob.OpenFiles(directory, blob.Options{Writes: writes})
	if err != nil {
		return nil, fmt.Errorf("%s: cannot keep files in %s: %w", setting, directory, oneLine(err))
	}
	return files, nil
}

// Bucket opens the files in a bucket. What is on its way there waits in the data directory.
func Bucket(dataDir string, options blob.S3Options) (*blob.S3, error) {
	var err error
	if options.Spool, err = Spool(dataDir); err != nil {
		return nil, err
	}
	files, err := blob.OpenS3(options)
	if err != nil {
		return nil, fmt.Errorf("blob_url: %w", oneLine(err))
	}
	return files, nil
}

// Spool makes the directory in which files without a name wait for a moment. It is in the data directory, because a directory for temporary
// files may be read-only or in memory.
func Spool(dataDir string) (string, error) {
	directory := filepath.Join(dataDir, "tmp")
	return directory, makeDirectory("data_dir", directory)
}

// BlobStore is where files are, as far as it is known whose they are.
type BlobStore interface {
	ID(ctx context.Context) (id string, err error)
	SetID(ctx context.Context, id string) error
}
