package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/agents"
	"inbox/agents/upstream"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/internal/markup"
	"inbox/normalized"
	"inbox/policypart"
)

// Members of metadata (message contract, sections 7, 9 and 10).
const (
	mentionableKey = "mentionable"
	chainKey       = "agent_chain"
	evidenceKey    = "identity_evidence"
	policyKey      = "policy"
	resolutionKey  = "policy_resolution"
	surfaceKey     = "surface"

	artifactTypeKey = "artifact_type"
	stateKey        = "dev.mentionable.state" // in the data of a demand: a bearer secret
)

// emptyText stands for a message without content, which A2A does not know.
const emptyText = "(The message is empty.)"

// message writes the turn for the other agent. Evidence is good for one use: every sending is signed anew.
func (x *exchange) message(ctx context.Context) (*a2a.Message, error) {
	message := &a2a.Message{ID: x.id, ContextID: x.thread.Context, Role: a2a.MessageRoleUser}
	mentionable := map[string]any{chainKey: nextHop(x.turn)}
	if surface := x.turn.Message.Surface; surface != nil {
		mentionable[surfaceKey] = surface
	}

	resolution := x.turn.Message.PolicyResolution
	if open := x.continued(); open != nil {
		message.TaskID = a2a.TaskID(open.Task)
	}

	var err error
	if resolution != nil && message.TaskID != "" { // the task knows the question itself
		message.Parts = a2a.ContentParts{a2a.NewTextPart(decision(*resolution))}
		mentionable[resolutionKey] = x.resolution(*resolution)
	} else {
		message.Parts, err = x.agent.render(ctx, x.turn.Files, x.turn.Message.Parts)
	}

	if err != nil {
		return nil, err
	}

	if sign := x.agent.options.Sign; sign != nil {
		evidence, err := sign(ctx, Vouching{Turn: x.turn, Audience: x.peer.card.audience(x.agent.card)})
		if err != nil {
			return nil, notKept(fmt.Errorf("sign evidence: %w", err))
		}
		if len(evidence) > 0 {
			mentionable[evidenceKey] = evidence
			message.Extensions = append(message.Extensions, identity.EvidenceExtension)
		}
	}

	message.Metadata, err = plain(map[string]any{mentionableKey: mentionable})
	return message, err
}

// plain writes and reads metadata once: the SDK's 0.3 REST binding takes maps, lists and simple values only.
func plain(metadata map[string]any) (map[string]any, error) {
	encoded, err := json.Marshal(metadata)
	if err != nil {
		return nil, upstream.NotTaken(fmt.Errorf("write metadata: %w", err))
	}
	var simple map[string]any
	if err := json.Unmarshal(encoded, &simple); err != nil {
		return nil, upstream.NotTaken(fmt.Errorf("write metadata: %w", err))
	}
	return simple, nil
}

// nextHop counts this hop of the chain of agents (message contract, section 7).
func nextHop(turn agents.Turn) normalized.AgentChain {
	hop, ceiling := 0, agents.DefaultMaxHops
	if chain := turn.Message.RecipientCapabilities.AgentChain; chain != nil {
		hop, ceiling = chain.Hop, chain.MaxHops
	}
	return normalized.AgentChain{Hop: hop + 1, MaxHops: ceiling, IsFinal: hop+1 >= ceiling}
}

// resolution answers the demand of the task under the state that it was made with there.
func (x *exchange) resolution(resolution policypart.Resolution) policypart.Resolution {
	resolution.InReplyToState, resolution.Data, resolution.ResolvedBy = "", nil, nil
	if open := x.continued(); open != nil {
		resolution.InReplyToState = open.State
	}
	return resolution
}

func decision(resolution policypart.Resolution) string {
	switch resolution.Outcome {
	case policypart.OutcomeGranted:
		return "Yes, go on: this is granted."
	case policypart.OutcomeDenied:
		return "No: this is denied."
	}
	return "The answer is: " + resolution.Outcome + "."
}

