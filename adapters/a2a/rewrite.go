package a2a

import (
	"bytes"
	"strings"
)

// maxRewriteDepth bounds the nesting that is looked through; what is deeper is refused by the binding anyway.
const maxRewriteDepth = 100

// rewrite changes names of members, and those of their values that are texts, both as they stand between the quotes; a nil
// function changes none. Values of metadata and data are somebody's own and stay as they are. What is not JSON, or nested
// too deeply, comes back unchanged, and what follows the first value stays.
func rewrite(document []byte, name func(name []byte) []byte, text func(name, text []byte) []byte) []byte {
	return (&rewriter{in: document, name: name, text: text}).rewritten()
}

func (w *rewriter) rewritten() []byte {
	if !w.value(0, true) || w.copied == 0 {
		return w.in
	}
	return append(w.out, w.in[w.copied:]...)
}

// rewriter goes once through a JSON document and copies it. Until the first change nothing is copied.
type rewriter struct {
	in     []byte
	at     int
	out    []byte
	copied int // bytes of in that are in out
	name   func(name []byte) []byte
	text   func(name, text []byte) []byte
	plain  func(name, value []byte) []byte // changes texts in their quotes, numbers and other plain values before text does
	null   []byte                          // members that are added to a part whose one content is data that is null
}

func (w *rewriter) space() {
	for w.at < len(w.in) && strings.IndexByte(" \t\r\n", w.in[w.at]) >= 0 {
		w.at++
	}
}

func (w *rewriter) take(char byte) bool {
	w.space()
	if w.at < len(w.in) && w.in[w.at] == char {
		w.at++
		return true
	}
	return false
}

func (w *rewriter) value(depth int, change bool) bool {
	w.space()
	if w.at >= len(w.in) || depth > maxRewriteDepth {
		return false
	}
	switch w.in[w.at] {
	case '{':
		w.at++
		return w.members(depth, change)
	case '[':
		w.at++
		return w.items(depth, change)
	case '"':
		return w.quoted()
	}
	begin := w.at
	for w.at < len(w.in) && strings.IndexByte(",]} \t\r\n", w.in[w.at]) < 0 {
		w.at++
	}
	return w.at > begin
}

func (w *rewriter) quoted() bool {
	for w.at++; w.at < len(w.in); w.at++ {
		switch w.in[w.at] {
		case '\\':
			w.at++
		case '"':
			w.at++
			return true
		}
	}
	return false
}

func (w *rewriter) items(depth int, change bool) bool {
	if w.take(']') {
		return true
	}
	for {
		if !w.value(depth+1, change) {
			return false
		}
		if !w.take(',') {
			return w.take(']')
		}
	}
}

func (w *rewriter) members(depth int, change bool) bool {
	if w.take('}') {
		return true
	}
	var content partContent
	for {
		w.space()
		begin := w.at
		if begin >= len(w.in) || w.in[begin] != '"' || !w.quoted() {
			return false
		}
		name := w.in[begin+1 : w.at-1]
		own := string(name) == "metadata" || string(name) == "data"
		if change && w.name != nil {
			w.replace(begin+1, name, w.name(name))
		}
		if !w.take(':') {
			return false
		}
		w.space()
		value := w.at
		if !w.member(depth+1, name, change && !own) {
			return false
		}
		content.note(name, w.in[value:w.at])
		if w.take(',') {
			continue
		}
		if change && w.null != nil && content.isNull() {
			w.space()
			w.replace(w.at, nil, w.null)
		}
		return w.take('}')
	}
}

// partContent is what the members of an object are as those of a part.
type partContent struct{ null, other bool }

func (c *partContent) note(name, value []byte) {
	isNull := string(value) == "null"
	switch string(name) {
	case "data":
		c.null = isNull
	case "text", "raw", "url":
		c.other = c.other || !isNull
	}
}

func (c *partContent) isNull() bool { return c.null && !c.other }

// member walks the value of a member.
func (w *rewriter) member(depth int, name []byte, change bool) bool {
	w.space()
	begin := w.at
	if !w.value(depth, change) {
		return false
	}
	if !change || w.in[begin] == '{' || w.in[begin] == '[' {
		return true
	}
	old := w.in[begin:w.at]
	if w.plain != nil {
		if fresh := w.plain(name, old); !bytes.Equal(fresh, old) {
			w.replace(begin, old, fresh)
			return true
		}
	}
	if w.text != nil && old[0] == '"' {
		inner := old[1 : len(old)-1]
		w.replace(begin+1, inner, w.text(name, inner))
	}
	return true
}

// replace puts new text where the old begins.
func (w *rewriter) replace(begin int, old, text []byte) {
	if bytes.Equal(old, text) {
		return
	}
	w.out = append(append(w.out, w.in[w.copied:begin]...), text...)
	w.copied = begin + len(old)
}
