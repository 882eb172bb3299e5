package config

import "time"

// Default returns the settings of a server without file and environment. Agents and the values that follow from
// others are filled in by Load.
func Default() *Config {
	return &Config{
		DataDir: "inbox-data", DatabaseURL: "sqlite", BlobURL: "file", ShutdownGrace: 20 * time.Second, Drain: unset,
		HTTP:       HTTP{Listen: "127.0.0.1:8080", TLS: "off", MaxBodyBytes: 10 << 20},
		SMTP:       SMTP{Listen: "127.0.0.1:2525", MaxMessageBytes: 25 << 20, UnprovenMaxBytes: 5 << 20, MaxConnections: 200, ConnectionsPerAddress: 10, ConnectionsPerMinute: 60, MailsPerMinute: 60},
		Mail:       Mail{Mode: "capture", MXPort: 25, MTASTSPort: 443, DKIMSelector: "inbox", MTASTS: "testing", ReplyTo: "organization", DomainRate: unset, Retry: mailRetry()},
		Federation: Federation{Mode: "open", Retry: federationRetry(), RequireSignedHost: true, FollowersGetReplies: true, PostLength: 4000, HostConcurrency: unset, HostRate: unset},
		Limits:     defaultLimits(),
		Chat:       defaultChat(),
		Bridges:    defaultBridges(),
		Log:        Log{Level: "info", Format: "text"},
		A2A:        A2A{CallerConcurrency: 2000},
		Queue:      Queue{Lease: 15 * time.Second, TurnConcurrency: 32, DeliveryConcurrency: 32},
	}
}

// unset marks a number whose default follows from other settings.
const unset = -1

// setDefaults fills a table [[agents]] before its keys are read.
func (a *Agent) setDefaults() {
	*a = Agent{
		Access: "public", Unverified: "hold", MaxHops: 4, ApproveReplies: "never", Follows: "accept", Timeout: 2 * time.Minute,
		AckText:   "I am working on your message; the answer follows.",
		Retry:     AgentRetry{Schedule: agentRetry(), Waiting: []time.Duration{2 * time.Second, 10 * time.Second, 30 * time.Second}, Rate: 5, Stale: "answer"},
		LLM:       defaultLLM(),
		Command:   Command{Output: "json"},
		Pull:      Pull{Lease: 30 * time.Second, MaxWait: time.Minute},
		Fediverse: AgentFediverse{Discoverable: true, Quotes: "nobody"},
		History:   History{Scope: "thread", KeepHead: 2, Window: 20, Slide: 10, MaxBytes: 256 << 10, Alternation: "merge"},
	}
}

// defaultAgent answers with what it got, so that a new server can be tried at once.
func defaultAgent(development bool) Agent {
	var agent Agent
	agent.setDefaults()
	agent.Name, agent.Kind, agent.DisplayName = "echo", "echo", "Echo"
	agent.Summary = "Answers every message with what it got."
	if development {
		agent.Unverified = "answer"
	}
	return agent
}

// agentRetry adds up to about a day.
func agentRetry() []time.Duration {
	return []time.Duration{
		2 * time.Second, 10 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute,
		time.Hour, 2 * time.Hour, 4 * time.Hour, 8 * time.Hour, 8 * time.Hour,
	}
}

// federationRetry adds up to about three days.
func federationRetry() []time.Duration {
	return []time.Duration{
		30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute,
		2 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour, 24 * time.Hour,
	}
}

// mailRetry starts quickly and goes on for five days (RFC 5321 section 4.5.4.1).
func mailRetry() []time.Duration {
	waits := []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour}
	const step, end = 4 * time.Hour, 5 * 24 * time.Hour
	total := time.Duration(0)
	for _, wait := range waits {
		total += wait
	}
	for ; total+step <= end; total += step {
		waits = append(waits, step)
	}
	return waits
}
