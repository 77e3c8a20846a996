package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

const maxRedirects = 3

// errRedirect is a redirect that is not followed.
type errRedirect struct{ reason string }

func (e *errRedirect) Error() string { return e.reason }

// requestTo makes a request for one address. It is called once for each address that
// a server redirects to.
type requestTo func(u *url.URL) (*http.Request, error)

// do sends a request to where the server takes requests now. Redirects are followed
// within the origin, and only where the request stays what it is; a POST that was
// redirected teaches where the next ones go. With once nothing is sent a second time,
// whatever the answer: that it was a redirect does not prove that nothing was done.
func (r *remote) do(make requestTo, once bool) (*http.Response, error) {
	u := r.target()
	for n := 0; ; n++ {
		req, err := make(u)
		if err != nil {
			return nil, err
		}
		resp, err := r.client.Do(req)
		if err != nil {
			var ue *url.Error
			if errors.As(err, &ue) {
				err = ue.Err // without the URL, which may hold a secret
			}
			return nil, err
		}
		if !redirects(resp) {
			if n > 0 && req.Method == http.MethodPost && resp.StatusCode < 400 {
				r.moveTo(u)
			}
			return resp, nil
		}
		_ = resp.Body.Close()
		next, err := r.redirected(u, req.Method, resp)
		switch {
		case err != nil:
			return nil, err
		case once:
			r.moveTo(next)
			return nil, &errRedirect{fmt.Sprintf("redirected to %s (HTTP %d) after it was sent: not sent again", r.shown(next.EscapedPath()), resp.StatusCode)}
		case n == maxRedirects:
			return nil, &errRedirect{fmt.Sprintf("more than %d redirects, the last one to %s: is it a loop?", maxRedirects, r.shown(next.EscapedPath()))}
		}
		u = next
	}
}

// redirects reports whether a response sends elsewhere. A 3xx without an address is
// an error like any other.
func redirects(resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return resp.Header.Get("Location") != ""
	default:
		return false
	}
}

// redirected says where a redirect leads, or why it is not followed.
func (r *remote) redirected(from *url.URL, method string, resp *http.Response) (*url.URL, error) {
	to, err := from.Parse(resp.Header.Get("Location"))
	if err != nil || to.Host == "" {
		return nil, &errRedirect{fmt.Sprintf("HTTP %d to an address that is none: not followed", resp.StatusCode)}
	}
	to.User, to.Fragment = from.User, "" // ours, not what the server says; it goes no further than the origin
	switch a, b := originOf(from), originOf(to); {
	case a != b && strings.HasPrefix(a, "https:") && strings.HasPrefix(b, "http:"):
		return nil, &errRedirect{fmt.Sprintf("redirected to another origin, %s, which is not encrypted: not followed", r.shown(b))}
	case a != b:
		return nil, &errRedirect{fmt.Sprintf("redirected to another origin, %s: not followed", r.shown(b))}
	case method == http.MethodPost && resp.StatusCode < http.StatusTemporaryRedirect:
		return nil, &errRedirect{fmt.Sprintf("redirected to %s in a way that drops the request (HTTP %d): use that as url", r.shown(to.EscapedPath()), resp.StatusCode)}
	}
	return to, nil
}

// target is where requests go.
func (r *remote) target() *url.URL {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.url
}

// moveTo sends the requests of this session elsewhere from now on.
func (r *remote) moveTo(u *url.URL) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.url = u
}

// bare makes requests without a body.
func (r *remote) bare(ctx context.Context, method string, set func(http.Header)) requestTo {
	return func(u *url.URL) (*http.Request, error) {
		req, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
		if err != nil {
			return nil, err
		}
		r.setHeaders(req, "", "")
		if set != nil {
			set(req.Header)
		}
		return req, nil
	}
}
