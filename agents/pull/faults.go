package pull

import (
	"inbox/internal/fault"
)

// over is the answer to who holds no lease, with the same words for one that never was.
func over(kind fault.Kind) error {
	return fault.New(kind, "the lease is over: stop working on this turn and take the next one")
}

func unavailable(doing string, cause error) error {
	if f := fault.Of(cause); f.Kind == fault.Unavailable {
		return cause
	}
	return fault.Wrap(fault.Unavailable, doing+" is not possible right now; try again", cause)
}
