package a2a

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"strconv"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/exchange"
	"inbox/internal/facilitator"
	"inbox/normalized"
	"inbox/policypart"
)

// view is what of a task the caller wants to see.
type view struct {
	history   *int // nil = all, 0 = none, n = the last n messages
	artifacts bool
}

// render writes the stored turns as a task. Results are artifacts; the talk is history and the status message.
func (s *tasks) render(ctx context.Context, t *task, v view) (*a2a.Task, error) {
	status, err := s.status(ctx, t)
	if err != nil {
		return nil, err
	}

	rendered := &a2a.Task{ID: t.id(), ContextID: t.contextID, Status: status, Metadata: taskMetadata(t)}
	if rendered.History, err = s.history(ctx, t, v.history); err != nil {
		return nil, err
	}
	if !v.artifacts {
		return rendered, nil
	}

	for i, turn := range t.turns {
		read := t.partial
		if i < len(t.turns)-1 {
			read = nil
		}
		artifacts, err := s.artifacts(ctx, turn, read)
		if err != nil {
			return nil, err
		}
		rendered.Artifacts = append(rendered.Artifacts, artifacts...)
	}

	return rendered, nil
}

// stopped says of an answer that is cut why it ends: its model reached its limit, or its run a budget.
func stopped(turn exchange.TurnRecord) map[string]any {
	if status := turn.Response.Stopped(); status != "" && turn.State == exchange.StateAnswered {
		return map[string]any{stopKey: status}
	}
	if turn.State != exchange.StateAnswered || turn.Response == nil || !turn.Response.Unfinished() {
		return nil
	}
	return map[string]any{stopKey: normalized.StopLength}
}

// updateMetadata is that of an event with the status of a task after the turn.
func updateMetadata(turn exchange.TurnRecord) map[string]any {
	if why := stopped(turn); why != nil {
		return map[string]any{mentionableKey: why}
	}
	return nil
}

// taskMetadata holds how deep in a chain of agents the task stands, why its answer is cut, and what became of its payment.
func taskMetadata(t *task) map[string]any {
	last := *t.last()
	metadata := map[string]any{}
	mentionable := map[string]any{}
	if chain := last.Message.RecipientCapabilities.AgentChain; chain != nil {
		mentionable["agent_chain"] = chain
	}
	maps.Copy(mentionable, stopped(last))
	if len(mentionable) > 0 {
		metadata[mentionableKey] = mentionable
	}

	maps.Copy(metadata, payment(last, t.state()))
	if len(metadata) == 0 {
		return nil
	}
	return metadata
}

func (s *tasks) status(ctx context.Context, t *task) (a2a.TaskStatus, error) {
	if !t.cancelled.IsZero() {
		return a2a.TaskStatus{State: a2a.TaskStateCanceled, Timestamp: stamp(t.cancelled)}, nil
	}
	last := t.last()
	message, err := s.statusMessage(ctx, t, *last)
	return a2a.TaskStatus{State: stateOf(*last), Message: message, Timestamp: stamp(last.UpdatedAt)}, err
}

// stamp is an instant as the protocol writes it: UTC, milliseconds.
func stamp(at time.Time) *time.Time {
	at = at.UTC().Truncate(time.Millisecond)
	return &at
}

// Sentences for states in which the agent itself said nothing.
const (
	sentenceFailed  = "The agent could not answer this message."
	sentenceRefused = "The agent does not take this message."
	sentenceHeld    = "The message waits until the operator of this server lets it pass."
	sentencePerson  = "A person answers this message. Ask for the task later, or be told by a webhook."
	sentenceWaiting = "The task waits for a decision that is made outside this conversation."
)

// statusMessage is what goes with the state; nil where the state says everything.
func (s *tasks) statusMessage(ctx context.Context, t *task, turn exchange.TurnRecord) (*a2a.Message, error) {
	message := newAnswerMessage(t, turn)
	state := stateOf(turn)
	if !speaks(state) && !isTalk(turn) {
		return paid(message, turn, state), nil
	}
	if err := s.fillStatus(ctx, message, turn); err != nil {
		return nil, err
	}

	if len(message.Parts) == 0 {
		message.Parts = a2a.ContentParts{a2a.NewTextPart(sentence(turn, state))}
	}

	addPayment(message, turn, state)
	return message, nil
}

func newAnswerMessage(t *task, turn exchange.TurnRecord) *a2a.Message {
	return &a2a.Message{
		ID: answerID(turn), Role: a2a.MessageRoleAgent,
		TaskID: a2a.TaskID(turn.Reference), ContextID: t.contextID,
	}
}

