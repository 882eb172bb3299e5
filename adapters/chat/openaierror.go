package chat

import (
	"net/http"

	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

// OpenAIErrorBody is an error in OpenAI's form.
type OpenAIErrorBody struct {
	Error OpenAIErrorDetail `json:"error"`
}

// OpenAIErrorDetail is the inner object of an OpenAIErrorBody.
type OpenAIErrorDetail struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    string  `json:"code"`
}

type openAIError struct {
	status int
	detail OpenAIErrorDetail
}

// write answers with an error after which OpenAI's SDKs do not send the request again by themselves.
func (e *openAIError) write(w http.ResponseWriter) {
	w.Header().Set("X-Should-Retry", "false")
	httpserver.WriteJSON(w, e.status, OpenAIErrorBody{e.detail})
}

// openAICodes are OpenAI's words for our kinds of faults; every other keeps its own.
var openAICodes = map[fault.Kind]struct{ errorType, code string }{
	fault.Unauthenticated: {"invalid_request_error", "invalid_api_key"},
	fault.Forbidden:       {"invalid_request_error", "insufficient_permissions"},
	fault.NotFound:        {"invalid_request_error", "model_not_found"},
	fault.RateLimited:     {"requests", "rate_limit_exceeded"},
	fault.Unavailable:     {"server_error", "unavailable"},
	fault.Internal:        {"server_error", "internal"},
}

func writeOpenAIError(w http.ResponseWriter, err error) {
	known := fault.Of(err)
	detail := OpenAIErrorDetail{Message: known.Public, Type: "invalid_request_error", Code: string(known.Kind)}
	if words, is := openAICodes[known.Kind]; is {
		detail.Type, detail.Code = words.errorType, words.code
	}
	if known.Field != "" {
		detail.Param, detail.Message = &known.Field, known.Field+" "+known.Public
	}
	if known.Kind == fault.Conflict { // SDKs repeat it, and it stays one
		w.Header().Set("X-Should-Retry", "false")
	}
	httpserver.SetRetry(w.Header(), known)
	httpserver.WriteJSON(w, httpserver.Status(known.Kind), OpenAIErrorBody{detail})
}
