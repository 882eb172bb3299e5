package llm

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"
	"time"

	"inbox/agents"
	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/loop"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
	"inbox/identity"
	"inbox/internal/capability"
	"inbox/internal/fault"
	"inbox/policypart"
)

func (a Actions) validate() error {
	for _, policies := range []map[string]string{a.Tools, a.Categories} {
		for name, policy := range policies {
			if tool.ActionPolicy(policy) == "" {
				return fault.InField("actions."+name, `must be "direct", "preview" or "forbidden"`)
			}
		}
	}

	for pattern := range a.Tools {
		if _, err := path.Match(pattern, ""); err != nil {
			return fault.InField("actions."+pattern, "is no pattern")
		}
	}
	return nil
}

// strictness orders the policies: of several patterns that match, the strictest counts.
var strictness = map[string]int{tool.ActionDirect: 1, tool.ActionPreview: 2, tool.ActionForbidden: 3}

// Of returns what the lists say about the tool with a canonical name, as an action policy; empty = nothing. Categories do not count.
func (a Actions) Of(name string) string {
	if policy := tool.ActionPolicy(a.Tools[name]); policy != "" {
		return policy
	}

	strictest := ""
	for pattern, word := range a.Tools {
		matched, _ := path.Match(pattern, name) // validate checked the pattern
		if policy := tool.ActionPolicy(word); matched && strictness[policy] > strictness[strictest] {
			strictest = policy
		}
	}
	return strictest
}

// action is what the operator's policy and the sender's rights say about a tool (agent runtime contract, section 4.9).
func (j *job) action(declaration *tool.Declaration) string {
	permits := j.turn.Permits
	if permits == nil {
		permits = func(string) bool { return false }
	}

	name := declaration.Name()
	return tool.ResolveAction(map[string]any{
		"tool_name": name, "tool_def": declaration.Object(),
		"action_policy": map[string]any{
			"tools":      map[string]any{name: j.agent.options.Actions.Of(name)},
			"categories": anyMap(j.agent.options.Actions.Categories),
		},
	}, permits)
}

// visible returns the tools that the model sees (agent runtime contract, section 4.8), of those that the sender may use.
func (j *job) visible(allowed []*tool.Declaration) tool.Declarations {
	set := tool.NewDeclarations(allowed...)
	policy := j.agent.options.ToolPolicy
	if policy == nil {
		return set
	}

	names := tool.Visible(set.Entries(), map[string]any{
		"agent_config": map[string]any{"tool_policy": policy}, "principal": j.principal(),
	})

	seen := make([]*tool.Declaration, 0, len(names))
	for _, name := range names {
		if declaration, has := set.Get(name); has {
			seen = append(seen, declaration)
		}
	}

	return tool.NewDeclarations(seen...)
}

// principal reports whether a person stands behind the message: programs, and senders who proved nothing, are autonomous.
func (j *job) principal() map[string]any {
	source, user := "agent_token", 0
	for i := range j.turn.Message.Sender.Identities {
		if j.turn.Message.Sender.Identities[i].Assurance != identity.AssuranceAgent {
			source, user = "user", 1
		}
	}

	if j.turn.Message.RecipientCapabilities.AgentChain != nil { // an agent asks, on whosever behalf
		source, user = "agent_token", 0
	}
	return map[string]any{"auth_source": source, "acting_user_id": user}
}

func anyMap(policies map[string]string) map[string]any {
	object := make(map[string]any, len(policies))
	for name, policy := range policies {
		object[name] = policy
	}
	return object
}

// decide implements the mediator of the loop: calls that cannot be read or are not permitted are refused, those that
// need approval become a question to a person.
func (j *job) decide(ctx context.Context, proposal loop.Proposal) map[string]any {
	if reason, is := proposal.RawToolCall[unreadable].(string); is {
		return refuse("The call was not made: "+reason+".", "unreadable_arguments")
	}
	if proposal.ToolDeclaration == nil || proposal.PreparedToolCall == nil {
		return nil
	}

	action := j.action(proposal.ToolDeclaration)
	if action == tool.ActionForbidden {
		return refuse("The sender may not use this tool.", "action_forbidden")
	}
	if decision := j.mediate(ctx, proposal); decision != nil { // before a person is asked
		return decision
	}
	if action == tool.ActionPreview {
		return j.question(ctx, proposal)
	}
	return nil
}

func refuse(text, kind string) map[string]any {
	return map[string]any{"action": tool.ActionReject, "error": text, "metadata": map[string]any{"error_type": kind}}
}

