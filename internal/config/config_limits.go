package config

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Limits are bounds for how much is answered, and for whom ([moderation.md](moderation.md)). A rate is a list of numbers and
// windows, such as `["30/1m", "300/1h"]`; an empty list is no limit. Windows follow the clock and days follow UTC. All nodes
// count together.
type Limits struct {
	// Messages of one sender, to all agents. Senders without proof are counted by network: one IPv4 address or IPv6 /64. Its
	// IPv4 /24, or its /56, /48 and /32, may have four times as many each.
	Sender []string `toml:"sender" default:"[\"30/1m\", \"300/1h\"]; none with federation.allow_private"`
	// Messages of all senders of one registrable domain, with everything below it.
	Host []string `toml:"host" default:"[\"600/1m\"]; none with federation.allow_private"`
	// Messages to one agent.
	Agent []string `toml:"agent" default:"[\"1200/1m\"]; none with federation.allow_private"`
	// Messages to this server.
	Total []string `toml:"total" default:"[\"3000/1m\"]; none with federation.allow_private"`
	// Messages of one conversation.
	Thread []string `toml:"thread" default:"[\"60/1h\"]; none with federation.allow_private"`
	// Answers by mail in one conversation. A mail above it stays unanswered and gets no notice: a notice could be the next
	// answer between two programs.
	MailThread []string `toml:"mail_thread"`
	// Answers by mail of one agent to one sender; as above.
	MailSender []string `toml:"mail_sender" default:"[\"20/1h\"]; none with federation.allow_private"`
	// Messages of one sender in a row with the same text that are answered within a day, by mail and on the fediverse; other
	// text continues the conversation. 0 = all.
	SameMessages int `toml:"same_messages"`
	// A mail that replies to an answer sooner than this comes from a program and stays unanswered; 0s = every mail is answered.
	MailPace time.Duration `toml:"mail_pace" default:"5s; 0s with federation.allow_private"`
	// Runs that one sender may cause in a day, for each agent; 0 = no budget.
	SenderRunsPerDay int `toml:"sender_runs_per_day"`
	// Runs of one agent in a day; 0 = no budget.
	AgentRunsPerDay int `toml:"agent_runs_per_day"`
	// What the answers of one agent to one sender may cost in a day, in the currency in which answers state their cost, such as
	// `"0.50"`; empty = no budget. The answer that exceeds it is still sent.
	SenderCostPerDay string `toml:"sender_cost_per_day"`
	// What the answers of one agent may cost in a day; empty = no budget.
	AgentCostPerDay string `toml:"agent_cost_per_day"`
	// Percent of `agent`, `total`, `agent_runs_per_day` and `agent_cost_per_day` that is reserved for proven senders who were
	// answered within the last 90 days.
	KnownReserve int `toml:"known_reserve"`
	// Largest message of a sender without proof, with its files; mail has `smtp.unproven_max_bytes`. 0 = no bound.
	GuestMaxBytes Size `toml:"guest_max_bytes"`
	// Disk space in a day for messages of senders without proof to agents that answer them, from one network; 0 = no bound.
	GuestBytesPerDay Size `toml:"guest_bytes_per_day" default:"100MiB; 0 with federation.allow_private"`
	// The same from all networks together.
	AllGuestBytesPerDay Size `toml:"all_guest_bytes_per_day" default:"2GiB; 0 with federation.allow_private"`
	// Messages that are held for you or will never be answered, from one network of senders without proof or one domain of
	// others. Above it mail gets 452 4.7.0 and others 429.
	HeldPerSender int `toml:"held_per_sender"`
	// Their space on the disk.
	HeldBytesPerSender Size `toml:"held_bytes_per_sender"`
	// The same for all senders together; `known_reserve` percent of it is for senders with proof.
	HeldMessages int `toml:"held_messages"`
	// See `held_messages`.
	HeldBytes Size `toml:"held_bytes"`
	// How long a message is held. Then it is refused without a notice, and its content is erased.
	HeldFor time.Duration `toml:"held_for"`
	// How long the content of a message is kept that will never be answered, such as automatic mail.
	SilentFor time.Duration `toml:"silent_for"`
	// Mails to the operator's own addresses, such as postmaster, that are kept in a day: from one network of senders without
	// proof (one IPv4 address or IPv6 /64; wider ones four times as many each) or one domain of others. The next gets 452
	// 4.7.0.
	MailboxPerSender int `toml:"mailbox_per_sender"`
	// Their space on the disk in a day.
	MailboxBytesPerSender Size `toml:"mailbox_bytes_per_sender"`
	// Mails of all senders that are kept for the operator, a tenth of it in a day. `known_reserve` percent of both is for
	// senders with proof.
	MailboxMessages int `toml:"mailbox_messages"`
	// See `mailbox_messages`.
	MailboxBytes Size `toml:"mailbox_bytes"`
	// Bytes that the programs of one agent may have uploaded (`POST /v1/files`) and not yet used in an answer. An upload is
	// forgotten after a day.
	UploadBytes Size `toml:"upload_bytes"`
	// Messages of one agent that wait for an answer; above it mail gets 452 4.2.2 and others 503. 0 = no bound.
	Backlog int `toml:"backlog"`
	// Bytes that stay free on the disk of `data_dir`. Below it the server takes nothing on any protocol until there is room:
	// mail gets 452 4.3.1, others 503. 0 = until the disk is full.
	FreeDisk Size `toml:"free_disk" default:"a twentieth of the disk, at most 1GiB"`
	// The same for messages of senders without proof; 0 = as for others.
	GuestFreeDisk Size `toml:"guest_free_disk" default:"twice as much as for others"`
	// Requests over HTTP and over gRPC, each, that this node answers for one address (of IPv6: one /64; a /56, /48 or /32 may
	// make four times as many as the one inside it). Above it they get 429. Where there is such a limit, an address with 300
	// refused fediverse deliveries (forged, malformed) in five minutes also gets 429. Those of `http.inside` are not counted.
	HTTP []string `toml:"http" default:"[\"3000/1m\"]; none with federation.allow_private"`
	// Messages of one program to one agent in one thread that are answered within `bot_window`.
	BotTurns int `toml:"bot_turns"`
	// See `bot_turns`.
	BotWindow time.Duration `toml:"bot_window"`
	// The same for the whole life of a thread, at most 100; 0 = no bound.
	BotTurnsPerThread int `toml:"bot_turns_per_thread"`
	// A message that consists of one of these words is obeyed for good: the sender gets nothing more from the agent. Empty =
	// words of twenty languages, `"stop"` among them; `["-"]` = none.
	StopWords []string `toml:"stop_words"`
	// Messages that end the silence.
	StartWords []string `toml:"start_words"`
}

