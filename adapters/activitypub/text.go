package activitypub

import (
	"embed"

	"inbox/internal/catalog"
)

//go:embed de/*.json
var translations embed.FS

// texts are those of the pages of notes.
var texts = catalog.New(translations)
