package pages

import (
	"testing"

	"inbox/internal/catalog/catalogtest"
)

func TestEveryTextIsTranslated(t *testing.T) { catalogtest.Check(t, ".", texts) }