// answerID is the id of the agent's message: the reply's, which is final before any reader sees it.
func answerID(turn exchange.TurnRecord) string {
	if turn.ReplyID != "" {
		return turn.ReplyID
	}
	return turn.ID
}

// isTalk reports whether the answer of a turn is conversation and no result: it is a message, whatever operation reads it, and no artifact
// (A2A 1.0, section 3.7).
func isTalk(turn exchange.TurnRecord) bool {
	return turn.Response != nil && turn.Response.Metadata[normalized.MetadataTalk] == "true" && stateOf(turn) == a2a.TaskStateCompleted
}

// speaks reports whether the state needs words.
func speaks(state a2a.TaskState) bool {
	switch state {
	case a2a.TaskStateSubmitted, a2a.TaskStateWorking, a2a.TaskStateCompleted, a2a.TaskStateCanceled:
		return false
	}
	return true
}

// fillStatus takes the agent's own words: the sentence of a failure, or the parts with the policy part last.
func (s *tasks) fillStatus(ctx context.Context, message *a2a.Message, turn exchange.TurnRecord) (err error) {
	response := turn.Response
	if response == nil {
		return nil
	}

	policy := policyOf(turn)
	if policy == nil && response.Error != nil && response.Error.Message != "" {
		message.Parts = a2a.ContentParts{a2a.NewTextPart(response.Error.Message)}
		message.SetMeta(mentionableKey, map[string]any{errorKey: map[string]any{"code": response.Error.Code, "retryable": response.Error.Retryable()}})
		return nil
	}
	if message.Parts, err = s.of(turn).renderParts(ctx, response.Parts, true); err != nil || policy == nil {
		return err
	}
	return s.addPolicy(message, *policy)
}

// addPolicy puts a demand or refusal into a status message three times: as text for any client, as data, and in the
// metadata of the policy extension (message contract, section 8). A payment also gets the keys that deployed x402
// clients read.
func (s *tasks) addPolicy(message *a2a.Message, policy policypart.Part) error {
	policy = s.options.Present(policy)
	encoded, err := json.Marshal(policy)
	if err != nil {
		return fmt.Errorf("write policy part: %w", err)
	}

	var object map[string]any
	if err := json.Unmarshal(encoded, &object); err != nil {
		return fmt.Errorf("write policy part: %w", err)
	}

	message.Parts = append(message.Parts, a2a.NewTextPart(policy.Text("")), a2a.NewDataPart(object))
	message.Extensions = append(message.Extensions, policypart.Extension)
	message.SetMeta(mentionableKey, map[string]any{"policy": object})

	if policy.Kind == policypart.PaymentRequired {
		message.SetMeta(paymentStatusKey, paymentRequired)
		accepts := policy.Accepts
		if accepts == nil {
			accepts = []json.RawMessage{}
		}
		message.SetMeta("x402.payment.required", map[string]any{"x402Version": facilitator.VersionOf(accepts), "accepts": accepts})
	}

	return nil
}

func sentence(turn exchange.TurnRecord, state a2a.TaskState) string {
	switch {
	case turn.State == exchange.StateHeld:
		return sentenceHeld
	case turn.State == exchange.StateWaiting && turn.Reason == exchange.WaitingOperator:
		return sentencePerson
	case state == a2a.TaskStateRejected:
		return sentenceRefused
	case state == a2a.TaskStateFailed:
		return sentenceFailed
	}
	return sentenceWaiting
}

// history is every message of the task but the one of the current status.
func (s *tasks) history(ctx context.Context, t *task, length *int) ([]*a2a.Message, error) {
	if length != nil && *length == 0 {
		return nil, nil
	}

	list := make([]*a2a.Message, 0, 2*len(t.turns))
	files := maxHistoryFiles
	for i, turn := range t.turns {
		question, err := s.question(ctx, t, turn, &files)
		if err != nil {
			return nil, err
		}

		list = append(list, question)
		if i == len(t.turns)-1 && t.cancelled.IsZero() {
			break
		}

		answer, err := s.spoken(ctx, t, turn)
		if err != nil {
			return nil, err
		}

		if answer != nil {
			list = append(list, answer)
		}
	}

	if length != nil && len(list) > *length {
		list = list[len(list)-*length:]
	}

	return list, nil
}

