package config

import (
	"fmt"
	"net/url"
)

// AgentFediverse is the account of an agent as other servers of the fediverse see it.
type AgentFediverse struct {
	// Address (https) of its picture.
	Icon string `toml:"icon"`
	// Address (https) of the wide picture above its profile.
	Image string `toml:"image"`
	// Whether servers may suggest it to people.
	Discoverable bool `toml:"discoverable"`
	// Whether its posts may be found by search.
	Indexable bool `toml:"indexable"`
	// Who may quote its posts: `nobody` or `followers`.
	Quotes string `toml:"quotes"`
	// Addresses of other accounts (their actor ids, `https://…`) that are the same: needed before one of them moves here.
	AlsoKnownAs []string `toml:"also_known_as"`
}

func (a *Agent) validateFediverse(p *problems, key string, private bool) {
	const remedy = "write an address that begins with https://"
	for name, address := range map[string]string{"icon": a.Fediverse.Icon, "image": a.Fediverse.Image} {
		if address != "" && !isWebAddress(address, private) {
			p.add(key+".fediverse."+name, fmt.Sprintf("%q is not an address", address), remedy)
		}
	}
	for _, address := range a.Fediverse.AlsoKnownAs {
		if !isWebAddress(address, private) {
			p.add(key+".fediverse.also_known_as", fmt.Sprintf("%q is not the id of an actor", address), remedy)
		}
	}
	oneOf(p, key+".fediverse.quotes", a.Fediverse.Quotes, "nobody", "followers")
}

// isWebAddress reports whether the text is an https address; plain http where private addresses are allowed.
func isWebAddress(text string, private bool) bool {
	u, err := url.Parse(text)
	return err == nil && u.Host != "" && u.User == nil && (u.Scheme == "https" || private && u.Scheme == "http")
}
