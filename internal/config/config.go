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
	// Where HTTP is reached from outside, without a path. Its host may differ from `domain`. Must be https unless
	// `federation.allow_private` is on. If you leave it out, it is `http://localhost` with the port of `http.listen`.
	PublicURL string `toml:"public_url" default:"http://localhost:8080"`
	// Who serves HTTP at `domain` itself, where that is another host than that of `public_url`: `here` (its addresses are those of this server, which has
	// a certificate for it) or `elsewhere` (another web server, which redirects WebFinger to `public_url`; see [domains.md](domains.md#a-domain-whose-web-site-is-elsewhere)).
	Apex string `toml:"apex"`
	// Directory for the SQLite file, stored attachments and generated keys.
	DataDir string `toml:"data_dir"`
	// `sqlite` (a file in `data_dir`) or `postgres://user:password@host/database`. Of several hosts, `host1:5432,host2:5432`,
	// the server uses the first that takes writes. Parameters are those of libpq and pgx: `sslmode`, `connect_timeout`,
	// `target_session_attrs`, `search_path`, `statement_cache_capacity`, `default_query_exec_mode`, `pool_min_conns`,
	// `pool_max_conn_lifetime` and others. `database.connections` replaces `pool_max_conns`.
	DatabaseURL SecretURL `toml:"database_url"`
	// File with the password for PostgreSQL, instead of one in `database_url`.
	DatabasePasswordFile string `toml:"database_password_file"`
	// Where attachments and large originals are kept: `file` (`blobs` in `data_dir`), `file:///directory`, or
	// `s3://bucket/prefix?endpoint=https://host:port&region=…` for a server that speaks the S3 protocol. `[blob]` has its keys;
	// write `&style=host` or `&style=path` to say where addresses have the bucket. All nodes of a database need the same one.
	BlobURL SecretURL `toml:"blob_url"`
	// File with 32 random bytes as base64, which seal private keys and the credentials of peers in the database. `openssl rand
	// -base64 32` makes it. Nodes that share a database need the same one, and every backup needs it.
	SecretKeyFile string `toml:"secret_key_file" default:"secret.key in data_dir, made at the first start"`
	// How long a stopping server keeps serving after `/readyz` answers 503, so that a balancer sends its clients elsewhere. A
	// second signal ends the wait and the server.
	Drain time.Duration `toml:"drain" default:"5s; 0s while public_url is local"`
	// How long a stopping server then waits for requests and running turns. What is not finished continues after the restart.
	ShutdownGrace time.Duration `toml:"shutdown_grace"`

	HTTP       HTTP       `toml:"http"`
	ACME       ACME       `toml:"acme"`
	Blob       Blob       `toml:"blob"`
	Database   Database   `toml:"database"`
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

	Domains    []Domain    `toml:"domains"`
	Trust      []Trust     `toml:"trust"`
	Peers      []Peer      `toml:"peers"`
	Logins     []Login     `toml:"logins"`
	Connectors []Connector `toml:"connectors"`
	Targets    []Target    `toml:"targets"`
	Agents     []Agent     `toml:"agents"`

	// Development says that no file was found: everything listens on loopback, private addresses are allowed, mail
	// is captured and the agent `echo` answers anyone.
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
	// Address of the HTTP listener, `host:port`, or `unix:/run/inbox/http.sock` for a socket that a proxy on this machine connects to. Port 0
	// takes a free one.
	Listen string `toml:"listen"`
	// `off` (plain HTTP, for a reverse proxy in front), `files` (`cert_file` and `key_file`) or `acme` (from a certificate
	// authority, see `[acme]`; renewed automatically and shared by all nodes of a database). STARTTLS and gRPC use the same
	// certificates.
	TLS string `toml:"tls"`
	// PEM file with the certificate chain, for `tls = "files"`. The running server notices a new file.
	CertFile string `toml:"cert_file"`
	// PEM file with the private key, for `tls = "files"`.
	KeyFile string `toml:"key_file"`
	// Networks (CIDR or single address) of reverse proxies whose `X-Forwarded-For` the server accepts.
	TrustedProxies []netip.Prefix `toml:"trusted_proxies"`
	// Your own networks (CIDR or single address). They see `/metrics` at an address or a name of the server, and `limits.http`
	// does not count their requests. Behind a trusted proxy the client's address counts; a request with the headers of any other
	// proxy is never inside. Write loopback here only if every proxy on this machine sets `X-Forwarded-For`: otherwise all
	// strangers are inside.
	Inside []netip.Prefix `toml:"inside" default:"[\"127.0.0.0/8\", \"::1\"] while public_url is local; none otherwise"`
	// Largest request body; A2A has `a2a.max_request_bytes`. Routes may have smaller limits.
	MaxBodyBytes Size `toml:"max_body_bytes"`
	// Bytes of all request bodies in memory at once; beyond it clients get 503 and try again. One client network may use an
	// eighth of it, and callers without proof leave a quarter to others.
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
	// Largest accepted mail without proof of its sender; a larger one gets 552 5.3.4. When this much was read and the header
	// cannot be proven, the server refuses the mail at once. 0 = as for others.
	UnprovenMaxBytes Size `toml:"unproven_max_bytes"`
	// Connections of other servers at once; the next gets 421.
	MaxConnections int `toml:"max_connections"`
	// Connections at once from one IPv4 address or IPv6 /64. Its /26 or /48 may have three times as many, its /21 or /32 nine
	// times. With `federation.allow_private` loopback addresses are not counted, here and below.
	ConnectionsPerAddress int `toml:"connections_per_address"`
	// New connections in a minute, counted likewise.
	ConnectionsPerMinute int `toml:"connections_per_minute"`
	// New mails in a minute, counted likewise; the next gets 452, and its server tries again.
	MailsPerMinute int `toml:"mails_per_minute"`
}

