package design

import (
	"bytes"
	"image/color"
	"image/png"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"inbox/internal/golden"
)

// TestShapesAreCovered holds what is covered of a field to the geometry of each shape: a pixel inside is covered whole, one outside not at all.
func TestShapesAreCovered(t *testing.T) {
	const r, size = fieldSize, 96
	square := func(v float64) float64 { return v * v }
	disc := func(x, y float64) bool { return square(x-r/2)+square(y-r/2) < square(r/2) }
	whole := func(float64, float64) bool { return true }
	quarter := func(cx, cy float64) func(x, y float64) bool {
		return func(x, y float64) bool { return square(x-cx)+square(y-cy) < square(r) }
	}

	for _, test := range []struct {
		path   string
		inside func(x, y float64) bool
	}{
		{corner(0, 0, 0, false), disc}, {corner(1, 0, 0, true), whole}, {centre(0, 0, 0), disc}, {centre(1, 0, 0), whole},
		{corner(2, 0, 0, false), quarter(0, 0)}, {corner(2, 0, 0, true), quarter(r, 0)}, {corner(3, 0, 0, false), quarter(r, 0)}, {corner(3, 0, 0, true), quarter(0, 0)},
		{corner(4, 0, 0, false), quarter(0, r)}, {corner(4, 0, 0, true), quarter(r, r)}, {corner(5, 0, 0, false), quarter(r, r)}, {corner(5, 0, 0, true), quarter(0, r)},
		{centre(2, 0, 0), func(x, y float64) bool { return math.Abs(x-r/2)+math.Abs(y-r/2) < r/2 }},
		{centre(3, 0, 0), func(x, y float64) bool { return square(x-r/2)+square(y) < square(r/2) }}, {centre(4, 0, 0), nil},
	} {
		var covered [size][size]int
		const scale = size / float64(r)
		outlineOf(test.path).raster(size, scale, func(x, y, shade int) { covered[y][x] = shade })
		for y := range size {
			for x := range size {
				corners := 0
				for _, at := range [][2]int{{0, 0}, {1, 0}, {0, 1}, {1, 1}} {
					if test.inside != nil && test.inside(float64(x+at[0])/scale, float64(y+at[1])/scale) {
						corners++
					}
				}
				if got := covered[y][x]; corners == 4 && got < rasterShades-1 || corners == 0 && got > 1 {
					t.Fatalf("%s: %d/%d of the pixel %d, %d are covered; %d of its corners are inside", test.path, got, rasterShades, x, y, corners)
				}
			}
		}
	}
}

// TestPicturesAreTheAvatars: both sides are alike, and the colours are those of the drawing.
func TestPicturesAreTheAvatars(t *testing.T) {
	for _, address := range []string{"@support@agents.example", "@sales@agents.example", ""} {
		drawn := draw(address)
		picture, err := png.Decode(bytes.NewReader(drawn.png()))
		if err != nil || picture.Bounds().Dx() != PictureSize || picture.Bounds().Dy() != PictureSize {
			t.Fatalf("%s: %v", address, err)
		}
		count := map[color.Color]int{}
		for y := range PictureSize {
			for x := range PictureSize {
				count[picture.At(x, y)]++
				if !alike(picture.At(x, y), picture.At(PictureSize-1-x, y)) {
					t.Fatalf("%s: %d, %d differs from the other side", address, x, y)
				}
			}
		}
		for _, one := range []struct{ colour, path string }{{drawn.ground, "all"}, {drawn.first, drawn.firstPath}, {drawn.second, drawn.secondPath}} {
			if got := count[rgb(one.colour)]; (got > 1000) != (one.path != "") {
				t.Errorf("%s: %d pixels have the colour %s", address, got, one.colour)
			}
		}
	}
	if one, same := AvatarAddress("a", "@Support@agents.example"), AvatarAddress("a", "@support@agents.example"); one != same || one == AvatarAddress("a", "@sales@agents.example") {
		t.Error(one, same)
	}
}

func alike(one, other color.Color) bool {
	r1, g1, b1, _ := one.RGBA()
	r2, g2, b2, _ := other.RGBA()
	return r1 == r2 && g1 == g2 && b1 == b2
}

// TestMarkIsThatOfThePages: the picture of the front page is the mark of the pages without its round corners, which other sites cut themselves.
func TestMarkIsThatOfThePages(t *testing.T) {
	paths := regexp.MustCompile(` d="([^"]*)"`).FindStringSubmatch(render(t, Mark()))
	drawn := drawPNG(32, "#0b6a5d", layer{"#ffffff", outlineOf(paths[1])})
	if *golden.Update {
		if err := os.WriteFile(filepath.Join("web", "mark.png"), drawn, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	want, err := png.Decode(bytes.NewReader(drawn))
	if err != nil {
		t.Fatal(err)
	}
	got, err := png.Decode(bytes.NewReader(file("mark.png")))
	if err != nil || got.Bounds() != want.Bounds() {
		t.Fatalf("web/mark.png: %v (-update draws it again)", err)
	}
	for y := range PictureSize {
		for x := range PictureSize {
			if !alike(got.At(x, y), want.At(x, y)) {
				t.Fatalf("web/mark.png differs from the mark at %d, %d; -update draws it again", x, y)
			}
		}
	}
	if !alike(got.At(240, 140), color.White) || !alike(got.At(240, 220), rgb("#0b6a5d")) || !alike(got.At(120, 370), color.White) {
		t.Error("web/mark.png has no figure above a tray")
	}
}

func TestAvatarsAreServed(t *testing.T) {
	address := "@echo@agents.example"
	avatars := Avatars(func(name string) string {
		if strings.EqualFold(name, "echo") {
			return address
		}
		return ""
	})
	get := func(path, tag string) *http.Response {
		r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
		r.Header.Set("If-None-Match", tag)
		r.Header.Set("Accept-Encoding", "gzip")
		recorder := httptest.NewRecorder()
		avatars.ServeHTTP(recorder, r)
		return recorder.Result()
	}

	first := get(AvatarAddress("echo", address), "")
	picture, err := png.Decode(first.Body)
	if err != nil || first.Header.Get("Content-Type") != "image/png" || !strings.Contains(first.Header.Get("Cache-Control"), "immutable") ||
		first.Header.Get("Content-Encoding") != "" || picture.Bounds().Dx() != PictureSize {
		t.Errorf("%v, %v", err, first.Header)
	}
	if again := get(AvatarAddress("echo", address), first.Header.Get("ETag")); again.StatusCode != http.StatusNotModified {
		t.Errorf("a kept picture is answered with %d", again.StatusCode)
	}
	if other := get("/avatars/0000000000000000/ECHO.png", ""); other.StatusCode != http.StatusOK || other.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("another drawing: %d, %v", other.StatusCode, other.Header)
	}
	for _, path := range []string{"/avatars/x/nobody.png", "/avatars/x/echo", "/avatars/", "/avatars/x/echo.png.png"} {
		if missing := get(path, ""); missing.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d", path, missing.StatusCode)
		}
	}
}
