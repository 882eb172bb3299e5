package normalized

import "inbox/policypart"

// AppendJSON appends the part as JSON to dst, see Message.AppendJSON.
func (p *Part) AppendJSON(dst []byte) ([]byte, error) {
	w := newWriter(dst)
	w.part(p)
	return w.buf, w.err
}

// MarshalJSON writes the fields of the part's kind; a part of an unknown kind is written as it came.
func (p Part) MarshalJSON() ([]byte, error) { return p.AppendJSON(nil) }

// UnmarshalJSON reads a part that our own store wrote. A part of an unknown kind is kept byte for byte.
func (p *Part) UnmarshalJSON(data []byte) error {
	r := newReader(data)
	*p = Part{}
	readPart(r, p)
	return r.end()
}

// Equal reports whether two parts are the same document.
func (p Part) Equal(other Part) bool { return sameDocument(p.AppendJSON, other.AppendJSON) }

// Known reports whether the part is of a kind of this contract. Renderers skip all others.
func (p *Part) Known() bool {
	switch p.Kind {
	case PartText, PartFile, PartLink, PartArtifact, PartToolCall, PartPolicy:
		return true
	}
	return false
}

func (w *writer) parts(list []Part) {
	w.open('[')
	for i := range list {
		w.part(&list[i])
	}
	w.close(']')
}

func (w *writer) part(p *Part) {
	if p.whole != nil && !p.Known() {
		w.comma()
		w.buf = append(w.buf, p.whole...)
		return
	}

	w.open('{')
	w.field("kind", p.Kind)

	switch p.Kind {
	case PartText:
		w.field("mime", p.MIME)
		w.field("content", p.Content)
		w.optional("text_new", p.New)
		w.citation(p.Citation)
	case PartFile, PartArtifact:
		w.file(p)
	case PartLink:
		w.field("url", p.URL)
		w.optional("title", p.Title)
		w.optional("description", p.Description)
		w.citation(p.Citation)
	case PartToolCall:
		w.toolCall(p)
	case PartPolicy:
		if p.Policy != nil {
			w.standard("policy", p.Policy)
		}
	}

	w.unknown(p.unknown)
	w.close('}')
}

func (w *writer) file(p *Part) {
	artifact := p.Kind == PartArtifact
	if artifact {
		w.optional("artifact_type", p.ArtifactType)
		w.optional("id", p.ID)
	}

	w.field("mime", p.MIME)
	if p.BytesRef != nil {
		w.name("bytes_ref")
		w.bytesRef(p.BytesRef)
	}

	w.optional("name", p.Name)
	w.positive("size", p.Size)
	w.optional("alt", p.Alt)
	w.optional("content_id", p.ContentID)

	if artifact {
		w.optional("description", p.Description)
	}
}

func (w *writer) toolCall(p *Part) {
	w.field("id", p.ID)
	w.field("name", p.Name)
	w.raw("args", p.Args)
	w.raw("result", p.Result)

	if p.Error != nil {
		w.name("error")
		w.open('{')
		w.field("message", p.Error.Message)
		w.close('}')
	}

	w.raw("metadata", p.Metadata)
}

func (w *writer) citation(c *Citation) {
	if c != nil {
		w.standard("citation", c)
	}
}

func (w *writer) bytesRef(b *BytesRef) {
	w.open('{')
	w.field("kind", b.Kind)

	if b.Kind == BytesInline { // an empty file has bytes too: none
		w.field("data_base64", b.DataBase64)
	}

	w.optional("url", b.URL)
	w.optionalTime("expires_at", b.ExpiresAt)
	w.optional("algo", b.Algo)
	w.optional("digest", b.Digest)
	w.close('}')
}

func readParts(r *reader) (list []Part) {
	if !r.beginArray() {
		return nil
	}
	for r.element() {
		list = append(list, Part{})
		readPart(r, &list[len(list)-1])
	}
	return list
}

// readPart reads the kind first, wherever it stands, because it decides which keys are meant.
func readPart(r *reader, p *Part) {
	p.Kind = peekKind(r)
	if r.err == nil && !p.Known() {
		p.whole = append(p.whole, r.span()...)
		return
	}
	if !r.beginObject() {
		return
	}

	for r.field() {
		if string(r.key) == "kind" {
			r.skip()
			continue
		}
		if !readPartField(r, p) {
			p.unknown.keep(r)
		}
	}

	if r.complete && p.Kind == PartText && p.MIME == "" {
		p.MIME = MIMEPlain
	}
}

