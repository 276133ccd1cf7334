package inspector

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/patch/redact"
	"github.com/patchlog-dev/patchlog/recall"
	"github.com/patchlog-dev/patchlog/store"
)

// Access is a permission that a request needs for a session.
type Access int

// Kinds of access.
const (
	Read  Access = iota // to read a session; without Read, the session seems not to exist
	Write               // to log patches in a session, or to create the session
	Erase               // to erase contents of events in a session; needs Options.Erase
)

// String returns "read", "write" or "erase".
func (a Access) String() string {
	switch a {
	case Write:
		return "write"
	case Erase:
		return "erase"
	}
	return "read"
}

// Options configures an inspector. With the zero value the inspector is read-only, accepts only requests for
// loopback addresses, and shows every session to every client on this machine.
type Options struct {
	// Write allows requests to log patches, and to fork and compact sessions.
	Write bool

	// Erase allows requests to erase contents of events permanently, as [store.Store.Erase] does. It does not
	// depend on Write. A request needs [Erase] and [Read] for the session and for every other session with the
	// same events, such as a fork. If a permission is missing, the request is refused without naming those
	// other sessions.
	Erase bool

	// Authorize reports whether a request has a permission for a session. It is called for each session that a
	// page, listing or search would include. It must be safe for concurrent use and should be fast. A nil
	// Authorize allows everything.
	Authorize func(r *http.Request, key store.Key, want Access) bool

	// Hosts are names or addresses, without ports, that the Host header of a request may have, such as
	// "agents.example.com". Loopback addresses and "localhost" are always allowed. Other requests are refused,
	// which prevents DNS rebinding.
	Hosts []string

	// Token, if not "", is required with each request. A client sends it as a bearer token in the Authorization
	// header. A browser can send it once as the query parameter "token". The inspector then stores it in a
	// cookie.
	Token string

	// Author returns the author of the patches that a request logs. A nil Author means "inspector".
	Author func(r *http.Request) string

	// Compaction configures compactions that requests start. If its field Enabled is false, its non-zero
	// settings override those of [compaction.DefaultConfig].
	Compaction compaction.Config

	// Redact, if not nil, replaces secrets by placeholders in downloads. It also redacts the input of
	// summarizers if Compaction has no redactor. Pages show the log unredacted.
	Redact *redact.Redactor

	// Price is the price of a million input tokens. If it is positive, a session's page shows how much the
	// hidden events save per prompt.
	Price float64

	// CacheBytes is the approximate memory for data of recently viewed sessions. When a cached session is
	// viewed again, only its new records are read. 0 means 64 MiB. A negative value disables the cache.
	CacheBytes int64

	// Logger logs failures that the client did not cause. A nil Logger means [slog.Default].
	Logger *slog.Logger
}

// DefaultCacheBytes is the cache size if Options.CacheBytes is 0.
const DefaultCacheBytes = 64 << 20

