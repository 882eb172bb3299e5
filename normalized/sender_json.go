package normalized

import (
	"encoding/json"

	"inbox/identity"
)

func (w *writer) sender(s *Sender) {
	w.open('{')
	w.field("address", s.Address)
	w.optional("display_name", s.DisplayName)
	if s.Profile != nil {
		w.name("profile")
		w.profile(s.Profile)
	}
	w.field("auth_method", s.AuthMethod)
	w.boolean("verified", s.Verified)
	w.optional("key_id", s.KeyID)
	if len(s.Identities) > 0 {
		w.name("identities")
		w.open('[')
		for i := range s.Identities {
			w.evidence(&s.Identities[i])
		}
		w.close(']')
	}
	w.close('}')
}

func (r *reader) sender(s *Sender) {
	if !r.beginObject() {
		return
	}
	for r.field() {
		switch string(r.key) {
		case "address":
			s.Address = r.string()
		case "display_name":
			s.DisplayName = r.string()
		case "profile":
			s.Profile = optional(r, r.profile)
		case "auth_method":
			s.AuthMethod = r.string()
		case "verified":
			s.Verified = r.boolean()
		case "key_id":
			s.KeyID = r.string()
		case "identities":
			s.Identities = r.identities()
		default:
			r.skip()
		}
	}
}

func (w *writer) profile(p *SenderProfile) {
	w.open('{')
	w.optional("display_name", p.DisplayName)
	w.optional("username", p.Username)
	w.optional("url", p.URL)
	if p.Avatar != nil {
		w.name("avatar")
		w.image(p.Avatar)
	}
	w.optional("locale", p.Locale)
	w.optional("timezone", p.Timezone)
	w.optional("provider", p.Provider)
	w.optional("provider_subject", p.ProviderSubject)
	w.optionalTime("fetched_at", p.FetchedAt)
	w.rawMap("extensions", p.Extensions)
	w.close('}')
}

func (r *reader) profile(p *SenderProfile) {
	if !r.beginObject() {
		return
	}
	for r.field() {
		switch string(r.key) {
		case "display_name":
			p.DisplayName = r.string()
		case "username":
			p.Username = r.string()
		case "url":
			p.URL = r.string()
		case "avatar":
			p.Avatar = optional(r, r.image)
		case "locale":
			p.Locale = r.string()
		case "timezone":
			p.Timezone = r.string()
		case "provider":
			p.Provider = r.string()
		case "provider_subject":
			p.ProviderSubject = r.string()
		case "fetched_at":
			p.FetchedAt = optional(r, r.instant)
		case "extensions":
			p.Extensions = r.rawMap()
		default:
			r.skip()
		}
	}
}

func (w *writer) image(i *Image) {
	w.open('{')
	w.field("url", i.URL)
	w.optional("mime_type", i.MIMEType)
	w.positive("width", int64(i.Width))
	w.positive("height", int64(i.Height))
	w.close('}')
}

func (r *reader) image(i *Image) {
	if !r.beginObject() {
		return
	}
	for r.field() {
		switch string(r.key) {
		case "url":
			i.URL = r.string()
		case "mime_type":
			i.MIMEType = r.string()
		case "width":
			i.Width = int(r.integer())
		case "height":
			i.Height = int(r.integer())
		default:
			r.skip()
		}
	}
}

func (r *reader) instant(t *identity.Time) { *t = r.time() }

// rawMap reads an object of free-form values; members that are null count as absent.
func (r *reader) rawMap() (values map[string]json.RawMessage) {
	if !r.beginObject() {
		return nil
	}
	for r.field() {
		if len(values) >= maxUnknownKeys {
			r.fail("is one key too many")
		}
		key := string(r.key)
		value := r.raw()
		if value == nil {
			continue
		}
		if values == nil {
			values = map[string]json.RawMessage{}
		}
		values[key] = value
	}
	return values
}
