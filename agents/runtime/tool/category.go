package tool

import (
	"slices"

	"inbox/agents/runtime/value"
)

// categories collects what a tool says of its kind, under all four names in use.
func categories(tool map[string]any) []string {
	var found []string
	for _, name := range []string{"category", "ability_category"} {
		if category, ok := value.NonBlank(tool[name]); ok {
			found = append(found, category)
		}
	}
	for _, name := range []string{"categories", "ability_categories"} {
		if value.PlainContainer(tool[name]) {
			found = append(found, value.Names(tool[name])...)
		}
	}
	return found
}

func inCategories(tool map[string]any, wanted []string) bool {
	if len(wanted) == 0 {
		return false
	}
	return slices.ContainsFunc(categories(tool), func(category string) bool { return slices.Contains(wanted, category) })
}
