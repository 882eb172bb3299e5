package remote

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"inbox/agents"
)

const (
	namespace = "agents.remote"
	turnLife  = 7 * 24 * time.Hour // a turn is repeated within minutes, but a server may stand still for days
)

// thread is what is known there about a thread here.
type thread struct {
	Context string `json:"context,omitempty"`
	Open    *open  `json:"open,omitempty"` // the task that waits for the next message of the thread
}

// open is a task that asked for something.
type open struct {
	Task      string `json:"task"`
	Principal string `json:"principal"`       // who was asked: nobody else's message answers
	Asked     string `json:"asked"`           // names the question
	Login     bool   `json:"login,omitempty"` // it may go on by itself once somebody has logged in there
	State     string `json:"state,omitempty"` // the secret by which a demand there is resolved; it never leaves for anybody else
}

// progress is how far a message came, for the attempt after a crash.
type progress struct {
	Task    string `json:"task"`
	Context string `json:"context,omitempty"`
	Asked   string `json:"asked,omitempty"` // the question that stood before the message was sent to a waiting task

	Looks int       `json:"looks,omitempty"` // at a task that waits for a login
	Since time.Time `json:"since,omitzero"`  // of the first of them
	Told  string    `json:"told,omitempty"`  // the question that our asker was told
}

// threadKey names the conversation of one of our agents with the other; a new card_url begins anew.
func (a *Agent) threadKey(turn agents.Turn) string {
	return "thread:" + digest(turn.Agent, a.card.String(), turn.Message.ThreadID)
}

func (a *Agent) turnKey(turn agents.Turn, messageID string) string {
	return "turn:" + digest(turn.Agent, a.card.String(), messageID)
}

func digest(names ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(names, "\x00")))
	return hex.EncodeToString(sum[:])
}

// load reads a value. One that cannot be read any more counts as absent.
func (a *Agent) load(ctx context.Context, key string, into any) error {
	value, found, err := a.options.State.Get(ctx, namespace, key)
	if err != nil {
		return notKept(fmt.Errorf("read state: %w", err))
	}
	if found {
		_ = json.Unmarshal(value, into)
	}
	return nil
}

func (a *Agent) keep(ctx context.Context, key string, value any, life time.Duration) error {
	encoded, err := json.Marshal(value)
	if err != nil {
		return notKept(err)
	}
	if err := a.options.State.Put(ctx, namespace, key, encoded, time.Now().Add(life)); err != nil {
		return notKept(fmt.Errorf("write state: %w", err))
	}
	return nil
}

// messageID is the same in every attempt, so that the other side recognises a repeat. A turn that was taken up again with
// a decision says something new.
func messageID(turn agents.Turn) string {
	resolution := turn.Message.PolicyResolution
	if resolution == nil {
		return turn.ID
	}
	encoded, err := json.Marshal(resolution)
	if err != nil {
		return turn.ID + "-resolved"
	}
	return turn.ID + "-" + digest(string(encoded))[:16]
}
