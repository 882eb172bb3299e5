package chat

import (
	"inbox/exchange"
	"inbox/normalized"
)

// ChatFile is a file of a message.
type ChatFile struct {
	Name string `json:"name"`
	MIME string `json:"mime"`
	Size int64  `json:"size,omitempty"` // bytes
	URL  string `json:"url,omitempty"`  // whoever has it can read the file; empty for those of the asker
}

// filesOf are the files of an answer, with their addresses.
func (a *Adapter) filesOf(turn exchange.TurnRecord) []ChatFile {
	if turn.Response == nil || turn.ReplyID == "" {
		return nil
	}
	reply := exchange.Reply{
		ID: turn.ReplyID, TurnID: turn.ID, Agent: turn.Agent, Message: turn.Message, Route: turn.Route, Response: *turn.Response,
	}
	return filesIn(turn.Response.Parts, func(part normalized.Part) string {
		if part.BytesRef != nil && part.BytesRef.Kind == normalized.BytesURL {
			return part.BytesRef.URL
		}
		return a.options.FileURL(reply, part)
	})
}

// sentFiles are the files of a question: its sender has them.
func sentFiles(turn exchange.TurnRecord) []ChatFile {
	return filesIn(turn.Message.Parts, func(normalized.Part) string { return "" })
}

func filesIn(parts []normalized.Part, address func(normalized.Part) string) (list []ChatFile) {
	for _, part := range parts {
		if part.Kind != normalized.PartFile && part.Kind != normalized.PartArtifact || part.BytesRef == nil {
			continue
		}
		name := part.Name
		if name == "" {
			name = "file"
		}
		list = append(list, ChatFile{Name: name, MIME: part.MIME, Size: part.Size, URL: address(part)})
	}
	return list
}
