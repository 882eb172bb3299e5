package operator

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/google/uuid"

	"inbox/engine/store"
	"inbox/internal/fault"
)

// nodeNamespace has the signs of life of the nodes: id → RunningNode.
const nodeNamespace = "nodes"

const (
	// NodeSign is how often a node gives a sign of life.
	NodeSign = 30 * time.Second
	// nodeForgotten is how long a node without a sign is listed: it crashed, or lost the database.
	nodeForgotten = time.Hour
	// maxNodes bounds how many are listed.
	maxNodes = 100
)

// RunningNode is a process that serves this database, or did a moment ago.
type RunningNode struct {
	ID      string    `json:"id"`   // of the process
	Host    string    `json:"host"` // name of its machine
	Domain  string    `json:"domain"`
	Version string    `json:"version"`
	Since   time.Time `json:"since"`
	SeenAt  time.Time `json:"seen_at"` // its last sign of life, one of which it gives every 30 seconds
}

// Silent reports whether a node gave no sign for so long that it runs no more, or cannot reach the database.
func (n RunningNode) Silent(at time.Time) bool { return at.Sub(n.SeenAt) > 3*NodeSign }

// Nodes are the processes that serve the database. One that ends in good order is not listed any more, one that crashed stays for an hour.
type Nodes struct{ store *store.Store }

// List lists them, the oldest first.
func (n Nodes) List(ctx context.Context) ([]RunningNode, error) {
	_, values, err := n.store.State().List(ctx, nodeNamespace, "", maxNodes)
	nodes := make([]RunningNode, len(values))
	for i, value := range values {
		if err := json.Unmarshal(value, &nodes[i]); err != nil {
			return nil, fmt.Errorf("decode the sign of a node: %w", err)
		}
	}
	slices.SortFunc(nodes, func(a, b RunningNode) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID)) })
	return nodes, err
}

// RunningNodes returns the nodes of a database that gave a sign of life lately.
func RunningNodes(ctx context.Context, rows *store.Store) ([]RunningNode, error) {
	nodes, err := Nodes{rows}.List(ctx)
	return slices.DeleteFunc(nodes, func(one RunningNode) bool { return one.Silent(now()) }), err
}

// Sign gives signs of life of this process until ctx ends, then takes them back. What cannot be written is told by failed, and tried again.
func (n Nodes) Sign(ctx context.Context, domain, version string, failed func(error)) error {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	this := RunningNode{ID: uuid.Must(uuid.NewV7()).String(), Host: host, Domain: domain, Version: version, Since: now()}
	ticker := time.NewTicker(NodeSign)
	defer ticker.Stop()

	for {
		this.SeenAt = now()
		value, err := json.Marshal(this)
		if err == nil {
			err = n.store.State().Put(ctx, nodeNamespace, this.ID, value, this.SeenAt.Add(nodeForgotten))
		}
		if err != nil && ctx.Err() == nil {
			failed(fmt.Errorf("sign of this node: %s: %w", fault.InWords(err), err))
		}
		select {
		case <-ctx.Done():
			n.leave(ctx, this.ID)
			return nil
		case <-ticker.C:
		}
	}
}

// leave removes the sign of a node that stops; it ends by itself where that fails.
func (n Nodes) leave(ctx context.Context, id string) {
	gone, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = n.store.State().Delete(gone, nodeNamespace, id)
}
