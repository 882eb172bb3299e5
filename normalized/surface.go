package normalized

import (
	"bytes"
	"encoding/json"
	"slices"

	"inbox/identity"
)

// Bounds of a surface (message contract, section 1).
const (
	MaxSurfaceBytes      = 32 << 10 // as JSON
	MaxSurfaceRecipients = 100      // of To and Cc together; what is over is counted
	MaxHostContextBytes  = 8 << 10
)

// Surface is what the native form of a message says beyond the contract (message contract, section 1). It is data that
// the sender wrote and never a ground for access. Members that stand in no field are kept.
type Surface struct {
	Channel  string             `json:"channel"` // email, activitypub, a2a, chat, or the name of a connector
	Subject  string             `json:"subject,omitempty"`
	Date     *identity.Time     `json:"date,omitempty"` // by the sender's clock
	Tag      string             `json:"tag,omitempty"`  // order-4711 of agent+order-4711@domain
	To       []SurfaceRecipient `json:"to,omitempty"`   // as the header lists them, the agent among them
	Cc       []SurfaceRecipient `json:"cc,omitempty"`
	Omitted  int                `json:"recipients_omitted,omitempty"` // further recipients: beyond the bounds, without an address, or in no list
	ListID   string             `json:"list_id,omitempty"`            // mailing list (RFC 2919)
	Language string             `json:"language,omitempty"`           // BCP 47

	Visibility  string          `json:"visibility,omitempty"`   // of the message itself: public, unlisted, followers or direct
	Source      string          `json:"source,omitempty"`       // kind of the program that wrote it, such as rest, jsonrpc or channel
	ClientName  string          `json:"client_name,omitempty"`  // which one
	HostContext json.RawMessage `json:"host_context,omitempty"` // object: what the program's host says about where its user is

	unknown members
}

// SurfaceRecipient is one address in To or Cc. Name is what the sender calls it.
type SurfaceRecipient struct {
	Address string `json:"address"` // canonical @user@domain
	Name    string `json:"name,omitempty"`
}

// AddRecipients appends to To or Cc, which list points at, as long as the bounds allow it, and counts the rest in Omitted.
func (s *Surface) AddRecipients(list *[]SurfaceRecipient, recipients ...SurfaceRecipient) {
	const overhead, others = 32, 8 << 10 // of one recipient's JSON; room for the other members
	used := 0
	for _, one := range slices.Concat(s.To, s.Cc) {
		used += escapedSize(one.Address) + escapedSize(one.Name) + overhead
	}

	for _, one := range recipients {
		size := escapedSize(one.Address) + escapedSize(one.Name) + overhead
		if len(s.To)+len(s.Cc) >= MaxSurfaceRecipients || used+size > MaxSurfaceBytes-others {
			s.Omitted++
			continue
		}
		used += size
		*list = append(*list, one)
	}
}

// escapedSize is the most that a text measures as JSON.
func escapedSize(text string) (size int) {
	for i := range len(text) {
		if size++; text[i] < ' ' || text[i] == '"' || text[i] == '\\' || text[i] == '<' || text[i] == '>' || text[i] == '&' || text[i] == 0x7f {
			size += 5
		}
	}
	return size
}

func (w *writer) surface(s *Surface) {
	w.open('{')
	w.field("channel", s.Channel)
	w.optional("subject", s.Subject)
	w.optionalTime("date", s.Date)
	w.optional("tag", s.Tag)
	w.surfaceRecipients("to", s.To)
	w.surfaceRecipients("cc", s.Cc)
	w.positive("recipients_omitted", int64(s.Omitted))
	w.optional("list_id", s.ListID)
	w.optional("language", s.Language)
	w.optional("visibility", s.Visibility)
	w.optional("source", s.Source)
	w.optional("client_name", s.ClientName)
	w.raw("host_context", s.HostContext)
	w.unknown(s.unknown)
	w.close('}')
}

func (w *writer) surfaceRecipients(name string, list []SurfaceRecipient) {
	if len(list) == 0 {
		return
	}

	w.name(name)
	w.open('[')

	for _, one := range list {
		w.open('{')
		w.field("address", one.Address)
		w.optional("name", one.Name)
		w.close('}')
	}
	w.close(']')
}

