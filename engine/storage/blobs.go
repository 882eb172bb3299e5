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
	options.Spool = filepath.Join(dataDir, "tmp")
	if err := makeDirectory("data_dir", options.Spool); err != nil {
		return nil, err
	}
	files, err := blob.OpenS3(options)
	if err != nil {
		return nil, fmt.Errorf("blob_url: %w", oneLine(err))
	}
	return files, nil
}

// BlobStore is where files are, as far as it is known whose they are.
type BlobStore interface {
	ID(ctx context.Context) (id string, err error)
	SetID(ctx context.Context, id string) error
}
