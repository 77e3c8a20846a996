package gateway

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// guard decides which requests may be answered at all, before tokens are looked
// at: a web page must not even learn whether its token would have been good.
type guard struct {
	hosts   map[string]bool // lower case; `name` or `name:port`
	origins map[string]bool // lower case
	cross   *http.CrossOriginProtection
}

func newGuard(o Options) *guard {
	g := &guard{hosts: map[string]bool{}, origins: map[string]bool{}, cross: http.NewCrossOriginProtection()}
	for _, h := range o.AllowedHosts {
		g.hosts[strings.ToLower(strings.TrimSuffix(h, "."))] = true
	}
	for _, origin := range o.AllowedOrigins {
		g.origins[strings.ToLower(strings.TrimSuffix(origin, "/"))] = true
	}
	return g
}

// check returns why the request is refused with 403, or nil.
func (g *guard) check(r *http.Request) error {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !g.hostOK(r.Host, local) {
		return fmt.Errorf("host %q is not one of this bridge's names; add it to allowed_hosts if it is", r.Host)
	}
	switch origins := r.Header.Values("Origin"); len(origins) {
	case 0:
		// No Origin: not a page's request, unless the browser says so otherwise.
		if err := g.cross.Check(r); err != nil {
			return fmt.Errorf("cross-origin requests are refused")
		}
		if s := r.Header.Get("Sec-Fetch-Site"); s == "cross-site" || s == "same-site" {
			return fmt.Errorf("cross-origin requests are refused")
		}
		return nil
	case 1:
		if g.originOK(origins[0]) {
			return nil
		}
		return fmt.Errorf("origin %q is not allowed; add it to allowed_origins if it is", origins[0])
	default:
		return fmt.Errorf("the request has several Origin headers")
	}
}

// hostOK checks the Host header against DNS rebinding: a page can make a browser
// connect here under any *name* that it owns, but not under an address literal or
// `localhost`.
func (g *guard) hostOK(host string, local net.Addr) bool {
	name, port := splitHost(host)
	if name == "" {
		return false
	}
	if g.hosts[name] || g.hosts[strings.ToLower(host)] || (port != "" && g.hosts[net.JoinHostPort(name, port)]) {
		return true
	}
	ip, err := netip.ParseAddr(name)
	literal := err == nil
	tcp, isTCP := local.(*net.TCPAddr)
	if !isTCP || !tcp.IP.IsLoopback() {
		// Not a loopback listener (or not TCP): a port may have been mapped on the
		// way here, so it says nothing.
		return literal || name == "localhost"
	}
	// A Host header leaves the port out where it is the scheme's own.
	if port != strconv.Itoa(tcp.Port) && (port != "" || (tcp.Port != 80 && tcp.Port != 443)) {
		return false
	}
	if name == "localhost" {
		return true
	}
	own, _ := netip.AddrFromSlice(tcp.IP)
	ip = ip.Unmap()
	return literal && (ip == netip.AddrFrom4([4]byte{127, 0, 0, 1}) || ip == netip.IPv6Loopback() || ip == own.Unmap())
}

// originOK accepts loopback origins on any port and the configured ones.
func (g *guard) originOK(origin string) bool {
	if g.origins[strings.ToLower(strings.TrimSuffix(origin, "/"))] {
		return true
	}
	u, err := url.Parse(origin)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
		return false
	}
	name := strings.ToLower(u.Hostname())
	if name == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && (ip.Unmap() == netip.AddrFrom4([4]byte{127, 0, 0, 1}) || ip == netip.IPv6Loopback())
}

// splitHost takes a Host header apart; the name comes in lower case and without
// brackets and final dot, and is "" where the header is malformed.
func splitHost(host string) (name, port string) {
	if host == "" || strings.ContainsAny(host, " \t/\\@?#%") {
		return "", ""
	}
	name = host
	if strings.HasPrefix(host, "[") || strings.Count(host, ":") == 1 {
		if n, p, err := net.SplitHostPort(host); err == nil {
			name, port = n, p
			if p == "" {
				return "", ""
			}
		} else if name = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"); len(name) != len(host)-2 {
			return "", ""
		}
	}
	return strings.ToLower(strings.TrimSuffix(name, ".")), port
}
