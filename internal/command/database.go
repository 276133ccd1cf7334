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

// Use is what a command does with a database.
type Use int

const (
	// Reading changes nothing, in the database or around it, needs no right to, and runs
	// beside others that read.
	Reading Use = iota
	// Writing needs a database that is there.
	Writing
	// Creating makes the database if it is not there.
	Creating
)

// writingUnless is the use of a command that writes, unless it is only to show what it would.
func writingUnless(dryRun bool) Use {
	if dryRun {
		return Reading
	}
	return Writing
}

// ErrNoDatabase: there is no such database.
var ErrNoDatabase = errors.New("there is no database")

// openDatabase opens a database that the user has named: a file by its path, another by a URL. Where sessions are copied for
// it, those whose keys are given are all that is needed.
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

// splitURL splits what a user gave as a database. Errors do not have it, since it may hold
// a password.
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
		return "", "", false, fmt.Errorf("a database on PostgreSQL is %s:// and what follows; a file of such a name is ./ and its name", scheme)
	case known && strings.ContainsRune(name, '\n'), known && strings.TrimSpace(name) != name:
		return "", "", false, errors.New("the URL of the database has space around it")
	case known && strings.Contains(tail(rest), "@"):
		return "", "", false, errors.New("the URL of the database has an @ behind its host; it is written %40 there, and in a user's name or a password / is %2F, ? is %3F and # is %23")
	case known:
		return scheme, rest, true, nil
	case strings.Contains(name, "://"):
		return "", "", false, errors.New("the database is neither a file nor a URL that begins with postgres:// or http://")
	case settingForm.MatchString(name):
		return "", "", false, errors.New("the database is a file's path or a URL that begins with postgres://, not settings")
	}
	return "", "", false, nil
}

// tail is what follows the host of a URL.
func tail(rest string) string {
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		return rest[i:]
	}
	return ""
}

// errPassword is what becomes of a password on the command line.
const errPassword = "a password on the command line is seen by other users of the machine; give it by the environment variable PGPASSWORD or PATCHLOG_DB, or by a password file (~/.pgpass)"

// urlArgument matches an argument, or the value of a flag in one, that is a URL of a
// database.
var urlArgument = regexp.MustCompile(`(?i)^(?:--?[a-z-]+=)?\s*postgres(?:ql)?:(?://)?(.*)$`)

// refusePasswords refuses arguments with a password in them, wherever they stand: no other
// error shall quote one.
func refusePasswords(args []string) error {
	for _, arg := range args {
		if m := urlArgument.FindStringSubmatch(arg); m != nil && hasPassword(m[1]) {
			return usagef(errPassword)
		}
	}
	return nil
}

// passwordSetting matches a setting behind a URL that is a password.
var passwordSetting = regexp.MustCompile(`(?i)[?&;]\s*(ssl)?password\s*=[^&;]`)

// hasPassword reports whether what follows a URL's scheme has a password, or may.
func hasPassword(rest string) bool {
	if text, err := url.PathUnescape(rest); err == nil {
		rest = text
	}
	user := rest[:max(strings.LastIndex(rest, "@"), 0)]
	_, password, _ := strings.Cut(user, ":")
	return password != "" || passwordSetting.MatchString(rest)
}

// openFile opens the database in a file.
func openFile(path string, use Use, opts store.Options) (*store.Store, error) {
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist) && use != Creating:
		return nil, fmt.Errorf("%w %q; 'patchlog import' makes one, and --db names another", ErrNoDatabase, path)
	case err != nil && use != Creating:
		return nil, err
	case err == nil && info.IsDir():
		return nil, fmt.Errorf("%q is a directory, not a database", path)
	case err == nil && info.Mode().IsRegular() && info.Size() == 0 && use != Creating:
		return nil, fmt.Errorf("%q is an empty file, not a database", path)
	}
	return store.Open(path, opts)
}

// withStore calls do with the database, which must be there if it is not for creating. Sessions other than those whose keys
// are given may be missing in it.
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

// withFile is withStore for a command that reads the database as a whole, which an inspector does not show.
func (a *app) withFile(ctx context.Context, use Use, do func(s *store.Store) error) error {
	if isInspector(a.db) {
		return errors.New("an inspector shows sessions, not the database as a whole; run this where the database is")
	}
	return a.withStore(ctx, use, do)
}

func parseKey(text string) (store.Key, error) {
	key, err := store.ParseKey(text)
	if wrong := (*patch.FieldError)(nil); errors.As(err, &wrong) && wrong.Field == "key" {
		return key, usagef("KEY: %s", wrong.Problem)
	} else if err != nil {
		return key, usagef("%v", err)
	}
	return key, nil
}

// openPostgres opens a database on PostgreSQL. No error has a password of the URL.
func openPostgres(ctx context.Context, name string, use Use, opts store.Options) (*store.Store, error) {
	dsn, schema := cutSchema(name)
	logger := opts.Logger
	if use == Reading {
		logger = slog.New(slog.DiscardHandler) // of what it may not remove
	}
	b, err := pg.OpenBackend(ctx, dsn, pg.Options{Schema: schema, NoCreate: use != Creating, Logger: logger})
	var version *pg.VersionError
	switch {
	case errors.As(err, &version) && version.Has == 0 && use != Creating:
		return nil, fmt.Errorf("%w: PostgreSQL has no schema %q with sessions; 'patchlog import' makes it", ErrNoDatabase, version.Schema)
	case err != nil:
		return nil, err
	}
	return store.New(b, opts)
}

// cutSchema takes the schema's name out of a URL. A URL without anything behind its scheme
// becomes "", the driver's defaults.
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
