package operator

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"inbox/engine/store"
	"inbox/internal/fault"
	"inbox/internal/queue"
)

// TestRetryNamesTheJobBefore: a blocked job is not retried, and the operator reads which job precedes it.
func TestRetryNamesTheJobBefore(t *testing.T) {
	rows := openStore(t)
	jobs, ids := Jobs{rows}, []string{uuid.Must(uuid.NewV7()).String(), uuid.Must(uuid.NewV7()).String()}
	for _, id := range ids {
		err := rows.InTx(t.Context(), func(tx *store.Tx) error {
			return tx.Enqueue(t.Context(), queue.NewJob{ID: id, Kind: "work", Partition: "p"})
		})
		if err != nil {
			t.Fatal(err)
		}
	}

	if err := jobs.Retry(t.Context(), ids[1]); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), ids[0]) {
		t.Errorf("retry of a blocked job: %v", err)
	}
	if err := jobs.Retry(t.Context(), ids[0]); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "it is ready") {
		t.Errorf("retry of a ready job: %v", err)
	}
}
