package inbox

import (
	"inbox/engine/moderation"
	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/internal/disk"
)

// closed says which agents take nothing just now, for the engine and for mail, which refuses before it reads a message.
type closed struct {
	disk    *disk.Guard
	guests  *disk.Guard // full earlier: what is left is for senders with proof
	lists   *moderation.Lists
	backlog *pipeline.Backlog
}

// Closed says why an agent takes no message; an empty name stands for the operator's own mailbox.
func (c closed) Closed(agent string) exchange.Closure {
	switch {
	case c.disk.Full():
		return exchange.ClosedDisk
	case agent == "":
		return ""
	case c.lists.Paused(agent):
		return exchange.ClosedPaused
	case c.backlog.Full(agent):
		return exchange.ClosedBacklog
	}
	return ""
}

// Admit notes the bytes of a message that is about to be stored in the database, which is on the same disk as a rule.
func (c closed) Admit(bytes int64) { c.disk.Admit(bytes) }

// ClosedToGuests says why nothing of a sender without proof is taken.
func (c closed) ClosedToGuests() exchange.Closure {
	if c.guests.Full() {
		return exchange.ClosedDisk
	}
	return ""
}

// Paused reports whether the operator lets an agent rest.
func (c closed) Paused(agent string) bool { return c.lists.Paused(agent) }

func (s *Server) newClosed() closed {
	names := func() (list []string) {
		for _, agent := range s.registry.Agents() {
			list = append(list, agent.Name)
		}
		return list
	}
	return closed{
		disk: s.closed.disk, guests: newGuestDiskGuard(s.config), lists: s.lists,
		backlog: pipeline.NewBacklog(s.store, s.config.Limits.Backlog, names, s.logger),
	}
}

func newDiskGuard(c *Config) *disk.Guard {
	return disk.NewGuard(disk.Options{Directory: c.DataDir, Keep: int64(c.Limits.FreeDisk)})
}

// newGuestDiskGuard is that of senders without proof.
func newGuestDiskGuard(c *Config) *disk.Guard {
	options := disk.Options{Directory: c.DataDir, Keep: int64(c.Limits.GuestFreeDisk), For: "senders without proof"}
	switch {
	case c.Limits.GuestFreeDisk == 0:
		return nil
	case c.Limits.GuestFreeDisk < 0:
		options.Keep, options.Times = int64(c.Limits.FreeDisk), 2
	}
	return disk.NewGuard(options)
}
