package llm

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inbox/internal/fault"
)

// streamed is an answer of chunks with tool calls.
func streamed(chunks ...string) string {
	var body strings.Builder
	for _, chunk := range chunks {
		body.WriteString(`data: {"choices":[{"delta":{"tool_calls":[` + chunk + `]}}]}` + "\n\n")
	}
	return body.String() + `data: {"choices":[{"delta":{},"finish_reason":"tool_calls"}]}` + "\n\n"
}

// toolCallPiece is one piece of a tool call; index -1 = without.
func toolCallPiece(index int, id, name, arguments string) string {
	var members []string
	if index >= 0 {
		members = append(members, fmt.Sprintf(`"index":%d`, index))
	}
	if id != "" {
		members = append(members, fmt.Sprintf(`"id":%q`, id))
	}
	function := fmt.Sprintf(`"arguments":%q`, arguments)
	if name != "" {
		function = fmt.Sprintf(`"name":%q,`, name) + function
	}
	return "{" + strings.Join(append(members, `"function":{`+function+`}`), ",") + "}"
}

func TestArgumentsGoToTheCallTheyBelongTo(t *testing.T) {
	want := []saidCall{{"a", "find", `{"q":1}`}, {"b", "mail", `{"to":2}`}}
	piece := toolCallPiece
	for name, chunks := range map[string][]string{
		"id alone":                      {piece(-1, "a", "find", ""), piece(-1, "b", "mail", ""), piece(-1, "a", "", `{"q":1}`), piece(-1, "b", "", `{"to":2}`)},
		"id and name in each piece":     {piece(-1, "a", "find", `{"q"`), piece(-1, "b", "mail", `{"to"`), piece(-1, "a", "find", `:1}`), piece(-1, "b", "mail", `:2}`)},
		"several calls in a chunk":      {piece(-1, "a", "find", "") + "," + piece(-1, "b", "mail", ""), piece(-1, "b", "", `{"to":2}`) + "," + piece(-1, "a", "", `{"q":1}`)},
		"neither, to the last opened":   {piece(-1, "a", "find", `{"q":1}`), piece(-1, "b", "mail", ""), piece(-1, "", "", `{"to"`), piece(-1, "", "", `:2}`)},
		"index switches":                {piece(0, "a", "find", ""), piece(1, "b", "mail", ""), piece(0, "", "", `{"q"`), piece(1, "", "", `{"to"`), piece(0, "", "", `:1}`), piece(1, "", "", `:2}`)},
		"one index for all, with ids":   {piece(0, "a", "find", ""), piece(0, "b", "mail", ""), piece(0, "a", "", `{"q":1}`), piece(0, "b", "", `{"to":2}`)},
		"one index for all, in turn":    {piece(0, "a", "find", ""), piece(0, "", "", `{"q":1}`), piece(0, "b", "mail", ""), piece(0, "", "", `{"to":2}`)},
		"another index, with the id":    {piece(0, "a", "find", ""), piece(1, "a", "", `{"q":1}`), piece(2, "b", "mail", ""), piece(3, "b", "", `{"to":2}`)},
		"index, and an id of each time": {piece(0, "a", "find", ""), piece(0, "x1", "", `{"q":1}`), piece(1, "b", "mail", ""), piece(1, "x2", "", `{"to":2}`)},
		"index first, then without":     {piece(0, "a", "find", `{"q":1}`), piece(1, "b", "mail", ""), piece(-1, "", "", `{"to":2}`)},
		"name repeated with the index":  {piece(0, "a", "find", `{"q"`), piece(0, "", "find", `:1}`), piece(0, "", "find", ""), piece(1, "b", "mail", `{"to":2}`)},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := read(APIOpenAI, strings.NewReader(streamed(chunks...)), false)
			if diff := cmp.Diff(want, got.Calls); diff != "" || err != nil {
				t.Errorf("%v %s", err, diff)
			}
		})
	}
}

