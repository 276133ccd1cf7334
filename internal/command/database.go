package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/pg"
)

// Use is how a command opens a database.
type Use int

const (
	// Reading needs only the permission to read, changes no file, and runs beside other readers.
	Reading Use = iota
	// Writing needs an existing database.
	Writing
	// Creating creates the database if it does not exist.
	Creating
)

// writingUnless returns Reading for a dry run, else Writing.
func writingUnless(dryRun bool) Use {
	if dryRun {
		return Reading
	}
	return Writing
}

// ErrNoDatabase: the database does not exist.
var ErrNoDatabase = errors.New("there is no database")

// openDatabase opens a database by a file's path or a URL. From an inspector it copies only the sessions in only, or all
// if there are none.
func (a *app) openDatabase(ctx context.Context, name string, use Use, opts store.Options, only ...store.Key) (*store.Store, error) {
	if isInspector(name) {
		return a.openInspector(ctx, name, use, opts, only...)
	}
	opts.ReadOnly = use == Reading
	scheme, rest, isURL, err := splitURL(name)
	switch {
	case err != nil:
		return nil, err
	case !isURL:
		return openFile(name, use, opts)
	}
	return openPostgres(ctx, scheme+"://"+rest, use, opts)
}

// postgresSchemes are the schemes of URLs that name databases on PostgreSQL.
var postgresSchemes = []string{"postgres", "postgresql"}

var (
	schemeForm  = regexp.MustCompile(`^\s*([A-Za-z][A-Za-z0-9+.-]+):(//)?`)
	settingForm = regexp.MustCompile(`(?i)\b(ssl)?password\s*=`)
)

// splitURL splits the name of a database. Errors do not quote the name, since it may contain a password.
func splitURL(name string) (scheme, rest string, isURL bool, err error) {
	m := schemeForm.FindStringSubmatch(name)
	known := false
	if m != nil {
		scheme = strings.ToLower(m[1])
		known = slices.Contains(postgresSchemes, scheme)
		rest = name[len(m[0]):]
	}
	switch {
	case known && m[0] == name[:len(m[1])+1] && rest == "":
		return scheme, "", true, nil
	case known && m[2] == "":
		return "", "", false, fmt.Errorf("a database on PostgreSQL begins with %s://; write ./ before the name of a file", scheme)
	case known && strings.ContainsRune(name, '\n'), known && strings.TrimSpace(name) != name:
		return "", "", false, errors.New("the URL of the database has space around it")
	case known && strings.Contains(tail(rest), "@"):
		return "", "", false, errors.New("the URL of the database has an @ behind its host; write it as %40 there, and in a user's name or a password write / as %2F, ? as %3F and # as %23")
	case known:
		return scheme, rest, true, nil
	case strings.Contains(name, "://"):
		return "", "", false, errors.New("the database is neither a file nor a URL that begins with postgres:// or http://")
	case settingForm.MatchString(name):
		return "", "", false, errors.New("the database is a file or a URL that begins with postgres://, not a list of settings")
	}
	return "", "", false, nil
}

// tail returns the part of a URL behind the host.
func tail(rest string) string {
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		return rest[i:]
	}
	return ""
}

// errPassword is the error for a password on the command line.
const errPassword = "other users of this machine can see a password on the command line; use the environment variable PGPASSWORD or PATCHLOG_DB, or a password file (~/.pgpass)"

// urlArgument matches an argument, or a flag's value in it, that is the URL of a database.
var urlArgument = regexp.MustCompile(`(?i)^(?:--?[a-z-]+=)?\s*postgres(?:ql)?:(?://)?(.*)$`)

// refusePasswords refuses any argument with a password, before another error could quote it.
func refusePasswords(args []string) error {
	for _, arg := range args {
		if m := urlArgument.FindStringSubmatch(arg); m != nil && hasPassword(m[1]) {
			return usagef(errPassword)
		}
	}
	return nil
}

// passwordSetting matches a password in the query of a URL.
var passwordSetting = regexp.MustCompile(`(?i)[?&;]\s*(ssl)?password\s*=[^&;]`)

