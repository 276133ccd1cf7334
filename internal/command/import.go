package command

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/compaction/adkrecord"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/migrate"
	"github.com/patchlog-dev/patchlog/store/sessionfile"
)

// What a source of an import can be.
const (
	fromLines    = "lines"    // events and patches, one JSON object a line
	fromADK      = "adk"      // a database of ADK's, or sessions as its REST API gives them
	fromDatabase = "patchlog" // a database of patchlog's
)

const readableSources = `  - events and patches, one JSON object a line: an export, or events or table rows of ADK's (takes KEY)
  - session files of coding agents: Claude Code, codex, pi (KEY is app/user/id: --app, --user)
  - ADK's sessions: a database on PostgreSQL or SQLite, or JSON as its REST API gives them
  - a patchlog database: a file, or postgres://... (KEY selects one session)`

func (a *app) importCommand() *cobra.Command {
	cmd := command(`import [KEY] SOURCE...
Bring sessions in: from files, from coding agents, from ADK, from another database

SOURCE is recognised by its content; - is standard input. It can be
` + readableSources + `

Importing again adds what is new. A session arrives whole or not at all. A session that is there with
another log is reported and stays as it is, the others are imported, and the exit code is 1. SOURCE is only
read, and may be in use; a file is read into memory before the database is opened. SQLite files are read
by the command patchlog-sqlite.

Compaction records of ADK's become summaries, where they can; those that stay are listed. For lines,
this takes --compactions adopt. Whatever else does not come over as it was is listed below its session.
Values that sessions share (app: and user: keys) come with databases and with ADK's sessions; those
that are there with other values stay and are reported.

$ patchlog import shop/ada/4711 session.jsonl
$ patchlog import ~/.claude/projects/*/*.jsonl
$ patchlog import postgres://app@db.example/adk --dry-run`)
	fs := cmd.Flags()
	r := importing{app: a, user: "user", counts: map[migrate.Status]int{}}
	fs.Int64Var(&r.maxBytes, "max-bytes", store.DefaultImportBytes, "how many `bytes` a file may have")
	choose(cmd, &r.compactions, "compactions", "adopt compaction records of ADK's as summaries, or keep them as events", "adopt", "keep")
	fs.Var(&r.appName, "app", "the `APP` of a coding agent's sessions; else the agent's name")
	fs.Var(&r.user, "user", "the `USER` of a coding agent's sessions (default user)")
	fs.BoolVar(&r.adk.ReplayedState, "replayed-state", false, "let ADK's sessions have the state that their events give, where the database has another")
	fs.BoolVar(&r.adk.OverwriteShared, "overwrite-shared", false, "replace shared values that are there by those of ADK's")
	fs.StringSliceVar(&r.ignored, "ignore-column", nil, "a `TABLE.COLUMN` of ADK's database that is unknown and may stay behind")
	r.dryRun = declareDryRun(cmd)
	cmd.Args = func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return usagef("SOURCE is missing")
		case slices.Contains(args, ""):
			return usagef("SOURCE is empty")
		}
		return nil
	}
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveDefault
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if r.maxBytes < 1 {
			return usagef("--max-bytes is %d, below 1", r.maxBytes)
		}
		r.given = fs.Changed
		r.bar = a.progress("import")
		return r.run(cmd.Context(), args)
	}
	return cmd
}

// importing is a run of import.
type importing struct {
	*app
	maxBytes      int64
	compactions   string
	appName, user textFlag // of a coding agent's sessions
	adk           migrate.Options
	ignored       []string
	dryRun        *bool
	given         func(flag string) bool

	many     bool // sessions: those that stay as they are get no line, and the last line has the totals
	bar      *progress
	counts   map[migrate.Status]int // of sessions
	problems int
}

// importFlags are the flags that do not go with every source, with the formats that they go with; an
// empty name is any coding agent's.
var importFlags = map[string][]string{
	"max-bytes": {fromLines, ""}, "compactions": {fromLines, fromADK},
	"app": {""}, "user": {""},
	"replayed-state": {fromADK}, "overwrite-shared": {fromADK}, "ignore-column": {fromADK},
}

