package llm

import (
	"math"
	"mime"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"inbox/internal/filetype"
	"inbox/normalized"
)

// Why a file is not shown.
const (
	tooLarge  = "too large to show"
	notHere   = "not available any more"
	noPicture = "no picture that can be shown"
	noText8   = "no text in UTF-8, so it is not shown"
	noForm    = "a file of this type is not shown"
	noFetch   = "at an address, from which only pictures are read"
	noRoom    = "left out, because newer files take its room"

	noMoreRoom = "left out, because the files before it take all room"
)

// Kinds of files that a model reads.
const (
	partText    = "text"
	partPicture = "picture"
)

// quota limits the files of one kind in a request. Files of the history have a limit of their own: if new files could displace them, every
// request would begin differently and the provider's cache would not apply. The limit of the whole request is what providers accept.
type quota struct{ history, request amount }

type amount struct{ count, bytes int }

func (a amount) covers(other amount) bool { return other.count <= a.count && other.bytes <= a.bytes }

var quotas = map[string]quota{
	partPicture: {history: amount{12, 10 << 20}, request: amount{maxImages, maxImagesSum}},
	partText:    {history: amount{64, 128 << 10}, request: amount{128, maxTextFiles}},
}

// Assumed sizes of files whose size is unknown, such as pictures that are not fetched yet.
const (
	unknownPicture = 1 << 20
	unknownText    = 16 << 10
)

// file is one file of a message or its history.
type file struct {
	key   string // by the message it came with, its place there and its contents; the same in every later turn
	part  *normalized.Part
	id    string // of the message
	by    string // attributes of its mark that name who sent it, where that is not clear
	at    string // place in the prompt
	stays int    // turn of the history that can be the same next time if this file is not
	group int    // question with the answers before it
	kind  string
	size  int
	why   string // it is not shown; empty = it is
}

// about returns the name and the size of the file in one short line.
func (f *file) about() string {
	name := strings.Trim(quote(f.part.Name), `"`)
	if name == "" {
		name = "a file"
	}
	if size := max(int(f.part.Size), f.size); size > 0 && !f.fetched() {
		name += ", " + sizeText(size)
	}
	return name
}

// named returns the name of the file, or the path of its address.
func (f *file) named() string {
	if f.part.Name != "" || !f.fetched() {
		return f.part.Name
	}
	address, err := url.Parse(f.part.BytesRef.URL)
	if err != nil {
		return ""
	}
	return address.Path
}

func (f *file) fetched() bool { return f.part.BytesRef.Kind == normalized.BytesURL }

func sizeText(size int) string {
	switch {
	case size >= 1e6:
		return strings.TrimSuffix(strconv.FormatFloat(float64(size)/1e6, 'f', 1, 64), ".0") + " MB"
	case size >= 1e3:
		return strconv.Itoa(size/1e3) + " KB"
	}
	return strconv.Itoa(size) + " bytes"
}

// filesOf returns the files of the history and the message, oldest first, and the group of the message.
func filesOf(message *normalized.Message, marks marker) (files []file, group int) {
	for i := range message.History {
		turn := &message.History[i]
		said := turn.Messages()
		for k := range said {
			one := file{id: said[k].ID, at: placeOf("history", i), stays: i - 1, group: group}
			if len(said) > 1 {
				one.by = marks.by(&said[k].Sender)
			}
			if turn.Role == normalized.RoleAssistant { // its files stand behind it
				one.stays = i
			}
			files = append(files, one.each(said[k].Parts)...)
			if turn.Role == normalized.RoleUser { // each message for itself: the next one may be merged into the turn
				group++
			}
		}
	}

	request := file{id: message.ID, at: placeOf("request", 0), group: group}
	return append(files, request.each(message.Parts)...), group
}

// each returns a file for each file part, with the fields of f.
func (f file) each(parts []normalized.Part) (files []file) {
	for i := range parts {
		part := &parts[i]
		if part.Kind != normalized.PartFile && part.Kind != normalized.PartArtifact || part.BytesRef == nil {
			continue
		}
		f.part, f.key = part, f.id+"/"+strconv.Itoa(i)+"/"+nameOf(part.BytesRef)
		f.classify()
		files = append(files, f)
	}
	return files
}

// nameOf returns a name for the contents that is the same in a message and in the history, where no bytes are inline.
func nameOf(ref *normalized.BytesRef) string {
	switch ref.Kind {
	case normalized.BytesInline:
		content, _ := ref.Bytes()
		return normalized.Digest(content)
	case normalized.BytesContentAddressed:
		return ref.Digest
	}
	return ref.URL
}

// classify sets the kind and the size of the file, or why it cannot be shown, from what the message says about it.
func (f *file) classify() {
	f.size, f.why = int(f.part.Size), "" // not the length of inline bytes: what is chosen is the same when they are not inline any more
	mediaType, _, _ := mime.ParseMediaType(filetype.Of(f.part.MIME, f.named(), nil))
	switch {
	case isText(mediaType):
		f.kind = partText
		if f.size > maxTextFile {
			f.why = tooLarge
		} else if f.fetched() {
			f.why = noFetch
		} else if f.size == 0 {
			f.size = unknownText
		}
	case f.part.MIME == "" || slices.Contains(imageTypes, mediaType) || slices.Contains(otherNames, mediaType):
		f.kind = partPicture
		if f.size > maxImageBytes {
			f.why = tooLarge
		} else if f.size == 0 {
			f.size = unknownPicture
		}
	default:
		f.why = noForm
	}
}

// choose selects the files to show and sets the reason for every other file. It drops old files first and several at once, so that most
// turns show the same files as the turn before and the provider's cache applies. Files of the history are dropped only because of the
// questions up to theirs; a message with many files displaces older ones for one turn. before has the keys that an earlier run of the
// turn selected, which are selected again. stays is the last turn of the history before the first file that the next question drops.
func choose(files []file, request int, before []string) (stays int) {
	stays = math.MaxInt
	for kind, quota := range quotas {
		var list []*file
		for i := range files {
			if files[i].kind == kind && files[i].why == "" {
				list = append(list, &files[i])
			}
		}

		from, next := quota.firstShown(list, request), quota.firstShown(list, request+1)
		for !quota.request.covers(total(list[from:])) {
			from++
		}

		for i, one := range list {
			shown := i >= from
			if before != nil {
				shown = slices.Contains(before, one.key)
			}
			if !shown {
				one.why = noRoom
			}
			if one.group < request && shown != (i >= next) {
				stays = min(stays, one.stays)
			}
		}
	}
	return stays
}

// firstShown returns the index of the oldest file that is shown when all questions before the group are history.
func (q quota) firstShown(files []*file, group int) (from int) {
	half := amount{q.history.count / 2, q.history.bytes / 2}
	for at := 0; at < len(files) && files[at].group < group; {
		begin := at
		for at < len(files) && files[at].group == files[begin].group {
			at++
		}
		if q.history.covers(total(files[from:at])) {
			continue
		}

		for from < begin && !half.covers(total(files[from:at])) {
			from++
		}
		for !q.history.covers(total(files[from:at])) {
			from++
		}
	}
	return from
}

func total(files []*file) (sum amount) {
	for _, one := range files {
		sum.count, sum.bytes = sum.count+1, sum.bytes+one.size
	}
	return sum
}
