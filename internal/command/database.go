package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/store"
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
var ErrNoDatabase = errors.New("no such database")

// missingDatabase is the error of a database that is not there.
type missingDatabase string

func (e missingDatabase) Error() string        { return string(e) }
func (e missingDatabase) Is(target error) bool { return target == ErrNoDatabase }

// openDatabase opens a database that the user has named: a file by its path, another by a URL.
func (a *app) openDatabase(ctx context.Context, name string, use Use, opts store.Options) (*store.Store, error) {
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
		return "", "", false, errors.New("the database is neither a file nor a URL that begins with postgres://")
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

// hasPassword reports whether what follows a URL's scheme has a password, or may.
func hasPassword(rest string) bool {
	end := tail(rest)
	authority := strings.TrimSuffix(rest, end)
	if i := strings.LastIndex(authority, "@"); i >= 0 {
		user := authority[:i]
		if text, err := url.PathUnescape(user); err == nil {
			user = text
		}
		if _, password, _ := strings.Cut(user, ":"); password != "" {
			return true
		}
	}
	if strings.Contains(end, "@") && strings.Contains(authority, ":") {
		return true // it was not escaped
	}
	_, query, _ := strings.Cut(end, "?")
	for _, setting := range strings.FieldsFunc(query, func(r rune) bool { return r == '&' || r == ';' }) {
		name, value, _ := strings.Cut(setting, "=")
		if text, err := url.QueryUnescape(name); err == nil {
			name = text
		}
		if name = strings.ToLower(strings.TrimSpace(name)); value != "" && (name == "password" || name == "sslpassword") {
			return true
		}
	}
	return false
}

// openFile opens the database in a file.
func openFile(path string, use Use, opts store.Options) (*store.Store, error) {
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist) && use != Creating:
		return nil, missingDatabase(fmt.Sprintf("there is no database %q; 'patchlog import' makes one, and --db names another", path))
	case err != nil && use != Creating:
		return nil, err
	case err == nil && info.IsDir():
		return nil, fmt.Errorf("%q is a directory, not a database", path)
	case err == nil && info.Mode().IsRegular() && info.Size() == 0 && use != Creating:
		return nil, fmt.Errorf("%q is an empty file, not a database", path)
	}
	return store.Open(path, opts)
}

// withStore calls do with the database, which must be there if it is not for creating.
func (a *app) withStore(ctx context.Context, use Use, do func(s *store.Store) error) error {
	s, err := a.openDatabase(ctx, a.db, use, a.options)
	if err != nil {
		return err
	}
	return errors.Join(do(s), s.Close())
}

// withSession calls do with the database, which must be there, and the key.
func (a *app) withSession(ctx context.Context, text string, use Use, do func(s *store.Store, key store.Key) error) error {
	key, err := parseKey(text)
	if err != nil {
		return err
	}
	return a.withStore(ctx, use, func(s *store.Store) error { return suggestSession(ctx, s, key, do(s, key)) })
}

func parseKey(text string) (store.Key, error) {
	key, err := store.ParseKey(text)
	if err != nil {
		return store.Key{}, usagef("%v", err)
	}
	return key, nil
}
