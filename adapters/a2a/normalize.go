package a2a

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/google/uuid"

	"inbox/agents/runtime/value"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/filetype"
	"inbox/internal/markup"
	"inbox/normalized"
)

// Limits of the parts of a message that the contract does not know; the others are checked by normalized.Validate.
const (
	maxReferences    = 16
	maxMetadataBytes = 64 << 10
	maxContextBytes  = 2 << 10
)

// checkSend refuses what no agent should see. Every problem names the member.
func checkSend(req *a2a.SendMessageRequest) error {
	message := req.Message
	switch {
	case message == nil:
		return inField("message", "is needed")
	case message.ID == "":
		return inField("message.messageId", "is needed")
	case message.Role != a2a.MessageRoleUser:
		return inField("message.role", "must be ROLE_USER")
	case len(message.Parts) == 0:
		return inField("message.parts", "must have at least one part")
	case len(message.ReferenceTasks) > maxReferences:
		return inField("message.referenceTaskIds", "has more than "+strconv.Itoa(maxReferences)+" ids")
	}

	if len(message.ContextID) > maxContextBytes {
		return inField("message.contextId", "is over "+strconv.Itoa(maxContextBytes)+" bytes")
	}
	if !isName(message.ContextID) {
		return inField("message.contextId", "must be UTF-8 without control characters")
	}
	if err := checkMetadata("message.metadata", message.Metadata); err != nil {
		return err
	}

	for i, part := range message.Parts {
		if part == nil {
			continue // it is refused where the parts are read
		}
		if err := checkMetadata("message.parts["+strconv.Itoa(i)+"].metadata", part.Metadata); err != nil {
			return err
		}
	}

	return checkMetadata("metadata", req.Metadata)
}

// isName reports whether a text can be the name of a context.
func isName(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}

func checkMetadata(field string, metadata map[string]any) error {
	if len(metadata) == 0 {
		return nil
	}
	if encoded, err := json.Marshal(metadata); err != nil || len(encoded) > maxMetadataBytes {
		return inField(field, "is over "+strconv.Itoa(maxMetadataBytes>>10)+" KiB")
	}
	return nil
}

// destination is where a message goes: its task, its thread and what it follows.
type destination struct {
	reference string
	thread    string // of a task that the message continues
	inReplyTo string
	continues string // id of the parked turn that the message continues
	fresh     bool   // the conversation was made for the message
	route     route
}

// newDestination is a new task in the context that the message names, or in a new one. Who speaks in it, and so which conversation it
// is, is known when the evidence has been checked; see handler.place.
func newDestination(owned owner, message *a2a.Message) (destination, error) {
	contextID := message.ContextID
	fresh := contextID == ""
	switch {
	case fresh:
		contextID = owned.names().MintName()
	case !owned.names().MayName(contextID):
		return destination{}, newProblem(a2a.ErrTaskNotFound, "context not found")
	}

	return destination{reference: newID(), fresh: fresh, route: route{Context: contextID, Number: 1, Digest: digestOf(message)}}, nil
}

// nextDestination is the next turn of an interrupted task.
func nextDestination(t *task, message *a2a.Message) destination {
	last := t.last()
	next := destination{
		reference: last.Reference, thread: last.ThreadID, inReplyTo: answerID(*last),
		route: route{Context: t.contextID, Number: len(t.turns) + 1, Digest: digestOf(message)},
	}
	if last.State == exchange.StateWaiting {
		next.continues = last.ID
	}
	return next
}

