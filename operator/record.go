package operator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/recording"
	"inbox/internal/simulation"
	"inbox/normalized"
)

// Recording is a message with what became of it, without secrets.
type Recording = recording.Recording

// RecordOptions say how messages are recorded.
type RecordOptions struct {
	Names     bool // people keep their names and addresses
	Originals bool // messages as they came, with everything in them, are recorded, too
}

// Recorder makes recordings of one set: the same person has the same pseudonym in all of them. It is for one goroutine.
type Recorder struct {
	operator *Operator
	options  RecordOptions
	scrubber *recording.Scrubber
}

// Recorder makes one.
func (o *Operator) Recorder(options RecordOptions) *Recorder {
	return &Recorder{o, options, recording.NewScrubber(o.options.Config.Domain, !options.Names)}
}

// Record makes a recording of the message that any id names. fault.NotFound without one, fault.Conflict while nothing has become of it yet
// or when what was said in it is gone.
func (r *Recorder) Record(ctx context.Context, id string) (Recording, error) {
	shown, err := r.operator.Messages.Show(ctx, id)
	switch {
	case err != nil:
		return Recording{}, err
	case !exchange.Settled(shown.Turn.State):
		return Recording{}, fault.New(fault.Conflict, "the message is "+shown.Turn.State+": wait until something has become of it")
	case len(shown.Turn.Message.Parts) == 0:
		return Recording{}, fault.New(fault.Conflict, "what was said in the message was removed")
	}

	made := recording.Of(shown.Turn, recording.ToolsOf(shown.Events), r.scrubber)
	if r.options.Originals {
		made.Original, err = r.operator.original(ctx, shown.Turn.Message.Raw)
	}
	return made, err
}

// maxOriginal bounds an original that is recorded, in bytes: more than any channel takes.
const maxOriginal = 64 << 20

// original returns a message as it came; nil when it is not kept any more.
func (o *Operator) original(ctx context.Context, raw normalized.Raw) ([]byte, error) {
	digest, is := strings.CutPrefix(raw.Ref, "sha256:")
	if !is {
		return nil, nil
	}
	kept, err := o.options.Store.Original(ctx, digest)
	switch {
	case fault.Is(err, fault.NotFound):
		return nil, nil
	case err != nil:
		return nil, err
	case kept.Body != nil:
		return kept.Body, nil
	}

	files, err := o.options.Files()
	if err != nil {
		return nil, err
	}
	from, err := files.Open(ctx, digest)
	if err != nil {
		return nil, err
	}
	defer func() { _ = from.Close() }()
	return io.ReadAll(io.LimitReader(from, maxOriginal))
}

// lookAtWaiting is how often a recorder looks whether something has become of messages.
const lookAtWaiting = 250 * time.Millisecond

// Follow records messages that come from now on, each once it has ended or waits for someone, until ctx ends or take wants no more. Ready is
// called once nothing is missed any more. It returns how many messages had not ended by then.
func (r *Recorder) Follow(ctx context.Context, filter exchange.ArrivalFilter, ready func(), take func(Recording) (more bool, err error)) (unfinished int, err error) {
	after, err := r.operator.Arrivals.Newest(ctx)
	if err != nil {
		return 0, err
	}
	ready()

	var open []string
	for {
		turns, next, err := r.operator.Arrivals.After(ctx, filter, after, lookAtWaiting, nil)
		if err != nil {
			return len(open), unlessOver(ctx, err)
		}
		after = next
		for i := range turns {
			open = append(open, turns[i].ID)
		}

		waiting := open
		open = nil
		for i, id := range waiting {
			made, err := r.Record(ctx, id)
			switch {
			case fault.Is(err, fault.Conflict):
				if turn, err := r.operator.Messages.Turn(ctx, id); err == nil && !exchange.Settled(turn.State) {
					open = append(open, id)
				}
				continue
			case fault.Is(err, fault.NotFound): // it was erased meanwhile
				continue
			case err != nil:
				return len(open) + len(waiting) - i, unlessOver(ctx, err)
			}
			if more, err := take(made); !more || err != nil {
				return len(open) + len(waiting) - i - 1, err
			}
		}
	}
}

// unlessOver drops the error of what ended because its context did.
func unlessOver(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the end of what was asked for
	}
	return err
}

// ReplayOptions say how recordings are sent again.
type ReplayOptions struct {
	Agent   string        // gets all of them; empty = the agents that got them first
	Compare string        // one of Comparisons
	Wait    time.Duration // for what becomes of each
}

// Comparisons lists how closely a replay can be compared.
func Comparisons() []string { return recording.Comparisons() }

// Difference is one thing that is not as it was recorded.
type Difference = recording.Difference

