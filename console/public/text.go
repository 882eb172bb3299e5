package public

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

func count(ctx context.Context, n int, one, several string, pairs ...any) string {
	return texts.Count(ctx, n, one, several, pairs...)
}
