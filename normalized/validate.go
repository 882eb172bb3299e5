package normalized

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"inbox/identity"
	"inbox/internal/fault"
)

// Validate returns the first rule of the message contract that a message breaks, in the order of section 1, or nil. The
// error is a *fault.Fault: Malformed or TooLarge (Forbidden for an exhausted chain of agents), Field is the JSON path.
// Raw.Ref may still be empty, it is filled on acceptance. Clean comes first for what strangers wrote.
func Validate(m Message, limits Limits) error {
	c := checker{limits: limits.orDefault(), stop: 1}
	c.message(&m)
	return c.first()
}

// Violations returns every broken rule (at most 64) in the order in which Validate checks them.
func Violations(m Message, limits Limits) []*fault.Fault {
	c := checker{limits: limits.orDefault(), stop: maxViolations}
	c.message(&m)
	return c.found
}

func (c *checker) message(m *Message) {
	c.machine(nil, "id", m.ID, c.limits.ID, true)
	c.machine(nil, "thread_id", m.ThreadID, c.limits.ID, true)
	c.machine(nil, "in_reply_to", m.InReplyTo, c.limits.ID, false)
	sender := key(nil, "sender")
	c.sender(&sender, &m.Sender)
	c.evidence(&sender, m.Sender.Identities)
	c.recipient(m.Recipient)
	parts := key(nil, "parts")
	c.parts(&parts, m.Parts, inbound)
	c.history(m.History)
	c.capabilities(&m.RecipientCapabilities)
	c.oneOf(nil, "received_via", m.ReceivedVia, ViaActivityPub, ViaA2A, ViaEmail)
	c.instant(nil, "received_at", m.ReceivedAt)
	c.raw(&m.Raw)

	if m.PolicyResolution != nil {
		at := key(nil, "policy_resolution")
		c.shape(&at, m.PolicyResolution.Check())
	}

	if m.ReceivedTrace != nil {
		c.trace(m.ReceivedTrace)
	}
	if m.Surface != nil {
		c.surface(m.Surface)
	}

	c.documentSize(m.AppendJSON, m.texts(), inlineBytes(m.Parts))
}

func (c *checker) recipient(text string) {
	at := key(nil, "recipient")
	if parsed, ok := c.address(&at, text); ok && !identity.ValidAgentName(parsed.Local) {
		c.broken(&at, "must be the address of an agent")
	}
}

func (c *checker) history(turns []HistoricalMessage) {
	at := key(nil, "history")
	if len(turns) > c.limits.History {
		c.broken(&at, fmt.Sprintf("has more than %d turns", c.limits.History))
		return
	}
	for i := range turns {
		if c.full() {
			return
		}
		turn := index(&at, i)
		c.turn(&turn, &turns[i])
	}
}

func (c *checker) turn(at *place, h *HistoricalMessage) {
	c.oneOf(at, "role", h.Role, RoleUser, RoleAssistant)
	if h.Segments == nil {
		c.segment(at, &Segment{ID: h.ID, Sender: h.Sender, Parts: h.Parts, Timestamp: h.Timestamp})
		return
	}

	c.machine(at, "id", h.ID, c.limits.ID, false)
	c.speaker(at, &h.Sender)
	c.instant(at, "timestamp", h.Timestamp)

	segments := key(at, "segments")
	if len(h.Segments) < 2 {
		c.broken(&segments, "has at least two entries")
	}

	count := 0
	for i := range h.Segments {
		if c.full() {
			return
		}
		entry := index(&segments, i)
		c.segment(&entry, &h.Segments[i])
		count += len(h.Segments[i].Parts)
	}

	if len(h.Parts) != count {
		parts := key(at, "parts")
		c.broken(&parts, "must be the parts of all segments")
	}
}

func (c *checker) segment(at *place, s *Segment) {
	c.machine(at, "id", s.ID, c.limits.ID, false)
	c.speaker(at, &s.Sender)
	parts := key(at, "parts")
	c.parts(&parts, s.Parts, remembered)
	c.instant(at, "timestamp", s.Timestamp)
}

