package llm

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// maxEventBytes bounds one event of a stream: some servers send all arguments of a call in one.
const maxEventBytes = 4 << 20

var errEventTooLarge = errors.New("an event of the stream is over 4 MiB")

// event is one server-sent event: its name and its data lines, joined by line feeds. Both are valid until the next one.
type event struct {
	name string
	data []byte
	cut  bool // the stream ended inside of it
}

// fault gives the error about an event: half an event is no nonsense, its other half is missing.
func (e event) fault(err error) error {
	if broken, is := errors.AsType[*json.SyntaxError](err); is && e.cut && broken.Offset >= int64(len(e.data)) {
		return errStreamCut
	}
	return err
}

// eventReader reads server-sent events (WHATWG HTML, section 9.2.6). Comments and the fields other than event and data
// are skipped. An event that the end of the stream cuts off counts: what it says is checked by who reads it, and some
// servers end without the empty line.
type eventReader struct {
	source  *bufio.Reader
	begun   bool
	afterCR bool // a line feed that follows belongs to the line end before
	size    int  // bytes of the current event
	row     []byte
	data    []byte
}

func newEventReader(source io.Reader) *eventReader {
	return &eventReader{source: bufio.NewReaderSize(source, 2048)}
}

// next gives the next event that has data, or the error of the source; io.EOF at its end.
func (r *eventReader) next() (event, error) {
	name, has := "", false
	r.data, r.size = r.data[:0], 0
	for {
		err := r.line()
		if err != nil && len(r.row) == 0 {
			if errors.Is(err, io.EOF) && has {
				return event{name, r.data, true}, nil
			}
			return event{}, err
		}
		if len(r.row) == 0 {
			if has {
				return event{name, r.data, false}, nil
			}
			name, r.size = "", 0
			continue
		}
		switch field, value := splitField(r.row); string(field) {
		case "event":
			name = string(value)
		case "data":
			if has {
				r.data = append(r.data, '\n')
			}
			r.data, has = append(r.data, value...), true
		case "": // a comment keeps the line alive and may come for hours
			if !has {
				r.size = 0
			}
		}
	}
}

// splitField gives name and value of a line; the name of a comment is empty.
func splitField(line []byte) (name, value []byte) {
	name, value, _ = bytes.Cut(line, []byte(":"))
	return name, bytes.TrimPrefix(value, []byte(" "))
}

// line reads the next line without its end, which is LF, CR LF or CR, into row. It never reads past a CR, because what
// follows may be minutes away. At the end of the source row holds what is left.
func (r *eventReader) line() error {
	r.row = r.row[:0]
	for {
		char, err := r.source.ReadByte()
		if err != nil {
			return err
		}
		lineFeedOfPair := r.afterCR && char == '\n'
		r.afterCR = char == '\r'
		switch {
		case lineFeedOfPair:
			continue
		case char == '\n' || char == '\r':
			if !r.begun {
				r.begun = true
				r.row = bytes.TrimPrefix(r.row, []byte("\ufeff"))
			}
			return nil
		}
		if r.size++; r.size > maxEventBytes {
			r.row = r.row[:0]
			return errEventTooLarge
		}
		r.row = append(r.row, char)
	}
}
