package design

import (
	"testing"

	"inbox/internal/catalog/catalogtest"
)

func TestTranslations(t *testing.T) { catalogtest.Check(t, ".", texts) }