// speaker checks the sender of an earlier message, whose evidence is a reference.
func (c *checker) speaker(at *place, s *Sender) {
	sender := key(at, "sender")
	c.sender(&sender, s)
	for i := range s.Identities {
		identities := key(&sender, "identities")
		entry := index(&identities, i)
		c.shape(&entry, s.Identities[i].CheckReference())
	}
}

func (c *checker) raw(raw *Raw) {
	at := key(nil, "raw")
	const prefix = "sha256:"
	if raw.Ref != "" && (len(raw.Ref) < len(prefix) || raw.Ref[:len(prefix)] != prefix || !isDigest(raw.Ref[len(prefix):])) {
		ref := key(&at, "ref")
		c.broken(&ref, "must be sha256: and 64 lower-case hexadecimal digits")
	}
	c.machine(&at, "media_type", raw.MediaType, c.limits.Name, true)
	c.machine(&at, "url", raw.URL, c.limits.ID, false) // this server wrote it
}

// trace checks another agent's answer, which we carry for display: its size and what would break a renderer.
func (c *checker) trace(r *Response) {
	at := key(nil, "received_trace")
	body, err := r.AppendJSON(nil)
	switch {
	case err != nil:
		c.broken(&at, "cannot be written as JSON")
	case len(body) > c.limits.Trace:
		c.over(&at, c.limits.Trace)
	}

	if len(r.Dispatch) > 0 {
		dispatch := key(&at, "dispatch")
		c.broken(&dispatch, "is allowed only in answers of our own agents")
	}

	parts := key(&at, "parts")
	if len(r.Parts) > 0 {
		c.parts(&parts, r.Parts, forwarded)
	}
	if r.Status != "" {
		c.oneOf(&at, "status", r.Status, StatusCompleted, StatusInputRequired, StatusFailed)
	}
}

// ValidateTrace returns the first rule that another agent's answer breaks when it is carried as Message.ReceivedTrace, or
// nil; errors as in Validate.
func ValidateTrace(r Response, limits Limits) error {
	c := checker{limits: limits.orDefault(), stop: 1}
	c.trace(&r)
	return c.first()
}

// ValidateEarlier returns the first rule that the parts of a turn of the history break, or nil; errors as in Validate, Field begins with
// "parts".
func ValidateEarlier(list []Part, limits Limits) error {
	c := checker{limits: limits.orDefault(), stop: 1}
	at := key(nil, "parts")
	c.parts(&at, list, remembered)
	return c.first()
}

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

// documentSize measures the document only when its texts say that it could be over the limit: JSON writes at most six
// bytes for one of a text.
func (c *checker) documentSize(encode func([]byte) ([]byte, error), texts, inline int) {
	if c.full() || 6*texts < c.limits.Document/2 {
		return
	}

	body, err := encode(nil)
	switch {
	case err != nil:
		c.broken(nil, "the document cannot be written as JSON")
	case len(body)-inline > c.limits.Document:
		c.add(fault.Newf(fault.TooLarge, "the document is over %d bytes", c.limits.Document))
	}
}

// texts adds up the bytes of everything in the message that is not bounded by a small limit of its own.
func (m *Message) texts() int {
	total := m.Sender.texts() + partTexts(m.Parts)
	for i := range m.History {
		total += m.History[i].Sender.texts() + partTexts(m.History[i].Parts)
	}

	for _, mime := range slices.Concat(m.RecipientCapabilities.TextMIMEs, m.RecipientCapabilities.MentionRelay.Fields) {
		total += len(mime)
	}

	if m.Surface != nil {
		total += MaxSurfaceBytes // at most; it has a bound of its own
	}
	return total + m.unknown.size()
}

func (s *Sender) texts() int {
	total := len(s.DisplayName) + len(s.KeyID) + len(s.CarriedBy.String())
	if p := s.Profile; p != nil {
		total += len(p.DisplayName) + len(p.Username) + len(p.Locale) + len(p.Timezone) + len(p.Provider) +
			len(p.ProviderSubject) + len(p.URL)
		for name, value := range p.Extensions {
			total += len(name) + len(value)
		}
	}
	return total
}

