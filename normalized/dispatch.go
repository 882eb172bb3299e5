package normalized

import (
	"fmt"

	"inbox/identity"
)

// MaxDispatches bounds the agents that one response may ask at once.
const MaxDispatches = 4

func (w *writer) dispatches(list []Dispatch) {
	if len(list) == 0 {
		return
	}
	w.name("dispatch")
	w.open('[')
	for i := range list {
		w.open('{')
		w.field("to", list[i].To)
		w.name("parts")
		w.parts(list[i].Parts)
		w.close('}')
	}
	w.close(']')
}

func (r *reader) dispatches() (list []Dispatch) {
	if !r.beginArray() {
		return nil
	}
	for r.element() {
		list = append(list, Dispatch{})
		r.dispatch(&list[len(list)-1])
	}
	return list
}

func (r *reader) dispatch(d *Dispatch) {
	if !r.beginObject() {
		return
	}
	for r.field() {
		switch string(r.key) {
		case "to":
			d.To = r.string()
		case "parts":
			d.Parts = r.parts()
		default:
			r.skip()
		}
	}
}

func cleanDispatches(list []Dispatch) []Dispatch {
	if len(list) == 0 {
		return nil
	}
	cleaned := make([]Dispatch, len(list))
	for i, d := range list {
		cleaned[i] = Dispatch{To: d.To, Parts: cleanParts(d.Parts)}
	}
	return cleaned
}

// bytes adds up the texts and the inline bytes of what is asked.
func dispatchBytes(list []Dispatch) (texts, inline int) {
	for i := range list {
		texts += partTexts(list[i].Parts)
		inline += inlineBytes(list[i].Parts)
	}
	return texts, inline
}

// dispatches checks what an agent asks of others. Such a response is a step on the way to the answer: it says nothing
// itself, because nothing of it is sent.
func (c *checker) dispatches(r *Response, self string) {
	if len(r.Dispatch) == 0 {
		return
	}
	at := key(nil, "dispatch")
	switch {
	case len(r.Dispatch) > MaxDispatches:
		c.broken(&at, fmt.Sprintf("has more than %d entries", MaxDispatches))
		return
	case r.Silent:
		c.broken(&at, "does not go with silent")
	case r.Status != "" && r.Status != StatusCompleted:
		c.broken(&at, "does not go with status "+r.Status)
	case len(r.To) > 0 || len(r.Cc) > 0:
		c.broken(&at, "does not go with to or cc: nothing of this response is sent")
	}
	for i := range r.Dispatch {
		entry := index(&at, i)
		c.dispatch(&entry, &r.Dispatch[i], self)
	}
}

func (c *checker) dispatch(at *place, d *Dispatch, self string) {
	to := key(at, "to")
	if address, ok := c.address(&to, d.To); ok && sameAddress(address, self) {
		c.broken(&to, "must be another agent")
	}
	parts := key(at, "parts")
	c.parts(&parts, d.Parts, inbound)
	for i := range d.Parts {
		if d.Parts[i].running() {
			entry := index(&parts, i)
			c.broken(&entry, "a tool call needs its result or error")
		}
	}
}

func sameAddress(address identity.Address, other string) bool {
	parsed, err := identity.ParseAddress(other)
	return err == nil && identity.CanonicalAgent(parsed) == identity.CanonicalAgent(address)
}
