package llm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"inbox/agents"
	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/tool/request"
	"inbox/agents/runtime/value"
	"inbox/internal/filetype"
	"inbox/internal/safehttp"
	"inbox/normalized"
)

// Limits of the files of one request to the model.
const (
	maxTextFile  = 64 << 10
	maxTextFiles = 384 << 10

	maxImages     = 16
	maxImageBytes = 5 << 20
	maxImagesSum  = 16 << 20
)

// imageTypes are what both APIs can read. The bytes decide, not what the sender calls them.
var imageTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// otherNames of these types, and the type of a picture at an address that does not say which.
var otherNames = []string{"image/jpg", "image/pjpeg", "image/x-png", filetype.Picture}

// textTypes are the types outside of text/* that people read.
var textTypes = []string{
	"application/json", "application/xml", "application/yaml", "application/x-yaml", "application/toml", "application/csv", "application/x-csv",
	"application/ndjson", "application/x-ndjson", "application/jsonl", "application/sql", "application/javascript", "application/x-javascript",
	"application/x-sh",
}

// images has the pictures and text files of a message and its history. Transcripts refer to files by key, so that notes and archives have
// no contents of files. Only the request to the model has the bytes.
type images struct {
	byRef map[string]Block
	at    map[string]*placed // place → files of a transcript
	stays int                // the last turn of the history whose files are the same next time, and all before it
	shown []string           // keys of what this turn was shown
}

// placed has the files of one message.
type placed struct {
	blocks  []any
	missing []string // lines about the files that are not shown
	id      string
}

// inlined returns the messages with all of their blocks as one text, the contents of text files included, those of results of tools after
// their result. A line stands for pictures.
func (j *job) inlined(ctx context.Context, messages []envelope.Envelope) []envelope.Envelope {
	whole := make([]envelope.Envelope, 0, len(messages))
	for _, message := range messages {
		if list, several := message.Content.([]any); several {
			message.Type, message.Content = envelope.TypeText, j.pictures.text(list)+picturesLeftOut(pictures(list))
		}
		whole = append(whole, message)

		if files := j.resultFiles(ctx, message); len(files) > 0 {
			text, pictures := "", 0
			for _, block := range files {
				if block.Kind == BlockImage {
					pictures++
					continue
				}
				text += "\n" + block.Text
			}
			whole = append(whole, envelope.UserText(strings.TrimSpace(text)+picturesLeftOut(pictures), nil))
		}
	}
	return whole
}

// pictures counts those in a list of blocks.
func pictures(list []any) (count int) {
	for _, item := range list {
		if value.Assoc(item)["type"] == "image" {
			count++
		}
	}
	return count
}

// picturesLeftOut is the line of a text about pictures that stood there.
func picturesLeftOut(count int) string {
	if count == 0 {
		return ""
	}
	return fmt.Sprintf("\n(Pictures that stood here and are not in this text: %d.)", count)
}

