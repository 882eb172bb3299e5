package chat

import (
	"embed"

	"inbox/internal/catalog"
)

//go:embed de/*.json
var translations embed.FS

// texts are those of the pages; the script has its own in web/de.json.
var texts = catalog.New(translations)
