package pull

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"inbox/internal/fault"
)

// maxLineBytes bounds one delta.
const maxLineBytes = 1 << 20

var errLineTooLong = fault.New(fault.TooLarge, "a delta is over 1 MiB")

// lineReader reads lines that end with LF or CR LF; the last one may end with the body.
type lineReader struct {
	source *bufio.Reader
	before func() // every read that may block
}

func newLineReader(source io.Reader, before func()) *lineReader {
	return &lineReader{source: bufio.NewReaderSize(source, 64<<10), before: before}
}

// ready reports whether a whole line is here, so that next does not block.
func (l *lineReader) ready() bool {
	here, _ := l.source.Peek(l.source.Buffered()) // only fails for more than is there
	return bytes.IndexByte(here, '\n') >= 0
}

// next returns a line without its end, valid until the following call; io.EOF when there are no more.
func (l *lineReader) next() ([]byte, error) {
	var long []byte
	for {
		if !l.ready() {
			l.before()
		}
		piece, err := l.source.ReadSlice('\n')
		if len(long)+len(piece) > maxLineBytes {
			return nil, errLineTooLong
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			long = append(long, piece...)
			continue
		}
		if long != nil {
			piece = append(long, piece...)
		}
		if err != nil && (!errors.Is(err, io.EOF) || len(piece) == 0) {
			return nil, err
		}
		return bytes.TrimSuffix(bytes.TrimSuffix(piece, []byte("\n")), []byte("\r")), nil
	}
}
