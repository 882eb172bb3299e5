package pipeline

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	"inbox/agents"
	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
)

// strip takes everything out of the last answer of a chain that would bring another agent in: questions to others, and
// known agents in to, cc and the text (message contract, section 7). The instruction to conclude is the model's to
// follow and ours to enforce.
func (s *Service) strip(ctx context.Context, agent agents.Entry, turn exchange.TurnRecord, response normalized.Response) normalized.Response {
	var removed []string
	for _, d := range response.Dispatch {
		removed = append(removed, "question to "+d.To)
	}
	asks := len(response.Dispatch) > 0
	response.Dispatch = nil
	known := func(text string) bool { return s.invites(agent, turn, text) }
	everyone := turn.Message.RecipientCapabilities.MentionRelay.Kind == normalized.RelayNone
	drop := func(list []string) (rest []string) {
		for _, text := range list {
			if everyone || known(text) {
				removed = append(removed, "recipient "+text)
				continue
			}
			rest = append(rest, text)
		}
		return rest
	}
	response.To, response.Cc = drop(response.To), drop(response.Cc)
	response.Parts = slices.Clone(response.Parts)
	for i := range response.Parts {
		var mentions []string
		response.Parts[i].Content, mentions = withoutMentions(response.Parts[i].Content, known)
		removed = append(removed, mentions...)
	}
	if len(removed) == 0 {
		return response
	}
	s.tellStripped(ctx, turn, removed)
	if asks {
		return sentence(turn, auditExhausted,
			"Sorry, I would have to ask another agent for this, and this question has been passed on as often as it may.")
	}
	return response
}

func (s *Service) tellStripped(ctx context.Context, turn exchange.TurnRecord, removed []string) {
	detail := strings.Join(removed, ", ")
	s.options.Logger.WarnContext(ctx, "the last agent of a chain wanted to go on", "removed", detail)
	row := auditOf(turn, auditStripped, detail)
	if err := s.options.Store.InTx(ctx, func(tx Tx) error { return tx.Audit(ctx, row) }); err != nil {
		s.options.Logger.ErrorContext(ctx, "write audit record", "code", row.Code, "error", err) // the answer goes out all the same
	}
}

func auditOf(turn exchange.TurnRecord, code, detail string) exchange.AuditRecord {
	return exchange.AuditRecord{
		ID: newID(), At: time.Now(), Code: code, TurnID: turn.ID, Agent: turn.Agent, Principal: turn.Principal, Detail: detail,
	}
}

// invites reports whether an address is that of an agent that does not take part here yet, as far as we know: one of this
// server, or one that the operator named.
func (s *Service) invites(agent agents.Entry, turn exchange.TurnRecord, text string) bool {
	address, err := identity.ParseAddress(text)
	if err != nil || s.takesPart(agent, turn, text) {
		return false
	}
	if _, here, err := s.here(agent.Profile.Address, text); err == nil && here {
		return true
	}
	return s.options.KnownAgent != nil && s.options.KnownAgent(address)
}

// mention finds @agent@domain in a text.
var mention = regexp.MustCompile(`@+[A-Za-z0-9_-](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9_-])?@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*(?::[0-9]{1,5})?`)

// maxPasses bounds the search for mentions that appear where others were taken out of a text made for that.
const maxPasses = 16

// withoutMentions takes the sign away that makes a mention of a name: the name stays readable and wakes nobody.
func withoutMentions(text string, known func(string) bool) (out string, removed []string) {
	for range maxPasses {
		if !strings.Contains(text, "@") {
			return text, removed
		}
		before := len(removed)
		text = mention.ReplaceAllStringFunc(text, func(found string) string {
			name := strings.TrimLeft(found, "@")
			if !known("@" + name) {
				return found
			}
			removed = append(removed, "mention of @"+name)
			return name
		})
		if len(removed) == before {
			return text, removed
		}
	}
	return strings.ReplaceAll(text, "@", ""), removed
}