// text joins the texts of a list of blocks.
func (i *images) text(list []any) string {
	var texts []string
	for _, item := range list {
		block := value.Assoc(item)
		text := strings.TrimSpace(value.Text(block["text"]))
		if block["type"] == "file" {
			text = i.byRef[value.Text(block["ref"])].Text
		}
		if text != "" {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "\n")
}

func (i *images) of(place string, index int) *placed {
	if found := i.at[placeOf(place, index)]; found != nil {
		return found
	}
	return &placed{}
}

func placeOf(place string, index int) string { return place + ":" + strconv.Itoa(index) }

// notes returns the lines about files that are not shown.
func (p *placed) notes(marks marker) string {
	if len(p.missing) == 0 {
		return ""
	}
	return "\n" + marks.text("missing", p.id, "", strings.Join(p.missing, "\n"))
}

// loadFiles reads the files for a turn. A file that cannot be read does not fail the turn: a line in the prompt says why it is missing.
// before has the keys of the files that an earlier run of the turn showed; this run shows the same files.
func (a *Agent) loadFiles(ctx context.Context, turn agents.Turn, marks marker, before []string) *images {
	files, request := filesOf(&turn.Message, marks)
	loaded := &images{byRef: map[string]Block{}, at: map[string]*placed{}, stays: choose(files, request, before)}
	left := map[string]int{partText: maxTextFiles, partPicture: maxImagesSum}
	larger := false // than it was assumed to be

	for i := len(files) - 1; i >= 0 && ctx.Err() == nil; i-- { // newest first: if the sum is too large, the oldest are left out
		file := &files[i]
		if file.why != "" {
			continue
		}

		block, size, why := a.load(ctx, file, marks)
		larger = larger || file.fetched() && size > file.size
		if larger && file.kind == partPicture && file.group < request && size+maxImageBytes > left[partPicture] { // the next picture may take its room
			loaded.stays = min(loaded.stays, file.stays)
		}
		switch {
		case why != "":
			file.why = why
		case size > left[file.kind]:
			file.why = noRoom
		default:
			left[file.kind] -= size
			loaded.byRef[file.key] = block
		}
		loaded.shown = append(loaded.shown, file.key)
	}

	for i := range files {
		loaded.place(&files[i])
	}
	return loaded
}

// place adds a file, or the line about it, to the message that it belongs to.
func (i *images) place(file *file) {
	at := i.at[file.at]
	if at == nil {
		at = &placed{id: file.id}
		i.at[file.at] = at
	}

	block, has := i.byRef[file.key]
	switch {
	case !has || file.why != "":
		at.missing = append(at.missing, file.about()+": "+file.why)
	case file.kind == partText:
		at.blocks = append(at.blocks, map[string]any{"type": "file", "ref": file.key, "bytes": len(block.Text)})
	default:
		at.blocks = append(at.blocks, map[string]any{"type": "image", "ref": file.key, "media_type": block.MediaType})
	}
}

// load returns a file as the model reads it and its size, or why it cannot read it.
func (a *Agent) load(ctx context.Context, file *file, marks marker) (block Block, size int, why string) {
	data, err := a.bytes(ctx, file.part.BytesRef)
	switch {
	case errors.Is(err, errLarge):
		return Block{}, 0, tooLarge
	case err != nil:
		return Block{}, 0, notHere
	case file.kind == partPicture:
		mediaType := http.DetectContentType(data)
		if !slices.Contains(imageTypes, mediaType) {
			return Block{}, 0, noPicture
		}
		return Block{Kind: BlockImage, MediaType: mediaType, Data: data}, len(data), ""
	case len(data) > maxTextFile:
		return Block{}, 0, tooLarge
	case !utf8.Valid(data):
		return Block{}, 0, noText8
	}
	return Block{Kind: BlockText, Text: marks.text("file", file.id, " name="+label(file.part.Name)+file.by, string(data))}, len(data), ""
}

func isText(mediaType string) bool {
	return strings.HasPrefix(mediaType, "text/") || slices.Contains(textTypes, mediaType) || strings.HasSuffix(mediaType, "+json") || strings.HasSuffix(mediaType, "+xml")
}

var (
	errNoFile = errors.New("the bytes of the file are not here")
	errLarge  = errors.New("the file is too large")
)

// bytes reads a file from where it is. Addresses of strangers are fetched here and not by the provider: a model server
// in the operator's network must not be sent where strangers want it.
func (a *Agent) bytes(ctx context.Context, ref *normalized.BytesRef) ([]byte, error) {
	switch {
	case ref.Kind == normalized.BytesInline:
		return ref.Bytes() //nolint:wrapcheck // not read by people
	case ref.Kind == normalized.BytesContentAddressed && a.options.Files != nil:
		file, err := a.options.Files.Open(ctx, ref.Digest)
		if err != nil {
			return nil, fmt.Errorf("open file: %w", err)
		}
		defer file.Close()
		return atMost(file)
	case ref.URL != "" && a.options.Client != nil:
		return a.fetch(ctx, ref)
	}
	return nil, errNoFile
}

func (a *Agent) fetch(ctx context.Context, ref *normalized.BytesRef) ([]byte, error) {
	response, err := a.options.Client.Get(ctx, ref.URL, safehttp.GetOptions{Accept: "image/*", MaxBytes: maxImageBytes})
	if err != nil {
		return nil, fmt.Errorf("fetch file: %w", err)
	}
	defer response.Body.Close()

	if response.StatusCode != http.StatusOK {
		return nil, errNoFile
	}

	data, err := atMost(response.Body)
	if err == nil && !ref.Matches(data) {
		return nil, errNoFile
	}
	return data, err
}

func atMost(from io.Reader) ([]byte, error) {
	var data bytes.Buffer
	size, err := io.Copy(&data, io.LimitReader(from, maxImageBytes+1))
	if err == nil && size > maxImageBytes {
		err = errLarge
	}
	if err != nil {
		return nil, fmt.Errorf("read file: %w", err)
	}
	return data.Bytes(), nil
}

// fits reports whether the quota has room for a file beside those that are shown.
func (i *images) fits(kind string, size int) bool {
	sum := amount{1, size}
	for _, block := range i.byRef {
		if (block.Kind == BlockImage) == (kind == partPicture) {
			sum.count, sum.bytes = sum.count+1, sum.bytes+len(block.Data)+len(block.Text)
		}
	}
	return quotas[kind].request.covers(sum)
}

// filesOfResult returns what the server stored with the result of a tool.
func filesOfResult(result *envelope.Envelope) (parts []normalized.Part) {
	files := result.Metadata[request.FilesKey]
	if result.Type != envelope.TypeToolResult || files == nil {
		return nil
	}
	if err := json.Unmarshal([]byte(value.EncodeText(files)), &parts); err != nil {
		return nil // the server wrote them
	}
	return parts
}

// resultFiles returns the files that came with the result of a tool, and a line about each that the model cannot read. Earlier files
// keep their place, so that the prompt begins as it did before.
func (j *job) resultFiles(ctx context.Context, result envelope.Envelope) []Block {
	id := result.ToolCallID()
	if blocks, known := j.resultBlocks[id]; known {
		return blocks
	}
	parts := filesOfResult(&result)
	if len(parts) == 0 {
		return nil
	}

	blocks := []Block{{Kind: BlockText, Text: "(Files of the result of " + quote(result.ToolName()) + ":)"}}
	shown := placed{id: id}
	files := file{id: id}.each(parts)
	for i := range files {
		file := &files[i]
		var block Block
		size := 0
		if file.why == "" {
			block, size, file.why = j.agent.load(ctx, file, j.marks)
		}
		if file.why == "" && !j.pictures.fits(file.kind, size) {
			file.why = noMoreRoom
		}
		if file.why != "" {
			shown.missing = append(shown.missing, file.about()+": "+file.why)
			continue
		}
		j.pictures.byRef[file.key] = block
		blocks = append(blocks, block)
	}

	blocks[0].Text += shown.notes(j.marks)
	if j.resultBlocks == nil {
		j.resultBlocks = map[string][]Block{}
	}
	j.resultBlocks[id] = blocks
	return blocks
}
