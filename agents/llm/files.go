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
	"inbox/internal/safehttp"
	"inbox/normalized"
)

// Limits of the text files of one request.
const (
	maxTextFile  = 64 << 10
	maxTextFiles = 256 << 10
)

// loadTexts returns the text files of the message that is answered, marked as what someone sent. A file that cannot be
// had or is no text is only named. Files at addresses are not fetched.
func (a *Agent) loadTexts(ctx context.Context, turn agents.Turn, marks marker) string {
	var texts strings.Builder
	for i := range turn.Message.Parts {
		part := &turn.Message.Parts[i]
		if !isText(part) || part.Size > maxTextFile || part.BytesRef.Kind == normalized.BytesURL {
			continue
		}
		data, err := a.bytes(ctx, part.BytesRef)
		if err != nil || len(data) > maxTextFile || texts.Len()+len(data) > maxTextFiles || !utf8.Valid(data) {
			continue
		}
		texts.WriteString("\n" + marks.text("file", turn.Message.ID, " name="+label(part.Name), string(data)))
	}
	return texts.String()
}

// textTypes are the types outside of text/* that people read.
var textTypes = []string{"application/json", "application/xml", "application/yaml", "application/toml"}

func isText(part *normalized.Part) bool {
	if part.Kind != normalized.PartFile && part.Kind != normalized.PartArtifact || part.BytesRef == nil {
		return false
	}
	mediaType, _, err := mime.ParseMediaType(part.MIME)
	return err == nil && (strings.HasPrefix(mediaType, "text/") || slices.Contains(textTypes, mediaType))
}

var errNoFile = errors.New("the bytes of the file are not here")

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
		err = errNoFile
	}
	if err != nil {
		return nil, fmt.Errorf("read file: %w", err)
	}
	return data.Bytes(), nil
}

// Limits of the images of one request.
const (
	maxImages     = 16
	maxImageBytes = 5 << 20
	maxImagesSum  = 16 << 20
)

// imageTypes are what both APIs can read. The bytes decide, not what the sender calls them.
var imageTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// images are the pictures of a message and its history. Transcripts name them by their place, so that notes stay small;
// the request to the model gets the bytes.
type images struct {
	byRef map[string]Block
	at    map[string][]any // place → blocks of a transcript
}

// loadImages reads the pictures of a turn, the newest first, until the limits are reached. A picture that cannot be had
// is no failure of the turn: its line in the text names it.
func (a *Agent) loadImages(ctx context.Context, turn agents.Turn) *images {
	loaded := &images{byRef: map[string]Block{}, at: map[string][]any{}}
	left := maxImagesSum
	take := func(place string, parts []normalized.Part) {
		for i := range parts {
			if len(loaded.byRef) >= maxImages || ctx.Err() != nil {
				return
			}

			picture, err := a.image(ctx, &parts[i])
			if err != nil || len(picture.Data) > left {
				continue
			}

			left -= len(picture.Data)
			ref := place + ":" + strconv.Itoa(i)
			loaded.byRef[ref] = picture
			loaded.at[place] = append(loaded.at[place], map[string]any{"type": "image", "ref": ref, "media_type": picture.MediaType})
		}
	}

	take("request:0", turn.Message.Parts)
	for i, earlier := range slices.Backward(turn.Message.History) {
		if earlier.Role == normalized.RoleUser {
			take("history:"+strconv.Itoa(i), earlier.Parts)
		}
	}

	return loaded
}

func (i *images) of(place string, index int) []any { return i.at[place+":"+strconv.Itoa(index)] }

var errNoImage = errors.New("no image that a model can read")

func (a *Agent) image(ctx context.Context, part *normalized.Part) (Block, error) {
	if part.Kind != normalized.PartFile && part.Kind != normalized.PartArtifact || part.BytesRef == nil {
		return Block{}, errNoImage
	}
	if part.MIME != "" && !slices.Contains(imageTypes, part.MIME) || part.Size > maxImageBytes {
		return Block{}, errNoImage
	}

	data, err := a.bytes(ctx, part.BytesRef)
	if err != nil {
		return Block{}, err
	}

	mediaType := http.DetectContentType(data)
	if !slices.Contains(imageTypes, mediaType) {
		return Block{}, errNoImage
	}

	return Block{Kind: BlockImage, MediaType: mediaType, Data: data}, nil
}
