package webhook

import (
	"bufio"
	"errors"
	"io"
	"strings"
)

// maxEventBytes bounds one event of a stream, all its lines together.
const maxEventBytes = 1 << 20

var (
	errEventTooLarge = errors.New("an event of the stream is over 1 MiB")
	errCutEvent      = errors.New("the stream ended inside an event: every event ends with an empty line")
)

// event is one server-sent event: its name (empty = "message") and its data lines joined by line feeds.
type event struct {
	name string
	data string
}

// eventReader reads server-sent events (WHATWG HTML, section 9.2.6) with a bound on the size of an event. Comments
// and the fields other than event and data are skipped.
type eventReader struct {
	source  *bufio.Reader
	begun   bool // the first line was read: a byte order mark is no longer one
	afterCR bool // a line feed that follows belongs to the line end before
	size    int  // bytes of the current event
}

func newEventReader(source io.Reader) *eventReader {
	return &eventReader{source: bufio.NewReader(source)}
}

// next returns the next event that has data; io.EOF at an end between events, errCutEvent at one inside.
func (r *eventReader) next() (event, error) {
	var name string
	var data []string
	r.size = 0

	for {
		line, err := r.line()
		if err != nil {
			return event{}, unfinished(err, line != "" || data != nil)
		}
		if line == "" && data != nil {
			return event{name: name, data: strings.Join(data, "\n")}, nil
		}
		if line == "" { // the standard drops an event without data, and its name with it
			name, r.size = "", 0
			continue
		}

		switch field, value := splitField(line); field {
		case "event":
			name = value
		case "data":
			data = append(data, value)
		case "": // a comment keeps the line alive and may come for hours
			if data == nil {
				r.size = 0
			}
		}
	}
}

func unfinished(err error, inside bool) error {
	if inside && errors.Is(err, io.EOF) {
		return errCutEvent
	}
	return err
}

// splitField returns name and value of a line; the name of a comment is empty.
func splitField(line string) (name, value string) {
	name, value, _ = strings.Cut(line, ":")
	return name, strings.TrimPrefix(value, " ")
}

// line returns the next line without its end, which is LF, CR LF or CR. At the end of the source it returns what is left
// of the last line together with the error. It never reads past a CR, because what follows may be minutes away.
func (r *eventReader) line() (string, error) {
	var line []byte
	for {
		char, err := r.source.ReadByte()
		if err != nil {
			return string(line), err
		}

		lineFeedOfPair := r.afterCR && char == '\n'
		r.afterCR = char == '\r'
		switch {
		case lineFeedOfPair:
			continue
		case char == '\n' || char == '\r':
			return r.withoutByteOrderMark(string(line)), nil
		}

		if r.size++; r.size > maxEventBytes {
			return "", errEventTooLarge
		}

		line = append(line, char)
	}
}

func (r *eventReader) withoutByteOrderMark(line string) string {
	if r.begun {
		return line
	}
	r.begun = true
	return strings.TrimPrefix(line, "\ufeff")
}
