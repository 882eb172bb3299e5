package design

import (
	"context"
	"embed"

	"inbox/internal/catalog"
)

//go:embed de/*.json
var translations embed.FS

var texts = catalog.New(translations)

func text(ctx context.Context, english string) string {
	return texts.Text(ctx, english)
}
