package normalized

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/url"
	"slices"
	"strings"

	"inbox/identity"
	"inbox/internal/fault"
	"inbox/policypart"
)

// where parts stand decides what they may be.
type setting int

const (
	inbound    setting = iota // a message: policy as data, no unknown kinds
	question                  // of our agent to another one: no policy, no unknown kinds
	remembered                // the history: no policy, unknown kinds are kept
	outbound                  // our agent's answer: one policy part at the end, no tool call without its outcome
	forwarded                 // another agent's answer: unknown kinds are kept
)

const textMIMERule = "must be text/plain, text/markdown or text/html"

func (c *checker) parts(at *place, list []Part, where setting) {
	if len(list) > c.limits.Parts {
		c.broken(at, fmt.Sprintf("has more than %d parts", c.limits.Parts))
		return
	}

	if !slices.ContainsFunc(list, func(p Part) bool { return !p.blank() }) {
		c.broken(at, "needs at least one part that is not blank")
	}

	text := 0
	for i := range list {
		if c.full() {
			return
		}
		entry := index(at, i)
		c.part(&entry, &list[i], where)
		text += len(list[i].Content)
	}

	if text > c.limits.Text {
		c.over(at, c.limits.Text)
	}
}

func (c *checker) part(at *place, p *Part, where setting) {
	switch p.Kind {
	case PartText:
		c.text(at, p)
	case PartFile, PartArtifact:
		c.file(at, p)
	case PartLink:
		c.link(at, p)
	case PartToolCall:
		c.toolCall(at, p)
	case PartPolicy:
		c.policy(at, p, where)
	default:
		if where == inbound || where == question || where == outbound {
			c.oneOf(at, "kind", p.Kind, PartText, PartFile, PartLink, PartArtifact, PartToolCall, PartPolicy)
		}
	}
}

func (c *checker) text(at *place, p *Part) {
	if _, known := TextMIME(p.MIME); !known {
		mime := key(at, "mime")
		c.broken(&mime, textMIMERule)
	}
	c.prose(at, "content", p.Content, c.limits.TextPart)
	c.prose(at, "text_new", p.New, c.limits.TextPart)
}

// unsafeSchemes run or reveal something instead of leading somewhere.
var unsafeSchemes = []string{"javascript", "vbscript", "data", "file", "blob", "about"}

func (c *checker) link(at *place, p *Part) {
	c.machine(at, "url", p.URL, c.limits.ID, true)
	u, err := url.Parse(p.URL)
	if p.URL != "" && (err != nil || u.Scheme == "" || u.Host == "" && u.Opaque == "" || slices.Contains(unsafeSchemes, u.Scheme)) {
		field := key(at, "url")
		c.broken(&field, "must be an absolute address that leads somewhere")
	}
	c.prose(at, "title", p.Title, c.limits.TextPart)
	c.prose(at, "description", p.Description, c.limits.TextPart)
}

func (c *checker) toolCall(at *place, p *Part) {
	c.machine(at, "id", p.ID, c.limits.ID, true)
	c.machine(at, "name", p.Name, c.limits.Name, true)
	c.free(at, "args", p.Args, c.limits.ToolJSON)
	c.free(at, "result", p.Result, c.limits.ToolJSON)
	c.free(at, "metadata", p.Metadata, c.limits.ToolJSON)

	if p.Error == nil {
		return
	}

	failure := key(at, "error")
	if present(p.Result) {
		c.broken(&failure, "does not go with a result")
	}

	if strings.TrimSpace(p.Error.Message) == "" {
		message := key(&failure, "message")
		c.broken(&message, "is required")
	}

	c.prose(&failure, "message", p.Error.Message, c.limits.ToolJSON)
}

// present reports whether free-form JSON is there: null counts as absent.
func present(value json.RawMessage) bool {
	value = bytes.TrimSpace(value)
	return len(value) > 0 && string(value) != "null"
}

