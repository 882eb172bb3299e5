package emailtest

import "strings"

// Report writes a delivery report with one group of fields for each recipient.
func Report(perMessage string, groups ...string) string {
	return Letter("--b\nContent-Type: text/plain\n\nSorry.\n--b\nContent-Type: message/delivery-status\n\nReporting-MTA: dns; mx.sender.test\n"+
		perMessage+"\n"+strings.Join(groups, "\n")+"\n--b\nContent-Type: text/rfc822-headers\n\nMessage-ID: <r1@inbox.test>\nSubject: Re: x\n--b--",
		"From: Mail Delivery <mailer-daemon@sender.test>", `Content-Type: multipart/report; report-type=delivery-status; boundary=b`, "Auto-Submitted: auto-replied",
		"Message-ID: <d1@sender.test>", "Subject: Undelivered")
}

// ReportOn writes the group of fields about one recipient.
func ReportOn(address, action, status string) string {
	return "Final-Recipient: rfc822; " + address + "\nAction: " + action + "\nStatus: " + status + "\nDiagnostic-Code: smtp; 550 " + status + " no mailbox\n"
}

// Complaint writes a complaint (RFC 5965).
func Complaint(fields string) string {
	return Letter("--b\nContent-Type: text/plain\n\nAbuse.\n--b\nContent-Type: message/feedback-report\n\nFeedback-Type: abuse\nUser-Agent: x\nVersion: 1\n"+
		fields+"\n--b\nContent-Type: message/rfc822\n\nFrom: echo@inbox.test\nMessage-ID: <r1@inbox.test>\n\nx\n--b--",
		"From: FBL <fbl@sender.test>", "Content-Type: multipart/report; report-type=feedback-report; boundary=b", "To: abuse@inbox.test", "Message-ID: <f1@sender.test>")
}
