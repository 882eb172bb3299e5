package command

import "errors"

var errFull = errors.New("the program wrote too much")

// head keeps the beginning of a stream and says once that there was more.
type head struct {
	limit int64
	full  func()
	kept  []byte
	over  bool
}

func (h *head) Write(piece []byte) (int, error) {
	if free := h.limit - int64(len(h.kept)); int64(len(piece)) > free {
		h.kept, h.over = append(h.kept, piece[:free]...), true
		h.full()
		return int(free), errFull
	}
	h.kept = append(h.kept, piece...)
	return len(piece), nil
}

func (h *head) bytes() []byte { return h.kept }

// tail keeps the end of a stream, where programs say why they end.
type tail struct {
	kept  []byte
	total int64
}

func (t *tail) Write(piece []byte) (int, error) {
	t.total += int64(len(piece))
	t.kept = append(t.kept, piece...)
	if len(t.kept) > 2*MaxStderrBytes {
		t.kept = append(t.kept[:0], t.kept[len(t.kept)-MaxStderrBytes:]...)
	}
	return len(piece), nil
}

func (t *tail) bytes() []byte { return t.kept[max(0, len(t.kept)-MaxStderrBytes):] }

func (t *tail) dropped() int64 { return t.total - int64(len(t.bytes())) }
