package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"os"
	"os/exec"
	"strings"
	"time"
)

// recording is a file of a terminal in the form asciicast 2 (docs.asciinema.org/manual/asciicast/v2): a header, and a line for each output.
type recording struct {
	Version   int    `json:"version"`
	Width     int    `json:"width"`
	Height    int    `json:"height"`
	Title     string `json:"title"`
	Timestamp int64  `json:"timestamp"`

	lines []printed
}

// printed is a line and when it was written, in seconds from the beginning.
type printed struct {
	at   float64
	text string
}

// record runs a program without a terminal and writes what it prints, line by line with the times.
func record(file string, arguments []string) error {
	command := exec.CommandContext(context.Background(), arguments[0], arguments[1:]...) //nolint:gosec // a developer names the program
	command.Stderr = os.Stderr
	output, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := command.Start(); err != nil {
		return err
	}

	made := recording{Version: 2, Width: 100, Height: 30, Title: strings.Join(arguments, " "), Timestamp: begun.Unix()}
	var body bytes.Buffer
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		text, err := json.Marshal(lines.Text() + "\r\n")
		if err != nil {
			return err
		}
		fmt.Fprintf(&body, "[%.3f, \"o\", %s]\n", time.Since(begun).Seconds(), text)
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if err := command.Wait(); err != nil {
		return fmt.Errorf("%s: %w", made.Title, err)
	}
	header, err := json.Marshal(made)
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(append(header, '\n'), body.Bytes()...), 0o644)
}

// readRecording reads what record wrote.
func readRecording(content []byte) (recording, error) {
	var read recording
	header, body, _ := bytes.Cut(content, []byte("\n"))
	if err := json.Unmarshal(header, &read); err != nil {
		return recording{}, fmt.Errorf("the first line is no header of asciicast 2: %w", err)
	}
	if read.Version != 2 || read.Width < 1 || read.Height < 1 {
		return recording{}, errors.New("the first line is no header of asciicast 2 with a width and a height")
	}
	for line := range bytes.SplitSeq(bytes.TrimSpace(body), []byte("\n")) {
		var event []any
		if err := json.Unmarshal(line, &event); err != nil {
			return recording{}, fmt.Errorf("read the event %q: %w", line, err)
		}
		if len(event) != 3 {
			return recording{}, fmt.Errorf("%q is no event of three members", line)
		}
		at, timed := event[0].(float64)
		text, said := event[2].(string)
		if !timed || !said {
			return recording{}, fmt.Errorf("%q is no event with a time and a text", line)
		}
		read.lines = append(read.lines, printed{at, strings.TrimRight(text, "\r\n")})
	}
	return read, nil
}

// Measures of a terminal, in pixels, and the least time between two lines: a reader is slower than a program.
const (
	cellWidth  = 7.8
	cellHeight = 18
	margin     = 14
	leastGap   = 0.22
	lastPause  = 6.0
)

// film draws a recording as a picture that moves by itself: lines appear at their times, and the oldest leave at the top. Readers who want no
// motion see the beginning at rest.
func film(content []byte) ([]byte, error) {
	shown, err := readRecording(content)
	if err != nil {
		return nil, err
	}

	times := make([]float64, len(shown.lines))
	for i, line := range shown.lines {
		if i > 0 { // what a program does before its first line is no part of the film
			times[i] = max(line.at-shown.lines[0].at, times[i-1]+leastGap)
		}
	}
	end := times[len(times)-1] + lastPause

	width, height := float64(shown.Width)*cellWidth+2*margin, shown.Height*cellHeight+2*margin
	var picture bytes.Buffer
	fmt.Fprintf(&picture, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %d" role="img" font-family="ui-monospace,Menlo,Consolas,monospace" font-size="13">`+"\n", width, height)
	fmt.Fprintf(&picture, "<title>A terminal: %s</title>\n<style>", html.EscapeString(shown.Title))
	picture.WriteString("text{fill:#e9e7e1;white-space:pre}.good{fill:#7fd1b9}.head{fill:#f2c879;font-weight:bold}")
	picture.WriteString("@media(prefers-reduced-motion:no-preference){text{opacity:0}")
	for i, at := range times {
		fmt.Fprintf(&picture, "#l%d{animation:%.2fs infinite l%d}@keyframes l%d{0%%,%.3f%%{opacity:0}%.3f%%,100%%{opacity:1}}", i, end, i, i, 100*at/end, 100*at/end+0.001)
	}
	fmt.Fprintf(&picture, "#all{animation:%.2fs infinite step-end up}@keyframes up{0%%{transform:none}", end)
	for i, at := range times {
		if over := i + 1 - shown.Height; over > 0 {
			fmt.Fprintf(&picture, "%.3f%%{transform:translateY(%dpx)}", 100*at/end, -over*cellHeight)
		}
	}
	picture.WriteString("}}</style>\n")
	fmt.Fprintf(&picture, `<rect width="%.0f" height="%d" rx="8" fill="#131412"/><svg x="%d" y="%d" width="%.0f" height="%d"><g id="all">`+"\n",
		width, height, margin, margin, width-2*margin, height-2*margin)
	for i, line := range shown.lines {
		if line.text == "" {
			continue
		}
		class := ""
		switch {
		case strings.HasPrefix(strings.TrimSpace(line.text), "✓"):
			class = ` class="good"`
		case !strings.HasPrefix(line.text, " "):
			class = ` class="head"`
		}
		fmt.Fprintf(&picture, `<text id="l%d" y="%d"%s xml:space="preserve">%s</text>`+"\n", i, (i+1)*cellHeight-5, class, html.EscapeString(line.text))
	}
	picture.WriteString("</g></svg></svg>\n")
	return picture.Bytes(), nil
}