// Validate checks the options. The error matches [patch.ErrInvalid] and names the option.
func (o Options) Validate() error {
	for i, host := range o.Hosts {
		if host == "" || strings.ContainsAny(host, "/ @") || hostName(host) != strings.ToLower(strings.Trim(host, "[]")) {
			return &patch.FieldError{Field: fmt.Sprintf("Options.Hosts[%d]", i), Problem: fmt.Sprintf("%q is not a name or an address without a port", host)}
		}
	}
	if strings.ContainsFunc(o.Token, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`",;\`, r) }) {
		return &patch.FieldError{Field: "Options.Token", Problem: "it has characters that are not allowed in a header or a cookie; use letters and digits"}
	}
	if !(o.Price >= 0 && o.Price <= math.MaxFloat64) {
		return &patch.FieldError{Field: "Options.Price", Problem: fmt.Sprintf("%v is not a price", o.Price)}
	}
	if err := o.Compaction.Validate(); err != nil {
		return fmt.Errorf("Options.Compaction: %w", err)
	}
	return nil
}

// Inspector serves the pages of a store's sessions. It is safe for concurrent use.
type Inspector struct {
	store     *store.Store
	opts      Options
	handler   http.Handler
	timelines timelines
	finder    *recall.Finder[store.Key]

	bodyTimeout time.Duration // time limit for reading the body of a request
	actionLocks sync.Map      // a channel for each session with a running action, closed when the action ends
}

// New returns an inspector of the store s. The inspector does not close s. The error matches [patch.ErrInvalid]
// if s is nil or the options are invalid.
func New(s *store.Store, opts Options) (*Inspector, error) {
	if s == nil {
		return nil, fmt.Errorf("%w: the store is nil", patch.ErrInvalid)
	}
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	if opts.CacheBytes == 0 {
		opts.CacheBytes = DefaultCacheBytes
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if opts.Author == nil {
		opts.Author = func(*http.Request) string { return "inspector" }
	}
	if !opts.Compaction.Enabled {
		opts.Compaction = withDefaults(opts.Compaction)
	}
	opts.Compaction.Redact = cmp.Or(opts.Compaction.Redact, opts.Redact)
	i := &Inspector{store: s, opts: opts, finder: recall.NewFinder(s, 0), bodyTimeout: defaultBodyTimeout}
	i.handler = i.limitBody(guard(opts, i.routes()))
	return i, nil
}

// withDefaults returns the default configuration overridden by the non-zero settings of c.
func withDefaults(c compaction.Config) compaction.Config {
	out := compaction.DefaultConfig()
	config, to := reflect.ValueOf(c), reflect.ValueOf(&out).Elem()
	for n := range config.NumField() {
		if field := config.Field(n); !field.IsZero() {
			to.Field(n).Set(field)
		}
	}
	return out
}

// ServeHTTP implements [http.Handler]. The inspector must be mounted at a path that ends in a slash, and that
// path must be stripped. All pages are directly below the path:
//
//	mux.Handle("/inspector/", http.StripPrefix("/inspector", i))
//
// If the body of a request takes longer than 30 seconds, the request is refused and its connection closed.
func (i *Inspector) ServeHTTP(w http.ResponseWriter, r *http.Request) { i.handler.ServeHTTP(w, r) }

//go:embed assets templates
var files embed.FS

// version is a hash of the assets. It is part of their URLs, so browsers can cache them.
var version = func() string {
	sum := sha256.New()
	names, _ := fs.Glob(files, "assets/*") // the pattern is valid
	for _, name := range names {
		text, _ := files.ReadFile(name) // the file is embedded
		sum.Write(text)
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}()

func (i *Inspector) routes() http.Handler {
	mux := http.NewServeMux()
	get := func(path string, h handler) { mux.Handle("GET /"+path, i.handle(h)) }
	get("{$}", i.sessionsPage)
	get("session", i.sessionPage("log", i.logPanel))
	get("record", i.recordPage)
	get("summary", i.sessionPage("summary", i.summaryPanel))
	get("diff", i.sessionPage("diff", i.diffPanel))
	get("state", i.sessionPage("state", i.statePanel))
	get("figures", i.sessionPage("figures", i.figuresPanel))
	get("search", i.searchPage)
	get("live", i.live)
	get("export", i.export)
	get("list", i.list)
	mux.Handle("GET /assets/", assets())
	if i.opts.Write || i.opts.Erase {
		get("act", i.actionPage)
		mux.Handle("POST /act", i.handle(i.actionPage))
	}
	get("", func(http.ResponseWriter, *http.Request) error {
		return fmt.Errorf("%w: there is no such page", store.ErrNotFound)
	})
	return mux
}

func assets() http.Handler {
	serve := http.FileServerFS(files)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/") {
			http.NotFound(w, r)
			return
		}
		if r.URL.Query().Get("v") == version {
			w.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
		}
		serve.ServeHTTP(w, r)
	})
}

// handler answers a request. If it returns an error, it must not have written to w.
type handler func(w http.ResponseWriter, r *http.Request) error

// handle calls h and answers with an error page if h fails. Unless the method is POST, it discards the body.
// Otherwise a form in the body could change what the page shows, and parsing the form could create files on
// disk.
func (i *Inspector) handle(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			r = r.WithContext(r.Context())
			r.Body = http.NoBody
		}
		if err := h(w, r); err != nil {
			i.renderError(w, r, err)
		}
	})
}

// renderError answers with an error page, unless the client has disconnected.
func (i *Inspector) renderError(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil && errors.Is(err, context.Canceled) {
		return
	}
	status := statusOf(err)
	if status == http.StatusInternalServerError {
		i.opts.Logger.Error("inspector: a request failed", "path", r.URL.Path, "err", err)
	}
	i.render(w, r, status, "error", page{Title: http.StatusText(status), Body: newExplanation(r, err)})
}

// badRequest returns an error about a field of the request.
func badRequest(field, format string, args ...any) error {
	return &patch.FieldError{Field: field, Problem: fmt.Sprintf(format, args...)}
}

// authorizedKey returns the key of the session in the request, if the request has the wanted permission.
func (i *Inspector) authorizedKey(r *http.Request, want Access) (store.Key, error) {
	text := r.FormValue("key")
	if text == "" {
		return store.Key{}, badRequest("key", "it is missing; name the session as app/user/session")
	}
	key, err := store.ParseKey(text)
	if err != nil {
		return store.Key{}, err
	}
	if !i.isAllowed(r, key, Read) {
		return store.Key{}, fmt.Errorf("session %s: %w", key, store.ErrNotFound)
	}
	switch {
	case want == Write && !i.isAllowed(r, key, Write):
		return store.Key{}, fmt.Errorf("session %s: %w: you may only read it", key, errForbidden)
	case want == Erase && !i.isAllowed(r, key, Erase):
		return store.Key{}, newForbiddenError("You may not erase in this session. Nothing was written.", "The operator of this inspector can allow erasing.")
	}
	return key, nil
}

// isAllowed reports whether the options and Authorize give a request the wanted permission.
func (i *Inspector) isAllowed(r *http.Request, key store.Key, want Access) bool {
	if want == Write && !i.opts.Write || want == Erase && !i.opts.Erase {
		return false
	}
	return i.opts.Authorize == nil || i.opts.Authorize(r, key, want)
}

var errForbidden = errors.New("forbidden")

// pageTimeout is the time limit of a page, including the time for reading the log.
const pageTimeout = time.Minute

// explanation is the content of an error page.
type explanation struct {
	Text   string // the problem
	Advice string // what the reader can do, or ""
	Link   *link  // where to continue, or nil
}

// explainedError is an error with its own explanation for the error page.
type explainedError struct {
	error
	explanation
}

func (e *explainedError) Unwrap() error { return e.error }

// errorRunes is the maximum length of an error text on a page.
const errorRunes = 2_000

// sessionLinkText is the text of links to the current session.
const sessionLinkText = "The current session"

// errorExplanations lists the errors that pages explain. The first match is used. Each has an HTTP status, advice, and
// the text of a link to the session.
var errorExplanations = []struct {
	err          error
	status       int
	advice, link string
}{
	{store.ErrConflict, http.StatusConflict, "The session has changed since this page was loaded. Nothing was written. Open the current session and try again.", sessionLinkText},
	{fold.ErrOutOfRange, http.StatusUnprocessableEntity, "The visible log does not have these events, perhaps because it has changed. Open the current session and choose again.", sessionLinkText},
	{fold.ErrEventNotFound, http.StatusNotFound, "The event is not visible: a patch hides it, or it was never logged. See the raw log.", sessionLinkText},
	{fold.ErrUnknownPatch, http.StatusNotFound, "A newer version of patchlog wrote to this log. This version can read the log, but not change it. Use the newer version.", ""},
	{store.ErrExists, http.StatusConflict, "A session with this key exists already. Choose another key, unless you sent the form twice.", ""},
	{store.ErrDuplicateID, http.StatusConflict, "The log already has a record with this id. Perhaps the form was sent twice.", ""},
	{fold.ErrBlocked, http.StatusConflict, invalidRequestAdvice, sessionLinkText},
	{fold.ErrOrphanedCall, http.StatusUnprocessableEntity, invalidRequestAdvice, sessionLinkText},
	{fold.ErrPinned, http.StatusUnprocessableEntity, invalidRequestAdvice, sessionLinkText},
	{store.ErrOutcomeUnknown, http.StatusInternalServerError, "The change may or may not have been written. Check the session before you try again.", sessionLinkText},
	{errForbidden, http.StatusForbidden, "You may read this session, but not change it.", sessionLinkText},
	{store.ErrReadOnly, http.StatusForbidden, "The store is open for reading only. The operator of this inspector can open it for writing.", ""},
	{store.ErrClosed, http.StatusServiceUnavailable, "The program that has the store open is shutting down. Try again later.", ""},
	{store.ErrLocked, http.StatusInternalServerError, "Another program has the file open. Use that program to read the session.", ""},
	{store.ErrCorrupt, http.StatusInternalServerError, "The storage is damaged. 'patchlog verify' reports where, and how much.", ""},
	{store.ErrTooLarge, http.StatusRequestEntityTooLarge, "The change is larger than the store accepts. Nothing was written.", ""},
	{store.ErrNotFound, http.StatusNotFound, "It may have been deleted, the address may be wrong, or you may not read it.", ""},
	{os.ErrDeadlineExceeded, http.StatusRequestTimeout, "The request did not arrive in time.", ""},
	{store.ErrInvalid, http.StatusBadRequest, invalidRequestAdvice, sessionLinkText},
	{context.DeadlineExceeded, http.StatusInternalServerError, "The request took too long. Perhaps the machine is busy. Try again.", ""},
}

const invalidRequestAdvice = "The address or the form is not valid. Nothing was written."

func statusOf(err error) int {
	for _, p := range errorExplanations {
		if errors.Is(err, p.err) {
			return p.status
		}
	}
	return http.StatusInternalServerError
}

func newExplanation(r *http.Request, err error) explanation {
	if explained := (*explainedError)(nil); errors.As(err, &explained) {
		return explained.explanation
	}
	// The text of an unknown error goes to the log, for operators, and not to the page.
	e := explanation{Text: "An unexpected error occurred.", Advice: "See the log of the program that serves this page."}
	text, path, pairs := "", "session", []any(nil)
	for _, p := range errorExplanations {
		if errors.Is(err, p.err) {
			e, text = explanation{Text: present.PrintableUpTo(err.Error(), errorRunes), Advice: p.advice}, p.link
			break
		}
	}
	if duplicate := (*store.DuplicateIDError)(nil); errors.As(err, &duplicate) && duplicate.Seq > 0 {
		text, path, pairs = fmt.Sprintf("Record %d, which has this id", duplicate.Seq), "record", []any{"seq", duplicate.Seq}
	}
	if corrupt := (*store.CorruptError)(nil); errors.As(err, &corrupt) {
		e.Advice = fmt.Sprintf("Record %d is damaged and cannot be read. The records before it can be shown. 'patchlog verify' reports all damage.", corrupt.Seq)
		text, pairs = fmt.Sprintf("The session after record %d", max(corrupt.Seq, 1)-1), []any{"at", max(corrupt.Seq, 1) - 1}
	}
	if key, err := store.ParseKey(r.FormValue("key")); err == nil && text != "" {
		e.Link = &link{query(path, append([]any{"key", key}, pairs...)...), text}
	}
	return e
}

// headers are sent with every response. Only the inspector's own scripts run, pages load nothing from other
// hosts, and other sites can neither frame nor read a page.
var headers = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Referrer-Policy":              "same-origin",
	"X-Content-Type-Options":       "nosniff",
	"Cache-Control":                "no-store",
}

// tokenCookie returns the name of the cookie for a token. The name depends on the token, because browsers send
// a cookie to all ports of a host, and several inspectors may run on one host.
func tokenCookie(token string) string {
	sum := sha256.Sum256([]byte("cookie of " + token))
	return "patchlog_inspector_" + hex.EncodeToString(sum[:8])
}

// guard refuses a request if its host is not allowed, if the token is required and missing, or if another site
// sent a write.
func guard(opts Options, next http.Handler) http.Handler {
	next = http.NewCrossOriginProtection().Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range headers {
			w.Header().Set(name, value)
		}
		if !isAllowedHost(opts.Hosts, r.Host) {
			http.Error(w, fmt.Sprintf("requests for host %q are not allowed; to allow the host, set Options.Hosts or --host", r.Host), http.StatusMisdirectedRequest)
			return
		}
		if opts.Token != "" && !checkToken(w, r, opts.Token) {
			return
		}
		next.ServeHTTP(w, r)
	})
}

// hostName returns the name or address in a Host header, without the port.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}

// isAllowedHost reports whether requests for a host are allowed.
func isAllowedHost(hosts []string, host string) bool {
	name := hostName(host)
	if addr, err := netip.ParseAddr(name); err == nil && addr.IsLoopback() {
		return true
	}
	return name == "localhost" || slices.ContainsFunc(hosts, func(h string) bool { return hostName(h) == name })
}

// checkToken reports whether a request has the token. If not, checkToken has answered the request. If the token
// is in the URL, the client is redirected to the URL without it, which keeps the token out of the browser's
// history.
func checkToken(w http.ResponseWriter, r *http.Request, token string) bool {
	if given := r.URL.Query().Get("token"); given != "" && equalTexts(given, token) && r.Method == http.MethodGet {
		// Neither scripts nor other sites can use this cookie.
		http.SetCookie(w, &http.Cookie{
			Name: tokenCookie(token), Value: token, HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
		})
		rest := r.URL.Query()
		rest.Del("token")
		w.Header().Set("Location", pageURL(r, rest)) // http.Redirect would use the stripped path
		w.WriteHeader(http.StatusSeeOther)
		return false
	}
	if bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok && equalTexts(bearer, token) {
		return true
	}
	if c, err := r.Cookie(tokenCookie(token)); err == nil && equalTexts(c.Value, token) {
		return true
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="patchlog"`)
	http.Error(w, "the token is missing or wrong: add ?token=… to the address once; the inspector printed its token when it started, unless the operator chose one", http.StatusUnauthorized)
	return false
}

// pageURL returns the relative URL of the requested page. The URL is relative because the inspector does not
// know the path that it is mounted at.
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

// equalTexts compares two texts in constant time.
func equalTexts(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// defaultBodyTimeout is the time limit for receiving a body.
const defaultBodyTimeout = 30 * time.Second

// limitBody sets a read deadline for the body of each request, even if the server has none. The deadline also
// covers a body that no handler reads and the server drains. If the deadline passes, the connection is closed.
// The server clears the deadline after the body is read. If the ResponseWriter does not support deadlines,
// limitBody has no effect.
func (i *Inspector) limitBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(i.bodyTimeout))
		}
		next.ServeHTTP(w, r)
	})
}
