package normalized

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"inbox/identity"
	"inbox/internal/fault"
)

// maxViolations bounds what a hostile document can make us write about it.
const maxViolations = 64

// checker collects broken rules in the order of the contract's tables.
type checker struct {
	limits Limits
	found  []*fault.Fault
	stop   int // enough: 1 for Validate, maxViolations for a full list
}

func (c *checker) full() bool { return len(c.found) >= c.stop }

func (c *checker) add(f *fault.Fault) {
	if !c.full() {
		c.found = append(c.found, f)
	}
}

// broken records a rule of form.
func (c *checker) broken(at *place, rule string) { c.add(fault.InField(at.String(), rule)) }

// over records a size limit.
func (c *checker) over(at *place, limit int) { c.add(tooLarge(at.String(), limit)) }

// shape records what another package found below at.
func (c *checker) shape(at *place, found *identity.ShapeError) {
	if found == nil {
		return
	}
	kind := fault.Malformed
	if found.TooLarge {
		kind = fault.TooLarge
	}
	c.add(&fault.Fault{Kind: kind, Field: at.below(found.Field), Public: found.Rule})
}

func (c *checker) first() error {
	if len(c.found) == 0 {
		return nil
	}
	return c.found[0]
}

// place is where a rule is checked, as a list from the inside out, so that nothing is allocated while all is well.
type place struct {
	outer *place
	key   string
	index int // -1 for a key
}

func key(outer *place, name string) place    { return place{outer: outer, key: name, index: -1} }
func index(outer *place, position int) place { return place{outer: outer, index: position} }

// String writes parts[2].mime.
func (p *place) String() string {
	switch {
	case p == nil:
		return ""
	case p.index >= 0:
		return p.outer.String() + "[" + strconv.Itoa(p.index) + "]"
	}
	return p.outer.below(p.key)
}

// below writes the path of a field inside the place.
func (p *place) below(field string) string {
	path := p.String()
	switch {
	case path == "":
		return field
	case field == "":
		return path
	}
	return path + "." + field
}

// machine checks an id or another text that only machines read: no control characters at all, because ids end up in
// header lines of other protocols.
func (c *checker) machine(outer *place, name, text string, limit int, required bool) {
	at := key(outer, name)
	switch {
	case text == "":
		if required {
			c.broken(&at, "is required")
		}
	case len(text) > limit:
		c.broken(&at, fmt.Sprintf("is over %d bytes", limit))
	case !utf8.ValidString(text):
		c.broken(&at, "must be valid UTF-8")
	case hasControl(text):
		c.broken(&at, "must not contain control characters")
	}
}

// prose checks that a text for people is UTF-8 and, where a limit is given, not over it.
func (c *checker) prose(outer *place, name, text string, limit int) {
	at := key(outer, name)
	if limit > 0 && len(text) > limit {
		c.over(&at, limit)
	}
	if !utf8.ValidString(text) {
		c.broken(&at, "must be valid UTF-8")
	}
}

// oneOf checks a closed list of values.
func (c *checker) oneOf(outer *place, name, value string, allowed ...string) {
	if slices.Contains(allowed, value) {
		return
	}
	at := key(outer, name)
	if value == "" {
		c.broken(&at, "is required")
		return
	}
	c.broken(&at, "must be "+alternatives(allowed))
}

func alternatives(values []string) string {
	if len(values) == 1 {
		return values[0]
	}
	last := len(values) - 1
	return strings.Join(values[:last], ", ") + " or " + values[last]
}

// address checks that a text is an address in its canonical form @user@domain.
func (c *checker) address(at *place, text string) (identity.Address, bool) {
	if text == "" {
		c.broken(at, "is required")
		return identity.Address{}, false
	}
	if len(text) > c.limits.Address {
		c.broken(at, fmt.Sprintf("is over %d bytes", c.limits.Address))
		return identity.Address{}, false
	}
	parsed, err := identity.ParseAddress(text)
	if err != nil || !parsed.Is(text) {
		c.broken(at, "must be an address in the form @user@domain")
		return identity.Address{}, false
	}
	return parsed, true
}
