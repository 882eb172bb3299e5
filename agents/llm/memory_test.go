package llm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"inbox/agents"
	"inbox/agents/agenttest"
	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
	"inbox/history"
	"inbox/identity"
	"inbox/internal/safehttp"
	"inbox/normalized"
)

// grown is a thread that grows by a question and its answer.
type grown struct {
	files  shelf
	thread []normalized.HistoricalMessage
	policy history.Policy
}

// stored returns a file that the shelf has.
func (g *grown) stored(name, mime string, data []byte) normalized.Part {
	digest := normalized.Digest(data)
	g.files[digest] = data
	return normalized.Part{Kind: normalized.PartFile, Name: name, MIME: mime, Size: int64(len(data)), BytesRef: normalized.Stored(digest)}
}

// ask returns the turn of the next question and adds it to the thread, with an answer if it got one.
func (g *grown) ask(answer []normalized.Part, parts ...normalized.Part) agents.Turn {
	turn := agenttest.Turn(fmt.Sprint(len(g.thread)), agenttest.Messages()["text"])
	turn.Message.ID = fmt.Sprintf("m%d", len(g.thread))
	turn.Message.Parts = append([]normalized.Part{normalized.Text(fmt.Sprintf("question %d", len(g.thread)))}, parts...)
	turn.Message.History, turn.HistoryCacheBreakpointAfter = history.TrimThread(history.Thread{Tail: g.thread, Total: len(g.thread)}, g.policy)
	g.thread = append(g.thread, normalized.HistoricalMessage{
		ID: turn.Message.ID, Role: normalized.RoleUser, Sender: turn.Message.Sender, Parts: turn.Message.Parts, Timestamp: turn.Message.ReceivedAt,
	})
	if answer != nil {
		g.thread = append(g.thread, normalized.HistoricalMessage{
			ID: fmt.Sprintf("a%d", len(g.thread)), Role: normalized.RoleAssistant, Sender: normalized.Sender{Address: identity.Stated(turn.Message.Recipient)}, Parts: answer,
		})
	}
	return turn
}

// whole has no window, so that only files can leave.
var whole = history.Policy{KeepHead: 1000, Window: 1000, Slide: 10, Alternation: history.AlternationMerge}

func askedOnce(t testing.TB, files shelf, turn agents.Turn) Request {
	t.Helper()
	var asked []Request
	agent, err := New(Options{Model: "m", Secret: testSecret, Provider: listening(&asked), Files: files})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range agent.Handle(t.Context(), turn) {
		if err != nil {
			t.Fatal(err)
		}
	}
	return asked[0]
}

// beforeTheMark are the bytes of both codecs: up to the last mark, and of the whole conversation.
func beforeTheMark(t testing.TB, request Request) (marked [2][]byte, all [2][]byte) {
	t.Helper()
	write := func(list *[]byte, pieces ...any) {
		for _, piece := range pieces {
			encoded, err := json.Marshal(piece)
			if err != nil {
				t.Fatal(err)
			}
			*list = append(*list, encoded...)
		}
	}

	body := anthropicBody(request)
	for _, message := range body.Messages {
		for _, block := range message.Content {
			mark := block.CacheControl
			block.CacheControl = nil
			write(&all[0], message.Role, block)
			if mark != nil {
				marked[0] = slices.Clone(all[0])
			}
		}
	}

	for _, message := range request.Messages {
		for i, block := range message.Blocks {
			for _, out := range openAIMessages(Message{Role: message.Role, Blocks: []Block{block}}) {
				write(&all[1], out)
			}
			if message.CacheBreakpoint && (i+1 == message.CacheBlocks || message.CacheBlocks == 0 && i+1 == len(message.Blocks)) {
				marked[1] = slices.Clone(all[1])
			}
		}
	}
	return marked, all
}

