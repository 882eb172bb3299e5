package operator

import (
	"context"

	"inbox/engine/store"
	"inbox/exchange"
	"inbox/internal/disk"
)

// Usage is what is kept on the disk.
type Usage struct {
	store   *store.Store
	files   func() (exchange.Files, error)
	dataDir string
}

// Kept is what Measure found.
type Kept struct {
	store.Usage
	Blobs *KeptBlobs `json:"blobs,omitempty"` // absent where they are in a bucket
	// DataDirFreeBytes is what the disk of data_dir has left. SQLite is there, and files without blob_url; PostgreSQL is elsewhere.
	DataDirFreeBytes int64 `json:"data_dir_free_bytes"`
}

// KeptBlobs are the contents beside the database, each once, those that nothing needs any more among them.
type KeptBlobs struct {
	Count int64 `json:"count"`
	Bytes int64 `json:"bytes"`
}

// sized are places of files that can be added up without a request for each.
type sized interface {
	Size(ctx context.Context) (count, bytes int64, err error)
}

// Measure says how much of the database each agent takes, and what stands beside it. With many messages it estimates from a sample.
func (u Usage) Measure(ctx context.Context) (kept Kept, err error) {
	if kept.Usage, err = u.store.Usage(ctx); err != nil {
		return kept, err
	}
	if kept.DataDirFreeBytes, err = disk.Free(u.dataDir); err != nil {
		return kept, err
	}
	files, err := u.files()
	if err != nil {
		return kept, err
	}
	if directory, is := files.(sized); is {
		kept.Blobs = &KeptBlobs{}
		kept.Blobs.Count, kept.Blobs.Bytes, err = directory.Size(ctx)
	}
	return kept, err
}