func readSurface(r *reader, s *Surface) {
	if !r.beginObject() {
		return
	}
	for r.field() {
		switch string(r.key) {
		case "channel":
			s.Channel = r.string()
		case "subject":
			s.Subject = r.string()
		case "date":
			s.Date = optional(r, readInstant)
		case "tag":
			s.Tag = r.string()
		case "to":
			s.To = readSurfaceRecipients(r)
		case "cc":
			s.Cc = readSurfaceRecipients(r)
		case "recipients_omitted":
			s.Omitted = int(r.integer())
		case "list_id":
			s.ListID = r.string()
		case "language":
			s.Language = r.string()
		case "visibility":
			s.Visibility = r.string()
		case "source":
			s.Source = r.string()
		case "client_name":
			s.ClientName = r.string()
		case "host_context":
			s.HostContext = r.raw()
		default:
			s.unknown.keep(r)
		}
	}
}

func readSurfaceRecipients(r *reader) (list []SurfaceRecipient) {
	if !r.beginArray() {
		return nil
	}

	for r.element() {
		var one SurfaceRecipient
		if !r.beginObject() {
			continue
		}

		for r.field() {
			switch string(r.key) {
			case "address":
				one.Address = r.string()
			case "name":
				one.Name = r.string()
			default:
				r.skip()
			}
		}

		list = append(list, one)
	}

	return list
}

// clean makes one line of what the sender wrote.
func (s *Surface) clean() *Surface {
	cleaned := *s
	cleaned.Subject, cleaned.ListID, cleaned.Language = cleanName(s.Subject), cleanName(s.ListID), cleanName(s.Language)
	cleaned.Source, cleaned.ClientName = cleanName(s.Source), cleanName(s.ClientName)
	cleaned.To, cleaned.Cc = cleanRecipients(s.To), cleanRecipients(s.Cc)
	return &cleaned
}

func cleanRecipients(list []SurfaceRecipient) []SurfaceRecipient {
	cleaned := slices.Clone(list)
	for i := range cleaned {
		cleaned[i].Name = cleanName(cleaned[i].Name)
	}
	return cleaned
}

func (c *checker) surface(s *Surface) {
	at := key(nil, "surface")
	c.machine(&at, "channel", s.Channel, c.limits.Name, true)
	c.prose(&at, "subject", s.Subject, MaxSurfaceBytes)

	if s.Date != nil {
		c.instant(&at, "date", *s.Date)
	}

	c.machine(&at, "tag", s.Tag, c.limits.Address, false)
	c.machine(&at, "list_id", s.ListID, c.limits.ID, false)
	c.machine(&at, "language", s.Language, c.limits.Name, false)
	c.machine(&at, "source", s.Source, c.limits.Name, false)
	c.machine(&at, "client_name", s.ClientName, c.limits.Name, false)
	c.free(&at, "host_context", s.HostContext, MaxHostContextBytes)
	if s.Visibility != "" {
		c.oneOf(&at, "visibility", s.Visibility, visibilities...)
	}
	if context := bytes.TrimSpace(s.HostContext); len(context) > 0 && context[0] != '{' {
		field := key(&at, "host_context")
		c.broken(&field, "must be an object")
	}

	if s.Omitted < 0 {
		omitted := key(&at, "recipients_omitted")
		c.broken(&omitted, "must not be below zero")
	}

	if len(s.To)+len(s.Cc) > MaxSurfaceRecipients {
		c.broken(&at, "has more than 100 recipients")
		return
	}

	c.surfaceRecipients(&at, "to", s.To)
	c.surfaceRecipients(&at, "cc", s.Cc)
	w := newWriter(nil)
	switch w.surface(s); {
	case w.err != nil:
		c.broken(&at, "cannot be written as JSON")
	case len(w.buf) > MaxSurfaceBytes:
		c.over(&at, MaxSurfaceBytes)
	}
}

func (c *checker) surfaceRecipients(outer *place, name string, list []SurfaceRecipient) {
	at := key(outer, name)
	for i := range list {
		one := index(&at, i)
		address := key(&one, "address")
		c.address(&address, list[i].Address)
		c.prose(&one, "name", list[i].Name, c.limits.Name)
	}
}

func surfaceSchema() schema {
	text := schema{"type": "string"}
	recipients := listOf(record([]string{"address"}, schema{"address": addressSchema(), "name": text}), MaxSurfaceRecipients)
	return titled("What the native form says beyond the contract: data, never authorization", record([]string{"channel"}, schema{
		"channel": machineText(stated.Name), "subject": text, "date": instantSchema(), "tag": machineText(stated.Address),
		"to": recipients, "cc": recipients, "recipients_omitted": natural(), "list_id": machineText(stated.ID), "language": machineText(stated.Name),
		"visibility": among(visibilities...), "source": machineText(stated.Name), "client_name": machineText(stated.Name),
		"host_context": schema{"type": "object"},
	}))
}
