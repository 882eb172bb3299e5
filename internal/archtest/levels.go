// Package archtest is the plan of the house as a test: which package stands on which level, which room keeps which
// third-party module, and what no package may do. It contains tables only; the checks are its tests. It does not
// judge style, which is the linter's work.
package archtest

// Module is the path of this module.
const Module = "inbox"

// levels places every package. A package imports only packages of lower levels, so arrows never form a circle and
// neighbours never know each other. Move a package together with a decision record in docs/decisions.
var levels = map[string]int{
	"identity":                  0,
	"migrations":                0,
	"internal/fault":            0,
	"internal/reference":        0,
	"internal/telemetry":        0,
	"internal/archtest":         0,
	"internal/disk":             0,
	"internal/admission":        0,
	"internal/webhooksignature": 0,
	"internal/clip":             0,
	"internal/filetype":         0,
	"internal/uniquejson":       0,
	"internal/capability":       0,
	"internal/catalog":          0,
	"internal/boundedjson":      0,
	"internal/supervisor":       0,
	"internal/children":         0,
	"internal/await":            0,
	"internal/clock":            0,
	"internal/semaphore":        0,
	"internal/golden":           0,
	"internal/systemd":          0,
	"internal/metadata":         0,
	"internal/lookalike":        0,

	"policypart":           1,
	"internal/redact":      1,
	"internal/design":      1,
	"internal/config":      1,
	"internal/safehttp":    1,
	"internal/signing":     0,
	"internal/sealing":     0,
	"internal/openapi":     0,
	"internal/queue":       1,
	"internal/blob":        1,
	"internal/httpserver":  1,
	"internal/acme":        1,
	"internal/facilitator": 1,
	"internal/openid":      1,
	"internal/webtoken":    1,

	"normalized": 2,

	"exchange":                3,
	"history":                 3,
	"internal/markup":         3,
	"agents/runtime/value":    2,
	"agents/runtime/envelope": 3,

	"agents/runtime/tool":         4,
	"agents/runtime/tool/request": 4,
	"agents/runtime/task":         4,
	"internal/bearer":             4,
	"agents/upstream":             4,

	"agents/runtime/loop": 5,
	"agents/hook":         5,

	// The lower packages of adapters stand below them.
	"adapters/activitypub/document":  5,
	"adapters/activitypub/signature": 6,
	"adapters/activitypub/notetext":  6,
	"adapters/email/message":         5,
	"adapters/email/dns":             5,
	"adapters/email/authentication":  6,
	"adapters/email/outbound":        6,
	"adapters/email/bounce":          6,
	"adapters/email/text":            6,
	"adapters/email/report":          6,
	"adapters/chat/contract":         5,
	"adapters/bridge/contract":       5,

	"agents": 6,

	"agents/echo":       7,
	"agents/llm":        7,
	"agents/webhook":    7,
	"agents/command":    7,
	"agents/remote":     7,
	"agents/pull":       7,
	"agents/mcptool":    7,
	"agents/clienttool": 7,
	"agents/files":      7,

	"adapters/activitypub": 7,
	"adapters/a2a":         7,
	"adapters/email":       7,
	"adapters/chat":        7,
	"adapters/bridge":      7,
	"adapters/tasks":       7,
	"adapters/discovery":   7,

	"engine/blame":      0,
	"engine/delivery":   7,
	"engine/moderation": 6,
	"engine/admission":  7,
	"engine/demand":     7,
	"engine/mailbox":    7,
	"engine/notice":     7,
	"engine/pipeline":   8,

	"engine/store/database": 6,
	"engine/store":          9,
	"internal/peer":         8,
	"internal/recording":    9,
	"internal/simulation":   9,

	"engine/storage":     10,
	"engine/backup":      10,
	"operator/doctor":    10,
	"operator/setup":     10,
	"operator/lookup":    10,
	"operator/operation": 4,
	"operator/held":      11,
	"operator/takeover":  11,
	"operator":           12,

	"console/account":  10,
	"console":          13,
	"console/public":   13,
	"console/handbook": 13,
	"console/pages":    14,

	".": 15, // the root package

	"internal/demo": 16,
	"cmd/inbox":     17,

	// Outside of the program: they start it, or stand beside it.
	"tools/...":                  17,
	"e2e/...":                    17,
	"e2e":                        18,
	"bench/bare":                 16,
	"bench/a2asdk":               16,
	"bench":                      18,
	"docs/examples/...":          17,
	"docs/examples/channel/line": 16,
}

