package remote

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/normalized"
	"inbox/policypart"
)

// What is said for an agent that waits without a word.
const (
	sayInput = "The agent waits for more input."
	sayLogin = "The agent waits for a sign-in at its own service."
)

// demanded is a question or a demand. The task stays open for the next message of the same sender in the thread.
func (x *exchange) demanded(ctx context.Context) (normalized.Response, *open, error) {
	waiting := &open{
		Task: string(x.task.id), Principal: x.turn.Message.Sender.Principal(), Asked: x.task.asked(),
		Login: x.task.status.State == a2a.TaskStateAuthRequired,
	}

	response := normalized.Response{Status: normalized.StatusInputRequired}
	if policy := policyIn(x.task.status.Message); policy != nil {
		part, state := x.present(*policy)
		waiting.State = state
		response.Parts = []normalized.Part{part}
		return response, waiting, nil
	}

	var err error
	if message := x.task.status.Message; message != nil {
		response.Parts, err = x.agent.readParts(ctx, x.keeper(), message.Parts, x.peer.card.textMIME())
	}
	if !speaks(response.Parts) {
		response.Parts = append(response.Parts, normalized.Text(map[bool]string{true: sayLogin, false: sayInput}[waiting.Login]))
	}

	return response, waiting, err
}

// present makes a demand of the other agent ours where our asker can meet it here: by a decision that goes back with its
// state, or at an address on our own origin. Every other one is put in words, above all one for money: what would be
// paid here the other agent would never see. The state stays between the two servers.
func (x *exchange) present(policy policypart.Part) (part normalized.Part, state string) {
	policy, state = withoutState(policy)
	shown := policy.Confine(x.agent.options.BaseURL)
	meets := false
	switch policy.Kind {
	case policypart.ConsentRequired:
		meets = state != "" || policy.URL == "" || shown.URL != ""
	case policypart.Unauthorized:
		meets = shown.URL != ""
	case policypart.PaymentRequired:
	default:
		meets = false
	}

	if !meets || shown.Check() != nil && !x.developing(shown) {
		return normalized.Text(words(policy)), state
	}

	return normalized.Part{Kind: normalized.PartPolicy, Policy: &shown}, state
}

// developing allows an address on our own plain http origin, which only a closed network has.
func (x *exchange) developing(policy policypart.Part) bool {
	return x.agent.options.Limits.AllowHTTP && policy.CheckWithin(x.agent.options.BaseURL) == nil
}

// refusedBy is a refusal for good, with the agent's own reason.
func (x *exchange) refusedBy(policy policypart.Part) normalized.Response {
	shown, _ := withoutState(policy)
	shown = shown.Confine(x.agent.options.BaseURL)
	if policypart.Resumable(shown.Kind) || shown.Check() != nil {
		return failed(codeFailed, words(policy))
	}
	return normalized.Response{Status: normalized.StatusFailed, Parts: []normalized.Part{{Kind: normalized.PartPolicy, Policy: &shown}}}
}

// withoutState takes out what would let a reader answer in our name, and the logins that are offered elsewhere.
func withoutState(policy policypart.Part) (policypart.Part, string) {
	var state string
	_ = json.Unmarshal(policy.Data[stateKey], &state) // absent or of another type: none
	policy.Data = maps.Clone(policy.Data)
	delete(policy.Data, stateKey)
	policy.AuthChallenges = slices.Clone(policy.AuthChallenges)

	for i, challenge := range policy.AuthChallenges {
		policy.AuthChallenges[i].Params = maps.Clone(challenge.Params)
		delete(policy.AuthChallenges[i].Params, "login")
	}

	if len(state) > maxIDBytes {
		state = ""
	}
	return policy, state
}

// words are the demand without its address: a link in a demand for money or consent is what a phisher would forge.
func words(policy policypart.Part) string {
	text := strings.TrimSpace(policy.Message)
	if title := strings.TrimSpace(policy.Title); title != "" {
		text = title + "\n\n" + text
	}
	if policy.Amount != "" {
		text += "\n\n" + excerpt(policy.Amount+" "+policy.Currency)
	}
	return text
}

// policyIn reads metadata.mentionable.policy; nil when there is no demand that can be shown.
func policyIn(message *a2a.Message) *policypart.Part {
	if message == nil {
		return nil
	}

	mentionable, _ := message.Metadata[mentionableKey].(map[string]any)
	if mentionable[policyKey] == nil {
		return nil
	}

	encoded, err := json.Marshal(mentionable[policyKey])
	if err != nil || len(encoded) > policypart.MaxBytes {
		return nil
	}

	var part policypart.Part
	if json.Unmarshal(encoded, &part) != nil || part.Kind == "" || strings.TrimSpace(part.Message) == "" {
		return nil
	}

	return &part
}