func (m members) size() (total int) {
	for _, unknown := range m {
		total += len(unknown.key) + len(unknown.value)
	}
	return total
}

// free checks JSON whose form the contract leaves open.
func (c *checker) free(at *place, name string, value json.RawMessage, limit int) {
	if len(value) == 0 {
		return
	}

	field := key(at, name)
	if len(value) > limit {
		c.over(&field, limit)
		return
	}

	if err := CheckJSON(value, freeDepth); err != nil {
		c.broken(&field, "must be plain JSON: "+fault.Of(err).Public)
	}
}

func (c *checker) freeMap(at *place, values map[string]json.RawMessage) {
	if len(values) > maxUnknownKeys {
		c.broken(at, fmt.Sprintf("has more than %d keys", maxUnknownKeys))
		return
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		c.machine(at, name, name, c.limits.Name, true)
		if value := bytes.TrimSpace(values[name]); len(value) == 0 || value[0] != '{' {
			field := key(at, name)
			c.broken(&field, "must be an object")
			continue
		}
		c.free(at, name, values[name], c.limits.ToolJSON)
	}
}

func (c *checker) sender(at *place, s *Sender) {
	address := key(at, "address")
	c.address(&address, s.Address.String())
	c.prose(at, "display_name", s.DisplayName, 0)

	if s.Profile != nil {
		profile := key(at, "profile")
		c.profile(&profile, s.Profile)
	}

	c.oneOf(at, "auth_method", s.AuthMethod, AuthActivityPubSignature, AuthActivityPubProof, AuthA2AJWT, AuthA2AOAuth,
		AuthEmailDKIM, AuthEmailDMARC, AuthNone)
	if s.Verified && s.AuthMethod == AuthNone {
		verified := key(at, "verified")
		c.broken(&verified, "must be false with auth_method none")
	}

	c.machine(at, "key_id", s.KeyID, c.limits.ID, false)
	if !s.CarriedBy.IsZero() {
		carrier := key(at, "carried_by")
		c.address(&carrier, s.CarriedBy.String())
	}
}

// evidence checks the shape of every piece and the size of all.
func (c *checker) evidence(sender *place, list []identity.Evidence) {
	at := key(sender, "identities")
	if len(list) > c.limits.Identities {
		c.broken(&at, fmt.Sprintf("has more than %d entries", c.limits.Identities))
		return
	}

	total := 0
	for i := range list {
		entry := index(&at, i)
		c.shape(&entry, list[i].CheckShape())
		total += list[i].Size()
	}

	if total > c.limits.Evidence {
		c.over(&at, c.limits.Evidence)
	}
}

func (c *checker) profile(at *place, p *SenderProfile) {
	for _, field := range []struct{ name, text string }{
		{"display_name", p.DisplayName}, {"username", p.Username}, {"locale", p.Locale}, {"timezone", p.Timezone},
		{"provider", p.Provider}, {"provider_subject", p.ProviderSubject},
	} {
		c.prose(at, field.name, field.text, 0)
	}

	c.webURL(at, "url", p.URL)
	if p.Avatar != nil {
		avatar := key(at, "avatar")
		c.webURL(&avatar, "url", p.Avatar.URL)
		c.natural(&avatar, "width", int64(p.Avatar.Width))
		c.natural(&avatar, "height", int64(p.Avatar.Height))
	}

	extensions := key(at, "extensions")
	c.freeMap(&extensions, p.Extensions)
}

func (c *checker) webURL(at *place, name, address string) {
	if len(address) > c.limits.ID || !isWebURL(address) {
		field := key(at, name)
		c.broken(&field, "must be an https or http address")
	}
}

func (c *checker) natural(at *place, name string, value int64) {
	if value < 0 {
		field := key(at, name)
		c.broken(&field, "must not be negative")
	}
}

func (c *checker) instant(at *place, name string, value identity.Time) {
	if value.IsZero() {
		field := key(at, name)
		c.broken(&field, "is required")
	}
}
