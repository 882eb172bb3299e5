package tool

import (
	"fmt"
	"slices"
	"time"

	"inbox/agents/runtime/envelope"
)

// States of a PendingAction. All but StatePending are final.
const (
	StatePending  = "pending"
	StateAccepted = "accepted"
	StateRejected = "rejected"
	StateExpired  = "expired"
	StateDeleted  = "deleted"
)

// CodePending is the code of a PendingError.
const CodePending = "invalid_ai_pending_action"

// PendingError says which member of a pending action is wrong.
type PendingError struct {
	Field  string
	Reason string
}

// Error is code, member and reason.
func (e *PendingError) Error() string { return CodePending + ": " + e.Field + " " + e.Reason }

// ErrorCode gives the machine-readable code.
func (e *PendingError) ErrorCode() string { return CodePending }

// ErrorPath gives the wrong member.
func (e *PendingError) ErrorPath() string { return e.Field }

// PendingAction is something that runs only after somebody agreed to it (agent runtime contract, section 4.10). Empty
// texts and nil objects stand for null. Times are texts in ISO 8601.
type PendingAction struct {
	ActionID           string
	Kind               string
	Summary            string // what the person who decides reads
	Preview            any    // what would happen
	ApplyInput         any    // what the handler gets
	Workspace          map[string]any
	Agent              string
	Creator            string
	Status             string
	CreatedAt          string
	ExpiresAt          string
	ResolvedAt         string
	Resolver           string // who decided
	ResolutionResult   any
	ResolutionError    string
	ResolutionMetadata map[string]any
	Metadata           map[string]any
}

// ParsePending reads and checks a pending action. The error is a *PendingError.
func ParsePending(value any) (PendingAction, error) {
	reader := pendingReader{object: members(value)}
	action := PendingAction{
		ActionID: reader.text("action_id"), Kind: reader.text("kind"), Summary: reader.text("summary"),
		Preview: reader.present("preview"), ApplyInput: reader.present("apply_input"),
		Workspace: reader.workspace(), Agent: reader.optional("agent"), Creator: reader.optional("creator"),
		Status: reader.status(), CreatedAt: reader.text("created_at"), ExpiresAt: reader.optional("expires_at"),
		ResolvedAt: reader.optional("resolved_at"), Resolver: reader.optional("resolver"),
		ResolutionResult: envelope.Clone(reader.object["resolution_result"]), ResolutionError: reader.optional("resolution_error"),
		ResolutionMetadata: reader.details("resolution_metadata"), Metadata: reader.details("metadata"),
	}
	reader.decided(action)
	if reader.err != nil {
		return PendingAction{}, reader.err
	}
	return action, nil
}

// Object is the action as JSON; all members are there.
func (a PendingAction) Object() map[string]any {
	return map[string]any{
		"action_id": a.ActionID, "kind": a.Kind, "summary": a.Summary, "preview": envelope.Clone(a.Preview),
		"apply_input": envelope.Clone(a.ApplyInput), "workspace": orNull(a.Workspace), "agent": textOrNull(a.Agent),
		"creator": textOrNull(a.Creator), "status": a.Status, "created_at": a.CreatedAt, "expires_at": textOrNull(a.ExpiresAt),
		"resolved_at": textOrNull(a.ResolvedAt), "resolver": textOrNull(a.Resolver),
		"resolution_result": envelope.Clone(a.ResolutionResult), "resolution_error": textOrNull(a.ResolutionError),
		"resolution_metadata": object(a.ResolutionMetadata), "metadata": object(a.Metadata),
	}
}

// Final tells whether nothing more can be decided.
func (a PendingAction) Final() bool { return a.Status != StatePending }

// ExpiredAt tells whether the action's time was over at a moment. A time that cannot be read never ends: creation is
// where it is checked.
func (a PendingAction) ExpiredAt(moment time.Time) bool {
	end, err := ParseTime(a.ExpiresAt)
	return err == nil && !end.After(moment)
}

// ApprovalEnvelope is the message that stops a loop until somebody decides: type approval_required, the summary as
// content and all members as payload, with instruction and grants if there are any.
func (a PendingAction) ApprovalEnvelope(instruction string, grants []map[string]any, metadata map[string]any) map[string]any {
	payload := a.Object()
	if text, ok := envelope.NonBlank(instruction); ok {
		payload["instruction"] = text
	}
	if len(grants) > 0 {
		payload["grants"] = envelope.Clone(envelope.Plain(grants))
	}
	return envelope.NewApprovalRequired(a.Summary, payload, object(metadata)).Value()
}

// ParseTime reads the times of pending actions: ISO 8601 with a zone, or date and time in UTC.
func ParseTime(text string) (time.Time, error) {
	var firstErr error
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05", "2006-01-02T15:04:05"} {
		moment, err := time.Parse(layout, text)
		if err == nil {
			return moment, nil
		}
		if firstErr == nil {
			firstErr = fmt.Errorf("read time: %w", err)
		}
	}
	return time.Time{}, firstErr
}

func orNull(object map[string]any) any {
	if object == nil {
		return nil
	}
	return envelope.Clone(object)
}

func textOrNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// pendingReader keeps the first error.
type pendingReader struct {
	object map[string]any
	err    error
}

func (r *pendingReader) fail(field, reason string) {
	if r.err == nil {
		r.err = &PendingError{field, reason}
	}
}

func (r *pendingReader) present(field string) any {
	value, has := r.object[field]
	if !has {
		r.fail(field, "is required")
	}
	return envelope.Clone(value)
}

func (r *pendingReader) text(field string) string {
	text, ok := envelope.NonBlank(r.present(field))
	if !ok {
		r.fail(field, "must be a non-empty string")
	}
	return text
}

func (r *pendingReader) optional(field string) string {
	if r.object[field] == nil {
		return ""
	}
	return r.text(field)
}

func (r *pendingReader) details(field string) map[string]any {
	value := r.object[field]
	if value != nil && !isContainer(value) {
		r.fail(field, "must be an array")
	}
	return envelope.Clone(members(value))
}

func (r *pendingReader) workspace() map[string]any {
	value := r.object["workspace"]
	if value == nil {
		return nil
	}
	workspace, ok := workspaceOf(value)
	if !ok {
		r.fail("workspace", "must include valid workspace_type and workspace_id")
	}
	return workspace
}

func (r *pendingReader) status() string {
	value := r.object["status"]
	if value == nil {
		return StatePending
	}
	status := envelope.Trim(envelope.Text(value))
	if !slices.Contains([]string{StatePending, StateAccepted, StateRejected, StateExpired, StateDeleted}, status) {
		r.fail("status", "must be pending, accepted, rejected, expired, or deleted")
	}
	return status
}

func (r *pendingReader) decided(action PendingAction) {
	if !action.Final() {
		return
	}
	if action.ResolvedAt == "" {
		r.fail("resolved_at", "is required for terminal status")
	}
	if action.Resolver == "" && action.Status != StateExpired {
		r.fail("resolver", "is required for terminal status")
	}
}
