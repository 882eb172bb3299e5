package pipeline

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"inbox/agents"
	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
)

// An answer that names someone in its text reaches them only if it names them in to or cc as well, or if the platform reads
// the text itself (decision record 0086). No one is addressed because of a text: it may quote a stranger, and a private
// conversation would get readers whom no one chose. The agent is told instead: on the timeline, and in the next turn of the
// conversation.

const (
	// metadataNotAddressed keeps with the response whom it named and did not address, with spaces between.
	metadataNotAddressed = "not_addressed"

	maxNotAddressed = 16
)

// quoted are the places of a text in which an address is no mention: code of Markdown.
var quoted = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")

// notAddressed lists the addresses that the text of an answer mentions and its envelope does not, in order, each once.
func notAddressed(agent agents.Entry, message *normalized.Message, response *normalized.Response) []string {
	if message.RecipientCapabilities.MentionRelay.Kind == normalized.RelayInline || response.Silent || len(response.Dispatch) > 0 {
		return nil
	}

	reached := append([]string{agent.Profile.Address}, slices.Concat(response.To, response.Cc)...)
	var named []string
	for _, part := range response.Parts {
		if part.Kind != normalized.PartText || !strings.Contains(part.Content, "@") {
			continue
		}
		for _, found := range mention.FindAllString(quoted.ReplaceAllString(part.Content, " "), -1) {
			address, err := identity.ParseAddress("@" + strings.TrimLeft(found, "@"))
			if err != nil || message.Sender.Address.Names(address.String()) || slices.ContainsFunc(slices.Concat(reached, named), func(other string) bool { return same(other, address.String()) }) {
				continue
			}
			if named = append(named, address.String()); len(named) == maxNotAddressed {
				return named
			}
		}
	}
	return named
}

// noteNamed keeps with the answer, and on the timeline, whom it named and did not address.
func noteNamed(record *runRecord, agent agents.Entry, message *normalized.Message, response normalized.Response) normalized.Response {
	metadata := maps.Clone(response.Metadata)
	delete(metadata, metadataNotAddressed) // it is the server's word
	response.Metadata = metadata

	named := notAddressed(agent, message, &response)
	if len(named) == 0 {
		return response
	}

	record.steps.note(exchange.EventNotAddressed, map[string]any{
		"addresses": named, "reason": "named in the text, but not in to or cc", "mention_relay": message.RecipientCapabilities.MentionRelay.Kind,
	})
	if response.Metadata == nil {
		response.Metadata = map[string]string{}
	}
	response.Metadata[metadataNotAddressed] = strings.Join(named, " ")
	return response
}

// lastNamed is whom the newest answer of a conversation named and did not address.
func lastNamed(past []Exchange) []string {
	for _, one := range slices.Backward(past) {
		if one.Turn.Response != nil {
			return strings.Fields(one.Turn.Response.Metadata[metadataNotAddressed])
		}
	}
	return nil
}
