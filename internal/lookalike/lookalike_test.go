package lookalike

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"
)

func TestCharactersThatPassForOthersAreEscaped(t *testing.T) {
	for text, want := range map[string]string{
		"plain":                                      "plain",
		"gro\u00df & caf\u00e9 \u6771":               "gro\u00df & caf\u00e9 \u6771",
		"evil\u202egpj.exe":                          `evil\u202egpj.exe`,
		"a\u2066b\u2069\u200e\u061c":                 `a\u2066b\u2069\u200e\u061c`,
		"zero\u200bwidth\u2060\ufeff":                `zero\u200bwidth\u2060\ufeff`,
		"no\u00a0break":                              `no\u00a0break`,
		"p\u0430ypal.com":                            `p\u0430ypal.com`,
		"\u0430\u0440\u0440\u04cf\u0435.com":         `\u0430\u0440\u0440\u04cf\u0435.com`,
		"\u043f\u0440\u0438\u0432\u0435\u0442 world": "\u043f\u0440\u0438\u0432\u0435\u0442 world",
		"\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35":       "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
		"hidden\U000e0041tag":                        `hidden\udb40\udc41tag`,
		"fill\u3164er\u115f":                         `fill\u3164er\u115f`,
		"\u03b1lpha \u03b1\u03b2\u03b3 x":            `\u03b1lpha ` + "\u03b1\u03b2\u03b3 x",

		// Letters and digits of Latin in other forms.
		"\U0001d5c9\U0001d5ba\U0001d5d2pal":          `\ud835\uddc9\ud835\uddba\ud835\uddd2pal`,
		"\uff50\uff41\uff59\uff50\uff41\uff4c\uff11": `\uff50\uff41\uff59\uff50\uff41\uff4c\uff11`,
		"Henry \u2167": `Henry \u2167`,
		"goog\u217ce":  `goog\u217ce`,
		"\u0261oogle":  `\u0261oogle`,
		"goog\u0665le": `goog\u0665le`,
		// Letters of other alphabets that are drawn like Latin ones.
		"ce\u101d@corp.example": `ce\u101d@corp.example`,
		"l\u05d5gin b\u0647ss":  `l\u05d5gin b\u0647ss`,
		"b\u0c02ss r\u2d54t":    `b\u0c02ss r\u2d54t`,
		"\U00010404il":          `\ud801\udc04il`,
		"admi\u0307n":           `admi\u0307n`,
		"\u05e9\u05dc\u05d5\u05dd \u0647\u0648 WhatsApp": "\u05e9\u05dc\u05d5\u05dd \u0647\u0648 WhatsApp",
		"\ufb01le":    `\ufb01le`,
		"\u212aelvin": `\u212aelvin`,
		// Characters that pass for dots, slashes and the like in an address.
		"bank\u2024example":                 `bank\u2024example`,
		"bank.example\u2215login":           `bank.example\u2215login`,
		"bank.example\u2044login":           `bank.example\u2044login`,
		"bank.example\u30celogin.evil.jp":   `bank.example\u30celogin.evil.jp`,
		"user\uff20bank.example":            `user\uff20bank.example`,
		"bank.example\ua4f8evil":            `bank.example\ua4f8evil`,
		"https\u2236//x":                    `https\u2236//x`,
		"\u200c\u0301 \n\u0303":             `\u200c\u0301 ` + "\n" + `\u0303`,
		"jose\u0301":                        `jose\u0301`,
		"\u4f60\u597d\uff1a123\uff21\u516c": "\u4f60\u597d\uff1a123\uff21\u516c", // Chinese writes so
		"ChatGPT\u30ce\u30fc\u30c8":         "ChatGPT\u30ce\u30fc\u30c8",
		"Wait\u2026 don\u2019t \u2013 2\u20133 m\u00b2 \u00bd \u2116 5 \u2460 \u2122": "Wait\u2026 don\u2019t \u2013 2\u20133 m\u00b2 \u00bd \u2116 5 \u2460 \u2122",
		"Kad\u0131k\u00f6y \u00fe\u00fa \u1ea1":                                       "Kad\u0131k\u00f6y \u00fe\u00fa \u1ea1",
		"\u0661\u0662\u0663 \u0967\u0968":                                             "\u0661\u0662\u0663 \u0967\u0968",

		// Letters of the past and of phonetics.
		"\u017fhop.example Con\u017ft": `\u017fhop.example Con\u017ft`,
		"goog\u01c0e b\u01c3":          `goog\u01c0e b\u01c3`,
		"\u01bfay \u0196og":            `\u01bfay \u0196og`,
		// Numbers.
		"1\u043e0 1\u041e\u041e 10\u041e \u0417000": `1\u043e0 1\u041e\u041e 10\u041e \u0417000`,
		"1\u06600 1\u0660\u0660":                    `1\u06600 1\u0660\u0660`,
		"user1\u041e pay-\u0440\u0430\u0443":        `user1\u041e pay-\u0440\u0430\u0443`,

		// Joiners and selectors.
		"\U0001f469\u200d\U0001f4bb \u2764\ufe0f 1\ufe0f\u20e3 \u2139\ufe0f":               "\U0001f469\u200d\U0001f4bb \u2764\ufe0f 1\ufe0f\u20e3 \u2139\ufe0f",
		"\u2764\ufe0f\u200d\U0001f525 \U0001f469\U0001f3fd\u200d\U0001f4bb":                "\u2764\ufe0f\u200d\U0001f525 \U0001f469\U0001f3fd\u200d\U0001f4bb",
		"\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645":                                 "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
		"\u0915\u094d\u200d\u0937":                                                         "\u0915\u094d\u200d\u0937",
		"ad\u200dmin":                                                                      `ad\u200dmin`,
		"\u0645\u06cc\u200c\u200c\u062e":                                                   "\u0645\u06cc" + `\u200c\u200c` + "\u062e",
		"\U0001f469\u200d\u200d\U0001f4bb":                                                 "\U0001f469" + `\u200d\u200d` + "\U0001f4bb",
		"\u2764\ufe0f\ufe0f":                                                               "\u2764\ufe0f" + `\ufe0f`,
		"\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f":           "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
		"\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e0061\U000e007f":                     "\U0001f3f4" + `\udb40\udc67\udb40\udc62\udb40\udc65\udb40\udc61\udb40\udc7f`,
		"\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f\U000e007f": "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f" + `\udb40\udc7f`,
	} {
		if got := Visible(text); got != want {
			t.Errorf("%+q is written as %+q, want %+q", text, got, want)
		}
	}
}

