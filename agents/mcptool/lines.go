package mcptool

import (
	"bufio"
	"bytes"
	"errors"
	"strconv"
	"strings"
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

// skipper looks through a message that is too large to keep for the one thing that is needed of it: the id of the call
// that it answers. It keeps a few bytes, whatever the message is.
type skipper struct {
	depth   int
	inText  bool
	escaped bool

	text    []byte // the last string at the top level
	inKey   bool   // the next string is a name, at the top level
	member  string // the member that is being read, at the top level
	id      []byte
	odd     bool // the id is no whole number
	request bool // it has a method and answers nothing
}

const skipperBytes = 24 // longer than every number and every name that matters

func (s *skipper) feed(piece []byte) {
	for _, c := range piece {
		if s.inText {
			s.readText(c)
		} else {
			s.read(c)
		}
	}
}

func (s *skipper) readText(c byte) {
	switch {
	case s.escaped:
		s.escaped = false
	case c == '\\':
		s.escaped = true
	case c == '"':
		s.inText = false
		if s.depth == 1 && s.inKey {
			s.named(string(s.text))
		}
		return
	}
	if s.depth == 1 && len(s.text) < skipperBytes {
		s.text = append(s.text, c)
	}
}

func (s *skipper) named(member string) {
	s.inKey, s.member = false, member
	s.request = s.request || member == "method"
	if member == "id" {
		s.id, s.odd = nil, false // the last one counts, as in encoding/json
	}
}

func (s *skipper) read(c byte) {
	switch c {
	case '"':
		s.inText, s.text = true, s.text[:0]
	case '{', '[':
		s.depth++
		s.inKey = s.depth == 1
	case '}', ']':
		s.depth--
	case ',':
		if s.depth == 1 {
			s.inKey, s.member = true, ""
		}
	default:
		if s.depth == 1 && s.member == "id" {
			s.readID(c)
		}
	}
}

func (s *skipper) readID(c byte) {
	switch {
	case strings.IndexByte(" \t\r\n:", c) >= 0:
	case c < '0' || c > '9' || len(s.id) >= skipperBytes:
		s.odd = true
	default:
		s.id = append(s.id, c)
	}
}

// answer returns an error for the call, nothing if the message answers none. Our calls have whole numbers as ids.
func (s *skipper) answer(limit int) []byte {
	if s.request || s.odd || len(s.id) == 0 || len(s.id) > 18 || len(s.id) > 1 && s.id[0] == '0' {
		return nil
	}
	return tooLarge(string(s.id), limit)
}
