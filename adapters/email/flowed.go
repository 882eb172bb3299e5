package email

import "strings"

// unflow joins the lines of format=flowed text (RFC 3676). Lines are joined only at equal quote depth; the
// signature separator is never part of a paragraph.
func unflow(text string, deleteSpace bool) string {
	var out strings.Builder
	out.Grow(len(text))
	open, openDepth := false, 0 // the last line written ended in a soft break
	first := true
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSuffix(line, "\r")
		depth := len(line) - len(strings.TrimLeft(line, ">"))
		body := strings.TrimPrefix(line[depth:], " ") // space-stuffing
		signature := body == "-- "
		if joined := open && depth == openDepth && !signature; !joined {
			if !first {
				out.WriteByte('\n')
			}
			writeQuote(&out, depth)
		}
		first = false
		soft := strings.HasSuffix(body, " ") && !signature
		if soft && deleteSpace {
			body = strings.TrimSuffix(body, " ")
		}
		out.WriteString(body)
		open, openDepth = soft, depth
	}
	return out.String()
}

func writeQuote(out *strings.Builder, depth int) {
	if depth > 0 {
		out.WriteString(strings.Repeat(">", depth))
		out.WriteByte(' ')
	}
}