func defaultLimits() Limits {
	return Limits{
		BotTurns: 6, BotWindow: 10 * time.Minute, BotTurnsPerThread: 50,
		MailThread: []string{"10/1h", "50/24h"}, SameMessages: 3, Backlog: 100_000, FreeDisk: unset, GuestFreeDisk: unset,
		KnownReserve: 25, GuestMaxBytes: 5 << 20, UploadBytes: 256 << 20,
		HeldPerSender: 200, HeldBytesPerSender: 20 << 20, HeldMessages: 20_000, HeldBytes: 512 << 20,
		MailboxPerSender: 50, MailboxBytesPerSender: 50 << 20, MailboxMessages: 20_000, MailboxBytes: 1 << 30,
		HeldFor: 14 * 24 * time.Hour, SilentFor: 30 * 24 * time.Hour,
	}
}

// deriveLimits returns servers that others can reach their limits; a closed network has only those that are written.
func (c *Config) deriveLimits(found *problems) {
	if c.Federation.AllowPrivate {
		return
	}

	for _, limit := range []struct {
		key   string
		rates *[]string
		usual []string
	}{
		{"limits.sender", &c.Limits.Sender, []string{"30/1m", "300/1h"}}, {"limits.host", &c.Limits.Host, []string{"600/1m"}},
		{"limits.agent", &c.Limits.Agent, []string{"1200/1m"}}, {"limits.total", &c.Limits.Total, []string{"3000/1m"}},
		{"limits.thread", &c.Limits.Thread, []string{"60/1h"}}, {"limits.http", &c.Limits.HTTP, []string{"3000/1m"}},
		{"limits.mail_sender", &c.Limits.MailSender, []string{"20/1h"}},
	} {
		if !found.written(limit.key) {
			*limit.rates = limit.usual
		}
	}

	if !found.written("limits.guest_bytes_per_day") {
		c.Limits.GuestBytesPerDay = 100 << 20
	}
	if !found.written("limits.all_guest_bytes_per_day") {
		c.Limits.AllGuestBytesPerDay = 2 << 30
	}
	if !found.written("limits.mail_pace") {
		c.Limits.MailPace = 5 * time.Second
	}
}

