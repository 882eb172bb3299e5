package chat

import (
	"cmp"
	"crypto/sha256"
	"slices"
	"strings"
	"sync"

	"github.com/microcosm-cc/bluemonday"

	"inbox/adapters/chat/contract"
	"inbox/exchange"
	"inbox/internal/markup"
	"inbox/normalized"
)

// renderer writes what an agent said: as text, as HTML for pages, with the files beside it.
type renderer struct {
	*site
	tools      *clientTools
	renderings renderings
}

// Sentences for states in which the agent itself said nothing.
const (
	sentenceFailed  = "The agent could not answer this message."
	sentenceRefused = "The agent does not take this message."
	sentenceDenied  = "This message gets no answer."
	sentenceHeld    = "The message waits until the operator of this server lets it pass."
	sentenceWaiting = "The message waits for a decision that is made outside this conversation."
	sentencePerson  = "A person answers this message. The answer comes in this conversation."
	sentenceTool    = "The agent waits for the result of a tool that is executed at your side."
	sentenceWorking = "The agent is still working. Send the same request again, with the same id, to get its answer."
)

// output is the chat output of a turn (agent runtime contract, section 6.1).
func (r *renderer) output(found run) contract.Output {
	answer := r.answer(found)
	return contract.Output{SessionID: answer.Session, RunID: answer.RunID, Reply: r.linkedReply(found.turn), Completed: answer.Completed}
}

func (r *renderer) answer(found run) ChatAnswer {
	status, reply := statusOf(found.turn), r.reply(found.turn)
	return ChatAnswer{
		Session: found.route.Session, SessionID: found.route.Session, RunID: found.route.Run, Reply: reply,
		Completed: status == statusCompleted, Status: status, ToolCalls: found.calls, Tools: toolsOf(found.turn), Citations: citationsOf(found.turn),
		Messages: messagesOf(reply), Metadata: ChatMetadata{runMetadataOf(found.turn)}, Error: failureOf(found.turn), Stop: stopOf(found.turn),
	}
}

// shown is an answer with what pages need to show it.
func (r *renderer) shown(found run) ChatAnswer {
	answer := r.answer(found)
	answer.HTML, answer.Files = r.htmlOf(found.turn), r.filesOf(found.turn)
	if !exchange.Terminal(found.turn.State) {
		answer.EventID = eventID(found.turn.ID, 0)
	}
	return answer
}

// Statuses of run control (agent runtime contract, section 6.6).
const (
	statusCompleted = "completed"
	statusFailed    = "failed"
	statusCancelled = "cancelled"
	statusApproval  = "approval_required"
	statusInput     = "input_required"
	statusTool      = "runtime_tool_pending"
	statusRunning   = "running"
	statusQueued    = "queued"
)

func statusOf(turn exchange.TurnRecord) string {
	switch turn.State {
	case exchange.StateAccepted:
		return statusQueued
	case exchange.StateRunning:
		return statusRunning
	case exchange.StateSilent:
		return statusCompleted
	case exchange.StateCancelled:
		return statusCancelled
	case exchange.StateHeld:
		return statusApproval
	case exchange.StateFailed, exchange.StateRefused:
		return statusFailed
	case exchange.StateWaiting:
		return waitingStatus(turn)
	}
	return answeredStatus(turn.Response)
}

func waitingStatus(turn exchange.TurnRecord) string {
	switch {
	case strings.HasPrefix(turn.Reason, exchange.WaitingTool):
		return statusTool
	case exchange.GoesOnByItself(turn):
		return statusRunning
	case strings.HasPrefix(turn.Reason, "payment"), strings.HasPrefix(turn.Reason, "input"):
		return statusInput
	}
	return statusApproval
}

// answeredStatus never takes a demand or a refusal for success (message contract, section 8).
func answeredStatus(response *normalized.Response) string {
	switch {
	case response == nil:
		return statusCompleted
	case response.Stopped() != "":
		return response.Stopped()
	case response.Status == normalized.StatusInputRequired:
		return statusInput
	case response.Status == normalized.StatusFailed:
		return statusFailed
	case response.Policy() != nil:
		return statusApproval
	}
	return statusCompleted
}

