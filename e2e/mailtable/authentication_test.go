package mailtable

import (
	"strings"
	"testing"

	"inbox/normalized"
)

const (
	dmarcReject = "_dmarc.{d} v=DMARC1; p=reject"
	passingSPF  = "{d} v=spf1 ip4:127.0.0.1 -all"
	failingSPF  = "{d} v=spf1 ip4:192.0.2.1 -all"
	byDMARC     = normalized.AuthEmailDMARC
	unproven    = normalized.AuthNone
	noProof     = "550 5.7.26"
)

var nobody = []string{""} // signs

// authentication is the table of outcomes (RFC 9989, RFC 7208) with policies, alignment and trouble.
func authentication() []row {
	return append([]row{
		{name: "DMARC passes by DKIM", dns: []string{dmarcReject}, method: byDMARC, claims: []string{`"by":"dkim"`, `"policy":"reject"`, `"domain":"{d}"`}},
		{name: "DMARC passes by SPF", dns: []string{dmarcReject, passingSPF}, sign: nobody, method: byDMARC, claims: []string{`"by":"spf"`, `"spf":{"result":"pass","domain":"{d}","identity":"mailfrom"}`}},
		{name: "DMARC passes by DKIM though SPF fails", dns: []string{dmarcReject, failingSPF}, method: byDMARC, claims: []string{`"spf":{"result":"fail"`, `"by":"dkim"`}},
		{name: "DMARC passes by SPF though DKIM fails", dns: []string{dmarcReject, passingSPF}, alter: changedBody, method: byDMARC, claims: []string{`"result":"fail","reason":"body hash did not verify"`, `"by":"spf"`}},
		{name: "no record, aligned signature", claims: []string{`"dmarc":{"result":"none"`, `"d":"{d}","s":"s1","a":"rsa-sha256","bits":2048,"result":"pass"`}},
		{name: "no record, SPF alone", dns: []string{passingSPF}, sign: nobody, method: unproven, claims: []string{`"spf":{"result":"pass"`}, reason: "nothing proves"},
		{name: "no record, nothing", sign: nobody, method: unproven, claims: []string{`"dkim":[]`, `"spf":{"result":"none"`}},
		{name: "no record, a stranger's signature", sign: []string{"stranger-{d}"}, method: unproven, claims: []string{`"d":"stranger-{d}"`}},
		{name: "no record, the parent signs", head: []string{"From: ann@mail.{d}"}, from: "ann@mail.{d}", sign: []string{"{d}"}, check: nil},
		{name: "fails, p=none", dns: []string{"_dmarc.{d} v=DMARC1; p=none"}, sign: nobody, method: unproven, claims: []string{`"dmarc":{"result":"fail","policy":"none","domain":"{d}"}`}},
		{name: "fails, p=quarantine", dns: []string{"_dmarc.{d} v=DMARC1; p=quarantine"}, sign: nobody, method: unproven, claims: []string{`"policy":"quarantine"`}},
		{name: "fails, p=reject", dns: []string{dmarcReject}, sign: nobody, code: noProof},
		{name: "fails, p=reject lowered by t=y", dns: []string{"_dmarc.{d} v=DMARC1; p=reject; t=y"}, sign: nobody, method: unproven, claims: []string{`"policy":"quarantine"`}},
		{name: "fails, p=quarantine lowered by t=y", dns: []string{"_dmarc.{d} v=DMARC1; p=quarantine; t=y"}, sign: nobody, method: unproven, claims: []string{`"policy":"none"`}},
		{name: "fails because the body was changed", dns: []string{dmarcReject}, alter: changedBody, code: noProof},
		{name: "fails with a stranger's signature and SPF", dns: []string{dmarcReject, "stranger-{d} v=spf1 ip4:127.0.0.1 -all"}, from: "a@stranger-{d}", sign: []string{"stranger-{d}"}, code: noProof},
		{name: "pct=0 is gone", dns: []string{"_dmarc.{d} v=DMARC1; p=reject; pct=0"}, sign: nobody, code: noProof},
		{name: "values and tags without case", dns: []string{"_dmarc.{d} v=DMARC1; P=Reject"}, sign: nobody, code: noProof},
		{name: "the version has a case", dns: []string{"_dmarc.{d} V=dmarc1; p=reject"}, sign: nobody, method: unproven, claims: []string{`"dmarc":{"result":"none"`}},
		{name: "the version comes first", dns: []string{"_dmarc.{d} p=reject; v=DMARC1"}, sign: nobody, method: unproven},
		{name: "two records are none", dns: []string{dmarcReject, dmarcReject}, sign: nobody, method: unproven, claims: []string{`"dmarc":{"result":"none"`}},
		{name: "an unknown policy with reports is none", dns: []string{"_dmarc.{d} v=DMARC1; p=what; rua=mailto:r@{d}"}, sign: nobody, method: unproven, claims: []string{`"result":"fail","policy":"none"`}},
		{name: "an unknown policy without reports is no policy", dns: []string{"_dmarc.{d} v=DMARC1; p=what"}, sign: nobody, method: unproven, claims: []string{`"dmarc":{"result":"none"`}},
		{name: "null sender, SPF of the greeting", dns: []string{dmarcReject, "mail.{d} v=spf1 ip4:127.0.0.1 -all"}, from: "<>", sign: nobody, method: byDMARC, state: "silent", reason: "null return path", claims: []string{`"identity":"helo"`}},
		{name: "From is ours without a proof", head: []string{"From: echo@inbox.test"}, sign: nobody, code: noProof},
		{name: "From is a name below ours without a proof", head: []string{"From: a@sub.inbox.test"}, sign: nobody, method: unproven},
	}, append(alignment(), append(policies(), append(trouble(), policiesOfSenders()...)...)...)...)
}

