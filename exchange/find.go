package exchange

// Kinds of ids by which the store finds turns; each is a range of one index.
const (
	FindTurn         = "turn"
	FindReply        = "reply"
	FindDelivery     = "delivery"
	FindDemand       = "demand"
	FindDemandState  = "demand state" // by the lower-case hex SHA-256 of the state
	FindDispatch     = "dispatch"
	FindToolRequest  = "tool request"
	FindTaskRun      = "task run"
	FindAudit        = "audit record"
	FindMessage      = "message"      // by the protocol's own id of a message to an agent
	FindSentMessage  = "sent message" // by that of an answer or of a question back
	FindReference    = "reference"    // TurnRecord.Reference: the id of a task of A2A
	FindWatch        = "watch"        // by the id of a Watch
	FindConversation = "conversation" // Inbound.Conversation
	FindRequest      = "request"      // TurnRecord.Request
	FindTrace        = "trace"        // by the id of the trace in TurnRecord.Trace
)