// question is the message of the caller as it was sent; of one that was taken before this was kept, as it was understood. Files
// are the bytes that the history may still hold.
func (s *tasks) question(ctx context.Context, t *task, turn exchange.TurnRecord, files *int) (message *a2a.Message, err error) {
	message = &a2a.Message{
		ID: turn.Message.ID, Role: a2a.MessageRoleUser, TaskID: a2a.TaskID(turn.Reference), ContextID: t.contextID,
	}
	if noted := t.routeOf(turn).Words; noted != nil && len(turn.Message.Parts) > 0 {
		return message, s.restore(ctx, message, noted, turn, files)
	}
	message.Parts, err = s.renderParts(ctx, turn.Message.Parts, false)
	return message, err
}

// spoken is what the agent said at the end of an earlier turn of the task. A demand stays a part of the talk, also
// when the next message continued its turn.
func (s *tasks) spoken(ctx context.Context, t *task, turn exchange.TurnRecord) (*a2a.Message, error) {
	if policyOf(turn) == nil {
		return s.statusMessage(ctx, t, turn)
	}
	message := newAnswerMessage(t, turn)
	return message, s.fillStatus(ctx, message, turn)
}

// artifacts are the results of a turn that was answered: one for the parts of the answer, and each artifact part as
// its own. The ids are stable, so that streams and later reads name the same things. Of a turn that works, or ended
// otherwise, they are what it said so far (A2A 1.0, section 3.1.3); read is that where it is known already.
func (s *tasks) artifacts(ctx context.Context, turn exchange.TurnRecord, read *partial) (list []*a2a.Artifact, err error) {
	if stateOf(turn) != a2a.TaskStateCompleted {
		if read == nil {
			if read, err = s.partial(ctx, turn); err != nil {
				return nil, err
			}
		}
		if artifact := read.artifact(turn.ID); artifact != nil {
			list = append(list, artifact)
		}
		return list, nil
	}
	if turn.Response == nil || turn.State != exchange.StateAnswered || isTalk(turn) {
		return nil, nil
	}
	return s.results(ctx, turn)
}

// results are the parts of an answer as artifacts.
func (s *tasks) results(ctx context.Context, turn exchange.TurnRecord) (list []*a2a.Artifact, err error) {
	answer := &a2a.Artifact{ID: answerArtifact(turn.ID)}
	for i, part := range turn.Response.Parts {
		rendered, err := s.of(turn).renderPart(ctx, part, true)
		if err != nil {
			return nil, err
		}
		switch {
		case rendered == nil:
		case part.Kind == normalized.PartArtifact && (!part.IsData() || part.ID != "" || part.Description != ""):
			list = append(list, ownArtifact(turn.ID, i, part, rendered))
		default:
			answer.Parts = append(answer.Parts, rendered)
		}
	}

	answer.Metadata = updateMetadata(turn)
	if len(answer.Parts) > 0 {
		list = append([]*a2a.Artifact{answer}, list...)
	}

	return list, nil
}

func answerArtifact(turnID string) a2a.ArtifactID { return a2a.ArtifactID(turnID) }

func ownArtifact(turnID string, index int, part normalized.Part, rendered *a2a.Part) *a2a.Artifact {
	id := part.ID
	if id == "" {
		id = turnID + "." + strconv.Itoa(index)
	}
	artifact := &a2a.Artifact{
		ID: a2a.ArtifactID(id), Name: part.Name, Description: part.Description, Parts: a2a.ContentParts{rendered},
	}
	if part.ArtifactType != "" {
		artifact.Metadata = map[string]any{mentionableKey: map[string]any{artifactTypeKey: part.ArtifactType}}
	}
	return artifact
}

// Members of metadata.mentionable: of the message of a failed task, why it failed; of a task, an artifact and the event of a status, why the
// answer ends.
const (
	errorKey = "error"
	stopKey  = "stop"
)

// artifactTypeKey is the member of metadata.mentionable of an artifact that says what it is (message contract, section 3).
const artifactTypeKey = "artifact_type"

// maxSentBytes is the largest file that is put into an answer; above it the peer gets an address of it.
const maxSentBytes = 8 << 20

// of returns the codec for the answer of a turn, whose larger files have addresses.
func (s *tasks) of(turn exchange.TurnRecord) codec {
	made := s.codec
	if s.options.FileURL == nil || turn.Response == nil || turn.ReplyID == "" {
		return made
	}

	reply := exchange.Reply{
		ID: turn.ReplyID, TurnID: turn.ID, Agent: turn.Agent, Message: turn.Message, Channel: turn.Channel, Route: turn.Route, Response: *turn.Response,
	}
	made.address = func(part normalized.Part) string { return s.options.FileURL(reply, part) }
	return made
}

