package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"inbox/adapters/email"
	"inbox/agents/upstream"
	"inbox/identity"
	"inbox/internal/config"
	"inbox/internal/fault"
	"inbox/internal/safehttp"
)

// notify looks whether what the operator is told can reach an address of operator.notify. It sends nothing there.
func (d *examiner) notify(ctx context.Context, to config.NotifyAddress) {
	name := "notices to " + to.Label
	detail, err := d.reaches(ctx, to)
	switch {
	case err != nil:
		d.say(name, email.FindingFail, fault.InWords(err), "correct operator.notify, and try it with: inbox notices test")
	case detail == "":
		d.say(name, email.FindingWarn, `mail.mode is "capture": mails to you stay on this machine`, `write mail.mode = "mx" or "smarthost"`)
	default:
		d.say(name, email.FindingOK, detail, "")
	}
}

func (d *examiner) reaches(ctx context.Context, to config.NotifyAddress) (detail string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	switch {
	case to.URL != "":
		place, err := upstream.Destination(to.URL, "https://hooks.example/inbox", "remove them")
		if err != nil {
			return "", err
		}
		_, err = d.dial(ctx, place, false)
		return place + " can be reached", err
	case len(d.config.Agents) == 0:
		return "", errors.New("no agent is here that could write to it; a webhook needs none")
	case strings.HasPrefix(to.Person, "@"):
		return "WebFinger knows the account", d.account(ctx, to.Person)
	case d.config.SMTP.Listen == "":
		return "", errors.New("mail is off (smtp.listen is empty)")
	case d.config.Mail.Mode == email.ModeMX:
		domain := to.Person[strings.LastIndexByte(to.Person, '@')+1:]
		servers, err := d.resolver.LookupMX(ctx, domain)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%d mail servers of %s", len(servers), domain), nil
	case d.config.Mail.Mode == email.ModeSmarthost:
		return "mail goes to the smarthost", nil
	}
	return "", nil
}

// account asks the server of an account for it, as every server of the fediverse does.
func (d *examiner) account(ctx context.Context, account string) error {
	parsed, err := identity.ParseAddress(account)
	if err != nil {
		return err
	}
	ask := url.URL{Scheme: "https", Host: parsed.Domain, Path: "/.well-known/webfinger", RawQuery: url.Values{"resource": {parsed.Acct()}}.Encode()}
	response, err := d.client.Get(ctx, ask.String(), safehttp.GetOptions{MaxBytes: longestCard})
	if err != nil && d.config.Federation.AllowPrivate {
		ask.Scheme = "http"
		response, err = d.client.Get(ctx, ask.String(), safehttp.GetOptions{MaxBytes: longestCard})
	}
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s to the question for %s", parsed.Domain, response.Status, account)
	}
	return nil
}