var rate = regexp.MustCompile(`^\d{1,9}/[0-9a-z.]+$`)

func (c *Config) validateLimits(p *problems) {
	l := &c.Limits
	for key, rates := range map[string][]string{
		"limits.sender": l.Sender, "limits.host": l.Host, "limits.agent": l.Agent, "limits.total": l.Total, "limits.thread": l.Thread, "limits.http": l.HTTP,
		"limits.mail_thread": l.MailThread, "limits.mail_sender": l.MailSender,
	} {
		for i, text := range rates {
			_, window, _ := strings.Cut(text, "/")
			length, err := time.ParseDuration(window)
			if !rate.MatchString(text) || text[0] == '0' || err != nil || length < time.Second || length > 31*24*time.Hour {
				p.add(element(key, i), fmt.Sprintf("%q is not a rate", text), `write a number and a window of 1s to 744h, such as "30/1m"`)
			}
		}
	}

	for key, cost := range map[string]string{"limits.sender_cost_per_day": l.SenderCostPerDay, "limits.agent_cost_per_day": l.AgentCostPerDay} {
		if amount, err := strconv.ParseFloat(cost, 64); cost != "" && (err != nil || amount <= 0 || amount > 1e9) {
			p.add(key, fmt.Sprintf("%q is not an amount", cost), `write one such as "0.50"`)
		}
	}

	between(p, "limits.sender_runs_per_day", l.SenderRunsPerDay, 0, 1_000_000_000)
	between(p, "limits.agent_runs_per_day", l.AgentRunsPerDay, 0, 1_000_000_000)
	between(p, "limits.bot_turns", l.BotTurns, 1, 100)
	between(p, "limits.bot_turns_per_thread", l.BotTurnsPerThread, 0, 100)
	between(p, "limits.upload_bytes", l.UploadBytes, 0, 1<<50)
	between(p, "limits.backlog", l.Backlog, 0, 1_000_000_000)
	between(p, "limits.same_messages", l.SameMessages, 0, 100)
	between(p, "limits.known_reserve", l.KnownReserve, 0, 90)
	between(p, "limits.held_per_sender", l.HeldPerSender, 1, 1_000_000_000)
	between(p, "limits.held_messages", l.HeldMessages, 1, 1_000_000_000)
	between(p, "limits.held_bytes_per_sender", l.HeldBytesPerSender, 64<<10, 1<<40)
	between(p, "limits.held_bytes", l.HeldBytes, 64<<10, 1<<50)
	between(p, "limits.mailbox_per_sender", l.MailboxPerSender, 1, 1_000_000)
	between(p, "limits.mailbox_bytes_per_sender", l.MailboxBytesPerSender, 64<<10, 1<<40)
	between(p, "limits.mailbox_messages", l.MailboxMessages, 10, 1_000_000_000)
	between(p, "limits.mailbox_bytes", l.MailboxBytes, 1<<20, 1<<50)
	within(p, "limits.held_for", l.HeldFor, time.Hour, 366*24*time.Hour)
	within(p, "limits.silent_for", l.SilentFor, time.Hour, 366*24*time.Hour)
	within(p, "limits.mail_pace", l.MailPace, 0, time.Hour)
	within(p, "limits.bot_window", l.BotWindow, time.Second, 24*time.Hour)
}