// stayed reports whether what stood before the mark is the same in the next turn.
func stayed(t testing.TB, before, after Request) bool {
	t.Helper()
	marked, _ := beforeTheMark(t, before)
	_, all := beforeTheMark(t, after)
	return bytes.HasPrefix(all[0], marked[0]) && bytes.HasPrefix(all[1], marked[1])
}

func TestTheFileOfTheFirstTurnIsThereInTheThird(t *testing.T) {
	g := &grown{files: shelf{}, policy: history.DefaultPolicy()}
	answer := []normalized.Part{normalized.Text("ok"), g.stored("made.csv", "text/csv", []byte("plum,7"))}
	g.ask(answer, g.stored("prices.csv", "text/csv", []byte("apple,3\npear,5")), g.stored("all.csv", "text/csv", bytes.Repeat([]byte("x"), 2_000_000)))
	g.ask([]normalized.Part{normalized.Text("ok")})
	asked := allOf(askedOnce(t, g.files, g.ask(nil)))
	for _, want := range []string{"pear,5", "plum,7", "all.csv, 2 MB: too large to show"} {
		if strings.Count(asked, want) != 1 {
			t.Errorf("the third turn has %q not once:\n%.3000s", want, asked)
		}
	}

	clear(g.files)
	if asked := allOf(askedOnce(t, g.files, g.ask(nil))); strings.Contains(asked, "pear,5") || !strings.Contains(asked, "prices.csv, 14 bytes: not available any more") {
		t.Errorf("the erased file is not named as gone:\n%.3000s", asked)
	}
}

func TestThirtyTurnsWithAFileEachKeepTheirPrefix(t *testing.T) {
	for name, policy := range map[string]history.Policy{
		"whole": whole, "the usual window": history.DefaultPolicy(), "off": {KeepHead: 1000, Window: 1000, Slide: 10, Alternation: history.AlternationOff},
	} {
		for _, mime := range []string{"image/png", "text/csv"} {
			t.Run(name+" "+mime, func(t *testing.T) {
				g := &grown{files: shelf{}, policy: policy}
				var before *Request
				marks := 0
				for i := range 30 {
					data := bytes.Repeat([]byte{byte('a' + i%26)}, 20<<10)
					if mime == "image/png" {
						data = append(tinyPNG(t), data...)
					}
					asked := askedOnce(t, g.files, g.ask([]normalized.Part{normalized.Text("answer")}, g.stored(fmt.Sprint(i), mime, data)))
					if before != nil && !stayed(t, *before, asked) {
						t.Fatalf("turn %d changes what stood before the mark", i)
					}
					if marked, _ := beforeTheMark(t, asked); len(marked[0]) > 0 {
						marks++
					}
					before = &asked
				}
				if marks < 24 {
					t.Errorf("only %d of 30 turns have a mark in the conversation", marks)
				}
			})
		}
	}
}

// upTo returns the bytes of a body, as it was sent, up to the last mark of its request.
func upTo(t *testing.T, api string, body []byte, request Request) []byte {
	t.Helper()
	cut := request
	cut.Messages = nil
	for i, message := range request.Messages {
		if !message.CacheBreakpoint {
			continue
		}
		cut.Messages = slices.Clone(request.Messages[:i+1])
		if message.CacheBlocks > 0 {
			cut.Messages[i].Blocks = message.Blocks[:message.CacheBlocks]
		}
	}
	if cut.Messages == nil {
		return nil
	}

	var messages any = (&openAI{}).body(cut).Messages
	if api == APIAnthropic {
		messages = anthropicBody(cut).Messages
	}
	var encoded bytes.Buffer
	encoder := json.NewEncoder(&encoded)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(messages); err != nil {
		t.Fatal(err)
	}
	before, _, found := bytes.Cut(body, []byte(`"messages":[`))
	prefix := slices.Concat(before, []byte(`"messages":`), bytes.TrimRight(bytes.TrimSpace(withoutMarks(encoded.Bytes())), "]}"))
	if !found || !bytes.HasPrefix(body, prefix) {
		t.Fatalf("the mark is not in the body: the test does not test")
	}
	return prefix
}

