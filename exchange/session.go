package exchange

import (
	"strconv"
	"time"
)

// Session is a conversation on one of our own surfaces: a bridge, a connector, a chat. Its owner alone may see it; to
// all others it does not exist.
type Session struct {
	ID           string    `json:"session_id"` // unique among those of its owner
	Owner        string    `json:"-"`          // principal of the program or person
	Agent        string    `json:"agent"`
	ThreadID     string    `json:"-"` // of its turns
	Title        string    `json:"title"`
	Connector    string    `json:"connector_id,omitempty"`
	Conversation string    `json:"external_conversation_id,omitempty"`
	Imported     int       `json:"imported_messages,omitempty"` // that were said elsewhere, before the first turn here
	CreatedAt    time.Time `json:"created_at"`
	UpdatedAt    time.Time `json:"updated_at"`
}

// SessionFilter selects sessions of one owner, newest update first.
type SessionFilter struct {
	Owner  string // required; AnyOwner = of all, for operators
	Agent  string // empty = of all
	Before string // cursor: Session.Cursor of the last row of the page before
	Limit  int    // 1…500
}

// AnyOwner selects the sessions of all owners.
const AnyOwner = "*"

// BridgeCallbackKind is the queue kind of jobs that bring an item of a bridge's queue to its callback; payload:
// BridgeCallback as JSON.
const BridgeCallbackKind = "bridge.callback"

// BridgeCallback names the item of a job of BridgeCallbackKind.
type BridgeCallback struct {
	Client string `json:"client"`
	Item   string `json:"item"`
}

// Cursor is SessionFilter.Before for the page after this session.
func (s Session) Cursor() string { return strconv.FormatInt(s.UpdatedAt.UnixMicro(), 10) + "." + s.ID }

// NextPage cuts what was read of a list to one page and returns the cursor of the page after it; empty = this is the last
// one. Who lists reads size+1 rows: the row too many says that there is more, so that no page is empty because the one
// before was full. All lists end here.
func NextPage[T any](rows []T, size int, cursor func(T) string) (page []T, next string) {
	if len(rows) <= size {
		return rows, ""
	}
	page = rows[:size]
	return page, cursor(page[size-1])
}