// renderParts writes parts; withBytes puts the content of stored files in, which the echo of a caller's own message
// does not need.
func (c codec) renderParts(ctx context.Context, parts []normalized.Part, withBytes bool) (a2a.ContentParts, error) {
	list := make(a2a.ContentParts, 0, len(parts))
	for _, part := range parts {
		rendered, err := c.renderPart(ctx, part, withBytes)
		if err != nil {
			return nil, err
		}
		if rendered != nil {
			list = append(list, rendered)
		}
	}
	return list, nil
}

// renderPart returns nil for what a peer does not get: tool calls unless it activated their extension, policy parts (the
// status carries them) and kinds of a newer contract.
func (c codec) renderPart(ctx context.Context, part normalized.Part, withBytes bool) (*a2a.Part, error) {
	switch part.Kind {
	case normalized.PartText:
		return &a2a.Part{Content: a2a.Text(part.Content), MediaType: part.MIME, Metadata: cited(nil, part.Citation)}, nil
	case normalized.PartLink:
		return &a2a.Part{
			Content: a2a.URL(part.URL), MediaType: normalized.MIMEHTML, Filename: part.Title, Metadata: cited(described(part.Description), part.Citation),
		}, nil
	case normalized.PartToolCall:
		if event, ok := toolEvent(part); ok && readsToolEvents(ctx) {
			return event, nil
		}
	case normalized.PartFile, normalized.PartArtifact:
		if part.BytesRef != nil {
			return c.renderFile(ctx, part, withBytes)
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

func (c codec) renderFile(ctx context.Context, part normalized.Part, withBytes bool) (*a2a.Part, error) {
	rendered := &a2a.Part{MediaType: part.MIME, Filename: part.Name, Metadata: described(part.Alt)}
	switch ref := part.BytesRef; {
	case ref.Kind == normalized.BytesInline:
		content, err := ref.Bytes()
		if err != nil {
			return nil, fmt.Errorf("read inline bytes: %w", err)
		}
		if to, is := callOf(ctx); is && !to.takes(int64(len(content))) {
			return c.elsewhere(part, rendered), nil
		}
		rendered.Content = contentOf(part, content)
	case ref.URL != "":
		rendered.Content = a2a.URL(ref.URL)
	case !withBytes:
		rendered.Content = a2a.URL(digestURI(ref.Digest))
	case part.Size > maxSentBytes:
		return c.elsewhere(part, rendered), nil
	default:
		content, err := c.readBlob(ctx, ref.Digest)
		if err != nil {
			return nil, err
		}
		if to, is := callOf(ctx); content == nil || is && !to.takes(int64(len(content))) {
			return c.elsewhere(part, rendered), nil
		}
		rendered.Content = contentOf(part, content)
	}

	return rendered, nil
}

// contentOf makes a data part of data and a file of everything else.
func contentOf(part normalized.Part, content []byte) a2a.PartContent {
	if part.IsData() {
		if value, is := exactValue(content); is {
			return a2a.Data{Value: value}
		}
	}
	return a2a.Raw(content)
}

// readBlob returns nil for a file over maxSentBytes.
func (c codec) readBlob(ctx context.Context, digest string) ([]byte, error) {
	reader, err := c.blobs.Open(ctx, digest)
	if err != nil {
		return nil, fmt.Errorf("open file of an answer: %w", err)
	}
	defer func() { _ = reader.Close() }()

	content, err := io.ReadAll(io.LimitReader(reader, maxSentBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read file of an answer: %w", err)
	}
	if len(content) > maxSentBytes {
		return nil, nil
	}
	return content, nil
}

// elsewhere is a file that is too large to be sent: an address where it is read, or that it cannot be.
func (c codec) elsewhere(part normalized.Part, rendered *a2a.Part) *a2a.Part {
	if c.address != nil {
		if address := c.address(part); address != "" {
			rendered.Content = a2a.URL(address)
			return rendered
		}
	}
	return tooLargeToSend(part)
}

func tooLargeToSend(part normalized.Part) *a2a.Part {
	name := part.Name
	if name == "" {
		name = "a file"
	}
	return a2a.NewTextPart(fmt.Sprintf("[%s (%s) is too large to be sent here]", name, part.MIME))
}

// digestURI names stored bytes without sending them (RFC 6920).
func digestURI(digest string) string {
	sum, err := hex.DecodeString(digest)
	if err != nil {
		return "ni:///sha-256;"
	}
	return "ni:///sha-256;" + base64.RawURLEncoding.EncodeToString(sum)
}
