package inspector

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Headers of every answer. No script but the inspector's own runs, nothing is asked of another
// host, and no other site may frame a page, or read it.
var headers = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Referrer-Policy":              "same-origin",
	"X-Content-Type-Options":       "nosniff",
	"Cache-Control":                "no-store",
}

// tokenCookie is the name of the cookie that a token becomes. Inspectors on several ports of one host
// have one of their own each, since browsers send a cookie to all ports.
func tokenCookie(token string) string {
	sum := sha256.Sum256([]byte("cookie of " + token))
	return "patchlog_inspector_" + hex.EncodeToString(sum[:8])
}

// guard lets through what may come in: requests for a host of the options, with the token if
// there is one, and such that write only from the inspector's own pages.
func guard(opts Options, next http.Handler) http.Handler {
	next = http.NewCrossOriginProtection().Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range headers {
			w.Header().Set(name, value)
		}
		if !knownHost(opts.Hosts, r.Host) {
			http.Error(w, fmt.Sprintf("the request is for host %q, which this inspector does not answer for; Options.Hosts, or --host, names further ones", r.Host), http.StatusMisdirectedRequest)
			return
		}
		if opts.Token != "" && !admitted(w, r, opts.Token) {
			return
		}
		next.ServeHTTP(w, r)
	})
}

// hostName is the name or address of a Host header, without the port.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}

// knownHost reports whether a request for a host may be answered.
func knownHost(hosts []string, host string) bool {
	name := hostName(host)
	if addr, err := netip.ParseAddr(name); err == nil && addr.IsLoopback() {
		return true
	}
	return name == "localhost" || slices.ContainsFunc(hosts, func(h string) bool { return hostName(h) == name })
}

// admitted reports whether a request has the token. Else it is answered. One that brings it in
// its address is led on to the same address without, so that it stays in no history.
func admitted(w http.ResponseWriter, r *http.Request, token string) bool {
	if given := r.URL.Query().Get("token"); given != "" && sameText(given, token) && r.Method == http.MethodGet {
		// Pages of another site cannot use it, nor can scripts read it.
		http.SetCookie(w, &http.Cookie{
			Name: tokenCookie(token), Value: token, HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
		})
		rest := r.URL.Query()
		rest.Del("token")
		w.Header().Set("Location", pageURL(r, rest)) // by hand: http.Redirect would take it from the stripped path
		w.WriteHeader(http.StatusSeeOther)
		return false
	}
	if bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok && sameText(bearer, token) {
		return true
	}
	if c, err := r.Cookie(tokenCookie(token)); err == nil && sameText(c.Value, token) {
		return true
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="patchlog"`)
	http.Error(w, "the token is missing or wrong: add ?token=… to the address, once, with the token that this inspector was given, or that was printed when it started", http.StatusUnauthorized)
	return false
}

// pageURL is the address of the page that a request is for, from beside it: the path that the
// inspector is mounted at is not known.
func pageURL(r *http.Request, query url.Values) string {
	path := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	if path == "" {
		path = "."
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return "./" + path
}

// sameText compares in a time that does not depend on where texts differ.
func sameText(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
