package twopersons

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"inbox/identity"
	"inbox/internal/webhooksignature"
)

// encode writes a document of a request.
func encode(value any) string {
	encoded, err := json.Marshal(value)
	if err != nil {
		panic(err) // strings can always be written
	}
	return string(encoded)
}

// answered takes what a program of a person is told.
func (r *run) answered(reader *person, where, body string) {
	r.ledger.reads(reader, where, body)
	r.see(harvest([]byte(body))...)
	r.mu.Lock()
	defer r.mu.Unlock()
	reader.links = append(reader.links, linkPattern.FindAllString(body, -1)...)
}

// rpc calls an agent by A2A.
func (r *run) rpc(token, agent, method string, params any) string {
	_, _, body := r.Read(http.MethodPost, "/a2a/"+agent, token, encode(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params}),
		"A2A-Version", "1.0")
	return body
}

// message is that of A2A.
func (m note) message() map[string]any {
	message := map[string]any{"messageId": m.id, "role": "ROLE_USER", "parts": []any{map[string]string{"text": m.text}}}
	for name, value := range map[string]string{"contextId": m.thread, "taskId": m.parent} {
		if value != "" {
			message[name] = value
		}
	}
	return message
}

// sendA2A writes to an agent as a program with a token.
func (r *run) sendA2A(m note) {
	r.sent(m.id, m.thread)
	body := r.rpc(m.author.token, m.agent, "SendMessage", map[string]any{"message": m.message()})
	r.answered(m.author, "an answer by A2A to "+m.author.String(), body)
	r.logf("    %.120s", body)
}

// readA2A asks for a task under its id.
func (r *run) readA2A(by *person, agent, id string) {
	body := r.rpc(by.token, agent, "GetTask", map[string]any{"id": id, "historyLength": 20})
	r.answered(by, "a task that "+by.String()+" asks for", body)
	r.answered(by, "the list of tasks of "+by.String(), r.rpc(by.token, agent, "ListTasks", map[string]any{"contextId": id}))
}

// sendRelayed writes by A2A through the messenger, which has one token and vouches for each of its people.
func (r *run) sendRelayed(m note) {
	piece, err := identity.Sign(identity.Evidence{
		Subject: "slack:" + m.author.badge, Method: platformMethod, Assurance: identity.AssurancePlatform,
		Audience: identity.Audience{"@" + m.agent + "@" + mailDomain}, Claims: json.RawMessage(`{}`),
	}, r.platform.key, time.Now())
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	message := m.message()
	message["metadata"] = map[string]any{"mentionable": map[string]any{"identity_evidence": []any{piece}}}
	r.sent(m.id)
	body := r.rpc(r.relay, m.agent, "SendMessage", map[string]any{"message": message})
	r.answered(m.author, "an answer by the messenger to "+m.author.String(), body)
	r.logf("    %.120s", body)
}

// sendChat writes to an agent by the chat's API.
func (r *run) sendChat(m note) {
	r.sent(m.id, m.thread)
	_, _, body := r.Read(http.MethodPost, "/v1/chat", m.author.token, encode(map[string]any{
		"agent": m.agent, "message": m.text, "session": m.thread, "run_id": m.id,
	}))
	r.answered(m.author, "an answer in the chat to "+m.author.String(), body)
	r.logf("    %.120s", body)
}

// readChat asks for a conversation under its name.
func (r *run) readChat(by *person, agent, session string) {
	if strings.ContainsFunc(session, func(char rune) bool { return char < ' ' || char > '~' }) {
		return
	}
	_, _, body := r.Read(http.MethodGet, "/v1/chat?agent="+agent, by.token, "", "Chat-Session", session)
	r.answered(by, "a chat that "+by.String()+" asks for", body)
}

// sendConnected writes to an agent through the connector of the messenger.
func (r *run) sendConnected(m note) {
	body := encode(map[string]any{
		"text": m.text, "external_provider": "slack", "external_conversation_id": m.thread, "external_message_id": m.id,
		"sender_id": m.author.badge, "sender_name": m.name, "agent": m.agent,
	})
	r.sent(m.id, m.thread)
	status, head, said := r.Read(http.MethodPost, "/v1/connectors/messenger/messages", "", body, "X-Inbox-Signature", webhooksignature.Sign(connectorSecret, []byte(body)))
	r.answered(m.author, "an answer by the connector to "+m.author.String(), said)
	r.logf("    %d %.120s", status, said)
	if path := head.Get("Location"); path != "" {
		r.quiet()
		_, run, _ := strings.Cut(path, "/v1/")
		path = "/v1/" + run
		_, _, said = r.Read(http.MethodGet, path, "", "", "X-Inbox-Signature", webhooksignature.Sign(connectorSecret, []byte(path)))
		r.answered(m.author, "an answer by the connector to "+m.author.String(), said)
	}
}
