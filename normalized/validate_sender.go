package normalized

import (
	"fmt"

	"inbox/identity"
)

func (c *checker) sender(at *place, s *Sender) {
	address := key(at, "address")
	c.address(&address, s.Address)
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
