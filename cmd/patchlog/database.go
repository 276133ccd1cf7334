package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/patchlog-dev/patchlog/store"
)

// What a command does with the database: one that only reads changes nothing in it, needs
// no right to, and runs beside others that read.
const (
	reads  = true
	writes = false
)

// open opens the database, which must be there.
func (a *app) open(readOnly bool) (*store.Store, error) {
	switch info, err := os.Stat(a.db); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no database %q; 'patchlog import' makes one, and --db names another", a.db)
	case err != nil:
		return nil, err
	case info.Mode().IsRegular() && info.Size() == 0:
		return nil, fmt.Errorf("%q is an empty file, not a database", a.db)
	}
	return a.openAs(readOnly)
}

// create opens the database, and creates it if it is not there.
func (a *app) create() (*store.Store, error) { return a.openAs(writes) }

func (a *app) openAs(readOnly bool) (*store.Store, error) {
	if info, err := os.Stat(a.db); err == nil && info.IsDir() {
		return nil, fmt.Errorf("%q is a directory, not a database", a.db)
	}
	opts := a.options
	opts.ReadOnly = readOnly
	return store.Open(a.db, opts)
}

// withStore calls do with the database, which must be there.
func (a *app) withStore(readOnly bool, do func(s *store.Store) error) error {
	s, err := a.open(readOnly)
	if err != nil {
		return err
	}
	return errors.Join(do(s), s.Close())
}

// withSession calls do with the database, which must be there, and the key.
func (a *app) withSession(text string, readOnly bool, do func(s *store.Store, key store.Key) error) error {
	key, err := parseKey(text)
	if err != nil {
		return err
	}
	return a.withStore(readOnly, func(s *store.Store) error { return do(s, key) })
}

func parseKey(text string) (store.Key, error) {
	key, err := store.ParseKey(text)
	if err != nil {
		return store.Key{}, usagef("%v", err)
	}
	return key, nil
}
