package a2a

import (
	"errors"
	"strconv"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/internal/boundedjson"
)

// Bounds of a request's structure, counted while it is read: what a decoder makes of a document costs by its values and, for
// the parts that are read twice, by its depth.
const (
	maxRequestDepth  = 64      // that of the message contract
	maxRequestValues = 100_000 // members and items together
)

func requestBounds() *boundedjson.Counter {
	return boundedjson.NewCounter(boundedjson.Limits{Depth: maxRequestDepth, Values: maxRequestValues})
}

// outOfBounds is the problem of a document that the counter refused; nil for another error.
func outOfBounds(err error) *problem {
	broken, is := errors.AsType[*boundedjson.Error](err)
	switch {
	case !is:
		return nil
	case broken.Reason == boundedjson.NotUTF8:
		return newProblem(a2a.ErrParseError, "the body is not valid UTF-8")
	}
	return newProblem(a2a.ErrInvalidParams, "the request "+broken.Reason+": "+strconv.Itoa(broken.Limit)+" are allowed")
}
