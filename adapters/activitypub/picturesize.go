package activitypub

import (
	"context"
	"image"
	_ "image/gif"  // its header
	_ "image/jpeg" // its header
	_ "image/png"  // its header
	"io"
	"time"

	"inbox/adapters/activitypub/notetext"
	"inbox/normalized"
)

const (
	pictureLife     = time.Hour
	maxPictureBytes = 1 << 20 // until the dimensions are known: a camera writes much before them
	maxPictureSide  = 1 << 16
)

// pictureSize gives width and height of a picture that we keep, so that other servers can leave room for it; 0 where its
// header does not say so.
func (m *mediaFiles) pictureSize(part normalized.Part) (width, height int) {
	digest := digestOfPart(part)
	if notetext.AttachmentType(part.MIME) != "Image" || digest == "" {
		return 0, 0
	}
	if known, found := m.pictures.get(digest, m.now()); found {
		return known[0], known[1]
	}
	ctx, cancel := context.WithTimeout(context.Background(), mediaWait)
	defer cancel()
	content, err := m.open(ctx, part)
	if err != nil {
		return 0, 0 // another time
	}
	defer func() { _ = content.Close() }() // it was only read
	shape, _, err := image.DecodeConfig(io.LimitReader(content, maxPictureBytes))
	if err != nil || shape.Width <= 0 || shape.Height <= 0 || shape.Width > maxPictureSide || shape.Height > maxPictureSide {
		shape = image.Config{}
	}
	m.pictures.put(digest, [2]int{shape.Width, shape.Height}, m.now().Add(pictureLife))
	return shape.Width, shape.Height
}
