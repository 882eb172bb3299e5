// Command prose measures the sentences that people read of this project, and refuses constructions that read as translated. It reads
// documents, the English of the catalogues, the help of commands, and the other texts in Go source; code, quotations and comments are
// none of its business. It changes nothing, and it judges no idea: that a text is right is its author's work.
//
//	go run ./tools/prose          # a table of words, sentences and reading ease
//	go run ./tools/prose -check   # refuse the constructions of rules.go
package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"
)

func main() {
	root := flag.String("root", ".", "the root of the repository")
	refuse := flag.Bool("check", false, "name the constructions that rules.go refuses, and exit with 1 when there are any")
	flag.Parse()

	texts, err := collect(*root)
	if err != nil {
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(1)
	}

	if !*refuse {
		printTable(os.Stdout, texts)
		return
	}
	found := check(texts)
	for _, one := range found {
		fmt.Fprintln(os.Stderr, one)
	}
	if len(found) > 0 {
		fmt.Fprintf(os.Stderr, "prose: %d constructions to rewrite; tools/prose/rules.go has them all\n", len(found))
		os.Exit(1)
	}
}

// printTable prints a line for each kind of text, and below them one for each document.
func printTable(out io.Writer, texts []text) {
	kinds, files := map[string]*ease{}, map[string]*ease{}
	var kindNames, fileNames []string
	add := func(sums map[string]*ease, names *[]string, name string, one ease) {
		if sums[name] == nil {
			sums[name] = &ease{}
			*names = append(*names, name)
		}
		sums[name].add(one)
	}
	for _, one := range texts {
		measured := measure(one)
		add(kinds, &kindNames, one.kind, measured)
		if one.kind == kindGuide || one.kind == kindContract {
			add(files, &fileNames, one.file, measured)
		}
	}
	slices.SortFunc(fileNames, func(a, b string) int {
		return cmp.Or(cmp.Compare(files[b].words, files[a].words), cmp.Compare(a, b))
	})

	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer func() { _ = table.Flush() }()
	fmt.Fprintln(table, "\twords\tsentences\twords a sentence\tpassive\treading ease\t")
	for _, name := range kindNames {
		fmt.Fprintf(table, "%s\t%s\t\n", name, kinds[name])
	}
	for _, name := range fileNames {
		fmt.Fprintf(table, "%s\t%s\t\n", name, files[name])
	}
}
