package markup

import "strings"

// wholeRows escapes the bars of tables that Markdown reads as the ends of cells for which there is no column, and would leave out: first those
// in code, then those behind the last column.
func wholeRows(source string) string {
	if !strings.Contains(source, "|") {
		return source
	}
	var out strings.Builder
	written := 0 // of the source
	fence, columns, begun := "", 0, false
	for at := 0; at < len(source); {
		end := len(source)
		if next := strings.IndexByte(source[at:], '\n'); next >= 0 {
			end = at + next
		}
		line := strings.TrimSuffix(source[at:end], "\r")
		words := strings.TrimLeft(line, " >\t")
		switch opened := opensFence(words); {
		case fence != "":
			if strings.HasPrefix(words, fence) && strings.Trim(words, fence[:1]+" \t") == "" {
				fence = ""
			}
		case opened != "":
			fence, columns, begun = opened, 0, false
		case strings.TrimSpace(words) == "":
			columns, begun = 0, false
		case columns > 0:
			if row := wholeRow(line, columns); row != line {
				out.WriteString(source[written:at] + row)
				written = at + len(line)
			}
		case begun && delimiterRow(words):
			columns = len(bars(words, nil)) - 1
		default:
			begun = true
		}
		at = end + 1
	}
	return out.String() + source[written:]
}

func delimiterRow(line string) bool {
	return strings.Contains(line, "-") && strings.Contains(line, "|") && strings.Trim(line, "|:- \t") == ""
}

// wholeRow escapes bars of a row until it has no more cells than columns.
func wholeRow(line string, columns int) string {
	if len(bars(line, nil))-1 <= columns {
		return line
	}
	code := inCode(line)
	outside := bars(line, code)
	closes := outside[len(outside)-1] // the one that closes the row stays
	var out strings.Builder
	written, place := 0, 0
	for i := range len(line) {
		if line[i] != '|' || i > 0 && line[i-1] == '\\' {
			continue
		}
		for place+1 < len(outside) && outside[place] < i {
			place++
		}
		if code[i] || place >= columns && i < closes {
			out.WriteString(line[written:i] + `\`)
			written = i
		}
	}
	return out.String() + line[written:]
}

// bars returns where the cells of a row begin and end: its bars, without those that a backslash or code hides, and its edges.
func bars(line string, code []bool) (places []int) {
	begin := len(line) - len(strings.TrimLeft(line, " >\t"))
	end := len(strings.TrimRight(line, " \t"))
	if begin == end || line[begin] != '|' {
		places = append(places, begin-1)
	}
	for i := begin; i < end; i++ {
		if line[i] == '|' && (i == 0 || line[i-1] != '\\') && (code == nil || !code[i]) {
			places = append(places, i)
		}
	}
	if last := len(places) - 1; last < 0 || places[last] != end-1 {
		places = append(places, end)
	}
	return places
}

// inCode marks the bytes of a line that stand between two runs of as many backticks.
func inCode(line string) []bool {
	code := make([]bool, len(line))
	open := map[int]int{} // where a run of a length begins the next code
	for i := 0; i < len(line); {
		size := len(line[i:]) - len(strings.TrimLeft(line[i:], "`"))
		if size == 0 {
			i++
			continue
		}
		if begin, is := open[size]; is {
			for k := begin; k < i; k++ {
				code[k] = true
			}
			open = map[int]int{}
		} else {
			open[size] = i
		}
		i += size
	}
	return code
}
