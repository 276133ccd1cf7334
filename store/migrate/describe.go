package migrate

import (
	"errors"
	"fmt"
	"strings"

	"github.com/patchlog-dev/patchlog/internal/present"
)

// Describe describes the result in a summary line, followed by an indented line for each note. If dryRun is set, it
// describes what a migration would do. The lines are printable.
func (r Result) Describe(dryRun bool) []string {
	would := ""
	if dryRun {
		would = "would be "
	}
	var lines []string
	switch r.Status {
	case Created, Extended:
		lines = append(lines, fmt.Sprintf("%s: %s%s, %s added; the log ends at record %d", r.Key, would, r.Status, present.Counted(r.Added, "record"), r.Seq))
	case Ahead:
		lines = append(lines, fmt.Sprintf("%s: nothing new; the log has more records than the source, up to record %d", r.Key, r.Seq))
	case Unchanged:
		lines = append(lines, fmt.Sprintf("%s: nothing new; the log ends at record %d", r.Key, r.Seq))
	default:
		lines = append(lines, fmt.Sprintf("%s: %s", r.Key, r.Status))
	}
	if n := len(r.Adopted) + len(r.NotAdopted); n > 0 {
		lines = append(lines, fmt.Sprintf("%d of %s adopted", len(r.Adopted), present.Counted(n, "compaction record")))
	}
	for _, l := range r.NotAdopted {
		lines = append(lines, fmt.Sprintf("not adopted: %s: %s", l.EventID, l.Reason))
	}
	for _, d := range r.Differences {
		lines = append(lines, d.String())
	}
	for i, line := range lines {
		lines[i] = strings.Repeat("  ", min(i, 1)) + present.Printable(line)
	}
	return lines
}

// Add adds the report of another migration to r.
func (r *Report) Add(o Report) {
	if r.Sessions == nil {
		r.Sessions = map[Status]int{}
	}
	for status, n := range o.Sessions {
		r.Sessions[status] += n
	}
	r.Added, r.Adopted, r.NotAdopted, r.Differences = r.Added+o.Added, r.Adopted+o.Adopted, r.NotAdopted+o.NotAdopted, r.Differences+o.Differences
	r.SharedAdded, r.SharedDifferent, r.SharedErr = r.SharedAdded+o.SharedAdded, append(r.SharedDifferent, o.SharedDifferent...), errors.Join(r.SharedErr, o.SharedErr)
	r.Source = append(r.Source, o.Source...)
	r.Failures += o.Failures
	for reason, names := range o.Unread {
		if r.Unread == nil {
			r.Unread = map[string][]string{}
		}
		r.Unread[reason] = append(r.Unread[reason], names...)
	}
}

// Describe describes the report. The last element of lines has the totals.
func (r Report) Describe(opts Options) (lines, problems []string) {
	if r.SharedErr != nil {
		problems = append(problems, "shared values: "+r.SharedErr.Error())
	}
	for _, name := range r.SharedDifferent {
		if opts.OverwriteShared {
			lines = append(lines, fmt.Sprintf("shared value %s: %s over another value", present.Printable(name), map[bool]string{true: "would be written", false: "written"}[opts.DryRun]))
		} else {
			problems = append(problems, fmt.Sprintf("shared value %s: the target has another value, which is kept", name))
		}
	}
	for _, d := range r.Source {
		lines = append(lines, present.Printable(d.String()))
	}
	all, text := 0, ""
	for _, status := range []Status{Created, Extended, Unchanged, Ahead, Gone, Conflict, Failed} {
		if n := r.Sessions[status]; n > 0 {
			all += n
			text += fmt.Sprintf(", %d %s", n, status)
		}
	}
	text = present.Counted(all, "session") + text
	if all > 0 && all == r.Sessions[Unchanged]+r.Sessions[Ahead] {
		text += ": nothing new"
	}
	if r.SharedAdded > 0 && !opts.DryRun {
		text += ", " + present.Counted(r.SharedAdded, "shared value") + " added"
	}
	if opts.DryRun {
		text += "; nothing is written"
	}
	return append(lines, text), problems
}

// Problems returns the number of sessions and shared values that could not be migrated with these options.
func (r Report) Problems(opts Options) int {
	n := r.Failures
	if r.SharedErr != nil {
		n++
	}
	if !opts.OverwriteShared {
		n += len(r.SharedDifferent)
	}
	return n
}
