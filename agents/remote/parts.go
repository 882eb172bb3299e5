package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"mime"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/agents/upstream"
	"inbox/normalized"
)

const mimeBytes = "application/octet-stream"

// keeper keeps files of the answer that are too large for a message; nil = nothing does.
func (x *exchange) keeper() normalized.Keeper {
	switch {
	case x.turn.Files != nil:
		return x.turn.Files
	case x.agent.options.Blobs != nil:
		return x.agent.options.Blobs
	}
	return nil
}

// readParts turns what was said into ours.
func (a *Agent) readParts(ctx context.Context, keeper normalized.Keeper, parts a2a.ContentParts, textType string) ([]normalized.Part, error) {
	list := make([]normalized.Part, 0, len(parts))
	for _, part := range parts {
		if part == nil {
			continue
		}

		read, ok, err := a.readPart(ctx, keeper, part, textType)
		if err != nil {
			return nil, err
		}

		switch {
		case ok && read.Kind == normalized.PartToolCall:
			list = withCall(list, read)
		case ok:
			list = append(list, read)
		}
	}

	return list, nil
}

// readArtifacts turns results into ours: text that people read is the answer itself, everything else is an artifact.
func (a *Agent) readArtifacts(ctx context.Context, keeper normalized.Keeper, artifacts []*artifact, textType string) ([]normalized.Part, error) {
	var list []normalized.Part
	for _, from := range artifacts {
		parts := make(a2a.ContentParts, len(from.pieces))
		for i, piece := range from.pieces {
			parts[i] = piece.whole()
		}

		read, err := a.readParts(ctx, keeper, unchunked(parts, textType), textType)
		if err != nil {
			return nil, err
		}

		for i := range read {
			if read[i].Kind == normalized.PartFile || read[i].IsData() {
				read[i].Kind = normalized.PartArtifact
				read[i].ID = artifactID(from, i, len(read))
				read[i].Name = orElse(read[i].Name, from.name)
				read[i].Description = from.description
				read[i].ArtifactType = orElse(from.kind, read[i].ArtifactType)
			}
		}

		list = append(list, read...)
	}

	return list, nil
}

// maxArtifactType bounds what an artifact says that it is, in bytes.
const maxArtifactType = 1024

// typeOf returns what an artifact says that it is: metadata.mentionable.artifact_type, or the same member of metadata itself.
func typeOf(metadata map[string]any) string {
	mentionable, _ := metadata[mentionableKey].(map[string]any)
	for _, members := range []map[string]any{mentionable, metadata} {
		if kind, _ := members[artifactTypeKey].(string); kind != "" && len(kind) <= maxArtifactType {
			return kind
		}
	}
	return ""
}

// artifactID names each part of an artifact that has several. Ids of the other side that the contract refuses are left out.
func artifactID(from *artifact, index, of int) string {
	if !usableID(from.id, false) {
		return ""
	}
	if of == 1 {
		return from.id
	}
	return from.id + "." + strconv.Itoa(index)
}

// readPart is not ok for a part that cannot be shown.
func (a *Agent) readPart(ctx context.Context, keeper normalized.Keeper, part *a2a.Part, textType string) (read normalized.Part, ok bool, err error) {
	switch content := part.Content.(type) {
	case a2a.Text:
		if asFile(part) {
			read, err = a.readFile(ctx, keeper, []byte(content), part)
			return read, true, err
		}
		return normalized.Part{Kind: normalized.PartText, MIME: textMIME(part, textType), Content: string(content), Citation: citationIn(part.Metadata)}, true, nil
	case a2a.Raw:
		read, err = a.readFile(ctx, keeper, content, part)
		return read, true, err
	case a2a.Data:
		encoded, err := json.Marshal(content.Value)
		if err != nil {
			return read, false, upstream.NotUsable(fmt.Errorf("a part of the answer is not JSON: %w", err))
		}
		if call, is := a.readToolCall(encoded); is {
			return call, true, nil
		}
		read, err = a.readData(ctx, keeper, encoded, part)
		return read, true, err
	case a2a.URL:
		read, ok = a.readURL(string(content), part)
		return read, ok, nil
	}
	return read, false, nil
}

// readData keeps data for what it is.
func (a *Agent) readData(ctx context.Context, keeper normalized.Keeper, encoded []byte, part *a2a.Part) (normalized.Part, error) {
	typed := *part
	typed.MediaType = orElse(typed.MediaType, mimeJSON)
	read, err := a.readFile(ctx, keeper, encoded, &typed)
	if err == nil && read.Kind == normalized.PartFile { // what is too large to be kept is a text that says so
		read.Kind, read.ArtifactType = normalized.PartArtifact, normalized.ArtifactData
	}
	return read, err
}