func TestHostsBeyondASCIIAreListedAsTheyAreLookedUp(t *testing.T) {
	const imitation = "\u0430\u0440\u0440\u04cf\u0435.\u0440\u0444"
	for text, want := range map[string][]string{
		"see example.com and mail a@b.example":                    nil,
		"pay at https://" + imitation + "/x":                      {imitation + " xn--80ak6aa92e.xn--p1ai"},
		"to: ann@" + imitation + ".":                              {imitation + " xn--80ak6aa92e.xn--p1ai"},
		"m\u00fcnchen.de, m\u00fcnchen.de":                        {"m\u00fcnchen.de xn--mnchen-3ya.de"},
		"\u041f\u0440\u0438\u0432\u0435\u0442.\u041a\u0430\u043a": nil, // a full stop without a space
		"na\u00efve \u6771\u4eac":                                 nil,
		"//\u0430.internal":                                       {"\\u0430.internal xn--80a.internal"},
		"//\U0001d5c9aypal.com":                                   {`\ud835\uddc9aypal.com paypal.com`},
		"Wait\u2026 there.\u2026":                                 nil,
		strings.Repeat("\u0430", 5_000) + ".\u0440\u0444":         nil,
	} {
		var got []string
		hosts, _ := Hosts(10, text)
		for _, host := range hosts {
			got = append(got, host.Written+" "+host.ASCII)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%+q has the hosts %+q, want %+q", text, got, want)
		}
	}
	if got, more := Hosts(2, "\u00e4.de \u00f6.de \u00fc.de \u00e4.de \u00fc.de"); len(got) != 2 || more != 1 {
		t.Errorf("%d hosts and %d more, want 2 and 1", len(got), more)
	}
}

// TestWordsOfLanguagesStay: what people write in their languages, and formulas in code, is shown as it is.
func TestWordsOfLanguagesStay(t *testing.T) {
	for _, text := range []string{
		"Größe, Straße, Übermäßig, naïve Café, œuvre, Ærø, þing, ðætti, Łódź, IJssel, ĳ, 1º 2ª, L’été",
		"Isparta’da ışık, İstanbul, ılık 15’inci, Kadıköy’ün, şğçöü",
		"Η Ελλάδα έχει 10 εκατομμύρια, 2ος όροφος, COVID-19, το e-mail",
		"Дом 12а, кв. 5б, 4х4, 20х30 см, формат А4, М5, USB-кабель, SMS-сообщение, IT-отдел, Wi-Fi-сеть, в 2024-м, 90-е, COVID-19",
		"Привіт, Київ, об’єкт, їжак; Љубав, ђак; Қазақстан",
		"你好，世界。版本2.0，USB接口，ＡＢＣ公司，价格：１００元", "日本語のテキスト、ＵＳＢケーブル、ＣＰＵは3.5GHz", "한국어 텍스트 2024년 IT기업",
		"สวัสดีครับ ราคา ๑๐๐ บาท USB", "مرحبا بالعالم، السعر ١٠٠ ريال، رقم 42", "שלום עולם, 10 ₪", "नमस्ते १२३", "Tiếng Việt, Đường, ươi",
		"Δx = x₂ − x₁, 2πr, ρgh, λx.x, σ_x, θ1, kΩ, 5 µs, μm, Σxᵢ, ∀x ∈ A, x × y, ½·m·v², α, β, αx + βy, E = mc²",
	} {
		if got := Visible(text); got != text {
			t.Errorf("%s\nis shown as\n%s", text, got)
		}
	}
}

// TestNothingIsLostInWriting: the string decodes to the text, and no normalization changes it.
func TestNothingIsLostInWriting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.OneOf(rapid.Rune(), rapid.SampledFrom([]rune("a.  \"\\\n\u0430\u200d\u200c\ufe0f\u0301\u202e\U0001f469\U0001f3f4\U000e0067\u0645\u1100\u1161")))).Draw(t, "text")
		var decoded string
		if err := json.Unmarshal([]byte(JSON(text)), &decoded); err != nil || decoded != text {
			t.Fatalf("%+q is written as %s, which is %+q, %v", text, JSON(text), decoded, err)
		}
		for _, got := range []string{JSON(text), Visible(text)} {
			if !norm.NFC.IsNormalString(got) || strings.ContainsRune(got, 0x202e) || strings.Contains(JSON(text), "  ") {
				t.Fatalf("%+q is written as %+q", text, got)
			}
		}
		Hosts(5, text)
	})
}

func TestLineEndsAreNoLettersOfTheNextWord(t *testing.T) {
	if got, want := JSON("\n\u043f\u0440\u0438\u0432\u0435\u0442"), `"\n`+"\u043f\u0440\u0438\u0432\u0435\u0442\""; got != want {
		t.Errorf("%+q, want %+q", got, want)
	}
}
