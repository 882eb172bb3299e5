package config

import (
	"fmt"
	"net/url"
	"time"
)

// Mail is how answers leave by email.
type Mail struct {
	// Domains of forwarders and mailing lists whose ARC seals are verified. A mail that they changed or passed on is accepted
	// whatever the policy of its author's domain, if all its sealers are listed and the first of them saw DMARC pass. Its sender
	// stays unproven, because a seal does not prove for whom the author wrote it.
	ARCSealers []string `toml:"arc_sealers"`
	// Whether answers ask for replies to an address of their own, `agent+t.<token>@domain`. A reply then finds its conversation
	// even if the mail program drops In-Reply-To, or the agent is only in Bcc and the mail comes from the sender's own server.
	ThreadTags bool `toml:"thread_tags"`
	// Whether mail that fails DMARC is refused where its domain asks for `quarantine`, and not only for `reject`. Otherwise it
	// counts as mail without proof, and the verdict shows the policy.
	RefuseQuarantine bool `toml:"refuse_quarantine"`
	// Name of the agent that gets mail to addresses of your domain that no one has; empty = such mail is refused. Addresses of
	// the operator, such as `postmaster`, stay the operator's.
	CatchAll string `toml:"catch_all"`
	// Whether the agent answers mail from a mailing list that names it in To. The author gets the answer, the list never does.
	// An agent's own `answer_lists` takes precedence.
	AnswerLists bool `toml:"answer_lists"`
	// Which Reply-To is followed: `organization` (sender and address belong to one organization and the sender is proven),
	// `signed` (also elsewhere, if the sender's own signature covers it; then anyone who can sign mail chooses where your
	// agents write) or `never`. Otherwise the answer goes to From, and the timeline notes it. An agent's own `reply_to` takes
	// precedence.
	ReplyTo string `toml:"reply_to"`
	// Whether answers go to everyone in To and Cc of a proven question. They never go to mailing lists or to addresses of your
	// own domain, and a demand goes to the sender alone. An agent that names `to` and `cc` needs no such setting. An agent's
	// own `reply_all` takes precedence.
	ReplyAll bool `toml:"reply_all"`
	// `capture` (kept and shown, nothing leaves), `smarthost` (everything goes to one relay) or `mx` (directly to the servers
	// of the recipients; needs open port 25 outwards and an address with a good reputation).
	Mode string `toml:"mode"`
	// Relay for `mode = "smarthost"`: `smtp://user:password@host:port` (STARTTLS) or `smtps://…` (TLS from the start).
	Smarthost SecretURL `toml:"smarthost"`
	// PEM file with the certificates of your own authority, if the relay's certificate comes from it; empty = the authorities
	// of the operating system.
	SmarthostRootsFile string `toml:"smarthost_roots_file"`
	// Port of the destinations' mail servers, for `mode = "mx"`. Change it only for tests.
	MXPort int `toml:"mx_port"`
	// Whether the server obeys the TLSA records of recipients' servers (DANE, RFC 7672), for `mode = "mx"`. It needs a
	// `dns.resolver` on this machine that validates DNSSEC, such as unbound.
	DANE bool `toml:"dane"`
	// Port of the servers that publish MTA-STS policies, for `mode = "mx"`. Change it only for tests.
	MTASTSPort int `toml:"mta_sts_port"`
	// DKIM selector: the public key is published at `<selector>._domainkey.<domain>`.
	DKIMSelector string `toml:"dkim_selector"`
	// PEM file with an existing RSA key for DKIM; empty = the server makes one and keeps it in the database.
	DKIMKeyFile string `toml:"dkim_key_file"`
	// Selector of a second signature with Ed25519 (RFC 8463); the server makes the key and keeps it in the database. Empty =
	// RSA alone. Publish its record (`inbox dns`) before you turn it on.
	DKIMEd25519Selector string `toml:"dkim_ed25519_selector"`
	// Mode of your MTA-STS policy, served at `https://mta-sts.<domain>/.well-known/mta-sts.txt`: with `enforce` other servers
	// must use TLS with a valid certificate, with `testing` they report, with `none` neither.
	MTASTS string `toml:"mta_sts"`
	// Address to which other servers send their reports about DMARC and TLS, for the records of `inbox dns`.
	Reports string `toml:"reports" default:"postmaster@domain"`
	// New mails in a minute to one domain with `mode = "mx"`, on this node; 0 = no limit. A new sender that is faster loses
	// reputation.
	DomainRate int `toml:"domain_rate" default:"30; 0 with allow_private"`
	// Lines of the question that an answer repeats below its text, at most 30; 0 = none. Only people who have the question get
	// them.
	QuoteLines int `toml:"quote_lines"`
	// Pauses between attempts for a mail. If the attempt after the last pause fails, the mail is given up.
	Retry []time.Duration `toml:"retry" default:"1m, 5m, 15m, 30m, 1h, 2h, then every 4h up to 5 days"`
}

// AgentFediverse is the agent's account as other servers of the fediverse see it.
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
	// Addresses of the agent's other accounts (their actor ids, `https://…`): needed before one of them moves here.
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
