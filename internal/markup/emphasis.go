package markup

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// spot is a place of a text where emphasis begins or ends. Which mark stands there is known when the text on both sides is.
type spot struct {
	at, kind int
	ends     bool
	address  bool // it stands right behind an address that is no link
	inner    bool // it is emphasis inside of another one
	alone    bool // no other emphasis begins or ends at either end of this one
}

// tags mark emphasis where the marks of Markdown would be read in another way, such as between a quotation mark and a letter.
var tags = [3]string{bold: "strong>", italic: "em>", struck: "del>"}

func (w *writer) openSpot(kind int) {
	if last := len(w.spots) - 1; w.atSpot() && w.spots[last].kind == kind && w.spots[last].ends {
		w.spots = w.spots[:last] // the same emphasis goes on
		w.endAddress()
		w.escapeLast()
		return
	}
	w.addSpot(kind, false)
	w.spare += len("<></>") + 2*len(tags[bold])
}

func (w *writer) addSpot(kind int, ends bool) {
	w.spots = append(w.spots, spot{at: len(w.out), kind: kind, ends: ends, address: w.address > 0 && w.address == len(w.out)})
}

// atSpot reports whether the text ends with emphasis.
func (w *writer) atSpot() bool {
	last := len(w.spots) - 1
	return last >= 0 && w.spots[last].at == len(w.out)
}

// written returns the text with its emphasis, and forgets it.
func (w *writer) written() string {
	spots := w.spots
	w.spots, w.spare = w.spots[:0], 0
	w.loose, w.address, w.ticked, w.number, w.bare, w.linked = 0, 0, 0, 0, 0, 0
	if len(spots) == 0 {
		return string(w.out)
	}

	opened := make([]int, len(spots)) // the spot where the emphasis of a spot begins
	tagged := make([]bool, len(spots))
	var open []int
	shares := func(i int) bool {
		return i > 0 && spots[i-1].at == spots[i].at || i+1 < len(spots) && spots[i+1].at == spots[i].at
	}
	for i, one := range spots {
		opened[i] = i
		if !one.ends {
			spots[i].inner = len(open) > 0
			open = append(open, i)
			continue
		}
		if last := len(open) - 1; last >= 0 {
			opened[i], open = open[last], open[:last]
		}
		spots[i].inner = spots[opened[i]].inner
		spots[i].alone = !shares(i) && !shares(opened[i])
		spots[opened[i]].alone = spots[i].alone
	}
	var end int
	for begin := 0; begin < len(spots); begin = end {
		for end = begin + 1; end < len(spots) && spots[end].at == spots[begin].at; end++ {
		}
		if !w.markable(spots[begin:end]) {
			for _, first := range opened[begin:end] {
				tagged[first] = true
			}
		}
	}

	var out strings.Builder
	at := 0
	for i, one := range spots {
		out.Write(w.out[at:one.at])
		switch at = one.at; {
		case !tagged[opened[i]]:
			out.WriteString(emphases[one.kind])
		case one.ends:
			out.WriteString("</" + tags[one.kind])
		default:
			out.WriteString("<" + tags[one.kind])
		}
	}
	out.Write(w.out[at:])
	return out.String()
}

// markable reports whether Markdown reads the marks at one place as they are meant (CommonMark 0.31, section 6.2).
func (w *writer) markable(spots []spot) bool {
	at, ends := spots[0].at, spots[0].ends
	if slices.ContainsFunc(spots, func(one spot) bool { return one.ends != ends }) {
		return false
	}

	before, _ := utf8.DecodeLastRune(w.out[:at])
	after, _ := utf8.DecodeRune(w.out[at:])
	outside, inside := before, after
	if ends {
		outside, inside = after, before
	}
	takenBack := slices.ContainsFunc(spots, func(one spot) bool { return one.kind == struck })
	if before == '~' && takenBack {
		return false
	}
	edge := at == 0 && !ends || at == len(w.out) && ends
	if spots[0].address && (!edge && !unicode.IsSpace(outside) || takenBack) {
		return false // the marks would belong to the address
	}
	if first, next := before, after; spots[0].kind != struck && (first == '/' && (next == '.' || next == '/') || !unicode.IsSpace(first) && !edge && next >= '0' && next <= '9') {
		return false // of a path or a power
	}
	word := unicode.IsLetter(inside) || unicode.IsDigit(inside)
	if takenBack && !word && slices.ContainsFunc(spots, func(one spot) bool { return one.kind != struck }) {
		return false // the inner mark might be an end as well as a beginning
	}
	switch {
	case edge || unicode.IsSpace(outside):
		return !unicode.IsSpace(inside)
	case unicode.IsPunct(outside) || outside < utf8.RuneSelf && !wordASCII(byte(outside)):
		return word || !unicode.IsSpace(inside) && outside != '\\' && spots[0].alone && !spots[0].inner // it might be an end as well as a beginning
	}
	return word && spots[0].alone && spots[0].kind == bold
}
