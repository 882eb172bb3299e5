package notice

import "strings"

// Ways by which a notice leaves, for the metric.
const (
	wayMail      = "mail"
	wayFediverse = "fediverse"
	wayWebhook   = "http"
)

// Address is where notices are sent.
type Address struct {
	// Label names the address in rows and lists. That of a webhook has its host and a sum of the rest: the path may be secret.
	Label string
	// Person is user@domain for mail, or @user@domain for the fediverse; empty for a webhook.
	Person string
	// URL of a webhook; empty for a person.
	URL string
}

func (a Address) way() string {
	switch {
	case a.URL != "":
		return wayWebhook
	case strings.HasPrefix(a.Person, "@"):
		return wayFediverse
	}
	return wayMail
}
