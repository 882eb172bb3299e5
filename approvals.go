package inbox

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"inbox/identity"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/normalized"
)

// approvalConcurrency is how many approvers are looked up at once.
const approvalConcurrency = 4

// handleApprovals lets the queue tell approvers and askers. How often is tried is the pipeline's to say.
func (s *Server) handleApprovals(kind string, handler queue.Handler) {
	s.queue.Handle(kind, queue.KindOptions{Concurrency: approvalConcurrency, Timeout: time.Minute}, handler)
}

// approverChannels reaches approvers by the form of their address: @user@domain on the fediverse, user@domain by mail.
type approverChannels struct{ server *Server }

// Open begins a conversation.
func (c approverChannels) Open(ctx context.Context, agent, address string) (via string, route json.RawMessage, err error) {
	if strings.HasPrefix(address, "@") {
		route, err = c.server.activitypub.Open(ctx, agent, address)
		return normalized.ViaActivityPub, route, err
	}
	if c.server.email == nil {
		return "", nil, fault.GiveUp("email is off on this server (smtp.listen)", nil)
	}
	route, err = c.server.email.Open(ctx, agent, address)
	return normalized.ViaEmail, route, err
}

// Proves gives the evidence of the sender for an address. An actor proves an address only when WebFinger of that address
// names it: on its own word it could be anybody of its host. In mail addresses case does not count.
func (c approverChannels) Proves(ctx context.Context, sender normalized.Sender, address string) (*identity.Evidence, error) {
	for i := range sender.Identities {
		evidence := &sender.Identities[i]
		proven, err := c.proves(ctx, evidence, sender.Address, address)
		if err != nil || proven {
			return evidence, err
		}
	}
	return nil, nil
}

func (c approverChannels) proves(ctx context.Context, evidence *identity.Evidence, stated, address string) (bool, error) {
	if evidence.Proof.Type == identity.ProofTransport &&
		(evidence.Method == identity.MethodActivityPubSignature || evidence.Method == identity.MethodActivityPubProof) {
		return c.server.activitypub.Owns(ctx, evidence.Subject, address)
	}
	if strings.EqualFold(strings.TrimPrefix(stated, "@"), strings.TrimPrefix(address, "@")) {
		address = stated
	}
	return evidence.Vouches(address), nil
}