// entrances lists which packages may import a room at all, levels aside; of several that match, the longest room decides. Everything
// else goes through the interfaces that it declares itself.
var entrances = []struct {
	room      string
	importers []string
	reason    string
}{
	{"adapters/...", []string{".", "operator", "operator/...", "adapters/email", "adapters/email/...", "adapters/activitypub", "adapters/activitypub/...", "e2e/...", "bench"}, "only the root package and what an operator may do know the adapters; the engine knows no protocol"},
	{"adapters/activitypub/...", []string{"adapters/activitypub", "adapters/activitypub/..."}, "the lower packages of an adapter are its own"},
	{"adapters/email/...", []string{"adapters/email", "adapters/email/..."}, "the layers of mail are known to its adapter alone"},
	{"adapters/chat/contract", []string{"adapters/chat"}, "the wire contract of an adapter is its own"},
	{"adapters/bridge/contract", []string{"adapters/bridge", "engine/store", "operator", ".", "e2e/..."}, "the wire contract of an adapter is its own; the store keeps the items, clients and session keys of bridges in its form"},
	{"engine/store", []string{".", "engine/storage", "engine/backup", "operator", "operator/...", "e2e/...", "bench"}, "only the root package and what an operator may do know the store; others declare the two or three methods that they need"},
	{"engine/store/database", []string{"engine/store", "engine/storage", "engine/backup", "operator/doctor"}, "what tables stand on is known to the store, and to who copies, opens or looks at a database as a whole"},
	{"engine/storage", []string{"."}, "only the root package opens what a server keeps"},
	{"engine/backup", []string{"."}, "only the root package knows what belongs to a backup"},
	{"engine/pipeline", []string{".", "operator", "operator/...", "engine/store", "bench"}, "adapters and console declare what they need of the pipeline"},
	{"engine/delivery", []string{".", "operator", "operator/...", "console/pages", "cmd/inbox", "engine/..."}, "adapters and the API declare what they need of deliveries; the pages and commands show what operator returns"},
	{"engine/admission", []string{"operator", "console/pages", "engine/..."}, "the engine decides by it, and operators see how"},
	{"engine/moderation", []string{".", "operator", "operator/...", "engine/..."}, "adapters and console declare what they need of the lists"},
	{"engine/mailbox", []string{".", "operator", "engine/..."}, "adapters declare what they need of kept mail"},
	{"engine/notice", []string{".", "operator", "engine/store"}, "others say what happened where they store it; the store counts it"},
	{"engine/demand", []string{".", "console", "engine/..."}, "adapters declare what they need of demands"},
	{"migrations", []string{"engine/store/database"}, "the store is the only room with SQL"},
	{"internal/config", []string{".", "operator", "operator/..."}, "a room takes what it needs as options; only the root package and what an operator looks at read the settings"},
	{".", []string{"cmd/inbox", "internal/demo", "e2e/...", "bench", "docs/examples/..."}, "the root package ties the rooms together and is no room itself"},
	{"internal/peer", []string{"internal/demo", "internal/simulation", "operator", "e2e/...", "bench"}, "peers are for demo, simulations and tests"},
	{"internal/simulation", []string{"operator", "cmd/inbox", "e2e/..."}, "who simulates a message is an operator"},
	{"internal/await", []string{"e2e/..."}, "it is for tests"},
	{"internal/golden", nil, "it is for tests"},
}