func alignment() []row {
	strict := "_dmarc.{d} v=DMARC1; p=reject; adkim=s; aspf=s"
	return []row{
		{name: "relaxed: a subdomain signs", dns: []string{dmarcReject}, sign: []string{"mail.{d}"}, method: byDMARC},
		{name: "relaxed: the organization signs for a subdomain", dns: []string{dmarcReject}, head: []string{"From: ann@mail.{d}"}, from: "ann@mail.{d}", method: byDMARC},
		{name: "relaxed: SPF of a subdomain", dns: []string{dmarcReject, "mail.{d} v=spf1 ip4:127.0.0.1 -all"}, from: "ann@mail.{d}", sign: nobody, method: byDMARC},
		{name: "strict: the domain itself signs", dns: []string{strict}, method: byDMARC},
		{name: "strict: a subdomain signs", dns: []string{strict}, sign: []string{"mail.{d}"}, code: noProof},
		{name: "strict: SPF of a subdomain", dns: []string{strict, "mail.{d} v=spf1 ip4:127.0.0.1 -all"}, from: "ann@mail.{d}", sign: nobody, code: noProof},
		{name: "strict in capitals", dns: []string{"_dmarc.{d} v=DMARC1; p=reject; adkim=S"}, sign: []string{"mail.{d}"}, code: noProof},
		{name: "two signatures, the second one aligned", dns: []string{dmarcReject}, sign: []string{"{d}", "stranger-{d}"}, method: byDMARC, claims: []string{`"d":"stranger-{d}"`, `"by":"dkim"`}},
		{name: "two signatures, the aligned one broken by the other's list", dns: []string{dmarcReject}, sign: []string{"{d}", "stranger-{d}"}, code: noProof, alter: func(_ *testing.T, _ *world, domain, mail string) string {
			at := strings.Index(mail, "d="+domain) // the lower signature
			return mail[:at] + strings.Replace(mail[at:], "h=", "h=X-Never:", 1)
		}},
	}
}

