package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"inbox/internal/fault"
)

const unavailableText = "storage is not available, try again later"

func unavailable(operation string, err error) error {
	return fault.Wrap(fault.Unavailable, unavailableText, fmt.Errorf("%s: %w", operation, err))
}

func reading(operation string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fault.Wrap(fault.NotFound, "no such content", fmt.Errorf("%s: %w", operation, err))
	}
	return unavailable(operation, err)
}

// source tells a failing reader from a failing disk, and stops when its context ends.
type source struct {
	ctx  context.Context
	from io.Reader
	err  error
}

func (s *source) Read(into []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		s.err = err
		return 0, err
	}
	n, err := s.from.Read(into)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// fault keeps what the reader said about itself, for example that the request body is too large.
func (s *source) fault() error {
	if _, ok := errors.AsType[*fault.Fault](s.err); ok {
		return fmt.Errorf("read content: %w", s.err)
	}
	return fault.Wrap(fault.Unavailable, "the content could not be read to its end", fmt.Errorf("read content: %w", s.err))
}
