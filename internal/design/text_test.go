package design

import (
	"testing"

	"inbox/internal/catalog/catalogtest"
	"inbox/internal/packed/packedtest"
)

func TestTranslations(t *testing.T) { catalogtest.Check(t, ".", texts) }

func TestPacked(t *testing.T) { packedtest.Check(t, files, "web") }