// policies follows the tree walk of RFC 9989, section 4.10.
func policies() []row {
	return []row{
		{name: "sp rules a subdomain", dns: []string{"_dmarc.{d} v=DMARC1; p=none; sp=reject", "shop.{d} hello"}, head: []string{"From: a@shop.{d}"}, sign: nobody, code: noProof},
		{name: "sp=none spares a subdomain", dns: []string{"_dmarc.{d} v=DMARC1; p=reject; sp=none", "shop.{d} hello"}, head: []string{"From: a@shop.{d}"}, sign: nobody, method: unproven, claims: []string{`"policy":"none"`}},
		{name: "p is inherited", dns: []string{dmarcReject, "shop.{d} hello"}, head: []string{"From: a@shop.{d}"}, sign: nobody, code: noProof},
		{name: "np rules a name that does not exist", dns: []string{"_dmarc.{d} v=DMARC1; p=none; sp=none; np=reject"}, head: []string{"From: a@nothing.{d}"}, sign: nobody, code: noProof},
		{name: "np does not rule a name that exists", dns: []string{"_dmarc.{d} v=DMARC1; p=none; np=reject", "shop.{d} hello"}, head: []string{"From: a@shop.{d}"}, sign: nobody, method: unproven},
		{name: "the own record goes first", dns: []string{dmarcReject, "_dmarc.shop.{d} v=DMARC1; p=none"}, head: []string{"From: a@shop.{d}"}, sign: nobody, method: unproven, claims: []string{`"domain":"shop.{d}"`}},
		{name: "psd=n ends the walk", dns: []string{dmarcReject, "_dmarc.shop.{d} v=DMARC1; p=none; psd=n"}, head: []string{"From: a@x.shop.{d}"}, sign: nobody, method: unproven, claims: []string{`"domain":"shop.{d}"`}},
		{name: "psd=n: the parent is a stranger", dns: []string{"_dmarc.shop.{d} v=DMARC1; p=reject; psd=n"}, head: []string{"From: a@shop.{d}"}, code: noProof},
		{name: "psd=y: siblings are strangers", dns: []string{"_dmarc.{d} v=DMARC1; p=reject; psd=y"}, head: []string{"From: a@one.{d}"}, sign: []string{"two.{d}"}, code: noProof},
		{name: "psd=y: below one name they are not", dns: []string{"_dmarc.{d} v=DMARC1; p=reject; psd=y"}, head: []string{"From: a@one.{d}"}, from: "a@one.{d}", sign: []string{"mail.one.{d}"}, method: byDMARC},
		{name: "sp without a meaning, no reports: no policy", dns: []string{"_dmarc.{d} v=DMARC1; p=reject; sp=what"}, sign: nobody, method: unproven, claims: []string{`"dmarc":{"result":"none"`}},
		{name: "np without a meaning, reports: p=none", dns: []string{"_dmarc.{d} v=DMARC1; p=reject; np=what; rua=mailto:r@{d}"}, sign: nobody, method: unproven, claims: []string{`"result":"fail","policy":"none"`}},
		{name: "sp without p is no policy", dns: []string{"_dmarc.{d} v=DMARC1; sp=reject", "shop.{d} hello"}, head: []string{"From: a@shop.{d}"}, sign: nobody, method: unproven, claims: []string{`"dmarc":{"result":"none"`}},
		{name: "more than seven labels", dns: []string{dmarcReject}, head: []string{"From: a@a.b.c.d.e.f.g.h.{d}"}, sign: nobody, code: noProof},
	}
}

// trouble is what DNS hides: the sender comes again.
func trouble() []row {
	return []row{
		{name: "the policy is out of reach", broken: []string{"_dmarc.{d}"}, sign: nobody, code: "451 4.7.5"},
		{name: "the policy is out of reach, an equal signature", broken: []string{"_dmarc.{d}"}, method: normalized.AuthEmailDKIM, claims: []string{`"dmarc":{"result":"temperror"`}},
		{name: "the key is out of reach", dns: []string{dmarcReject}, broken: []string{"s1._domainkey.{d}"}, code: "451 4.7.5"},
		{name: "the key is out of reach, SPF passes", dns: []string{dmarcReject, passingSPF}, broken: []string{"s1._domainkey.{d}"}, method: byDMARC, claims: []string{`"result":"temperror"`, `"by":"spf"`}},
		{name: "the key is out of reach and the body changed", dns: []string{dmarcReject}, broken: []string{"s1._domainkey.{d}"}, alter: changedBody, code: noProof},
		{name: "SPF is out of reach", dns: []string{dmarcReject, "{d} v=spf1 include:broken.{d} -all"}, broken: []string{"broken.{d}"}, sign: nobody, code: "451 4.7.5"},
		{name: "SPF is out of reach, a signature passes", dns: []string{dmarcReject, "{d} v=spf1 include:broken.{d} -all"}, broken: []string{"broken.{d}"}, method: byDMARC, claims: []string{`"spf":{"result":"temperror"`}},
		{name: "SPF is damaged", dns: []string{"{d} v=spf1 what:ever -all"}, sign: nobody, method: unproven, claims: []string{`"spf":{"result":"permerror"`}},
		{name: "SPF asks for more than ten names", dns: []string{"{d} v=spf1 a:1.{d} a:2.{d} a:3.{d} a:4.{d} a:5.{d} a:6.{d} a:7.{d} a:8.{d} a:9.{d} a:10.{d} a:11.{d} -all"}, sign: nobody, method: unproven, claims: []string{`"spf":{"result":"permerror"`}},
		{name: "SPF softfail", dns: []string{"{d} v=spf1 ~all"}, sign: nobody, method: unproven, claims: []string{`"spf":{"result":"softfail"`}},
		{name: "SPF neutral", dns: []string{"{d} v=spf1 ?all"}, sign: nobody, method: unproven, claims: []string{`"spf":{"result":"neutral"`}},
		{name: "the key does not exist", dns: []string{dmarcReject, "s1._domainkey.{d} nothing of a key"}, code: noProof},
	}
}

