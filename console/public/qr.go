package public

import (
	"fmt"
	"strings"

	"rsc.io/qr"
)

// code is a QR code (ISO/IEC 18004) as a drawing.
type code struct {
	Path string // of the dark modules
	Box  string // viewBox with the quiet zone of four modules around
}

// encode draws an address, with the recovery of a quarter of it, since codes are photographed from screens and paper. Addresses that
// do not fit into a code are an error.
func encode(address string) (code, error) {
	drawn, err := qr.Encode(address, qr.Q)
	if err != nil {
		return code{}, fmt.Errorf("draw the QR code of %s: %w", address, err)
	}

	const quiet = 4
	var path strings.Builder
	for y := range drawn.Size {
		for x := 0; x < drawn.Size; x++ {
			begin := x
			for x < drawn.Size && drawn.Black(x, y) {
				x++
			}
			if x > begin {
				fmt.Fprintf(&path, "M%d %dh%dv1h-%dz", begin+quiet, y+quiet, x-begin, x-begin)
			}
		}
	}

	side := drawn.Size + 2*quiet
	return code{path.String(), fmt.Sprintf("0 0 %d %d", side, side)}, nil
}
