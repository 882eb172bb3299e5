package migrations

// TableRule says of a table what ends its rows and what becomes of a person in it.
type TableRule struct {
	Ends    string // what ends a row; "for ever: " and the reason where nothing does
	Erasure string // what an erasure of a person does; "nothing: " and the reason where it does nothing
}

// TableRules has every table of the schema. A migration that adds a table adds its line here: a test holds both to each other.
var TableRules = map[string]TableRule{
	"turns":         {"words: retention.messages; row: retention.records", "rows of the person are removed"},
	"turn_parties":  {"with their message", "removed with their message, and where they name the person"},
	"originals":     {"retention.originals and retention.messages, with the last message of the same bytes", "removed with the last message of the same bytes"},
	"events":        {"retention.steps", "removed with their message"},
	"replies":       {"words: retention.messages; row: retention.records", "removed with their message, after other servers were told"},
	"deliveries":    {"retention.records, with their message", "cancelled, then removed with their message"},
	"run_results":   {"retention.steps, retention.messages and retention.results_ceiling", "removed with their message, and in the person's conversations"},
	"demands":       {"retention.demands and retention.demands_ceiling", "removed with their message; the person's name goes from decisions about others"},
	"dispatches":    {"retention.dispatches and retention.dispatches_ceiling", "removed with their message; the messages that they became, too"},
	"tool_requests": {"retention.tools and retention.tools_ceiling", "removed with their message, and in the person's conversations"},
	"task_runs":     {"retention.tools; notes after 30 days", "removed with their message, and those that the person began"},
	"unanswered":    {"limits.held_for and limits.silent_for", "removed with their message"},

	"takeovers": {"90 days after they ended; notes with retention.messages", "removed with the messages of their conversation; one that is open and has others stays"},

	"unanswered_sums": {"with the last row that they sum up", "nothing: sums of hashed networks"},

	"sessions":         {"retention.sessions, or their owner deletes them", "the person's are removed, and those where only the person spoke"},
	"session_map":      {"with their session", "removed with their session"},
	"session_messages": {"with their session", "removed with their session"},
	"bridge_items":     {"a while after the bridge acknowledged them", "removed with their message or session"},
	"bridge_clients":   {"for ever: one row for each bridge that the operator let in", "nothing: programs of the operator"},
	"watches":          {"at the end of their time", "the person's are removed"},

	"jobs":         {"when they are done, or the operator drops a dead one", "those that name the person or the messages are removed"},
	"documents":    {"each at its own end; notes about a message with retention.messages", "those that name the person or the messages are removed"},
	"blob_garbage": {"when the content is gone or needed", "nothing: digests of what is deleted"},

	"agent_uploads":     {"a day after no answer has them", "nothing: files of programs of the operator, which end in a day"},
	"agent_upload_sums": {"for ever: one row for each agent", "nothing: sums"},

	"audit":            {"retention.audit, retention.audit_ceiling and beyond the newest 100,000", "the person's name and the detail are replaced by a hash"},
	"links":            {"when a side, the operator or a change of a side's evidence ends the link", "removed"},
	"console_sessions": {"at their end, or with the token that began them", "nothing: operators of this server, for some days"},
	"read_marks":       {"30 days after the message that was read last, and beyond 5,000 of an operator", "removed with the last message of their conversation"},
	"tokens":           {"for ever: a revoked token is on record; the operator makes them, so there are few", "removed where the person is the token's"},
	"list_entries":     {"a week after they were removed", "stop words of the person are removed; the operator's blocks and allows stay"},
	"list_version":     {"for ever: one row", "nothing: a number"},
	"counters":         {"at the end of what they count", "removed where they name the person: limits start over"},
	"demand_payments":  {"400 days after the payment", "nothing: hashes that keep a payment from being used twice"},

	"destinations":      {"some days after the last failure", "removed where they name the person"},
	"mail_suppressions": {"when the operator lifts them", "kept as a hash: the person is not written to"},
	"mail_failures":     {"when they are too old to count", "removed"},
	"back_ends":         {"for ever: one row for each agent", "nothing: names of agents"},

	"arrivals":       {"with their message", "the sender's names go with their message, the row when the search index has removed its words"},
	"search_words":   {"with the words of their message", "removed with their message"},
	"search_pending": {"when the search index has the change", "removed by the search index"},
	"search_state":   {"for ever: one row", "nothing: numbers"},
	"mail_gone":      {"when the words of the mail have left the search index", "nothing: a number"},

	"mails":          {"retention.operator_mail; captured answers: retention.captured_mail", "those that the person wrote, and captured answers to them, are removed"},
	"mail_words":     {"with their mail", "removed with their mail"},
	"mail_originals": {"with their mail", "removed with their mail"},
	"mail_sums":      {"for ever: one row", "nothing: sums"},
	"mail_reports":   {"retention.mail_reports", "nothing: sums of mail servers about mail of our domain"},

	"notice_tallies":    {"for ever: one row for each kind and subject; subjects are names of this server", "examples that name the person are emptied"},
	"notice_conditions": {"some time after they ended", "reasons that name the person are emptied"},
	"notices":           {"some time after they were sent", "those that name the person are removed"},
	"notice_ways":       {"with their notice", "removed with their notice"},
	"notice_state":      {"for ever: one row", "nothing: times and a number"},

	"channel_hours": {"400 days later", "nothing: numbers by hour, agent and channel"},
	"counted_hours": {"400 days later", "nothing: hours"},

	"retention_cursors":   {"when no agent has the period any more", "nothing: ids"},
	"retention_later":     {"when the message was looked at again", "removed with their message"},
	"retention_originals": {"within an hour", "emptied"},
	"erasures":            {"for ever: the receipt, without names, shows that it was done", "the names go when the erasure is done"},
	"erasure_turns":       {"when the erasure is done", "removed at its end"},
}