func (r *importing) checkFlags(format string) error {
	agent := ""
	if slices.Contains([]string{fromLines, fromADK, fromDatabase}, format) {
		agent = format
	}
	for flag, formats := range importFlags {
		if r.given(flag) && !slices.Contains(formats, agent) {
			return usagef("--%s does not go with a source of the format %s", flag, format)
		}
	}
	return nil
}

func (r *importing) run(ctx context.Context, args []string) error {
	keyText, sources := "", args
	if _, err := parseKey(args[0]); err == nil && len(args) == 1 && !isSource(args[0]) {
		return usagef("SOURCE is missing: %s is a KEY, and no file", args[0])
	}
	if len(args) > 1 && !isSource(args[0]) {
		if _, err := parseKey(args[0]); err != nil {
			if len(args) == 2 {
				return err
			}
		} else {
			keyText, sources = args[0], args[1:]
		}
	}
	if len(sources) > 1 {
		if keyText != "" {
			return usagef("KEY goes with one SOURCE")
		}
		return r.importAgents(ctx, sources)
	}
	src, err := r.open(ctx, sources[0])
	if err != nil {
		return err
	}
	defer src.close()
	if err := r.checkFlags(src.format); err != nil {
		return err
	}
	switch {
	case src.format == fromLines && keyText == "":
		return usagef("KEY is missing: %s has the events of one session", sources[0])
	case src.blank:
		return fmt.Errorf("%s is empty; an export has at least a header", src.input.name)
	case src.format == fromLines:
		return r.importLines(ctx, keyText, src.input)
	case src.format == fromDatabase:
		return r.importDatabase(ctx, keyText, sources[0])
	case keyText != "":
		return usagef("KEY does not go with %s, whose sessions have ids of their own", sources[0])
	case src.format == fromADK:
		return r.importADK(ctx, src)
	}
	return r.importAgent(ctx, src)
}

// importLines imports a file of events and patches.
func (r *importing) importLines(ctx context.Context, keyText string, in *input) error {
	key, err := parseKey(keyText)
	if err != nil {
		return err
	}
	read := &counting{r: in.r}
	text, err := store.ReadText(ctx, read, store.ImportOptions{
		Name: in.name, MaxBytes: r.maxBytes,
		Progress: func(lines int) { r.bar.update(read.n, in.size, present.Counted(lines, "line")) },
	})
	r.bar.end()
	if err != nil {
		return err
	}
	o, err := r.importText(ctx, key, text, func(*store.Store) error { return nil })
	if err != nil {
		return err
	}
	return r.report(o)
}

// importText imports a text as a session, unless check fails. A dry run imports it into a copy of the session in memory.
func (r *importing) importText(ctx context.Context, key store.Key, text *store.Text, check func(*store.Store) error) (o outcome, err error) {
	do := func(s *store.Store) error {
		if err := check(s); err != nil {
			return err
		}
		done, err := s.ImportText(ctx, key, text)
		if err != nil {
			return err
		}
		o = outcomeOf(key, done)
		if r.compactions == "adopt" {
			err = o.adoptRecords(ctx, s, done.View)
		}
		return err
	}
	if !*r.dryRun {
		err = r.withStore(ctx, Creating, do) // only now: it locks the file
		return o, err
	}
	scratch, err := store.OpenMemory(r.options)
	if err != nil {
		return o, err
	}
	err = r.withStore(ctx, Reading, func(s *store.Store) error {
		_, err := scratch.CopyFrom(ctx, s, key, store.CopyOptions{})
		return err
	})
	if err == nil || errors.Is(err, ErrNoDatabase) || errors.Is(err, store.ErrNotFound) {
		err = do(scratch)
	}
	return o, errors.Join(err, scratch.Close())
}

