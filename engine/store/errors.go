package store

import (
	"errors"
	"time"

	"inbox/internal/fault"
)

// errClosed is the cause of every refusal after Close.
var errClosed = errors.New("store is closed")

// unavailable makes the fault of a database that did not do its work.
func unavailable(operation string, cause error) error {
	return &fault.Fault{
		Kind:       fault.Unavailable,
		Public:     "the message store is not available at the moment; try again later",
		RetryAfter: 5 * time.Second,
		Cause:      down{operationError{operation, cause}},
	}
}

// down is a failure after which the same work may succeed.
type down struct{ operationError }

// Is reports whether target is fault.ErrStore.
func (down) Is(target error) bool { return target == fault.ErrStore }

// unusable makes the fault of a database that cannot be opened; public says where it is and what to change.
func unusable(public string, cause error) error { return fault.Wrap(fault.Unavailable, public, cause) }

// operationError adds what we were doing; fmt.Errorf costs more than a row on the hot path of a full disk.
type operationError struct {
	operation string
	cause     error
}

func (e operationError) Error() string { return e.operation + ": " + e.cause.Error() }
func (e operationError) Unwrap() error { return e.cause }

func notFound(what string) error { return fault.New(fault.NotFound, "no such "+what) }
