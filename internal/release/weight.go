package main

import (
	"cmp"
	"debug/elf"
	"debug/gosym"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// maxProgramBytes is the most that a program may have (decision 0101).
const maxProgramBytes = 40_000_000

// checkSize refuses a program of more bytes than limit, and names the packages with the most machine code.
func checkSize(program string, limit int64) error {
	info, err := os.Stat(program)
	if err != nil {
		return err
	}
	if info.Size() <= limit {
		return nil
	}
	largest, err := largestPackages(program, 15)
	if err != nil {
		return fmt.Errorf("%s has %d bytes, over %d; what it has them for cannot be read: %w", program, info.Size(), limit, err)
	}
	return fmt.Errorf("%s has %d bytes, over %d; most machine code is that of %s", program, info.Size(), limit, strings.Join(largest, ", "))
}

// largestPackages reads the table of functions, which a stripped program has, too.
func largestPackages(program string, most int) ([]string, error) {
	file, err := elf.Open(program)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	lines, text := file.Section(".gopclntab"), file.Section(".text")
	if lines == nil || text == nil {
		return nil, errors.New("it has no table of functions")
	}
	content, err := lines.Data()
	if err != nil {
		return nil, err
	}
	table, err := gosym.NewTable(nil, gosym.NewLineTable(content, text.Addr))
	if err != nil {
		return nil, err
	}

	sizes := map[string]uint64{}
	for _, function := range table.Funcs {
		sizes[packageOf(function.Name)] += function.End - function.Entry
	}
	names := slices.SortedFunc(maps.Keys(sizes), func(a, b string) int { return cmp.Or(cmp.Compare(sizes[b], sizes[a]), cmp.Compare(a, b)) })
	var found []string
	for _, name := range names[:min(most, len(names))] {
		found = append(found, fmt.Sprintf("%s %d kB", name, sizes[name]/1000))
	}
	return found, nil
}

// packageOf returns the package of a function such as "a.example/b/c.(*T[...]).M".
func packageOf(function string) string {
	function, _, _ = strings.Cut(function, "[")
	path := strings.LastIndexByte(function, '/') + 1
	name, _, _ := strings.Cut(function[path:], ".")
	return function[:path] + name
}