// isSource reports whether an operand is a source, and no key.
func isSource(name string) bool {
	_, err := os.Stat(name)
	_, _, isURL, urlErr := splitURL(name)
	return name == "-" || err == nil || isURL || urlErr != nil
}

// importSource is a source that was recognised.
type importSource struct {
	name   string
	format string
	blank  bool // there is nothing in it but white space
	*input      // nil for a database
}

func (s *importSource) close() {
	if s.input != nil {
		s.input.close()
	}
}

// The beginning of a source by which it is recognised.
const headBytes = 64 << 10

// byteOrderMark is what some editors and shells put before a text in UTF-8.
var byteOrderMark = []byte("\ufeff")

// open opens a source, and finds out what it is.
func (r *importing) open(ctx context.Context, name string) (*importSource, error) {
	scheme, rest, isURL, err := splitURL(name)
	switch {
	case err != nil:
		return nil, err
	case isURL:
		src := &importSource{name: scheme + "://" + rest}
		if src.format, err = r.onPostgres(ctx, src.name); err != nil {
			return nil, fmt.Errorf("SOURCE: %w", err)
		}
		return src, nil
	}
	in, err := r.input(ctx, name)
	if err != nil {
		return nil, err
	}
	head := bufio.NewReaderSize(in.r, headBytes)
	in.r = head
	text, err := head.Peek(headBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		in.close()
		return nil, err
	}
	if bytes.HasPrefix(text, byteOrderMark) {
		head.Discard(len(byteOrderMark))
		text = text[len(byteOrderMark):]
	}
	src := &importSource{name: name, format: formatOf(text), blank: err != nil && len(bytes.TrimSpace(text)) == 0, input: in}
	if src.format == "" {
		in.close()
		return nil, fmt.Errorf("%s is nothing that can be imported: neither events (an export, or one JSON object a line), nor a session file of Claude Code, codex or pi, nor sessions or a database of ADK's, nor a database of patchlog's", in.name)
	}
	return src, nil
}

// onPostgres says whose sessions a database on PostgreSQL has. Where there are both, it is patchlog's,
// unless that is the database to write.
func (r *importing) onPostgres(ctx context.Context, name string) (string, error) {
	if name == r.db {
		return fromADK, nil
	}
	s, err := r.openDatabase(ctx, name, Reading, r.options)
	if errors.Is(err, ErrNoDatabase) {
		return fromADK, nil
	}
	if err != nil {
		return "", err
	}
	return fromDatabase, s.Close()
}

// How a file of SQLite's begins, and what a page of bbolt's that names the newest commit has at its 16th
// byte.
var (
	sqliteMagic = []byte("SQLite format 3")
	boltMagic   = []byte{0xed, 0xda, 0x0c, 0xed}
)

// formatOf returns the format of a source that begins so, or "".
func formatOf(head []byte) string {
	for _, page := range []int{0, 4096, 8192, 16384} { // the first page, or the second one by its size
		if at := page + 16; len(head) >= at+4 && bytes.Equal(head[at:at+4], boltMagic) {
			return fromDatabase
		}
	}
	if bytes.HasPrefix(head, sqliteMagic) {
		return fromADK
	}
	text := bytes.TrimLeft(head, " \t\r\n")
	switch {
	case len(text) == 0:
		return fromLines
	case text[0] == '[':
		return fromADK
	case text[0] != '{':
		return ""
	}
	keys := membersOf(text)
	has := func(names ...string) bool {
		return slices.ContainsFunc(names, func(name string) bool { _, ok := keys[name]; return ok })
	}
	switch kind := keys["type"]; {
	case has("appName", "app_name") && (has("events") || !has("session_id", "content", "event_data")):
		return fromADK
	case kind == "session":
		return string(sessionfile.Pi)
	case kind == "session_meta" || has("instructions") && has("timestamp"):
		return string(sessionfile.Codex)
	case has("sessionId", "leafUuid", "parentUuid"):
		return string(sessionfile.ClaudeCode)
	case has("patchlog", "seq", "id", "content", "invocationId", "invocation_id", "patchType", "actions", "event_data"):
		return fromLines
	}
	return ""
}

