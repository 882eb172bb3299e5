package llm

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"inbox/agents"
	"inbox/normalized"
)

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
