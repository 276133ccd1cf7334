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

// Access is what a request wants of a session.
type Access int

// Kinds of access.
const (
	Read  Access = iota // to see it, or that it is there
	Write               // to log a patch in it, or to create it
	Erase               // to erase what its events say; asked if Options.Erase is set
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

// Options of an inspector. The zero value means one that only reads, that answers requests for
// loopback addresses alone, and that shows every session to every client on this machine.
type Options struct {
	// Write lets requests log patches, fork sessions and have them compacted. Without it no
	// request can do that.
	Write bool

	// Erase lets requests erase what events say, for good, as [store.Store.Erase] does. It neither
	// needs Write nor comes with it. A request must have the access [Erase] to the session, and to
	// read it; and to all others that have the events too, such as forks, as they are when it is
	// done: else it is refused, without naming them.
	Erase bool

	// Authorize says whether a request may have access to a session. It is asked of each
	// session of which a page would show anything, in listings and searches too, and may be
	// called from several goroutines; it should be quick. A session that may not be read looks
	// like one that is not there. nil allows all.
	Authorize func(r *http.Request, key store.Key, want Access) bool

	// Hosts are further names or addresses under which requests come, without ports, such as
	// "agents.example.com". Loopback addresses and "localhost" always are. A request for
	// another host is refused, so that no web page can reach the inspector by a name of its
	// own that leads to this machine.
	Hosts []string

	// Token, if not "", must come with each request: once as the query parameter "token", which
	// becomes a cookie; or in an Authorization header, as a bearer.
	Token string

	// Author returns the author of what a request writes. nil means "inspector".
	Author func(r *http.Request) string

	// Compaction configures compaction on request. If it is not Enabled, its settings that are not zero hold beside
	// those of [compaction.DefaultConfig].
	Compaction compaction.Config

	// Redact, if not nil, replaces secrets by placeholders in the files that can be downloaded, and in
	// what summarizers are given if Compaction has no redactor of its own. Pages show the log unredacted.
	Redact *redact.Redactor

	// Price is the price of a million input tokens. If it is above 0, the page of a session shows about how much
	// hiding events saves in each prompt.
	Price float64

	// CacheBytes is about how much memory is kept for what the sessions looked at last come
	// to, so that showing them again costs what is new. 0 means 64 MiB; below 0 none is kept.
	CacheBytes int64

	// Logger gets what an operator should know: failures that are not the request's. nil means
	// [slog.Default].
	Logger *slog.Logger
}

// DefaultCacheBytes is the default of Options.CacheBytes.
const DefaultCacheBytes = 64 << 20

// Validate reports whether the options make sense. The error matches [patch.ErrInvalid] and
// names the option.
func (o Options) Validate() error {
	for i, host := range o.Hosts {
		if host == "" || strings.ContainsAny(host, "/ @") || hostName(host) != strings.ToLower(strings.Trim(host, "[]")) {
			return &patch.FieldError{Field: fmt.Sprintf("Options.Hosts[%d]", i), Problem: fmt.Sprintf("%q is not a name or an address without a port", host)}
		}
	}
	if strings.ContainsFunc(o.Token, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`",;\`, r) }) {
		return &patch.FieldError{Field: "Options.Token", Problem: "it has characters that a header or a cookie cannot hold; letters and digits are safe"}
	}
	if !(o.Price >= 0 && o.Price <= math.MaxFloat64) {
		return &patch.FieldError{Field: "Options.Price", Problem: fmt.Sprintf("%v is no price", o.Price)}
	}
	if err := o.Compaction.Validate(); err != nil {
		return fmt.Errorf("Options.Compaction: %w", err)
	}
	return nil
}

// Inspector serves the pages of a store's sessions. It is safe for use by any number of
// goroutines.
type Inspector struct {
	store     *store.Store
	opts      Options
	handler   http.Handler
	timelines timelines
	finder    *recall.Finder[store.Key]

	bodyTimeout time.Duration // for a request's body
	acting      sync.Map      // by the key of a session that is acted on, a chan struct{} that closes when that ends
}

// New returns an inspector of a store, which it does not close. The error matches
// [patch.ErrInvalid] if there is no store, or is that of [Options.Validate].
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
		opts.Compaction = overDefaults(opts.Compaction)
	}
	opts.Compaction.Redact = cmp.Or(opts.Compaction.Redact, opts.Redact)
	i := &Inspector{store: s, opts: opts, finder: recall.NewFinder(s, 0), bodyTimeout: defaultBodyTimeout}
	i.handler = i.limitBody(guard(opts, i.routes()))
	return i, nil
}

// overDefaults returns the default configuration with the settings of c that are not zero.
func overDefaults(c compaction.Config) compaction.Config {
	out := compaction.DefaultConfig()
	given, to := reflect.ValueOf(c), reflect.ValueOf(&out).Elem()
	for n := range given.NumField() {
		if field := given.Field(n); !field.IsZero() {
			to.Field(n).Set(field)
		}
	}
	return out
}

// ServeHTTP implements [http.Handler]. All paths are directly below the one that the inspector
// is mounted at, which ends in a slash and is to be stripped. A request whose body takes longer than
// 30 seconds is refused, and its connection closed:
//
//	mux.Handle("/inspector/", http.StripPrefix("/inspector", i))
func (i *Inspector) ServeHTTP(w http.ResponseWriter, r *http.Request) { i.handler.ServeHTTP(w, r) }

//go:embed assets templates
var files embed.FS

// version names the assets' content, so that browsers may keep them.
var version = func() string {
	sum := sha256.New()
	names, _ := fs.Glob(files, "assets/*") // a good pattern
	for _, name := range names {
		text, _ := files.ReadFile(name) // which is embedded
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
		get("act", i.act)
		mux.Handle("POST /act", i.handle(i.act))
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

// handler answers a request, or returns an error before it has written anything.
type handler func(w http.ResponseWriter, r *http.Request) error

// handle answers with a page about the error, if there is one. A request that only reads has all that it asks for in its
// address: a form in its body would be read as well, and its files be kept on the disk meanwhile.
func (i *Inspector) handle(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			r = r.WithContext(r.Context())
			r.Body = http.NoBody
		}
		if err := h(w, r); err != nil {
			i.fail(w, r, err)
		}
	})
}

// fail answers with a page about an error, unless the client has disconnected.
func (i *Inspector) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil && errors.Is(err, context.Canceled) {
		return
	}
	status := statusOf(err)
	if status == http.StatusInternalServerError {
		i.opts.Logger.Error("inspector", "path", r.URL.Path, "err", err)
	}
	i.render(w, r, status, "error", page{Title: http.StatusText(status), Body: explain(r, err)})
}

// badRequest is an error of what a request asks for.
func badRequest(field, format string, args ...any) error {
	return &patch.FieldError{Field: field, Problem: fmt.Sprintf(format, args...)}
}

// key returns the session that a request is about, if it may have the access.
func (i *Inspector) key(r *http.Request, want Access) (store.Key, error) {
	text := r.FormValue("key")
	if text == "" {
		return store.Key{}, badRequest("key", "it is missing; it names the session, as app/user/session")
	}
	key, err := store.ParseKey(text)
	if err != nil {
		return store.Key{}, err
	}
	if !i.may(r, key, Read) {
		return store.Key{}, fmt.Errorf("session %s: %w", key, store.ErrNotFound)
	}
	switch {
	case want == Write && !i.may(r, key, Write):
		return store.Key{}, fmt.Errorf("session %s: %w: it may be read only", key, errForbidden)
	case want == Erase && !i.may(r, key, Erase):
		return store.Key{}, forbidden("You may not erase in this session. Nothing was written.", "Erasing is allowed for itself, by whoever runs this inspector.")
	}
	return key, nil
}

// may reports whether a request may have access to a session: by the options, and then by whom it
// comes from.
func (i *Inspector) may(r *http.Request, key store.Key, want Access) bool {
	if want == Write && !i.opts.Write || want == Erase && !i.opts.Erase {
		return false
	}
	return i.opts.Authorize == nil || i.opts.Authorize(r, key, want)
}

var errForbidden = errors.New("forbidden")

// So long may a page take: reading a log ends when it does.
const pageTimeout = time.Minute

// explanation is what an error page says.
type explanation struct {
	Text   string // what is wrong
	Advice string // what to do about it, or ""
	Link   *link  // where to go on, or nil
}

// advised is an error with what its page says.
type advised struct {
	error
	explanation
}

func (e *advised) Unwrap() error { return e.error }

// So long is the text of an error on a page, in runes.
const errorRunes = 2_000

// again is the text of a link to the session.
const again = "The session as it is"

// problems are the errors that pages explain, by the first that matches: the status by which HTTP names it, what to do
// about it, and the text of a link to the session.
var problems = []struct {
	err          error
	status       int
	advice, link string
}{
	{store.ErrConflict, http.StatusConflict, "The session has changed since the page was made. Nothing was written. Look at the session as it is, and do it again.", again},
	{fold.ErrOutOfRange, http.StatusUnprocessableEntity, "The visible log has other events than those that were meant, perhaps since it changed. Look at it as it is, and choose again.", again},
	{fold.ErrEventNotFound, http.StatusNotFound, "The event is not in sight: a patch hides it, or it was never logged. The raw log shows what became of it.", again},
	{fold.ErrUnknownPatch, http.StatusNotFound, "A newer version of patchlog wrote to this log. Nothing can be patched by this one; it can be read. Use the newer version.", ""},
	{store.ErrExists, http.StatusConflict, "A session of this name is there already. Choose another name, unless you sent the form twice.", ""},
	{store.ErrDuplicateID, http.StatusConflict, "An id may be used once in a log. It was perhaps sent twice.", ""},
	{fold.ErrBlocked, http.StatusConflict, refused, again},
	{fold.ErrOrphanedCall, http.StatusUnprocessableEntity, refused, again},
	{fold.ErrPinned, http.StatusUnprocessableEntity, refused, again},
	{store.ErrOutcomeUnknown, http.StatusInternalServerError, "It may have been written or not. Look at the session before doing it again.", again},
	{errForbidden, http.StatusForbidden, "You may read this session, not write to it.", again},
	{store.ErrReadOnly, http.StatusForbidden, "The store is opened for reading. The operator of this inspector can open it for writing.", ""},
	{store.ErrClosed, http.StatusServiceUnavailable, "The program that keeps the sessions is ending. Try again when it is back.", ""},
	{store.ErrLocked, http.StatusInternalServerError, "Another program has the file open. Look at the session there.", ""},
	{store.ErrCorrupt, http.StatusInternalServerError, "The storage was damaged. 'patchlog verify' says where, and how much.", ""},
	{store.ErrTooLarge, http.StatusRequestEntityTooLarge, "It is larger than the store takes. Nothing was written.", ""},
	{store.ErrNotFound, http.StatusNotFound, "It may have been deleted, or the address is wrong, or you may not see it.", ""},
	{os.ErrDeadlineExceeded, http.StatusRequestTimeout, "The request did not arrive in time.", ""},
	{store.ErrInvalid, http.StatusBadRequest, refused, again},
	{context.DeadlineExceeded, http.StatusInternalServerError, "It took too long. The machine may be busy; try again.", ""},
}

const refused = "The address or the form asks for something that cannot be. Nothing was written."

// statusOf is the status by which HTTP names an error.
func statusOf(err error) int {
	for _, p := range problems {
		if errors.Is(err, p.err) {
			return p.status
		}
	}
	return http.StatusInternalServerError
}

// explain says what an error means to a person.
func explain(r *http.Request, err error) explanation {
	if own := (*advised)(nil); errors.As(err, &own) {
		return own.explanation
	}
	// What an unknown error says is for operators, who find it in the log.
	e := explanation{Text: "Something failed that should not have.", Advice: "The log of the program that serves this page says what."}
	text, path, pairs := "", "session", []any(nil)
	for _, p := range problems {
		if errors.Is(err, p.err) {
			e, text = explanation{Text: present.PrintableUpTo(err.Error(), errorRunes), Advice: p.advice}, p.link
			break
		}
	}
	if duplicate := (*store.DuplicateIDError)(nil); errors.As(err, &duplicate) && duplicate.Seq > 0 {
		text, path, pairs = fmt.Sprintf("Record %d, which has the id", duplicate.Seq), "record", []any{"seq", duplicate.Seq}
	}
	if corrupt := (*store.CorruptError)(nil); errors.As(err, &corrupt) {
		e.Advice = fmt.Sprintf("Record %d cannot be read: the storage was damaged. 'patchlog verify' says how much is; what is before this record can be shown.", corrupt.Seq)
		text, pairs = "As it stood before", []any{"at", max(corrupt.Seq, 1) - 1}
	}
	if key, err := store.ParseKey(r.FormValue("key")); err == nil && text != "" {
		e.Link = &link{query(path, append([]any{"key", key}, pairs...)...), text}
	}
	return e
}

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

// defaultBodyTimeout is how long a client may take to send the body of a request, which has
// actBytes at most.
const defaultBodyTimeout = 30 * time.Second

// limitBody gives the body of each request a deadline, whatever the server's own limits are. The
// deadline also holds for what the server reads of a body that no handler has read. A connection that
// misses it is closed; the server ends the deadline once the body was read. A ResponseWriter that cannot
// set deadlines leaves them to its server.
func (i *Inspector) limitBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(i.bodyTimeout))
		}
		next.ServeHTTP(w, r)
	})
}
