package migrate

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// FileOptions are options for reading a file. The zero value means the defaults.
type FileOptions struct {
	// Name is the name of the file. Errors contain it, and a session without an id in the file is named after it. If
	// NoFile is set, Name is not a file name and is used only in errors.
	Name   string
	NoFile bool

	// Folder, if not empty, is a folder that contains the file, directly or in subfolders. A session without an id
	// is then named after the path below Folder, because several folders may have files with the same name.
	Folder string

	// Key has parts of the session's key. A part that is not empty replaces the part in the file.
	Key store.Key

	// AdoptLines adopts compaction records in lines of events, as described at [Options.KeepCompactions]. The option
	// KeepCompactions does not apply to lines of events.
	AdoptLines bool

	// MaxRecordBytes is the limit of the target store. It corresponds to [store.Options.MaxRecordBytes].
	MaxRecordBytes int

	// Progress, if not nil, is called from time to time with the number of bytes read so far.
	Progress func(bytes int)
}

// File is a source that reads the sessions in a file.
type File struct {
	Format Format

	opts     FileOptions
	text     []byte
	sessions []fileSession
}

var _ Source = (*File)(nil)

// fileSession is the part of a file that has one session.
type fileSession struct {
	units   []unit
	session string   // id of the session, if it is outside the messages
	omitted []string // names of the members that are omitted
}

// unit is a line of a file, or a message in a document.
type unit struct {
	text         []byte // text as in the file; white space between tokens is removed in a message of a document
	number       int    // number of the line or message; the first is 1
	json         []byte // JSON in the text, or nil
	repaired     bool   // whether the text was not Unicode
	unterminated bool   // whether the newline at the end of the line is missing
}

// OpenFile returns the sessions in the text of a file as a source. If [Detect] does not recognise the format, or if
// the file is a database, the error is an *[UnknownFormatError]. If a later part of the text does not have the
// detected format, the error matches [store.ErrInvalid].
func OpenFile(text []byte, opts FileOptions) (Source, error) {
	format, err := Detect(text, opts.Name)
	if err == nil && format.Database {
		err = &UnknownFormatError{Name: opts.Name, Reason: "it is " + format.Title + ", and not a file of text"}
	}
	if err != nil {
		return nil, err
	}
	f := &File{Format: format, opts: opts, text: bytes.TrimPrefix(trimNULs(text), byteOrderMark)}
	if format.open != nil {
		return format.open(f)
	}
	if f.sessions, err = splitSessions(f.text, &f.Format, opts.Name); err != nil {
		return nil, err
	}
	return f, nil
}

// String returns the name and the format of the file.
func (f *File) String() string { return f.opts.Name + ", " + f.Format.Title }

// Count implements [Source].
func (f *File) Count(context.Context) (int, error) { return len(f.sessions), nil }

// Shared implements [Source]. Files have no shared state.
func (f *File) Shared(context.Context) iter.Seq2[Shared, error] {
	return func(func(Shared, error) bool) {}
}

// Differences implements [Source].
func (f *File) Differences(context.Context) ([]Difference, error) { return nil, nil }

// Sessions implements [Source].
func (f *File) Sessions(ctx context.Context) iter.Seq2[*Session, error] {
	if f.Format.reader == nil {
		return f.lines(ctx)
	}
	return func(yield func(*Session, error) bool) {
		if len(f.sessions) > 1 && f.opts.Key.Session != "" {
			yield(nil, fmt.Errorf("%w: %s has %d sessions, but only one key was given", store.ErrInvalid, f.opts.Name, len(f.sessions)))
			return
		}
		for i, p := range f.sessions {
			records, report, id, err := f.decode(ctx, p.units)
			if i > 0 { // the differences were already reported with the first session
				report.Untimed, p.omitted = 0, nil
			}
			s := &Session{Records: records, file: f.opts.Name, Differences: report.differences()}
			if err == nil && !slices.ContainsFunc(records, hasContent) {
				err = fmt.Errorf("%s: %w: the file has no messages", f.opts.Name, store.ErrInvalid)
			}
			s.Key = f.sessionKey(s, cmp.Or(p.session, id), i)
			// Gemini CLI may write several files with the same session id.
			if f.Format.Name == "gemini-cli" && f.opts.Key.Session == "" && !s.namedAfterFile && !f.opts.NoFile {
				s.fileKey = store.Key{App: s.Key.App, User: s.Key.User, Session: sessionName(f.opts.Name, f.opts.Folder)}
			}
			for j := range s.Differences {
				s.Differences[j].What = strings.ReplaceAll(s.Differences[j].What, "compact KEY", "compact "+s.Key.String())
			}
			if len(p.omitted) > 0 {
				s.Differences = append(s.Differences, Difference{What: "left out besides the messages: " + strings.Join(p.omitted, ", ")})
			}
			if !yield(s, f.sessionError(s, err)) {
				return
			}
		}
	}
}

// decode returns the records of a session, and the session's id.
func (f *File) decode(ctx context.Context, units []unit) ([]patch.Record, report, string, error) {
	d := decoder{file: f.opts.Name, format: &f.Format, progress: f.opts.Progress, ctx: ctx}
	records, err := d.decode(units)
	return records, d.report, d.tree.session, err
}

