package design

import (
	"math"
	"regexp"
	"strconv"
)

type point struct{ x, y float64 }

// outline is what a path encloses, as polygons. Where they overlap, an even number of them encloses nothing.
type outline [][]point

var pathToken = regexp.MustCompile(`[A-Za-z]|-?[0-9.]+`)

// arcSteps is in how many lines an arc is cut. At the sizes of an avatar no eye sees the corners.
const arcSteps = 32

// outlineOf reads the data of a path of this package (SVG 2, section 9.3): M, H, V, h, v, l, z, and a for arcs of circles.
func outlineOf(path string) (shape outline) {
	tokens := pathToken.FindAllString(path, -1)
	number := func() float64 {
		value, err := strconv.ParseFloat(tokens[0], 64)
		if err != nil {
			panic("design: a path of its own: " + err.Error())
		}
		tokens = tokens[1:]
		return value
	}

	var at point
	for command := ""; len(tokens) > 0; {
		if token := tokens[0]; token[0] >= 'A' { // numbers that follow without a letter repeat the command
			command, tokens = token, tokens[1:]
		}

		var line []point
		switch command {
		case "M":
			at = point{number(), number()}
			shape = append(shape, []point{at})
			continue
		case "H":
			at.x = number()
		case "V":
			at.y = number()
		case "h":
			at.x += number()
		case "v":
			at.y += number()
		case "l":
			at.x += number()
			at.y += number()
		case "a":
			radius := number()
			number() // the other radius, which is the same
			number() // the rotation, which a circle has none of
			large, clockwise := number() == 1, number() == 1
			to := point{at.x + number(), at.y + number()}
			line, at = arc(at, to, radius, large, clockwise), to
		case "z", "Z":
			continue // a polygon is closed anyway
		default:
			panic("design: a path of its own has the command " + command)
		}
		last := len(shape) - 1
		shape[last] = append(append(shape[last], line...), at)
	}
	return shape
}

// arc returns the points between the ends of an arc of a circle (SVG 2, appendix B.2.4).
func arc(from, to point, radius float64, large, clockwise bool) []point {
	x, y := (from.x-to.x)/2, (from.y-to.y)/2
	distance := x*x + y*y
	offset := math.Sqrt(max(0, radius*radius-distance) / distance)
	if large == clockwise {
		offset = -offset
	}
	centre := point{(from.x+to.x)/2 + offset*y, (from.y+to.y)/2 - offset*x}

	begin := math.Atan2(from.y-centre.y, from.x-centre.x)
	turn := math.Atan2(to.y-centre.y, to.x-centre.x) - begin
	if clockwise && turn < 0 {
		turn += 2 * math.Pi
	} else if !clockwise && turn > 0 {
		turn -= 2 * math.Pi
	}

	line := make([]point, 0, arcSteps)
	for step := 1; step < arcSteps; step++ {
		angle := begin + turn*float64(step)/arcSteps
		line = append(line, point{centre.x + radius*math.Cos(angle), centre.y + radius*math.Sin(angle)})
	}
	return line
}

// Of a pixel at the edge of a shape, rasterShades tells how much of it is covered, from as many rows.
const (
	rasterShades = 16
	rasterRows   = 4
)

// raster calls plot for each pixel of a square that the shape covers, with how much of it, from 1 to rasterShades. scale is the number of
// pixels of a unit.
func (o outline) raster(size int, scale float64, plot func(x, y, shade int)) {
	covered := make([]float64, size)
	var crossings []float64
	for row := range size {
		clear(covered)
		for part := range rasterRows {
			crossings = o.crossings(crossings[:0], (float64(row)+(float64(part)+0.5)/rasterRows)/scale)
			for i := 0; i+1 < len(crossings); i += 2 {
				cover(covered, crossings[i]*scale, crossings[i+1]*scale)
			}
		}
		for x, part := range covered {
			if shade := int(math.Round(part * rasterShades / rasterRows)); shade > 0 {
				plot(x, row, min(shade, rasterShades))
			}
		}
	}
}

// crossings appends where a horizontal line meets the outline, in order.
func (o outline) crossings(found []float64, y float64) []float64 {
	for _, polygon := range o {
		before := polygon[len(polygon)-1]
		for _, next := range polygon {
			if (before.y <= y) != (next.y <= y) {
				found = append(found, before.x+(y-before.y)/(next.y-before.y)*(next.x-before.x))
			}
			before = next
		}
	}
	for i := range found { // there are few; a library's sort weighs more than the rest of this file
		for j := i; j > 0 && found[j] < found[j-1]; j-- {
			found[j], found[j-1] = found[j-1], found[j]
		}
	}
	return found
}

// cover adds to each pixel the part of it that lies between from and to.
func cover(covered []float64, from, to float64) {
	from, to = max(from, 0), min(to, float64(len(covered)))
	for x := int(from); x < len(covered) && float64(x) < to; x++ {
		covered[x] += min(to, float64(x+1)) - max(from, float64(x))
	}
}
