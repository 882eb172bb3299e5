package activitypub

import (
	_ "embed" // the translations

	"inbox/internal/catalog"
)

//go:embed de.json
var german []byte

// texts are those of the pages of notes.
var texts = catalog.New(map[string][]byte{"de": german})