// reply is what the agent says in words, Markdown as it wrote it; a sentence of ours where it says nothing and the asker
// has to know why.
func (r *renderer) reply(turn exchange.TurnRecord) string {
	turn = ended(turn)
	if turn.Response != nil {
		if text := markup.PlainText(r.presented(turn.Response.Parts)); text != "" {
			return text
		}
	}

	switch turn.State {
	case exchange.StateFailed:
		return sentenceFailed
	case exchange.StateRefused:
		if strings.HasPrefix(turn.Reason, waitedForApproval) {
			return sentenceDenied
		}
		return sentenceRefused
	case exchange.StateHeld:
		return sentenceHeld
	case exchange.StateWaiting:
		if r.tools.askerRuns(turn) {
			return sentenceTool
		}
		if turn.Reason == exchange.WaitingOperator {
			return sentencePerson
		}
		return sentenceWaiting
	}

	return ""
}

// waitedForApproval begins the reason of a turn that waits for an approval, or that ended without it.
const waitedForApproval = "approval "

// ended leaves out of a turn that is over what its asker was told while it waited: what that promises does not come any more.
func ended(turn exchange.TurnRecord) exchange.TurnRecord {
	over := exchange.Terminal(turn.State) && turn.State != exchange.StateAnswered
	if over && turn.Response != nil && turn.Response.Status == normalized.StatusInputRequired {
		turn.Response = nil
	}
	return turn
}

// presented puts the asker's secret into the address of a demand.
func (r *renderer) presented(parts []normalized.Part) []normalized.Part {
	at := slices.IndexFunc(parts, func(part normalized.Part) bool { return part.Kind == normalized.PartPolicy && part.Policy != nil })
	if at < 0 {
		return parts
	}
	parts = slices.Clone(parts)
	shown := r.options.Present(*parts[at].Policy)
	parts[at].Policy = &shown
	return parts
}

// permitted is what may stand in an answer on a page: structure of text and links that say nothing about the page. It
// starts from nothing.
var permitted = func() *bluemonday.Policy {
	p := bluemonday.NewPolicy()
	p.AllowElements("p", "br", "hr", "strong", "b", "em", "i", "del", "s", "code", "pre", "blockquote", "h3", "h4", "h5", "h6",
		"ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td")
	p.AllowAttrs("start").Matching(bluemonday.Integer).OnElements("ol")
	p.AllowAttrs("href").OnElements("a")
	p.AllowURLSchemes("http", "https", "mailto")
	p.RequireParseableURLs(true)
	p.AllowRelativeURLs(false)
	p.RequireNoFollowOnLinks(true)
	p.RequireNoReferrerOnLinks(true)
	p.AddTargetBlankToFullyQualifiedLinks(true) // with rel=noopener
	return p
}()

// page is that of a conversation, which has two levels of headings itself.
var page = markup.Page{Level: 2, Sanitize: permitted.Sanitize}

// htmlOf is the answer of a turn as HTML, without its files, which stand beside it.
func (r *renderer) htmlOf(turn exchange.TurnRecord) string {
	turn = ended(turn)
	if turn.Response == nil {
		return r.render(normalized.Text(r.reply(turn)))
	}

	var content strings.Builder
	said, citations := normalized.Cited(r.presented(turn.Response.Parts))
	for _, part := range said {
		if part.Kind != normalized.PartFile && part.Kind != normalized.PartArtifact {
			content.WriteString(r.render(shownPart(part)))
		}
	}
	if len(citations) > 0 {
		content.WriteString(r.render(normalized.Markdown(normalized.MarkdownSources(citations))))
	}

	if content.Len() > 0 {
		return content.String()
	}
	if markup.PlainText(turn.Response.Parts) != "" {
		return "" // files alone
	}

	return r.render(normalized.Text(r.reply(turn)))
}

// shownPart is a part as a text: a demand keeps its address as it is.
func shownPart(part normalized.Part) normalized.Part {
	switch part.Kind {
	case normalized.PartText:
		return part
	case normalized.PartLink:
		return normalized.Markdown(markup.MarkdownText([]normalized.Part{part}))
	}
	return normalized.Text(markup.PlainText([]normalized.Part{part}))
}