// membersOf returns the members of the JSON object that a text begins with, as far as the text has them:
// strings with their value, others with "".
func membersOf(text []byte) map[string]string {
	members := map[string]string{}
	d := json.NewDecoder(bytes.NewReader(text))
	d.Token() // {
	for {
		name, err := d.Token()
		key, ok := name.(string)
		if err != nil || !ok {
			return members
		}
		members[key] = ""
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return members
		}
		var s string
		if json.Unmarshal(value, &s) == nil {
			members[key] = s
		}
	}
}

// gone is the status of a session that was deleted while others were imported.
const gone migrate.Status = "gone"

var statuses = []migrate.Status{migrate.Created, migrate.Extended, migrate.Unchanged, migrate.Ahead, gone, migrate.Conflict, migrate.Failed}

// outcome is what became of a session by an import, or would.
type outcome struct {
	migrate.Result
	File *readFile // of a coding agent's session

	notes []string // lines below the session's own
}

func outcomeOf(key store.Key, done store.Imported) outcome {
	o := outcome{Result: migrate.Result{Key: key, Status: migrate.Unchanged, Added: done.Added, Present: done.Present, Seq: done.View.Seq()}}
	switch {
	case done.Created:
		o.Status = migrate.Created
	case done.Added > 0:
		o.Status = migrate.Extended
	case done.View.Seq() > uint64(done.Present):
		o.Status = migrate.Ahead
	}
	if n := done.View.SkippedCount(); n > 0 && done.Added > 0 {
		o.notes = append(o.notes, present.Counted(n, "patch")+" without effect: 'patchlog audit' says why")
	}
	return o
}

// adoptRecords replaces compaction records in a view, and the events that they cover, by summaries, in one commit.
func (o *outcome) adoptRecords(ctx context.Context, s *store.Store, v fold.View) error {
	plan := adkrecord.Adopt(v, adkrecord.Options{})
	o.Adopted, o.Left = plan.Adopted, plan.NotAdopted
	if o.noteAdopted(); len(o.Adopted)+len(o.Left) == 0 {
		o.notes = append(o.notes, "no compaction records to adopt")
	}
	if len(plan.Patches) == 0 {
		return nil
	}
	c, err := s.ApplyPatch(ctx, o.Key, store.PatchOptions{On: v}, plan.Patches...)
	if err != nil {
		return fmt.Errorf("imported, but the compaction records were not adopted: %w", err)
	}
	o.Added, o.Seq = o.Added+len(c.Records), c.View.Seq()
	if o.Status != migrate.Created {
		o.Status = migrate.Extended
	}
	return nil
}

// noteAdopted adds notes about the compaction records that were adopted, and about those that were not.
func (o *outcome) noteAdopted() {
	if n := len(o.Adopted) + len(o.Left); n > 0 {
		o.notes = append(o.notes, fmt.Sprintf("%d of %s adopted", len(o.Adopted), present.Counted(n, "compaction record")))
	}
	for _, l := range o.Left {
		o.notes = append(o.notes, fmt.Sprintf("left: %s: %s", present.Printable(l.EventID), present.Printable(l.Reason)))
	}
}

// report writes an outcome, with the error that kept the session from being imported. Of many sessions those that
// stay as they are and have no notes are only counted.
func (r *importing) report(o outcome) error {
	r.counts[o.Status]++
	if o.Err != nil {
		r.problems++
	}
	r.bar.end()
	if !r.json && o.Err != nil {
		return r.problem(o.Err)
	}
	switch would := ""; {
	case r.json:
		r.out.document(o)
	case o.Status == migrate.Created, o.Status == migrate.Extended:
		if *r.dryRun {
			would = "would be "
		}
		r.out.linef("%s: %s%s, %s added; the log ends at record %d", o.Key, would, o.Status, present.Counted(o.Added, "record"), o.Seq)
	case o.Status == migrate.Ahead:
		r.out.linef("%s: nothing to add; the copy has gone on by itself, to record %d", o.Key, o.Seq)
	case !r.many || len(o.notes) > 0:
		r.out.linef("%s: %s; the log ends at record %d", o.Key, o.Status, o.Seq)
	}
	if !r.json {
		for _, note := range o.notes {
			r.out.linef("  %s", present.Printable(note))
		}
	}
	return r.out.flush()
}