// question asks for approval. Nothing that goes wrong here may let the call through.
func (j *job) question(ctx context.Context, proposal loop.Proposal) map[string]any {
	if j.agent.options.Approvals == nil {
		return refuse("The tool needs approval, and no one can give it here.", "approval_unavailable")
	}

	message, err := j.askApproval(ctx, proposal)
	if err != nil {
		return refuse("Approval could not be asked for: "+publicText(err), "approval_unavailable")
	}

	return map[string]any{
		"action": tool.ActionReplace, "complete": true,
		"result": map[string]any{"success": true, "tool_name": proposal.ToolName, "result": message},
	}
}

func (j *job) askApproval(ctx context.Context, proposal loop.Proposal) (message map[string]any, err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("a defect of the server")
		}
	}()

	message, err = j.agent.options.Approvals.Ask(ctx, j.turn, proposal)
	if err == nil && message["type"] != string(envelope.TypeApprovalRequired) {
		err = errors.New("no one was asked")
	}
	return message, err //nolint:wrapcheck // shown to the model
}

func publicText(err error) string {
	if known, is := errors.AsType[*fault.Fault](err); is {
		return known.Public
	}
	return err.Error()
}

// Claims is the shared table of small documents. It decides which run makes an approved call.
type Claims interface {
	// Once marks a key and reports whether it had no mark.
	Once(ctx context.Context, namespace, key string, expires time.Time) (first bool, err error)
}

// ByDemand is Approvals where the demand of the parked turn decides: the call is made when the turn runs again with a
// demand that was granted. The call of each grant is begun once; a run that died during it is not repeated when the tool
// must run at most once, and repeated under the same idempotency key otherwise. A grant of which it is not known whether it was
// marked as begun counts as begun.
type ByDemand struct {
	Tools  []Tools
	Claims Claims

	// Secret is the key of the names of calls, at least 32 bytes, the same on all nodes: a tool that makes its own question cannot have another call run,
	// and no one can try out what is redacted. nil = a key of this process, so that nothing it asked is called after its end.
	Secret []byte
}

var processSecret = sync.OnceValue(func() []byte { return []byte(rand.Text() + rand.Text()) })

// maxApproved bounds the arguments of a call that a person decides about, as JSON: a demand has room for them (policypart.MaxBytes).
const maxApproved = policypart.MaxBytes - 16<<10

const (
	claimNamespace = "agents.approved"                   // hash of action and grant → the mark of its beginning
	claimLife      = policypart.GrantLife + 24*time.Hour // longer than what was granted counts, so no call is made twice
)

// Ask writes down the call and what was decided last, so that an earlier decision is never taken for this one.
func (b ByDemand) Ask(_ context.Context, turn agents.Turn, proposal loop.Proposal) (map[string]any, error) {
	prepared := proposal.PreparedToolCall
	name := value.Text(prepared["tool_name"])
	redacted := tool.RedactParameters(value.Assoc(prepared["parameters"]), proposal.ToolDeclaration) // defaults and bindings run, too
	action := b.nameOf(turn, proposal.ToolCallID, name, prepared["parameters"])
	payload := map[string]any{
		"action_id": action, "kind": "tool_call", "preview": map[string]any{"tool_name": name, "parameters": redacted},
		"apply_input": map[string]any{"tool_name": name, "parameters": prepared["parameters"]},
		"subject":     turn.Message.Sender.Principal(), "agent": turn.Agent,
		"decided_before":  decision(turn),
		"at_most_once":    !tool.Repeatable(proposal.ToolDeclaration),
		"idempotency_key": tool.Call{Name: name, Parameters: value.Assoc(prepared["parameters"]), Context: map[string]any{"run_id": turn.ID}}.IdempotencyKey(),
	}

	if identity := proposal.ToolDeclaration.Field(identityKey); identity != nil {
		payload["identity"] = identity
	}

	if size := len(value.EncodeText(redacted)); size > maxApproved {
		return nil, fmt.Errorf("the arguments have %d bytes, and an approver can be shown at most %d", size, maxApproved)
	}
	summary := fmt.Sprintf("The agent wants to use %s.", quote(name))
	return envelope.NewApprovalRequired(summary, payload, map[string]any{"tool_call_id": proposal.ToolCallID}).Value(), nil
}

// identityKey is the member of a declaration that says which tool of an MCP server it is. The server may reuse the name for another one.
const identityKey = "mcp"

