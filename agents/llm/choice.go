package llm

import (
	"math"
	"mime"
	"slices"
	"strconv"
	"strings"

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
)

// Kinds of files that a model reads.
const (
	partText    = "text"
	partPicture = "picture"
)

// room is how many files of a kind are shown. The history has its own, so that the files of a new message do not change what stands before
// them; both together are bounded by what providers take.
type room struct{ history, all load }

type load struct{ count, bytes int }

func (l load) holds(other load) bool { return other.count <= l.count && other.bytes <= l.bytes }

var rooms = map[string]room{
	partPicture: {history: load{12, 10 << 20}, all: load{maxImages, maxImagesSum}},
	partText:    {history: load{64, 128 << 10}, all: load{128, maxTextFiles}},
}

// What a file of unknown size counts: a picture at an address has one after it was fetched.
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

// about names the file in one short line.
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

// filesOf lists the files of a message and its history, oldest first, and says which group is that of the message.
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

// each returns the files of parts, with what they share.
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

// nameOf names contents the same way in a message and later in its history, where no bytes are inline.
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

// classify says what can be shown by what the message says about the file.
func (f *file) classify() {
	f.size, f.why = int(f.part.Size), "" // not the length of inline bytes: what is chosen is the same when they are not inline any more
	mediaType, _, _ := mime.ParseMediaType(f.part.MIME)
	switch {
	case isText(f.part):
		f.kind = partText
		if f.size > maxTextFile {
			f.why = tooLarge
		} else if f.fetched() {
			f.why = noFetch
		} else if f.size == 0 {
			f.size = unknownText
		}
	case f.part.MIME == "" || slices.Contains(imageTypes, mediaType):
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

// choose says of each file why it is not shown. The oldest go first, and several at once, so that what is shown stays the same from turn to
// turn in between: whether they go depends on the questions before them and on no later one. A request with many files takes the room of
// older ones for this turn alone. What goes with the next question is known already: stays is the last turn of the history before that.
// before are the keys of what an earlier run chose.
func choose(files []file, request int, before []string) (stays int) {
	stays = math.MaxInt
	for kind, room := range rooms {
		var list []*file
		for i := range files {
			if files[i].kind == kind && files[i].why == "" {
				list = append(list, &files[i])
			}
		}

		from, next := room.settled(list, request), room.settled(list, request+1)
		for !room.all.holds(loadOf(list[from:])) {
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

// settled returns the first file that is shown when the questions before the group are history.
func (r room) settled(files []*file, group int) (from int) {
	half := load{r.history.count / 2, r.history.bytes / 2}
	for at := 0; at < len(files) && files[at].group < group; {
		begin := at
		for at < len(files) && files[at].group == files[begin].group {
			at++
		}
		if r.history.holds(loadOf(files[from:at])) {
			continue
		}

		for from < begin && !half.holds(loadOf(files[from:at])) {
			from++
		}
		for !r.history.holds(loadOf(files[from:at])) {
			from++
		}
	}
	return from
}

func loadOf(files []*file) (sum load) {
	for _, one := range files {
		sum.count, sum.bytes = sum.count+1, sum.bytes+one.size
	}
	return sum
}
