package activitypub

import (
	"mime"
	"net/url"
	"path"
)

// Profile is what the actor of an agent shows beside its name and summary. Empty fields are left out.
type Profile struct {
	Icon, Image  string   // https addresses of pictures
	Hidden       bool     // not to be suggested to people (discoverable false)
	Indexable    bool     // posts may be found by search
	AlsoKnownAs  []string // actor IRIs that may move here
	QuotesByFans bool     // followers may quote without asking; otherwise nobody
}

// picture is an Image of an actor.
type picture struct {
	Type      string `json:"type"`
	MediaType string `json:"mediaType,omitempty"`
	URL       string `json:"url"`
}

// interaction says who may quote (FEP-044f).
type interaction struct {
	CanQuote approval `json:"canQuote"`
}

type approval struct {
	Automatic []string `json:"automaticApproval"`
}

// show adds what the operator wrote about the agent.
func (d *actorDocument) show(p Profile) {
	d.Icon, d.Image = pictureAt(p.Icon), pictureAt(p.Image)
	d.Discoverable, d.Indexable, d.AlsoKnownAs = !p.Hidden, p.Indexable, p.AlsoKnownAs
	d.Interaction = whoQuotes(d.ID, d.Followers, p.QuotesByFans)
}

// whoQuotes lets the followers quote, or the actor alone: nobody.
func whoQuotes(actor, followers string, byFollowers bool) *interaction {
	if byFollowers {
		return &interaction{approval{[]string{followers}}}
	}
	return &interaction{approval{[]string{actor}}}
}

func pictureAt(address string) *picture {
	parsed, err := url.Parse(address)
	if err != nil || address == "" {
		return nil
	}
	media, _, err := mime.ParseMediaType(mime.TypeByExtension(path.Ext(parsed.Path)))
	if err != nil {
		media = ""
	}
	return &picture{"Image", media, address}
}
