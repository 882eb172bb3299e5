package operator_test

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"inbox/internal/fault"
	"inbox/operator"
)

func failingDomain(name string, err error) operator.Domain {
	return operator.Domain{Name: name, With: func(context.Context, func(context.Context, *operator.Operator) error) error { return err }}
}

// TestExportOfNoDomain: an export for which no domain answered writes nothing, not an archive that is empty and in good order, and is not
// called incomplete, which says that others answered.
func TestExportOfNoDomain(t *testing.T) {
	t.Parallel()
	down := errors.New("the database does not answer")
	for name, second := range map[string]error{"both fail": down, "one fails, the other stores nothing": fault.New(fault.NotFound, "nothing is stored")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			persons := operator.Persons{Domains: []operator.Domain{failingDomain("one.example", down), failingDomain("two.example", second)}}
			var out bytes.Buffer
			made, err := persons.ExportZip(t.Context(), operator.PersonName{Name: "@ana@peer.test"}, &out)
			if !errors.Is(err, down) || !strings.Contains(err.Error(), "one.example") || operator.Incomplete(err) == errors.Is(second, down) {
				t.Errorf("the error is %v, incomplete: %v", err, operator.Incomplete(err))
			}
			if len(made.Items) != 2 {
				t.Errorf("%d domains are named", len(made.Items))
			}
			if out.Len() > 0 {
				_, failure := zip.NewReader(bytes.NewReader(out.Bytes()), int64(out.Len()))
				t.Errorf("%d bytes were written; as an archive: %v", out.Len(), failure)
			}
		})
	}
}