// DNS is who resolves names.
type DNS struct {
	// Resolver as `host:port`, for mail authentication and for outgoing requests; empty = that of the operating system.
	Resolver string `toml:"resolver"`
}

// Federation is about other servers of the fediverse, and about every outgoing connection.
type Federation struct {
	// Allows private and loopback addresses, plain http, any port, IP addresses as hosts and a `domain` with a port. For
	// development and closed networks only: a stranger's link could otherwise reach services in your network.
	AllowPrivate bool `toml:"allow_private" default:"false; true without a file"`
	// Link-local addresses and metadata services of clouds, each a single address, at which a back end, a model, a tool or another
	// service that you configure may be. The server connects to no others: these services give credentials to every caller.
	MetadataAddresses []netip.Prefix `toml:"metadata_addresses"`
	// `open`: everyone with proof may write, unless blocked. `allowlist`: only those on the allow list (`inbox allow add`) may
	// write, on every protocol, and the server contacts no one else. See [moderation.md](moderation.md).
	Mode string `toml:"mode"`
	// Pauses between attempts for a delivery. If the attempt after the last pause fails, the delivery is given up.
	Retry []time.Duration `toml:"retry"`
	// Demands that a signature of the older scheme (draft-cavage) covers the `Host` header. Otherwise a request that was
	// captured on its way to another server could be repeated here. Turn it off only for a peer that you know and that has no
	// alternative.
	RequireSignedHost bool `toml:"require_signed_host"`
	// Deliveries at once to one server, at least 1.
	HostConcurrency int `toml:"host_concurrency" default:"4; queue.delivery_concurrency with allow_private"`
	// New deliveries in a second to one server, on this node; 0 = no limit.
	HostRate int `toml:"host_rate" default:"5; 0 with allow_private"`
	// Demands signed requests from other servers for everything but the server's own account, so that servers that you block
	// cannot read along. Browsers still see public posts.
	AuthorizedFetch bool `toml:"authorized_fetch"`
	// Whether public answers also go to the agent's followers, as those of people do.
	FollowersGetReplies bool `toml:"followers_get_replies"`
	// Answers public questions publicly. Otherwise the answers are unlisted, so that agents do not fill public timelines.
	PublicReplies bool `toml:"public_replies"`
	// Characters after which a long answer becomes a chain of posts, at most five.
	PostLength int `toml:"post_length"`
}

