package bridge

import (
	"cmp"
	"strings"

	"inbox/normalized"
	"inbox/policypart"
)

// present puts the asker's secret into the url of a demand.
type present func(policypart.Part) policypart.Part

// textOf is a response as one text, for programs that show nothing else: texts, addresses of links and files, and what a
// demand says. Calls of tools are no part of it.
func textOf(response *normalized.Response, shown present) string {
	if response == nil {
		return ""
	}
	var pieces []string
	for _, part := range response.Parts {
		if piece := strings.TrimSpace(pieceOf(part, shown)); piece != "" {
			pieces = append(pieces, piece)
		}
	}
	if len(pieces) == 0 && response.Error != nil {
		return response.Error.Message
	}
	return strings.Join(pieces, "\n\n")
}

func pieceOf(part normalized.Part, shown present) string {
	switch part.Kind {
	case normalized.PartText:
		return part.Content
	case normalized.PartLink:
		return titled(cmp.Or(part.Title, part.Description), part.URL)
	case normalized.PartFile, normalized.PartArtifact:
		address := ""
		if part.BytesRef != nil && part.BytesRef.Kind == normalized.BytesURL {
			address = part.BytesRef.URL
		}
		return titled(cmp.Or(part.Name, part.Description, part.Alt, part.MIME), address)
	case normalized.PartPolicy:
		if part.Policy != nil {
			return demandText(shown(*part.Policy))
		}
	}
	return ""
}

func titled(title, address string) string {
	if title == "" || address == "" {
		return title + address
	}
	return title + ": " + address
}

// demandText is a demand in words: title, message and where to decide (message contract, section 8).
func demandText(part policypart.Part) string {
	lines := []string{}
	if part.Title != "" && part.Title != part.Message {
		lines = append(lines, part.Title)
	}
	lines = append(lines, part.Message)
	if part.URL != "" {
		lines = append(lines, titled(part.ActionLabel, part.URL))
	}
	return strings.Join(lines, "\n")
}

// partsOf are the parts of a response for programs that understand them. Only those that the text cannot carry whole are
// worth the bytes: nil where there is nothing but text.
func partsOf(response *normalized.Response, shown present) []normalized.Part {
	if response == nil {
		return nil
	}
	plain := true
	parts := make([]normalized.Part, 0, len(response.Parts))
	for _, part := range response.Parts {
		if part.Kind == normalized.PartPolicy && part.Policy != nil {
			demand := shown(*part.Policy)
			part.Policy = &demand
		}
		plain = plain && part.Kind == normalized.PartText
		parts = append(parts, part)
	}
	if plain {
		return nil
	}
	return parts
}