// decision names the resolution that the turn runs with.
func decision(turn agents.Turn) string {
	if turn.Message.PolicyResolution == nil {
		return ""
	}
	body, err := json.Marshal(turn.Message.PolicyResolution)
	if err != nil {
		return "unreadable"
	}
	return tool.Hash(string(body))
}

// Settle makes the call once it was granted.
func (b ByDemand) Settle(ctx context.Context, turn agents.Turn, waiting Waiting) (map[string]any, error) {
	resolution := turn.Message.PolicyResolution
	payload := value.Assoc(waiting.Request["payload"])
	switch {
	case resolution == nil || decision(turn) == value.Text(payload["decided_before"]) || approvedAction(resolution) != value.Text(payload["action_id"]):
		return nil, nil // nothing was decided about this call
	case resolution.Outcome != policypart.OutcomeGranted:
		return map[string]any{"success": false, "error": "It was not approved.", "error_type": "approval_" + resolution.Outcome}, nil
	}

	input := value.Assoc(payload["apply_input"])
	granted := policypart.Grant{
		Purpose: policypart.PurposeApproval, Subject: value.Text(payload["subject"]), Agent: value.Text(payload["agent"]), Digest: approvedAction(resolution),
		Until: resolution.ResolvedAt.Add(policypart.GrantLife),
	}
	if !granted.Covers(policypart.Use{
		Purpose: policypart.PurposeApproval, Subject: turn.Message.Sender.Principal(), Agent: turn.Agent, At: time.Now(),
		Digest: b.nameOf(turn, waiting.CallID, value.Text(input["tool_name"]), input["parameters"]),
	}) {
		return map[string]any{"success": false, "error": "What was approved is not this call.", "error_type": "approval_mismatch"}, nil
	}

	// A model may name several calls of one turn alike, so a call's ID does not name the grant.
	key := tool.Hash(map[string]any{"action": approvedAction(resolution), "grant": decision(turn)})
	first, err := b.Claims.Once(ctx, claimNamespace, key, time.Now().Add(claimLife))
	if err != nil {
		return nil, fault.RetryIn(0, "the approved call cannot be noted now", err)
	}
	if !first && marked(payload, "at_most_once") {
		return map[string]any{
			"success": false, "error_type": "outcome_unknown",
			"error": "The call was begun before and its outcome is not known; it must not be made twice.",
		}, nil
	}

	return b.call(ctx, turn, waiting, payload)
}

// nameOf names a call of a tool: the keyed digest of all that its approver decides about, with what is redacted for them.
func (b ByDemand) nameOf(turn agents.Turn, callID, name string, parameters any) string {
	key := b.Secret
	if key == nil {
		key = processSecret()
	}
	return capability.Mint(key, capability.Claim{
		Purpose: "approved-call", Who: turn.Agent, Form: capability.Long,
		What: tool.Hash(map[string]any{"turn": turn.ID, "call": callID, "tool": name, "parameters": parameters}),
	})
}

// approvedAction returns the action that a resolution is about; empty where it is about something else than an approval.
func approvedAction(resolution *policypart.Resolution) string {
	var decided struct {
		ActionID string `json:"action_id"`
	}
	_ = json.Unmarshal(resolution.Data[policypart.ApprovalKey], &decided) // absent: no action was decided
	return decided.ActionID
}

// call finds the tool again and runs it with the approved parameters.
func (b ByDemand) call(ctx context.Context, turn agents.Turn, waiting Waiting, approved map[string]any) (map[string]any, error) {
	declared, _, err := declaredTools(ctx, turn, b.Tools)
	if err != nil {
		return nil, err
	}

	input := value.Assoc(approved["apply_input"])
	name := value.Text(input["tool_name"])
	at := slices.IndexFunc(declared, func(one declaredTool) bool { return one.Name() == name })
	if at < 0 || !value.Equal(declared[at].Field(identityKey), approved["identity"]) {
		return map[string]any{"success": false, "error": "The tool is not there any more.", "error_type": "tool_not_found"}, nil
	}

	return tool.Execute(ctx, tool.Prepared{Call: tool.Call{
		Name: name, Parameters: value.Assoc(input["parameters"]), ID: waiting.CallID, Declaration: declared[at].Declaration,
		Context: map[string]any{"run_id": turn.ID, "agent": turn.Agent, "tool_call_id": waiting.CallID},
	}}, tool.Executors{Default: declared[at].source}), nil
}
