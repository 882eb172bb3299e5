package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"inbox/agents"
	"inbox/agents/agenttest"
	"inbox/agents/upstream"
	"inbox/internal/await"
	"inbox/internal/children"
	"inbox/internal/fault"
	"inbox/normalized"
)

// TestMain plays the programs of the tests, too: the test binary is started again with a mode.
func TestMain(m *testing.M) {
	if mode := os.Getenv("COMMAND_TEST"); mode != "" {
		os.Exit(play(mode, os.Args[1:]))
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(children.Starter))
}

// play is one program; it returns the exit code.
func play(mode string, arguments []string) int {
	switch mode {
	case "answer":
		var document Request
		if err := json.NewDecoder(os.Stdin).Decode(&document); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		_ = json.NewEncoder(os.Stdout).Encode(normalized.Response{Parts: []normalized.Part{
			normalized.Text("got it: " + normalized.PlainText(document.Message.Parts)),
		}})
	case "text":
		text, _ := io.ReadAll(os.Stdin)
		fmt.Printf("read %t\n\n", len(text) > 0)
	case "deaf":
		fmt.Print(`{"parts":[{"kind":"text","mime":"text/plain","content":"I do not listen."}]}`)
	case "print":
		fmt.Print(strings.Join(arguments, "\n"))
	case "variables":
		variables := os.Environ()
		slices.Sort(variables)
		fmt.Print(strings.Join(variables, "\n"))
	case "directory":
		directory, _ := os.Getwd()
		fmt.Print(directory)
	case "endless":
		for {
			fmt.Print(strings.Repeat("x", 4096))
		}
	case "chatty":
		fmt.Fprint(os.Stderr, strings.Repeat("a", 3*MaxStderrBytes), "the end")
		fmt.Print("done")
	case "exit":
		fmt.Fprintln(os.Stderr, "the disk is full")
		var code int
		_, _ = fmt.Sscan(arguments[0], &code)
		return code
	case "stuck", "child":
		hold(arguments)
		linger()
	case "daemon": // leaves its session, and its parent dies
		spawnApart("runaway", arguments)
		fmt.Print("done")
	case "stuck with daemon":
		spawnApart("runaway", arguments)
		hold(arguments)
		linger()
	case "runaway":
		spawnApart("child", arguments)
	case "parent", "family":
		spawn("child", arguments)
		if mode == "family" {
			hold(arguments)
			linger()
		}
		fmt.Print("done")
	case "server":
		return serve(arguments)
	}
	return 0
}

// hold connects to the test, which so sees when the process dies.
func hold(arguments []string) {
	if len(arguments) == 0 {
		return
	}
	connection, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", arguments[0])
	if err != nil {
		panic(err)
	}
	held = connection
}

var held net.Conn // keeps the connection from being collected

// linger lives on until it is killed, but not longer than the test, which has the other end of its connection.
func linger() {
	if held == nil {
		<-time.After(5 * time.Minute) // not select {}: without another goroutine the runtime would call that a deadlock
		return
	}
	_, _ = io.Copy(io.Discard, held)
}

// spawn starts a process that keeps the streams open, and waits until it runs.
func spawn(mode string, arguments []string) {
	child := exec.CommandContext(context.Background(), os.Args[0], arguments...)
	child.Env = append(os.Environ(), "COMMAND_TEST="+mode)
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := child.Start(); err != nil {
		panic(err)
	}
	_, _ = (&net.Dialer{}).DialContext(context.Background(), "tcp", arguments[0]) // the second connection of the family
}

// spawnApart starts a process in a session of its own, which keeps none of the streams, and waits until the child below it runs.
func spawnApart(mode string, arguments []string) {
	child := exec.CommandContext(context.Background(), os.Args[0], arguments...)
	child.Env = append(os.Environ(), "COMMAND_TEST="+mode)
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := child.Start(); err != nil {
		panic(err)
	}
	_, _ = (&net.Dialer{}).DialContext(context.Background(), "tcp", arguments[0])
}

// serve is a server that runs the agent "stuck" until it is killed.
func serve(arguments []string) int {
	mode := "stuck"
	if other := os.Getenv("COMMAND_TEST_PROGRAM"); other != "" {
		mode = other
	}
	agent, err := New(Options{Program: os.Args[0], Arguments: arguments, Environment: []string{"COMMAND_TEST=" + mode}})
	if err != nil {
		panic(err)
	}
	_, err = ask(context.Background(), agent)
	panic(err) // it is killed before
}

