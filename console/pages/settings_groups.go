package pages

import (
	"context"
	"net/http"
	"slices"

	"github.com/a-h/templ"

	"inbox/console/account"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

// part is one subject of the settings.
type part struct {
	name  string
	role  exchange.Role
	title func(context.Context) string
	read  func(*Pages, *http.Request, account.Session) (templ.Component, error)
}

// settingsGroup is what an operator thinks of together: one tab, whose parts stand below each other. Parts that are long lists are shown one at
// a time.
type settingsGroup struct {
	name  string // of its address; empty = that of the settings
	label func(context.Context) string
	long  bool
	parts []part
}

func settingsGroups() []settingsGroup {
	return []settingsGroup{
		{label: func(ctx context.Context) string { return text(ctx, "Server") }, parts: []part{
			{"server", exchange.RoleRead, nil, (*Pages).settings},
			{"nodes", exchange.RoleRead, nil, (*Pages).nodes},
			{"backlog", exchange.RoleRead, nil, (*Pages).backlog},
		}},
		{name: "checks", label: func(ctx context.Context) string { return text(ctx, "Checks") }, parts: []part{
			{"doctor", exchange.RoleRead, nil, (*Pages).doctor},
			{"dns", exchange.RoleRead, nil, (*Pages).dns},
			{"certificates", exchange.RoleRead, nil, (*Pages).certificates},
		}},
		{name: "senders", label: func(ctx context.Context) string { return text(ctx, "Senders") }, parts: []part{
			{"lists", exchange.RoleRead, nil, (*Pages).lists},
			{"limits", exchange.RoleRead, nil, (*Pages).limits},
		}},
		{name: "records", long: true, label: func(ctx context.Context) string { return text(ctx, "Records") }, parts: []part{
			{"audit", exchange.RoleRead, func(ctx context.Context) string { return text(ctx, "Audit log") }, (*Pages).audit},
			{"notices", exchange.RoleRead, func(ctx context.Context) string { return text(ctx, "Notices") }, (*Pages).notices},
		}},
		{name: "access", label: func(ctx context.Context) string { return text(ctx, "Access") }, parts: []part{
			{"sessions", exchange.RoleRead, nil, (*Pages).sessions},
			{"configuration", exchange.RoleAdmin, nil, (*Pages).configuration},
		}},
	}
}

// path is the address of a group.
func (g settingsGroup) path() string {
	if g.name == "" {
		return at("settings")
	}
	return at("settings", g.name)
}

// partPath is the address of a part in its group.
func (g settingsGroup) partPath(name string) string {
	if g.long {
		return g.path() + "?" + values("part", name)
	}
	return g.path() + "#" + name
}

// settingPath is the address of a part of the settings.
func settingPath(name string) string {
	for _, group := range settingsGroups() {
		if slices.ContainsFunc(group.parts, func(one part) bool { return one.name == name }) {
			return group.partPath(name)
		}
	}
	return at("settings")
}

// settingsPages are the groups, and the addresses that their parts had when each was a page of its own.
func (p *Pages) settingsPages() (routes []httpserver.Route) {
	for _, group := range settingsGroups() {
		routes = append(routes, p.page(exchange.RoleRead, group.path(), p.showGroup(group)))
		for _, one := range group.parts {
			if one.name == "server" {
				continue // it had the address that its group has
			}
			routes = append(routes, p.page(one.role, at("settings", one.name), func(w http.ResponseWriter, r *http.Request, _ account.Session) error {
				query := r.URL.Query()
				if group.long {
					query.Set("part", one.name)
				}
				to := group.path()
				if len(query) > 0 {
					to += "?" + query.Encode()
				}
				if !group.long {
					to += "#" + one.name
				}
				moved(w, r, to)
				return nil
			}))
		}
	}
	return routes
}

// showGroup reads the parts of a group that the reader may see.
func (p *Pages) showGroup(group settingsGroup) handler {
	return func(w http.ResponseWriter, r *http.Request, s account.Session) error {
		parts := slices.DeleteFunc(slices.Clone(group.parts), func(one part) bool { return s.Role < one.role })
		v := groupView{Group: group, Groups: settingsGroups(), Part: parts[0].name}
		if asked := r.URL.Query().Get("part"); group.long && asked != "" {
			v.Part = asked
		}
		if group.long {
			parts = slices.DeleteFunc(parts, func(one part) bool { return one.name != v.Part })
		}
		if len(parts) == 0 {
			return fault.InField("part", "names no part of these settings")
		}
		for _, one := range parts {
			content, err := one.read(p, r, s)
			if err != nil {
				return err
			}
			v.Parts = append(v.Parts, content)
		}
		return p.show(w, r, s, view{Title: group.label(r.Context()), Section: sectionSettings, Wide: group.long}, groupPage(v))
	}
}

// groupView is a tab of the settings.
type groupView struct {
	Groups []settingsGroup
	Group  settingsGroup
	Part   string // that is shown, of a group of long lists
	Parts  []templ.Component
}
