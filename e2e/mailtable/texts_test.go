package mailtable

import "strings"

// texts is how words come out of charsets, flowed lines, HTML and quotations.
func texts() []row {
	charset := func(label, encoded, want string) row {
		return row{name: "charset " + label, head: []string{"Content-Type: text/plain; charset=" + label, "Content-Transfer-Encoding: quoted-printable"}, body: encoded, text: want}
	}
	html := func(name, body, want string, lacks ...string) row {
		return row{name: "HTML: " + name, head: []string{"Content-Type: " + htmlPart}, body: body, text: want, lacks: lacks}
	}
	return append([]row{
		charset("iso-8859-1", "Gr=FC=DFe", "Grüße"), charset("windows-1252", "=93Hi=94 =80", "“Hi” €"), charset("iso-2022-jp", "=1B$B$3$s=1B(B", "こん"),
		charset("shift_jis", "=82=B1=82=F1", "こん"), charset("cp932", "=82=B1=82=F1", "こん"), charset("euc-kr", "=C7=D1", "한"), charset("gb18030", "=C4=E3", "你"), charset("big5", "=A7A", "你"),
		charset("koi8-r", "=F0=D2=C9", "При"), charset("utf-7", "Hi +ZeVnLA-", "Hi 日本"),
		charset("x-unknown", "Gr=FC=DFe", "Grüße"), charset("us-ascii", "Gr=FC=DFe", "Grüße"), charset("utf-8", "ok =FF ok", "ok \uFFFD ok"),
		{name: "charset utf-16le", head: []string{"Content-Type: text/plain; charset=utf-16le", "Content-Transfer-Encoding: base64"}, body: "SABpAA==", text: "Hi"},
		{name: "no charset, UTF-8", head: []string{"-Content-Type:"}, body: "Grüße", text: "Grüße"},
		{name: "no charset, Latin-1", head: []string{"-Content-Type:"}, body: "Gr\xfc\xdfe", text: "Grüße"},
		{name: "controls and invisible runes", body: "a\x01b\u200bc\u202ed", text: "abcd"},
		{name: "flowed", head: []string{"Content-Type: text/plain; format=flowed"}, body: "One long \nline.\n From here\n-- \nAnn ", text: "One long line.\nFrom here\n-- \nAnn"},
		{name: "flowed with DelSp", head: []string{"Content-Type: text/plain; format=flowed; delsp=yes"}, body: "Donau \ndampf", text: "Donaudampf"},
		{name: "flowed, depths differ", head: []string{"Content-Type: text/plain; format=flowed"}, body: "> one \n>> two \nthree", text: "> one \n>> two \nthree"},
		{name: "over 256 KiB", body: strings.Repeat(strings.Repeat("long text ", 8)+"\n", 4000), holds: []string{"cut after 256 KiB"}},
		{name: "a dot on a line of its own", body: "one\n.\ntwo\n..three", text: "one\n.\ntwo\n..three"},

		html("scripts and styles", "<style>p{}</style><p>Seen</p><script>alert(1)</script>", "Seen", "alert"),
		html("comments", "<p>Seen</p><!-- hidden -->", "Seen", "hidden"),
		html("display:none", `<p>Seen</p><div style="display: none">hidden</div>`, "Seen", "hidden"),
		html("visibility", `<p>Seen</p><div style="visibility:hidden">hidden</div>`, "Seen", "hidden"),
		html("font-size", `<p>Seen</p><span style="font-size:0px">hidden</span>`, "Seen", "hidden"),
		html("white on white", `<p>Seen</p><span style="color:#ffffff;background-color:#fff">hidden</span>`, "Seen", "hidden"),
		html("off the page", `<p>Seen</p><div style="position:absolute; left:-9999px">hidden</div>`, "Seen", "hidden"),
		html("indented away", `<p>Seen</p><div style="text-indent:-9999px">hidden</div>`, "Seen", "hidden"),
		html("transparent", `<p>Seen</p><span style="color:transparent">hidden</span>`, "Seen", "hidden"),
		html("a class of a style sheet", `<style>.x { display:none }</style><p>Seen</p><p class="x">hidden</p>`, "Seen", "hidden"),
		html("a style sheet for all screens", `<style>@media all { .x { display:none } }</style><p>Seen</p><p class="x">hidden</p>`, "Seen", "hidden"),
		html("a style sheet for screens", `<style>@media screen { .x { display:none !important } }</style><p>Seen</p><p class="x">hidden</p>`, "Seen", "hidden"),
		html("a style sheet for narrow screens", `<style>@media only screen and (max-width:480px) { .x { display:none } }</style><p>Seen</p><p class="x">also seen</p>`, "Seen\n\nalso seen"),
		html("a style sheet for print", `<style>@media print { .x { display:none } }</style><p>Seen</p><p class="x">also seen</p>`, "Seen\n\nalso seen"),
		html("a tag of a style sheet", `<style>u { display:none }</style><p>Seen</p><u>hidden</u>`, "Seen", "hidden"),
		html("a link that runs a program", `<p>Seen <a href="javascript:alert(1)">here</a></p>`, "Seen here", "javascript"),
		html("a pixel", `<p>Seen</p><img width="1" height="1" src="https://track.test/x">`, "Seen", "track"),
		html("nothing closed", "<p>One<p>Two<div>Three", "One\n\nTwo\n\nThree"),
	}, quotations()...)
}

// quotations is what is new in an answer, and what must not be taken for old.
func quotations() []row {
	answer := func(name, body, fresh string) row {
		return row{name: "quoted: " + name, head: []string{"Subject: Re: Something"}, body: body, holds: []string{strings.Split(body, "\n")[0]}, fresh: fresh}
	}
	return []row{
		answer("on top", "New words\n\nOn Sat, 21 Nov 2026, Bo wrote:\n> old words\n> more", "New words"),
		answer("wrapped announcement", "New words\n\nOn Sat, 21 Nov 2026 at 12:00, Bo Long Name\n<bo@example.test> wrote:\n> old", "New words"),
		answer("German", "Neue Worte\n\nAm 21.11.2026 um 12:00 schrieb Bo:\n> alt", "Neue Worte"),
		answer("French", "Nouveau\n\nLe 21 nov. 2026 à 12:00, Bo a écrit :\n> vieux", "Nouveau"),
		answer("Outlook", "New words\n\n-----Original Message-----\nFrom: Bo\nSent: Saturday\nTo: Ann\nSubject: Something\n\nold", "New words"),
		answer("a signature", "New words\n-- \nAnn Sender\n+1 555", "New words"),
		answer("answers between", "> question one\nanswer one\n> question two\nanswer two", "-"),
		answer("only a quotation", "On Sat, 21 Nov 2026, Bo wrote:\n> old words", "-"),
		{name: "quoted: forwarded", head: []string{"Subject: Fwd: Something"}, body: "See below\n\nOn Sat, 21 Nov 2026, Bo wrote:\n> the request", holds: []string{"the request"}, fresh: "-"},
		{name: "quoted: Gmail", head: []string{"Subject: Re: x", "Content-Type: " + htmlPart}, body: `<div>New words</div><div class="gmail_quote"><div>On Sat Bo wrote:</div><blockquote>old words</blockquote></div>`, holds: []string{"old words"}, fresh: "New words"},
	}
}
