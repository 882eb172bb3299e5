package config

import (
	"fmt"
	"net/url"
	"time"
)

// Mail says how answers by email leave.
type Mail struct {
	// Domains of forwarders and mailing lists whose ARC seals are believed: a mail that they changed or passed on counts as
	// proven when all its sealers are listed and the first of them saw DMARC pass. List only whom you would let vouch for others.
	ARCSealers []string `toml:"arc_sealers"`
	// Whether answers ask for replies to an address of their own, `agent+t.<token>@domain`, so that a reply finds its
	// conversation even when its mail program loses In-Reply-To, and when the agent stands only in Bcc.
	ThreadTags bool `toml:"thread_tags"`
	// Whether mail that fails DMARC is refused where its domain asks for `quarantine`, and not only for `reject`. Otherwise it is
	// taken as mail without a proof, and the verdict shows the policy.
	RefuseQuarantine bool `toml:"refuse_quarantine"`
	// Whether mail that came through a mailing list is answered when it names the agent in To. Its author gets the answer,
	// the list never. An agent's own `answer_lists` goes before it.
	AnswerLists bool `toml:"answer_lists"`
	// Whose Reply-To is followed: `organization` (only when sender and address belong to one organization and the sender is
	// proven), `signed` (also elsewhere when the sender's own signature covers it, so that whoever can sign mail chooses whom
	// your agents write to) or `never`. Other answers go to From, and the timeline says so. An agent's own `reply_to` goes before it.
	ReplyTo string `toml:"reply_to"`
	// Whether answers go to everybody in To and Cc of a proven question, not only to its sender: never to mailing lists, to
	// addresses of your own domain and with a demand. An agent that names `to` and `cc` itself needs no such setting. An
	// agent's own `reply_all` goes before it.
	ReplyAll bool `toml:"reply_all"`
	// `capture` (kept and shown, nothing leaves), `smarthost` (everything goes to one relay) or `mx` (directly to the
	// servers of the recipients; needs port 25 outwards and an address of good repute).
	Mode string `toml:"mode"`
	// Relay for `mode = "smarthost"`: `smtp://user:password@host:port` (STARTTLS) or `smtps://…` (TLS from the start).
	Smarthost SecretURL `toml:"smarthost"`
	// Port of the destinations' mail servers, for `mode = "mx"`. Another one than 25 is for tests.
	MXPort int `toml:"mx_port"`
	// Whether the TLSA records of recipients' servers hold (DANE, RFC 7672), for `mode = "mx"`. It needs a `dns.resolver` on
	// this machine that validates DNSSEC, such as unbound.
	DANE bool `toml:"dane"`
	// Port of the servers that publish MTA-STS policies, for `mode = "mx"`. Another one than 443 is for tests.
	MTASTSPort int `toml:"mta_sts_port"`
	// DKIM selector: the public key is published at `<selector>._domainkey.<domain>`.
	DKIMSelector string `toml:"dkim_selector"`
	// PEM file with an existing RSA key for DKIM; empty = one is generated and kept in the database.
	DKIMKeyFile string `toml:"dkim_key_file"`
	// Selector of a second signature with Ed25519 (RFC 8463), whose key is generated and kept in the database; empty = only
	// RSA. Publish its record (`inbox dns`) before you turn it on.
	DKIMEd25519Selector string `toml:"dkim_ed25519_selector"`
	// Whether other servers must reach yours under TLS with a valid certificate: what the MTA-STS policy says that is
	// served at `https://mta-sts.<domain>/.well-known/mta-sts.txt`: `none`, `testing` or `enforce`.
	MTASTS string `toml:"mta_sts"`
	// Address to which other servers send their reports about DMARC and TLS, for the records of `inbox dns`.
	Reports string `toml:"reports" default:"postmaster@domain"`
	// Mails begun in a minute to one domain with `mode = "mx"`, on this node; 0 = no limit. New senders who are faster lose
	// their repute.
	DomainRate int `toml:"domain_rate" default:"30; 0 with allow_private"`
	// Lines of the question that an answer repeats below its own text, at most 30; 0 = none. Only people who have the
	// question get them.
	QuoteLines int `toml:"quote_lines"`
	// Waiting times between attempts for a mail. It is given up when the attempt after the last one fails.
	Retry []time.Duration `toml:"retry" default:"1m, 5m, 15m, 30m, 1h, 2h, then every 4h up to 5 days"`
}

// AgentFediverse is the account of an agent as other servers of the fediverse see it.
type AgentFediverse struct {
	// Address (https) of its picture. Without one a picture is drawn from the agent's address.
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
