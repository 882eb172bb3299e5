package normalized

import "inbox/internal/fault"

func (f *Fold) start(p *Part) *fault.Fault {
	if broken := f.checkCall(p); broken != nil {
		return broken
	}
	if !p.running() {
		return fault.InField("part", "a tool call starts without result and error")
	}
	if _, known := f.calls[p.ID]; known {
		return fault.InField("part.id", "a tool call with this id was started before")
	}
	if broken := f.push(*p); broken != nil {
		return broken
	}
	if f.calls == nil {
		f.calls = map[string]int{}
	}
	f.calls[p.ID] = len(f.parts) - 1
	return nil
}

func (f *Fold) finish(p *Part) *fault.Fault {
	if broken := f.checkCall(p); broken != nil {
		return broken
	}
	at, known := f.calls[p.ID]
	switch {
	case !known:
		return fault.InField("part.id", "no tool call with this id was started")
	case !f.parts[at].running():
		return fault.InField("part.id", "the tool call with this id has ended before")
	case p.running():
		return fault.InField("part", "a tool call ends with its result or error")
	case p.Name != f.parts[at].Name:
		return fault.InField("part.name", "is not the name with which the tool call started")
	}
	ended := *p
	if !present(ended.Args) {
		ended.Args = f.parts[at].Args
	}
	f.parts[at] = ended
	return f.grow(len(ended.Result))
}

func (f *Fold) checkCall(p *Part) *fault.Fault {
	if p == nil || p.Kind != PartToolCall {
		return fault.InField("part", "must be a tool_call")
	}
	c := checker{limits: f.limits, stop: 1}
	at := key(nil, "part")
	c.toolCall(&at, p)
	if len(c.found) > 0 {
		return c.found[0]
	}
	return nil
}