// render writes parts as the protocol has them. Tool calls stay here. A policy part of the sender's is data.
func (a *Agent) render(ctx context.Context, files agents.Files, parts []normalized.Part) (a2a.ContentParts, error) {
	list := make(a2a.ContentParts, 0, len(parts))
	for _, part := range parts {
		rendered, err := a.renderPart(ctx, files, part)
		if err != nil {
			return nil, err
		}
		if rendered != nil {
			list = append(list, rendered)
		}
	}

	if len(list) == 0 {
		list = append(list, a2a.NewTextPart(emptyText))
	}

	return list, nil
}

func (a *Agent) renderPart(ctx context.Context, files agents.Files, part normalized.Part) (*a2a.Part, error) {
	switch part.Kind {
	case normalized.PartText:
		if part.MIME == normalized.MIMEHTML { // a model reads tags as words
			part = normalized.Text(markup.PlainText([]normalized.Part{part}))
		}
		if part.Content == "" {
			return nil, nil
		}
		return &a2a.Part{Content: a2a.Text(part.Content), MediaType: part.MIME}, nil
	case normalized.PartLink:
		return &a2a.Part{
			Content: a2a.URL(part.URL), MediaType: normalized.MIMEHTML, Filename: part.Title, Metadata: described(part.Description),
		}, nil
	case normalized.PartFile, normalized.PartArtifact:
		if part.BytesRef != nil {
			return a.renderFile(ctx, files, part)
		}
	case normalized.PartPolicy:
		if encoded, err := json.Marshal(part.Policy); err == nil && part.Policy != nil {
			return &a2a.Part{Content: contentOf(normalized.Data(), encoded)}, nil
		}
	}
	return nil, nil
}

func described(text string) map[string]any {
	if text == "" {
		return nil
	}
	return map[string]any{"description": text}
}

// renderFile puts a file into the message when it is small enough, puts in an address of it otherwise, and names it where
// there is none.
func (a *Agent) renderFile(ctx context.Context, files agents.Files, part normalized.Part) (*a2a.Part, error) {
	rendered := &a2a.Part{MediaType: part.MIME, Filename: part.Name, Metadata: described(part.Alt)}
	ref := part.BytesRef
	switch {
	case ref.Kind == normalized.BytesInline:
		content, err := ref.Bytes()
		if err != nil {
			return nil, upstream.NotTaken(fmt.Errorf("read file of the message: %w", err))
		}
		rendered.Content = contentOf(part, content)
		return rendered, nil
	case ref.Kind == normalized.BytesContentAddressed && a.options.Blobs != nil && part.Size <= a.options.MaxFileBytes:
		content, err := a.readBlob(ctx, ref.Digest)
		if err != nil {
			return nil, err
		}
		if content != nil {
			rendered.Content = contentOf(part, content)
			return rendered, nil
		}
	}

	address := ref.URL
	if address == "" && ref.Digest != "" && files != nil {
		address, _ = files.Address(ref.Digest)
	}
	if address == "" {
		return a2a.NewTextPart(fmt.Sprintf("[%s (%s) is too large to be sent here]", orElse(part.Name, "A file"), part.MIME)), nil
	}

	rendered.Content = a2a.URL(address)
	return rendered, nil
}

// contentOf makes a data part of data and a file of everything else. Numbers keep their digits where the
// binding has any.
func contentOf(part normalized.Part, content []byte) a2a.PartContent {
	if part.IsData() {
		var data any
		decoder := json.NewDecoder(bytes.NewReader(content))
		decoder.UseNumber()
		if decoder.Decode(&data) == nil {
			return a2a.Data{Value: data}
		}
	}
	return a2a.Raw(content)
}

// readBlob returns nil for a file that is larger than its part said and than may be sent.
func (a *Agent) readBlob(ctx context.Context, digest string) ([]byte, error) {
	reader, err := a.options.Blobs.Open(ctx, digest)
	if err != nil {
		return nil, fault.RetryIn(0, "A file of the message cannot be read right now.", fmt.Errorf("open file of the message: %w", err))
	}
	defer func() { _ = reader.Close() }()

	content, err := io.ReadAll(io.LimitReader(reader, a.options.MaxFileBytes+1))
	if err != nil {
		return nil, fault.RetryIn(0, "A file of the message cannot be read right now.", fmt.Errorf("read file of the message: %w", err))
	}
	if int64(len(content)) > a.options.MaxFileBytes {
		return nil, nil
	}
	return content, nil
}
