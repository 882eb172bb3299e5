package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"inbox/adapters/bridge/contract"
	"inbox/agents/runtime/envelope/fixturetest"
	"inbox/agents/runtime/value"
	"inbox/e2e/instance"
	"inbox/internal/webhooksignature"
	"inbox/normalized"
)

// TestRecordedBridgeOverTheWire plays what the reference runtime recorded of its bridge by requests of an operator, who may
// speak for any client.
//
//contract:shows channels-54 channels-55 channels-56 channels-57
func TestRecordedBridgeOverTheWire(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		s := start(t, instance.Settings{Database: database})
		operator := &recordedBridge{&bridgeUser{s, s.adminToken()}}
		fixturetest.Run(t, "bridge-queue", func(c fixturetest.Case) (any, error) {
			outcomes, clients := []any{}, map[string]bool{}
			for _, step := range value.Elements(c.Object()["ops"]) {
				object := value.Assoc(step)
				for _, holder := range []map[string]any{object, value.Assoc(object["item"])} {
					clients[contract.Slug(value.Scalar(holder["client_id"]))] = true
				}
				outcomes = append(outcomes, fixturetest.Outcome(operator.do(object)))
			}
			operator.clear(clients)
			return outcomes, nil
		})
	})
}

type recordedBridge struct{ *bridgeUser }

func (r *recordedBridge) do(step map[string]any) (any, error) {
	client := url.QueryEscape(value.Scalar(step["client_id"]))
	switch value.Text(step["op"]) {
	case "register":
		return r.request(http.MethodPost, "/v1/bridge/register", step, "")
	case "get_client":
		value, err := r.request(http.MethodGet, "/v1/bridge/client?client_id="+client, nil, "")
		if err != nil && strings.Contains(err.Error(), "is not registered") {
			return nil, nil
		}
		return value, err
	case "enqueue":
		return r.request(http.MethodPost, "/v1/bridge/queue", map[string]any{"item": step["item"]}, "")
	case "pending":
		query := "client_id=" + client
		if step["limit"] != nil {
			query += "&limit=" + value.Scalar(step["limit"])
		}
		for _, session := range value.Elements(step["session_ids"]) {
			query += "&session_id=" + url.QueryEscape(value.Scalar(session))
		}
		return r.request(http.MethodGet, "/v1/bridge/pending?"+query, nil, "items")
	case "ack":
		return r.request(http.MethodPost, "/v1/bridge/ack", step, "acked")
	case "with_status": // a copy in the hands of a caller: nothing of it is sent
		item, err := contract.NormalizeItem(value.Assoc(step["item"]))
		if err == nil {
			item, err = item.WithStatus(value.Scalar(either(step["status"], step["delivery_status"])))
		}
		return item.Value(), err
	}
	return nil, fmt.Errorf("unknown operation %v", step["op"])
}

func either(values ...any) any {
	return values[max(slices.IndexFunc(values, func(value any) bool { return value != nil }), 0)]
}

// request returns a member of the answer, or all of it.
func (r *recordedBridge) request(method, path string, body any, member string) (any, error) {
	status, answer := r.try(method, path, body)
	if told, refused := answer["error"].(map[string]any); refused {
		return nil, &contract.Error{Code: value.Scalar(told["code"]), Text: value.Scalar(told["message"])}
	}
	if status/100 != 2 {
		return nil, fmt.Errorf("answered %d", status)
	}
	delete(answer, "callback_secret") // ours, beside the members of the contract
	if member != "" {
		return answer[member], nil
	}
	return answer, nil
}

func (r *recordedBridge) clear(clients map[string]bool) {
	for client := range clients {
		if client == "" {
			continue
		}
		items, _ := r.ask(http.MethodGet, "/v1/bridge/pending?limit=1000&client_id="+client, nil)["items"].([]any)
		ids := []any{}
		for _, item := range items {
			ids = append(ids, item.(map[string]any)["queue_id"])
		}
		if acked := r.ask(http.MethodPost, "/v1/bridge/ack", map[string]any{"client_id": client, "queue_ids": ids})["acked"]; acked != float64(len(ids)) {
			r.t.Errorf("of %d items %v were acknowledged", len(ids), acked)
		}
	}
}

