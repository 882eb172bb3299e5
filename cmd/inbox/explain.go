package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/reference"
)

func newExplain() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain NAME",
		Short: "Say what a code, an event, a state or a method of proof means, and what to do",
		Long: `Prints what docs/reference says about a name: the code of an error or of an audit record, an event of a timeline, a state, a method
of evidence. A name that has several meanings has them all. It asks no server.`,
		Example: "  inbox explain not_found\n  inbox explain evidence:expired\n  inbox explain held --json",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, given []string) error {
			found := reference.Find(given[0])
			if len(found) == 0 {
				return fmt.Errorf("no code, event, state or method is called %q; docs/reference lists them", given[0])
			}
			if wantsJSON(cmd) {
				return printJSON(cmd.OutOrStdout(), exchange.NewList(explained(found), ""))
			}
			for i, one := range found {
				if i > 0 {
					fmt.Fprintln(cmd.OutOrStdout())
				}
				printExplained(cmd.OutOrStdout(), one)
			}
			return nil
		},
	}

	addJSON(cmd)
	completing(cmd, explainedNames)
	return cmd
}

// explainedNames are all names that the reference explains.
var explainedNames = completed{local: func(*cobra.Command) (names []string) {
	for _, page := range reference.All() {
		for _, group := range page.Groups {
			for _, entry := range group.Entries {
				names = append(names, entry.Name)
			}
		}
	}
	return names
}}

// explanation is one meaning of a name as JSON.
type explanation struct {
	Name    string `json:"name"`
	Page    string `json:"page"`
	Group   string `json:"group"`
	Meaning string `json:"meaning"`
	Do      string `json:"do,omitempty"`
	Address string `json:"address"` // below that of a server
}

func explained(found []reference.Found) []explanation {
	list := make([]explanation, 0, len(found))
	for _, one := range found {
		list = append(list, explanation{one.Name, one.Page.Name, one.Group.Title, words(one.Meaning), words(one.Do), one.Address})
	}
	return list
}

func printExplained(out io.Writer, one reference.Found) {
	fmt.Fprintf(out, "%s  (%s: %s)\n", one.Name, one.Page.Title, one.Group.Title)
	fmt.Fprintf(out, "  %s\n", words(one.Meaning))
	if one.Do != "" {
		fmt.Fprintf(out, "  What to do: %s\n", words(one.Do))
	}
	fmt.Fprintf(out, "  %s of the server, %s in the repository\n", one.Address, inRepository(one.Address))
}

// words is a text of the reference without its marks.
func words(source string) string {
	var plain strings.Builder
	for _, span := range reference.Spans(source) {
		plain.WriteString(span.Text)
	}
	return plain.String()
}

// inRepository returns the document of a page of the server.
func inRepository(address string) string {
	page, anchor, _ := strings.Cut(strings.TrimPrefix(address, "/"), "#")
	return page + ".md#" + anchor
}

// codeOf returns the code of an error: that of a server's answer, or the kind of a failure here; empty = it has none.
func codeOf(err error) string {
	if refused, is := errors.AsType[*refusedRequest](err); is {
		return refused.code
	}
	if failed, is := errors.AsType[*fault.Fault](err); is {
		return string(failed.Kind)
	}
	return ""
}
