package llm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"inbox/agents"
	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/value"
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

// textTypes are the types outside of text/* that people read.
var textTypes = []string{"application/json", "application/xml", "application/yaml", "application/toml"}

// images are the files of a message and its history: pictures, and the contents of text files. Transcripts name them by their keys, so that
// notes and archives hold no contents; the request to the model gets the bytes.
type images struct {
	byRef map[string]Block
	at    map[string]*placed // place → files of a transcript
	stays int                // the last turn of the history whose files are the same next time, and all before it
	shown []string           // keys of what this turn was shown
}

// placed are the files of one message.
type placed struct {
	blocks  []any
	missing []string // lines about the files that are not shown
	id      string
}

// inlined returns messages as one text each, with the contents of their text files.
func (i *images) inlined(messages []envelope.Envelope) []envelope.Envelope {
	messages = slices.Clone(messages)
	for at := range messages {
		if list, several := messages[at].Content.([]any); several {
			messages[at].Type, messages[at].Content = envelope.TypeText, i.text(list)
		}
	}
	return messages
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

// notes says which files are not shown, and why.
func (p *placed) notes(marks marker) string {
	if len(p.missing) == 0 {
		return ""
	}
	return "\n" + marks.text("missing", p.id, "", strings.Join(p.missing, "\n"))
}

// loadFiles reads the files that a turn is shown. One that cannot be had is no failure of the turn: a line in the text names it. before are
// the keys of what an earlier run of the turn was shown; that run chose, and this one shows the same.
func (a *Agent) loadFiles(ctx context.Context, turn agents.Turn, marks marker, before []string) *images {
	files, request := filesOf(&turn.Message, marks)
	loaded := &images{byRef: map[string]Block{}, at: map[string]*placed{}, stays: choose(files, request, before)}
	left := map[string]int{partText: maxTextFiles, partPicture: maxImagesSum}

	for i := len(files) - 1; i >= 0 && ctx.Err() == nil; i-- { // the newest has its room before the others
		file := &files[i]
		if file.why != "" {
			continue
		}

		block, size, why := a.load(ctx, file, marks)
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

// place puts a file, or a line about it, beside the message that it came with.
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

func isText(part *normalized.Part) bool {
	mediaType, _, err := mime.ParseMediaType(part.MIME)
	return err == nil && (strings.HasPrefix(mediaType, "text/") || slices.Contains(textTypes, mediaType))
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
