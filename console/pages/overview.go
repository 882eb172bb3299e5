package pages

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"inbox/console/account"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/operator"
)

func (p *Pages) overviewRoutes() []httpserver.Route {
	return []httpserver.Route{
		p.page(exchange.RoleRead, Root, p.home),
		p.page(exchange.RoleRead, at("overview"), p.overview),
	}
}

// home leads to the inbox, which is the first page after the sign-in. The overview was at its address; links that choose a period or an
// agent still lead there.
func (p *Pages) home(w http.ResponseWriter, r *http.Request, _ account.Session) error {
	to := at("inbox")
	if r.URL.RawQuery != "" {
		to = at("overview") + "?" + r.URL.Query().Encode()
	}
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, r, to, http.StatusSeeOther) //nolint:gosec // a path of the console
	return nil
}

// Periods of the overview.
const (
	periodDay   = "24h"
	periodMonth = "30d"
)

// newestNotices is how many notices the overview shows.
const newestNotices = 3

// overviewView is how the server is, and what came in.
type overviewView struct {
	Waiting operator.Overview
	Health  []httpserver.Detail
	Room    operator.Room
	Notices []exchange.Notice
	Paused  *exchange.ListEntry // all agents rest
	Version string
	Domain  string
	New     bool // nothing came in yet

	Traffic operator.Traffic
	Chart   chart
	Period  string
	Agent   string
	Agents  []string
}

func (p *Pages) overview(w http.ResponseWriter, r *http.Request, s account.Session) error {
	v, err := p.readOverview(r)
	if err != nil {
		return err
	}
	return p.show(w, r, s, view{Title: text(r.Context(), "Overview"), Section: sectionOverview}, overviewPage(v))
}

func (p *Pages) readOverview(r *http.Request) (v overviewView, err error) {
	ctx, query := r.Context(), r.URL.Query()
	v = overviewView{
		Waiting: p.work.current(ctx, p.Operator.Waiting), Version: p.Version, Domain: p.Domain, Agent: query.Get("agent"), Period: periodDay,
	}
	if p.Health != nil {
		v.Health = p.Health(ctx)
	}

	since, step := time.Now().Add(-23*time.Hour), operator.StepHour
	switch query.Get("period") {
	case "", periodDay:
	case periodMonth:
		v.Period, since, step = periodMonth, time.Now().Add(-29*24*time.Hour), operator.StepDay
	default:
		return v, fault.InField("period", `must be "24h" or "30d"`)
	}
	if v.Traffic, err = p.Operator.Statistics.Read(ctx, v.Agent, step, since); err != nil {
		return v, err
	}
	v.Chart = chartOf(v.Traffic)

	if v.Agents, err = p.agentNames(ctx); err != nil {
		return v, err
	}
	if v.Room, err = p.Operator.Usage.Room(ctx); err != nil {
		return v, err
	}
	if v.Notices, err = p.Operator.Notices.List(ctx, "", newestNotices); err != nil {
		return v, err
	}
	if entry, paused, err := p.Operator.Pauses.All(ctx); err != nil {
		return v, err
	} else if paused {
		v.Paused = &entry
	}
	newest, err := p.Operator.Arrivals.Page(ctx, exchange.ArrivalFilter{Limit: 1})
	v.New = len(newest.Turns) == 0
	return v, err
}

// sum adds up all channels.
func (v overviewView) sum() (sum operator.ChannelTraffic) {
	for _, one := range v.Traffic.Channels {
		sum.Add(one.TrafficStep)
	}
	sum.P95 = sum.Took.Quantile(.95).Milliseconds()
	return sum
}

// Size of a chart, in its own units.
const (
	chartWidth  = 720
	chartHeight = 120
)

// chart are bars of one step each, all channels together.
type chart struct {
	Bars []bar
	Most int64 // height of the chart, in messages
}

// bar is what came in within one step.
type bar struct {
	Label            string // of the step
	Received, Failed int64

	X, Width        string
	Y, Height       string // of what did not fail
	BadY, BadHeight string
}

// chartOf draws every step, those without messages too.
func chartOf(t operator.Traffic) (c chart) {
	sums := map[time.Time]*operator.TrafficStep{}
	for _, one := range t.Steps {
		if sums[one.At] == nil {
			sums[one.At] = &operator.TrafficStep{}
		}
		sums[one.At].Add(one)
		c.Most = max(c.Most, sums[one.At].Received)
	}

	step, layout := time.Hour, "15:04"
	if t.Step == operator.StepDay {
		step, layout = 24*time.Hour, "2006-01-02"
	}
	wide := float64(chartWidth) / float64(max(1, t.Until.Sub(t.Since)/step))
	for at, i := t.Since, 0; at.Before(t.Until); at, i = at.Add(step), i+1 {
		one := bar{Label: at.Format(layout), X: units(float64(i)*wide + wide*.1), Width: units(wide * .8)}
		if sum := sums[at]; sum != nil {
			one.Received, one.Failed = sum.Received, sum.Failed
			scale := float64(chartHeight-4) / float64(c.Most)
			bad := float64(sum.Failed) * scale
			good := float64(sum.Received-sum.Failed) * scale
			one.Height, one.Y = units(good), units(chartHeight-good)
			one.BadHeight, one.BadY = units(bad), units(chartHeight-good-bad)
		}
		c.Bars = append(c.Bars, one)
	}
	return c
}

func units(n float64) string { return strconv.FormatFloat(n, 'f', 1, 64) }

// share is how much of the whole a number is.
func share(part, whole int64) string {
	if whole == 0 {
		return "–"
	}
	return strconv.FormatFloat(100*float64(part)/float64(whole), 'f', 1, 64) + " %"
}

// millis writes a time of answers for people.
func millis(n int64) string {
	d := time.Duration(n) * time.Millisecond
	switch {
	case d <= 0:
		return "–"
	case d < 10*time.Second:
		return units(d.Seconds()) + " s"
	case d < 2*time.Minute:
		return strconv.Itoa(int(d.Seconds())) + " s"
	case d < 2*time.Hour:
		return strconv.Itoa(int(d.Minutes())) + " min"
	}
	return strconv.Itoa(int(d.Hours())) + " h"
}

// money writes what agents state as their cost, in their unit.
func money(micros int64) string {
	if micros == 0 {
		return "–"
	}
	return strconv.FormatFloat(float64(micros)/1e6, 'f', 2, 64)
}

// bytesOf writes a size for people.
func bytesOf(n int64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}

// checkName is a condition of readiness in the reader's language; those of further domains are named with their domain.
func checkName(ctx context.Context, name string) string {
	switch name {
	case "database":
		return text(ctx, "Database")
	case "queue":
		return text(ctx, "Queue")
	case "disk":
		return text(ctx, "Disk")
	case "listeners":
		return text(ctx, "Listeners")
	case "self-probe":
		return text(ctx, "Answers itself")
	case "agents":
		return text(ctx, "Agents")
	case "back ends":
		return text(ctx, "Back ends")
	case "certificate":
		return text(ctx, "Certificate")
	}
	return name
}
