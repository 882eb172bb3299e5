// Package text reads what a person says in a mail: the readable form of its parts, Markdown of its HTML without what a reader
// would not see, what is new in it beside what it answers, the files it carries, and what invitations, enclosed mails and
// signatures hold.
//
// It fetches nothing, opens nothing that is encrypted, checks no signature, and knows neither the sender nor the agent.
package text