// problem writes an error to standard error, after the lines of standard output that come before it.
func (r *importing) problem(err error) error {
	r.bar.end()
	if err := r.out.flush(); err != nil { // so that the lines stay in order
		return err
	}
	r.errs.problem(err.Error())
	return r.errs.flush()
}

// sharedOutcome is what became of the values of shared scopes.
type sharedOutcome struct {
	Added     int
	Different []string
	Error     error
}

// sum writes the totals of an import of many sessions.
func (r *importing) sum(shared sharedOutcome, source string, differences []migrate.Difference) error {
	r.bar.end()
	if shared.Error != nil {
		r.problems++
	}
	if !r.adk.OverwriteShared {
		r.problems += len(shared.Different)
	}
	if r.json {
		r.out.document(struct {
			Sessions    map[migrate.Status]int
			Shared      any
			DryRun      bool
			Source      string               `json:"source,omitempty"`
			Differences []migrate.Difference `json:"differences,omitempty"`
		}{r.counts, shared, *r.dryRun, source, differences})
	} else {
		if shared.Error != nil {
			r.problem(fmt.Errorf("shared values: %w", shared.Error))
		}
		for _, name := range shared.Different {
			if r.adk.OverwriteShared {
				r.out.linef("shared value %s: %s in place of another", name, map[bool]string{true: "would be written", false: "written"}[*r.dryRun])
			} else {
				r.problem(fmt.Errorf("shared value %s: it is there with another value, which stays", name))
			}
		}
		for _, d := range differences {
			r.out.linef("  %s", present.Printable(d.String()))
		}
		all, text := 0, ""
		for _, status := range statuses {
			if n := r.counts[status]; n > 0 {
				all += n
				text += fmt.Sprintf(", %d %s", n, status)
			}
		}
		text = present.Counted(all, "session") + text
		if shared.Added > 0 && !*r.dryRun {
			text += ", " + present.Counted(shared.Added, "shared value") + " added"
		}
		if *r.dryRun {
			text += "; nothing is written"
		}
		r.out.line(text)
	}
	if err := r.out.flush(); err != nil || r.problems == 0 {
		return err
	}
	return fmt.Errorf("not all is imported: %s", present.Counted(r.problems, "problem"))
}

