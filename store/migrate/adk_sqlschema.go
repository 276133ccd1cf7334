package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Errors for databases whose tables cannot be read.
var (
	// ErrSchema means that the tables belong to no known service, or to a newer version of a known service.
	ErrSchema = errors.New("unknown schema")

	// ErrPickled means that the tables have pickled Python objects, which only Python can read.
	ErrPickled = errors.New("pickled actions")
)

// columnsOf returns the columns of a table, or nil if the table does not exist.
func (s *SQL) columnsOf(ctx context.Context, table string) ([]string, error) {
	query := "SELECT name FROM pragma_table_info(?)"
	if s.dialect == PostgreSQL {
		query = "SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped"
	}
	var names []string
	err := s.forEachRow(ctx, s.db, query, []any{table}, func(row []any) error {
		name, err := textCell(row[0])
		names = append(names, name)
		return err
	})
	return names, err
}

func (s *SQL) has(table, column string) bool { return slices.Contains(s.columns[table], column) }

// detectService determines which service wrote the tables.
func (s *SQL) detectService(ctx context.Context) error {
	if s.columns["sessions"] == nil || s.columns["events"] == nil {
		return fmt.Errorf("%w: the tables sessions and events of ADK's session services are missing", ErrSchema)
	}
	if s.columns["adk_internal_metadata"] != nil {
		version := ""
		err := s.forEachRow(ctx, s.db, "SELECT value FROM adk_internal_metadata WHERE key = 'schema_version'", nil, func(row []any) (err error) {
			version, err = textCell(row[0])
			return err
		})
		switch {
		case err != nil:
			return fmt.Errorf("read the schema version: %w", err)
		case version == "0":
			return pickledError()
		case version != "1":
			return fmt.Errorf("%w: the tables of ADK for Python have schema %q; only schema 1 is supported", ErrSchema, version)
		}
	}
	switch {
	case s.has("events", "event_data") && s.has("events", "actions"):
		return fmt.Errorf("%w: the table events has a column event_data and a column actions", ErrSchema)
	case s.has("events", "event_data"):
		s.python = true
		return nil
	case !s.has("events", "actions"):
		return fmt.Errorf("%w: the table events has neither a column event_data nor a column actions", ErrSchema)
	case s.has("events", "input_transcription"), s.has("events", "output_transcription"):
		return pickledError()
	}
	// Older versions of ADK for Python have the same columns as ADK for Go, but with other types of text.
	rows, query := 0, "SELECT type FROM pragma_table_info('sessions') WHERE name = 'app_name'"
	if s.dialect == PostgreSQL {
		query = "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = to_regclass('sessions') AND attname = 'app_name'"
	}
	err := s.forEachRow(ctx, s.db, "SELECT actions FROM events WHERE actions IS NOT NULL LIMIT 1", nil, func(row []any) error {
		if rows++; isPickled(row[0]) {
			return pickledError()
		}
		return nil
	})
	if err != nil || rows > 0 {
		return err
	}
	return s.forEachRow(ctx, s.db, query, nil, func(row []any) error {
		if kind, err := textCell(row[0]); err != nil || strings.Contains(strings.ToLower(kind), "var") {
			return errors.Join(err, pickledError())
		}
		return nil
	})
}

func pickledError() error {
	return fmt.Errorf("%w: the tables are from ADK for Python before schema 1, where actions are Python objects, which only Python can read; "+
		"convert them with ADK for Python ('adk migrate session --source_db_url=... --dest_db_url=...') and migrate the result", ErrPickled)
}

func isPickled(cell any) bool {
	t, err := textCell(cell)
	return err == nil && t != "" && t[0] == 0x80
}

var (
	stateColumns   = []string{"app_name", "user_id", "state", "update_time"}
	keyColumns     = []string{"app_name", "user_id", "session_id"} // columns of the table events that identify the session
	sessionColumns = []string{"app_name", "user_id", "id", "state", "create_time", "update_time", "event_sequence"}
)

// checkColumns returns an error if a table or a column is missing, or if a column is unknown.
func (s *SQL) checkColumns(ignored []string) error {
	events := slices.Clone(keyColumns)
	for _, f := range s.fields() {
		events = append(events, f.column)
	}
	need := events
	if !s.python {
		need = append(slices.Clone(keyColumns), "id", "invocation_id", "author", "actions", "timestamp", "content")
	}
	for _, t := range []struct {
		name        string
		known, need []string
	}{
		{"sessions", sessionColumns, []string{"app_name", "user_id", "id", "state", "create_time", "update_time"}},
		{"events", events, need},
		{"app_states", stateColumns, []string{"app_name", "state"}},
		{"user_states", stateColumns, []string{"app_name", "user_id", "state"}},
	} {
		existing := s.columns[t.name]
		if existing == nil { // app_states or user_states, because detectService has found the other two tables
			return fmt.Errorf("%w: there is no table %s", ErrSchema, t.name)
		}
		for _, c := range t.need {
			if !slices.Contains(existing, c) {
				return fmt.Errorf("%w: the table %s has no column %s", ErrSchema, t.name, c)
			}
		}
		for _, c := range existing {
			if name := t.name + "." + c; !slices.Contains(t.known, c) && !slices.Contains(ignored, name) {
				return fmt.Errorf("%w: the column %s is unknown: a newer version of ADK or another program has added it; to migrate without its values, ignore the column", ErrSchema, name)
			}
		}
	}
	return nil
}
