package takeover

import (
	"context"
	"net/http"

	"inbox/exchange"
	"inbox/operator/lookup"
	"inbox/operator/operation"
)

// Operations are what programs of operators call.
func Operations() []operation.Operation[*Service] {
	return []operation.Operation[*Service]{
		operation.Declare(operation.Operation[*Service]{
			Method: http.MethodGet, Path: "/api/v1/takeovers", Summary: "Conversations that operators have taken over, newest first",
		}, list),
		operation.Declare(operation.Operation[*Service]{
			Method: http.MethodGet, Path: "/api/v1/threads/{thread}/takeover", Summary: "Which operator has a conversation", Errors: ambiguous,
		}, show),
		operation.Declare(operation.Operation[*Service]{
			Method: http.MethodPut, Path: "/api/v1/threads/{thread}/takeover", Summary: "Take a conversation over from its agent",
			Role: exchange.RoleWork, Errors: ambiguous,
		}, begin),
		operation.Declare(operation.Operation[*Service]{
			Method: http.MethodDelete, Path: "/api/v1/threads/{thread}/takeover", Summary: "Hand a conversation back to its agent",
			Role: exchange.RoleWork, Errors: ambiguous,
		}, end),
		operation.Declare(replying("/api/v1/threads/{thread}/reply", "Answer the message of a conversation that waits, as its agent"), replyInThread),
		operation.Declare(replying("/api/v1/turns/{turn}/reply", "Answer a message as its agent"), replyToMessage),
	}
}

// ambiguous is the error of an id that fits several messages, or of a conversation that another operator has.
var ambiguous = []int{http.StatusConflict}

// maxReplyBody bounds the body of an answer: its text, with the escapes of JSON.
const maxReplyBody = 4 << 20

func replying(path, summary string) operation.Operation[*Service] {
	return operation.Operation[*Service]{
		Method: http.MethodPost, Path: path, Summary: summary, Role: exchange.RoleWork, Errors: ambiguous,
		Example: replyBody{Text: "Hello", MIME: "text/markdown"}, MaxBody: maxReplyBody, Hint: `send {"text":"…"}`,
	}
}

type listInput struct {
	Agent  string `query:"agent"`
	Holder string `query:"holder" doc:"The operator, as the list names them."`
	Status string `query:"status" default:"open" one:"open all" doc:"all: also those that were handed back."`
	operation.Page
}

func list(ctx context.Context, s *Service, _ operation.Caller, in listInput) (exchange.List[exchange.Takeover], error) {
	return operation.Cut(in.Page, func(t exchange.Takeover) string { return t.ID }, func(limit int) ([]exchange.Takeover, error) {
		return s.List(ctx, exchange.TakeoverFilter{Agent: in.Agent, Holder: in.Holder, All: in.Status == "all", Before: in.Before, Limit: limit})
	})
}

type conversation struct {
	Thread string `path:"thread"`
	Agent  string `query:"agent" doc:"The agent, where several have a conversation with the id."`
}

func (c conversation) id() lookup.ConversationID {
	return lookup.ConversationID{ID: c.Thread, Agent: c.Agent, Whole: true}
}

func show(ctx context.Context, s *Service, _ operation.Caller, in conversation) (exchange.Takeover, error) {
	return s.Of(ctx, in.id())
}

type beginInput struct {
	conversation

	Force bool `query:"force" doc:"Also when another operator has the conversation."`
}

func begin(ctx context.Context, s *Service, caller operation.Caller, in beginInput) (exchange.Takeover, error) {
	return s.Take(ctx, in.id(), caller.By, in.Force)
}

type endInput struct {
	conversation

	Note  string `query:"note" doc:"For the agent in its next turn."`
	Drop  bool   `query:"drop" doc:"Close what waits without an answer; otherwise the agent answers it."`
	Force bool   `query:"force" doc:"Also when another operator has the conversation."`
}

func end(ctx context.Context, s *Service, caller operation.Caller, in endInput) (exchange.Takeover, error) {
	return s.End(ctx, in.id(), caller.By, HandBack{Note: in.Note, Drop: in.Drop, Force: in.Force})
}

// replyBody is the text of an answer.
type replyBody struct {
	Text string `json:"text"`
	MIME string `json:"mime,omitempty" doc:"text/plain, or text/markdown"`
}

type replyInput struct {
	Key  string    `header:"Idempotency-Key"`
	Body replyBody `body:"required"`
}

func (in replyInput) reply() WrittenReply {
	return WrittenReply{Text: in.Body.Text, MIME: in.Body.MIME, Key: in.Key}
}

func replyInThread(ctx context.Context, s *Service, caller operation.Caller, in struct {
	conversation
	replyInput
},
) (Addressee, error) {
	return s.Reply(ctx, in.id(), caller.By, in.reply())
}

func replyToMessage(ctx context.Context, s *Service, caller operation.Caller, in struct {
	Turn  string `path:"turn"`
	Agent string `query:"agent" doc:"The agent, where several got the message."`
	replyInput
},
) (Addressee, error) {
	return s.Reply(ctx, lookup.ConversationID{ID: in.Turn, Agent: in.Agent}, caller.By, in.reply())
}
