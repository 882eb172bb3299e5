// Package config reads the server's settings: defaults, then the strict TOML file, then INBOX_… variables, then one
// validation that names key, place and remedy of every problem. It opens no listener and no database, and it does
// not look at command line flags.
package config

import (
	"net/netip"
	"time"
)

//go:generate go test -run ^TestDocumentation$ . -update

// Config is every setting of the server. The comments of the fields are the text of docs/configuration.md.
type Config struct {
	// Part of every address after the last @. May carry a port or be a single label only with
	// `federation.allow_private`; mail uses the host alone.
	Domain string `toml:"domain" default:"host of public_url"`
	// Where HTTP is reached from outside, without a path. May be another host than `domain`. Must be https unless
	// `federation.allow_private` is on. When it is not written, `http://localhost` with the port of `http.listen`.
	PublicURL string `toml:"public_url" default:"http://localhost:8080"`
	// Directory for the SQLite file, stored attachments and generated keys.
	DataDir string `toml:"data_dir"`
	// `sqlite` (a file in `data_dir`) or `postgres://user:password@host/database`. Several hosts, `host1:5432,host2:5432`,
	// are tried in their order; the first that can be written to is used.
	DatabaseURL SecretURL `toml:"database_url"`
	// File with the password for PostgreSQL, in the place of one in `database_url`.
	DatabasePasswordFile string `toml:"database_password_file"`
	// Where attachments and large originals are kept: `file` (`blobs` in `data_dir`), `file:///directory`, or
	// `s3://bucket/prefix?endpoint=https://host:port&region=…` for a server that speaks the S3 protocol (keys in `[blob]`; `&style=host`
	// where the bucket is a part of the host name). All nodes of a database need the same one.
	BlobURL SecretURL `toml:"blob_url"`
	// File with 32 random bytes as base64, which seal private keys and the credentials of peers in the database. Nodes that
	// share a database need the same one; `openssl rand -base64 32` makes it. It belongs to every backup.
	SecretKeyFile string `toml:"secret_key_file" default:"secret.key in data_dir, made at the first start"`
	// How long a stopping server goes on as before after `/readyz` said 503, so that a balancer sends its clients elsewhere
	// before the listeners close. A second signal ends the wait and the server.
	Drain time.Duration `toml:"drain" default:"5s; 0s while public_url is local"`
	// How long a stopping server waits for requests and running turns, after `drain`, before it closes them; what is left is
	// taken over after the restart.
	ShutdownGrace time.Duration `toml:"shutdown_grace"`

	HTTP       HTTP       `toml:"http"`
	ACME       ACME       `toml:"acme"`
	Blob       Blob       `toml:"blob"`
	SMTP       SMTP       `toml:"smtp"`
	Mail       Mail       `toml:"mail"`
	DNS        DNS        `toml:"dns"`
	Federation Federation `toml:"federation"`
	A2A        A2A        `toml:"a2a"`
	Admin      Admin      `toml:"admin"`
	Log        Log        `toml:"log"`
	Queue      Queue      `toml:"queue"`
	Telemetry  Telemetry  `toml:"telemetry"`
	Payments   Payments   `toml:"payments"`
	Limits     Limits     `toml:"limits"`
	Retention  Retention  `toml:"retention"`
	Operator   Operator   `toml:"operator"`
	Chat       Chat       `toml:"chat"`
	Bridges    Bridges    `toml:"bridges"`

	// One table per further domain; [domains.md](domains.md) explains them.
	Domains []Domain `toml:"domains"`
	// One table per issuer; [trust.md](trust.md) explains who should be in it.
	Trust []Trust `toml:"trust"`
	// One table per server.
	Peers []Peer `toml:"peers"`
	// One table per service.
	Logins []Login `toml:"logins"`
	// One table per connector.
	Connectors []Connector `toml:"connectors"`
	// One table per target.
	Targets []Target `toml:"targets"`
	// One table per agent.
	Agents []Agent `toml:"agents"`

	// Development says that no file was found: everything listens on loopback, private addresses are allowed, mail
	// is captured and the agent `echo` answers anybody.
	Development bool `toml:"-"`
	// NewIdentity lets a start go on that would otherwise be refused, because the database or the secret key that data_dir
	// was used with is missing: with new keys.
	NewIdentity bool `toml:"-"`
	// File is the path of the file that was read; empty in development mode.
	File string `toml:"-"`
	// Environment are the variables that were read beside the file, "NAME=value".
	Environment []string `toml:"-"`

	// Hosted are the settings of the further domains, each whole: Domains says what they have of their own.
	Hosted []*Config `toml:"-"`
	// HostedBy is the domain at the top of the file in the settings of a further one, which has no listeners; empty else.
	HostedBy string `toml:"-"`
	// SharesMailHost says that a further domain has the mail server's name of the domain at the top.
	SharesMailHost bool `toml:"-"`
}