// readFile keeps small content inline and moves larger content to the blob store; without one it is named.
func (a *Agent) readFile(ctx context.Context, keeper normalized.Keeper, content []byte, part *a2a.Part) (normalized.Part, error) {
	file := a.named(part)
	file.Size = int64(len(content))
	switch {
	case len(content) <= min(normalized.MaxInlineBytes, a.options.Limits.Inline):
		file.BytesRef = normalized.Inline(content)
	case keeper == nil:
		return normalized.Text(fmt.Sprintf("[%s (%s) is too large to be passed on]", orElse(file.Name, "A file"), file.MIME)), nil
	default:
		digest, _, err := keeper.Put(ctx, bytes.NewReader(content))
		if err != nil {
			return file, notKept(fmt.Errorf("keep file of the answer: %w", err))
		}
		file.BytesRef = normalized.Stored(digest)
	}

	return file, nil
}

// readURL makes a link of a page, a file of everything else, and a link of what may not be a file. Nothing is fetched.
func (a *Agent) readURL(address string, part *a2a.Part) (normalized.Part, bool) {
	file := a.named(part)
	file.BytesRef = normalized.At(address)
	if text, _ := normalized.TextMIME(part.MediaType); text != normalized.MIMEHTML && file.BytesRef.Check(a.options.Limits) == nil {
		return file, true
	}

	lower := strings.ToLower(address)
	if !strings.HasPrefix(lower, "https://") && !strings.HasPrefix(lower, "http://") || len(address) > a.options.Limits.ID {
		return file, false
	}

	description, _ := part.Metadata["description"].(string)
	return normalized.Part{Kind: normalized.PartLink, URL: address, Title: part.Filename, Description: description, Citation: citationIn(part.Metadata)}, true
}

// named returns the frame of a file.
func (a *Agent) named(part *a2a.Part) normalized.Part {
	description, _ := part.Metadata["description"].(string)
	file := normalized.Part{Kind: normalized.PartFile, MIME: mimeBytes, Name: part.Filename, Alt: description}
	if baseType(part.MediaType) != "" {
		file.MIME = part.MediaType
	}
	return file
}

// asFile reports whether a text is a document rather than words of the agent.
func asFile(part *a2a.Part) bool {
	if _, text := normalized.TextMIME(part.MediaType); text || baseType(part.MediaType) == "" {
		return part.Filename != ""
	}
	return true
}

// textMIME returns the type of a text: its own, or that of the agent's card.
func textMIME(part *a2a.Part, fallback string) string {
	if text, known := normalized.TextMIME(part.MediaType); known {
		return text
	}
	return fallback
}

func baseType(mediaType string) string {
	base, _, err := mime.ParseMediaType(mediaType)
	if err != nil || !strings.Contains(base, "/") || len(mediaType) > 255 {
		return ""
	}
	return base
}

// manyChunks is a number of texts in a row that is rather a stream than paragraphs, if there is white space at every other seam.
const manyChunks = 8

// unchunked puts texts together that are chunks of one: servers keep an artifact that was streamed as one part a chunk.
// White space at a seam tells chunks from paragraphs. Two words never become one, unless white space is where a long stream has it.
func unchunked(parts a2a.ContentParts, textType string) (list a2a.ContentParts) {
	for begin := 0; begin < len(parts); {
		end := begin + 1
		for end < len(parts) && isProse(parts[begin]) && isProse(parts[end]) && textMIME(parts[begin], textType) == textMIME(parts[end], textType) {
			end++
		}

		run := parts[begin:end]
		blank := blankSeams(run)
		stream := len(run) >= manyChunks && 2*blank >= len(run)-1
		for len(run) > 0 {
			chunks := 1
			for chunks < len(run) && (stream || blank > 0 && !splitsWord(run[chunks-1], run[chunks])) {
				chunks++
			}
			list = append(list, concatenated(run[:chunks]))
			run = run[chunks:]
		}

		begin = end
	}
	return list
}

func concatenated(chunks a2a.ContentParts) *a2a.Part {
	if len(chunks) == 1 {
		return chunks[0]
	}
	whole := *chunks[0]
	var text strings.Builder
	for _, chunk := range chunks {
		text.WriteString(chunk.Text())
	}
	whole.Content = a2a.Text(text.String())
	return &whole
}

func isProse(part *a2a.Part) bool {
	_, isText := part.Content.(a2a.Text)
	return isText && !asFile(part) && citationIn(part.Metadata) == nil
}

// blankSeams counts the places with white space between two texts.
func blankSeams(run a2a.ContentParts) (count int) {
	for i := 1; i < len(run); i++ {
		before, after := run[i-1].Text(), run[i].Text()
		if before != strings.TrimRightFunc(before, unicode.IsSpace) || after != strings.TrimLeftFunc(after, unicode.IsSpace) {
			count++
		}
	}
	return count
}

// splitsWord reports whether the end of one text and the start of the next would be one word.
func splitsWord(before, after *a2a.Part) bool {
	last, _ := utf8.DecodeLastRuneInString(before.Text())
	first, _ := utf8.DecodeRuneInString(after.Text())
	return isLetter(last) && isLetter(first)
}

func isLetter(char rune) bool {
	return unicode.IsLetter(char) || unicode.IsMark(char) || unicode.IsNumber(char)
}
