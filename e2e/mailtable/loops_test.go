package mailtable

// loops is mail that no one waits for an answer to (RFC 3834 and habits), all of it with a proven sender.
func loops() []row {
	silent := func(name, reason string, head ...string) row {
		return row{name: name, head: head, state: "silent", reason: reason}
	}
	report := "Content-Type: multipart/report; report-type=delivery-status; boundary=b"
	return []row{
		{name: "null return path", from: "<>", dns: []string{"mail.{d} v=spf1 -all"}, state: "silent", reason: "null return path"},
		silent("Auto-Submitted: auto-replied", "auto-replied", "Auto-Submitted: auto-replied"),
		silent("Auto-Submitted with parameters", "auto-generated", "Auto-Submitted: Auto-Generated; type=\"x\""),
		silent("Auto-Submitted with a comment", "auto-notified", "Auto-Submitted: (a robot) auto-notified"),
		{name: "Auto-Submitted: no", head: []string{"Auto-Submitted: no"}},
		silent("Precedence: bulk", "bulk", "Precedence: bulk"),
		silent("Precedence: list", "list", "Precedence: List"),
		silent("Precedence: junk", "junk", "Precedence: junk"),
		silent("Precedence: auto_reply", "auto_reply", "Precedence: auto_reply"),
		{name: "Precedence: first-class", head: []string{"Precedence: first-class"}},
		silent("List-Id", "List-Id", "List-Id: <talk.{d}>"),
		silent("List-Unsubscribe", "List-Unsubscribe", "List-Unsubscribe: <mailto:leave@{d}>"),
		{name: "Feedback-ID", head: []string{"Feedback-ID: 1:2:3"}},                                  // on every mail by Amazon SES
		{name: "X-Auto-Response-Suppress: All", head: []string{"X-Auto-Response-Suppress: DR, All"}}, // Exchange writes it for people
		{name: "X-Auto-Response-Suppress: OOF", head: []string{"X-Auto-Response-Suppress: OOF"}},
		silent("two weak marks", "Feedback-ID", "Feedback-ID: 1:2:3", "X-Auto-Response-Suppress: All"),
		{name: "X-Auto-Response-Suppress: DR", head: []string{"X-Auto-Response-Suppress: DR, NDR"}},
		silent("X-Autoreply", "X-Autoreply", "X-Autoreply: yes"),
		silent("X-Failed-Recipients", "X-Failed-Recipients", "X-Failed-Recipients: someone@example.test"),
		silent("no-reply", "no-reply", "From: No Reply <no-reply@{d}>"),
		silent("noreply with a tag", "noreply", "From: noreply+42@{d}"),
		silent("no-reply with something behind", "noreply", "From: noreply-7f3a@{d}"),
		silent("no-reply of a service", "noreply", "From: drive-shares-noreply@{d}"),
		{name: "a list's envelope", from: "talk-bounces+x=y.test@{d}", state: "silent", reason: "sent by a list"},
		{name: "an envelope of a sending service", from: "bounces+123-456@{d}"},
		silent("X-Auto-Response-Suppress with semicolons beside Feedback-ID", "X-Auto-Response-Suppress is present", "X-Auto-Response-Suppress: DR; OOF", "Feedback-ID: 1:2:3"),
		silent("out of office in Portuguese", "subject", "Subject: =?utf-8?q?Resposta_autom=C3=A1tica:_fora?="),
		silent("out of office of Notes", "subject", "Subject: AUTO: Ann is out of the office (returning Monday)"),
		{name: "a subject about a car", head: []string{"Subject: Auto: neue Reifen"}},
		silent("mailer-daemon", "mailer-daemon", "From: MAILER-DAEMON@{d}"),
		{name: "an address like a list's owner", head: []string{"From: owner-talk@{d}"}},
		{name: "an address like a list's requests", head: []string{"From: talk-request@{d}"}},
		silent("bounces", "list or bounce", "From: bounces+x@{d}"),
		silent("our own loop mark", "loop mark", "X-Loop: echo@inbox.test"),
		{name: "a loop mark of others", head: []string{"X-Loop: somebody@example.test"}},
		{name: "our Message-ID", head: []string{"Message-ID: <{d}-x@inbox.test>"}, id: "{d}-x@inbox.test", state: "silent", reason: "Message-ID is ours"},
		{name: "more than 50 hops", head: []string{"-X:", repeated("Received: from a by b; Sat, 21 Nov 2026 12:00:00 +0000", 51)}, code: "554 5.4.6"},
		{name: "50 hops", head: []string{repeated("Received: from a by b; Sat, 21 Nov 2026 12:00:00 +0000", 50)}},
		silent("out of office by its subject", "subject", "Subject: Out of Office: back on Monday"),
		silent("out of office in German", "subject", "Subject: =?utf-8?q?Automatische_Antwort:_weg?="),
		silent("an undeliverable mail by its subject", "subject", "Subject: Undeliverable: your mail"),
		silent("a report", "multipart/report", report),
		silent("a disposition notification", "report", "Content-Type: message/disposition-notification"),
		{name: "the agent is in Bcc", head: []string{"To: friend@example.test"}, method: unproven, state: "silent", reason: "neither in To nor in Cc", claims: []string{`"addressed":false`}},
		{name: "the agent is in Bcc, from a server of the domain", dns: []string{passingSPF}, head: []string{"To: friend@example.test"}, state: "silent", reason: "neither in To nor in Cc"},
		{name: "the agent is in Cc", head: []string{"To: friend@example.test", "Cc: Echo <ECHO@Inbox.Test>"}, claims: []string{`"addressed":true`}},
		{name: "the agent has a tag in To", head: []string{"To: echo+notes@inbox.test"}, to: []string{"echo+notes@inbox.test"}, claims: []string{`"addressed":true`}},
		{name: "an exhausted chain of agents", head: []string{"X-Mentionable-Agent-Chain: hop=9; max=4"}, state: "silent", reason: "chain:exhausted"},
	}
}
