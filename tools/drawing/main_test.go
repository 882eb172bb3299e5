package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDrawings holds the pictures of the documents to their sources.
func TestDrawings(t *testing.T) {
	sources, err := filepath.Glob("../../docs/img/*")
	if err != nil {
		t.Fatal(err)
	}
	pictures := 0
	for _, source := range sources {
		wanted, drawn, err := pictureOf(source)
		if err != nil {
			t.Fatalf("%s: %v", source, err)
		}
		if !drawn {
			continue
		}
		pictures++
		got, err := os.ReadFile(svgOf(source))
		if err != nil || !bytes.Equal(got, wanted) {
			t.Errorf("the picture of %s is another one (%v); go generate ./tools/drawing draws it", source, err)
		}
	}
	if pictures < 4 {
		t.Errorf("there are only %d sources of pictures", pictures)
	}
}

func TestDraw(t *testing.T) {
	picture, err := draw("title: A & B\n .---.   .---.\n | a +-->| b |\n '---'   '---'\n  a long text <here>\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"<title>A &amp; B</title>", ">a long text &lt;here&gt;</text>", "<polygon", "prefers-color-scheme:dark"} {
		if !strings.Contains(string(picture), part) {
			t.Errorf("no %s in\n%s", part, picture)
		}
	}
	wellFormed(t, picture)

	for _, source := range []string{"", "title: nothing\n", " .-.\n", "title: \n .-.\n"} {
		if _, err := draw(source); err == nil {
			t.Errorf("%q is drawn", source)
		}
	}
}

func wellFormed(t *testing.T, picture []byte) {
	t.Helper()
	for decoder := xml.NewDecoder(bytes.NewReader(picture)); ; {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, picture)
		}
	}
}

func TestRecording(t *testing.T) {
	file := filepath.Join(t.TempDir(), "one.cast")
	if err := record(file, []string{"printf", "first <&> line\\n\\n  ✓ second\\n"}); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	read, err := readRecording(content)
	if err != nil || len(read.lines) != 3 || read.lines[0].text != "first <&> line" || read.lines[1].text != "" {
		t.Fatalf("%+v, %v", read, err)
	}

	picture, err := film(content)
	if err != nil {
		t.Fatal(err)
	}
	wellFormed(t, picture)
	for _, part := range []string{`class="head" xml:space="preserve">first &lt;&amp;&gt; line<`, `class="good" xml:space="preserve">  ✓ second<`, "prefers-reduced-motion"} {
		if !strings.Contains(string(picture), part) {
			t.Errorf("no %s in\n%s", part, picture)
		}
	}

	if err := record(file, []string{"false"}); err == nil {
		t.Error("a program that failed is recorded")
	}
	for _, bad := range []string{"", "{}", `{"version":2,"width":80,"height":24}` + "\n[1]", `{"version":2,"width":80,"height":24}` + "\nx"} {
		if _, err := film([]byte(bad)); err == nil {
			t.Errorf("%q is drawn", bad)
		}
	}
}
