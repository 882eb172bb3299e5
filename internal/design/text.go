package design

import (
	"context"
	_ "embed" // the translations

	"inbox/internal/catalog"
)

//go:embed de.json
var german []byte

var texts = catalog.New(map[string][]byte{"de": german})

func text(ctx context.Context, english string, pairs ...any) string {
	return texts.Text(ctx, english, pairs...)
}