// sessionKey returns the key of the session with index n. A part of the key that is set in the options replaces the
// part in the session. If a part is missing in both, sessionKey takes it from the format and the name of the file.
// sessionKey reports a session that is named after its file.
func (f *File) sessionKey(s *Session, id string, n int) store.Key {
	key := f.opts.Key
	if key.Session == "" {
		if key.Session = id; id == "" && !f.opts.NoFile {
			key.Session = sessionName(f.opts.Name, f.opts.Folder)
			s.namedAfterFile = true
			if len(f.sessions) > 1 {
				key.Session += "-" + strconv.Itoa(n+1)
			}
			// For a file in a folder, the user expects a session named after the path.
			if n == 0 && f.opts.Folder == "" {
				s.Differences = append(s.Differences, Difference{What: "the file has no session id: the session is named after the file; put a KEY before the file to name it differently"})
			}
		}
	}
	key.App, key.User = cmp.Or(key.App, f.Format.Name), cmp.Or(key.User, "user")
	return key
}

// sessionError wraps an error that concerns a single session.
func (f *File) sessionError(s *Session, err error) error {
	if err == nil && f.opts.NoFile && s.Key.Session == "" {
		err = fmt.Errorf("%s: %w: the input has no session id; give the name of the file, or put a KEY before it", f.opts.Name, store.ErrInvalid)
	}
	if err != nil {
		return &SessionError{Err: err}
	}
	return nil
}

// splitSessions splits a file into sessions. A file with JSON lines is one session. A document is one session,
// unless it has several lists of messages. In that case, each list is a session.
func splitSessions(text []byte, format *Format, name string) ([]fileSession, error) {
	var units []unit
	document := spansLines(text)
	if first := trim(text); (document || isArray(first)) && valueWeight*countValues(text) > weightFactor*len(text)+weightBase {
		return nil, fmt.Errorf("%s: %w: the import of its many values would need more memory than 8 times its size", name, store.ErrTooLarge)
	}
	if document {
		d := json.NewDecoder(bytes.NewReader(text))
		for d.More() {
			var value json.RawMessage
			if err := d.Decode(&value); err != nil {
				return nil, fmt.Errorf("%s: %w: after byte %d: %w", name, store.ErrInvalid, d.InputOffset(), err)
			}
			units = append(units, compactUnit(value, len(units)+1))
		}
	} else {
		number := 0
		for line := range bytes.Lines(text) {
			number++
			line, terminated := bytes.CutSuffix(line, []byte("\n"))
			// A crash may leave NULs between lines.
			for line := range bytes.FieldsFuncSeq(line, func(r rune) bool { return r == 0 }) {
				if len(trim(line)) > 0 {
					units = append(units, unit{text: line, number: number, json: trim(line), unterminated: !terminated})
				}
				if unitWeight*len(units) > weightFactor*len(text)+weightBase {
					return nil, fmt.Errorf("%s:%d: %w: the import of its many short lines would need more memory than 8 times its size", name, number, store.ErrTooLarge)
				}
			}
		}
	}
	if len(units) == 1 && isArray(units[0].json) {
		units = arrayUnits(units[0].json)
	}
	if len(units) == 0 {
		return nil, fmt.Errorf("%s: %w: the file has no session", name, store.ErrInvalid)
	}
	var sessions []fileSession
	for _, u := range units {
		p, ok := findMessages(u.json)
		switch {
		case !format.lists || !ok && sessions == nil, format.Name == "gemini-cli" && len(units) > 1:
			return []fileSession{{units: units}}, nil
		case !ok:
			return nil, fmt.Errorf("%s:%d: %w: this is not a list of messages, although the values before it are", name, u.number, store.ErrInvalid)
		}
		sessions = append(sessions, p)
	}
	return sessions, nil
}

func compactUnit(value json.RawMessage, number int) unit {
	var b bytes.Buffer
	if json.Compact(&b, value) == nil {
		value = b.Bytes()
	}
	return unit{text: value, number: number, json: value}
}

func arrayUnits(array json.RawMessage) (units []unit) {
	var list []json.RawMessage
	json.Unmarshal(array, &list) // cannot fail, because the array was decoded before
	for i, value := range list {
		units = append(units, compactUnit(value, i+1))
	}
	return units
}

// findMessages returns the messages of a document. The document is an array of messages, or an object with a member
// that is a list of messages.
func findMessages(text json.RawMessage) (p fileSession, ok bool) {
	if isArray(text) {
		return fileSession{units: arrayUnits(text)}, true
	}
	o := parse(text)
	for _, name := range listNames {
		if list := o.get(name); isArray(list) && o.get("patchlog") == nil {
			p.units = arrayUnits(list)
			for _, path := range []string{"sessionId", "session_id", "info.id", "session.id"} {
				p.session = cmp.Or(p.session, o.text(path))
			}
			for _, name := range []string{name, "sessionId", "session_id"} {
				delete(o, name)
			}
			p.omitted = slices.Sorted(maps.Keys(o))
			return p, true
		}
	}
	return p, false
}

// hasContent reports whether the record has an event with content.
func hasContent(r patch.Record) bool {
	return slices.ContainsFunc(r.Events(), (*patch.Event).SaysSomething)
}

func trimNULs(text []byte) []byte { return bytes.Trim(text, "\x00") }

// maxLineBytes is the maximum length of a line.
const maxLineBytes = patch.DefaultMaxLineBytes