// HTTP is the listener for ActivityPub, A2A, the console and metrics.
type HTTP struct {
	// Address of the HTTP listener, `host:port`. Port 0 takes a free one.
	Listen string `toml:"listen"`
	// `off` (plain HTTP, for a reverse proxy in front), `files` (`cert_file` and `key_file`) or `acme` (from a certificate authority, see
	// `[acme]`; renewed by itself and shared by all nodes of a database). STARTTLS and gRPC have the same.
	TLS string `toml:"tls"`
	// PEM file with the certificate chain, for `tls = "files"`. A changed file is picked up while running.
	CertFile string `toml:"cert_file"`
	// PEM file with the private key, for `tls = "files"`.
	KeyFile string `toml:"key_file"`
	// Networks (CIDR or single address) of reverse proxies whose `X-Forwarded-For` is believed.
	TrustedProxies []netip.Prefix `toml:"trusted_proxies"`
	// Your own networks (CIDR or single address): `/metrics` is shown to them, and their requests are not counted by
	// `limits.http`. A request that comes through a proxy counts by the client that a trusted proxy names, and one with the
	// headers of another proxy never. Write loopback here only when no proxy on this machine passes strangers on without
	// `X-Forwarded-For`: all of them would be inside.
	Inside []netip.Prefix `toml:"inside" default:"[\"127.0.0.0/8\", \"::1\"] while public_url is local; none otherwise"`
	// Largest request body; that of A2A is `a2a.max_request_bytes`. Routes may set smaller limits of their own.
	MaxBodyBytes Size `toml:"max_body_bytes"`
	// Bytes of all request bodies that may be in memory at the same time; beyond it clients hear 503 and come again. One
	// client network may hold an eighth of it, and callers without proof leave a quarter to the others.
	MaxBytesInFlight Size `toml:"max_bytes_in_flight" default:"an eighth of the memory limit, at least three times max_body_bytes and one request of A2A; 256MiB without a limit"`
}

// SMTP is the listener for incoming mail.
type SMTP struct {
	// Address of the mail listener, `host:port`; `off` or empty = no email.
	Listen string `toml:"listen"`
	// Name in the greeting and in Received headers.
	Hostname string `toml:"hostname" default:"host of domain"`
	// Largest accepted mail, announced with SIZE.
	MaxMessageBytes Size `toml:"max_message_bytes"`
	// Largest accepted mail whose sender nothing proves; larger ones hear 552 5.3.4. When that much of a mail was read and its
	// header says that it cannot be proven, it is refused at once. 0 = as large as others.
	UnprovenMaxBytes Size `toml:"unproven_max_bytes"`
	// Connections of other servers at once; the next hear 421.
	MaxConnections int `toml:"max_connections"`
	// Connections at once from one IPv4 address or IPv6 /64. Its /26 or /48 may have three times as many, its /21 or /32
	// nine times. With `federation.allow_private` loopback addresses are not counted, here and below.
	ConnectionsPerAddress int `toml:"connections_per_address"`
	// Connections begun in a minute, counted likewise.
	ConnectionsPerMinute int `toml:"connections_per_minute"`
	// Mails begun in a minute, counted likewise; the next hear 452 and come again.
	MailsPerMinute int `toml:"mails_per_minute"`
}

// DNS says who resolves names.
type DNS struct {
	// Resolver as `host:port`, for every lookup of mail authentication and of outgoing requests; empty = that of the
	// operating system.
	Resolver string `toml:"resolver"`
}

