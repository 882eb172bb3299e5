package config

// Issuer is one trusted issuer of bearer tokens.
type Issuer struct {
	// Value of the `iss` claim, compared letter by letter.
	Issuer string `toml:"issuer" default:"none; required"`
	// Where the issuer publishes its keys. Either this or `discovery`.
	JWKSURL string `toml:"jwks_url"`
	// Where the issuer publishes its metadata (RFC 8414 or OpenID Connect Discovery), which must name this very issuer.
	Discovery string `toml:"discovery"`
	// Values of the `aud` claim that are accepted beside the agent's own address `<public_url>/a2a/<agent>`. One that names
	// an agent opens that agent only, every other opens all agents of this server.
	Audiences []string `toml:"audiences"`
	// Signature algorithms that are accepted: `EdDSA`, `ES256`, `ES384`, `ES512`, `RS256` … `RS512`, `PS256` … `PS512`.
	Algs []string `toml:"algs" default:"ES256, EdDSA, RS256, PS256"`
	// `a2a-oauth`: access tokens (RFC 9068), good until they end. `a2a-jwt`: tokens that are good for one request, last five
	// minutes at most and carry a `jti`. A whole method URN counts as the first and stands in the identity evidence as it is.
	Method string `toml:"method" default:"a2a-oauth"`
	// Whether access tokens without `typ` `at+jwt`, `client_id` and `jti` are accepted, as some older services issue them.
	Untyped bool `toml:"untyped"`
	// Whether access tokens without a `scope` claim open every method.
	Unscoped bool `toml:"unscoped"`
}
