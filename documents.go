package inbox

import (
	"embed"

	"inbox/console/handbook"
)

// documentFiles are the documents that each server shows (see [handbook.Texts]). They are embedded here because a package embeds only files
// of its own directory and of those below.
//
//go:embed docs/*.md docs/agents/*.md docs/guides/*.md docs/ops/*.md docs/reference/*.md
//go:embed docs/contract/deviations.md docs/contract/message.md docs/contract/runtime.md
//go:embed FEDERATION.md SECURITY.md
var documentFiles embed.FS

// documents are rendered once for all servers of a process.
var documents = handbook.NewDocuments(documentFiles)