// A2A is about agents that call yours by A2A.
type A2A struct {
	// Address of the gRPC listener, `host:port`; empty = off. It has TLS where `http.tls` is `files`.
	GRPCListen string `toml:"grpc_listen"`
	// Where gRPC is reached from outside, `host:port`, as agent cards name it.
	GRPCAddress string `toml:"grpc_address" default:"host of public_url, port of grpc_listen"`
	// Agent whose card is at `/.well-known/agent-card.json`, which has room for one, and which gRPC reaches without a tenant.
	DefaultAgent string `toml:"default_agent" default:"the first agent"`
	// Requests of one caller at once on this node, with streams and blocking sends; above it the caller gets 429. All agents of
	// another server count as one caller.
	CallerConcurrency int `toml:"caller_concurrency"`
	// Largest request, on every binding; a file of 20 MiB takes 27 MiB in JSON. Over 8 MiB the caller needs a token of this
	// server or of an issuer: a peer that signs for itself is refused. All requests count as `http.max_bytes_in_flight` while
	// they are in memory.
	MaxRequestBytes Size `toml:"max_request_bytes"`
	// Hosts of webhooks, `host` or `host:port`, that may be private addresses and plain http, and that get the credentials of a
	// webhook without confirming that they want them. Without a port: ports 443 and 80, with `federation.allow_private` every
	// port. Link-local addresses and metadata services of clouds are never called.
	WebhookHosts []string `toml:"webhook_hosts"`
	Issuers      []Issuer `toml:"issuers"`
}

// Log is the server's own log, on standard error.
type Log struct {
	// `debug`, `info`, `warn` or `error`.
	Level string `toml:"level"`
	// `text` or `json`.
	Format string `toml:"format"`
	// Writes one line for each answered HTTP request: method, pattern of the route, status, bytes, milliseconds, address of the
	// client.
	Access bool `toml:"access"`
}

// Queue is the durable work: running turns and delivering answers.
type Queue struct {
	// How long a node may be silent before another node takes over its work. At least 1s.
	Lease time.Duration `toml:"lease"`
	// Turns that run at once on this node, for all agents. A quarter more may begin for agents and senders that have none
	// running.
	TurnConcurrency int `toml:"turn_concurrency"`
	// Deliveries at once on this node.
	DeliveryConcurrency int `toml:"delivery_concurrency"`
}

// Telemetry is about traces; metrics are always at /metrics.
type Telemetry struct {
	// Where traces are sent (OTLP over HTTP), such as `http://localhost:4318`. Empty = to `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`
	// or `OTEL_EXPORTER_OTLP_ENDPOINT`, or nowhere. `OTEL_EXPORTER_OTLP_HEADERS` has the credentials of the receiver.
	OTLPEndpoint string `toml:"otlp_endpoint"`
	// Share of the messages that are traced, from 0 to 1. A program with a token of this server that sends a `traceparent`
	// decides itself.
	Sample float64 `toml:"sample"`
	// Name of this server in traces (`service.name`); `OTEL_SERVICE_NAME` takes precedence.
	Service string `toml:"service"`
}

