package chat

import (
	"inbox/adapters/chat/contract"
	"inbox/exchange"
)

// rpcFrames are the frames of JSON-RPC chat: message/delta notifications, then one response.
type rpcFrames struct {
	adapter *Adapter
	id      any  // of the request
	silent  bool // the client wants the answer whole
}

func (rpcFrames) begin(run) []event { return nil }

func (f *rpcFrames) delta(found run, delta contract.Delta) []event {
	if f.silent {
		return nil
	}
	return []event{{data: contract.DeltaFrame(found.route.Run, delta)}}
}

func (f *rpcFrames) end(found run, _ []exchange.Event) []event {
	var list []event
	for _, delta := range callDeltas(found.calls) {
		list = append(list, f.delta(found, delta)...)
	}
	return append(list, event{data: f.adapter.lastFrame(f.id, found)})
}

// methodResume is the notification that ends a stream before its run.
const methodResume = "message/resume"

// broken tells where to go on: the same request with Last-Event-ID, here or at another node.
func (f *rpcFrames) broken(found run, last string) []event {
	return []event{{data: contract.NewNotification(methodResume, ChatResume{
		Session: found.route.Session, RunID: found.route.Run, EventID: last, Reason: streamCut,
	})}}
}
