package normalized

import (
	"mime"
	"strings"

	"inbox/internal/fault"
)

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
