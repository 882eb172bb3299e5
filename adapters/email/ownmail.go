package email

import (
	"context"
	"fmt"
	"net"
	"time"

	"inbox/adapters/email/authentication"
	"inbox/adapters/email/dns"
	"inbox/adapters/email/message"
	"inbox/internal/fault"
)

// JudgeOwnMail writes a mail of an agent, signs it with the keys of the domain and judges it as a recipient would who gets it from the
// addresses: SPF, DKIM against the published records, DMARC. Nothing is sent. Without addresses, and with a relay whose addresses are not
// known, SPF is left out.
func JudgeOwnMail(ctx context.Context, resolver dns.Source, p Published, from string, addresses []net.IPAddr) []Finding {
	c := &recordChecker{dns: resolver, want: p}
	signed, fields, err := p.ownMail(from, time.Now())
	if err != nil {
		c.say("signed mail", FindingFail, fault.InWords(err), "put the key of mail.dkim_key_file right")
		return c.found
	}

	checker := authentication.New(authentication.Options{Resolver: dns.New(resolver), Now: time.Now})
	if p.Mode == ModeSmarthost || len(addresses) == 0 {
		addresses = []net.IPAddr{{}}
	}
	for _, address := range addresses {
		peer := authentication.Connection{HELO: p.Hostname, From: from + "@" + p.Domain}
		if name := "signed mail"; address.IP != nil {
			peer.IP = address.String()
			c.judged(name+" from "+peer.IP, peer, checker.Check(ctx, peer, p.Domain, fields, signed))
		} else {
			c.judged(name, peer, checker.Check(ctx, peer, p.Domain, fields, signed))
		}
	}
	return c.found
}

// ownMail is a mail as it leaves.
func (p Published) ownMail(from string, now time.Time) ([]byte, message.Header, error) {
	text := fmt.Sprintf("From: <%[1]s@%[2]s>\r\nTo: <%[1]s@%[2]s>\r\nSubject: test\r\nDate: %[3]s\r\nMessage-ID: <%[4]d.test@%[2]s>\r\nMIME-Version: 1.0\r\n"+
		"Content-Type: text/plain; charset=utf-8\r\nAuto-Submitted: auto-generated\r\n\r\nIs this mail proven to be ours?\r\n", from, p.Domain, now.UTC().Format(time.RFC1123Z), now.UnixNano())

	var keys []authentication.Key
	for _, selector := range sortedKeys(p.Keys) {
		keys = append(keys, authentication.Key{Selector: selector, Signer: p.Keys[selector]})
	}
	signed, err := authentication.NewSigner(p.Domain, keys).Sign([]byte(text))
	if err != nil {
		return nil, nil, err
	}
	fields, _, err := message.Split(signed)
	return signed, fields, err
}

func (c *recordChecker) judged(name string, peer authentication.Connection, result authentication.Result) {
	dkim, reason, passed := "none", "", 0
	for i := range result.DKIM {
		if one := &result.DKIM[i]; one.Result == authentication.Pass {
			passed++
		} else {
			dkim, reason = one.Result, one.Selector+": "+one.Reason
		}
	}
	if passed == len(result.DKIM) && passed > 0 {
		dkim = authentication.Pass
	}

	text := "DKIM " + dkim + ", DMARC " + result.DMARC.Result
	if peer.IP != "" {
		text = "SPF " + result.SPF.Result + ", " + text
	}
	if reason != "" {
		text += " (" + reason + ")"
	}
	spf := peer.IP == "" || result.SPF.Result == authentication.Pass

	const remedy = "publish the records that fail above; they are those of: inbox dns"
	switch {
	case result.NullMX:
		c.say(name, FindingFail, "the domain says that it takes no mail (null MX), so other servers refuse mail from it", remedy)
	case passed == 0 || result.DMARC.Result == authentication.Fail:
		c.say(name, FindingFail, text, remedy)
	case dkim != authentication.Pass || !spf || result.DMARC.Result != authentication.Pass:
		c.say(name, FindingWarn, text, remedy)
	default:
		c.say(name, FindingOK, text+" by "+result.DMARC.By, "")
	}
}