// sameFile reports whether two names are of one file.
func sameFile(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

// bulk returns the options of a database of which each session is used once.
func (a *app) bulk() store.Options {
	opts := a.options
	opts.CacheBytes, opts.MaxRecordBytes = -1, patch.MaxRecordBytes
	return opts
}

// openTarget opens the database to write. For a dry run it need not exist.
func (r *importing) openTarget(ctx context.Context) (*store.Store, error) {
	if !*r.dryRun {
		return r.openDatabase(ctx, r.db, Creating, r.bulk())
	}
	target, err := r.openDatabase(ctx, r.db, Reading, r.bulk())
	if errors.Is(err, ErrNoDatabase) {
		return store.OpenMemory(r.bulk())
	}
	return target, err
}

// importAgents imports session files of coding agents, each by itself. If some cannot be imported, the others still
// are.
func (r *importing) importAgents(ctx context.Context, names []string) error {
	r.many = true
	for _, name := range names {
		src, err := r.open(ctx, name)
		if err == nil {
			err = r.importAgent(ctx, src)
			src.close()
		}
		var usage *usageError
		switch {
		case err == nil:
		case ctx.Err() != nil || errors.Is(err, errOutput) || errors.As(err, &usage):
			return err
		default:
			r.counts[migrate.Failed]++
			r.problems++
			if err := r.problem(err); err != nil {
				return err
			}
		}
	}
	return r.sum(sharedOutcome{}, "", nil)
}

// errOutput is the error of a report that cannot be written.
var errOutput = errors.New("output")

func (r *importing) importAgent(ctx context.Context, src *importSource) error {
	if err := r.checkFlags(src.format); err != nil {
		return err
	}
	if sessionfile.Format(src.format).Validate() != nil {
		return fmt.Errorf("%s is no session file of a coding agent; other sources are imported one at a time", src.name)
	}
	read, err := r.readAgent(ctx, src)
	if err != nil {
		return err
	}
	o, err := r.importText(ctx, read.key, read.text, func(s *store.Store) error { return read.belongsTo(ctx, s, src.input.name) })
	if errors.Is(err, store.ErrConflict) {
		err = fmt.Errorf("%w; --app or --user give the file another key", err)
	}
	if err != nil {
		return err
	}
	o.File, o.notes = &readFile{src.input.name, read.report}, fileNotes(read.report)
	if err := r.report(o); err != nil {
		return fmt.Errorf("%w: %w", errOutput, err)
	}
	return nil
}

// agentSession is a session file that has been read.
type agentSession struct {
	key    store.Key
	text   *store.Text
	first  string // the id of its first record
	report sessionfile.Report
}

func (r *importing) readAgent(ctx context.Context, src *importSource) (*agentSession, error) {
	in, format := src.input, sessionfile.Format(src.format)
	defer r.bar.end()
	count := &counting{r: io.LimitReader(in.r, r.maxBytes+1)}
	d := sessionfile.NewDecoder(count, format, in.name)
	read := &agentSession{}
	var text bytes.Buffer
	for {
		rec, err := d.Next()
		if count.n > r.maxBytes {
			return nil, fmt.Errorf("%s: %w: the input goes on beyond %d bytes; the limit can be set higher", in.name, store.ErrTooLarge, r.maxBytes)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		if read.first == "" {
			read.first = rec.ID()
		}
		if err := patch.WriteRecord(&text, rec); err != nil {
			return nil, err
		}
		r.bar.update(count.n, in.size, present.Counted(d.Report().Lines, "line"))
	}
	read.report = d.Report()
	read.key = store.Key{App: string(r.appName), User: string(r.user), Session: d.SessionID()}
	if read.key.App == "" {
		read.key.App = string(format)
	}
	if read.key.Session == "" {
		if src.name == "-" {
			return nil, fmt.Errorf("%s does not tell its session's id; give the file by its name", in.name)
		}
		read.key.Session = strings.TrimSuffix(filepath.Base(src.name), ".jsonl")
	}
	if err := read.key.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", in.name, err)
	}
	var err error
	read.text, err = store.ReadText(ctx, &text, store.ImportOptions{
		Name: "what was read of " + in.name, MaxBytes: int64(text.Len()) + 1,
	})
	return read, err
}

// belongsTo returns an error if there is a session of the key that was not read from the same file.
func (f *agentSession) belongsTo(ctx context.Context, s *store.Store, name string) error {
	for rec, err := range s.RawEvents(ctx, f.key, 1) {
		switch {
		case errors.Is(err, store.ErrNotFound):
			return nil
		case err != nil:
			return err
		case rec.ID() != f.first:
			return fmt.Errorf("%s: %w: session %s is there, and does not begin as the file does", name, store.ErrConflict, f.key)
		}
		return nil
	}
	return nil
}

// readFile is a coding agent's file, with the report of its decoder.
type readFile struct {
	Name string
	sessionfile.Report
}

// fileNotes returns the notes of an outcome about a file.
func fileNotes(r sessionfile.Report) (notes []string) {
	for _, note := range []struct {
		n    int
		text string
	}{
		{r.Rewinds, present.Counted(r.Rewinds, "rewind") + ": what was left behind is hidden"},
		{r.Compactions, present.Counted(r.Compactions, "compaction") + " adopted"},
		{r.Left, present.Counted(r.Left, "compaction") + " not adopted, and kept as events: what they cover cannot be told"},
		{r.Copies, present.Counted(r.Copies, "line") + " told once more, and kept without content"},
		{r.Unreadable, present.Counted(r.Unreadable, "line") + " of no JSON, kept without content"},
		{r.Unfinished, "the last line is not written to its end, and was left out"},
	} {
		if note.n > 0 {
			notes = append(notes, note.text)
		}
	}
	return notes
}

// importADK imports all sessions of ADK's.
func (r *importing) importADK(ctx context.Context, src *importSource) (err error) {
	if sameFile(src.name, r.db) {
		return usagef("SOURCE is the database to write")
	}
	from, count, closeSource, err := openADK(ctx, src, r.ignored)
	if err != nil {
		return fmt.Errorf("SOURCE: %w", err)
	}
	defer func() { err = errors.Join(err, closeSource()) }()
	target, err := r.openTarget(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	r.many = true
	if !r.json {
		r.out.linef("from %s", from)
	}
	opts := r.adk
	opts.DryRun, opts.KeepCompactions = *r.dryRun, r.compactions == "keep"
	opts.Progress = r.bar.sessions
	if count != nil {
		opts.Progress = func(done, _ int) { r.bar.update(count.n, src.size, present.Counted(done, "session")) }
	}
	opts.Session = func(s migrate.Result) error {
		o := outcome{Result: s}
		o.noteAdopted()
		for _, d := range s.Differences {
			o.notes = append(o.notes, d.String())
		}
		return r.report(o)
	}
	report, err := migrate.Run(ctx, target, from, opts)
	if err != nil {
		r.bar.end()
		return err
	}
	return r.sum(sharedOutcome{report.SharedAdded, report.SharedDifferent, report.SharedErr}, fmt.Sprint(from), report.Source)
}

// openADK opens sessions of ADK's, and counts what is read if they are in a file that is read to its end.
func openADK(ctx context.Context, src *importSource, ignored []string) (from migrate.Source, count *counting, closeSource func() error, err error) {
	dialect, open := migrate.PostgreSQL, openPostgresSQL
	if src.input != nil {
		head, _ := src.r.(*bufio.Reader).Peek(len(sqliteMagic))
		if !bytes.Equal(head, sqliteMagic) || src.file == nil {
			count = &counting{r: src.r}
			return migrate.NewREST(count, src.input.name), count, func() error { return nil }, nil
		}
		dialect, open = migrate.SQLite, openSQLite
	}
	db, err := open(src.name)
	if err != nil {
		return nil, nil, nil, err
	}
	if err = db.PingContext(ctx); err == nil {
		from, err = migrate.OpenSQL(ctx, db, dialect, migrate.SQLOptions{IgnoreColumns: ignored})
	}
	if err != nil {
		return nil, nil, nil, errors.Join(err, db.Close())
	}
	return from, nil, db.Close, nil
}

// sqliteDriver is the name of the database/sql driver that patchlog-sqlite links.
const sqliteDriver = "sqlite"

// openSQLite opens an existing file for reading. It waits a moment for a service that writes to it.
func openSQLite(path string) (*sql.DB, error) {
	if !slices.Contains(sql.Drivers(), sqliteDriver) {
		return nil, fmt.Errorf("%s is a database of SQLite's, which the command patchlog-sqlite reads: 'go install github.com/patchlog-dev/patchlog/cmd/patchlog-sqlite@latest', then 'patchlog-sqlite import'", path)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	file := url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: "mode=ro&_pragma=busy_timeout(5000)&_pragma=query_only(true)"}
	return sql.Open(sqliteDriver, file.String())
}

// openPostgresSQL opens a database for reading, by a URL or by the PG* variables and the files of PostgreSQL's
// clients. No error has a password of the URL.
func openPostgresSQL(name string) (*sql.DB, error) {
	if _, rest, _ := strings.Cut(name, "://"); rest == "" {
		name = ""
	}
	config, err := pgx.ParseConfig(name)
	if err != nil {
		return nil, err
	}
	config.RuntimeParams["default_transaction_read_only"] = "on"
	return stdlib.OpenDB(*config), nil
}

// importDatabase copies a session of another database of patchlog's, or all of them.
func (r *importing) importDatabase(ctx context.Context, keyText, name string) (err error) {
	var keys []store.Key
	if keyText != "" {
		key, err := parseKey(keyText)
		if err != nil {
			return err
		}
		keys = []store.Key{key}
	}
	if sameFile(name, r.db) {
		return usagef("SOURCE is the database to write")
	}
	source, err := r.openDatabase(ctx, name, Reading, r.bulk())
	if err != nil {
		return fmt.Errorf("SOURCE: %w", err)
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	target, err := r.openTarget(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	if r.many = true; keyText == "" {
		for info, err := range source.List(ctx, store.ListOptions{}) {
			switch {
			case errors.Is(err, store.ErrCorrupt): // the others are still worth a copy
				if err := r.report(outcome{Result: migrate.Result{Key: info.Key, Status: migrate.Failed, Err: err}}); err != nil {
					return err
				}
			case err != nil:
				return fmt.Errorf("SOURCE: %w", err)
			default:
				keys = append(keys, info.Key)
			}
		}
	}
	opts := store.CopyOptions{DryRun: *r.dryRun}
	for i, key := range keys {
		r.bar.sessions(i, len(keys))
		done, err := target.CopyFrom(ctx, source, key, opts)
		o := outcomeOf(key, done)
		if err != nil {
			switch o.Status = migrate.StatusOf(err); {
			case o.Status == "": // the next session would meet it too
				return err
			case errors.Is(err, store.ErrNotFound) && keyText == "":
				o.Status, err = gone, nil
			}
		}
		o.Err = err
		if err := r.report(o); err != nil {
			return err
		}
	}
	if keyText != "" {
		return r.sum(sharedOutcome{}, "", nil)
	}
	var shared sharedOutcome
	shared.Added, shared.Different, err = target.CopyShared(ctx, source, opts)
	switch {
	case errors.Is(err, store.ErrNotFound) && r.counts[migrate.Failed]+r.counts[migrate.Conflict]+r.counts[gone] == len(keys):
		return r.sum(sharedOutcome{Error: err}, "", nil) // no session is there to share the values
	case err != nil:
		return err
	case *r.dryRun:
		shared.Different = nil // sessions that were not copied would have brought theirs
	}
	return r.sum(shared, "", nil)
}

// input is a file or standard input, as a command reads it.
type input struct {
	name string // as messages call it
	size int64  // 0 if not known
	r    io.Reader
	pipe io.Closer
	file *os.File
}

// input opens the named file; "-" is standard input.
func (a *app) input(ctx context.Context, name string) (*input, error) {
	if name == "-" {
		r := interruptible(ctx, a.stdin)
		return &input{name: "stdin", r: r, pipe: r}, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	r := interruptible(ctx, f)
	in := &input{name: name, r: r, pipe: r, file: f}
	switch info, err := f.Stat(); {
	case err != nil:
		in.close()
		return nil, err
	case info.IsDir():
		in.close()
		return nil, fmt.Errorf("%s is a directory", name)
	case info.Mode().IsRegular():
		in.size = info.Size()
	}
	return in, nil
}

func (in *input) close() {
	in.pipe.Close()
	if in.file != nil {
		in.file.Close() // it was only read
	}
}

// interruptible is a reader whose Read returns when the context is done, though the
// one that it reads may block for ever.
func interruptible(ctx context.Context, r io.Reader) *io.PipeReader {
	out, in := io.Pipe()
	go func() {
		_, err := io.CopyBuffer(in, r, make([]byte, 256<<10))
		in.CloseWithError(err)
	}()
	context.AfterFunc(ctx, func() { in.CloseWithError(ctx.Err()) })
	return out
}
