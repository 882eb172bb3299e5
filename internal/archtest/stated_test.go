package archtest

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"
	"testing"
)

// statedReaders are the packages and functions that may read an identity.StatedAddress as a text, or compare it, each with the reason.
// Anyone can state any address: what decides, joins or counts asks the evidence. Two stated addresses, or a stated and a proven one,
// cannot be compared at all, and a map cannot have one as its key (TestStatedAddressIsNoKey).
var statedReaders = map[string]string{
	// Display.
	"cmd/inbox":                       "prints messages",
	"console/pages":                   "shows messages; blockTargets offers what an entry that blocks may name",
	"agents/llm":                      "tells the model and observers who wrote, with what is proven beside it",
	"adapters/bridge spoken":          "tells a program who wrote",
	"engine/backup uncertain":         "lists what was open when a backup was made",
	"engine/demand askerOf":           "names the asker for an approver, and marks one that nothing proves",
	"engine/demand listed":            "lists approvals for operators, beside the principal",
	"engine/demand FinishLogin":       "words of a refusal",
	"engine/demand view":              "a page names the asker; proves asks the evidence whether the name is theirs",
	"engine/pipeline briefing":        "tells another agent who asked, and marks one that nothing proves",
	"engine/pipeline stopWord":        "a list says who told an agent to stop; its target is the principal",
	"operator/takeover alsoAddressed": "tells an operator whom else an answer may reach; it leaves out the sender",
	"engine/pipeline statedDomain":    "a cause of failures, which counts only together with the network: stating another domain alone gains nothing",
	"history sameSpeaker":             "says whether a merged turn has several speakers; the principal is compared as well",
	"internal/recording Of":           "writes a recording for tests",
	"operator conversationOf":         "lists conversations",
	"operator/takeover addresseeOf":   "tells an operator to whom an answer goes, and whether that is proven",
	"operator writeReadable":          "writes the page of an export",
	"adapters/email refuseChain":      "an audit record says who was refused",

	// Searching and listing by an operator, who is shown what was found.
	"engine/store about":         "the search index",
	"engine/store turnArguments": "columns by which operators list messages",
	"engine/store compare":       "lists who else states the address of an export or an erasure, apart from the person",
	"exchange Selects":           "the filter of operators' lists",

	// Refusing and leaving out: a lie may only harm the liar.
	"engine/moderation claimed":    "entries that block; those that admit ask Proven",
	"engine/moderation listed":     "holds a sender without proof for the operator",
	"engine/pipeline notAddressed": "a remark to the agent leaves out the one whom it answers",
	"engine/pipeline takesPart":    "leaves the asker out of the agents that are asked",
	"identity deniesAddress":       "rules that deny",
	"identity proven":              "rules that allow want evidence for the very address under which the sender speaks",

	// The contract.
	"adapters/a2a carry":   "makes an address of ours for someone whom a caller brings; the caller's is proven",
	"normalized Principal": "the key of a sender that nothing proves, which no proven one can have",
	"normalized sender":    "writes and checks documents",
	"normalized texts":     "measures documents",
}

// readers are the methods of identity.StatedAddress that give away its text or compare it.
var readers = []string{"String", "Parse", "Names", "Resembles", "LooksLike"}

func TestStatedAddressesAreOnlyShown(t *testing.T) {
	found := programOf(t).stated
	used := map[string]bool{}
	for reader := range found {
		room, _, _ := strings.Cut(reader, " ")
		switch {
		case statedReaders[reader] != "":
			used[reader] = true
		case statedReaders[room] != "":
			used[room] = true
		default:
			t.Errorf("%s reads a stated address as a text. Anyone can state any address: ask the evidence (Sender.Proves, Evidence.Proven, Principal). "+
				"What only shows or refuses is added to statedReaders with its reason", reader)
		}
	}
	for reader := range statedReaders {
		if !used[reader] {
			t.Errorf("%s does not read stated addresses any more: take it off statedReaders", reader)
		}
	}
}

// readStated notes which functions of a file call a reader of a stated address.
func (p *program) readStated(room string, file *ast.File, info *types.Info) {
	for _, declaration := range file.Decls {
		name := "(variables)"
		if function, is := declaration.(*ast.FuncDecl); is {
			name = function.Name.Name
		}
		ast.Inspect(declaration, func(node ast.Node) bool {
			if used, is := node.(*ast.Ident); is && isReader(info.Uses[used]) {
				p.stated[room+" "+name] = true
			}
			return true
		})
	}
}

func isReader(object types.Object) bool {
	method, is := object.(*types.Func)
	if !is || !slices.Contains(readers, method.Name()) || method.Signature().Recv() == nil {
		return false
	}
	of, is := types.Unalias(method.Signature().Recv().Type()).(*types.Named)
	return is && of.Obj().Name() == "StatedAddress" && of.Obj().Pkg().Path() == Module+"/identity"
}
