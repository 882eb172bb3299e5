package pages

import (
	"testing"

	"inbox/internal/catalog/catalogtest"
	"inbox/internal/packed"
	"inbox/internal/packed/packedtest"
)

func TestEveryTextIsTranslated(t *testing.T) { catalogtest.Check(t, ".", texts) }

func TestPacked(t *testing.T) { packedtest.Check(t, packed.Files(translations), "de") }