func withoutMarks(body []byte) []byte {
	return bytes.ReplaceAll(body, []byte(`,"cache_control":{"type":"ephemeral"}`), nil)
}

// TestThirtyBodiesWithAPictureEachBeginAlike: what is sent up to the mark, with everything before the conversation, is sent again byte for byte
// in the next turn.
func TestThirtyBodiesWithAPictureEachBeginAlike(t *testing.T) {
	for name, policy := range map[string]history.Policy{
		"whole": whole, "the usual window": history.DefaultPolicy(), "off": {KeepHead: 1000, Window: 1000, Slide: 10, Alternation: history.AlternationOff},
	} {
		for api, answer := range map[string]string{APIOpenAI: openAIHello, APIAnthropic: anthropicHello} {
			t.Run(name+" "+api, func(t *testing.T) {
				g := &grown{files: shelf{}, policy: policy}
				server := newScript(t, recorded{body: answer})
				over := server.connect(t, api)
				var asked []Request
				provider := modelFunc(func(ctx context.Context, request Request, yield func(Delta) bool) error {
					asked = append(asked, request)
					for delta, err := range over.Stream(ctx, request) {
						if err != nil || !yield(delta) {
							return err
						}
					}
					return nil
				})
				tools := &toolbox{entries: []tool.Entry{declare("find", nil), declare("pay", nil)}}
				agent := newAgent(t, Options{Provider: provider, Files: g.files, Tools: []Tools{tools}, System: "You are kind."})

				var before []byte
				marks := 0
				for i := range 30 {
					picture := append(tinyPNG(t), bytes.Repeat([]byte{byte(i)}, 1<<10)...)
					turn := g.ask([]normalized.Part{normalized.Text("answer")}, g.stored(fmt.Sprint(i), "image/png", picture))
					if _, _, err := fold(t.Context(), t, agent, turn); err != nil {
						t.Fatal(err)
					}
					body := withoutMarks(server.bodies[i])
					if !bytes.HasPrefix(body, before) {
						t.Fatalf("the body of turn %d does not begin as the one before", i)
					}
					for member, value := range server.asked[i] {
						if member != "messages" && !reflect.DeepEqual(value, server.asked[0][member]) {
							t.Errorf("%s of turn %d is %v", member, i, value)
						}
					}
					if before = upTo(t, api, body, asked[i]); before != nil {
						marks++
					}
				}
				if marks < 24 {
					t.Errorf("only %d of 30 bodies have a mark", marks)
				}
			})
		}
	}
}

// Where the mark is, nothing changes with the next turn, unless the window moved.
func TestThePrefixStaysAsThreadsGrow(t *testing.T) {
	png := tinyPNG(t)
	rapid.Check(t, func(r *rapid.T) {
		g := &grown{files: shelf{}, policy: whole}
		g.policy.Alternation = rapid.SampledFrom([]history.Alternation{history.AlternationMerge, history.AlternationOff}).Draw(r, "alternation")
		file := func(at string) normalized.Part {
			size := rapid.IntRange(1, 70<<10).Draw(r, at+" size")
			if rapid.Bool().Draw(r, at+" picture") {
				return g.stored(at, "image/png", append(slices.Clone(png), make([]byte, size)...))
			}
			return g.stored(at, "text/plain", bytes.Repeat([]byte("x"), size))
		}
		var before *Request
		for i := range rapid.IntRange(2, 20).Draw(r, "turns") {
			var parts, answer []normalized.Part
			for k := range rapid.IntRange(0, 3).Draw(r, "files") {
				parts = append(parts, file(fmt.Sprintf("q%d.%d", i, k)))
			}
			if rapid.IntRange(0, 4).Draw(r, "answered") > 0 {
				answer = []normalized.Part{normalized.Text("answer")}
				if rapid.IntRange(0, 4).Draw(r, "answer's file") == 0 {
					answer = append(answer, file(fmt.Sprintf("a%d", i)))
				}
			}
			asked := askedOnce(t, g.files, g.ask(answer, parts...))
			if before != nil && !stayed(t, *before, asked) {
				r.Fatalf("turn %d changes what stood before the mark", i)
			}
			before = &asked
		}
	})
}

