package chat

import (
	_ "embed" // the translations

	"inbox/internal/catalog"
)

//go:embed de.json
var german []byte

// texts are those of the pages; the script has its own in web/de.json.
var texts = catalog.New(map[string][]byte{"de": german})