// quickEnd keeps programs with the race detector from sleeping for a second when they end.
const quickEnd = "GORACE=atexit_sleep_ms=0"

// playing makes an agent whose program is the mode.
func playing(t *testing.T, mode string, change func(*Options)) *Agent {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	options := Options{Program: binary, Environment: []string{"COMMAND_TEST=" + mode, quickEnd}, Output: OutputText}
	if change != nil {
		change(&options)
	}
	return made(t, options)
}

func made(t *testing.T, options Options) *Agent {
	t.Helper()
	if options.Logger == nil {
		options.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	agent, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	return agent
}

func asJSON(options *Options) { options.Output = OutputJSON }

func arguments(list ...string) func(*Options) {
	return func(options *Options) { options.Arguments = list }
}

// ask returns the answer to one turn.
func ask(ctx context.Context, agent agents.Agent) (normalized.Response, error) {
	fold := normalized.NewFold(normalized.DefaultLimits())
	for delta, err := range agent.Handle(ctx, agenttest.Turn("t", agenttest.Messages()["text"])) {
		if err != nil {
			return normalized.Response{}, err
		}
		if err := fold.Add(delta); err != nil {
			return normalized.Response{}, err
		}
	}
	return fold.Response()
}

func said(t *testing.T, agent agents.Agent) string {
	t.Helper()
	response, err := ask(t.Context(), agent)
	if err != nil {
		t.Fatal(err)
	}
	return normalized.PlainText(response.Parts)
}

func TestConformance(t *testing.T) {
	for name, create := range map[string]func(t *testing.T) agents.Agent{
		"json": func(t *testing.T) agents.Agent { return playing(t, "answer", asJSON) },
		"text": func(t *testing.T) agents.Agent { return playing(t, "text", nil) },
		"deaf": func(t *testing.T) agents.Agent { return playing(t, "deaf", asJSON) },
	} {
		t.Run(name, func(t *testing.T) {
			agenttest.Suite{
				New:      create,
				NewStuck: func(t *testing.T) agents.Agent { return playing(t, "stuck", nil) },
			}.Run(t)
		})
	}
}

func TestAnswers(t *testing.T) {
	for name, test := range map[string]struct {
		output, printed string
		want            string // part of the answer, or of the error that the operator reads
	}{
		"text":             {OutputText, "  Hello\nyou \n\n", "  Hello\nyou"},
		"text not UTF-8":   {OutputText, "a\xffb", "a\uFFFDb"},
		"silent text":      {OutputText, " \n\t", "<silent>"},
		"json":             {OutputJSON, `{"parts":[{"kind":"text","mime":"text/plain","content":"Hi"}]}`, "Hi"},
		"silent json":      {OutputJSON, `{"silent":true}`, "<silent>"},
		"nothing":          {OutputJSON, " ", "wrote no answer"},
		"no json":          {OutputJSON, "Hello", "The agent gave an answer that could not be used: the document is not JSON at byte 0"},
		"two documents":    {OutputJSON, `{"silent":true}{"silent":true}`, "could not be used"},
		"another question": {OutputJSON, `{"in_reply_to":"x","silent":true}`, "in_reply_to"},
	} {
		t.Run(name, func(t *testing.T) {
			response, err := ask(t.Context(), playing(t, "print", func(options *Options) {
				options.Output, options.Arguments = test.output, []string{test.printed}
			}))
			got := normalized.PlainText(response.Parts)
			if response.Silent {
				got = "<silent>"
			}
			if err != nil {
				got = err.Error()
			}
			if err != nil && !strings.Contains(got, test.want) || err == nil && got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestExitCodes(t *testing.T) {
	for code, want := range map[string]struct {
		permanent bool
		public    string
		cause     string
	}{
		"75": {false, upstream.Busy, `exit status 75: "the disk is full"`},
		"1":  {true, sayFailed, `exit status 1: "the disk is full"`},
		"3":  {true, sayFailed, `exit status 3: "the disk is full"`},
	} {
		_, err := ask(t.Context(), playing(t, "exit", arguments(code)))
		got := fault.Of(err)
		if got.Permanent != want.permanent || got.Public != want.public || !strings.Contains(err.Error(), want.cause) {
			t.Errorf("%s: %+v", code, got)
		}
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("SECRET_OF_THE_SERVER", "x")
	t.Setenv("ALLOWED", "y")
	got := said(t, playing(t, "variables", func(options *Options) {
		options.Environment = []string{"COMMAND_TEST=variables", "ALLOWED", "NOT_THERE", "OWN=a=b"}
	}))
	want := "ALLOWED=y\nCOMMAND_TEST=variables\nINBOX_AGENT=echo\nINBOX_ATTEMPT=1\nINBOX_IDEMPOTENCY_KEY=turn t\nINBOX_TURN_ID=turn t\nOWN=a=b"
	if difference := cmp.Diff(want, got); difference != "" {
		t.Errorf("variables (-want +got):\n%s", difference)
	}
}

func TestDirectory(t *testing.T) {
	directory, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if got := said(t, playing(t, "directory", func(options *Options) { options.Directory = directory })); got != directory {
		t.Errorf("directory = %s, want %s", got, directory)
	}
}

// TestOutputIsLimited: a program that writes without end is stopped. What it wrote until then is its answer, and the answer says that there
// was more.
func TestOutputIsLimited(t *testing.T) {
	const more = "(The rest of the answer is not shown.)"
	limited := func(options *Options) { options.MaxOutputBytes = 100_000 }
	document := func(options *Options) { options.MaxOutputBytes, options.Output = 100_000, OutputJSON }
	if got := said(t, playing(t, "endless", limited)); got != strings.Repeat("x", 99_999)+"\n\n"+more {
		t.Errorf("%d bytes: %q", len(got), got[max(0, len(got)-100):])
	}
	if got := said(t, playing(t, "endless", document)); got != "(The answer is too large to be shown.)" {
		t.Errorf("a document: %q", got)
	}
}

func TestStandardErrorIsLogged(t *testing.T) {
	var log bytes.Buffer
	agent := playing(t, "chatty", func(options *Options) { options.Logger = slog.New(slog.NewJSONHandler(&log, nil)) })
	if got := said(t, agent); got != "done" {
		t.Errorf("answer = %q", got)
	}
	var line struct {
		Agent, Turn, Stderr string
		Dropped             int `json:"dropped_bytes"`
	}
	if err := json.Unmarshal(log.Bytes(), &line); err != nil {
		t.Fatalf("%v: %s", err, log.String())
	}
	if line.Turn != "turn t" || len(line.Stderr) != MaxStderrBytes || !strings.HasSuffix(line.Stderr, "the end") || line.Dropped != 2*MaxStderrBytes+len("the end") {
		t.Errorf("logged %d bytes, dropped %d", len(line.Stderr), line.Dropped)
	}
}

// witness accepts the connections of processes and tells when they are dead.
type witness struct {
	t        *testing.T
	listener net.Listener
}

func newWitness(t *testing.T) witness {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return witness{t, listener}
}

func (w witness) address() string { return w.listener.Addr().String() }

// meet waits for a process.
func (w witness) meet() net.Conn {
	w.t.Helper()
	_ = w.listener.(*net.TCPListener).SetDeadline(time.Now().Add(20 * time.Second))
	connection, err := w.listener.Accept()
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = connection.Close() })
	return connection
}

// mourn fails the test when the process lives on.
func (w witness) mourn(connection net.Conn) {
	w.t.Helper()
	_ = connection.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := connection.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) || err == nil {
		w.t.Errorf("a process lives on: %v", err)
	}
}

func TestCancelKillsTheFamily(t *testing.T) {
	watch := newWitness(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("the operator stopped it")
	done := make(chan error, 1)
	go func() {
		_, err := ask(ctx, playing(t, "family", arguments(watch.address())))
		done <- err
	}()
	family := []net.Conn{watch.meet(), watch.meet(), watch.meet()}
	cancel(reason)
	if err := await.Receive(t, done, "the end of the turn"); !errors.Is(err, reason) {
		t.Errorf("error = %v", err)
	}
	for _, one := range family {
		watch.mourn(one)
	}
}

func TestChildrenDieWithTheAnswer(t *testing.T) {
	watch := newWitness(t)
	started := time.Now()
	if got := said(t, playing(t, "parent", arguments(watch.address()))); got != "done" {
		t.Errorf("answer = %q", got)
	}
	if took := time.Since(started); took > 10*time.Second {
		t.Errorf("it took %v: the child held the answer back", took)
	}
	watch.mourn(watch.meet())
	if late, err := lastGuest(watch); err == nil {
		watch.mourn(late)
	}
}

// lastGuest returns the second process if it came as far as connecting before it was killed.
func lastGuest(watch witness) (net.Conn, error) {
	_ = watch.listener.(*net.TCPListener).SetDeadline(time.Now().Add(100 * time.Millisecond))
	return watch.listener.Accept()
}

func TestProgramsDieWithTheServer(t *testing.T) {
	watch := newWitness(t)
	server := exec.CommandContext(t.Context(), os.Args[0], watch.address())
	server.Env = append(os.Environ(), "COMMAND_TEST=server")
	if err := children.Start(server); err != nil {
		t.Fatal(err)
	}
	program := watch.meet()
	if err := server.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = await.Result(t, server.Wait, "the end of the server") // its error is the kill
	watch.mourn(program)
}

// TestDaemonsDieWithTheAnswer: a child that left the session (setsid) and whose parent is dead outlived the server.
func TestDaemonsDieWithTheAnswer(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has subreapers")
	}
	watch := newWitness(t)
	if got := said(t, playing(t, "daemon", arguments(watch.address()))); got != "done" {
		t.Errorf("answer = %q", got)
	}
	watch.mourn(watch.meet())
	for {
		late, err := lastGuest(watch)
		if err != nil {
			break
		}
		watch.mourn(late)
	}
}

// TestDaemonsDieWithTheServer: also when the server is killed, so that it can do nothing about them.
func TestDaemonsDieWithTheServer(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has subreapers")
	}
	watch := newWitness(t)
	server := exec.CommandContext(t.Context(), os.Args[0], watch.address())
	server.Env = append(os.Environ(), "COMMAND_TEST=server", "COMMAND_TEST_PROGRAM=stuck with daemon")
	if err := children.Start(server); err != nil {
		t.Fatal(err)
	}
	family := []net.Conn{watch.meet(), watch.meet(), watch.meet(), watch.meet()} // both that spawn, the daemon and the program
	if err := server.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = await.Result(t, server.Wait, "the end of the server") // its error is the kill
	for _, one := range family {
		watch.mourn(one)
	}
}

func TestMemoryIsLimited(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal("python3 is missing: install the package python3 (apt-get install python3)")
	}
	take := func(megabytes int) (normalized.Response, error) {
		script := fmt.Sprintf("import sys; sys.stdin.read(); taken = bytearray(%d << 20); print(len(taken))", megabytes)
		return ask(t.Context(), made(t, Options{
			Program: python, Arguments: []string{"-c", script}, MemoryBytes: 128 << 20, Output: OutputText,
		}))
	}
	if _, err := take(32); err != nil {
		t.Errorf("under the limit: %v", err)
	}
	if response, err := take(256); err == nil || !fault.Of(err).Permanent || !strings.Contains(err.Error(), "MemoryError") {
		t.Errorf("over the limit: %+v, %v", response, err)
	}
}

func TestSettings(t *testing.T) {
	for field, options := range map[string]Options{
		"program":      {},
		"program ":     {Program: "no-such-program-anywhere"},
		"memory_bytes": {Program: "true", MemoryBytes: -1},
		"output":       {Program: "true", Output: "xml"},
		"environment":  {Program: "true", Environment: []string{"INBOX_DATABASE_URL"}},
		"environment ": {Program: "true", Environment: []string{"=x"}},
		"directory":    {Program: "true", Directory: "/no/such/directory"},
	} {
		_, err := New(options)
		if got := fault.Of(err); got.Kind != fault.Malformed || got.Field != strings.TrimSpace(field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestProgramIsGone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte("#!/no/such/interpreter\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := ask(t.Context(), made(t, Options{Program: path}))
	if got := fault.Of(err); !got.Permanent || got.Public != sayFailed {
		t.Errorf("error = %v", err)
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"parts":[{"kind":"text","mime":"text/plain","content":"Hi"}]}`), false)
	f.Add([]byte("  Hello\xff\n"), true)
	question := agenttest.Messages()["text"]
	f.Fuzz(func(t *testing.T, output []byte, text bool) {
		options := Options{Output: OutputJSON}.withDefaults()
		if text {
			options.Output = OutputText
		}
		response, err := (&Agent{options}).answer(t.Context(), result{stdout: output}, agents.Turn{Message: question}, placed{})
		if err != nil {
			return
		}
		if err := normalized.ValidateResponse(response, question, options.Limits); err != nil {
			t.Errorf("an invalid answer passed: %v", err)
		}
	})
}
