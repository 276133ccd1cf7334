package inspector

import (
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/patch/redact"
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

	// Compaction configures compaction on request. The zero Config
	// means [compaction.DefaultConfig].
	Compaction compaction.Config

	// Redact, if not nil, replaces secrets by placeholders in the files that can be downloaded, and in
	// what summarizers are given if Compaction has no redactor of its own. Pages show the log as it is.
	Redact *redact.Redactor

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

	bodyTimeout time.Duration // for a request's body
	answers     answers
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
		opts.Compaction = compaction.DefaultConfig()
	}
	opts.Compaction.Redact = cmp.Or(opts.Compaction.Redact, opts.Redact)
	i := &Inspector{store: s, opts: opts, bodyTimeout: defaultBodyTimeout}
	i.handler = i.limitBody(guard(opts, i.routes()))
	return i, nil
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
	err := fs.WalkDir(files, "assets", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := files.ReadFile(path)
		sum.Write(text)
		return err
	})
	if err != nil {
		panic(err) // what is embedded can be read
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}()

func (i *Inspector) routes() http.Handler {
	mux := http.NewServeMux()
	get := func(path string, h handler) { mux.Handle("GET /"+path, bodiless(i.handle(h))) }
	get("{$}", i.sessionsPage)
	get("session", i.sessionPage)
	get("record", i.recordPage)
	get("summary", i.summaryPage)
	get("diff", i.diffPage)
	get("search", i.searchPage)
	get("live", i.live)
	get("export", i.export)
	mux.Handle("GET /assets/", assets())
	if i.opts.Write || i.opts.Erase {
		mux.Handle("POST /act", i.handle(i.act))
	}
	get("", func(http.ResponseWriter, *http.Request) error {
		return fmt.Errorf("%w: there is no such page", store.ErrNotFound)
	})
	return mux
}

// bodiless leaves out the body of a request. What a page is of stands in its address: a form in the
// body would be read as well, and its files be kept on the disk meanwhile.
func bodiless(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = r.WithContext(r.Context())
		r.Body = http.NoBody
		h.ServeHTTP(w, r)
	})
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

// handle answers with a page about the error, if there is one.
func (i *Inspector) handle(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := h(w, r)
		if err == nil || r.Context().Err() != nil && errors.Is(err, context.Canceled) {
			return
		}
		status := statusOf(err)
		if status == http.StatusInternalServerError {
			i.opts.Logger.Error("inspector", "path", r.URL.Path, "err", err)
		}
		i.render(w, r, status, "error", page{Title: http.StatusText(status), Body: explain(r, err)})
	})
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
