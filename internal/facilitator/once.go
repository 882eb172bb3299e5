package facilitator

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"strings"

	"github.com/gowebpki/jcs"
)

// networks are the names of version 1 of x402 for what version 2 names by CAIP-2, so that one authorization in both
// envelopes is one payment.
var networks = map[string]string{
	"ethereum": "eip155:1", "sepolia": "eip155:11155111", "base": "eip155:8453", "base-sepolia": "eip155:84532",
	"polygon": "eip155:137", "polygon-amoy": "eip155:80002", "avalanche": "eip155:43114", "avalanche-fuji": "eip155:43113",
	"abstract": "eip155:2741", "abstract-testnet": "eip155:11124", "sei": "eip155:1329", "sei-testnet": "eip155:1328",
	"iotex": "eip155:4689", "peaq": "eip155:3338", "story": "eip155:1514", "educhain": "eip155:41923",
	"skale-base-sepolia": "eip155:324705682",
	"solana":             "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp", "solana-devnet": "solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1",
}

// authorized is what one signature of a payer covers.
type authorized struct {
	From  string `json:"from"`
	Nonce string `json:"nonce"`
}

// Key names what can be spent once: network, asset, payer and nonce, hashed to 64 hex digits. Two envelopes of one
// authorization have one key, whatever version of x402 they are written in and however they spell hex numbers. Where the
// scheme shows no payer and nonce, the transaction that the payer signed takes their place, or the whole of what the
// scheme wrote. Nothing is verified here.
func (p Payment) Key() string {
	var requirements Requirements
	_ = json.Unmarshal(p.Requirements, &requirements) // Match has read it
	network := cmp.Or(networks[requirements.Network], requirements.Network)
	payer, nonce := p.spends()
	sum := sha256.New()
	for _, part := range []string{network, plainHex(requirements.Asset), payer, nonce} {
		fmt.Fprintf(sum, "%d %s", len(part), part)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// spends reads the payer and the nonce of the schemes that show them: EIP-3009 and Permit2 on EVM networks.
func (p Payment) spends() (payer, nonce string) {
	var read struct {
		Payload struct {
			Authorization *authorized `json:"authorization"`
			Permit2       *authorized `json:"permit2Authorization"`
			Transaction   string      `json:"transaction"`
		} `json:"payload"`
	}

	_ = json.Unmarshal(p.Payload, &read) // other shapes are named as a whole
	for _, one := range []*authorized{read.Payload.Authorization, read.Payload.Permit2} {
		if one != nil && one.From != "" && one.Nonce != "" {
			return plainHex(one.From), plainNumber(one.Nonce)
		}
	}

	if read.Payload.Transaction != "" {
		return "", read.Payload.Transaction
	}

	var whole struct {
		Payload json.RawMessage `json:"payload"`
	}

	_ = json.Unmarshal(p.Payload, &whole)
	if canonical, err := jcs.Transform(whole.Payload); err == nil {
		return "", string(canonical)
	}

	return "", string(whole.Payload)
}

// plainHex writes an address of an EVM network in one way; those of other networks tell cases apart.
func plainHex(text string) string {
	if rest, is := strings.CutPrefix(strings.ToLower(text), "0x"); is {
		return rest
	}
	return text
}

// nonceDigits are the hex digits of an EIP-3009 nonce, 32 bytes, where it is written without 0x.
const nonceDigits = 64

// plainNumber writes a nonce in one way: hex with and without 0x and zeros in front, or decimal.
func plainNumber(text string) string {
	digits, prefixed := strings.CutPrefix(strings.ToLower(text), "0x")
	base := 10
	if prefixed || len(digits) == nonceDigits {
		base = 16
	}
	if number, ok := new(big.Int).SetString(digits, base); ok {
		return number.String()
	}
	return text
}