// Calls without ids get ids of ours, so that only names and arguments are compared.
func TestCallsWithoutIDsStayApart(t *testing.T) {
	piece := toolCallPiece
	for name, chunks := range map[string][]string{
		"nothing but names":          {piece(-1, "", "find", `{"q":1}`), piece(-1, "", "mail", `{"to":2}`)},
		"index 0 for all":            {piece(0, "", "find", `{"q":1}`), piece(0, "", "mail", `{"to":2}`)},
		"in pieces":                  {piece(-1, "", "find", ""), piece(-1, "", "", `{"q":1}`), piece(-1, "", "mail", `{"t`), piece(-1, "", "", `o":2}`)},
		"names repeated":             {piece(-1, "", "find", `{"q"`), piece(-1, "", "find", `:1}`), piece(-1, "", "mail", ""), piece(-1, "", "mail", `{"to":2}`)},
		"with index, names repeated": {piece(0, "", "find", `{"q"`), piece(0, "", "find", `:1}`), piece(1, "", "mail", `{"to":2}`)},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := read(APIOpenAI, strings.NewReader(streamed(chunks...)), false)
			if err != nil || len(got.Calls) != 2 || got.Calls[0].Name != "find" || got.Calls[0].Arguments != `{"q":1}` || got.Calls[1].Arguments != `{"to":2}` {
				t.Errorf("%v %+v", err, got.Calls)
			}
		})
	}

	twice := []string{piece(0, "", "find", `{"q":1}`), piece(0, "", "find", `{"q":2}`)}
	got, err := read(APIOpenAI, strings.NewReader(streamed(twice...)), false)
	if err != nil || len(got.Calls) != 2 || got.Calls[1].Arguments != `{"q":2}` {
		t.Errorf("one tool twice: %v %+v", err, got.Calls)
	}
	whole := `{"choices":[{"message":{"tool_calls":[` + piece(-1, "", "find", "") + "," + piece(-1, "", "find", "") + `]},"finish_reason":"tool_calls"}]}`
	if got, err := read(APIOpenAI, strings.NewReader(whole), true); err != nil || len(got.Calls) != 2 {
		t.Errorf("one tool twice in a whole answer: %v %+v", err, got.Calls)
	}
}

// An answer whose pieces cannot be told apart fails; the engine may ask the model again.
func TestAmbiguousCallsFail(t *testing.T) {
	piece := toolCallPiece
	for name, chunks := range map[string][]string{
		"arguments first":                   {piece(0, "", "", `{"q":1}`)},
		"an index that no call has":         {piece(0, "a", "find", ""), piece(1, "", "", `{"q":1}`)},
		"an id that no call has":            {piece(-1, "a", "find", ""), piece(-1, "b", "", `{"q":1}`)},
		"index and id of two calls":         {piece(0, "a", "find", ""), piece(1, "b", "mail", ""), piece(0, "b", "", `{"q":1}`)},
		"one id for two tools":              {piece(-1, "a", "find", ""), piece(-1, "a", "mail", `{"q":1}`)},
		"one index for all, and unknown id": {piece(0, "a", "find", ""), piece(0, "b", "mail", ""), piece(0, "c", "", `{"q":1}`)},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := read(APIOpenAI, strings.NewReader(streamed(chunks...)), false); !errors.Is(err, errAmbiguous) {
				t.Errorf("the error is %v", err)
			}
			server := newScript(t, recorded{body: streamed(chunks...)})
			var failed error
			for _, err := range server.connect(t, APIOpenAI).Stream(t.Context(), Request{Model: "m"}) {
				failed = err
			}
			if failed == nil || fault.Of(failed).Permanent {
				t.Errorf("the failure cannot be repeated: %v", failed)
			}
		})
	}
}

// FuzzOpenAICalls writes two calls in pieces in any order, each with what names its call, and the arguments come to the right ones.
func FuzzOpenAICalls(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5}, uint8(0))
	f.Add([]byte{7, 7, 1, 0, 9}, uint8(1))
	f.Add([]byte{1, 1, 0}, uint8(2))
	f.Add([]byte{5, 2, 8}, uint8(3))
	f.Fuzz(func(t *testing.T, order []byte, how uint8) {
		ids, names := []string{"a", "b"}, []string{"find", "mail"}
		write := func(call int, begins bool, arguments string) string {
			index, id, name := call, ids[call], names[call]
			switch how % 4 {
			case 0: // as the API says
				if !begins {
					id, name = "", ""
				}
			case 1: // by id
				index = -1
				if !begins {
					name = ""
				}
			case 2: // one index for all
				index = 0
			case 3: // all of it, without an index
				index = -1
			}
			return toolCallPiece(index, id, name, arguments)
		}
		chunks, want := []string{write(0, true, ""), write(1, true, "")}, []string{"", ""}
		for _, at := range order {
			call, text := int(at%2), fmt.Sprint(at)
			chunks, want[call] = append(chunks, write(call, false, text)), want[call]+text
		}
		got, err := read(APIOpenAI, strings.NewReader(streamed(chunks...)), false)
		if err != nil || len(got.Calls) != 2 || got.Calls[0].Arguments != want[0] || got.Calls[1].Arguments != want[1] {
			t.Errorf("%v %+v, want %q", err, got.Calls, want)
		}
	})
}
