package chat

import "inbox/agents/runtime/envelope"

// defaultRESTClient is the client_name of plain REST chat that names no other.
const defaultRESTClient = "frontend-chat"

// RESTInput reads the body of a plain REST chat: agent, message, session_id, attachments, client_context, workspace_id
// and client_id. Agent and message must be there; members of the contract that only a server sets are not read (agent
// runtime contract, section 6.5).
func RESTInput(body map[string]any) (Input, error) {
	input := Input{
		Agent: Slug(envelope.Scalar(body["agent"])), Message: envelope.Scalar(body["message"]),
		SessionID:   envelope.Scalar(body["session_id"]),
		Attachments: envelope.Clone(envelope.Elements(body["attachments"])), ClientContext: PublicContext(envelope.Assoc(body["client_context"])),
		Extra: map[string]any{},
	}
	for _, member := range []string{"workspace_id", "client_id"} {
		if text := envelope.Scalar(body[member]); text != "" {
			input.Extra[member] = text
		}
	}
	client := envelope.Scalar(input.ClientContext["client_name"])
	if client == "" {
		client = defaultRESTClient
	}
	input.ClientContext["source"], input.ClientContext["client_name"] = SourceREST, client
	if input.Agent == "" || envelope.Trim(input.Message) == "" {
		return Input{}, refuse(CodeInvalidREST, "The frontend chat REST request requires a non-empty agent and message.")
	}
	return input, nil
}