// peekKind looks for the field kind of the object that begins here and comes back to its begin.
func peekKind(r *reader) (kind string) {
	pos, level := r.pos, len(r.path)
	if !r.beginObject() {
		return ""
	}

	for r.field() {
		if string(r.key) == "kind" {
			kind = r.string()
			break
		}
		r.skip()
	}

	if r.err == nil {
		r.pos, r.path = pos, r.path[:level]
	}

	return kind
}

// readPartField reads the current field if it belongs to the part's kind.
func readPartField(r *reader, p *Part) bool {
	switch p.Kind {
	case PartText:
		return readTextField(r, p)
	case PartFile, PartArtifact:
		return readFileField(r, p)
	case PartLink:
		return readLinkField(r, p)
	case PartToolCall:
		return readToolCallField(r, p)
	}

	if string(r.key) != "policy" {
		return false
	}

	p.Policy = optional(r, func(r *reader, policy *policypart.Part) { r.standard(policy) })
	return true
}

func readTextField(r *reader, p *Part) bool {
	switch string(r.key) {
	case "mime":
		p.MIME = r.string()
		p.nameText()
	case "content":
		p.Content = r.string()
	case "text_new":
		p.New = r.string()
	case "citation":
		p.Citation = readCitation(r)
	default:
		return false
	}
	return true
}

func readFileField(r *reader, p *Part) bool {
	switch string(r.key) {
	case "mime":
		p.MIME = r.string()
	case "bytes_ref":
		p.BytesRef = optional(r, readBytesRef)
	case "name":
		p.Name = r.string()
	case "size":
		p.Size = r.integer()
	case "alt":
		p.Alt = r.string()
	case "content_id":
		p.ContentID = r.string()
	default:
		return p.Kind == PartArtifact && readArtifactField(r, p)
	}
	return true
}

func readArtifactField(r *reader, p *Part) bool {
	switch string(r.key) {
	case "artifact_type":
		p.ArtifactType = r.string()
	case "id":
		p.ID = r.string()
	case "description":
		p.Description = r.string()
	default:
		return false
	}
	return true
}

func readLinkField(r *reader, p *Part) bool {
	switch string(r.key) {
	case "url":
		p.URL = r.string()
	case "title":
		p.Title = r.string()
	case "description":
		p.Description = r.string()
	case "citation":
		p.Citation = readCitation(r)
	default:
		return false
	}
	return true
}

// readCitation returns nil for what names no source.
func readCitation(r *reader) *Citation {
	read := optional(r, func(r *reader, c *Citation) { r.standard(c) })
	if read == nil || !read.named() {
		return nil
	}
	return read
}

func readToolCallField(r *reader, p *Part) bool {
	switch string(r.key) {
	case "id":
		p.ID = r.string()
	case "name":
		p.Name = r.string()
	case "args":
		p.Args = r.raw()
	case "result":
		p.Result = r.raw()
	case "error":
		p.Error = optional(r, readToolError)
	case "metadata":
		p.Metadata = r.raw()
	default:
		return false
	}
	return true
}

func readToolError(r *reader, e *ToolError) {
	if !r.beginObject() {
		return
	}
	for r.field() {
		if string(r.key) == "message" {
			e.Message = r.string()
			continue
		}
		r.skip()
	}
}

func readBytesRef(r *reader, b *BytesRef) {
	if !r.beginObject() {
		return
	}
	given := false
	for r.field() {
		switch string(r.key) {
		case "kind":
			b.Kind = r.string()
		case "data_base64":
			given = !r.null()
			b.DataBase64 = r.string()
		case "url":
			b.URL = r.string()
		case "expires_at":
			b.ExpiresAt = optional(r, readInstant)
		case "algo":
			b.Algo = r.string()
		case "digest":
			b.Digest = r.string()
		default:
			r.skip()
		}
	}

	if b.Kind == BytesInline && b.URL == "" && !given { // a file that was forgotten is no empty file
		r.failAt(r.where()+".data_base64", "is missing")
	}
}
