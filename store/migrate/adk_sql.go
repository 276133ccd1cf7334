package migrate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// Dialect is the SQL dialect of a database.
type Dialect int

// The supported dialects.
const (
	SQLite Dialect = iota + 1
	PostgreSQL
)

// String returns the dialect's name.
func (d Dialect) String() string {
	switch d {
	case SQLite:
		return "SQLite"
	case PostgreSQL:
		return "PostgreSQL"
	}
	return fmt.Sprintf("Dialect(%d)", int(d))
}

// SQLOptions are options for reading a database. The zero value means the defaults.
type SQLOptions struct {
	// IgnoreColumns are unknown columns, as table.column, whose values are not migrated. Any other unknown column is
	// an error, because a newer version of the service may store data in it.
	IgnoreColumns []string
}

// SQL is a source that reads a SQL database. The tables may be tables of ADK for Go, or of the
// DatabaseSessionService (schema 1) or SqliteSessionService of ADK for Python.
type SQL struct {
	db      *sql.DB
	dialect Dialect
	python  bool                // the tables belong to ADK for Python
	columns map[string][]string // column names by table
}

var _ Source = (*SQL)(nil)

// OpenSQL returns a database as a source. The source only reads, and the database may be in use. It does not close
// db. If the tables are unknown, the error matches [ErrSchema]. If the tables belong to a version of ADK for Python
// that did not write JSON, the error matches [ErrPickled].
func OpenSQL(ctx context.Context, db *sql.DB, dialect Dialect, opts SQLOptions) (*SQL, error) {
	if db == nil || dialect != SQLite && dialect != PostgreSQL {
		return nil, fmt.Errorf("%w: want a database and its dialect, SQLite or PostgreSQL, not %v", store.ErrInvalid, dialect)
	}
	s := &SQL{db: db, dialect: dialect, columns: map[string][]string{}}
	for _, table := range []string{"sessions", "events", "app_states", "user_states", "adk_internal_metadata"} {
		var err error
		if s.columns[table], err = s.columnsOf(ctx, table); err != nil {
			return nil, fmt.Errorf("read the columns of the tables: %w", err)
		}
	}
	if err := s.detectService(ctx); err != nil {
		return nil, err
	}
	return s, s.checkColumns(opts.IgnoreColumns)
}

// String returns the name of the service that wrote the tables.
func (s *SQL) String() string {
	switch {
	case !s.python:
		return fmt.Sprintf("ADK for Go's database on %v", s.dialect)
	case s.columns["adk_internal_metadata"] == nil:
		return fmt.Sprintf("the database of ADK for Python's %v service", s.dialect)
	}
	return fmt.Sprintf("ADK for Python's database on %v (schema 1)", s.dialect)
}

// Count implements [Source].
func (s *SQL) Count(ctx context.Context) (n int, err error) {
	err = s.db.QueryRowContext(ctx, "SELECT count(*) FROM sessions").Scan(&n)
	return n, err
}

// Sessions implements [Source]. Each session is read together with its events in one transaction.
func (s *SQL) Sessions(ctx context.Context) iter.Seq2[*Session, error] {
	return func(yield func(*Session, error) bool) {
		var keys []store.Key
		err := s.forEachRow(ctx, s.db, "SELECT app_name, user_id, id FROM sessions ORDER BY app_name, user_id, id", nil, func(row []any) error {
			var parts [3]string
			for i := range parts {
				var err error
				if parts[i], err = textCell(row[i]); err != nil {
					return err
				}
			}
			keys = append(keys, store.Key{App: parts[0], User: parts[1], Session: parts[2]})
			return nil
		})
		if err != nil {
			yield(nil, err)
			return
		}
		for _, key := range keys {
			session, err := s.readSession(ctx, key)
			switch {
			case errors.Is(err, sql.ErrNoRows): // the session was deleted after it was listed
				continue
			case ctx.Err() != nil:
				yield(nil, ctx.Err())
				return
			}
			var sessionErr *SessionError
			if !yield(session, err) || err != nil && !errors.As(err, &sessionErr) {
				return
			}
		}
	}
}