func TestPicturesStayWithinWhatProvidersTake(t *testing.T) {
	g := &grown{files: shelf{}, policy: whole}
	for i := range 20 {
		data := append(tinyPNG(t), bytes.Repeat([]byte{byte(i)}, 3<<20)...)
		asked := askedOnce(t, g.files, g.ask([]normalized.Part{normalized.Text("ok")}, g.stored(fmt.Sprint(i), "image/png", data)))
		count, size := 0, 0
		for _, message := range asked.Messages {
			for _, block := range message.Blocks {
				if block.Kind == BlockImage {
					count, size = count+1, size+len(block.Data)
				}
			}
		}
		if count > maxImages || size > maxImagesSum || count == 0 {
			t.Errorf("turn %d has %d pictures of %d bytes", i, count, size)
		}
	}
}

// TestLargePicturesAtAddressesMoveNoMark: how large a picture at an address is shows when it is fetched. If many are larger than was assumed, the mark
// is before those whose room the next picture may take.
func TestLargePicturesAtAddressesMoveNoMark(t *testing.T) {
	large := append(tinyPNG(t), make([]byte, 4<<20)...)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(large) }))
	t.Cleanup(server.Close)
	client := safehttp.New(safehttp.Options{AllowPrivate: true})
	t.Cleanup(client.Close)

	g := &grown{policy: whole}
	var before *Request
	marks := 0
	for i := range 7 {
		var asked []Request
		turn := g.ask([]normalized.Part{normalized.Text("answer")}, normalized.Part{Kind: normalized.PartFile, MIME: "image/png", BytesRef: normalized.At(fmt.Sprintf("%s/%d", server.URL, i))})
		if _, _, err := fold(t.Context(), t, newAgent(t, Options{Provider: listening(&asked), Client: client}), turn); err != nil {
			t.Fatal(err)
		}
		if before != nil && !stayed(t, *before, asked[0]) {
			t.Fatalf("turn %d changes what stood before the mark", i)
		}
		if marked, _ := beforeTheMark(t, asked[0]); len(marked[0]) > 0 {
			marks++
		}
		before = &asked[0]
	}
	if marks == 0 {
		t.Error("no turn has a mark")
	}
}

// TestTheMarkIsBeforeTheRequest: with alternation off a question can follow a question in one message of the provider's.
func TestTheMarkIsBeforeTheRequest(t *testing.T) {
	g := &grown{files: shelf{}, policy: history.Policy{KeepHead: 1000, Window: 1000, Slide: 10, Alternation: history.AlternationOff}}
	g.ask(nil)
	body := anthropicBody(askedOnce(t, g.files, g.ask(nil)))
	content := body.Messages[0].Content
	if len(body.Messages) != 1 || len(content) != 2 || content[0].CacheControl == nil || content[1].CacheControl != nil {
		t.Errorf("the marks are %+v", body.Messages)
	}
}

// keyed are messages of a history with keys.
func keyed(texts ...string) []envelope.Envelope {
	list := make([]envelope.Envelope, len(texts))
	for i, text := range texts {
		list[i] = remembered(envelope.UserText(text, nil), text[:1])
	}
	return list
}

