package command

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/internal/present"
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

// sourceFormats are the names that --format takes, those of coding agents among them.
func sourceFormats() []string {
	formats := []string{fromLines, fromDatabase, fromADK}
	for _, f := range sessionfile.Formats() {
		formats = append(formats, string(f))
	}
	return formats
}

const readableSources = `  - events and patches, one JSON object a line: an export, or events or table rows of ADK's (takes KEY)
  - session files of coding agents: Claude Code, codex, pi (KEY is app/user/id: --app, --user)
  - ADK's sessions: a database on PostgreSQL or SQLite, or JSON as its REST API gives them
  - a patchlog database: a file, or postgres://... (KEY selects one session)`

func (a *app) importCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import [KEY] SOURCE...",
		Short: "Bring sessions in: from files, from coding agents, from ADK, from another database",
		Long: `SOURCE is recognised by its content; - is standard input. It can be
` + readableSources + `

Importing again adds what is new. A session arrives whole or not at all. A session that is there with
another log is reported and stays as it is, the others are imported, and the exit code is 1. SOURCE is only
read, and may be in use; a file is read into memory before the database is opened. SQLite files are read
by the command patchlog-sqlite.

Compaction records of ADK's become summaries, where they can; those that stay are listed. For lines,
this takes --compactions adopt. Whatever else does not come over as it was is listed below its session.
Values that sessions share (app: and user: keys) come with databases and with ADK's sessions; those
that are there with other values stay and are reported.`,
		Example: examples(
			"patchlog import shop/ada/4711 session.jsonl",
			"patchlog import ~/.claude/projects/*/*.jsonl",
			"patchlog import postgres://app@db.example/adk --dry-run",
		),
	}
	fs := cmd.Flags()
	r := importing{app: a, user: "user", counts: map[migrate.Status]int{}}
	fs.StringVar(&r.format, "format", "", "what SOURCE is, where it is not recognised: `NAME` is "+strings.Join(sourceFormats(), ", "))
	fs.Int64Var(&r.maxBytes, "max-bytes", store.DefaultImportBytes, "how many `bytes` a file may have")
	fs.StringVar(&r.compactions, "compactions", "", "`adopt` compaction records of ADK's as summaries, or keep them as events")
	fs.Var(&r.appName, "app", "the `APP` of a coding agent's sessions; else the agent's name")
	fs.Var(&r.user, "user", "the `USER` of a coding agent's sessions (default user)")
	fs.BoolVar(&r.adk.ReplayedState, "replayed-state", false, "let ADK's sessions have the state that their events give, where the database has another")
	fs.BoolVar(&r.adk.OverwriteShared, "overwrite-shared", false, "replace shared values that are there by those of ADK's")
	fs.StringSliceVar(&r.ignored, "ignore-column", nil, "a `TABLE.COLUMN` of ADK's database that is unknown and may stay behind")
	r.dryRun = declareDryRun(fs)
	cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(sourceFormats(), cobra.ShellCompDirectiveNoFileComp))
	cmd.RegisterFlagCompletionFunc("compactions", cobra.FixedCompletions([]cobra.Completion{"adopt", "keep"}, cobra.ShellCompDirectiveNoFileComp))
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
		switch {
		case r.format != "" && !slices.Contains(sourceFormats(), r.format):
			return usagef("--format: unknown name %q; one of %s", r.format, strings.Join(sourceFormats(), ", "))
		case r.compactions != "" && r.compactions != "adopt" && r.compactions != "keep":
			return usagef("--compactions: %q is neither adopt nor keep", r.compactions)
		case r.maxBytes < 1:
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
	format        string
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
	case src.format == fromLines:
		return r.importLines(ctx, keyText, src.input)
	case src.format == fromDatabase:
		return r.importDatabase(ctx, keyText, sources[0])
	case keyText != "":
		return usagef("KEY does not go with %s, whose sessions have ids of their own", sources[0])
	case src.format == fromADK:
		return r.importADK(ctx, src)
	}
	return r.importAgent(ctx, src, map[store.Key]string{})
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
	return r.report(o, nil)
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
		o = outcomeOf(key, store.Copied{Created: done.Created, Added: done.Added, Present: done.Present, Seq: done.View.Seq()})
		if r.compactions == "adopt" {
			err = o.adoptRecords(ctx, s, key, done.View)
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
	*input // nil for a database
}

func (s *importSource) close() {
	if s.input != nil {
		s.input.close()
	}
}

// The beginning of a source by which it is recognised.
const headBytes = 64 << 10

// open opens a source, and finds out what it is.
func (r *importing) open(ctx context.Context, name string) (*importSource, error) {
	scheme, rest, isURL, err := splitURL(name)
	switch {
	case err != nil:
		return nil, err
	case isURL:
		src := &importSource{name: scheme + "://" + rest, format: r.format}
		if src.format == "" {
			if src.format, err = r.onPostgres(ctx, src.name); err != nil {
				return nil, fmt.Errorf("SOURCE: %w", err)
			}
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
	src := &importSource{name: name, format: r.format, input: in}
	if src.format == "" {
		src.format = formatOf(text)
	}
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
	text := bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\ufeff")), " \t\r\n")
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
