package recording

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"inbox/internal/boundedjson"
)

// Bounds of what is read.
const (
	MaxRecordings = 1000
	maxDocument   = 4 << 20 // bytes of message.json or expected.json
	maxTogether   = 64 << 20
	maxEntries    = 4 * MaxRecordings // names in the directory
	maxDepth      = 16
	maxValues     = 10_000
	maxParts      = 200
)

// Names of files.
const (
	messageFile  = "message.json"
	expectedFile = "expected.json"
	originalFile = "original"
)

// Prepare makes a directory for recordings. One that is there must be empty: the same pseudonym is another person in other recordings.
func Prepare(directory string) error {
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return fmt.Errorf("make the directory for recordings: %w", err)
	}
	there, err := os.ReadDir(directory)
	switch {
	case err != nil:
		return fmt.Errorf("read %s: %w", directory, err)
	case len(there) > 0:
		return fmt.Errorf("%s is not empty: name a new directory, because pseudonyms start over", directory)
	}
	return nil
}

// Write writes a recording as a directory below another one, which has it whole or not at all.
func (r Recording) Write(directory string) (err error) {
	place := filepath.Join(directory, r.Message.ID)
	unfinished := filepath.Join(directory, "."+r.Message.ID)
	if err := os.Mkdir(unfinished, 0o700); err != nil {
		return fmt.Errorf("write recording: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(unfinished))
		}
	}()

	for name, value := range map[string]any{messageFile: r.Message, expectedFile: r.Expected} {
		content, err := encode(value)
		if err == nil {
			err = os.WriteFile(filepath.Join(unfinished, name), content, 0o600)
		}
		if err != nil {
			return fmt.Errorf("write recording: %w", err)
		}
	}
	if r.Original != nil {
		if err := os.WriteFile(filepath.Join(unfinished, originalFile), r.Original, 0o600); err != nil {
			return fmt.Errorf("write recording: %w", err)
		}
	}
	return os.Rename(unfinished, place)
}

func encode(value any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(value)
	return b.Bytes(), err
}

// Read reads the recordings of a directory in the order in which their messages came. It follows no link out of it, and its bounds hold for
// files that someone else wrote. Originals are not read. The error names the file that is wrong.
func Read(directory string) ([]Recording, error) {
	root, err := os.OpenRoot(directory)
	if err != nil {
		return nil, fmt.Errorf("open recordings: %w", err)
	}
	defer root.Close() //nolint:errcheck // only read from

	names, err := namesIn(root)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", directory, err)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s has no recordings; make some with: inbox record --to DIR", directory)
	}

	left := int64(maxTogether)
	found := make([]Recording, 0, len(names))
	for _, name := range names {
		var one Recording
		for file, parse := range map[string]func([]byte) error{
			messageFile:  func(content []byte) (err error) { one.Message, err = ParseMessage(content); return err },
			expectedFile: func(content []byte) (err error) { one.Expected, err = ParseExpected(content); return err },
		} {
			content, err := readFile(root, name+"/"+file, min(left, maxDocument))
			if err == nil {
				left -= int64(len(content))
				err = parse(content)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", filepath.Join(directory, name, file), err)
			}
		}
		found = append(found, one)
	}

	slices.SortStableFunc(found, func(a, b Recording) int { return strings.Compare(a.Message.ID, b.Message.ID) })
	return found, nil
}

// namesIn lists the directories of whole recordings.
func namesIn(root *os.Root) ([]string, error) {
	opened, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer opened.Close() //nolint:errcheck // only read from

	entries, err := opened.ReadDir(maxEntries)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	var names []string
	for _, entry := range entries {
		if entry.IsDir() && !strings.HasPrefix(entry.Name(), ".") {
			names = append(names, entry.Name())
		}
	}
	if len(names) > MaxRecordings {
		return nil, fmt.Errorf("more than %d recordings", MaxRecordings)
	}
	slices.Sort(names)
	return names, nil
}

func readFile(root *os.Root, name string, limit int64) ([]byte, error) {
	about, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.New("is missing")
	case err != nil:
		return nil, err
	case !about.Mode().IsRegular():
		return nil, errors.New("is no file")
	case about.Size() > limit:
		return nil, fmt.Errorf("is over the %d bytes that are left of the limit", limit)
	}

	file, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // only read from
	return io.ReadAll(io.LimitReader(file, limit))
}

// ParseMessage reads message.json: members that are not known are errors.
func ParseMessage(content []byte) (Message, error) {
	message, err := parse[Message](content)
	switch {
	case err != nil:
		return message, err
	case message.Format != Format:
		return message, fmt.Errorf("format is %d; this version reads %d", message.Format, Format)
	case !idForm.MatchString(message.ID):
		return message, errors.New("id is not the id of a message")
	case message.Channel == "" || message.Thread == "" || message.Agent == "":
		return message, errors.New("agent, channel and thread are needed")
	case len(message.Parts) > maxParts:
		return message, fmt.Errorf("has more than %d parts", maxParts)
	}
	return message, nil
}

// ParseExpected reads expected.json: members that are not known are errors.
func ParseExpected(content []byte) (Expected, error) {
	expected, err := parse[Expected](content)
	switch {
	case err != nil:
		return expected, err
	case expected.State == "":
		return expected, errors.New("state is missing")
	case len(expected.Parts) > maxParts || len(expected.Tools) > maxParts:
		return expected, fmt.Errorf("has more than %d parts or tools", maxParts)
	}
	return expected, nil
}

var idForm = regexp.MustCompile(`^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

func parse[T any](content []byte) (value T, err error) {
	if len(content) > maxDocument {
		return value, fmt.Errorf("is over %d bytes", maxDocument)
	}
	if _, err := boundedjson.NewCounter(boundedjson.Limits{Depth: maxDepth, Values: maxValues}).Write(content); err != nil {
		return value, err
	}
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&value); err != nil {
		return value, fmt.Errorf("is not in the form of a recording: %w", err)
	}
	if decoder.More() {
		return value, errors.New("has more than one value")
	}
	return value, nil
}
