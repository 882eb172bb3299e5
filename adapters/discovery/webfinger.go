package discovery

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"inbox/exchange"
	"inbox/identity"
)

// Link relations in the order of the message contract, section 11.
const (
	relSelf      = "self"
	relAgentCard = "https://mentionable.dev/ns/rel/agent-card"
	relProfile   = "http://webfinger.net/rel/profile-page"
	relMail      = "mailto"
	relAvatar    = "http://webfinger.net/rel/avatar"
)

var order = []string{relSelf, relAgentCard, relProfile, relMail, relAvatar}

const maxResourceBytes = 2048

// resource is a JSON resource descriptor (RFC 7033, section 4.4).
type resource struct {
	Subject string          `json:"subject"`
	Aliases []string        `json:"aliases,omitempty"`
	Links   []exchange.Link `json:"links"`
}

// webfinger answers for acct:a@d, a@d, @a@d, the actor's id and the profile page; 400 without a resource, 404 for
// anyone who is not ours, 410 for an agent that was removed.
func (s *Server) webfinger(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	asked := query.Get("resource")
	if asked == "" || len(asked) > maxResourceBytes {
		lookups.WithLabelValues("malformed").Inc()
		refuse(w, http.StatusBadRequest, "want the parameter resource, for example resource=acct:agent@"+s.options.Domain)
		return
	}

	found, removed := s.find(asked)
	switch {
	case removed:
		lookups.WithLabelValues("gone").Inc()
		refuse(w, http.StatusGone, "this agent was removed")
	case found == nil:
		lookups.WithLabelValues("unknown").Inc()
		refuse(w, http.StatusNotFound, "no account has that name")
	default:
		lookups.WithLabelValues("found").Inc()
		s.writeResource(w, *found, query["rel"])
	}
}

func (s *Server) writeResource(w http.ResponseWriter, found resource, wanted []string) {
	if len(wanted) > 0 { // RFC 7033, section 4.3
		found.Links = slices.DeleteFunc(found.Links, func(link exchange.Link) bool { return !slices.Contains(wanted, link.Rel) })
	}

	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)

	if err := encoder.Encode(found); err != nil {
		refuse(w, http.StatusInternalServerError, "internal error")
		return
	}
	write(w, "application/jrd+json", 300, body.Bytes())
}

// find returns the descriptor of an address or IRI; its error reports an agent that was removed.
func (s *Server) find(asked string) (found *resource, removed bool) {
	if strings.HasPrefix(asked, "https://") || strings.HasPrefix(asked, "http://") {
		return s.byIRI(asked), false
	}

	address, ok := parseAccount(asked)
	if !ok || !s.domains[address.Domain] {
		return nil, false
	}
	if subject := s.subject(address); subject != nil {
		return subject, false
	}

	agent, known := s.options.Directory.Agent(address.Local)
	if !known {
		return nil, s.options.Removed != nil && s.options.Removed(address.Local)
	}

	return s.describe(agent), false
}

// parseAccount reads acct:a@d (the scheme in any case), a@d and @a@d.
func parseAccount(text string) (identity.Address, bool) {
	if len(text) > 5 && strings.EqualFold(text[:5], "acct:") {
		text = text[5:]
		if strings.HasPrefix(text, "acct:") || strings.HasPrefix(text, "@") {
			return identity.Address{}, false
		}
	}
	address, err := identity.ParseAddress(text)
	return address, err == nil
}

func (s *Server) subject(address identity.Address) *resource {
	for _, subject := range s.options.Subjects {
		own, err := identity.ParseAddress(subject.Address)
		if err == nil && (strings.EqualFold(own.Local, address.Local)) {
			return &resource{Subject: own.Acct(), Aliases: hrefs(subject.Links), Links: slices.Clone(subject.Links)}
		}
	}
	return nil
}

// byIRI finds the agent that has the address as actor or profile page: the last piece of the path names the agent, and one
// of its links must be exactly this address.
func (s *Server) byIRI(asked string) *resource {
	for _, subject := range s.options.Subjects {
		for _, link := range subject.Links {
			if own, err := identity.ParseAddress(subject.Address); err == nil && link.Href == asked {
				return s.subject(own)
			}
		}
	}

	parsed, err := url.Parse(asked)
	if err != nil {
		return nil
	}

	name := strings.TrimPrefix(parsed.Path[strings.LastIndexByte(parsed.Path, '/')+1:], "@")
	agent, known := s.options.Directory.Agent(name)
	if !known {
		return nil
	}

	described := s.describe(agent)
	if !slices.Contains(described.Aliases, asked) {
		return nil
	}

	return described
}

// describe collects the links of an agent. Subject is always the canonical address, so that the peer's check of
// subject, self link and actor agrees.
func (s *Server) describe(agent exchange.AgentProfile) *resource {
	links := []exchange.Link{{Rel: relProfile, Type: "text/html", Href: s.base + "/@" + agent.Name}}
	for _, contributor := range s.options.Contributors {
		for _, link := range contributor(agent) {
			if !slices.Contains(links, link) {
				links = append(links, link)
			}
		}
	}

	slices.SortStableFunc(links, func(a, b exchange.Link) int { return rank(a.Rel) - rank(b.Rel) })
	subject := identity.Address{Local: agent.Name, Domain: s.options.Domain}
	return &resource{Subject: subject.Acct(), Aliases: hrefs(links), Links: links}
}

func rank(rel string) int {
	if at := slices.Index(order, rel); at >= 0 {
		return at
	}
	return len(order)
}

// hrefs are the other names of a subject: its actor and its page.
func hrefs(links []exchange.Link) []string {
	var aliases []string
	for _, link := range links {
		if link.Rel == relSelf || link.Rel == relProfile {
			aliases = append(aliases, link.Href)
		}
	}
	return aliases
}