// Ended reports whether a tool call has its outcome.
func (p *Part) Ended() bool { return p.Kind == PartToolCall && !p.running() }

// running reports whether a tool call has no outcome yet.
func (p *Part) running() bool { return p.Kind == PartToolCall && !present(p.Result) && p.Error == nil }

func (c *checker) policy(at *place, p *Part, where setting) {
	field := key(at, "policy")
	switch {
	case where == question || where == remembered:
		kind := key(at, "kind")
		c.broken(&kind, "policy is allowed only in messages and answers")
	case p.Policy == nil:
		c.broken(&field, "is required")
	case where == forwarded:
		c.foreignPolicy(&field, p.Policy)
	default:
		c.shape(&field, c.policyShape(*p.Policy))
	}
}

// policyShape checks a demand. In development our own pages are at plain http, which the part's own rules do not know.
func (c *checker) policyShape(p policypart.Part) *identity.ShapeError {
	if rest, plain := strings.CutPrefix(p.URL, "http://"); plain && c.limits.AllowHTTP {
		p.URL = "https://" + rest
	}
	return p.Check()
}

// foreignPolicy asks of another agent's demand only what a reader needs.
func (c *checker) foreignPolicy(at *place, p *policypart.Part) {
	c.machine(at, "kind", p.Kind, c.limits.Name, true)
	c.prose(at, "message", p.Message, policypart.MaxBytes)
	if strings.TrimSpace(p.Message) == "" {
		message := key(at, "message")
		c.broken(&message, "is required")
	}
}

func partTexts(parts []Part) (total int) {
	for i := range parts {
		p := &parts[i]
		total += len(p.Content) + len(p.New) + len(p.Args) + len(p.Result) + len(p.Alt) + len(p.ContentID) + len(p.Description) + len(p.Title) +
			len(p.Name) + len(p.ID) + len(p.URL) + len(p.Metadata) + p.Citation.size() + len(p.whole) + p.unknown.size()
	}
	return total
}

// inlineBytes adds up the base64 of all parts, which the limit of a document does not count.
func inlineBytes(parts []Part) (total int) {
	for i := range parts {
		if ref := parts[i].BytesRef; ref != nil && ref.Kind == BytesInline {
			total += len(ref.DataBase64)
		}
	}
	return total
}

func (c *checker) file(at *place, p *Part) {
	c.mediaType(at, p.MIME)
	ref := key(at, "bytes_ref")
	if p.BytesRef == nil {
		c.broken(&ref, "is required")
	} else if f := p.BytesRef.check(c.limits); f != nil {
		c.add(&fault.Fault{Kind: f.Kind, Field: ref.below(f.Field), Public: f.Public})
	}

	c.machine(at, "name", p.Name, c.limits.Name, false)
	c.natural(at, "size", p.Size)
	c.prose(at, "alt", p.Alt, c.limits.TextPart)
	c.machine(at, "content_id", p.ContentID, c.limits.ID, false)

	if p.Kind == PartArtifact {
		c.machine(at, "artifact_type", p.ArtifactType, c.limits.Name, false)
		c.machine(at, "id", p.ID, c.limits.ID, false)
		c.prose(at, "description", p.Description, c.limits.TextPart)
	}
}

func (c *checker) mediaType(at *place, text string) {
	if simpleMediaType(text) {
		return
	}
	kind, _, err := mime.ParseMediaType(text)
	if err != nil || len(text) > c.limits.Name || strings.Count(kind, "/") != 1 {
		field := key(at, "mime")
		c.broken(&field, "must be a media type such as image/png")
	}
}

// simpleMediaType finds type/subtype without parameters, nearly all there are.
func simpleMediaType(text string) bool {
	kind, subtype, found := strings.Cut(text, "/")
	return found && len(text) < 128 && isMediaToken(kind) && isMediaToken(subtype)
}

func isMediaToken(text string) bool {
	for i := range len(text) {
		c := text[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("!#$&-^_.+", rune(c)) {
			return false
		}
	}
	return text != ""
}
