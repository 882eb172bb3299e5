// Command drawing makes the pictures of the documents from their text sources in docs/img: NAME.txt, lines and boxes of ASCII characters below
// a line "title: " that is read aloud in place of the picture, and NAME.cast, a recording of a terminal. Both become NAME.svg.
// drawing -record FILE PROGRAM ARGUMENTS… makes such a recording.
package main

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/bep/goat"
)

//go:generate go run .

func main() {
	into := flag.String("record", "", "write what a program prints to this file, instead of drawing")
	flag.Parse()
	var err error
	if *into != "" && flag.NArg() > 0 {
		err = record(*into, flag.Args())
	} else {
		err = drawAll(filepath.Join("..", "..", "docs", "img"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "drawing:", err)
		os.Exit(1)
	}
}

func drawAll(directory string) error {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		picture, drawn, err := pictureOf(filepath.Join(directory, entry.Name()))
		if err != nil {
			return fmt.Errorf("%s: %w", entry.Name(), err)
		}
		if drawn {
			if err := os.WriteFile(svgOf(filepath.Join(directory, entry.Name())), picture, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

func svgOf(source string) string { return strings.TrimSuffix(source, filepath.Ext(source)) + ".svg" }

// pictureOf draws a source; drawn is false for a file that is none.
func pictureOf(source string) (picture []byte, drawn bool, err error) {
	kind := filepath.Ext(source)
	if kind != ".txt" && kind != ".cast" {
		return nil, false, nil
	}
	content, err := os.ReadFile(source)
	if err != nil {
		return nil, false, err
	}
	if kind == ".cast" {
		picture, err = film(content)
	} else {
		picture, err = draw(string(content))
	}
	return picture, true, err
}

// style gives a picture the colours of the page around it, in light and dark.
const style = `<style>svg{color:#1d1f1c}text{fill:currentColor}path,polygon,circle{stroke:currentColor}polygon{fill:currentColor}path,circle{fill:none}@media(prefers-color-scheme:dark){svg{color:#e9e7e1}}</style>`

var colours = regexp.MustCompile(` (?:fill|stroke)='(?:#000|none|currentColor)'`)

var letter = regexp.MustCompile(`^<text text-anchor='middle' x='(\d+)' y='(\d+)'[^>]*>(.*)</text>$`)

// letterWidth is the distance of two characters on a line.
const letterWidth = 8

// joined makes one text of the characters that stand side by side: the library draws each by itself.
func joined(body string) string {
	type word struct {
		x, y, letters int
		text          string
	}
	var lines []string
	var words []word
	for line := range strings.SplitSeq(body, "\n") {
		found := letter.FindStringSubmatch(line)
		if found == nil {
			lines = append(lines, line)
			continue
		}
		x, _ := strconv.Atoi(found[1]) // digits
		y, _ := strconv.Atoi(found[2])
		words = append(words, word{x, y, 1, found[3]})
	}

	slices.SortStableFunc(words, func(a, b word) int { return cmp.Or(cmp.Compare(a.y, b.y), cmp.Compare(a.x, b.x)) })
	var whole []word
	for _, one := range words {
		if last := len(whole) - 1; last >= 0 && whole[last].y == one.y && one.x-whole[last].x-letterWidth*whole[last].letters <= letterWidth {
			if one.x-whole[last].x > letterWidth*whole[last].letters {
				whole[last].text, whole[last].letters = whole[last].text+" ", whole[last].letters+1
			}
			whole[last].text, whole[last].letters = whole[last].text+one.text, whole[last].letters+1
			continue
		}
		whole = append(whole, one)
	}
	var texts strings.Builder
	for _, one := range whole {
		fmt.Fprintf(&texts, `<text x="%d" y="%d" textLength="%d">%s</text>`+"\n", one.x-letterWidth/2, one.y, letterWidth*one.letters, one.text)
	}
	// The last line closes the group that moves everything.
	end := strings.LastIndex(strings.Join(lines, "\n"), "</g>")
	all := strings.Join(lines, "\n")
	return all[:end] + texts.String() + all[end:]
}

// draw makes one picture.
func draw(source string) ([]byte, error) {
	first, lines, _ := strings.Cut(source, "\n")
	title, titled := strings.CutPrefix(first, "title: ")
	if !titled || title == "" || strings.TrimSpace(lines) == "" {
		return nil, fmt.Errorf(`the first line must be "title: " and what the picture shows, with the drawing below it`)
	}

	drawn := goat.BuildSVG(strings.NewReader(strings.Trim(lines, "\n") + "\n"))
	var picture bytes.Buffer
	fmt.Fprintf(&picture, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" font-family="ui-monospace,Menlo,Consolas,monospace" font-size="13"><title>%s</title>%s`+"\n",
		drawn.Width, drawn.Height, html.EscapeString(title), style)
	picture.WriteString(joined(colours.ReplaceAllString(drawn.Body, "")))
	picture.WriteString("</svg>\n")
	return picture.Bytes(), nil
}
