package console

import (
	"context"
	"embed"

	"inbox/internal/catalog"
)

//go:embed de/*.json
var translations embed.FS

// texts are those of the pages of demands.
var texts = catalog.New(translations)

func text(ctx context.Context, english string, pairs ...any) string {
	return texts.Text(ctx, english, pairs...)
}

func language(ctx context.Context) string { return catalog.Language(ctx) }
