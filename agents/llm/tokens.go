package llm

import (
	"errors"

	"inbox/agents/runtime/value"
)

// What is not reported is estimated: bytes of a text and tokens of a picture.
const (
	tokenBytes    = 4
	pictureTokens = 1600
)

// attempt counts the tokens of one request to a model.
type attempt struct {
	request  *Request
	usage    Usage // as the provider reports it
	received int   // bytes of the answer
}

func (a *attempt) add(delta Delta) {
	switch delta.Kind {
	case DeltaUsage:
		a.usage = delta.Usage
	case DeltaText, DeltaThought, DeltaToolCall, DeltaArguments:
		a.received += len(delta.Text) + len(delta.Name)
	}
}

// spent returns the tokens of the attempt, which ended with the error. One that broke off may cost as much as a whole one, and a provider
// reports most of the tokens at the end: what it did not report is estimated from the texts that were sent and received. A request that
// did not arrive, or was refused before a piece of the answer came, costs nothing.
func (a *attempt) spent(err error) Usage {
	_, unsent := errors.AsType[*unsentError](err)
	said, refused := errors.AsType[*refusal](err)
	refused = refused && (said.status != 0 || a.received == 0 && a.usage == Usage{})
	if err == nil || unsent || refused {
		return a.usage
	}

	usage := a.usage
	if usage.Input == 0 {
		usage.Input = a.request.tokens()
	}
	usage.Output = max(usage.Output, int64(a.received+tokenBytes-1)/tokenBytes)
	return usage
}

// tokens estimates the tokens of a request.
func (r *Request) tokens() int64 {
	bytes, pictures := len(r.System), 0
	for _, message := range r.Messages {
		for _, block := range message.Blocks {
			bytes += len(block.Text) + len(block.Name) + len(block.Arguments)
			if block.Kind == BlockImage {
				pictures++
			}
		}
	}
	for _, tool := range r.Tools {
		bytes += len(tool.Name) + len(tool.Description) + len(value.EncodeText(tool.Parameters))
	}
	return int64(bytes/tokenBytes + pictures*pictureTokens + 1)
}

func (u Usage) plus(other Usage) Usage {
	return Usage{
		Input: u.Input + other.Input, Output: u.Output + other.Output, CacheRead: u.CacheRead + other.CacheRead,
		CacheWrite: u.CacheWrite + other.CacheWrite, Cost: u.Cost + other.Cost,
	}
}
