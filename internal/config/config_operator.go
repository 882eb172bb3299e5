package config

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/mail"
	"net/url"
	"slices"
	"strings"
	"time"

	"inbox/identity"
)

// Operator is who is responsible for this server. Name, contact, account, privacy and source are on the profile of every agent.
type Operator struct {
	// Name of the person or organisation.
	Name string `toml:"name"`
	// Mail address for questions and complaints.
	Contact string `toml:"contact"`
	// Account on the fediverse, `@user@domain`.
	Account string `toml:"account"`
	// Web page that says what is kept and for how long.
	Privacy string `toml:"privacy"`
	// Web page with the source of this server, or of its agents.
	Source string `toml:"source"`
	// Where the server tells you of trouble: `mailto:me@example.org`, an account of the fediverse as `@me@social.example` or
	// `acct:me@social.example`, which gets a private post, or the `https://…` address of a webhook, which gets signed JSON.
	// Urgent trouble is told at once, the rest in one digest a day.
	Notify []string `toml:"notify"`
	// What it tells you of; none = everything: `turn` (failed for good), `delivery` and `job` (given up), `held`, `approval`,
	// `report`, `mail` (to the operator), `bounce`, `destination` (a host to which nothing is sent any more), `back_end`,
	// `certificate`, `disk`, `probe` (the server does not answer itself), `database` (it is damaged or refuses messages).
	NotifyKinds []string `toml:"notify_kinds"`
	// How long the back end of an agent has to be down before you are told, 0s to 2h.
	OutageAfter time.Duration `toml:"outage_after"`
	// Key of the HMAC-SHA256 signature over the body that a webhook gets, at least 16 bytes.
	NotifySecret Secret `toml:"notify_secret"`
	// File with that key instead; a line end after it is cut off.
	NotifySecretFile string `toml:"notify_secret_file"`
	// After so long without an act of an operator, a conversation that was taken over returns to its agent; 0 = never.
	TakeoverIdle time.Duration `toml:"takeover_idle"`
	// When the digest is sent, as hour and minute.
	NotifyDigest string `toml:"notify_digest"`
	// Time zone of that hour and of the times in notices, such as `Europe/Berlin`.
	NotifyZone string `toml:"notify_zone"`
	// Mail address elsewhere that gets mail for `postmaster`, `abuse` and the like, whole and as an attachment, at most 100 a
	// day. Empty = it is only kept (`inbox mail list`). Mail of programs, reports and mail of this domain are never forwarded
	// automatically.
	ForwardMail string `toml:"forward_mail"`
}

// NoticeKindNames are the words of operator.notify_kinds.
var NoticeKindNames = []string{
	"turn", "delivery", "job", "held", "approval", "report", "mail", "bounce", "destination", "back_end", "certificate", "disk", "probe", "database",
}

// maxNotify bounds operator.notify: each address costs a delivery for every notice.
const maxNotify = 10

// NotifyAddress is one of operator.notify.
type NotifyAddress struct {
	// Label is what lists show: of a webhook the host and a sum of the address, whose path may be secret.
	Label string
	// Person is user@domain for mail, @user@domain for the fediverse; empty for a webhook.
	Person string
	// URL of a webhook.
	URL string
}

// ParseNotify reads an address as operator.notify has it.
func ParseNotify(text string) (NotifyAddress, error) {
	scheme, rest, _ := strings.Cut(text, ":")
	switch {
	case strings.HasPrefix(text, "@"), strings.EqualFold(scheme, "acct"):
		if !strings.HasPrefix(text, "@") {
			text = rest
		}
		parsed, err := identity.ParseAddress(text)
		if err != nil {
			return NotifyAddress{}, errors.New("is not an account of the fediverse")
		}
		return NotifyAddress{Label: parsed.String(), Person: parsed.String()}, nil
	case strings.EqualFold(scheme, "mailto"):
		parsed, err := mail.ParseAddress(rest)
		if err != nil || parsed.Address != rest || strings.ContainsAny(rest, "?% \t\r\n\"") {
			return NotifyAddress{}, errors.New("is not the address of one mailbox")
		}
		return NotifyAddress{Label: "mailto:" + rest, Person: rest}, nil
	case strings.EqualFold(scheme, "https"), strings.EqualFold(scheme, "http"):
		u, err := url.Parse(text)
		if err != nil || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
			return NotifyAddress{}, errors.New("is not the address of a webhook")
		}
		sum := sha256.Sum256([]byte(text))
		return NotifyAddress{Label: strings.ToLower(u.Scheme) + "://" + u.Host + "/#" + hex.EncodeToString(sum[:4]), URL: text}, nil
	}
	return NotifyAddress{}, errors.New("is neither a mailbox, nor an account of the fediverse, nor a webhook")
}