// thirdParties says which room keeps a module, standard packages among them. Everything imported is listed: a new
// module gets its room here. Test files and conformance suites may import what they like.
var thirdParties = []struct {
	prefix string
	rooms  []string
	reason string
}{
	{"github.com/emersion/", []string{"adapters/email", "adapters/email/...", "internal/peer"}, "mail is spoken in adapters/email"},
	{"blitiri.com.ar/go/spf", []string{"adapters/email", "adapters/email/authentication"}, "mail is spoken in adapters/email"},
	{"github.com/miekg/dns", []string{"internal/peer", "internal/safehttp"}, "a name server is for demo and tests; lookups go through internal/safehttp"},
	{"github.com/go-fed/httpsig", []string{"adapters/activitypub/signature", "internal/peer"}, "HTTP signatures are made and checked in adapters/activitypub/signature"},
	{"github.com/dunglas/httpsfv", []string{"adapters/activitypub/signature", "internal/httpserver", "internal/peer"}, "structured fields serve the signatures of ActivityPub and the RateLimit fields of all HTTP"},
	{"github.com/a2aproject/", []string{"adapters/a2a", "agents/remote", "internal/peer", "e2e/...", "bench/a2asdk"}, "A2A is spoken in adapters/a2a and agents/remote"},
	{"google.golang.org/", []string{"adapters/a2a", "agents/remote", "e2e/..."}, "gRPC is a binding of A2A"},
	{"database/sql", []string{"bench/bare", "engine/store", "engine/store/database"}, "the store is the only room with SQL"},
	{"github.com/jackc/", []string{"engine/store/database"}, "the store is the only room with SQL"},
	{"modernc.org/sqlite", []string{"engine/store/database", "bench/bare"}, "the store is the only room with SQL"},
	{"github.com/pressly/goose", []string{"engine/store", "engine/store/database"}, "the store runs the migrations"},
	{"github.com/spf13/cobra", []string{"cmd/inbox"}, "the command line is in cmd/inbox"},
	{"github.com/caddyserver/certmagic", []string{"internal/acme"}, "listeners take a tls.Config and do not know where certificates come from"},
	{"github.com/mholt/acmez/", []string{"internal/acme"}, "listeners take a tls.Config and do not know where certificates come from"},
	{"github.com/libdns/", []string{"internal/acme"}, "records of a zone are set for certificates alone"},
	{"go.uber.org/zap", []string{"internal/acme"}, "the server logs by slog; this library does not"},
	{"github.com/go-chi/", []string{"internal/httpserver"}, "rooms offer httpserver.Route and never see the router"},
	{"github.com/minio/minio-go/", []string{"internal/blob"}, "the S3 protocol is spoken in internal/blob"},
	{"github.com/BurntSushi/toml", []string{"internal/config"}, "settings are read in internal/config"},
	{"code.dny.dev/ssrf", []string{"internal/safehttp"}, "the address policy is in internal/safehttp"},
	{"go.opentelemetry.io/", []string{"internal/telemetry"}, "traces are set up in internal/telemetry"},
	{"github.com/microcosm-cc/bluemonday", []string{"adapters/...", "console"}, "HTML is cleaned where it arrives or is shown"},
	{"github.com/a-h/templ", []string{"internal/design", "console", "console/...", "adapters/chat", "adapters/activitypub"}, "pages are written where they are served"},
	{"rsc.io/qr", []string{"console/public"}, "codes are drawn on the pages of agents"},
	{"github.com/bep/goat", []string{"tools/drawing"}, "pictures of documents are drawn from characters"},
	{"github.com/yuin/goldmark", []string{"internal/markup", "console/handbook"}, "Markdown is read within the bounds of internal/markup"},
	{"go.mau.fi/util", []string{"internal/lookalike"}, "what looks alike is in internal/lookalike"},
	{"github.com/rivo/uniseg", []string{"internal/markup"}, "texts are cut between characters as readers see them in internal/markup"},
	{"golang.org/x/net/html", []string{"adapters/...", "internal/markup", "internal/peer"}, "HTML is parsed within the bounds of internal/markup"},
	{"golang.org/x/net/idna", []string{"identity", "adapters/...", "console/public", "internal/lookalike"}, "domains are read in identity, and shown to approvers by internal/lookalike"},
	{"golang.org/x/net/publicsuffix", []string{"identity", "adapters/email/authentication", "internal/lookalike"}, "organisational domains serve DMARC and limits, public suffixes tell hosts from words"},
	{"golang.org/x/text/", []string{"adapters/...", "normalized", "identity", "engine/store", "internal/lookalike"}, "texts are brought into form where they arrive, and words where they are indexed"},
	{"golang.org/x/sync/", []string{"..."}, ""},
	{"github.com/google/uuid", []string{"..."}, ""},
	{"github.com/hashicorp/golang-lru/", []string{"..."}, ""},
	{"github.com/gowebpki/jcs", []string{"policypart", "identity", "adapters/a2a", "adapters/activitypub/signature", "internal/facilitator", "internal/webtoken"}, "canonical JSON serves signatures"},
	{"github.com/santhosh-tekuri/jsonschema", []string{"normalized"}, "schemas are checked where the contract is"},
	{"github.com/modelcontextprotocol/", []string{"agents/mcptool"}, "MCP is spoken in agents/mcptool"},
	{"github.com/go-jose/go-jose", []string{"internal/webtoken"}, "signed tokens are checked in internal/webtoken"},
	{"github.com/coreos/go-systemd/", []string{"internal/systemd"}, "the service manager is spoken with in internal/systemd"},
	{"github.com/coreos/go-oidc", []string{"internal/openid"}, "logins at other services are made in internal/openid"},
	{"golang.org/x/oauth2", []string{"internal/openid", "agents/remote"}, "logins at other services are made in internal/openid, tokens for A2A agents elsewhere in agents/remote"},
	{"github.com/prometheus/", []string{"..."}, ""},
	{"github.com/opencontainers/", []string{"tools/release"}, "images are written by tools/release, and the server knows nothing of them"},
	{"golang.org/x/crypto/x509roots/", []string{"tools/release"}, "the roots of certificates are a file of the image; elsewhere they are those of the system"},
	{"github.com/google/go-cmp/", []string{"internal/golden"}, "go-cmp is for tests"},
	{"pgregory.net/rapid", nil, "rapid is for tests"},
	{"go.uber.org/goleak", nil, "goleak is for tests"},
	{"github.com/rogpeppe/go-internal", nil, "testscript is for tests"},
}