// render writes a text as HTML for a page. It keeps the result, because clients read a session many times and its answers do not change.
func (r *renderer) render(part normalized.Part) string {
	if part.Content == "" {
		return ""
	}

	key := sha256.Sum256([]byte(part.MIME + "\n" + part.Content))
	if content, known := r.renderings.get(key); known {
		return content
	}

	content := markup.From(part.MIME, part.Content).HTML(page)
	r.renderings.put(key, content)
	return content
}

// maxRenderings bounds the HTML that is kept, in bytes; a rendering counts a little more than its length.
const (
	maxRenderings    = 16 << 20
	renderingAddends = 200
)

// renderings keeps HTML by the digest of its source; the oldest goes first.
type renderings struct {
	mutex sync.Mutex
	kept  map[[sha256.Size]byte]string
	order [][sha256.Size]byte
	bytes int
}

func (r *renderings) get(key [sha256.Size]byte) (string, bool) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	content, known := r.kept[key]
	return content, known
}

func (r *renderings) put(key [sha256.Size]byte, content string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()

	if _, known := r.kept[key]; known || len(content) > maxRenderings/4 {
		return
	}

	if r.kept == nil {
		r.kept = map[[sha256.Size]byte]string{}
	}

	r.kept[key], r.order = content, append(r.order, key)
	for r.bytes += len(content) + renderingAddends; r.bytes > maxRenderings; r.order = r.order[1:] {
		r.bytes -= len(r.kept[r.order[0]]) + renderingAddends
		delete(r.kept, r.order[0])
	}
}

// ChatFile is a file of a message.
type ChatFile struct {
	Name string `json:"name"`
	MIME string `json:"mime"`
	Size int64  `json:"size,omitempty"` // bytes
	URL  string `json:"url,omitempty"`  // anyone who has it can read the file; empty for those of the asker

	ArtifactType string `json:"artifact_type,omitempty"` // what a result is, as its agent says
	ID           string `json:"id,omitempty"`
	Description  string `json:"description,omitempty"`
}

// filesOf are the files of an answer, with their addresses.
func (r *renderer) filesOf(turn exchange.TurnRecord) []ChatFile {
	if turn.Response == nil || turn.ReplyID == "" {
		return nil
	}

	return filesIn(turn.Response.Parts, r.addressIn(turn))
}

// addressIn returns where files of the answer of a turn are read.
func (r *renderer) addressIn(turn exchange.TurnRecord) func(normalized.Part) string {
	reply := exchange.Reply{
		ID: turn.ReplyID, TurnID: turn.ID, Agent: turn.Agent, Message: turn.Message, Route: turn.Route, Response: *turn.Response,
	}
	return func(part normalized.Part) string {
		if part.BytesRef != nil && part.BytesRef.Kind == normalized.BytesURL {
			return part.BytesRef.URL
		}
		return r.options.FileURL(reply, part)
	}
}

// linkedReply is the reply with addresses of its files, for clients that get nothing but a text.
func (r *renderer) linkedReply(turn exchange.TurnRecord) string {
	if turn.Response == nil || turn.ReplyID == "" {
		return r.reply(turn)
	}

	response, address := *turn.Response, r.addressIn(turn)
	response.Parts = slices.Clone(response.Parts)
	for i, part := range response.Parts {
		if part.Kind != normalized.PartFile && part.Kind != normalized.PartArtifact || part.BytesRef == nil {
			continue
		}
		if at := address(part); at != "" {
			response.Parts[i] = normalized.Part{Kind: normalized.PartLink, URL: at, Title: cmp.Or(part.Name, "file"), Description: part.About()}
		}
	}

	turn.Response = &response
	return r.reply(turn)
}

// sentFiles are the files of a question: its sender has them.
func sentFiles(turn exchange.TurnRecord) []ChatFile {
	return filesIn(turn.Message.Parts, func(normalized.Part) string { return "" })
}

func filesIn(parts []normalized.Part, address func(normalized.Part) string) (list []ChatFile) {
	for _, part := range parts {
		if part.Kind != normalized.PartFile && part.Kind != normalized.PartArtifact || part.BytesRef == nil {
			continue
		}
		name := part.Name
		if name == "" {
			name = "file"
		}
		list = append(list, ChatFile{
			Name: name, MIME: part.MIME, Size: part.Size, URL: address(part), ArtifactType: part.ArtifactType, ID: part.ID, Description: part.About(),
		})
	}
	return list
}
