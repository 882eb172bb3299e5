package llm

import (
	"context"
	"slices"
	"testing"
)

// Both tools are called by the names that the model was told, in whatever order they are declared.
func TestToolsWhoseNamesCollideAreBothCallable(t *testing.T) {
	var before []string
	for _, order := range [][]string{{"git-hub/list", "git/hub-list"}, {"git/hub-list", "git-hub/list"}} {
		tools := &toolbox{}
		for _, name := range order {
			tools.entries = append(tools.entries, declare(name, nil))
		}
		var told []string
		asked := 0
		model := modelFunc(func(_ context.Context, request Request, yield func(Delta) bool) error {
			told = nil
			for _, known := range request.Tools {
				told = append(told, known.Name)
			}
			slices.Sort(told)
			next := says("done")
			if asked < len(told) {
				next = calls(told[asked], `{}`)
			}
			asked++
			for _, delta := range next {
				yield(delta)
			}
			return nil
		})
		agent := newAgent(t, Options{Provider: model, Tools: []Tools{tools}})
		if _, _, err := fold(t.Context(), t, agent, question("names")); err != nil {
			t.Fatal(err)
		}
		slices.Sort(tools.called)
		if told[0] == told[1] || !slices.Equal(tools.called, []string{"git-hub/list", "git/hub-list"}) {
			t.Errorf("told %q, called %q", told, tools.called)
		}
		if before != nil && !slices.Equal(before, told) {
			t.Errorf("told %q before and %q now", before, told)
		}
		before = told
	}
}
