package reference

const evidenceIntro = "How a sender was proven. Evidence of a message has a `method`; access rules and `[[trust]]` entries name methods. In a rule `email-dmarc` stands for " +
	"`urn:mentionable:auth:email-dmarc:v0.1`. Evidence of issuers that you trust may have other methods. `inbox show ID` prints what a message has; " +
	"[trust.md](../trust.md) explains it. For evidence of this server the issuer is your domain. `proof.addressed` says what proves that the message " +
	"was meant for the agent ([contract](../contract/message.md#10-identityevidence)); without it evidence authorizes nothing."

// methods has every method that this server itself puts into evidence.
var methods = []Group{
	{Title: "Senders by network", Entries: []Entry{
		{"urn:mentionable:auth:ap-http-signature:v0.1", "The actor's server signed the HTTP request (draft-cavage or RFC 9421). It does not prove who uses the account. Subject: the actor. Assurance: `address`.", ""},
		{"urn:mentionable:auth:ap-object-proof:v0.1", "The actor signed the activity itself (FEP-8b32); any server may bring it. Subject: the actor. Assurance: `address`.", ""},
		{"urn:mentionable:auth:email-dmarc:v0.1", "The domain of `From` publishes DMARC, and DKIM or SPF is aligned with it. It proves the domain, and the person only as far as the domain does; [email.md](../email.md#whom-a-mail-is-meant-for) says for whom. Subject: the address. Assurance: `domain`.", ""},
		{"urn:mentionable:auth:email-dkim:v0.1", "The domain publishes no DMARC, and a DKIM signature is aligned with it. Subject: the address. Assurance: `domain`.", ""},
		{"urn:mentionable:auth:a2a-jwt:v0.1", "The server of an agent elsewhere signed a JWT for this one request ([a2a.md](../a2a.md)). Subject: `acct:name@domain`, which proves the address. Assurance: `agent`.", ""},
		{"urn:mentionable:auth:a2a-oauth:v0.1", "A bearer token. It proves no more than its issuer states. Subject: `token:…` for one that you made, `bridge:<client>` or `bridge:<client>/<sender>` for a [bridge](../bridges.md), `issuer#subject` for an issuer in `[[a2a.issuers]]`. Assurance: `agent`.", ""},
		{"urn:mentionable:auth:a2a-agent:v0.1", "One of your agents calls another agent and says for whom.", ""},
		{"urn:mentionable:auth:local-agent:v0.1", "Another agent of this server. Assurance: `agent`.", ""},
		{"urn:mentionable:auth:local-operator:v0.1", "The operator of this server, by a token of the operator API: `inbox chat`, `inbox agents test`. Subject: `operator:<id of the token>`. Assurance: `agent`.", ""},
	}},
	{Title: "Connectors, logins and approvals", Entries: []Entry{
		{"urn:mentionable:auth:connector:v0.1", "A [connector](../connectors.md) with the right signature states it. Subject: `connector:<name>/<sender>`. Assurance: `connector`.", ""},
		{"urn:mentionable:auth:platform-mention:v0.1", "A connector says that its platform knows the person, where `connectors.method` names nothing else.", ""},
		{"urn:mentionable:auth:oauth:v0.1", "The asker signed in at an OpenID provider of `[[logins]]`.", ""},
		{"urn:mentionable:auth:operator:v0.1", "The operator decided an approval.", ""},
	}},
}
