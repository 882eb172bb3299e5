package command

import (
	"bytes"
	"context"
	"errors"
	"strings"

	"inbox/agents"
	"inbox/agents/upstream"
	"inbox/internal/clip"
	"inbox/normalized"
)

// answer reads what the program wrote.
func (a *Agent) answer(ctx context.Context, ended result, turn agents.Turn, files placed) (normalized.Response, error) {
	response, err := a.read(ended)
	if err != nil {
		return normalized.Response{}, upstream.NotUsable(err)
	}
	missing, err := files.collect(ctx, turn.Files, &a.options, &response)
	if err != nil {
		return normalized.Response{}, err
	}

	response, err = response.Completed(turn.Message, a.options.Limits, normalized.Left{Parts: missing, Rest: ended.over})
	if err != nil {
		return normalized.Response{}, upstream.NotUsable(err)
	}
	return response, nil
}

func (a *Agent) read(ended result) (normalized.Response, error) {
	switch {
	case ended.over && a.options.Output == OutputText:
		text := string(ended.stdout)
		return normalized.Response{Parts: []normalized.Part{normalized.Text(clip.Bytes(text, len(text)-1))}}, nil // whole characters
	case ended.over: // the start of a document is none
		return normalized.Response{}, nil
	case a.options.Output == OutputText:
		return spoken(string(ended.stdout)), nil
	case len(bytes.TrimSpace(ended.stdout)) == 0:
		return normalized.Response{}, errors.New(`the program wrote no answer; {"silent": true} says that this is on purpose`)
	}
	return normalized.DecodeResponse(ended.stdout, a.options.Limits)
}

// spoken is the answer that plain text makes.
func spoken(output string) normalized.Response {
	said := strings.TrimRight(strings.ToValidUTF8(output, "\uFFFD"), " \t\r\n")
	if strings.TrimSpace(said) == "" {
		return normalized.Response{Silent: true}
	}
	return normalized.Response{Parts: []normalized.Part{normalized.Text(said)}}
}
