package envelope

// Codes of the errors of this package (agent runtime contract, sections 1.4, 2 and 8).
const (
	CodeEnvelope  = "invalid_ai_message_envelope"
	CodeResult    = "invalid_agent_conversation_result"
	CodeFramework = "invalid_agent_framework_message"
)

// Error says which rule a message or a result breaks. Its text is `<code>: [<path> ]<reason>`, as the runtime writes it.
type Error struct {
	Code   string
	Path   string // the failing member, "" for an envelope's own errors
	Reason string
}

// Error gives the machine-readable text.
func (e *Error) Error() string {
	if e.Path == "" {
		return e.Code + ": " + e.Reason
	}
	return e.Code + ": " + e.Path + " " + e.Reason
}

// ErrorCode gives the code.
func (e *Error) ErrorCode() string { return e.Code }

// ErrorPath gives the failing member.
func (e *Error) ErrorPath() string { return e.Path }

func broken(reason string) error { return &Error{Code: CodeEnvelope, Reason: reason} }
