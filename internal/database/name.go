// Package database opens a database by its name: the path of a file, a URL of PostgreSQL, or the address of an
// inspector.
//
// A name may contain a password. The errors of this package never contain the password.
package database

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// schemes contains the schemes of URLs that name PostgreSQL databases.
var schemes = []string{"postgres", "postgresql"}

var (
	schemeForm  = regexp.MustCompile(`^\s*([A-Za-z][A-Za-z0-9+.-]+):(//)?`)
	settingForm = regexp.MustCompile(`(?i)\b(ssl)?password\s*=`)
)

// PostgresURL returns the URL of a PostgreSQL database, with the scheme in lower case. It returns "" if the name is a
// file path, and an error if the name is neither.
func PostgresURL(name string) (string, error) {
	m := schemeForm.FindStringSubmatch(name)
	if m == nil || !slices.Contains(schemes, strings.ToLower(m[1])) {
		switch {
		case strings.Contains(name, "://"):
			return "", errors.New("the database is neither a file nor a URL that begins with postgres:// or http://")
		case settingForm.MatchString(name):
			return "", errors.New("the database is a file or a URL that begins with postgres://, not a list of settings")
		}
		return "", nil
	}
	scheme, rest := strings.ToLower(m[1])+"://", name[len(m[0]):]
	behindHost := rest[strings.IndexAny(rest+"/", "/?#"):]
	switch {
	case m[2] == "" && strings.TrimSuffix(name, ":") == m[1]:
		return scheme, nil
	case m[2] == "":
		return "", fmt.Errorf("a database on PostgreSQL begins with %s; write ./ before the name of a file", scheme)
	case strings.ContainsRune(name, '\n'), strings.TrimSpace(name) != name:
		return "", errors.New("the URL of the database has space around it")
	case strings.Contains(behindHost, "@"):
		return "", errors.New("the URL of the database has an @ behind its host; write it as %40 there, and in a user's name or a password write / as %2F, ? as %3F and # as %23")
	}
	return scheme + rest, nil
}

// urlArgument matches a command-line argument that is the URL of a database, or a flag whose value is such a
// URL.
var urlArgument = regexp.MustCompile(`(?i)^(?:--?[a-z-]+=)?\s*postgres(?:ql)?:(?://)?(.*)$`)

// passwordSetting matches a password in the query part of a URL.
var passwordSetting = regexp.MustCompile(`(?i)[?&;]\s*(ssl)?password\s*=[^&;]`)

// HasPassword reports whether a command-line argument, or the value of a flag in it, is the URL of a database with a
// password.
func HasPassword(arg string) bool {
	m := urlArgument.FindStringSubmatch(arg)
	if m == nil {
		return false
	}
	rest := m[1]
	if text, err := url.PathUnescape(rest); err == nil {
		rest = text
	}
	user := rest[:max(strings.LastIndex(rest, "@"), 0)]
	_, password, _ := strings.Cut(user, ":")
	return password != "" || passwordSetting.MatchString(rest)
}

// cutSchema removes the parameter schema from a URL and returns the parameter's value. If the URL is only a scheme, dsn
// is "", so that the driver uses its defaults.
func cutSchema(name string) (dsn, schema string) {
	if strings.HasSuffix(name, "://") {
		return "", ""
	}
	before, query, _ := strings.Cut(name, "?")
	var others []string
	for setting := range strings.SplitSeq(query, "&") {
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
