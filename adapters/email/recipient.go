package email

import (
	"context"
	"slices"
	"strings"

	"github.com/emersion/go-smtp"
	"github.com/google/uuid"

	"inbox/adapters/email/bounce"
	"inbox/adapters/email/message"
	"inbox/exchange"
	"inbox/identity"
)

// recipients knows the mailboxes at our domain.
type recipients struct {
	*site
	tokens   *bounce.Tokens
	reporter *reporter
}

// find returns the recipient behind an address at our domain. Agents have names in ASCII; the domain may be in letters of its own
// where the transaction asked for that (international).
func (r *recipients) find(ctx context.Context, to string, international bool) (recipient, *smtp.SMTPError) {
	if !message.IsASCII(to) && !international {
		return recipient{}, &smtp.SMTPError{Code: 553, EnhancedCode: smtp.EnhancedCode{5, 6, 7}, Message: "An internationalized address needs the parameter SMTPUTF8"}
	}

	at := strings.LastIndexByte(to, '@')
	domain, err := identity.ParseDomain(to[at+1:])
	if at > 0 && err == nil && domain != r.domain {
		if agent := r.aliasOf(message.Mailbox{Local: to[:at], Domain: domain}); agent != "" {
			return r.agentCalled(agent, to[:at], domain)
		}
	}
	if at <= 0 || err != nil || domain != r.domain {
		return recipient{}, &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 7, 1}, Message: "Relaying is refused; this server takes mail for " + r.domain}
	}

	name, tag := splitTag(to[:at])
	if pass, is := r.tokens.Pass(tagged(name, tag)); is {
		return r.findBounce(ctx, pass, tagged(name, tag))
	}

	if r.operatorsOwn(name) {
		return recipient{local: name, envelope: name + "@" + r.domain}, nil
	}

	if !identity.ValidAgentName(name) {
		return recipient{}, &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 3}, Message: "The recipient address is not understood"}
	}

	profile, ok := r.options.Agents.Agent(name)
	if !ok {
		if agent := r.aliasOf(message.Mailbox{Local: name, Domain: domain}); agent != "" {
			return r.agentCalled(agent, to[:at], domain)
		}
	}
	if !ok && slices.Contains(rolesCommon, name) {
		return recipient{local: name, envelope: name + "@" + r.domain}, nil
	}
	if !ok && r.options.CatchAll != "" {
		return r.agentCalled(r.options.CatchAll, to[:at], domain)
	}
	if !ok {
		return recipient{}, &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: "There is no agent " + name + " here"}
	}

	answered := r.answeredReply(name, tag)
	if answered != "" {
		tag = "" // it is ours, and says nothing to the agent
	}

	return recipient{answered: answered, agent: profile.Name, address: profile.Address, local: name, tag: tag, envelope: tagged(name, tag) + "@" + r.domain}, nil
}

// agentCalled returns the agent that gets mail to an address that is not its own.
func (r *recipients) agentCalled(agent, local, domain string) (recipient, *smtp.SMTPError) {
	profile, known := r.options.Agents.Agent(agent)
	if !known {
		return recipient{}, answer(550, smtp.EnhancedCode{5, 1, 1}, "There is no such mailbox here")
	}
	name, tag := splitTag(local)
	found := recipient{agent: profile.Name, address: profile.Address, local: strings.ToLower(profile.Name), tag: tag, envelope: tagged(name, tag) + "@" + domain}
	if domain == r.domain {
		found.called = name
	}
	return found, nil
}

// aliasOf returns the agent whose alias a mailbox is, with any tag; empty = it is none.
func (s *site) aliasOf(box message.Mailbox) string {
	if s.options.AliasOf == nil {
		return ""
	}
	box.Local, _ = splitTag(box.Local)
	return s.options.AliasOf(box.Key())
}

// findBounce returns the recipient behind a return path of ours.
func (r *recipients) findBounce(ctx context.Context, pass bounce.Pass, local string) (recipient, *smtp.SMTPError) {
	path, found, err := r.reporter.redeem(ctx, pass)
	switch {
	case err != nil:
		r.log.ErrorContext(ctx, "the delivery of a bounce address cannot be read", "error", err)
		return recipient{}, smtpError(err)
	case !found:
		return recipient{}, answer(550, smtp.EnhancedCode{5, 1, 1}, "There is no delivery of that address here")
	}
	return recipient{bounce: &path, local: local, envelope: local + "@" + r.domain}, nil
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
func (r *recipients) closedTo(to recipient) *smtp.SMTPError {
	if r.options.Closed == nil {
		return nil
	}

	switch r.options.Closed(to.agent) {
	case exchange.ClosedPaused:
		return answer(550, smtp.EnhancedCode{5, 2, 1}, "This mailbox is disabled and takes no mail")
	case exchange.ClosedBacklog:
		return answer(452, smtp.EnhancedCode{4, 2, 2}, "Too many mails wait in this mailbox, please try again later")
	case exchange.ClosedDisk:
		return answer(452, smtp.EnhancedCode{4, 3, 1}, "This server has no room for mail right now, please try again later")
	case exchange.ClosedClock:
		return answer(451, smtp.EnhancedCode{4, 3, 0}, "This server cannot accept mail right now, please try again later")
	}

	return nil
}

// stillOpen looks once more before a mail is read. One recipient who can take it is enough; a recipient who cannot is put off
// by the engine.
func (s *session) stillOpen(env envelope) *smtp.SMTPError {
	var refusal *smtp.SMTPError
	for _, to := range env.recipients {
		if refusal = env.at.recipients.closedTo(to); refusal == nil {
			return nil
		}
	}
	return refusal
}

// Thread tags are what Reply-To of our answers carries where the operator wants it: agent+t.<token>@domain. The token is the
// id of the answer, signed for the agent's mailbox, so that a mail to it is an answer to it, even with a mail program that loses
// In-Reply-To.
const threadMark = "t."

// threadAddress returns the Reply-To of a reply; empty = none.
func (w *renderer) threadAddress(replyID, local string) string {
	id, err := uuid.Parse(replyID)
	if !w.options.ThreadTags || err != nil {
		return ""
	}
	return tagged(local, threadMark+w.tokens.Sign(threadMark, local, id)) + "@" + w.domain
}

// answeredReply returns the reply of a mailbox whose thread tag this is; empty = it is none of ours.
func (r *recipients) answeredReply(local, tag string) (replyID string) {
	token, marked := strings.CutPrefix(strings.ToLower(tag), threadMark)
	if !marked {
		return ""
	}
	replyID, _ = r.tokens.Verify(threadMark, local, token)
	return replyID
}