// Federation is about other servers of the fediverse and every outgoing connection.
type Federation struct {
	// Allows private and loopback addresses, plain http, any port, IP addresses as hosts and a `domain` with a port.
	// For development and closed networks only: with it, a stranger's link can reach services in your network.
	AllowPrivate bool `toml:"allow_private" default:"false; true without a file"`
	// `open`: everybody who proves who they are may write, except who is blocked. `allowlist`: only who is on the allow
	// list (`inbox allow add`), on every protocol, and nobody else is contacted. See [moderation.md](moderation.md).
	Mode string `toml:"mode"`
	// Waiting times between attempts for a delivery. It is given up when the attempt after the last one fails.
	Retry []time.Duration `toml:"retry"`
	// Demand that a signature of the older scheme (draft-cavage) covers the `Host` header. Without it a request that was
	// captured on its way to another server can be repeated here; turn it off only for a peer that you know and that
	// cannot do better.
	RequireSignedHost bool `toml:"require_signed_host"`
	// Deliveries under way at the same time to one server. Not below 1.
	HostConcurrency int `toml:"host_concurrency" default:"4; queue.delivery_concurrency with allow_private"`
	// Deliveries begun in a second to one server, on this node; 0 = no limit.
	HostRate int `toml:"host_rate" default:"5; 0 with allow_private"`
	// Demand signed requests from other servers for everything but the server's own account, so that whom you exclude
	// cannot read along. Browsers still see public posts.
	AuthorizedFetch bool `toml:"authorized_fetch"`
	// Whether answers that everybody may read go to the agent's followers too, as those of people do.
	FollowersGetReplies bool `toml:"followers_get_replies"`
	// Answer public questions publicly. Without it they are answered unlisted, so that agents do not fill public timelines.
	PublicReplies bool `toml:"public_replies"`
	// Characters after which a long answer becomes a chain of posts, at most five.
	PostLength int `toml:"post_length"`
}

// A2A is about other agents.
type A2A struct {
	// Address of the gRPC listener, `host:port`; empty = off. It has TLS where `http.tls` is `files`.
	GRPCListen string `toml:"grpc_listen"`
	// Where gRPC is reached from outside, `host:port`, as agent cards say it.
	GRPCAddress string `toml:"grpc_address" default:"host of public_url, port of grpc_listen"`
	// Agent whose card is at `/.well-known/agent-card.json`, which can name one only, and which gRPC reaches without a tenant.
	DefaultAgent string `toml:"default_agent" default:"the first agent"`
	// Requests of one caller that may be under way at the same time on this node, streams and blocking sends among them;
	// above it the caller hears 429. All agents of one other server count as one caller.
	CallerConcurrency int `toml:"caller_concurrency"`
	// Largest request, on every binding; a file of 20 MiB takes 27 MiB in JSON. Requests over 8 MiB are read from callers
	// with a token of yours or of an issuer, not from peers that sign for themselves. All count as `http.max_bytes_in_flight`
	// while they are in memory.
	MaxRequestBytes Size `toml:"max_request_bytes"`
	// Hosts of webhooks, `host` or `host:port`, that may be private addresses and plain http, and that are shown the
	// credentials of a webhook without having confirmed that they want them. Link-local addresses and metadata services of
	// clouds are never called.
	WebhookHosts []string `toml:"webhook_hosts"`
	// One table per issuer of access tokens; [a2a.md](a2a.md) explains them. Tokens of `inbox tokens create` and peers that
	// sign for themselves need none.
	Issuers []Issuer `toml:"issuers"`
}

// Log is the server's own log, on standard error.
type Log struct {
	// `debug`, `info`, `warn` or `error`.
	Level string `toml:"level"`
	// `text` or `json`.
	Format string `toml:"format"`
	// Writes one line for each HTTP request when it is answered: method, pattern of the route, status, bytes, milliseconds, address of the client.
	Access bool `toml:"access"`
}

// Queue is the durable work: running turns and delivering answers.
type Queue struct {
	// How long a node may be silent before another node takes over its work. At least 1s.
	Lease time.Duration `toml:"lease"`
	// Turns that run at the same time on this node.
	// Agents share them; a quarter more may begin for agents and senders of whom nothing runs.
	TurnConcurrency int `toml:"turn_concurrency"`
	// Deliveries under way at the same time on this node.
	DeliveryConcurrency int `toml:"delivery_concurrency"`
}

