package migrate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/store"
)

// Input is a file or a database to migrate.
type Input struct {
	Name   string
	Folder string // the folder that was named in place of the file; empty if the file was named
}

// Inputs expands names: a folder to all files in it, except in .git; a pattern to the files that match it, as
// [filepath.Glob] does; and any other name to itself.
func Inputs(names []string) (inputs []Input) {
	for _, name := range names {
		found := []string{name}
		if _, err := os.Stat(name); err != nil {
			if match, _ := filepath.Glob(name); len(match) > 0 {
				found = match
			}
		}
		for _, name := range found {
			if info, err := os.Stat(name); err != nil || !info.IsDir() {
				inputs = append(inputs, Input{Name: name})
				continue
			}
			filepath.WalkDir(name, func(path string, entry fs.DirEntry, err error) error {
				switch {
				case err != nil:
					inputs = append(inputs, Input{Name: path}) // opening it gives the error
				case entry.IsDir() && entry.Name() == ".git":
					return fs.SkipDir
				case entry.Type().IsRegular():
					inputs = append(inputs, Input{path, name})
				}
				return nil
			})
		}
	}
	return inputs
}

// Openers open the inputs and the target of [RunAll].
type Openers struct {
	// Source opens an input. If the source is an [io.Closer], RunAll closes it.
	Source func(ctx context.Context, in Input) (Source, error)

	// Target returns the store to write. It is called after Source, so that the store is not locked while an input is
	// awaited.
	Target func(ctx context.Context) (*store.Store, error)
}

// RunAll calls [Run] for each input, and adds up the reports. If there are several inputs, one that cannot be migrated is
// reported to failed, and the next one is migrated. A file in a folder that cannot be opened, and one of several files
// whose format is unknown, is only listed, in [Report.Unread].
func RunAll(ctx context.Context, inputs []Input, open Openers, failed func(error) error, opts Options) (total Report, err error) {
	for _, in := range inputs {
		report, opened, err := runInput(ctx, in, open, opts)
		total.Add(report)
		var unknown *UnknownFormatError
		isUnknown := errors.As(err, &unknown) && (len(inputs) > 1 || in.Folder != "")
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return total, err
		case isUnknown, !opened && in.Folder != "":
			reason := strings.ReplaceAll(err.Error(), in.Name, "it")
			if isUnknown {
				reason = unknown.Reason
			}
			total.Add(Report{Unread: map[string][]string{reason: {in.Name}}})
			if in.Folder == "" {
				total.Failures++
			}
		case len(inputs) == 1, StatusOf(err) == "" && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission):
			return total, err
		default:
			total.Add(Report{Sessions: map[Status]int{Failed: 1}, Failures: 1})
			if err := failed(err); err != nil {
				return total, err
			}
		}
	}
	return total, nil
}

// runInput migrates an input. opened reports whether its source could be opened.
func runInput(ctx context.Context, in Input, open Openers, opts Options) (_ Report, opened bool, err error) {
	source, err := open.Source(ctx, in)
	if err != nil {
		return Report{}, false, err
	}
	if closer, ok := source.(io.Closer); ok {
		defer closer.Close() // it was only read
	}
	target, err := open.Target(ctx)
	if err != nil {
		return Report{}, true, err
	}
	report, err := Run(ctx, target, source, opts)
	return report, true, err
}

// mostUnread is how many files [Report.UnreadText] names for a reason.
const mostUnread = 3

// UnreadText returns a line for each reason for which files were not read, and one with the formats that are read. It
// returns nil if all files were read.
func (r Report) UnreadText() (lines []string) {
	for _, reason := range slices.Sorted(maps.Keys(r.Unread)) {
		names, more := r.Unread[reason], ""
		if n := len(names) - mostUnread; n > 0 {
			more = fmt.Sprintf(" and %d more", n)
		}
		lines = append(lines, fmt.Sprintf("not imported (%s): %s: %s%s", reason, present.Counted(len(names), "file"), strings.Join(names[:min(mostUnread, len(names))], ", "), more))
	}
	if len(lines) > 0 {
		lines = append(lines, "supported formats: "+Names())
	}
	return lines
}
