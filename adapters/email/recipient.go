package email

import (
	"strings"

	"github.com/emersion/go-smtp"

	"inbox/adapters/email/message"
	"inbox/exchange"
	"inbox/identity"
)

// recipient finds who lives of an address at our domain. Agents have names in ASCII; the domain may be in letters of its own
// where the transaction asked for that (international).
func (a *Adapter) recipient(to string, international bool) (recipient, *smtp.SMTPError) {
	if !message.IsASCII(to) && !international {
		return recipient{}, &smtp.SMTPError{Code: 553, EnhancedCode: smtp.EnhancedCode{5, 6, 7}, Message: "An internationalized address needs the parameter SMTPUTF8"}
	}

	at := strings.LastIndexByte(to, '@')
	domain, err := identity.ParseDomain(to[at+1:])
	if at <= 0 || err != nil || domain != a.domain {
		return recipient{}, &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 7, 1}, Message: "Relaying is refused; this server takes mail for " + a.domain}
	}

	name, tag := splitTag(to[:at])
	if id, valid := a.tokens.Delivery(tagged(name, tag)); valid {
		return recipient{bounce: id, local: tagged(name, tag), envelope: tagged(name, tag) + "@" + a.domain}, nil
	}

	if name == "postmaster" || name == "abuse" {
		return recipient{local: name, envelope: name + "@" + a.domain}, nil
	}

	if !identity.ValidAgentName(name) {
		return recipient{}, &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 3}, Message: "The recipient address is not understood"}
	}

	profile, ok := a.options.Agents.Agent(name)
	if !ok {
		return recipient{}, &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: "There is no agent " + name + " here"}
	}

	answered := a.answeredReply(tag)
	if answered != "" {
		tag = "" // it is ours, and says nothing to the agent
	}

	return recipient{answered: answered, agent: profile.Name, address: profile.Address, local: name, tag: tag, envelope: tagged(name, tag) + "@" + a.domain}, nil
}

// maxTag bounds the tag that an agent hears of.
const maxTag = 64

// splitTag cuts agent+tag at the first plus sign. A tag that is too long or odd is dropped: nothing routes by it.
func splitTag(local string) (name, tag string) {
	name, tag, _ = strings.Cut(local, "+")
	if len(tag) > maxTag || !plainTag(tag) {
		tag = ""
	}
	return strings.ToLower(name), tag
}

func plainTag(tag string) bool {
	for i := range len(tag) {
		c := tag[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("-_.=+", c) >= 0:
		default:
			return false
		}
	}
	return !strings.HasPrefix(tag, ".") && !strings.HasSuffix(tag, ".") && !strings.Contains(tag, "..")
}

func tagged(local, tag string) string {
	if tag == "" {
		return local
	}
	return local + "+" + tag
}

// closedTo refuses mail to a recipient that takes none just now (RFC 3463, sections 3.3 and 3.4). A paused agent is final:
// its operator decided so. The others come again.
func (a *Adapter) closedTo(to recipient) *smtp.SMTPError {
	if a.options.Closed == nil {
		return nil
	}

	switch a.options.Closed(to.agent) {
	case exchange.ClosedPaused:
		return answer(550, smtp.EnhancedCode{5, 2, 1}, "This mailbox is disabled and takes no mail")
	case exchange.ClosedBacklog:
		return answer(452, smtp.EnhancedCode{4, 2, 2}, "Too many mails wait in this mailbox, please try again later")
	case exchange.ClosedDisk:
		return answer(452, smtp.EnhancedCode{4, 3, 1}, "This server has no room for mail right now, please try again later")
	}

	return nil
}

// stillOpen looks once more before a mail is read. One recipient who can take it is enough; a recipient who cannot is put off
// by the engine.
func (s *session) stillOpen(env envelope) *smtp.SMTPError {
	var refusal *smtp.SMTPError
	for _, to := range env.recipients {
		if refusal = s.adapter.closedTo(to); refusal == nil {
			return nil
		}
	}
	return refusal
}
