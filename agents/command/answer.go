package command

import (
	"context"
	"errors"
	"strings"

	"inbox/agents"
	"inbox/agents/upstream"
	"inbox/normalized"
)

// answer reads what the program wrote.
func (a *Agent) answer(ctx context.Context, output []byte, turn agents.Turn, files placed) (normalized.Response, error) {
	response, err := a.read(output)
	if err != nil {
		return normalized.Response{}, upstream.NotUsable(err)
	}
	if err := files.collect(ctx, turn.Files, a.options.Output, &response); err != nil {
		return normalized.Response{}, err
	}

	question := turn.Message
	response.Clean()
	response = response.Answering(question)
	if err := normalized.ValidateResponse(response, question, a.options.Limits); err != nil {
		return normalized.Response{}, upstream.NotUsable(err)
	}
	return response, nil
}

func (a *Agent) read(output []byte) (normalized.Response, error) {
	if a.options.Output == OutputText {
		return spoken(string(output)), nil
	}
	if len(strings.TrimSpace(string(output))) == 0 {
		return normalized.Response{}, errors.New(`the program wrote no answer; {"silent": true} says that this is on purpose`)
	}
	return normalized.DecodeResponse(output, a.options.Limits)
}

// spoken is the answer that plain text makes.
func spoken(output string) normalized.Response {
	said := strings.TrimRight(strings.ToValidUTF8(output, "\uFFFD"), " \t\r\n")
	if strings.TrimSpace(said) == "" {
		return normalized.Response{Silent: true}
	}
	return normalized.Response{Parts: []normalized.Part{normalized.Text(said)}}
}