// hasPassword reports whether a URL, without its scheme, has or may have a password.
func hasPassword(rest string) bool {
	if text, err := url.PathUnescape(rest); err == nil {
		rest = text
	}
	user := rest[:max(strings.LastIndex(rest, "@"), 0)]
	_, password, _ := strings.Cut(user, ":")
	return password != "" || passwordSetting.MatchString(rest)
}

// openFile opens a database file.
func openFile(path string, use Use, opts store.Options) (*store.Store, error) {
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist) && use != Creating:
		return nil, fmt.Errorf("%w %q; 'patchlog import' creates one, and --db names another", ErrNoDatabase, path)
	case err != nil && use != Creating:
		return nil, err
	case err == nil && info.IsDir():
		return nil, fmt.Errorf("%q is a directory, not a database", path)
	case err == nil && info.Mode().IsRegular() && info.Size() == 0 && use != Creating:
		return nil, fmt.Errorf("%q is an empty file, not a database", path)
	}
	return store.Open(path, opts)
}

// withStore opens the database and calls do. With keys, sessions with other keys may be missing in the store.
func (a *app) withStore(ctx context.Context, use Use, do func(s *store.Store) error, only ...store.Key) error {
	s, err := a.openDatabase(ctx, a.db, use, a.options, only...)
	if errors.Is(err, store.ErrLocked) {
		return fmt.Errorf("%w. Stop that program, or read through an inspector in it: --db http://HOST:PORT/ (docs/INSPECTOR.md)", err)
	}
	if err != nil {
		return err
	}
	return errors.Join(do(s), s.Close())
}

// withFile is withStore for a command that needs the whole database, which an inspector does not show.
func (a *app) withFile(ctx context.Context, use Use, do func(s *store.Store) error) error {
	if isInspector(a.db) {
		return errors.New("an inspector shows sessions, not the database as a whole; run this where the database is")
	}
	return a.withStore(ctx, use, do)
}

func parseKey(text string) (store.Key, error) { return parseKeyAs("KEY", text) }

// parseKeyAs is parseKey for an operand of another name.
func parseKeyAs(name, text string) (store.Key, error) {
	key, err := store.ParseKey(text)
	if wrong := (*patch.FieldError)(nil); errors.As(err, &wrong) && wrong.Field == "key" {
		return key, usagef("%s: %s", name, wrong.Problem)
	} else if err != nil {
		return key, usagef("%v", err)
	}
	return key, nil
}

// openPostgres opens a database on PostgreSQL. No error quotes the URL's password.
func openPostgres(ctx context.Context, name string, use Use, opts store.Options) (*store.Store, error) {
	dsn, schema := cutSchema(name)
	logger := opts.Logger
	if use == Reading {
		logger = slog.New(slog.DiscardHandler) // it logs leftovers, which only a writer may remove
	}
	b, err := pg.OpenBackend(ctx, dsn, pg.Options{Schema: schema, NoCreate: use != Creating, Logger: logger})
	var version *pg.VersionError
	switch {
	case errors.As(err, &version) && version.Has == 0 && use != Creating:
		return nil, fmt.Errorf("%w: PostgreSQL has no schema %q with sessions; 'patchlog import' creates it", ErrNoDatabase, version.Schema)
	case err != nil:
		return nil, err
	}
	return store.New(b, opts)
}

// cutSchema removes the setting schema from a URL and returns it. A URL that is only a scheme becomes "", for the driver's
// defaults.
func cutSchema(name string) (dsn, schema string) {
	if _, rest, _ := strings.Cut(name, "://"); rest == "" {
		return "", ""
	}
	before, query, _ := strings.Cut(name, "?")
	var others []string
	for _, setting := range strings.Split(query, "&") {
		key, value, _ := strings.Cut(setting, "=")
		text, err := url.QueryUnescape(value)
		switch {
		case key == "schema" && err == nil:
			schema = text
		case setting != "":
			others = append(others, setting)
		}
	}
	if len(others) > 0 {
		before += "?" + strings.Join(others, "&")
	}
	return before, schema
}