// Replayed is what became of a recording that was sent again.
type Replayed struct {
	ID          string       `json:"id"` // of the recording
	Agent       string       `json:"agent"`
	Channel     string       `json:"channel"`
	Question    string       `json:"question"`
	TurnID      string       `json:"turn_id,omitempty"` // of the new message; empty where none was stored
	Skipped     string       `json:"skipped,omitempty"` // why it was not sent; empty = it was
	Differences []Difference `json:"differences"`
}

// ReadRecordings reads the recordings of a directory, which may be someone else's.
func ReadRecordings(directory string) ([]Recording, error) {
	found, err := recording.Read(directory)
	if err != nil {
		return nil, fault.Wrap(fault.Malformed, err.Error(), err)
	}
	return found, nil
}

// Replay sends recorded messages to the running server, in their order and conversations, and tells of each what differs. It ends
// with the first that cannot be sent.
func (o *Operator) Replay(ctx context.Context, recordings []Recording, options ReplayOptions, tell func(Replayed) error) (err error) {
	simulator := o.Simulator(PeerOptions{})
	defer func() { err = errors.Join(err, simulator.Close(ctx)) }()

	scrubber := recording.NewScrubber(o.options.Config.Domain, true)
	threads := map[string]*Simulated{}
	for i := range recordings {
		one := &recordings[i].Message
		replayed := Replayed{ID: one.ID, Agent: one.Agent, Channel: one.Channel, Question: one.Text(), Differences: []Difference{}}
		if options.Agent != "" {
			replayed.Agent = options.Agent
		}

		message, skipped := again(one)
		if replayed.Skipped = skipped; skipped == "" {
			thread := replayed.Agent + " " + one.Channel + " " + one.Thread + " " + one.Sender.Address
			message.Agent, message.Follows = replayed.Agent, threads[thread]
			simulated, err := simulator.Send(ctx, message, options.Wait)
			if err != nil {
				return fmt.Errorf("recording %s: %w", one.ID, err)
			}
			threads[thread] = &simulated

			actual := recording.Expected{State: simulated.Outcome}
			if shown := simulated.Message; shown != nil {
				replayed.TurnID = shown.Turn.ID
				actual = recording.ExpectedOf(shown.Turn, recording.ToolsOf(shown.Events), scrubber)
			}
			replayed.Differences = append(replayed.Differences, recording.Compare(recordings[i].Expected, actual, options.Compare, scrubber)...)
		}
		if err := tell(replayed); err != nil {
			return err
		}
	}
	return nil
}

// waysOfChannels are the ways by which messages of a channel are sent again.
var waysOfChannels = map[string]string{"activitypub": simulation.Mention, "email": simulation.Mail, "a2a": simulation.Task, "chat": simulation.Chat}

// again makes the message that is sent for a recorded one, or says why none is.
func again(recorded *recording.Message) (message Simulation, skipped string) {
	way, known := waysOfChannels[recorded.Channel]
	if !known {
		return message, "messages of the channel " + recorded.Channel + " cannot be simulated"
	}

	message = Simulation{Way: way, From: senderName(recorded.Sender.Address), Text: recorded.Text()}
	if !recorded.Sender.Verified {
		switch way {
		case simulation.Mail:
			message.Fault = "unsigned"
		case simulation.Chat:
			message.Fault = "no-token"
		}
	}
	if way == simulation.Mail {
		message.Subject = recorded.Subject
	}
	if way == simulation.Mail || way == simulation.Mention {
		message.Language = recorded.Language
	}
	for _, part := range recorded.Parts {
		if (part.Kind == normalized.PartFile || part.Kind == normalized.PartArtifact) && len(message.Files) < simulation.MaxFiles {
			message.Files = append(message.Files, SimulatedFile{Name: part.Name, MIME: part.MIME, Content: filler(part.Size)})
		}
	}
	if message.Text == "" && len(message.Files) == 0 {
		return message, "the message has neither text nor files that were recorded"
	}
	return message, ""
}

// maxFiller bounds a file that stands for one that was recorded, in bytes.
const maxFiller = 1 << 20

// filler is a file of the size, or of one line where that is not known.
func filler(size int64) []byte {
	line := []byte("The bytes of this file were not recorded.\n")
	if size <= 0 {
		return line
	}
	size = min(size, maxFiller)
	return bytes.Repeat(line, int(size)/len(line)+1)[:size]
}

// senderName is the local part of an address, as far as a simulated sender can have it.
func senderName(address string) string {
	local, _, _ := strings.Cut(strings.TrimPrefix(address, "@"), "@")
	local = strings.TrimPrefix(local, simulation.TokenPrefix)
	name := strings.Map(func(r rune) rune {
		if r < 'A' && (r < '0' || r > '9') || r > 'z' || r > 'Z' && r < 'a' {
			return '-'
		}
		return r
	}, local)
	return strings.Trim(name[:min(len(name), 40)], "-")
}

// PrepareRecordings makes a directory for recordings, which must be new or empty.
func PrepareRecordings(directory string) error { return recording.Prepare(directory) }
