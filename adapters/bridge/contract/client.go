package contract

import (
	"net/url"
	"regexp"
	"strings"

	"inbox/agents/runtime/value"
)

// Client is a registered program. An empty string stands for a member that is null.
type Client struct {
	ID           string // a Slug
	ConnectorID  string // a Slug
	CallbackURL  string // where answers may be delivered beside the queue; any absolute URL
	Context      map[string]any
	RegisteredAt string // ISO 8601
}

// NormalizeClient brings a registration into its one form. Its errors are *Error with CodeInvalid.
func NormalizeClient(given map[string]any) (Client, error) {
	client := Client{
		ID: slugOf(given["client_id"]), ConnectorID: slugOf(given["connector_id"]), CallbackURL: value.Word(given["callback_url"]),
		Context: value.Clone(value.Assoc(given["context"])), RegisteredAt: timestamp(given["registered_at"]),
	}
	switch {
	case client.ID == "":
		return Client{}, invalid("client_id must be a non-empty slug.")
	case len(client.ID) > MaxIDBytes || len(client.ConnectorID) > MaxIDBytes:
		return Client{}, invalid("client_id and connector_id must not be longer than 255 bytes.")
	case client.CallbackURL != "" && !validURL(client.CallbackURL):
		return Client{}, invalid("callback_url must be a valid URL.")
	}
	return client, nil
}

// Value writes the client with all members of the contract.
func (c Client) Value() map[string]any {
	return map[string]any{
		"client_id": c.ID, "connector_id": value.OrNull(c.ConnectorID), "callback_url": value.OrNull(c.CallbackURL),
		"context": value.Filled(c.Context), "registered_at": c.RegisteredAt,
	}
}

const maxURLBytes = 2048

var label = regexp.MustCompile(`\A[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\z`)

// validURL demands an absolute URL of printable ASCII with a host; the host of a web address must be one.
func validURL(address string) bool {
	if len(address) > maxURLBytes || strings.ContainsFunc(address, func(char rune) bool { return char <= ' ' || char >= 0x7f }) {
		return false
	}
	parsed, err := url.Parse(address)
	if err != nil || parsed.Scheme == "" || parsed.Hostname() == "" {
		return false
	}
	web := parsed.Scheme == "http" || parsed.Scheme == "https"
	return !web || validHost(parsed.Hostname())
}

func validHost(host string) bool {
	if strings.Contains(host, ":") { // url.Parse took it as an address in brackets
		return true
	}
	for one := range strings.SplitSeq(strings.TrimSuffix(host, "."), ".") {
		if !label.MatchString(one) {
			return false
		}
	}
	return true
}
