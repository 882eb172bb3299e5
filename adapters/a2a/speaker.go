package a2a

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
)

// A connector calls with one token for all its people, and shows for each message who speaks: signed evidence of a trusted issuer.
// The token is then the carrier. Someone whom a connector names without a proof that holds speaks as well, unproven: the token must
// not speak in their place, or all of them would be one person.

// nameSpeaker says in the sender who speaks, and that the caller only brought the message where that is someone else.
func (a *Adapter) nameSpeaker(in *exchange.Inbound, offered *offer) {
	sender := &in.Message.Sender
	caller := sender.Identities[0]
	switch speaker := sender.Speaker(); {
	case speaker == nil:
		rejected := withoutAttestations(sender)
		in.Rejected = append(in.Rejected, rejected...)
		a.carry(sender, "", append(subjectsOf(rejected), sender.Carrier())...)
	case speaker.Issuer != caller.Issuer || speaker.Subject != caller.Subject:
		a.carry(sender, speaker.Subject, speaker.Issuer, speaker.Subject)
		if proven := speaker.Proven(); proven != "" {
			sender.Address = identity.Stated(string(proven))
		}
	case !in.FromAgent: // a program that calls for people speaks itself
		if named := offered.named(in.Message.ID, caller.Subject); len(named) > 0 {
			a.carry(sender, "", append(named, sender.Carrier())...)
		}
	}
}

// carry makes the sender someone whom the caller brought. The address is one of ours that no one else has; names tell apart who it
// is.
func (a *Adapter) carry(sender *normalized.Sender, displayName string, names ...string) {
	const longest = 40 // bytes of the caller's name
	local, _, _ := strings.Cut(strings.TrimPrefix(sender.Address.String(), "@"), "@")
	sender.CarriedBy, sender.DisplayName = sender.Address, displayName
	sender.Address = identity.Stated("@" + local[:min(len(local), longest)] + "." + tagOf("a2a speaker", names...) + "@" + a.options.Domain)
}

// withoutAttestations takes away what issuers said about several people: nothing says which of them speaks, and none may act with
// what another one may.
func withoutAttestations(sender *normalized.Sender) (rejected []identity.Rejection) {
	var kept []identity.Evidence
	for _, e := range sender.Identities {
		if e.Proof.Type != identity.ProofSignedAttestation {
			kept = append(kept, e)
			continue
		}
		rejected = append(rejected, identity.Rejection{
			Code: identity.CodeAmbiguous, Reason: "the evidence is about several people; send the message of each one on its own",
			Issuer: e.Issuer, Subject: e.Subject, Method: e.Method,
		})
	}
	sender.Identities = kept
	return rejected
}

// named returns whom the evidence of a message is about, as it says, in order. Evidence about the caller and about programs names
// no one else. Of evidence that cannot be read it is not known who is meant, and so it names someone of this message alone.
func (o *offer) named(messageID, caller string) (subjects []string) {
	for _, raw := range o.evidence {
		var said identity.Evidence
		if err := json.Unmarshal(raw, &said); err != nil || said.Subject == "" {
			subjects = append(subjects, "message "+messageID)
		} else if said.Subject != caller && said.Assurance != identity.AssuranceAgent {
			subjects = append(subjects, "subject "+said.Subject)
		}
	}

	unread := func(r identity.Rejection) bool { return strings.HasPrefix(r.Code, "evidence:") }
	if slices.ContainsFunc(o.rejected, unread) {
		subjects = append(subjects, "message "+messageID)
	}

	slices.Sort(subjects)
	return slices.Compact(subjects)
}

func subjectsOf(rejected []identity.Rejection) (subjects []string) {
	for _, one := range rejected {
		subjects = append(subjects, "subject "+one.Subject)
	}
	slices.Sort(subjects)
	return slices.Compact(subjects)
}

const tagLength = 16

func tagOf(purpose string, names ...string) string {
	sum := sha256.Sum256([]byte(purpose + "\x00" + strings.Join(names, "\x00")))
	return hex.EncodeToString(sum[:])[:tagLength]
}

// attests reports whether one of the pieces of evidence that were not accepted is about the speaker of a turn.
func attests(rejected []identity.Rejection, turn exchange.TurnRecord) bool {
	speaker := turn.Message.Sender.Speaker()
	return speaker != nil && slices.ContainsFunc(rejected, func(r identity.Rejection) bool {
		issuer, err := identity.CanonicalIssuer(r.Issuer)
		return err == nil && issuer == speaker.Issuer && r.Subject == speaker.Subject
	})
}