// readSession reads one session. If the rows cannot be converted, the error is a *[SessionError]. Other errors are
// errors of the database.
func (s *SQL) readSession(ctx context.Context, key store.Key) (*Session, error) {
	tx, err := s.db.BeginTx(ctx, s.txOptions())
	if err != nil {
		return nil, err
	}
	defer tx.Rollback() // the transaction only reads
	out := &Session{Key: key}
	found := false
	keyArgs := []any{key.App, key.User, key.Session}
	query := fmt.Sprintf("SELECT %s, %s, %s FROM sessions WHERE app_name = %s AND user_id = %s AND id = %s",
		s.column("state"), s.column("create_time"), s.column("update_time"), s.arg(1), s.arg(2), s.arg(3))
	err = s.forEachRow(ctx, tx, query, keyArgs, func(row []any) (err error) {
		found = true
		if out.State, err = parseState(row[0], ""); err != nil {
			return &SessionError{key, err}
		}
		for i, t := range []*time.Time{&out.Created, &out.Updated} {
			if *t, err = parseTime(row[1+i]); err != nil {
				return &SessionError{key, fmt.Errorf("%s: %w", []string{"create_time", "update_time"}[i], err)}
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, sql.ErrNoRows
	}
	var names, exprs []string
	for _, f := range s.fields() {
		if s.has("events", f.column) {
			names, exprs = append(names, f.column), append(exprs, s.column(f.column))
		}
	}
	order := "rowid"
	if s.dialect == PostgreSQL {
		order = "timestamp, ctid"
	}
	query = fmt.Sprintf("SELECT %s FROM events WHERE app_name = %s AND user_id = %s AND session_id = %s ORDER BY %s",
		strings.Join(exprs, ", "), s.arg(1), s.arg(2), s.arg(3), order)
	repaired := 0          // number of events with text that is not Unicode
	var timeTexts []string // times as SQLite stores them, by which ADK sorts
	err = s.forEachRow(ctx, tx, query, keyArgs, func(row []any) error {
		cells, changed := make(map[string]any, len(names)), false
		for i, name := range names {
			cells[name] = row[i]
			if t, err := textCell(row[i]); err == nil && !utf8.ValidString(t) && !isPickled(row[i]) {
				cells[name], changed = strings.ToValidUTF8(t, "\ufffd"), true
			}
		}
		e, escapes, err := parseEventRow(s.fields(), cells)
		if changed || escapes {
			repaired++
		}
		if err != nil {
			id, _ := textCell(cells["id"])
			return &SessionError{key, fmt.Errorf("event %q: %w", id, err)}
		}
		out.Events = append(out.Events, e)
		if t, ok := cells["timestamp"].(string); ok || cells["timestamp"] == nil {
			timeTexts = append(timeTexts, t)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.sortEvents(out, timeTexts)
	if repaired > 0 {
		out.Differences = append(out.Differences, Difference{What: present.Counted(repaired, "event") + " with text that is not Unicode: replaced by U+FFFD"})
	}
	return out, nil
}

// sortEvents sorts events by time, as ADK does. If the order in ADK may differ, sortEvents reports this in
// session.Differences.
func (s *SQL) sortEvents(session *Session, timeTexts []string) {
	events := session.Events
	byTime := func(a, b *patch.Event) int { return a.Timestamp().Compare(b.Timestamp()) }
	if !s.python && len(timeTexts) == len(events) {
		timeTextOf := make(map[*patch.Event]string, len(events))
		for i, e := range events {
			timeTextOf[e] = timeTexts[i]
		}
		slices.SortStableFunc(events, byTime)
		if !slices.IsSortedFunc(events, func(a, b *patch.Event) int { return strings.Compare(timeTextOf[a], timeTextOf[b]) }) {
			session.Differences = append(session.Differences, Difference{What: "its events have times in several time zones: the import orders them by time, but ADK orders them by the text of the time"})
		}
		return
	}
	slices.SortStableFunc(events, byTime)
	if s.dialect != PostgreSQL {
		return
	}
	ties := 0
	for i := 1; i < len(events); i++ {
		if byTime(events[i-1], events[i]) == 0 {
			ties++
		}
	}
	if ties > 0 {
		session.Differences = append(session.Differences, Difference{What: fmt.Sprintf("%d of its events have the same time as the event before; the database does not store their order, so they keep the order of the table", ties)})
	}
}

// Shared implements [Source].
func (s *SQL) Shared(ctx context.Context) iter.Seq2[Shared, error] {
	return func(yield func(Shared, error) bool) {
		for _, t := range []struct{ table, user, prefix, order string }{
			{"app_states", "''", patch.PrefixApp, "app_name"},
			{"user_states", "user_id", patch.PrefixUser, "app_name, user_id"},
		} {
			query := fmt.Sprintf("SELECT app_name, %s, %s FROM %s ORDER BY %s", t.user, s.column("state"), t.table, t.order)
			err := s.forEachRow(ctx, s.db, query, nil, func(row []any) error {
				var shared Shared
				var err error
				if shared.App, err = textCell(row[0]); err == nil {
					shared.User, err = textCell(row[1])
				}
				if err == nil {
					shared.Values, err = parseState(row[2], t.prefix)
				}
				if err != nil {
					err = &SharedError{shared.App, shared.User, err}
				}
				if !yield(shared, err) {
					return errStopped
				}
				return nil
			})
			if errors.Is(err, errStopped) {
				return
			}
			if err != nil {
				yield(Shared{}, err)
				return
			}
		}
	}
}

var errStopped = errors.New("stopped")

// Differences implements [Source]. It reports events without a session.
func (s *SQL) Differences(ctx context.Context) ([]Difference, error) {
	n := 0
	err := s.db.QueryRowContext(ctx, `SELECT count(*) FROM events e WHERE NOT EXISTS
		(SELECT 1 FROM sessions s WHERE s.app_name = e.app_name AND s.user_id = e.user_id AND s.id = e.session_id)`).Scan(&n)
	if err != nil || n == 0 {
		return nil, err
	}
	return []Difference{{What: fmt.Sprintf("%d events belong to sessions that are missing from the table sessions; they are left out", n)}}, nil
}

// txOptions returns options for reading a session consistently.
func (s *SQL) txOptions() *sql.TxOptions {
	if s.dialect == PostgreSQL {
		return &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
	}
	return nil // a SQLite transaction reads a snapshot by default
}

// querier is a database or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// forEachRow calls do with each row of a query.
func (s *SQL) forEachRow(ctx context.Context, q querier, query string, args []any, do func(row []any) error) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	for rows.Next() {
		row, pointers := make([]any, len(columns)), make([]any, len(columns))
		for i := range row {
			pointers[i] = &row[i]
		}
		if err := rows.Scan(pointers...); err != nil {
			return err
		}
		if err := do(row); err != nil {
			return err
		}
	}
	return rows.Err()
}

// arg returns the placeholder for the nth argument of a query. The first argument is 1.
func (s *SQL) arg(n int) string {
	if s.dialect == PostgreSQL {
		return fmt.Sprintf("$%d", n)
	}
	return "?"
}

// column returns the expression that reads a column as it is stored. In PostgreSQL, JSON is read as text, which keeps
// number literals. In SQLite, the expression prevents drivers from converting the value to the declared type of the
// column.
func (s *SQL) column(name string) string {
	if s.dialect == SQLite {
		return "+" + name
	}
	switch name {
	case "actions", "timestamp", "partial", "turn_complete", "interrupted", "create_time", "update_time":
		return name
	}
	return name + "::text"
}
