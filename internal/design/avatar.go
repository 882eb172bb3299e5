package design

import (
	"crypto/sha256"
	"fmt"
	"strings"
)

// drawing is a pattern of three by three fields, alike on the left and on the right, in three colours.
type drawing struct {
	ground, first, second string
	firstPath, secondPath string
}

// palettes are colours that fit each other: ground, first, second.
var palettes = [][3]string{
	{"#0b6a5d", "#8fd8c4", "#f2c879"}, {"#243b6b", "#8fb3ef", "#f4b8a4"}, {"#5a3fb0", "#c3b2ff", "#ffd28a"}, {"#8a3b12", "#f3b07d", "#ffe6c4"},
	{"#1f4e5f", "#7fc4d6", "#f7d6a0"}, {"#7c2f66", "#eaa9d6", "#ffd9a8"}, {"#3f5220", "#b7cc82", "#f6e2a6"}, {"#5b2a2a", "#e79a8d", "#f7d2b4"},
	{"#2b2d5b", "#9aa0ea", "#9fe0d0"}, {"#0f4c3a", "#77c79a", "#d9ecb4"}, {"#6b4500", "#f0c65b", "#fff0c9"}, {"#43354e", "#bfa6d3", "#f2c7c0"},
}

const fieldSize = 16

// draw returns the same drawing for the same address, whatever the case of its letters.
func draw(address string) drawing {
	sum := sha256.Sum256([]byte(strings.ToLower(address)))
	colours := palettes[int(sum[0])%len(palettes)]

	var paths [2]strings.Builder
	for row := range 3 {
		side, middle := sum[1+row], sum[4+row]
		y := row * fieldSize
		into := &paths[side>>7]
		into.WriteString(corner(int(side)%6, 0, y, false))
		into.WriteString(corner(int(side)%6, 2*fieldSize, y, true))
		paths[middle>>7].WriteString(centre(int(middle)%5, fieldSize, y))
	}

	return drawing{colours[0], colours[1], colours[2], paths[0].String(), paths[1].String()}
}

// corner draws a field of the left side, or its mirror image: a disc, a square or a quarter of a disc in one of four corners.
func corner(shape, x, y int, mirrored bool) string {
	if mirrored && shape >= 2 {
		shape = [...]int{2: 3, 3: 2, 4: 5, 5: 4}[shape]
	}
	const r = fieldSize
	switch shape {
	case 0:
		return disc(x, y)
	case 1:
		return fmt.Sprintf("M%d %dh%dv%dh-%dz", x, y, r, r, r)
	case 2:
		return fmt.Sprintf("M%d %dh%da%d %d 0 0 1-%d %dz", x, y, r, r, r, r, r)
	case 3:
		return fmt.Sprintf("M%d %dv%da%d %d 0 0 1-%d-%dz", x+r, y, r, r, r, r, r)
	case 4:
		return fmt.Sprintf("M%d %dv-%da%d %d 0 0 1 %d %dz", x, y+r, r, r, r, r, r)
	}
	return fmt.Sprintf("M%d %dh-%da%d %d 0 0 1 %d-%dz", x+r, y+r, r, r, r, r, r)
}

// centre draws a field of the middle, which is its own mirror image.
func centre(shape, x, y int) string {
	const r, half = fieldSize, fieldSize / 2
	switch shape {
	case 0:
		return disc(x, y)
	case 1:
		return fmt.Sprintf("M%d %dh%dv%dh-%dz", x, y, r, r, r)
	case 2:
		return fmt.Sprintf("M%d %dl%d %d-%d %d-%d-%dz", x+half, y, half, half, half, half, half, half)
	case 3:
		return fmt.Sprintf("M%d %dh%da%d %d 0 0 1-%d 0z", x, y, r, half, half, r)
	}
	return ""
}

func disc(x, y int) string {
	const r = fieldSize / 2
	return fmt.Sprintf("M%d %da%d %d 0 1 1 %d 0 %d %d 0 1 1-%d 0z", x, y+r, r, r, 2*r, r, r, 2*r)
}