// Agent is one agent that answers at @name@domain. One table per agent.
type Agent struct {
	// Part of the address before the @: letters, digits, `.`, `_`, `-`, at most 64.
	Name string `toml:"name" default:"none; required"`
	// Domain of its address: `domain` or the name of one of `[[domains]]`.
	Domain string `toml:"domain" default:"domain at the top"`
	// `echo` (answers with what it got), `webhook` (asks your HTTP service), `llm` (a model provider), `command` (a local
	// program), `remote` (an A2A agent elsewhere) or `pull` (a program that fetches its messages).
	Kind string `toml:"kind" default:"none; required"`
	// Name that people see.
	DisplayName string `toml:"display_name" default:"name"`
	// One or two sentences about what the agent does, plain text.
	Summary string `toml:"summary"`
	// Who may write to the agent: `public` (anyone), `verified` (anyone with accepted evidence) or `rules` (only senders whom a
	// rule lets in; without rules no one). Must be written as soon as there are rules.
	Access string `toml:"access"`
	// What a message without proof of its sender gets: `answer`, `hold` (kept for the operator) or `refuse`.
	Unverified string `toml:"unverified" default:"\"hold\"; \"answer\" for echo without a file"`
	// What the agent says first in the chat of its page.
	Greeting string `toml:"greeting" default:"a sentence in the reader's language"`
	// Questions that a reader may begin the chat with, at most six of at most 200 bytes.
	Suggestions []string `toml:"suggestions"`
	// Whether messages of other bots are answered, too.
	AnswerAgents bool `toml:"answer_agents"`
	// Further mail addresses of the agent, such as `support@example.com`, which forwards its mail to the agent's address. Mail that
	// names one in To or Cc counts as mail to the agent, and answers come from the agent's own address. At most 50.
	Aliases []string `toml:"aliases"`
	// As `mail.answer_lists`, for this agent.
	AnswerLists *bool `toml:"answer_lists" default:"mail.answer_lists"`
	// As `mail.reply_to`, for this agent.
	ReplyTo string `toml:"reply_to" default:"mail.reply_to"`
	// As `mail.reply_all`, for this agent.
	ReplyAll *bool `toml:"reply_all" default:"mail.reply_all"`
	// How many agents in a row may pass one request on; the server refuses the message after that. 1 to 32; a caller's own,
	// smaller limit counts.
	MaxHops int `toml:"max_hops"`
	// How long one run may take.
	Timeout time.Duration `toml:"timeout"`
	Retry   AgentRetry    `toml:"retry"`
	// A question that takes longer is acknowledged once before its answer: by a short mail (never within the first minute), or
	// a note or a like on the fediverse. A2A shows the state anyway. 0s = never.
	AckAfter time.Duration `toml:"ack_after"`
	// Text of the acknowledgement, plain, at most 1000 bytes.
	AckText string `toml:"ack_text"`
	// Whether the acknowledgement on the fediverse is a like of the question instead of a note.
	AckLike   bool           `toml:"ack_like"`
	Rules     []Rule         `toml:"rules"`
	History   History        `toml:"history"`
	Fediverse AgentFediverse `toml:"fediverse"`
	// Who decides about approvals beside you: `@user@domain` is asked on the fediverse, `user@domain` by mail.
	Approvers []string `toml:"approvers"`
	// How an approver is proven who decides by message, where that is not the default. One table per approver.
	ApproverMethods []ApproverMethods `toml:"approver_methods"`
	// Which answers wait until you or an approver release them: `never`, `always` or `unverified` (those to senders without
	// proof).
	ApproveReplies string `toml:"approve_replies"`
	// What happens to requests to follow the agent: `accept`, `hold` (`inbox follows list`) or `reject`.
	Follows string `toml:"follows"`
	// Whether the agent answers only its followers on the fediverse; for mail and A2A see `rules`.
	FollowersOnly bool `toml:"followers_only"`
	// What readers of its answers see of the tools that it called: `none`, `names` (the name of each, and whether it failed) or
	// `full` (also arguments and results; members with the names of secrets are redacted). It applies to every channel and
	// every kind of agent. The sources of an answer are always shown.
	ShowTools   string         `toml:"show_tools"`
	Retention   AgentRetention `toml:"retention"`
	Webhook     Webhook        `toml:"webhook"`
	LLM         LLM            `toml:"llm"`
	MCP         []MCP          `toml:"mcp"`
	ClientTools []ClientTool   `toml:"client_tools"`
	Command     Command        `toml:"command"`
	Remote      Remote         `toml:"remote"`
	Pull        Pull           `toml:"pull"`
}

