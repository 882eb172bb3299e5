package chat

import (
	"maps"
	"strings"

	"inbox/agents/runtime/envelope"
)

const jsonRPCClient = "jsonrpc-chat"

// inputOf makes the chat input of a JSON-RPC body (agent runtime contract, section 6.5).
func inputOf(agent string, body map[string]any) (Input, error) {
	if agent == "" {
		return Input{}, refuse(CodeInvalidParams, "A non-empty agent id is required.")
	}
	params := envelope.Assoc(body["params"])
	parts := partsOf(params["message"])
	text := textOf(parts)
	pairs, err := pairsOf(parts)
	if err != nil {
		return Input{}, err
	}
	if text == "" && len(pairs) == 0 {
		return Input{}, refuse(CodeInvalidParams, "params.message must contain non-empty text or paired tool call/results.")
	}
	input := Input{
		Agent: agent, Message: text, Continuations: pairs, History: historyOf(parts),
		SessionID: envelope.Scalar(params["sessionId"]), RunID: envelope.Scalar(params["id"]),
		Attachments: attachmentsOf(parts), ClientContext: contextOf(parts, params["metadata"]),
	}
	if said, is := body["tokenStreaming"]; is {
		streams := envelope.Truthy(said)
		input.TokenStreaming = &streams
	}
	return input, nil
}

func partsOf(message any) []map[string]any {
	var parts []map[string]any
	for _, part := range envelope.Elements(envelope.Assoc(message)["parts"]) {
		if object, is := envelope.Object(part); is {
			parts = append(parts, object)
		}
	}
	return parts
}

// dataOf gives the objects of the data parts.
func dataOf(parts []map[string]any) []map[string]any {
	var objects []map[string]any
	for _, part := range parts {
		if data, is := envelope.Object(part["data"]); is && part["type"] == "data" {
			objects = append(objects, data)
		}
	}
	return objects
}

// textOf joins what the user sees as their message.
func textOf(parts []map[string]any) string {
	var text strings.Builder
	for _, part := range parts {
		if part["type"] == "text" && part["contentType"] != "context" {
			text.WriteString(envelope.Scalar(part["text"]))
		}
	}
	return envelope.Trim(text.String())
}

func attachmentsOf(parts []map[string]any) []any {
	files := []any{}
	for _, part := range parts {
		if part["type"] == "file" {
			files = append(files, envelope.Clone(envelope.Assoc(part["file"])))
		}
	}
	return files
}

func historyOf(parts []map[string]any) []Line {
	roles := map[string]string{"user": "user", "agent": "assistant"}
	var lines []Line
	for _, data := range dataOf(parts) {
		role, text := roles[envelope.Text(data["role"])], envelope.Text(data["text"])
		if role != "" && envelope.Trim(text) != "" {
			lines = append(lines, Line{role, text})
		}
	}
	return lines
}

// contextOf merges the client contexts, later ones over earlier ones, and then says itself where the turn comes from.
func contextOf(parts []map[string]any, metadata any) map[string]any {
	merged := map[string]any{}
	for _, data := range dataOf(parts) {
		maps.Copy(merged, envelope.Assoc(data["clientContext"]))
	}
	visible := PublicContext(merged)
	visible["source"], visible["client_name"] = SourceJSONRPC, jsonRPCClient
	if envelope.Container(metadata) {
		visible["metadata"] = envelope.Clone(metadata)
	}
	return visible
}