// handIn hands a body to a connector under a signature, and tells status and answer.
func (s *server) handIn(path, header string, body []byte) (int, http.Header, map[string]any) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.URL()+path, bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if header != "" {
		request.Header.Set("X-Inbox-Signature", header)
	}
	return exchanged(s.t, request)
}

func exchanged(t *testing.T, request *http.Request) (int, http.Header, map[string]any) {
	t.Helper()
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	answer := map[string]any{}
	_ = json.NewDecoder(response.Body).Decode(&answer)
	return response.StatusCode, response.Header, answer
}

// TestRecordedConnectorsOverTheWire hands in what the reference runtime recorded of messages and signatures.
//
//contract:shows channels-2 channels-3 channels-29 channels-38 channels-41 channels-42 channels-50
func TestRecordedConnectorsOverTheWire(t *testing.T) {
	t.Parallel()
	agent := startScripted(t, func(normalized.Message) normalized.Response { return say("heard") })
	const secret = "a secret that only the tests know"
	var tables strings.Builder
	for _, name := range recordedConnectors(t) {
		fmt.Fprintf(&tables, "[[connectors]]\nname = %q\nsecret = %q\nagents = [\"helper\"]\n", name, secret)
	}
	s := start(t, instance.Settings{Agents: agent.table("helper", ""), More: tables.String()})
	for _, c := range fixturetest.Load(t, "external-message") {
		input, want := c.Object(), value.Assoc(c.Expected["ok"])
		body, err := json.Marshal(input)
		if err != nil {
			t.Fatal(err)
		}
		name := value.Scalar(want["connector_id"])
		if name == "" {
			continue // a recorded refusal: there is no connector of no name
		}
		status, _, answer := s.handIn("/v1/connectors/"+name+"/messages?wait=20s", webhooksignature.Sign(secret, body), body)
		if status != http.StatusOK {
			t.Errorf("%s: answered %d %v", c.Name, status, answer)
			continue
		}
		if value.Trim(value.Text(input["text"])) == "" {
			if answer["status"] != "skipped" || answer["code"] != contract.CodeEmptyMessage {
				t.Errorf("%s: a message that says nothing is answered %v", c.Name, answer)
			}
			continue
		}
		var told map[string]any
		if err := json.Unmarshal(agent.last(t).Sender.Profile.Extensions["dev.inbox.bridge"], &told); err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		for member, given := range want {
			if c.Op == "client_context" && !value.Equal(told[member], given) {
				t.Errorf("%s: the agent is told %s = %v, want %v", c.Name, member, told[member], given)
			}
		}
	}
}

func recordedConnectors(t *testing.T) (names []string) {
	for _, c := range fixturetest.Load(t, "external-message") {
		name := value.Scalar(value.Assoc(c.Expected["ok"])["connector_id"])
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// TestRecordedSignaturesOverTheWire hands in what the reference runtime recorded of signatures, under the secret of each case
// made long enough for the configuration.
//
//contract:shows channels-47 channels-48 channels-49
func TestRecordedSignaturesOverTheWire(t *testing.T) {
	t.Parallel()
	const secret = "s3cret-and-long-enough"
	s := start(t, instance.Settings{More: fmt.Sprintf("[[connectors]]\nname = \"recorded\"\nsecret = %q\nagents = [\"echo\"]\n", secret)})
	good := func(body []byte) string { return strings.TrimPrefix(webhooksignature.Sign(secret, body), "sha256=") }
	for _, c := range fixturetest.Load(t, "webhook-signature") {
		input := c.Object()
		if len(value.Assoc(input["options"])) > 0 {
			continue // options of the reference's callers: the server has one form
		}
		body := []byte(value.Scalar(input["body"]))
		recorded := value.Scalar(input["header"])
		header := recorded
		if hexadecimal := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(recorded), "sha256=")); len(hexadecimal) == 64 && value.Scalar(input["secret"]) != "" {
			signed := strings.TrimPrefix(webhooksignature.Sign(value.Scalar(input["secret"]), body), "sha256=")
			if strings.EqualFold(signed, hexadecimal) {
				header = strings.Replace(recorded, hexadecimal, good(body), 1)
			}
		}
		status, _, answer := s.handIn("/v1/connectors/recorded/messages", header, body)
		accepted, _ := c.Expected["ok"].(bool)
		if (status != http.StatusUnauthorized) != accepted {
			t.Errorf("%s: answered %d %v, want accepted: %v", c.Name, status, answer, accepted)
		}
	}
}