// Telemetry is about traces; metrics are always at /metrics.
type Telemetry struct {
	// Where traces are sent (OTLP over HTTP), such as `http://localhost:4318`; empty = where `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` or
	// `OTEL_EXPORTER_OTLP_ENDPOINT` say, else nowhere. `OTEL_EXPORTER_OTLP_HEADERS` holds the credentials of the receiver.
	OTLPEndpoint string `toml:"otlp_endpoint"`
	// Share of the messages that are traced, from 0 to 1. A program with a token of yours that sends a `traceparent` decides itself.
	Sample float64 `toml:"sample"`
	// Name of this server in traces (`service.name`); `OTEL_SERVICE_NAME` wins.
	Service string `toml:"service"`
}

// Agent is one agent that answers at @name@domain.
type Agent struct {
	// Part of the address before the @: letters, digits, `.`, `_`, `-`, at most 64.
	Name string `toml:"name" default:"none; required"`
	// Domain of its address: `domain` or the name of one of `[[domains]]`.
	Domain string `toml:"domain" default:"domain at the top"`
	// `echo` (answers with what it got), `webhook` (asks your HTTP service), `llm` (a model provider), `command` (a
	// local program), `remote` (an A2A agent elsewhere) or `pull` (an agent that fetches its messages).
	Kind string `toml:"kind" default:"none; required"`
	// Name that people see.
	DisplayName string `toml:"display_name" default:"name"`
	// One or two sentences about what the agent does, plain text.
	Summary string `toml:"summary"`
	// Who may talk to the agent: `public` (anyone), `verified` (anyone with believed evidence) or `rules` (only whom a
	// rule lets in; without rules nobody). Must be written as soon as there are rules.
	Access string `toml:"access"`
	// What a message without proof of its sender gets: `answer`, `hold` (kept for the operator) or `refuse`.
	Unverified string `toml:"unverified" default:"\"hold\"; \"answer\" for echo without a file"`
	// What the agent says first in the chat of its page.
	Greeting string `toml:"greeting" default:"a sentence in the reader's language"`
	// Questions that a reader may begin the chat with, at most six of at most 200 bytes.
	Suggestions []string `toml:"suggestions"`
	// Whether messages of other bots are answered too.
	AnswerAgents bool `toml:"answer_agents"`
	// Whether mail that came through a mailing list is answered; see `mail.answer_lists`.
	AnswerLists *bool `toml:"answer_lists" default:"mail.answer_lists"`
	// Whose Reply-To the agent's mails follow; see `mail.reply_to`.
	ReplyTo string `toml:"reply_to" default:"mail.reply_to"`
	// Whether the agent's mails go to everybody in To and Cc; see `mail.reply_all`.
	ReplyAll *bool `toml:"reply_all" default:"mail.reply_all"`
	// How many agents in a row may pass one request on: a message that would come after the last is refused. 1 to 32;
	// a caller's own, smaller limit counts.
	MaxHops int `toml:"max_hops"`
	// How long one run may take.
	Timeout time.Duration `toml:"timeout"`
	// How messages wait for the agent when what answers for it is down.
	Retry AgentRetry `toml:"retry"`
	// A question that takes longer is acknowledged once before its answer: a short mail (never within the first minute),
	// a note or a like in the fediverse. A2A shows the state by itself. 0s = never.
	AckAfter time.Duration `toml:"ack_after"`
	// What the acknowledgement says, plain text of at most 1000 bytes.
	AckText string `toml:"ack_text"`
	// Whether the acknowledgement in the fediverse is a like of the question instead of a note.
	AckLike bool `toml:"ack_like"`
	// Exceptions, asked in the order of the file; the first that matches decides.
	Rules []Rule `toml:"rules"`
	// How much of the conversation the agent gets. `history = "person"` is short for its `scope`.
	History History `toml:"history"`
	// Its account as other servers of the fediverse see it.
	Fediverse AgentFediverse `toml:"fediverse"`
	// Who decides about approvals beside you: `@user@domain` is asked on the fediverse, `user@domain` by mail.
	Approvers []string `toml:"approvers"`
	// Which answers wait until you or an approver let them pass: `never`, `always` or `unverified` (those to senders
	// without proof).
	ApproveReplies string `toml:"approve_replies"`
	// What becomes of who wants to follow the agent: `accept`, `hold` (`inbox follows list`) or `reject`.
	Follows string `toml:"follows"`
	// Whether the agent answers only its followers on the fediverse; for mail and A2A see `rules`.
	FollowersOnly bool `toml:"followers_only"`
	// What those who read its answers are shown of the tools that it called: `none`, `names` (the name of each, and whether
	// it failed) or `full` (arguments and results too; members with the names of secrets are redacted). It counts on every
	// channel and for every kind of agent. The sources of an answer are shown in any case.
	ShowTools string `toml:"show_tools"`
	// How long its messages and what was made of them are kept, where that is another time than for other agents.
	Retention AgentRetention `toml:"retention"`
	// Settings of the kind `webhook`.
	Webhook Webhook `toml:"webhook"`
	// Settings of the kind `llm`.
	LLM LLM `toml:"llm"`
	// MCP servers whose tools an agent of kind `llm` may call.
	MCP []MCP `toml:"mcp"`
	// Tools of an agent of kind `llm` that programs of yours execute.
	ClientTools []ClientTool `toml:"client_tools"`
	// Settings of the kind `command`.
	Command Command `toml:"command"`
	// Settings of the kind `remote`.
	Remote Remote `toml:"remote"`
	// Settings of the kind `pull`.
	Pull Pull `toml:"pull"`
}

