package design

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// AvatarPattern is the route of the avatars as PNG, for those who show no SVG: servers of the fediverse and previews of links. The handler is
// Avatars.
const AvatarPattern = "/avatars/{hash}/{name}"

// PictureSize is the width and the height of the pictures that this package draws, in pixels. A field of an avatar ends at a whole pixel.
const PictureSize = 480

// maxAvatars bounds the pictures in memory; each has a few KiB.
const maxAvatars = 500

// AvatarAddress returns the path of the avatar of an address as PNG. name is what the picture is called, such as the agent's name. The path
// changes with the drawing, so that it may be kept for ever.
func AvatarAddress(name, address string) string {
	return "/avatars/" + draw(address).hash() + "/" + url.PathEscape(name) + ".png"
}

// Avatars serves the pictures under AvatarPattern. address returns the address of the agent to a name, "" where there is none, so that
// only the pictures of agents are drawn. They are drawn once while there are not too many.
func Avatars(address func(name string) string) http.Handler {
	var mu sync.Mutex
	drawn, _ := simplelru.NewLRU[drawing, *asset](maxAvatars, nil)
	picture := func(d drawing) *asset {
		mu.Lock() // a second request for the same picture waits for the first
		defer mu.Unlock()
		kept, known := drawn.Get(d)
		if !known {
			kept = newAsset(pngImage, d.png())
			drawn.Add(d, kept)
		}
		return kept
	}

	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hash, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/avatars/"), "/")
		agent, named := strings.CutSuffix(name, ".png")
		if agent = address(agent); !named || agent == "" {
			http.NotFound(w, r)
			return
		}

		w.Header().Set("Cross-Origin-Resource-Policy", "cross-origin") // others show it
		d := draw(agent)
		picture(d).serve(w, r, keepFor(hash == d.hash()))
	})
}

// hash changes with what is drawn.
func (d drawing) hash() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%v %d", d, PictureSize))
	return hex.EncodeToString(sum[:8])
}

// png draws the same as the SVG does.
func (d drawing) png() []byte {
	return drawPNG(3*fieldSize, d.ground, layer{d.first, outlineOf(d.firstPath)}, layer{d.second, outlineOf(d.secondPath)})
}

// layer is a shape in one colour. Layers share no pixel.
type layer struct {
	colour string // #rrggbb
	shape  outline
}

// drawPNG draws layers on a ground; units is how many units of theirs the picture is wide and high.
func drawPNG(units int, ground string, layers ...layer) []byte {
	colours := color.Palette{rgb(ground)}
	for _, one := range layers {
		colours = append(colours, shades(rgb(ground), rgb(one.colour))...)
	}
	picture := image.NewPaletted(image.Rect(0, 0, PictureSize, PictureSize), colours)
	for i, one := range layers {
		one.shape.raster(PictureSize, PictureSize/float64(units), func(x, y, shade int) {
			picture.Pix[y*picture.Stride+x] = uint8(i*rasterShades + shade) // two layers have 33 colours
		})
	}

	var written bytes.Buffer
	if err := png.Encode(&written, picture); err != nil {
		panic("design: draw a picture: " + err.Error()) // memory takes all
	}
	return written.Bytes()
}

// shades are the colours from one to another, without the first.
func shades(from, to color.RGBA) (list color.Palette) {
	mix := func(a, b uint8, part int) uint8 {
		return uint8((int(a)*(rasterShades-part) + int(b)*part + rasterShades/2) / rasterShades)
	}
	for part := 1; part <= rasterShades; part++ {
		list = append(list, color.RGBA{mix(from.R, to.R, part), mix(from.G, to.G, part), mix(from.B, to.B, part), 255})
	}
	return list
}

func rgb(colour string) color.RGBA {
	parts, err := hex.DecodeString(strings.TrimPrefix(colour, "#"))
	if err != nil || len(parts) != 3 {
		panic("design: " + colour + " is no colour")
	}
	return color.RGBA{parts[0], parts[1], parts[2], 255}
}
