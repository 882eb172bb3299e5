package operator

import (
	"context"
	"slices"
	"strings"
	"time"

	"inbox/engine/store"
	"inbox/internal/disk"
	"inbox/internal/fault"
)

// Statistics are what came in, by hour or day and channel. A running server counts them from the messages about once a minute.
type Statistics struct{ store *store.Store }

// Steps of statistics.
const (
	StepHour = "hour"
	StepDay  = "day"
)

// The longest times of which statistics are read at once.
const (
	longestHours = 31 * 24 * time.Hour
	longestDays  = 400 * 24 * time.Hour
)

// Traffic is what came in since a time.
type Traffic struct {
	Since time.Time `json:"since"` // beginning of a step, UTC
	Until time.Time `json:"until"` // end of the last step, UTC
	Step  string    `json:"step"`
	Agent string    `json:"agent,omitempty"` // empty = all

	Channels []ChannelTraffic `json:"channels"` // sums, by name
	Steps    []TrafficStep    `json:"steps"`    // the oldest first; steps in which nothing came are left out
}

// TrafficStep is what came in by one channel within an hour or a day.
type TrafficStep = store.Traffic

// ChannelTraffic is what came in by one channel.
type ChannelTraffic struct {
	TrafficStep

	P95 int64 `json:"p95_ms"` // 95 of 100 answers took no longer, in milliseconds: from the buckets of took; 0 without answers
}

// Read returns what was counted since a time: of at most 31 days by hour, of 400 by day. Since is brought to the beginning of its step.
// Errors are fault.Malformed.
func (s Statistics) Read(ctx context.Context, agent, step string, since time.Time) (found Traffic, err error) {
	length, longest := time.Hour, longestHours
	switch step {
	case StepHour:
	case StepDay:
		length, longest = 24*time.Hour, longestDays
	default:
		return found, fault.InField("step", `must be "hour" or "day"`)
	}

	until := time.Now().UTC().Truncate(length).Add(length)
	if since.After(until) || until.Sub(since) > longest+length {
		return found, fault.InField("since", "must be in the past, at most 31 days ago by hour and 400 days by day")
	}
	found = Traffic{Since: since.UTC().Truncate(length), Until: until, Step: step, Agent: agent}
	steps, err := s.store.Traffic(ctx, store.TrafficFilter{Since: found.Since, Until: until, Step: length, Agent: agent})
	found.Steps = listed(steps)
	found.Channels = byChannel(steps)
	return found, err
}

func byChannel(steps []TrafficStep) []ChannelTraffic {
	sums := []ChannelTraffic{}
	for _, one := range steps {
		i, found := slices.BinarySearchFunc(sums, one.Channel, func(c ChannelTraffic, name string) int { return strings.Compare(c.Channel, name) })
		if !found {
			sums = slices.Insert(sums, i, ChannelTraffic{TrafficStep: TrafficStep{Channel: one.Channel}})
		}
		sums[i].Add(one)
	}
	for i := range sums {
		sums[i].P95 = sums[i].Took.Quantile(.95).Milliseconds()
	}
	return sums
}

// Room is what the database takes and what the disk of data_dir has left, in bytes.
type Room struct {
	DatabaseBytes    int64 `json:"database_bytes"`
	DataDirFreeBytes int64 `json:"data_dir_free_bytes"`
}

// Room looks at sizes alone, which costs nothing worth a mention.
func (u Usage) Room(ctx context.Context) (room Room, err error) {
	if room.DatabaseBytes, err = u.store.Size(ctx); err != nil {
		return room, err
	}
	room.DataDirFreeBytes, err = disk.Free(u.dataDir)
	return room, err
}