// Addresses returns where the operator is told, each once, in their order.
func (o Operator) Addresses() (list []NotifyAddress) {
	for _, text := range o.Notify {
		if one, err := ParseNotify(text); err == nil && !slices.Contains(list, one) { // the validation has let only good ones pass
			list = append(list, one)
		}
	}
	return list
}

// DigestTime returns hour and minute of operator.notify_digest and its zone.
func (o Operator) DigestTime() (hour, minute int, zone *time.Location) {
	at, err := time.Parse("15:04", o.NotifyDigest)
	if err != nil {
		at = time.Date(0, 1, 1, 8, 0, 0, 0, time.UTC)
	}
	if zone, err = time.LoadLocation(o.NotifyZone); err != nil {
		zone = time.UTC
	}
	return at.Hour(), at.Minute(), zone
}

func (c *Config) validateOperator(p *problems) {
	for key, text := range map[string]string{"operator.contact": c.Operator.Contact, "operator.account": c.Operator.Account} {
		if _, err := identity.ParseAddress(text); text != "" && err != nil {
			p.add(key, fmt.Sprintf("%q is not an address", text), `write one such as "help@example.com"`)
		}
	}

	for key, text := range map[string]string{"operator.privacy": c.Operator.Privacy, "operator.source": c.Operator.Source} {
		if u, err := url.Parse(text); text != "" && (err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "") {
			p.add(key, fmt.Sprintf("%q is not a web address", text), `write one such as "https://example.com/privacy"`)
		}
	}

	if to := c.Operator.ForwardMail; to != "" {
		switch address, err := mail.ParseAddress(to); {
		case err != nil || address.Address != to:
			p.add("operator.forward_mail", fmt.Sprintf("%q is not an address", to), `write one such as "me@example.org"`)
		case strings.EqualFold(to[strings.LastIndexByte(to, '@')+1:], identity.HostOf(c.Domain)):
			p.add("operator.forward_mail", "is an address of this server, where the mail is already", "write an address elsewhere")
		case c.SMTP.Listen == "":
			p.add("operator.forward_mail", "needs email", "do not turn smtp.listen off")
		}
	}

	c.validateNotify(p)
}

func (c *Config) validateNotify(p *problems) {
	webhooks := false
	if len(c.Operator.Notify) > maxNotify {
		p.add("operator.notify", fmt.Sprintf("has %d addresses", len(c.Operator.Notify)), fmt.Sprintf("write at most %d", maxNotify))
	}
	for i, text := range c.Operator.Notify {
		key := element("operator.notify", i)
		one, err := ParseNotify(text)
		switch {
		case err != nil:
			p.add(key, fmt.Sprintf("%q %v", text, err), `write "mailto:me@example.org", "@me@social.example" or "https://hooks.example/inbox"`)
		case one.URL != "":
			webhooks = true
			webAddress(p, key, one.URL, "https://hooks.example/inbox")
		case strings.EqualFold(one.Person[strings.LastIndexByte(one.Person, '@')+1:], c.Domain):
			p.add(key, fmt.Sprintf("%q is an address of this server, where a notice would not leave it", text), "write an address elsewhere")
		}
	}

	switch secret := c.Operator.NotifySecret; {
	case webhooks && secret == "":
		p.add("operator.notify_secret", "is missing, so the webhook could not tell our notices from forged ones", "write a long random text, or its file as notify_secret_file")
	case secret != "" && len(secret) < shortestConnectorSecret:
		p.add("operator.notify_secret", "is too short to be secure", "write at least 16 bytes, such as: openssl rand -hex 32")
	}

	for i, kind := range c.Operator.NotifyKinds {
		oneOf(p, element("operator.notify_kinds", i), kind, NoticeKindNames...)
	}
	within(p, "operator.outage_after", c.Operator.OutageAfter, 0, 2*time.Hour)
	if _, err := time.Parse("15:04", c.Operator.NotifyDigest); err != nil {
		p.add("operator.notify_digest", fmt.Sprintf("%q is not a time of the day", c.Operator.NotifyDigest), `write one such as "08:00"`)
	}
	if _, err := time.LoadLocation(c.Operator.NotifyZone); err != nil || c.Operator.NotifyZone == "" || c.Operator.NotifyZone == "Local" {
		p.add("operator.notify_zone", fmt.Sprintf("%q is not a time zone", c.Operator.NotifyZone),
			`write one of the IANA database, such as "Europe/Berlin" or "UTC"`)
	}
}
