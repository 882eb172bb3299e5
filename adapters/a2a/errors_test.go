package a2a

import (
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/internal/reference"
)

// TestReasonsAreExplained: the reference has each reason that an answer can have, and no other.
func TestReasonsAreExplained(t *testing.T) {
	t.Parallel()
	reasons := map[string]bool{}
	for sentinel := range codes {
		reason := a2a.ErrorReason(sentinel)
		reasons[reason] = true
		if explained(reason)["documentation"] != reference.Path+reference.Errors+"#"+reason {
			t.Errorf("internal/reference does not explain %s", reason)
		}
	}

	page, _ := reference.Get(reference.Errors)
	for _, group := range page.Groups {
		for _, entry := range group.Entries {
			if group.Title == "A2A" && !reasons[entry.Name] {
				t.Errorf("internal/reference explains %s, which no answer has", entry.Name)
			}
		}
	}
}
