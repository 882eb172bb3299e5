package mcptool

import (
	"bufio"
	"bytes"
	"errors"
	"strconv"
)

// lines reads a program's standard output and passes on only what can be a JSON-RPC message, a line each. Programs
// print banners and logs there although they must not; a message over the limit becomes the error of the call that it
// answers, so that it costs neither memory nor the program.
type lines struct {
	process *process
	from    *bufio.Reader
	limit   int

	ready  []byte // not yet read
	failed error
}

func newLines(p *process, limit int) *lines {
	return &lines{process: p, from: bufio.NewReaderSize(p.stdout, 64<<10), limit: limit}
}

// Read returns whole messages with their line ends.
func (l *lines) Read(into []byte) (int, error) {
	for len(l.ready) == 0 {
		if l.failed != nil {
			return 0, l.failed
		}
		l.ready = l.next()
	}
	n := copy(into, l.ready)
	l.ready = l.ready[n:]
	return n, nil
}

// Close ends the program, without which nothing can be read.
func (l *lines) Close() error { return l.process.Close() }

// next returns the next line as it is to be passed on; nothing if it is none of ours.
func (l *lines) next() []byte {
	var line []byte
	var skipped *skipper
	for {
		piece, err := l.from.ReadSlice('\n')
		if skipped == nil && len(line)+len(piece) > l.limit {
			skipped = &skipper{}
			skipped.feed(line)
			line = nil
		}
		if skipped != nil {
			skipped.feed(piece)
		} else {
			line = append(line, piece...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			l.failed = err
			close(l.process.drained)
		}
		if skipped != nil {
			return skipped.answer(l.limit)
		}
		return message(line)
	}
}

// message keeps lines that say that they are JSON-RPC.
func message(line []byte) []byte {
	line = bytes.TrimSpace(line)
	if len(line) == 0 || line[0] != '{' && line[0] != '[' || !bytes.Contains(line, []byte(`"jsonrpc"`)) {
		return nil
	}
	return append(line, '\n')
}

// tooLarge is the answer in place of one over the limit.
func tooLarge(id string, limit int) []byte {
	return []byte(`{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32603,"message":` +
		strconv.Quote("the answer of the tool is larger than "+strconv.Itoa(limit)+" bytes: ask it for less") + "}}\n")
}
