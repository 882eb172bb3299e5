package reference

const evidenceIntro = "How a sender was proven. Evidence of a message has a `method`; access rules and `[[trust]]` entries name methods. In a rule `email-dmarc` stands for " +
	"`urn:mentionable:auth:email-dmarc:v0.1`. Evidence of issuers that you trust may have other methods. `inbox show ID` prints what a message has; [trust.md](../trust.md) explains it."

// methods has every method that this server itself puts into evidence.
var methods = []Group{
	{Title: "Senders by network", Entries: []Entry{
		{"urn:mentionable:auth:ap-http-signature:v0.1", "The actor's server signed the HTTP request (draft-cavage or RFC 9421). Subject: the actor.", ""},
		{"urn:mentionable:auth:ap-object-proof:v0.1", "The actor signed the activity itself (FEP-8b32); any server may bring it. Subject: the actor.", ""},
		{"urn:mentionable:auth:email-dmarc:v0.1", "The domain of `From` publishes DMARC, and DKIM or SPF is aligned with it. Subject: the address.", ""},
		{"urn:mentionable:auth:email-dkim:v0.1", "The domain publishes no DMARC, and a DKIM signature is aligned with it. Subject: the address.", ""},
		{"urn:mentionable:auth:a2a-jwt:v0.1", "The domain of the peer signed a JWT for this one request. Subject: the peer.", ""},
		{"urn:mentionable:auth:a2a-oauth:v0.1", "A bearer token: one that you made, or an access token of an issuer in `[[a2a.issuers]]`. Subject: the owner of the token.", ""},
		{"urn:mentionable:auth:a2a-agent:v0.1", "One of your agents calls another agent and says for whom.", ""},
		{"urn:mentionable:auth:local-agent:v0.1", "An agent of this server.", ""},
		{"urn:mentionable:auth:local-operator:v0.1", "The operator of this server, by `inbox chat`, `inbox agents test` or the API.", ""},
	}},
	{Title: "Connectors, logins and approvals", Entries: []Entry{
		{"urn:mentionable:auth:connector:v0.1", "A connector with the right signature brought the message. It says nothing about the person.", ""},
		{"urn:mentionable:auth:platform-mention:v0.1", "A connector says that its platform knows the person, where `connectors.method` names nothing else.", ""},
		{"urn:mentionable:auth:oauth:v0.1", "The asker signed in at an OpenID provider of `[[logins]]`.", ""},
		{"urn:mentionable:auth:operator:v0.1", "The operator decided an approval.", ""},
	}},
}