func TestSummariesStandForMessagesAndNotForPlaces(t *testing.T) {
	summary := envelope.UserText("SUMMARY", nil)
	for name, c := range map[string]struct{ now, want string }{
		"as it was":          {"a b c d", "SUMMARY c d"},
		"one more at first":  {"x a b c d", "x SUMMARY c d"},
		"one more inside":    {"a x b c d", "SUMMARY x c d"},
		"the window slid":    {"b c d e", "b c d e"},
		"one was edited":     {"a b2 c d", "a b2 c d"},
		"one was deleted":    {"a c d", "a c d"},
		"a later one edited": {"a b c2 d", "SUMMARY c2 d"},
	} {
		t.Run(name, func(t *testing.T) {
			n := &note{Version: noteVersion}
			n.behead(keyed("a", "b"), summary)
			encoded, err := json.Marshal(n)
			if err != nil {
				t.Fatal(err)
			}
			given, err := value.Decode(encoded, value.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			n = &note{}
			if err := n.read(given); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, message := range n.shorten(keyed(strings.Fields(c.now)...)) {
				got = append(got, message.Text())
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("the model reads %q", got)
			}
			if used := strings.Contains(c.want, "SUMMARY"); used != (n.Head != nil) {
				t.Error("a summary that is not used is kept")
			}
		})
	}
}

// A note of the previous form counts the messages; which ones these were is not known any more.
func TestNotesThatCountLoad(t *testing.T) {
	n := &note{}
	older := map[string]any{"version": int64(noteVersion), "head": map[string]any{"count": int64(2), "summary": envelope.UserText("SUMMARY", nil).Value()}}
	if err := n.read(older); err != nil || len(n.shorten(keyed("a", "b", "c"))) != 3 {
		t.Errorf("%v %+v", err, n.Head)
	}
}

// After a wait, a turn shows the model the same files again. Its note has the keys of the files, not their contents.
func TestATurnIsShownTheSameFilesAgain(t *testing.T) {
	g := &grown{files: shelf{}, policy: whole}
	turn := g.ask(nil, g.stored("prices.csv", "text/csv", []byte("pear,5")))
	turn.Permits = permitAll
	kept := &memory{}
	turn.Memory = kept
	var asked []Request
	tools := &toolbox{entries: []tool.Entry{declare("pay", map[string]any{"action_policy": "preview"})}}
	decides := &owner{}
	agent := newAgent(t, Options{Provider: narrow(1<<20, &asked, calls("pay", "{}"), says("Paid.")), Files: g.files, Tools: []Tools{tools}, Approvals: decides})
	if _, _, err := fold(t.Context(), t, agent, turn); err != nil {
		t.Fatal(err)
	}
	saved, err := kept.Load(t.Context())
	if err != nil || strings.Contains(string(saved), "pear,5") || !strings.Contains(string(saved), `"shown":["m0/1/`) {
		t.Errorf("the note is %s %v", saved, err)
	}
	decides.verdict = map[string]any{"success": true, "result": "paid"}
	if _, _, err := fold(t.Context(), t, agent, turn); err != nil || !strings.Contains(allOf(asked[1]), "pear,5") {
		t.Errorf("%v", err)
	}
}

func TestSummariesOfVeryMuchAreBoundedVisibly(t *testing.T) {
	var asked []Request
	agent := newAgent(t, Options{Provider: narrow(1<<20, &asked, says("ok")), Compaction: &Compaction{Threshold: 4 << 10, Keep: 1, Archive: &cellar{}}})
	turn := talked("very much", 4, 150<<10)
	turn.Message.History[2].Parts = append(turn.Message.History[2].Parts, normalized.Text("THE END"))
	if _, _, err := fold(t.Context(), t, agent, turn); err != nil {
		t.Fatal(err)
	}
	last := len(asked) - 1
	if last > maxPieces || !strings.Contains(allOf(asked[last]), "(left out ") || !slices.ContainsFunc(asked[:last], func(r Request) bool { return strings.Contains(allOf(r), "THE END") }) {
		t.Errorf("%d calls, then %.600s", last, allOf(asked[last]))
	}
}
