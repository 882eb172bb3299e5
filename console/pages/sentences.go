package pages

import (
	"context"
	"embed"

	"inbox/internal/catalog"
	"inbox/internal/fault"
)

//go:embed sentences
var sentenceFiles embed.FS

// sentences are what other rooms say in English, because commands and the API print it: refusals, findings of the doctor, steps of the
// access rules.
var sentences = catalog.Below(sentenceFiles, "sentences")

// sentence returns a sentence of another room in the reader's language. What a person wrote does not pass here.
func sentence(ctx context.Context, english string) string { return sentences.Said(ctx, english) }

// faultWords returns what an operator reads of an error, with the field of the form at fault.
func faultWords(ctx context.Context, err error) string {
	found := fault.Of(err)
	if found.Field == "" {
		return sentence(ctx, found.Public)
	}
	return found.Field + " " + sentence(ctx, found.Public)
}