// History is the sliding window over a conversation (message contract, section 4).
type History struct {
	// `thread` (the conversation itself) or `person` (all conversations with the agent of one person, who has linked
	// their addresses). With `person` the agent may say in public what it was told in private.
	Scope string `toml:"scope"`
	// Turns at the start of the conversation that are always kept, with the answer to the last of them.
	KeepHead int `toml:"keep_head"`
	// Newest turns that are kept.
	Window int `toml:"window"`
	// Turns by which the window moves at once, so that the beginning stays the same in between (prompt caches).
	Slide int `toml:"slide"`
	// Largest text of the history.
	MaxBytes Size `toml:"max_bytes"`
	// Turns older than this are left out; 0s = no limit.
	MaxAge time.Duration `toml:"max_age"`
	// What happens to neighbours of the same role: `merge`, `drop` or `off`.
	Alternation string `toml:"alternation"`
}

// AgentRetry is how runs are repeated that failed for a reason that may pass. After several such failures a breaker opens:
// one message at a time asks whether the program is back, every minute at most, and the others wait without being tried.
type AgentRetry struct {
	// Waits before a run is repeated where the answer is delivered later (mail, fediverse, A2A without waiting). Their sum is
	// how long a message is kept before its sender reads that there is no answer.
	Schedule []time.Duration `toml:"schedule"`
	// The same where somebody waits for the answer (chat, A2A that blocks or streams).
	Waiting []time.Duration `toml:"waiting"`
	// Waiting messages that each node gives to the agent in a second once it is back; 1 to 1000.
	Rate int `toml:"rate"`
	// Age from which `stale` decides about a message that has no answer yet; 0s = never.
	StaleAfter time.Duration `toml:"stale_after"`
	// What becomes of it: `answer` (late), `apologise` (its sender reads that there is no answer), `hold` (kept for you, see
	// `inbox held list`) or `drop` (refused; its sender hears nothing).
	Stale string `toml:"stale"`
}

// Webhook is where an agent of kind webhook is reached. The operator wrote the address, so it may be private.
type Webhook struct {
	// Where the message is sent by POST: `https://…`, or `http://…` for a service in your own network.
	URL string `toml:"url"`
	// Key of the HMAC-SHA256 signature over the request body.
	Secret Secret `toml:"secret"`
	// File with that key instead; a line end after it is cut off.
	SecretFile string `toml:"secret_file"`
	// The key before it, only while you change the key: requests then carry a signature under each, until your program
	// has the new one.
	PreviousSecret Secret `toml:"previous_secret"`
	// File with the key before it instead.
	PreviousSecretFile string `toml:"previous_secret_file"`
	// Whether it is told what became of its answers: `{"event": {"kind": "delivery.bounced", …}}`, signed like a message.
	Events bool `toml:"events"`
}
