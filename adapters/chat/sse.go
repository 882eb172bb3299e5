package chat

import (
	"context"
	"encoding/json"
	"net/http"

	"inbox/internal/httpserver"
)

// eventWriter writes the events of a run for one reader.
type eventWriter struct{ out *httpserver.EventWriter }

func openEvents(ctx context.Context, w http.ResponseWriter, options Options, stop func()) eventWriter {
	return eventWriter{httpserver.OpenEvents(ctx, w, httpserver.EventOptions{
		KeepAlive: options.KeepAlive, WriteTimeout: options.WriteTimeout, Dropped: dropped.Inc,
	}, stop)}
}

// write sends events; the last of them carries the id, if there is one. It reports whether the reader is still there.
func (e eventWriter) write(id string, events ...event) bool {
	list := make([]httpserver.Event, len(events))
	for i, one := range events {
		list[i] = httpserver.Event{Name: one.name, Data: encode(one.data)}
		if i == len(events)-1 {
			list[i].ID = id
		}
	}
	return e.out.Write(list...)
}

// raw is data that is written as it is.
type raw string

func encode(data any) []byte {
	if text, is := data.(raw); is {
		return []byte(text)
	}
	body, err := json.Marshal(data)
	if err != nil {
		panic(err) // a value of ours that cannot be encoded
	}
	return body
}
