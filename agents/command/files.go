package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"inbox/agents"
	"inbox/agents/upstream"
	"inbox/internal/fault"
	"inbox/normalized"
)

// placed are the files of a run, where the program can read and write them while it runs.
type placed struct {
	directory string // of the run; empty = bytes cannot be had
	message   string // with the larger files of the message; empty = it has none
	answer    string // for files of the answer
	files     []agents.DocumentFile
}

// place makes a directory for a run, readable by this user alone, and writes the files of the message into it that do not travel inside
// of its document. What was erased meanwhile is left out: the program finds the digest without a path.
func (a *Agent) place(ctx context.Context, turn agents.Turn) (p placed, err error) {
	if turn.Files == nil {
		return p, nil
	}

	defer func() {
		if err != nil {
			p.remove()
		}
	}()

	if p.directory, err = os.MkdirTemp(a.options.Scratch.parent(), "inbox-turn-"); err != nil {
		return p, unreachable(fmt.Errorf("make a directory for the files of the run: %w", err))
	}

	p.answer = filepath.Join(p.directory, "answer")
	if err := os.Mkdir(p.answer, 0o700); err != nil {
		return p, unreachable(fmt.Errorf("make a directory for the files of the answer: %w", err))
	}

	parts := turn.Message.Parts
	if turn.Message.ReceivedTrace != nil {
		parts = append(slices.Clip(parts), turn.Message.ReceivedTrace.Parts...)
	}

	for i := range parts {
		part := &parts[i]
		if part.BytesRef == nil || part.BytesRef.Kind != normalized.BytesContentAddressed {
			continue
		}

		if p.message == "" {
			p.message = filepath.Join(p.directory, "message")
			if err := os.Mkdir(p.message, 0o700); err != nil {
				return p, unreachable(fmt.Errorf("make a directory for the files of the message: %w", err))
			}
		}

		path := filepath.Join(p.message, strconv.Itoa(i)+filepath.Ext(agents.FileName(part.Name)))
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

// fileScheme begins the address by which a program names a file that it wrote for its answer.
const fileScheme = "file:"

// collect keeps the files that the program wrote and that its answer names: parts whose bytes are at file:NAME. An answer in plain text
// brings all of them, in the order of their names, and returns how many have no room in an answer.
func (p placed) collect(ctx context.Context, files agents.Files, options *Options, response *normalized.Response) (left int, err error) {
	if p.answer == "" {
		return 0, nil
	}

	root, err := os.OpenRoot(p.answer)
	if err != nil {
		return 0, unreachable(fmt.Errorf("open the directory of the answer's files: %w", err))
	}
	defer func() { _ = root.Close() }() // it was only read

	if options.Output == OutputText {
		entries, err := fs.ReadDir(root.FS(), ".")
		if err != nil {
			return 0, unreachable(fmt.Errorf("list the answer's files: %w", err))
		}
		if left = max(0, len(entries)-options.Limits.Parts); left > 0 {
			entries = entries[:options.Limits.Parts]
		}
		for _, entry := range entries {
			response.Parts = append(response.Parts, normalized.Part{
				Kind: normalized.PartFile, MIME: typeOf(entry.Name()), Name: entry.Name(), BytesRef: normalized.At(fileScheme + url.PathEscape(entry.Name())),
			})
		}
		response.Silent = response.Silent && len(entries) == 0
	}

	for i := range response.Parts {
		part := &response.Parts[i]
		name, is := named(part)
		if !is {
			continue
		}
		if err := keep(ctx, files, root, name, part); err != nil {
			return 0, err
		}
	}
	return left, nil
}

// named returns the name of the file that a part refers to.
func named(part *normalized.Part) (name string, is bool) {
	if part.BytesRef == nil || part.BytesRef.Kind != normalized.BytesURL {
		return "", false
	}
	escaped, is := strings.CutPrefix(part.BytesRef.URL, fileScheme)
	if !is {
		return "", false
	}
	name, err := url.PathUnescape(escaped)
	return name, err == nil
}

func typeOf(name string) string {
	if found := mime.TypeByExtension(filepath.Ext(name)); found != "" {
		return found
	}
	return "application/octet-stream"
}

// keep moves a file to the store, and names it in a text if it is larger than a file may be. Nothing outside of the directory is opened, whatever the name or a link says.
func keep(ctx context.Context, files agents.Files, root *os.Root, name string, part *normalized.Part) error {
	if info, err := root.Lstat(name); err != nil || !info.Mode().IsRegular() { // opening a pipe would wait for its writer
		return upstream.NotUsable(errors.Join(fmt.Errorf("%q in the directory of the answer's files is no regular file", name), err))
	}

	file, err := root.Open(name)
	if err != nil {
		return upstream.NotUsable(fmt.Errorf("open file %q of the answer: %w", name, err))
	}
	defer func() { _ = file.Close() }() // it was only read

	digest, size, err := files.Put(ctx, file)
	switch {
	case fault.Is(err, fault.TooLarge):
		*part = normalized.Text(fmt.Sprintf("(%s is too large to be sent.)", filepath.Base(name)))
		return nil
	case err != nil:
		return unreachable(fmt.Errorf("keep file %q of the answer: %w", name, err))
	}

	part.BytesRef, part.Size = normalized.Stored(digest), size
	if part.Name == "" {
		part.Name = filepath.Base(name)
	}
	if part.MIME == "" {
		part.MIME = typeOf(name)
	}
	return nil
}

// remove ends with the run: a program that wants to keep a file copies it.
func (p placed) remove() {
	if p.directory != "" {
		_ = os.RemoveAll(p.directory)
	}
}
