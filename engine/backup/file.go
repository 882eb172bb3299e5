package backup

import (
	"bufio"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"unicode/utf8"

	"inbox/engine/store/database"
)

// sealedFile is a file that is being written: it is counted and summed, and on disk when it is closed.
type sealedFile struct {
	file     *os.File
	sum      hash.Hash
	size     int64
	unsynced int // bytes
}

// syncedAtOnce is after how many bytes the disk is waited for. A server that runs beside the backup syncs each message: its sync would wait for
// all that a backup has written to the same disk and not synced.
const syncedAtOnce = 1 << 20

func createFile(path string) (*sealedFile, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return &sealedFile{file: file, sum: sha256.New()}, nil
}

// Write writes, and syncs now and then.
func (f *sealedFile) Write(content []byte) (int, error) {
	n, err := f.file.Write(content)
	f.size += int64(n)
	f.sum.Write(content[:n])
	if f.unsynced += n; err == nil && f.unsynced >= syncedAtOnce {
		f.unsynced = 0
		err = f.file.Sync()
	}
	return n, err
}

// finish waits until the disk has the file and describes it.
func (f *sealedFile) finish(relative string) (File, error) {
	err := errors.Join(f.file.Sync(), f.file.Close())
	return File{Path: filepath.ToSlash(relative), Size: f.size, SHA256: hex.EncodeToString(f.sum.Sum(nil))}, err
}

// linesFile is a compressed file with one thing a line.
type linesFile struct {
	*sealedFile
	packed   *gzip.Writer
	buffered *bufio.Writer
}

func createLines(path string) (*linesFile, error) {
	file, err := createFile(path)
	if err != nil {
		return nil, err
	}
	packed, err := gzip.NewWriterLevel(file, gzip.BestSpeed)
	return &linesFile{file, packed, bufio.NewWriterSize(packed, 256<<10)}, err
}

func (f *linesFile) finish(relative string) (File, error) {
	err := errors.Join(f.buffered.Flush(), f.packed.Close())
	described, failed := f.sealedFile.finish(relative)
	return described, errors.Join(err, failed)
}

// openLines opens a compressed file for reading.
func openLines(path string) (io.ReadCloser, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	unpacked, err := gzip.NewReader(bufio.NewReaderSize(file, 256<<10))
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &lines{unpacked, file}, nil
}

type lines struct {
	*gzip.Reader
	file *os.File
}

// Close closes the file.
func (l *lines) Close() error { return errors.Join(l.Reader.Close(), l.file.Close()) }

// odd is how a text stands in a row that is no valid UTF-8, which only SQLite keeps.
type odd struct {
	Base64 string `json:"base64"`
}

// writeRow writes a row as a line.
func writeRow(out *json.Encoder, values []any) error {
	for i, value := range values {
		if text, is := value.(string); is && !utf8.ValidString(text) {
			values[i] = odd{base64.StdEncoding.EncodeToString([]byte(text))}
		}
	}
	return out.Encode(values)
}

func newEncoder(out io.Writer) *json.Encoder {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	return encoder
}

// rowReader reads the rows of a table.
type rowReader struct {
	table   database.Table
	decoder *json.Decoder
	values  []any
	line    int64
}

func newRowReader(table database.Table, from io.Reader) *rowReader {
	decoder := json.NewDecoder(from)
	decoder.UseNumber()
	return &rowReader{table: table, decoder: decoder, values: make([]any, len(table.Columns))}
}

// next returns the values of the next row, in the form of database.Snapshot; the slice is used again. False at the end.
func (r *rowReader) next() (values []any, more bool, err error) {
	var row []any
	switch err := r.decoder.Decode(&row); {
	case errors.Is(err, io.EOF):
		return nil, false, nil
	case err != nil:
		return nil, false, r.damaged(err)
	}
	r.line++

	if len(row) != len(r.table.Columns) {
		return nil, false, r.damaged(fmt.Errorf("it has %d values for %d columns", len(row), len(r.table.Columns)))
	}
	for i, column := range r.table.Columns {
		if r.values[i], err = valueOf(row[i], column.Integer); err != nil {
			return nil, false, r.damaged(fmt.Errorf("%s: %w", column.Name, err))
		}
	}
	return r.values, true, nil
}

func (r *rowReader) damaged(cause error) error {
	return fmt.Errorf("row %d of table %s cannot be read: %w", r.line, r.table.Name, cause)
}

func valueOf(read any, integer bool) (any, error) {
	switch value := read.(type) {
	case nil:
		return nil, nil
	case json.Number:
		if integer {
			return value.Int64()
		}
	case string:
		if !integer {
			return value, nil
		}
	case map[string]any:
		if text, is := value["base64"].(string); is && !integer {
			content, err := base64.StdEncoding.DecodeString(text)
			return string(content), err
		}
	}
	return nil, errors.New("the value is of another type than its column")
}

// writeWhole writes a small file, readable for this user alone.
func writeWhole(path, relative string, content []byte) (File, error) {
	file, err := createFile(path)
	if err != nil {
		return File{}, err
	}
	_, err = file.Write(content)
	described, failed := file.finish(relative)
	return described, errors.Join(err, failed)
}

// syncDirectories waits until the disk has the names in a directory and in those below it.
func syncDirectories(root string) error {
	return filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		return syncDirectory(path)
	})
}

func syncDirectory(path string) error {
	directory, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}

// sum is a SHA-256 that is being computed.
type sum struct{ hash.Hash }

func newSum() sum { return sum{sha256.New()} }

func (s sum) text() string { return hex.EncodeToString(s.Sum(nil)) }

// checkFile compares a file with its description.
func checkFile(path string, want File) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("%s is missing or cannot be read: %w", want.Path, err)
	}
	sum := newSum()
	size, err := io.Copy(sum, file)
	switch err := errors.Join(err, file.Close()); {
	case err != nil:
		return fmt.Errorf("%s cannot be read: %w", want.Path, err)
	case size != want.Size:
		return fmt.Errorf("%s has %d bytes, and had %d when it was written", want.Path, size, want.Size)
	case sum.text() != want.SHA256:
		return fmt.Errorf("%s is not as it was written: its SHA-256 differs", want.Path)
	}
	return nil
}