// policiesOfSenders is what SPF records may say (RFC 7208). The client is 127.0.0.1.
func policiesOfSenders() []row {
	spf := func(name, result string, records ...string) row {
		return row{name: "SPF: " + name, dns: records, sign: nobody, method: unproven, claims: []string{`"spf":{"result":"` + result + `"`}}
	}
	withHosts := func(one row, hosts ...string) row {
		one.alter = func(t *testing.T, w *world, domain, mail string) string {
			for _, host := range hosts {
				label, _, _ := strings.Cut(domain, ".")
				if err := w.names.Set(strings.NewReplacer("{d}", domain, "{label}", label).Replace(host)); err != nil {
					t.Fatal(err)
				}
			}
			return mail
		}
		return one
	}
	const here = " 60 IN A 127.0.0.2"
	return []row{
		spf("redirect", "pass", "{d} v=spf1 redirect=other.{d}", "other.{d} v=spf1 ip4:127.0.0.1 -all"),
		spf("redirect to nothing", "permerror", "{d} v=spf1 redirect=other.{d}"),
		spf("redirect behind all counts no more", "fail", "{d} v=spf1 redirect=other.{d} -all", "other.{d} v=spf1 +all"),
		spf("redirect in a circle", "permerror", "{d} v=spf1 redirect={d}"),
		spf("redirect twice", "permerror", "{d} v=spf1 redirect=a.{d} redirect=b.{d}", "a.{d} v=spf1 +all", "b.{d} v=spf1 +all"),
		spf("include", "pass", "{d} v=spf1 include:other.{d} -all", "other.{d} v=spf1 ip4:127.0.0.0/8 -all"),
		spf("include of a failure goes on", "softfail", "{d} v=spf1 include:other.{d} ~all", "other.{d} v=spf1 -all"),
		spf("include of nothing", "permerror", "{d} v=spf1 include:other.{d} ~all"),
		spf("include in a circle", "permerror", "{d} v=spf1 include:other.{d} -all", "other.{d} v=spf1 include:{d} -all"),
		spf("two records", "permerror", "{d} v=spf1 ip4:127.0.0.1 -all", "{d} v=spf1 -all"),
		spf("another version", "none", "{d} v=spf10 ip4:127.0.0.1 -all"),
		spf("in capitals", "pass", "{d} V=SPF1 IP4:127.0.0.1 -ALL"),
		spf("an unknown modifier", "pass", "{d} v=spf1 moo=cow ip4:127.0.0.1 -all"),
		spf("an unknown mechanism behind a match", "permerror", "{d} v=spf1 ip4:127.0.0.1 moo -all"),
		spf("a broken network", "permerror", "{d} v=spf1 ip4:127.0.0.1/99 -all"),
		spf("nothing matches", "neutral", "{d} v=spf1 ip4:192.0.2.1"),
		spf("three names that are not there", "permerror", "{d} v=spf1 a:1.{d} a:2.{d} a:3.{d} ip4:127.0.0.1 -all"),
		spf("two names that are not there", "pass", "{d} v=spf1 a:1.{d} a:2.{d} ip4:127.0.0.1 -all"),
		withHosts(spf("macro of the address", "pass", "{d} v=spf1 exists:%{i}.ok.{d} -all"), "127.0.0.1.ok.{d}."+here),
		withHosts(spf("macro of the reversed address", "pass", "{d} v=spf1 exists:%{ir}.%{v}.ok.{d} -all"), "1.0.0.127.in-addr.ok.{d}."+here),
		withHosts(spf("macros of the sender", "pass", "{d} v=spf1 exists:%{l}.at.%{o} -all"), "ann.at.{d}."+here),
		withHosts(spf("macro of the greeting", "pass", "{d} v=spf1 exists:%{h2}.ok.{d} -all"), "{d}.ok.{d}."+here),
		withHosts(spf("macro cut to a label", "pass", "{d} v=spf1 exists:%{d1r}.ok.{d} -all"), "{label}.ok.{d}."+here),
		spf("a macro that is none", "permerror", "{d} v=spf1 exists:%{z}.{d} -all"),
		withHosts(spf("a with a width", "pass", "{d} v=spf1 a:net.{d}/24 -all"), "net.{d}. 60 IN A 127.0.0.77"),
		withHosts(spf("mx", "pass", "{d} v=spf1 mx -all"), "{d}. 60 IN MX 10 in.{d}.", "in.{d}. 60 IN A 127.0.0.1"),
		spf("ip6 alone", "fail", "{d} v=spf1 ip6:::1 -all"),
	}
}

func changedBody(_ *testing.T, _ *world, _, mail string) string {
	return strings.Replace(mail, "What time is it?", "Pay at once!", 1)
}