// History is how much of the conversation the agent gets: a sliding window (message contract, section 4). `history = "person"`
// is short for its `scope`.
type History struct {
	// `thread` (the conversation itself) or `person` (all conversations of the sender with the agent, and of the addresses that are
	// linked with the sender for this agent). With `person` the agent may say in public what it was told in private.
	Scope string `toml:"scope"`
	// Turns at the start of the conversation that are always kept, with the answer to the last of them.
	KeepHead int `toml:"keep_head"`
	// Newest turns that are kept.
	Window int `toml:"window"`
	// Turns by which the window moves at once, so that the beginning stays the same in between (prompt caches).
	Slide int `toml:"slide"`
	// Largest text of the history. A longer head is shortened to half of it, any other turn but the newest two to a quarter.
	MaxBytes Size `toml:"max_bytes"`
	// Turns older than this are left out; 0s = no limit.
	MaxAge time.Duration `toml:"max_age"`
	// What happens to neighbours of the same role: `merge`, `drop` or `off`.
	Alternation string `toml:"alternation"`
}

// AgentRetry is how the server repeats runs that failed for a reason that may pass. After the first failure of a webhook, a model's provider or an
// agent elsewhere the server probes it without a message. A breaker opens when a probe fails, after three runs without a connection, or after failures
// of messages from three independent senders. A program that takes no connection is looked for every five seconds; otherwise one message at a time asks whether it is back, every 5 s at first and every minute later. The
// others wait, except those of senders whose messages have not failed. A message that fails three times while others are answered is given up.
type AgentRetry struct {
	// Pauses before a run is repeated where the answer is delivered later (mail, fediverse, A2A without waiting). Their sum is
	// how long a message is kept before its sender reads that there is no answer.
	Schedule []time.Duration `toml:"schedule"`
	// The same where a client waits for the answer (chat, A2A that blocks or streams).
	Waiting []time.Duration `toml:"waiting"`
	// Waiting messages that each node sends to the agent in a second once it is back; 1 to 1000.
	Rate int `toml:"rate"`
	// Pause between two probes of a back end that failed, 1s to 5m. A probe carries no message and costs nothing: `OPTIONS` to a webhook, the list of
	// models of a provider, the card of an agent elsewhere.
	Probe time.Duration `toml:"probe"`
	// Age from which `stale` decides about a message that has no answer yet; 0s = never.
	StaleAfter time.Duration `toml:"stale_after"`
	// What happens to it: `answer` (late), `apologise` (its sender reads that there is no answer), `hold` (kept for you, see
	// `inbox held list`) or `drop` (refused without a notice).
	Stale string `toml:"stale"`
}

// Webhook is where an agent of kind `webhook` is reached ([webhook.md](agents/webhook.md)). You wrote the address, so it may be
// private.
type Webhook struct {
	// Where the server posts the message: `https://…`, or `http://…` for a service in your own network.
	URL string `toml:"url"`
	// Key of the HMAC-SHA256 signature over the request body.
	Secret Secret `toml:"secret"`
	// File with that key instead; a line end after it is cut off.
	SecretFile string `toml:"secret_file"`
	// The key before it, while you change the key: requests carry a signature of each until your program has the new one.
	PreviousSecret Secret `toml:"previous_secret"`
	// File with the key before it instead.
	PreviousSecretFile string `toml:"previous_secret_file"`
	// Whether it is told how its answers ended: `{"event": {"kind": "delivery.bounced", …}}`, signed like a message.
	Events bool `toml:"events"`
}
