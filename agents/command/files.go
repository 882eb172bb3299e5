package command

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"inbox/agents"
	"inbox/agents/upstream"
	"inbox/internal/fault"
	"inbox/normalized"
)

// placed are the larger files of a message, where the program can read them while it runs.
type placed struct {
	directory string // empty = the message has none
	files     []agents.DocumentFile
}

// place writes the files of a message that do not travel inside of its document into a directory of their own, readable by this user
// alone. What was erased meanwhile is left out: the program finds the digest without a path.
func place(ctx context.Context, turn agents.Turn) (p placed, err error) {
	if turn.Files == nil {
		return p, nil
	}

	parts := turn.Message.Parts
	if turn.Message.ReceivedTrace != nil {
		parts = append(slices.Clip(parts), turn.Message.ReceivedTrace.Parts...)
	}

	defer func() {
		if err != nil {
			p.remove()
		}
	}()

	for i := range parts {
		part := &parts[i]
		if part.BytesRef == nil || part.BytesRef.Kind != normalized.BytesContentAddressed {
			continue
		}

		if p.directory == "" {
			if p.directory, err = os.MkdirTemp("", "inbox-turn-"); err != nil {
				return p, unreachable(fmt.Errorf("make a directory for the files of the message: %w", err))
			}
		}

		path := filepath.Join(p.directory, strconv.Itoa(i)+filepath.Ext(agents.FileName(part.Name)))
		size, err := copyFile(ctx, turn.Files, part.BytesRef.Digest, path)
		if fault.Is(err, fault.NotFound) {
			continue
		}
		if err != nil {
			return p, err
		}

		p.files = append(p.files, agents.DocumentFile{
			Digest: part.BytesRef.Digest, Path: path, Name: part.Name, MIME: part.MIME, Size: size,
		})
	}

	return p, nil
}

func copyFile(ctx context.Context, files agents.Files, digest, path string) (size int64, err error) {
	from, err := files.Open(ctx, digest)
	if err != nil {
		return 0, fault.Wrap(fault.Of(err).Kind, upstream.Unreachable, fmt.Errorf("open file %s of the message: %w", digest, err))
	}
	defer func() { _ = from.Close() }() // it was only read

	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, unreachable(fmt.Errorf("write file of the message: %w", err))
	}

	size, err = io.Copy(to, from)
	if closed := to.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return 0, unreachable(fmt.Errorf("write file of the message: %w", err))
	}

	return size, nil
}

// remove ends with the run: a program that wants to keep a file copies it.
func (p placed) remove() {
	if p.directory != "" {
		_ = os.RemoveAll(p.directory)
	}
}