// digestOf is the same for a repeat of a message and different for another one.
func digestOf(message *a2a.Message) string {
	hash := sha256.New()
	if err := json.NewEncoder(hash).Encode(withoutLargeFiles(message, hash)); err != nil {
		return "" // cannot be: it was decoded from JSON
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// maxEncodedFile is the largest file that is encoded to compare its message; larger ones are written to the hash as they are.
const maxEncodedFile = 8 << 20

// withoutLargeFiles writes the larger files of a message to out and returns the message without them.
func withoutLargeFiles(message *a2a.Message, out io.Writer) *a2a.Message {
	kept := *message
	kept.Parts = slices.Clone(message.Parts)
	for i, part := range kept.Parts {
		if part == nil {
			continue
		}
		if content, is := part.Content.(a2a.Raw); is && len(content) > maxEncodedFile {
			_, _ = out.Write(content) // a hash takes all
			bare := *part
			bare.Content = a2a.Raw(nil)
			kept.Parts[i] = &bare
		}
	}
	return &kept
}

// owner is the pair to which every task and every context belongs. A caller owns the tasks of the people whose messages it brings:
// it polls for them.
type owner struct {
	agent  string
	caller string // normalized.Sender.Carrier
}

// names are those of the contexts that we make up for the owner.
func (o owner) names() exchange.ConversationOwner {
	return exchange.ConversationOwner{Kind: "a2a context", Agent: o.agent, Principal: o.caller}
}

// context names the conversation of a speaker in a context. Each of the people whose messages a caller brings has one.
func (o owner) context(contextID, speaker string) exchange.ConversationName {
	name := exchange.ConversationName{Channel: ChannelName, Agent: o.agent, Owner: speaker, Name: contextID}
	if speaker != o.caller {
		name.Carrier = o.caller
	}
	return name
}

func newID() string { return uuid.Must(uuid.NewV7()).String() }

// inbound makes the normalized message of a request, and notes in the route what the message does not keep. The proofs are checked last, because that may need the network and
// uses them up.
func (a *Adapter) inbound(ctx context.Context, c *call, message *a2a.Message, where *destination, offered *offer) (exchange.Inbound, error) {
	chain := agentChain(message.Metadata)
	c.exact(message) // last: what is read above is read as the SDK reads it
	files := exchange.Contents{}
	parts, err := normalizeParts(ctx, message.Parts, files)
	if err != nil {
		return exchange.Inbound{}, err
	}
	parts = withPolicy(parts, message)

	parts, at := cleanParts(parts)
	if where.route.Words, err = sentOf(message, at, parts); err != nil {
		return exchange.Inbound{}, err
	}

	where.route.Awaited = c.awaited
	kept, err := json.Marshal(where.route)
	if err != nil {
		return exchange.Inbound{}, err
	}

	in := exchange.Inbound{
		Message: normalized.Message{
			ID: message.ID, ThreadID: where.thread, InReplyTo: where.inReplyTo,
			Sender: c.sender, Recipient: c.agent.Address, Parts: parts,
			RecipientCapabilities: capabilities(chain, offered.modes),
			ReceivedVia:           normalized.ViaA2A, ReceivedAt: identity.Now(),
			Raw: normalized.Raw{MediaType: mimeJSON},
		},
		NewThread: where.fresh, NewReference: where.route.Number == 1, Trace: c.trace,
		Original: redact(c.original), Files: files, Channel: ChannelName, Route: kept, Reference: where.reference, Conversation: where.route.Context, Continues: where.continues,
	}

	in.Message.Clean()
	if len(in.Message.Parts) == 0 {
		return in, inField("message.parts", "has no content: text of only white space counts as none")
	}

	a.apply(ctx, &in, offered, c)
	return in, nil
}

// defaultMaxHops is the ceiling of a chain whose peer names none.
const defaultMaxHops = 4

// agentChain reads metadata.mentionable.agent_chain (message contract, sections 6 and 7); absent means that no agent
// stands behind the sender. A chain that is no chain becomes one that is used up, which the engine refuses and records:
// an agent that counts wrongly may count for ever.
func agentChain(metadata map[string]any) *normalized.AgentChain {
	mentionable, _ := metadata[mentionableKey].(map[string]any)
	claimed, present := mentionable["agent_chain"]
	if !present || claimed == nil {
		return nil
	}

	encoded, err := json.Marshal(claimed)
	chain := normalized.AgentChain{MaxHops: defaultMaxHops}
	if err != nil || json.Unmarshal(encoded, &chain) != nil {
		return &normalized.AgentChain{MaxHops: defaultMaxHops}
	}

	chain.IsFinal = chain.Hop == chain.MaxHops
	return &chain
}

// withPolicy takes the data part that metadata.mentionable.policy repeats for what it is: a policy part (message contract,
// section 8). It is data like any other part: no demand begins or ends by it. One that breaks the rules of a policy part stays
// what it looks like.
func withPolicy(parts []normalized.Part, message *a2a.Message) []normalized.Part {
	policy := policyIn(message.Metadata)
	if policy == nil {
		return parts
	}
	if *policy = policy.Confine(nil); policy.Check() != nil {
		return parts
	}

	mentionable, _ := message.Metadata[mentionableKey].(map[string]any)
	want := value.Plain(mentionable["policy"])
	for i, part := range message.Parts {
		if data, is := part.Content.(a2a.Data); is && value.Equal(value.Plain(data.Value), want) {
			parts[i] = normalized.Part{Kind: normalized.PartPolicy, Policy: policy}
			break
		}
	}
	return parts
}

const (
	mimeJSON  = "application/json"
	mimeBytes = "application/octet-stream"
)

// codec turns our parts into those of the protocol. Files that are too large for a message are in the blob store.
type codec struct {
	blobs   exchange.Blobs
	address func(part normalized.Part) string // where a file that is too large to be sent is read; nil = nowhere
}

// normalizeParts turns the parts of a message into ours. Files that are too large for a message go to the keeper.
func normalizeParts(ctx context.Context, parts a2a.ContentParts, keeper normalized.Keeper) ([]normalized.Part, error) {
	list := make([]normalized.Part, 0, len(parts))
	for i, part := range parts {
		field := fmt.Sprintf("message.parts[%d]", i)
		if part == nil {
			return nil, inField(field, "must be an object")
		}
		converted, err := normalizePart(ctx, part, field, keeper)
		if err != nil {
			return nil, err
		}
		list = append(list, converted)
	}
	return list, nil
}

func normalizePart(ctx context.Context, part *a2a.Part, field string, keeper normalized.Keeper) (normalized.Part, error) {
	switch content := part.Content.(type) {
	case a2a.Text:
		read := normalizeText(string(content), part.MediaType)
		read.Citation = citationIn(part.Metadata)
		return read, nil
	case a2a.Raw:
		file := normalized.Part{Kind: normalized.PartFile, MIME: filetype.Of(part.MediaType, part.Filename, content), Name: part.Filename}
		return file.Carrying(ctx, content, keeper)
	case a2a.URL:
		read := normalizeURL(string(content), part)
		if read.Kind == normalized.PartLink {
			read.Citation = citationIn(part.Metadata)
		}
		return read, nil
	case a2a.Data:
		encoded, err := json.Marshal(content.Value)
		if err != nil {
			return normalized.Part{}, inField(field, "is not JSON")
		}
		data := normalized.Data()
		data.Name = part.Filename
		return data.Carrying(ctx, encoded, keeper)
	}
	return normalized.Part{}, inField(field, "must have exactly one of text, raw, url and data")
}

func normalizeText(text, mediaType string) normalized.Part {
	switch kind, _ := normalized.TextMIME(mediaType); kind {
	case normalized.MIMEMarkdown:
		return normalized.Markdown(text)
	case normalized.MIMEHTML: // the original stays in raw; agents and the console see no foreign markup
		return normalized.Markdown(markdownOf(text))
	}
	return normalized.Text(text)
}

// markdownOf converts the HTML of a part, of which at most 512 KiB are read.
func markdownOf(text string) string {
	document, cut := markup.Parse(text, markup.Limits{})
	markdown, full := markup.Text(document, markup.Markdown, 0)
	if cut || full {
		markdown += "\n\n[The text was cut, because its HTML is very long; the original message is kept.]"
	}
	return markdown
}

// normalizeURL makes a link of a page and a file of everything else; neither is fetched.
func normalizeURL(address string, part *a2a.Part) normalized.Part {
	if text, _ := normalized.TextMIME(part.MediaType); text == normalized.MIMEHTML {
		return normalized.Part{Kind: normalized.PartLink, URL: address, Title: part.Filename}
	}
	return normalized.Part{
		Kind: normalized.PartFile, MIME: filetype.Of(part.MediaType, cmp.Or(part.Filename, pathOf(address)), nil), Name: part.Filename, BytesRef: normalized.At(address),
	}
}

// pathOf returns the path of an address, which may end with the name of a file.
func pathOf(address string) string {
	read, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return read.Path
}

func baseType(mediaType string) string {
	base, _, err := mime.ParseMediaType(mediaType)
	if err != nil {
		return ""
	}
	return base
}

// cleanParts leaves out what is no content and tells for each part its place among those that stay, counted from 1; zero = none.
func cleanParts(parts []normalized.Part) (kept []normalized.Part, at []int) {
	at = make([]int, len(parts))
	for i, part := range parts {
		one := normalized.Message{Parts: []normalized.Part{part}}
		if one.Clean(); len(one.Parts) == 1 {
			kept = append(kept, one.Parts[0])
			at[i] = len(kept)
		}
	}
	return kept, at
}

// capabilities are what the way back can carry: A2A cannot reach a third party.
func capabilities(chain *normalized.AgentChain, modes []string) normalized.RecipientCapabilities {
	threads := true
	return normalized.RecipientCapabilities{
		MentionRelay: normalized.MentionRelay{Kind: normalized.RelayNone}, AgentChain: chain,
		TextMIMEs: textMIMEs(modes), Threads: &threads,
	}
}

// textMIMEs are the kinds of text that a client accepts (A2A 1.0, section 3.2.2: acceptedOutputModes), for the agent to mind.
// A client that names none of them, or something that is no media type, gets what all others get.
func textMIMEs(modes []string) []string {
	all := []string{normalized.MIMEMarkdown, normalized.MIMEPlain}
	var accepted []string
	for _, mode := range modes {
		switch base := baseType(mode); base {
		case "*/*", "text/*":
			return all
		case normalized.MIMEMarkdown, normalized.MIMEPlain, normalized.MIMEHTML:
			if !slices.Contains(accepted, base) {
				accepted = append(accepted, base)
			}
		}
	}

	if len(accepted) == 0 {
		return all
	}

	return accepted
}
