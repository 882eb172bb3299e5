package normalized

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
	r.part(p)
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
	case PartFile, PartArtifact:
		w.file(p)
	case PartLink:
		w.field("url", p.URL)
		w.optional("title", p.Title)
		w.optional("description", p.Description)
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
