package notetext

import (
	"testing"

	"inbox/internal/markup/markuptest"
	"inbox/normalized"
)

func TestPostsSayWhatAnswersSay(t *testing.T) {
	markuptest.SameOn(t, func(one markuptest.Answer) string {
		return HTML(normalized.Part{Kind: normalized.PartText, MIME: one.MIME, Content: one.Content}, nil)
	})
}
