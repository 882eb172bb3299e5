package public

import (
	"context"
	"embed"

	"inbox/internal/catalog"
)

//go:embed de/*.json
var translations embed.FS

var texts = catalog.New(translations)

func text(ctx context.Context, english string, pairs ...any) string {
	return texts.Text(ctx, english, pairs...)
}

func count(ctx context.Context, n int, one, several string) string {
	return texts.Count(ctx, n, one, several)
}

// fieldLabel translates the names of lines about the operator; others are shown as they are.
func fieldLabel(ctx context.Context, name string) string {
	switch name {
	case "Operator":
		return text(ctx, "Operator")
	case "Contact":
		return text(ctx, "Contact")
	case "Account":
		return text(ctx, "Account")
	case "Privacy":
		return text(ctx, "Privacy")
	case "Source":
		return text(ctx, "Source code")
	}
	return name
}
